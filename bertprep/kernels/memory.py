"""Adds operations on memory and bits that numba lacks: unaligned loads and stores, copies, prefetching, and counting bits."""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from bertprep.kernels import numbers as n
from bertprep.kernels.language import i64, subroutine, u8_p, u32, u64


@subroutine
def copy_numbers(to: Any, source: Any, count: Any) -> None:
    """Copy the first `count` numbers; the types of both pointers may differ."""
    for i in range(count):
        to[i] = source[i]


@subroutine
def fill(to: Any, start: Any, end: Any, value: Any) -> None:
    """Set the numbers from index `start` to `end` - 1 to a value."""
    for i in range(start, end):
        to[i] = value


def loaded(builder: Any, pointer: Any, index: Any, kind: Any) -> Any:
    """Emit a load of a value of type `kind` from pointer[index], which need not be aligned; for intrinsics."""
    value = builder.load(builder.bitcast(builder.gep(pointer, [index]), kind.as_pointer()))
    value.align = 1
    return value


def stored(builder: Any, value: Any, pointer: Any, index: Any) -> None:
    """Emit a store of a value of any type to pointer[index], which need not be aligned; for intrinsics."""
    builder.store(value, builder.bitcast(builder.gep(pointer, [index]), value.type.as_pointer())).align = 1


@intrinsic
def pointer_at(_context: Any, kind: Any, _address: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[1], context.get_value_type(signature.return_type))

    return kind.instance_type(kind, types.int64), generate


def _load(kind: Any, result: Any) -> Any:
    @intrinsic
    def load(_context: Any, _pointer: Any, _index: Any) -> Any:
        def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            return loaded(builder, arguments[0], arguments[1], kind)

        return result(u8_p, i64), generate

    return load


def _store(kind: Any) -> Any:
    @intrinsic
    def store(_context: Any, _pointer: Any, _index: Any, _value: Any) -> Any:
        def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            pointer, index, value = arguments
            stored(builder, value, pointer, index)
            return context.get_dummy_value()

        return types.none(u8_p, i64, kind), generate

    return store


load_u32, load_u64 = _load(ir.IntType(32), u32), _load(ir.IntType(64), u64)
load_f32, load_f64 = _load(ir.FloatType(), types.float32), _load(ir.DoubleType(), types.float64)
"""load(bytes, offset) returns the little-endian number at any offset."""
store_u32, store_u64 = _store(u32), _store(u64)
"""store(bytes, offset, value) writes a little-endian number at any offset."""


def _copy(width: int) -> Any:
    @intrinsic
    def copy(_context: Any, to: Any, _at: Any, source: Any, _start: Any) -> Any:
        def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            target, at, origin, start = arguments
            stored(builder, loaded(builder, origin, start, ir.VectorType(ir.IntType(8), width)), target, at)
            return context.get_dummy_value()

        return types.none(to, i64, source, i64), generate

    return copy


copy_16, copy_64 = _copy(16), _copy(64)
"""copy(to, at, source, start) copies 16 or 64 bytes at once; both sides must have them. Offsets are in elements."""


@intrinsic
def copy_memory(_context: Any, to: Any, source: Any, _count: Any) -> Any:
    """Copy the first `count` numbers by memcpy; both pointers have the same type."""

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        size = context.get_abi_sizeof(context.get_value_type(to.dtype))
        target, origin, count = arguments
        cgutils.raw_memcpy(builder, target, origin, count, size)  # type: ignore[no-untyped-call]
        return context.get_dummy_value()

    return types.none(to, source, i64), generate


@intrinsic
def shifted(_context: Any, pointer: Any, _count: Any) -> Any:
    """Return the pointer advanced by `count` elements."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.gep(arguments[0], [arguments[1]])

    return pointer(pointer, i64), generate


def _count_zeros(name: str) -> Any:
    @intrinsic
    def count(_context: Any, _value: Any) -> Any:
        def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            kind = ir.IntType(64)
            function = builder.module.declare_intrinsic(f"llvm.{name}", [kind], ir.FunctionType(kind, [kind, ir.IntType(1)]))
            return builder.call(function, [arguments[0], ir.IntType(1)(0)])

        return i64(u64), generate

    return count


trailing_zeros, leading_zeros = _count_zeros("cttz"), _count_zeros("ctlz")


@intrinsic
def count_bits(_context: Any, _value: Any) -> Any:
    """Return the number of bits that are 1."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        kind = ir.IntType(64)
        function = builder.module.declare_intrinsic("llvm.ctpop", [kind], ir.FunctionType(kind, [kind]))
        return builder.call(function, arguments)

    return i64(u64), generate


@intrinsic
def prefetch(_context: Any, pointer: Any, _index: Any) -> Any:
    """Start to load pointer[index] into the processor's cache."""

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        byte_pointer, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        function = builder.module.declare_intrinsic(
            "llvm.prefetch", [byte_pointer], ir.FunctionType(ir.VoidType(), [byte_pointer, number, number, number])
        )
        address = builder.bitcast(builder.gep(arguments[0], [arguments[1]]), byte_pointer)
        builder.call(function, [address, number(0), number(3), number(1)])
        return context.get_dummy_value()

    return types.none(pointer, i64), generate


def find_bytes(*ranges: tuple[int, int]) -> Any:
    """Return a function find(text, at) whose result has a bit for each of the 64 bytes from text[at] on.

    A bit is 1 if its byte is in one of the ranges (first, last).
    """

    @intrinsic
    def find(_context: Any, _text: Any, _at: Any) -> Any:
        def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            vector = ir.VectorType(ir.IntType(8), 64)
            value, found = (
                loaded(builder, arguments[0], arguments[1], vector),
                ir.Constant(ir.VectorType(ir.IntType(1), 64), [0] * 64),
            )
            for first, last in ranges:
                above = builder.sub(value, ir.Constant(vector, [first] * 64))
                within = builder.icmp_unsigned("<=", above, ir.Constant(vector, [last - first] * 64))
                found = builder.or_(found, within)
            return builder.bitcast(found, ir.IntType(64))

        return u64(u8_p, i64), generate

    return find


@subroutine
def field_at(block: Any, number: Any, row: Any) -> Any:
    """Return the address of a field's values in record `row` of a block."""
    return block[n.BLOCK_ADDRESS] + row * block[n.BLOCK_ROW_BYTES] + block[n.FIELD_WIDTH * number + n.FIELD_OFFSET]


@subroutine
def field_values(block: Any, number: Any) -> Any:
    """Return the number of values that a field has in a record."""
    return block[n.FIELD_WIDTH * number + n.FIELD_VALUES]

"""What kernels are written in: numba's compiled Python over raw pointers, with the few processor operations it lacks.

A kernel's parameters are annotated with the types below. Pointers are indexed like arrays and never checked, which is what
makes the loops fast: no wrap-around of negative indices, no reference counts. Integers are int64 unless they are made
uint64 or uint32 on purpose; numba turns a mix of int64 and uint64 into float64, so kernels do not mix them.
"""

import os
from collections.abc import Callable
from typing import Any

from llvmlite import binding as llvm
from llvmlite import ir
from numba import cfunc, njit, types
from numba.core import cgutils
from numba.extending import intrinsic

i64, u64, i32, u32 = types.int64, types.uint64, types.int32, types.uint32
_pointer: Any = types.CPointer
u8_p, u16_p, i32_p, u32_p, i64_p, u64_p, f32_p = map(_pointer, (types.uint8, types.uint16, i32, u32, i64, u64, types.float32))

CPU_FEATURES = {} if os.environ.get("BERTPREP_PORTABLE") else dict(llvm.get_host_cpu_features())
"""What the processor can do beyond the common; nothing where BERTPREP_PORTABLE asks for what runs anywhere, as tests do."""
HAS_CRC32_INSTRUCTION = bool(CPU_FEATURES.get("sse4.2")) or bool(CPU_FEATURES.get("crc"))
"""x86-64 and ARMv8 processors have one for CRC-32C; one that lacks it would die of it, hence the question."""
_ON_ARM = not CPU_FEATURES.get("sse4.2", False)

subroutine = njit(error_model="numpy")
"""A function that kernels call; LLVM inlines it where that pays."""
inlined = njit(error_model="numpy", forceinline=True)
"""A function that is always made part of its caller: for what is called for each word or token."""


@subroutine
def copy_numbers(to: Any, source: Any, count: Any) -> None:
    """Copy the first `count` numbers, of any types of both."""
    for i in range(count):
        to[i] = source[i]


@subroutine
def fill(to: Any, start: Any, end: Any, value: Any) -> None:
    """Write a value to the numbers from `start` to `end` - 1."""
    for i in range(start, end):
        to[i] = value


class KernelSource:
    """A function to be compiled for callers outside; its annotations are its interface."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._types = dict(function.__annotations__)
        self.name = function.__name__
        self.result = _numpy_name(self._types["return"])
        self.parameters = [[name, _numpy_name(kind)] for name, kind in self._types.items() if name != "return"]

    def compile(self) -> Any:
        """Numba's compiled C callback of this kernel."""
        arguments = [kind for name, kind in self._types.items() if name != "return"]
        return cfunc(self._types["return"](*arguments), error_model="numpy")(self._function)


def _numpy_name(kind: Any) -> str:
    return f"{kind.dtype.name}*" if isinstance(kind, types.CPointer) else str(kind.name)


kernel = KernelSource


def loaded(builder: Any, pointer: Any, index: Any, kind: Any) -> Any:
    """The value of type `kind` at pointer[index], wherever that is: code for an intrinsic."""
    value = builder.load(builder.bitcast(builder.gep(pointer, [index]), kind.as_pointer()))
    value.align = 1
    return value


def stored(builder: Any, value: Any, pointer: Any, index: Any) -> None:
    """Write a value of any type to pointer[index]: the same the other way round."""
    builder.store(value, builder.bitcast(builder.gep(pointer, [index]), value.type.as_pointer())).align = 1


@intrinsic
def pointer_at(_context: Any, kind: Any, _address: Any) -> Any:
    """The memory at an address, as a pointer of that kind."""

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
"""load(bytes, offset): a little-endian number at any offset."""
store_u32, store_u64 = _store(u32), _store(u64)
"""store(bytes, offset, value): the same the other way round."""


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
"""copy(to, at, source, start): that many bytes in one go; both sides must have them, offsets count elements."""


@intrinsic
def copy_memory(_context: Any, to: Any, source: Any, _count: Any) -> Any:
    """Copy the first `count` numbers, of the same type in both: memcpy."""

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        size = context.get_abi_sizeof(context.get_value_type(to.dtype))
        target, origin, count = arguments
        cgutils.raw_memcpy(builder, target, origin, count, size)  # type: ignore[no-untyped-call]
        return context.get_dummy_value()

    return types.none(to, source, i64), generate


@intrinsic
def shifted(_context: Any, pointer: Any, _count: Any) -> Any:
    """The pointer, `count` elements on."""

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


def ones_in(builder: Any, value: Any) -> Any:
    """How many bits of a 64-bit value are 1: code for an intrinsic."""
    kind = ir.IntType(64)
    return builder.call(builder.module.declare_intrinsic("llvm.ctpop", [kind], ir.FunctionType(kind, [kind])), [value])


@intrinsic
def count_bits(_context: Any, _value: Any) -> Any:
    """How many bits of a number are 1."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return ones_in(builder, arguments[0])

    return i64(u64), generate


@intrinsic
def prefetch(_context: Any, pointer: Any, _index: Any) -> Any:
    """Begin to bring pointer[index] into the cache."""

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        byte_pointer, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        function = builder.module.declare_intrinsic(
            "llvm.prefetch", [byte_pointer], ir.FunctionType(ir.VoidType(), [byte_pointer, number, number, number])
        )
        address = builder.bitcast(builder.gep(arguments[0], [arguments[1]]), byte_pointer)
        builder.call(function, [address, number(0), number(3), number(1)])
        return context.get_dummy_value()

    return types.none(pointer, i64), generate


def _crc32c_step(bits: int, x86_name: str, arm_name: str) -> Any:
    @intrinsic
    def step(_context: Any, _checksum: Any, _data: Any) -> Any:
        def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            narrow, data = ir.IntType(32), ir.IntType(bits)
            checksum = arguments[0]
            wide = data if bits == 64 and not _ON_ARM else narrow
            if wide.width == 32:
                checksum = builder.trunc(checksum, narrow)
            value = builder.trunc(arguments[1], data) if bits < 64 else arguments[1]
            if _ON_ARM and bits < 32:
                value, data = builder.zext(value, narrow), narrow
            name = arm_name if _ON_ARM else x86_name
            function = builder.module.declare_intrinsic(name, (), ir.FunctionType(wide, [wide, data]))
            result = builder.call(function, [checksum, value])
            return result if wide.width == 64 else builder.zext(result, ir.IntType(64))

        return u64(u64, u64), generate

    return step


crc32c_u64 = _crc32c_step(64, "llvm.x86.sse42.crc32.64.64", "llvm.aarch64.crc32cx")
crc32c_u8 = _crc32c_step(8, "llvm.x86.sse42.crc32.32.8", "llvm.aarch64.crc32cb")
"""crc32c(checksum, data): the CRC-32C register after 8 bytes or 1 byte more."""


@intrinsic
def word_bytes(_context: Any, _text: Any, _at: Any) -> Any:
    """How many of the 32 bytes at text[at] are ASCII letters or digits before the first that is not."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        vector, wide = ir.VectorType(ir.IntType(8), 32), ir.IntType(64)
        value = loaded(builder, arguments[0], arguments[1], vector)

        def all_of(number: int) -> Any:
            return ir.Constant(vector, [number] * 32)

        def within(operand: Any, first: str, last: str) -> Any:
            return builder.icmp_unsigned("<=", builder.sub(operand, all_of(ord(first))), all_of(ord(last) - ord(first)))

        word = builder.or_(within(builder.or_(value, all_of(0x20)), "a", "z"), within(value, "0", "9"))
        others = builder.not_(builder.zext(builder.bitcast(word, ir.IntType(32)), wide))
        count = builder.module.declare_intrinsic("llvm.cttz", [wide], ir.FunctionType(wide, [wide, ir.IntType(1)]))
        return builder.call(count, [others, ir.IntType(1)(1)])

    return i64(u8_p, i64), generate

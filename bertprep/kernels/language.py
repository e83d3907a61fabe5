"""Defines the language of kernels: Python that numba compiles, with raw pointers and the processor operations of `memory`.

Parameters are annotated with the types below. Pointers are indexed like arrays, but without bounds checks. Integers are int64
unless they are made uint64 or uint32 on purpose. Do not mix them, because numba turns int64 with uint64 into float64.
"""

from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from llvmlite import binding as llvm
from llvmlite import ir
from numba import cfunc, njit, types
from numba.extending import intrinsic

i64, u64, i32, u32 = types.int64, types.uint64, types.int32, types.uint32
_pointer: Any = types.CPointer
u8_p, u16_p, i32_p, u32_p, i64_p, u64_p, f32_p, f64_p = map(
    _pointer, (types.uint8, types.uint16, i32, u32, i64, u64, types.float32, types.float64)
)


class Block:
    """The type of a parameter for records: callers pass a record array, and the kernel gets the numbers BLOCK_* and FIELD_*."""


@dataclass(frozen=True)
class Table:
    """The type of a parameter for many structs: callers pass a `kernels.Table`, and the kernel reads one by calling `row`."""

    row: Any


CPU_FEATURES = dict(llvm.get_host_cpu_features())
"""Name of a feature of the processor, such as an instruction set -> whether this processor has it."""

subroutine = njit(error_model="numpy")
"""The decorator of a function that kernels call; LLVM decides whether to inline it."""
inlined = njit(error_model="numpy", forceinline=True)
"""The decorator of a function that is always inlined, because it is called for each word or token."""


class KernelSource:
    """A function that will be compiled for calls from Python; its annotations are its interface."""

    def __init__(self, function: Callable[..., Any], conditions: Sequence[str], extents: Mapping[str, str]) -> None:
        self._function = function
        self._types = dict(function.__annotations__)
        self.name = function.__name__
        self.result = _described(self._types.pop("return"))
        self.parameters = [[name, _described(kind)] for name, kind in self._types.items()]
        self.conditions = list(conditions)
        self.extents = dict(extents)
        for kind in self._types.values():
            self.extents |= getattr(kind, "extents", {})

    def compile(self) -> Any:
        is_struct = [kind is Block or isinstance(kind, Table) or hasattr(kind, "fields") for kind in self._types.values()]
        arguments = [i64_p if is_one else kind for kind, is_one in zip(self._types.values(), is_struct, strict=True)]
        return cfunc(i64(*arguments), error_model="numpy")(self._function)


def _described(kind: Any) -> Any:
    """Describe a type for JSON: the name of a NumPy type, followed by `*` for a pointer, or "block" for records.

    A struct is a dict of its fields' types, and a table is a list of such a dict and the extents of its arrays.
    """
    if kind is Block:
        return "block"
    if isinstance(kind, Table):
        return [_described(kind.row), kind.row.extents]
    if hasattr(kind, "fields"):
        return {name: _described(field) for name, field in kind.fields.items()}
    return f"{kind.dtype.name}*" if isinstance(kind, types.CPointer) else str(kind.name)


def kernel(*conditions: str, **extents: str) -> Callable[[Callable[..., Any]], KernelSource]:
    """Return a decorator for a kernel, with conditions on its arguments that `Kernel` checks before each call.

    `extents` are the least sizes of its arrays, and `conditions` anything else that must hold. All are expressions over
    parameters, fields of structs, and the names in `numbers`.
    """
    return lambda function: KernelSource(function, conditions, extents)


def struct(extents: Mapping[str, str], **fields: Any) -> Any:
    """Return the type of a parameter for a struct: callers pass a dict, and the kernel calls the type to get a named tuple.

    `extents` are the least sizes of its arrays, as for `kernel`.
    """
    kind = types.NamedTuple(tuple(fields.values()), namedtuple("Fields", list(fields)))  # type: ignore[no-untyped-call]

    @intrinsic
    def read(_context: Any, _row: Any) -> Any:
        def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            values = []
            for index, field in enumerate(kind.types):
                value = builder.load(builder.gep(arguments[0], [ir.IntType(64)(index)]))
                is_pointer = isinstance(field, types.CPointer)
                values.append(builder.inttoptr(value, context.get_value_type(field)) if is_pointer else value)
            return context.make_tuple(builder, kind, values)

        return kind(i64_p), generate

    read.fields, read.extents = fields, extents  # type: ignore[attr-defined]
    return read

"""The language of kernels: numba's compiled Python over raw pointers, with the processor operations of `memory`.

Parameters are annotated with the types below. Pointers are indexed like arrays without checks. Integers are int64 unless made
uint64 or uint32 on purpose; do not mix them, since numba turns int64 with uint64 into float64.
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
    """The type of a parameter for which callers give records, a record array; the kernel has the table of `Kernel`, BLOCK_*."""


@dataclass(frozen=True)
class Table:
    """The type of a parameter for which callers give a `kernels.Table`, many structs; `read_row` gets one in a kernel."""

    row: Any


CPU_FEATURES = dict(llvm.get_host_cpu_features())
"""Which instructions the processor has."""

subroutine = njit(error_model="numpy")
"""A function that kernels call; LLVM inlines it where that pays."""
inlined = njit(error_model="numpy", forceinline=True)
"""A function that is always made part of its caller: for what is called for each word or token."""


class KernelSource:
    """A function to be compiled for callers outside; its annotations are its interface."""

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
    """The name of a NumPy type, with `*` after it for a pointer; "block" for records; the names of the fields of a struct.

    A table is a list of its row's fields and their extents.
    """
    if kind is Block:
        return "block"
    if isinstance(kind, Table):
        return [_described(kind.row), kind.row.extents]
    if hasattr(kind, "fields"):
        return {name: _described(field) for name, field in kind.fields.items()}
    return f"{kind.dtype.name}*" if isinstance(kind, types.CPointer) else str(kind.name)


def kernel(*conditions: str, **extents: str) -> Callable[[Callable[..., Any]], KernelSource]:
    """Return the decorator of a kernel with what must hold of its arguments, which `Kernel` checks before each call.

    `extents` are the least sizes of arrays, conditions anything else: expressions over parameters, the fields of structs, and
    the names of `numbers`.
    """
    return lambda function: KernelSource(function, conditions, extents)


def struct(extents: Mapping[str, str], **fields: Any) -> Any:
    """Return the type of a parameter for which callers give a dict; the kernel calls it to get a named tuple.

    `extents` are as those of `kernel`.
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

"""Loads compiled loops over tokens and bytes, which are written in Python and compiled once for this processor.

`build` compiles them with numba into one object file. `trusted_cache` keeps that file under a hash of the sources, the compiler
and the processor, and llvmlite loads it in 10 ms. `Kernel` checks the type, layout and size of every array; callers check the
ids in them.
"""

import ctypes
import hashlib
import json
import math
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bertprep.config import RecordFormat
from bertprep.kernels import numbers
from bertprep.progress import print_message
from bertprep.trusted_cache import cached

_SOURCES = (
    "numbers",
    "language",
    "memory",
    "mersenne",
    "wordpiece",
    "generate",
    "crc32c",
    "encode",
    "rows",
    "best_fit",
    "mask_rows",
    "pairs",
    "varints",
    "protobuf",
    "decode",
    "record_counts",
)
_BLOCK = "block"
_FIELD_TYPES = {np.dtype(np.uint8): numbers.BYTES, np.dtype(np.int32): numbers.INTEGERS, np.dtype(np.float32): numbers.FLOATS}
_C_TYPES: dict[str, Any] = {"int64": ctypes.c_int64, "uint64": ctypes.c_uint64, "uint32": ctypes.c_uint32}


class _Row(NamedTuple):
    """The type of a row of a table: the types of its fields, and the least sizes of their arrays."""

    fields: dict[str, Any]
    extents: dict[str, str]


class Table:
    """Many structs as one argument for a kernel, checked by `Kernel.table`; it keeps their arrays alive."""

    def __init__(self, kind: _Row, numbers_of_rows: NDArray[np.int64], rows: Sequence[Mapping[str, Any]]) -> None:
        self.kind, self.numbers = kind, numbers_of_rows
        self._rows = rows  # keeps the arrays alive, so that their addresses stay valid

    @property
    def size(self) -> int:
        return len(self.numbers)


class Kernel:
    """One compiled function. Its arguments are numbers, NumPy arrays for pointers, and dicts of fields for structs.

    A call raises `TypeError` if an array does not have the declared type, and `ValueError` if it is smaller than declared.
    """

    def __init__(self, engine: Any, name: str, interface: Mapping[str, Any]) -> None:
        """Take the function from an LLVM engine; `interface` comes from `build.compile_kernels`.

        In `interface`, the type of a parameter is the name of a NumPy type, with `*` for a pointer; "block" for records; a dict
        of the types of fields for a struct; or a list of such a dict and the extents of its arrays for a table.
        """
        self._engine = engine  # keeps the code alive: if two threads call `load` at once, it drops one of the two results
        self._name = name
        parameters, self._conditions, extents = interface["parameters"], interface["conditions"], interface["extents"]
        self._parameters = [(parameter, _dtypes(kind)) for parameter, kind in parameters]
        self._arrays = [*extents]
        self._extents = compile(f"({''.join(f'{each}, ' for each in extents.values())})", name, "eval")
        self._rules = compile(f"({''.join(f'{each}, ' for each in self._conditions)})", name, "eval")
        c_types = [_C_TYPES.get(kind) if isinstance(kind, str) else None for _, kind in parameters]
        self._function = ctypes.CFUNCTYPE(_C_TYPES[interface["result"]], *(kind or ctypes.c_void_p for kind in c_types))(
            engine.get_function_address(interface["symbol"])
        )

    def __call__(self, *arguments: Any) -> int:
        if len(arguments) != len(self._parameters):
            raise TypeError(f"{self._name}: expected {len(self._parameters)} arguments, found {len(arguments)}")
        plain = [*map(self._plain, self._parameters, arguments)]
        self._check_extents(arguments)
        result: int = self._function(*plain)
        return result

    def table(self, parameter: str, rows: Sequence[Mapping[str, Any]]) -> Table:
        """Return many structs as one argument for a parameter; they are checked only once, here."""
        kind = dict(self._parameters)[parameter]
        numbers_of_rows = np.zeros((len(rows), len(kind.fields)), np.int64)
        extents = [(name, compile(extent, name, "eval")) for name, extent in kind.extents.items()]
        for row, of_row in zip(rows, numbers_of_rows, strict=True):
            of_row[:] = [self._plain((f"{parameter}.{name}", field), row[name]) for name, field in kind.fields.items()]
            for name, extent in extents:
                if row[name].size < (least := eval(extent, vars(numbers), dict(row))):
                    raise ValueError(
                        f"{self._name}: {parameter}.{name} has {row[name].size:,} values, expected at least {least:,}"
                    )
        return Table(kind, numbers_of_rows, rows)

    def bind(self, *arguments: Any) -> Callable[..., int]:
        """Return the function with its first arguments fixed, for calls in a loop: their types are checked only once, here."""
        plain, others = list(map(self._plain, self._parameters, arguments)), self._parameters[len(arguments) :]

        def call(*more: Any) -> int:
            rest = [*map(self._plain, others, more)]
            self._check_extents((*arguments, *more))
            result: int = self._function(*plain, *rest)
            return result

        return call

    def _check_extents(self, arguments: Sequence[Any]) -> None:
        """Raise `ValueError` if an array is smaller than its declared extent, or if a condition does not hold."""
        names: dict[str, Any] = {}
        for (name, kind), argument in zip(self._parameters, arguments, strict=True):
            names |= argument if isinstance(kind, dict) else {name: argument}
        for name, extent in zip(self._arrays, eval(self._extents, vars(numbers), names), strict=True):
            if names[name].size < extent:
                raise ValueError(f"{self._name}: {name} has {names[name].size:,} values, expected at least {extent:,}")
        for rule, holds in zip(self._conditions, eval(self._rules, vars(numbers), names), strict=True):
            if not holds:
                raise ValueError(f"{self._name}: expected {rule}")

    def _plain(self, parameter: tuple[str, Any], argument: Any) -> Any:
        """Return an argument as ctypes needs it: a number, or an address after a check of the type and layout of the array."""
        name, kind = parameter
        if isinstance(kind, dict):  # a row of numbers and addresses
            fields = [self._plain(field, argument[field[0]]) for field in kind.items()]
            return (ctypes.c_int64 * len(fields))(*fields)
        if kind is None:
            return argument
        if kind == _BLOCK:
            return self._block(name, argument)
        if isinstance(kind, _Row):
            if not isinstance(argument, Table) or argument.kind != kind:
                raise TypeError(f"{self._name}: {name} must be a table of such structs")
            return argument.numbers.ctypes.data
        is_array = isinstance(argument, np.ndarray) and argument.dtype == kind
        if not (is_array and argument.flags.c_contiguous and argument.flags.aligned):
            raise TypeError(f"{self._name}: {name} must be a contiguous array of {kind}")
        if argument.size and argument.flags.writeable:  # three times as fast as `ctypes.data`, and a batch has many arrays
            return ctypes.addressof(ctypes.c_char.from_buffer(argument))
        return argument.ctypes.data

    def _block(self, name: str, block: Any) -> Any:
        """Return the numbers BLOCK_* of a record array and FIELD_* of each field.

        All of them are read from the array itself, so they always fit it.
        """
        if not isinstance(block, np.ndarray) or block.ndim != 1 or not block.dtype.names:
            raise TypeError(f"{self._name}: {name} must be a record array")
        if not (block.flags.c_contiguous and block.flags.aligned):
            raise TypeError(f"{self._name}: {name} must be a contiguous record array; give a copy of it")
        fields = _fields_of(block.dtype)
        table = type(fields).from_buffer_copy(fields)
        table[numbers.BLOCK_ADDRESS] = block.ctypes.data
        return table


@lru_cache
def _fields_of(dtype: np.dtype[Any]) -> ctypes.Array[ctypes.c_int64]:
    """Return the numbers BLOCK_*, with 0 as the address, and FIELD_* of each field.

    Raises `TypeError` for a field that is not a feature.
    """
    table: list[int] = []
    wanted, fields = 0, dict(dtype.fields or {})
    for name in dtype.names or ():
        field, offset = fields[name][:2]
        if field.base not in _FIELD_TYPES or name not in numbers.NUMBER_OF_FEATURE or field.ndim > 1:
            raise TypeError(f"expected records with features of uint8, int32 or float32, found the field {name} of {field}")
        feature = numbers.NUMBER_OF_FEATURE[name]
        wanted |= 1 << feature
        table += [feature, offset, math.prod(field.shape), _FIELD_TYPES[field.base]]
    row = 0, dtype.itemsize, wanted, len(dtype.names or ()), *table
    return (ctypes.c_int64 * len(row))(*row)


def _dtypes(kind: Any) -> Any:
    """Return a type of `Kernel`'s interface with dtypes instead of names: None for a number, "block" for records."""
    if kind == _BLOCK:
        return kind
    if isinstance(kind, list):
        return _Row(_dtypes(kind[0]), kind[1])
    if isinstance(kind, dict):
        return {name: _dtypes(field) for name, field in kind.items()}
    return np.dtype(kind[:-1]) if kind[-1] == "*" else None


class Kernels:
    """All compiled functions, as attributes with their names."""

    def __init__(self, functions: dict[str, Kernel]) -> None:
        self._functions = functions

    def __getattr__(self, name: str) -> Kernel:
        try:
            return self._functions[name]
        except KeyError:
            raise AttributeError(name) from None


@cache
def load() -> Kernels:
    """Return the kernels for this processor; if they are not in the cache, they are compiled first, which takes about 15 s."""
    from llvmlite import __version__ as compiler_version
    from llvmlite import binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    processor = f"{llvm.get_process_triple()} {llvm.get_host_cpu_name()} {llvm.get_host_cpu_features().flatten()}"
    formats = [record_format.number for record_format in RecordFormat]  # compiled in, but not part of the sources below
    digest = hashlib.sha256(f"{compiler_version} {processor} {formats}".encode())
    for source in ("build", *_SOURCES):
        digest.update((Path(__file__).with_name(f"{source}.py")).read_bytes())
    code = cached(f"kernels-{digest.hexdigest()[:24]}.o", _compile)
    header, _, machine_code = code.partition(b"\n")
    target = llvm.Target.from_default_triple().create_target_machine(jit=True, codemodel="jitdefault")
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), target)
    engine.add_object_file(llvm.ObjectFileRef.from_data(machine_code))
    engine.finalize_object()
    functions = {name: Kernel(engine, name, interface) for name, interface in json.loads(header).items()}
    return Kernels(functions)


def _compile() -> bytes:
    from bertprep.kernels import build

    print_message("bertprep: compiling kernels for this processor; this happens once, and takes about 15 s")
    with _interrupts_held_back():
        return build.compile_kernels(_SOURCES)


@contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """Defer Ctrl-C to the end of the block, because clean-up code of the compiler could swallow it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    seen: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: seen.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if seen and callable(before):
        before(signal.SIGINT, None)

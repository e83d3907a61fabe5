"""Compiled loops over tokens and bytes, written in Python and compiled once for this processor.

`build` compiles them with numba into one object file, which `trusted_cache` keeps under the hash of source, compiler and
processor; llvmlite loads it in 10 ms. `Kernel` checks the type and layout of every array, callers their contents and sizes.
"""

import ctypes
import hashlib
import json
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from bertprep.config import RecordFormat
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
    "sha256",
    "encode",
    "rows",
    "packing",
    "varints",
    "messages",
    "decode",
    "record_checks",
    "text",
)
_C_TYPES: dict[str, Any] = {"int64": ctypes.c_int64, "uint64": ctypes.c_uint64, "uint32": ctypes.c_uint32}


class Kernel:
    """One compiled function: takes NumPy arrays where the source says pointer, dicts of fields for a struct, and numbers."""

    def __init__(self, engine: Any, symbol: str, name: str, result: str, parameters: Sequence[tuple[str, Any]]) -> None:
        """`parameters`: names and types; a type is a NumPy type's name, with `*` after it for a pointer, or those of fields."""
        self._engine = engine  # which holds the code: of two that threads load at once, one is dropped by `load`
        self._name = name
        self._parameters = [(parameter, _dtypes(kind)) for parameter, kind in parameters]
        c_types = [_C_TYPES.get(kind) if isinstance(kind, str) else None for _, kind in parameters]
        self._function = ctypes.CFUNCTYPE(_C_TYPES[result], *(kind or ctypes.c_void_p for kind in c_types))(
            engine.get_function_address(symbol)
        )

    def __call__(self, *arguments: Any) -> int:
        if len(arguments) != len(self._parameters):
            raise TypeError(f"{self._name}: takes {len(self._parameters)} arguments, got {len(arguments)}")
        result: int = self._function(*map(self._plain, self._parameters, arguments))
        return result

    def bind(self, *arguments: Any) -> Callable[..., int]:
        """Return the function with its first arguments given, checked and held once: for what is called for every block."""
        plain, others = list(map(self._plain, self._parameters, arguments)), self._parameters[len(arguments) :]

        def call(*more: Any, _held: Any = arguments) -> int:
            result: int = self._function(*plain, *map(self._plain, others, more))
            return result

        return call

    def _plain(self, parameter: tuple[str, Any], argument: Any) -> Any:
        """Return a number, or the address of an array, which must be of the declared type and contiguous."""
        name, kind = parameter
        if isinstance(kind, dict):  # a row of numbers and addresses
            fields = [self._plain(field, argument[field[0]]) for field in kind.items()]
            return (ctypes.c_int64 * len(fields))(*fields)
        if kind is None:
            return argument
        if not isinstance(argument, np.ndarray) or argument.dtype != kind or not argument.flags.c_contiguous:
            raise TypeError(f"{self._name}: {name} must be a contiguous array of {kind}")
        return argument.ctypes.data


def _dtypes(kind: Any) -> Any:
    """Return the dtype of an array, None for a number, those of its fields for a struct."""
    if isinstance(kind, dict):
        return {name: _dtypes(field) for name, field in kind.items()}
    return np.dtype(kind[:-1]) if kind[-1] == "*" else None


class Kernels:
    """All compiled functions, as attributes by their names."""

    def __init__(self, functions: dict[str, Kernel]) -> None:
        self._functions = functions

    def __getattr__(self, name: str) -> Kernel:
        try:
            return self._functions[name]
        except KeyError:
            raise AttributeError(name) from None


@cache
def load() -> Kernels:
    """The kernels of this processor, compiled now if they are not in the cache (about 15 s, once)."""
    from llvmlite import __version__ as compiler_version
    from llvmlite import binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    processor = f"{llvm.get_process_triple()} {llvm.get_host_cpu_name()} {llvm.get_host_cpu_features().flatten()}"
    portable = os.environ.get("BERTPREP_PORTABLE", "")
    formats = [record_format.number for record_format in RecordFormat]  # which no other source has
    digest = hashlib.sha256(f"{compiler_version} {processor} {portable} {formats}".encode())
    for source in ("build", *_SOURCES):
        digest.update((Path(__file__).with_name(f"{source}.py")).read_bytes())
    code = cached(f"kernels-{digest.hexdigest()[:24]}.o", _compile)
    header, _, machine_code = code.partition(b"\n")
    target = llvm.Target.from_default_triple().create_target_machine(jit=True, codemodel="jitdefault")
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), target)
    engine.add_object_file(llvm.ObjectFileRef.from_data(machine_code))
    engine.finalize_object()
    functions = {
        name: Kernel(engine, entry["symbol"], name, entry["result"], entry["parameters"])
        for name, entry in json.loads(header).items()
    }
    return Kernels(functions)


def _compile() -> bytes:
    from bertprep.kernels import build

    print_message("bertprep: compiling its kernels for this processor, once; this takes about 15 s")
    with _interrupts_held_back():
        return build.compile_kernels(_SOURCES)


@contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """Defer Ctrl-C to the end of the block, in which the compiler's clean-up code could swallow it."""
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

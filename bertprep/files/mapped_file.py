"""Files mapped into memory that may be truncated while they are read.

A page that is no longer in its file cannot be read: the system sends SIGBUS, which would end the process without a message. The
handler installed here (`kernels.bus_errors`) maps zeros there instead and marks the file, so that reading finishes and `check`
then raises an error that names the file. It does not slow down reading. Installed on 64-bit Linux only.
"""

from __future__ import annotations

import ctypes
import mmap
import signal
import struct
import sys
from functools import cache
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from bertprep import kernels
from bertprep.errors import BertprepError
from bertprep.kernels.numbers import ACTION_BEFORE, CUTS, MAPPING_IS_CUT, MAPPING_ROWS, MAPPING_WIDTH, PAGE_SIZE

_IS_HANDLED = sys.platform == "linux" and struct.calcsize("P") == 8
_SA_SIGINFO = 4


class MappedFile(mmap.mmap):
    """The bytes of a file, read-only; raises `BertprepError` for an empty one."""

    def __new__(cls, file: BinaryIO) -> MappedFile:
        try:
            return super().__new__(cls, file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError as error:  # it has become empty
            raise BertprepError(
                f"{file.name}: was emptied while it was opened; see that nothing else writes there, make it again, and run the "
                "same command"
            ) from error

    def __init__(self, file: BinaryIO) -> None:
        self._path = file.name
        self._row = _watch(np.frombuffer(self, np.uint8)) if _IS_HANDLED else 0
        self._unwatch = _watched().release if self._row else None  # kept, since names are gone when the interpreter ends

    def check(self) -> None:
        """Raise `BertprepError` if the file was truncated since it was mapped, so that its end was read as zeros.

        Takes a microsecond, mostly for fstat, which detects a truncation within a page, where zeros appear without a signal.
        """
        if self.size() < len(self) or (self._row and _watched().table[self._row, MAPPING_IS_CUT]):
            raise BertprepError(
                f"{self._path}: was cut short while it was read, it had {len(self):,} bytes; "
                "see that nothing else writes there, make it again, and run the same command"
            )

    def close(self) -> None:
        super().close()  # raises if an array still refers to the bytes
        self._release()

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __del__(self) -> None:
        self._release()

    def _release(self) -> None:
        row, self._row = getattr(self, "_row", 0), 0
        if row and self._unwatch:
            self._unwatch(row)


def any_cut() -> bool:
    """Whether any mapped file was truncated while it was read: one test instead of a `check` of thousands of files."""
    return _IS_HANDLED and bool(_watched().table[0, CUTS])


def _watch(data: NDArray[np.uint8]) -> int:
    """The row of the table that watches these bytes; 0 if there is none."""
    watched = _watched()
    watched.install()  # each time: a framework loaded since may have installed its own handler
    return watched.take(data.ctypes.data, data.ctypes.data + data.size)


class _Action(ctypes.Structure):
    """`struct sigaction` of glibc and musl where pointers have 64 bits."""

    _fields_ = (
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_byte * 128),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    )


class _Watched:
    """The table of mappings and the handler that reads it; one per process."""

    def __init__(self) -> None:
        self.table = np.zeros((MAPPING_ROWS, MAPPING_WIDTH), np.int64)
        self._free = list(range(MAPPING_ROWS - 1, 0, -1))
        self._before = _Action()
        self._action = _Action(handler=kernels.load().on_bus_error.address, flags=_SA_SIGINFO)
        self._sigaction: Any = ctypes.CDLL(None).sigaction
        self.table[0, [PAGE_SIZE, ACTION_BEFORE]] = mmap.PAGESIZE, ctypes.addressof(self._before)
        kernels.load().take_table_of_mappings(self.table.ctypes.data)

    def install(self) -> None:
        """Install this module's handler in place of any other."""
        current = _Action()
        self._sigaction(signal.SIGBUS, None, ctypes.byref(current))
        if current.handler != self._action.handler:
            ctypes.pointer(self._before)[0] = current
            self._sigaction(signal.SIGBUS, ctypes.byref(self._action), None)

    def take(self, start: int, end: int) -> int:
        if not self._free:
            return 0
        row = self._free.pop()
        self.table[row] = start, end, 0
        return row

    def release(self, row: int) -> None:
        self.table[row] = 0
        self._free.append(row)


@cache
def _watched() -> _Watched:
    return _Watched()

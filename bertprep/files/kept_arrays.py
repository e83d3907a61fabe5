"""Arrays that take long to find, kept in the user's cache: a file each, removed when it was not used for long.

    $BERTPREP_CACHE/KIND/HASH.npy    int64 (n,), where HASH is of all that the array depends on
    $BERTPREP_CACHE/KIND/HASH.bin    bytes that are written piece by piece, and mapped into memory
    $BERTPREP_CACHE/KIND/HASH.lock   held by the process that writes them

Only this user can write there, but a run may have died or another version written: who takes an array checks what is in it.
Where nothing can be kept, such as on a full disk, the arrays are found again.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import mmap
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from bertprep.trusted_cache import own_folder

_MAPPED_BYTES = 1 << 20  # larger ones are mapped, so that processes share them
_KEPT_S = 60 * 86400  # after the last use
_SHARE_OF_FREE = 0.1  # the most that a file takes of the free space


def kept_array(kind: str, depends_on: str) -> NDArray[np.int64] | None:
    """Return the kept array (n,) of this kind that depends on this text; None where there is none."""
    if (path := _path(kind, depends_on, "npy")) is None:
        return None
    try:
        array = np.load(path, mmap_mode="r" if path.stat().st_size > _MAPPED_BYTES else None)
        os.utime(path)
    except (OSError, ValueError, EOFError):
        return None
    if not isinstance(array, np.ndarray) or array.dtype != np.int64 or array.ndim != 1:
        return None
    return np.asarray(array) if array.flags.c_contiguous and array.flags.aligned else None


def keep_array(kind: str, depends_on: str, array: NDArray[np.int64]) -> None:
    """Keep an array (n,), where that can be done, and remove those of its kind that were not used for long."""
    if (path := _path(kind, depends_on, "npy")) is None:
        return
    written = _temporary(path)
    with contextlib.suppress(OSError):
        _remove_unused(path.parent)
        try:
            with written.open("wb") as file:
                np.save(file, array)
            written.replace(path)
        finally:
            written.unlink(missing_ok=True)


def kept_bytes(kind: str, depends_on: str, *, since: float) -> NDArray[np.uint8] | None:
    """Return the kept file of this kind that depends on this text, mapped into memory: (bytes,).

    None where there is none that was used after the time `since`, in seconds.
    """
    if (path := _path(kind, depends_on, "bin")) is None:
        return None
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_mtime <= since:
                return None
            os.utime(path)
            return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
    except (OSError, ValueError):
        return None


def forget_bytes(kind: str, depends_on: str) -> None:
    """Remove a kept file, in which something was wrong."""
    if (path := _path(kind, depends_on, "bin")) is not None:
        with contextlib.suppress(OSError):
            path.unlink()


class KeptFile:
    """A file that is being written to be kept. After a failure nothing is written any more, and nothing kept."""

    def __init__(self, file: BinaryIO | None, most_bytes: int) -> None:
        self._file, self._most_bytes, self.size_bytes = file, most_bytes, 0

    @property
    def failed(self) -> bool:
        return self._file is None

    def has_room(self, size_bytes: int) -> bool:
        """Return whether so many bytes more leave the disk with enough free space."""
        return self.size_bytes + size_bytes <= self._most_bytes

    def write(self, array: NDArray[np.uint32]) -> None:
        try:
            if self._file is not None:
                self._file.write(array.tobytes())
                self.size_bytes += array.nbytes
        except OSError:
            self._file = None

    def clear(self) -> None:
        """Remove what was written."""
        self.size_bytes = 0
        if self._file is not None:
            self._file.seek(0)
            self._file.truncate()


@contextlib.contextmanager
def keep_bytes(kind: str, depends_on: str) -> Iterator[KeptFile]:
    """Write a file of this kind that depends on this text, which is kept at the end of the block unless a write failed."""
    path = _path(kind, depends_on, "bin")
    file, most_bytes = None, 0
    if path is not None:
        with contextlib.suppress(OSError):
            _remove_unused(path.parent)
            most_bytes = int(shutil.disk_usage(path.parent).free * _SHARE_OF_FREE)
            written = _temporary(path)
            file = written.open("wb")
    kept = KeptFile(file, most_bytes)
    try:
        yield kept
        if path is not None and file is not None and not kept.failed:
            with contextlib.suppress(OSError):
                file.close()
                written.replace(path)
    finally:
        if file is not None:
            with contextlib.suppress(OSError):
                file.close()
            written.unlink(missing_ok=True)


@contextlib.contextmanager
def one_at_a_time(kind: str, depends_on: str) -> Iterator[None]:
    """Wait for other processes that find the same array; on a file system without locks, go on."""
    path = _path(kind, depends_on, "lock")
    with contextlib.ExitStack() as stack:
        if path is not None:
            with contextlib.suppress(OSError):
                file = stack.enter_context(path.open("ab"))
                fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _remove_unused(folder: Path) -> None:
    for path in folder.iterdir():
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > _KEPT_S:
                path.unlink()


def _temporary(path: Path) -> Path:
    """Return a name that no other process or thread writes to, maybe on another machine."""
    return path.with_suffix(f".{secrets.token_hex(8)}.tmp")


def _path(kind: str, depends_on: str, end: str) -> Path | None:
    folder = own_folder(kind, warns=False)
    if folder is None:
        return None
    return folder / f"{hashlib.sha256(depends_on.encode(errors='surrogateescape')).hexdigest()[:32]}.{end}"

"""Keeps in the user's cache arrays that are slow to compute, one file each, until they have not been used for 60 days.

    $BERTPREP_CACHE/KIND/HASH.i64    int64 (n,), and their CRC-32C as int64; HASH is the hash of all that the array depends on
    $BERTPREP_CACHE/KIND/HASH.bin    bytes that are written in chunks, and mapped into memory when read
    $BERTPREP_CACHE/KIND/HASH.lock   locked by the process that computes them

Like compiled code, a file is used only if nobody else can write to it. An array must match its checksum; the bytes are checked
by their caller. What cannot be used, or cannot be kept, for example on a full disk, is computed again.
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

from bertprep import kernels
from bertprep.trusted_cache import open_own, own_folder

_MAPPED_BYTES = 1 << 20  # larger files are mapped, so that processes share their memory
_KEPT_S = 60 * 86400  # after the last use
_SHARE_OF_FREE = 0.1  # of the free space, the most that one file may use


def kept_array(kind: str, depends_on: str) -> NDArray[np.int64] | None:
    """Return the array (n,) that was kept under this kind and this text, or None if there is none."""
    if (path := _path(kind, depends_on, "i64")) is None:
        return None
    try:
        with open_own(path) as file:
            size_bytes = os.fstat(file.fileno()).st_size
            is_mapped = size_bytes > _MAPPED_BYTES
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if is_mapped else file.read()
        numbers = np.frombuffer(data, np.int64)
        os.utime(path)
    except (OSError, ValueError):
        return None
    if not len(numbers) or numbers[-1] != _checksum(numbers[:-1]):
        return None
    return numbers[:-1]


def keep_array(kind: str, depends_on: str, array: NDArray[np.int64]) -> None:
    """Keep an array (n,) if the cache can be written, and remove arrays of its kind that have long been unused."""
    if (path := _path(kind, depends_on, "i64")) is None:
        return
    written = _temporary(path)
    with contextlib.suppress(OSError):
        _remove_unused(path.parent)
        try:
            with _create(written) as file:
                file.write(array.tobytes())
                file.write(np.int64(_checksum(array)).tobytes())
            written.replace(path)
        finally:
            written.unlink(missing_ok=True)


def kept_bytes(kind: str, depends_on: str, *, since: float) -> NDArray[np.uint8] | None:
    """Return the file that was kept under this kind and this text, mapped into memory: (bytes,).

    Return None if there is none, or if it was last used at or before `since`, in seconds since the epoch.
    """
    if (path := _path(kind, depends_on, "bin")) is None:
        return None
    try:
        with open_own(path) as file:
            if os.fstat(file.fileno()).st_mtime <= since:
                return None
            os.utime(path)
            return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
    except (OSError, ValueError):
        return None


def forget_bytes(kind: str, depends_on: str) -> None:
    """Remove a kept file whose content turned out to be wrong."""
    if (path := _path(kind, depends_on, "bin")) is not None:
        with contextlib.suppress(OSError):
            path.unlink()


class KeptFile:
    """A file for the cache that is being written. After a failed write it ignores further writes, and it is not kept."""

    def __init__(self, file: BinaryIO | None, most_bytes: int) -> None:
        self._file, self._most_bytes, self.size_bytes = file, most_bytes, 0

    @property
    def failed(self) -> bool:
        return self._file is None

    def has_room(self, size_bytes: int) -> bool:
        """Return whether the file may grow by `size_bytes`; the free space of the disk limits its size."""
        return self.size_bytes + size_bytes <= self._most_bytes

    def write(self, array: NDArray[np.uint32]) -> None:
        try:
            if self._file is not None:
                self._file.write(array.tobytes())
                self.size_bytes += array.nbytes
        except OSError:
            self._file = None

    def clear(self) -> None:
        """Discard everything that was written."""
        self.size_bytes = 0
        if self._file is not None:
            self._file.seek(0)
            self._file.truncate()


@contextlib.contextmanager
def keep_bytes(kind: str, depends_on: str) -> Iterator[KeptFile]:
    """Yield a file to write; at the end of the block it is kept under this kind and this text, unless a write failed."""
    path = _path(kind, depends_on, "bin")
    file, most_bytes = None, 0
    if path is not None:
        with contextlib.suppress(OSError):
            _remove_unused(path.parent)
            most_bytes = int(shutil.disk_usage(path.parent).free * _SHARE_OF_FREE)
            written = _temporary(path)
            file = _create(written)
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
    """Let one process at a time compute an array, so that others wait and then find it in the cache.

    On a file system without locks nobody waits.
    """
    path = _path(kind, depends_on, "lock")
    with contextlib.ExitStack() as stack:
        if path is not None:
            with contextlib.suppress(OSError):
                lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
                stack.callback(os.close, lock)
                fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _remove_unused(folder: Path) -> None:
    for path in folder.iterdir():
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > _KEPT_S:
                path.unlink()


def _create(path: Path) -> BinaryIO:
    """Create a file that only this user can read and write, whatever the umask is."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


def _checksum(numbers: NDArray[np.int64]) -> int:
    data = np.ascontiguousarray(numbers).view(np.uint8)
    return int(kernels.load().checksum(0, data, len(data)))


def _temporary(path: Path) -> Path:
    """Return a temporary name that no other thread, process or machine uses."""
    return path.with_suffix(f".{secrets.token_hex(8)}.tmp")


def _path(kind: str, depends_on: str, end: str) -> Path | None:
    folder = own_folder(kind, warns=False)
    if folder is None:
        return None
    return folder / f"{hashlib.sha256(depends_on.encode(errors='surrogateescape')).hexdigest()[:32]}.{end}"

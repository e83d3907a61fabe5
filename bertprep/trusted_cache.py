"""Caches compiled code, and what `files.kept_arrays` keeps, in a folder of this user that nobody else can write to.

    $BERTPREP_CACHE/kernels, else bertprep/kernels in $XDG_CACHE_HOME or ~/.cache; if that cannot be used,
    bertprep-UID/kernels in the OS's folder for temporary files

A folder or file is used only if it belongs to this user or root and others cannot write to it. A file must match its checksum.
"""

import contextlib
import errno
import fcntl
import hashlib
import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from bertprep.terminal import warn


def cached(name: str, compile_it: Callable[[], bytes]) -> bytes:
    """Return the code stored under this name, or compile and store it while other processes wait."""
    folder = own_folder("kernels")
    if folder is None:
        return compile_it()
    if code := _read(folder / name):
        return code
    lock = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # without locks in the file system, each process compiles for itself
            fcntl.flock(lock, fcntl.LOCK_EX)
        code = _read(folder / name)
        if code is None:
            code = compile_it()
            _write(folder / name, code)
        return code
    finally:
        os.close(lock)


def own_folder(name: str, *, warns: bool = True) -> Path | None:
    """Return a folder of the cache, created if missing; if no folder is safe, return None, with a warning if `warns`."""
    trouble = ""
    for above in (_usual_folder, _temporary_folder):
        try:
            folder = above() / name
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if _is_own(folder.parent.stat()) and _is_own(folder.lstat(), others=stat.S_IWGRP | stat.S_IWOTH):
                if trouble and warns:
                    warn(f"{trouble}; bertprep keeps its compiled code in {folder} instead")
                return folder
            trouble = trouble or f"{folder}: belongs to another user, or others can write to it"
        except OSError as error:
            trouble = trouble or f"{error.filename}: {error.strerror}"
        except RuntimeError:
            trouble = "HOME is not set, so there is no home folder"
    if warns:
        warn(f"{trouble}; bertprep cannot keep its compiled code, so every run compiles it again")
    return None


def _usual_folder() -> Path:
    named = os.environ.get("BERTPREP_CACHE")
    return Path(named or Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "bertprep")


def _temporary_folder() -> Path:
    return Path(tempfile.gettempdir()) / f"bertprep-{os.geteuid()}"


def _is_own(status: os.stat_result, *, others: int = 0) -> bool:
    return status.st_uid in (os.geteuid(), 0) and not status.st_mode & others


def open_own(path: Path) -> BinaryIO:
    """Open a file of the cache for reading.

    Raises `OSError` unless it is a regular file that belongs to this user or root, and to which others cannot write.
    """
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb")  # does not block on a FIFO
    status = os.fstat(file.fileno())
    if stat.S_ISREG(status.st_mode) and _is_own(status, others=stat.S_IWGRP | stat.S_IWOTH):
        return file
    file.close()
    raise PermissionError(errno.EPERM, "is not a file of this user alone", str(path))


def _read(path: Path) -> bytes | None:
    with contextlib.suppress(OSError), open_own(path) as file:
        checksum, _, code = file.read().partition(b"\n")
        if checksum == _checksum(code):
            return code
    return None


def _write(path: Path, code: bytes) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
            with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(_checksum(code) + b"\n" + code)
            temporary.replace(path)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def _checksum(code: bytes) -> bytes:
    return hashlib.sha256(code).hexdigest().encode()

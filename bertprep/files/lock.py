"""Lets one run at a time write to a folder, by a lock on a file in it, and tells whether a run is still alive.

The OS releases the locks of a run when it dies.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bertprep.errors import BertprepError
from bertprep.files.atomic import explain_write_error, is_still
from bertprep.files.paths import is_object
from bertprep.progress import print_message

LOCK = ".lock"


@contextmanager
def locked(folder: Path, name: str = LOCK, *, wait: bool = False) -> Iterator[None]:
    """Hold the lock `name` in `folder` during the block; the folder is created if missing.

    If another run holds the lock, raise `BertprepError`, or with `wait` print a line and wait. Stores have no locks, so for a
    URL this does nothing.
    """
    if is_object(folder):
        yield
        return
    path = folder / name
    try:
        descriptor = _open_locked(path, wait=wait)
    except OSError as error:
        raise explain_write_error(path, error) from error
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)


def hold(path: Path) -> int | None:
    """Take a shared lock on a file, and return its descriptor, or None if the file cannot be locked.

    `is_held` returns True for the file until the descriptor is closed.
    """
    return _try_lock(path, fcntl.LOCK_SH)


def is_held(path: Path) -> bool:
    """Return whether a running process has locked a file; False if that cannot be known, for example in a store."""
    try:
        descriptor = _try_lock(path, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    if descriptor is not None:
        os.close(descriptor)
    return False


def _try_lock(path: Path, operation: int) -> int | None:
    """Lock a file and return its descriptor; None if there is no such file, or if its file system has no locks.

    With LOCK_NB, raises `BlockingIOError` if another process holds the lock.
    """
    if is_object(path):
        return None
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, operation)
    except OSError as error:
        os.close(descriptor)
        if isinstance(error, BlockingIOError):
            raise
        return None
    return descriptor


def _open_locked(path: Path, *, wait: bool) -> int:
    taken = f"{path.parent}: another run is writing here"
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not wait:
                os.close(descriptor)
                raise BertprepError(f"{taken}; wait for it, or stop it first") from None
            print_message(f"{taken}; waiting for it")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if is_still(path, descriptor):
            return descriptor
        os.close(descriptor)

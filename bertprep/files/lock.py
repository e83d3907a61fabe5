"""Lets one run at a time write to a folder, by a lock on a file in it, and tells whether a run is still alive.

The OS releases the locks of a run when it dies. Some file systems have no locks, such as Lustre without `-o flock`, NFS without
lockd and many in user space. There a run goes on without a lock, with a warning.
"""

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bertprep.errors import BertprepError
from bertprep.files.atomic import explain_write_error, is_still, without_empty_folders
from bertprep.files.paths import is_object
from bertprep.progress import print_message
from bertprep.terminal import warn

LOCK = ".lock"
_TRIES, _SECONDS_BETWEEN = 50, 0.002
"""`is_held` takes a lock for microseconds, so a lock counts as held only if it is still taken after a tenth of a second."""
_WITHOUT_LOCKS = {errno.ENOSYS, errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL}
"""What `flock` reports on a file system that has no locks."""


@contextmanager
def locked(folder: Path, name: str = LOCK, *, wait: bool = False) -> Iterator[None]:
    """Hold the lock `name` in `folder` during the block. A missing folder is created, and removed if an error leaves it empty.

    If another run holds the lock, raise `BertprepError`, or with `wait` print a line and wait. Stores have no locks, so for a
    URL this does nothing, and on a file system without locks it only warns.
    """
    if is_object(folder):
        yield
        return
    path = folder / name
    with without_empty_folders(folder):
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
    if (descriptor := _open(path)) is None:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
    except OSError:  # a file system without locks
        os.close(descriptor)
        return None
    return descriptor


def is_held(path: Path) -> bool:
    """Return whether a running process has locked a file; False if that cannot be known, for example in a store."""
    if (descriptor := _open(path)) is None:
        return False
    try:
        _lock_now(descriptor)
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks
        return False
    finally:
        os.close(descriptor)
    return False


def _open(path: Path) -> int | None:
    """Return the descriptor of a file; None if there is no such file on this machine."""
    if is_object(path):
        return None
    try:
        return os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return None


def _lock_now(descriptor: int) -> None:
    """Take the exclusive lock of a file, or raise `BlockingIOError` if another process has one."""
    for _ in range(_TRIES):
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_SECONDS_BETWEEN)
    return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _open_locked(path: Path, *, wait: bool) -> int:
    taken = f"{path.parent}: another run is writing here"
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        try:
            _lock_now(descriptor)
        except BlockingIOError:
            if not wait:
                os.close(descriptor)
                raise BertprepError(f"{taken}; wait for it, or stop it first") from None
            print_message(f"{taken}; waiting for it")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError as error:
            if error.errno not in _WITHOUT_LOCKS:
                os.close(descriptor)
                raise
            warn(
                f"the file system has no locks ({error.strerror}), so nothing keeps two runs from writing to one folder; run "
                "one command at a time there"
            )
        if is_still(path, descriptor):
            return descriptor
        os.close(descriptor)

"""Lets one run at a time write to a folder, by a lock on a file in it. The OS releases the lock if the run dies."""

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

"""One writer at a time: a lock on a file, which the system releases when its holder dies, however it dies.

What the ledger of `bertprep.work` binds needs none.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bertprep.errors import BertprepError
from bertprep.files.atomic import explain_write_error, is_still
from bertprep.files.places import is_object
from bertprep.progress import say

LOCK = ".lock"


@contextmanager
def locked(folder: Path, name: str = LOCK, *, wait: bool = False) -> Iterator[None]:
    """Hold the lock `name` of `folder`, which is created if it is missing.

    If another run holds the lock, raises `BertprepError`, or with `wait` prints a line and waits. A store has no locks. What
    makes data needs none there, since whatever two runs write at once is the same, and written once; a training run does, and
    must not be started twice.
    """
    if is_object(folder):
        yield
        return
    path = folder / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = open_locked(path, wait=wait)
    except OSError as error:
        raise explain_write_error(path, error) from error
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)


def open_locked(path: Path, *, wait: bool) -> int:
    """Return a descriptor of `path`, for reading and appending, that holds the file's lock; a missing file is created.

    The previous holder may remove the file, or the folder; then the lock is taken on the next file of that name.
    """
    is_said = False
    taken = f"{path.parent}: another run is writing here"
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)  # or even its folder
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if not wait:
                    raise BertprepError(f"{taken}; wait for it, or stop it first") from None
                if not is_said:
                    say(f"{taken}; waiting for it")
                is_said = True
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            if is_still(path, descriptor):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)

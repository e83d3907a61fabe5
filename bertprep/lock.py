"""One writer a folder: a lock that the system takes back when its holder dies, however it dies."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bertprep.atomic import explain_write_error
from bertprep.errors import BertprepError

LOCK = ".lock"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of `folder`, which is made where it is missing; raises `BertprepError` where another run holds it."""
    path = folder / LOCK
    descriptor = -1
    try:
        folder.mkdir(parents=True, exist_ok=True)
        while descriptor < 0:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not _is_still(path, descriptor):  # the run before took the file away between our open and our lock
                os.close(descriptor)
                descriptor = -1
    except BlockingIOError:
        os.close(descriptor)
        raise BertprepError(f"{folder}: another run is writing here; wait for it, or stop it first") from None
    except OSError as error:
        raise explain_write_error(path, error) from error
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)


def _is_still(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False

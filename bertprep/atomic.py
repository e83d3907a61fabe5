"""Files that appear under their final name only when they are whole: temporary name, fsync, rename.

A run killed between the two leaves a file that ends in `.tmp`; `remove_leftovers` clears those before work starts again.
The temporary name is the final name plus `.tmp`, so that one folder never holds two unfinished copies of a file.
"""

import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bertprep.errors import BertprepError

TEMPORARY_SUFFIX = ".tmp"


def explain_write_error(path: Path, error: OSError) -> BertprepError:
    """The one line for a write that the system refused: which file, why, how much room is left, and what to do."""
    folder = next((p for p in path.parents if p.is_dir()), Path("/"))
    advice = "mend that and run the same command again"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        free_mb = shutil.disk_usage(folder).free // 1_000_000
        advice = f"{free_mb:,} MB are free in {folder}; make room and run the same command again"
    elif error.errno == errno.EFBIG:
        advice = "a limit on the size of files is in force (ulimit -f); lift it and run the same command again"
    return BertprepError(f"{path}: cannot be written: {error.strerror or error}; {advice}")


class AtomicFile:
    """A binary file being written; `write` takes any buffer and writes all of it.

    A `direct` file goes past the system's page cache where the system can do that, which costs a third of the processor's
    time. It should be written in large blocks of whole pages from page-aligned memory; what is not, as the end of a file,
    goes through the cache after all.
    """

    def __init__(self, path: Path, *, direct: bool = False) -> None:
        self.path = path
        self.size_bytes = 0
        self._temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        self._descriptor = os.open(self._temporary, flags, 0o666)
        self._direct = direct and hasattr(os, "O_DIRECT") and self._set_direct(True)

    def _set_direct(self, direct: bool) -> bool:
        """Go past the page cache or not; False where the file system cannot."""
        flags = fcntl.fcntl(self._descriptor, fcntl.F_GETFL)
        try:
            fcntl.fcntl(self._descriptor, fcntl.F_SETFL, flags | os.O_DIRECT if direct else flags & ~os.O_DIRECT)
        except OSError:
            return False
        return True

    def write(self, data: bytes | bytearray | memoryview) -> None:
        view = memoryview(data).cast("B")
        while len(view):  # os.write may take a part only: a signal, or the last bytes of a full disk
            try:
                written = os.write(self._descriptor, view)
            except OSError as error:
                if not (self._direct and error.errno == errno.EINVAL):
                    raise
                self._set_direct(False)
                self._direct = False
                continue
            self.size_bytes += written
            view = view[written:]

    def commit(self) -> None:
        """Bring the bytes to the disk, then give the file its name."""
        os.fsync(self._descriptor)
        os.close(self._descriptor)
        self._descriptor = -1
        self._temporary.replace(self.path)
        sync_folder(self.path.parent)

    def discard(self) -> None:
        """Take the unfinished file away again."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        self._temporary.unlink(missing_ok=True)


@contextmanager
def atomic_file(path: Path, *, direct: bool = False) -> Iterator[AtomicFile]:
    """Write `path` whole or not at all.

    Raises `BertprepError` where the system refuses a write; on any exception nothing is left behind, and a file that
    stood under the name before stands there still.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = AtomicFile(path, direct=direct)
    except OSError as error:
        raise explain_write_error(path, error) from error
    try:
        yield file
        file.commit()
    except OSError as error:
        file.discard()
        raise explain_write_error(path, error) from error
    except BaseException:
        file.discard()
        raise


def sync_folder(folder: Path) -> None:
    """Make renames in `folder` survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_leftovers(folder: Path) -> None:
    """Remove what a killed run left unfinished in `folder` and below."""
    for path in folder.rglob("*" + TEMPORARY_SUFFIX):
        path.unlink(missing_ok=True)

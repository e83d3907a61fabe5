"""Writes files atomically: a file gets its final name only when it is complete (temporary name, fsync, rename).

A writer locks its temporary file, `NAME.1f2e3d4c.tmp`, so the next writer can tell the leftovers of killed runs from files
that are still being written, and removes them. The temporary file is always new; links are never followed. An object is
written to a local file and then uploaded in one go.
"""

import errno
import fcntl
import mmap
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from bertprep.errors import BertprepError, WriteError
from bertprep.files import object_store
from bertprep.files.checksums import new_hash
from bertprep.files.paths import ObjectPath, disk_folder

TEMPORARY_SUFFIX = ".tmp"
_TEMPORARY = re.compile(rf"(.+)\.[0-9a-f]{{8}}{re.escape(TEMPORARY_SUFFIX)}")
_TRIES = 10


def explain_write_error(path: Path, error: OSError) -> WriteError:
    """Return the error for a failed write; it names the file, the reason and what to do."""
    why = error.strerror or str(error)
    if isinstance(path, ObjectPath):
        return WriteError(f"{path}: cannot be written: {why}")
    if in_the_way := _not_a_folder(path):
        return WriteError(f"{path}: cannot be written: {in_the_way}")
    advice = "fix the cause and run the same command again"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        folder = next(above for above in path.parents if above.is_dir())
        free_mb = shutil.disk_usage(folder).free // 1_000_000
        advice = f"{free_mb:,} MB are free in {folder}; free some space and run the same command again"
    elif error.errno == errno.EFBIG:
        advice = "the size of files is limited (ulimit -f); raise the limit and run the same command again"
    elif error.errno in (errno.EMFILE, errno.ENFILE):
        advice = "raise the limit on open files (ulimit -n), or use fewer --workers"
    return WriteError(f"{path}: cannot be written: {why}; {advice}")


@contextmanager
def _explaining(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise explain_write_error(path, error) from error


def _not_a_folder(path: Path) -> str | None:
    for above in reversed(path.parents):
        if above.is_symlink() and not above.exists():
            return f"{above} is a link to {above.readlink()}, which does not exist; create that folder, or name another"
        if above.exists() and not above.is_dir():
            return f"{above} is a file, expected a folder; name another, or move the file away"
    return None


class AtomicFile:
    """A binary file that is being written; `write` accepts any buffer and writes all of it.

    It raises errors that name this file, because a caller may have several files open and could not tell which one failed.
    """

    def __init__(self, path: Path, *, mode: int = 0o666, syncs_folder: bool = True) -> None:
        self.path = path
        self._syncs_folder = syncs_folder
        self.size_bytes = 0
        self._temporary, self._descriptor = _make_temporary(path, partial(_make_file, mode=mode))

    def write(self, data: bytes | bytearray | memoryview) -> None:
        view = memoryview(data).cast("B")
        while len(view):  # os.write may write less than requested, after a signal or on a full disk
            try:
                written = os.write(self._descriptor, view)
            except OSError as error:
                raise explain_write_error(self.path, error) from error
            self.size_bytes += written
            view = view[written:]

    def commit(self) -> None:
        """Sync the bytes to disk, then rename the file to its final name."""
        with _explaining(self.path):
            os.fsync(self._descriptor)
            self._temporary.replace(self.path)
            if self._syncs_folder:
                sync_folder(self.path.parent)
        self._close()  # only after the rename, because closing releases the lock

    def commit_new(self, *, syncs: bool = True) -> bool:
        """Give the file its final name unless the name is taken; return whether it was free.

        On a file system without hard links, a file that another process creates at the same moment may be replaced.
        """
        if syncs:
            os.fsync(self._descriptor)
        try:
            os.link(self._temporary, self.path)
        except FileExistsError:
            return False
        except FileNotFoundError:
            raise
        except OSError:
            if self.path.exists():
                return False
            self._temporary.replace(self.path)
        if syncs:
            sync_folder(self.path.parent)
        return True

    def discard(self) -> None:
        if self._descriptor >= 0:
            self._temporary.unlink(missing_ok=True)
            self._close()

    def _close(self) -> None:
        os.close(self._descriptor)
        self._descriptor = -1


class ObjectFile(AtomicFile):
    """An object that is being written: it is hashed while it goes to an unnamed local file, and uploaded at the end."""

    path: ObjectPath

    def __init__(self, path: ObjectPath, *, replace: bool = False) -> None:
        self.path = path
        self.size_bytes = 0
        self._replace, self._hash = replace, new_hash()
        self._written = disk_folder() / path.name
        with _explaining(self._written):
            self._unnamed = tempfile.TemporaryFile(dir=disk_folder())  # noqa: SIM115 - `discard` closes it

    def write(self, data: bytes | bytearray | memoryview) -> None:
        view = memoryview(data).cast("B")
        self._hash.update(view)
        with _explaining(self._written):
            self.size_bytes += self._unnamed.write(view)

    def commit(self) -> None:
        """Upload the bytes; raises `BertprepError` if an object with other bytes exists and `replace` is not set."""
        with _explaining(self._written):
            self._unnamed.flush()
        # The mapping is not closed here: obstore may hold it a moment longer, and the last reference frees it.
        data = mmap.mmap(self._unnamed.fileno(), 0, access=mmap.ACCESS_READ) if self.size_bytes else b""
        object_store.put(self.path, data, self._hash.hexdigest(), replace=self._replace)

    def discard(self) -> None:
        self._unnamed.close()


@contextmanager
def atomic_file(path: Path, *, mode: int = 0o666, replace: bool = False, tidies: bool = True) -> Iterator[AtomicFile]:
    """Write `path` atomically, with the permissions `mode` less the umask.

    A local file replaces an existing one. An existing object is replaced only with `replace`; without it, writing the same
    bytes succeeds, and other bytes raise `BertprepError`. `tidies` removes leftovers of this name first and syncs the folder at
    the end. If the block raises, nothing is left behind.
    """
    file = ObjectFile(path, replace=replace) if isinstance(path, ObjectPath) else _begin(path, mode, tidies)
    try:
        yield file
        file.commit()
    finally:
        file.discard()


def _begin(path: Path, mode: int, tidies: bool) -> AtomicFile:
    with _explaining(path):
        if not path.parent.is_dir():
            path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not path.is_file():
            found = "a folder" if path.is_dir() else "a device or a pipe"
            raise BertprepError(f"{path}: cannot be written: it is {found}, expected a file; name another")
        if tidies:
            _remove_leftovers_of(path)
        return AtomicFile(path, mode=mode, syncs_folder=tidies)


def write_if_different(path: Path, content: bytes) -> None:
    """Write a file or an object, unless it already has this content."""
    if not (path.is_file() and path.stat().st_size == len(content) and path.read_bytes() == content):
        with atomic_file(path, replace=True) as file:
            file.write(content)


def create_file(path: Path, data: bytes, *, syncs: bool = True) -> bool:
    """Write a small file atomically unless the name exists; return whether it was created.

    Without `syncs`, a power cut may leave the file empty or remove it.
    """
    if isinstance(path, ObjectPath):
        try:
            return object_store.put(path, data)
        except object_store.AnotherObjectError:
            return False
    for tried in range(1, _TRIES + 1):
        try:
            if tried > 1:
                path.parent.mkdir(parents=True, exist_ok=True)
            file = AtomicFile(path)
            try:
                file.write(data)
                return file.commit_new(syncs=syncs)
            finally:
                file.discard()
        except OSError as error:
            if not isinstance(error, FileNotFoundError) or tried == _TRIES:
                raise explain_write_error(path, error) from error
    raise AssertionError


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yield a new folder that appears as `path` when the block ends; if the block raises, nothing is left behind.

    Raises `BertprepError` for a URL, because a store has no folders.
    """
    if isinstance(path, ObjectPath):
        raise BertprepError(f"{path}: a store cannot create a whole folder at once; name a folder on this machine")
    target = path.resolve()
    with temporary_folder(target) as unfinished:
        try:
            yield unfinished
            unfinished.replace(target)
            sync_folder(target.parent)
        except OSError as error:
            raise explain_write_error(path, error) from error


@contextmanager
def temporary_folder(path: Path) -> Iterator[Path]:
    """Yield a new folder next to `path` that is removed when the block ends; for a URL, it is in `disk_folder()`."""
    if isinstance(path, ObjectPath):
        path = disk_folder() / f"bertprep-{os.geteuid()}-{path.name}"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_leftovers_of(path)
        folder, descriptor = _make_temporary(path, _make_folder)
    except OSError as error:
        raise explain_write_error(path, error) from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)


def remove_folder(path: Path) -> None:
    """Remove a folder, or as much of it as possible; a link to a folder is left alone."""
    if isinstance(path, ObjectPath):
        object_store.delete_all(path, object_store.tree(path))
    else:
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def without_empty_folders(path: Path) -> Iterator[None]:
    """If the block raises an error, remove the folders that it made at `path`, above and below it, as far as they are empty."""
    folders = () if isinstance(path, ObjectPath) else (path, *path.parents)
    made = [each for each in folders if not os.path.lexists(each)]  # raises no error where a folder cannot be read
    try:
        yield
    except (BertprepError, OSError):
        if made:
            below = [Path(parent) for parent, _, _ in os.walk(path, topdown=False)]
            for folder in (*below, *made):
                with suppress(OSError):  # it has files, or does not exist
                    folder.rmdir()
        raise


def sync_folder(folder: Path) -> None:
    """Sync `folder`, so that renames in it survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def temporary_name(path: Path) -> Path:
    """Return a unique temporary name next to `path`."""
    return path.with_name(f"{path.name}.{os.urandom(4).hex()}{TEMPORARY_SUFFIX}")


def _make_temporary(path: Path, make: Callable[[Path], int]) -> tuple[Path, int]:
    missing = 0
    while True:
        temporary = temporary_name(path)
        try:
            descriptor = make(temporary)
        except FileExistsError:
            continue
        except FileNotFoundError:
            missing += 1
            # Another run may take our new folder for a leftover and remove it before we open it. /proc never makes one.
            if temporary.parent.is_dir() and missing < _TRIES:
                continue
            raise
        with suppress(OSError):  # on a file system without locks, leftovers of killed runs stay
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if is_still(temporary, descriptor):
            return temporary, descriptor
        os.close(descriptor)  # another run removed it as a leftover before we locked it


def _make_file(path: Path, mode: int) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)


def _make_folder(path: Path) -> int:
    path.mkdir()
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)


def is_still(path: Path, descriptor: int) -> bool:
    """Return whether `path` still names the open file."""
    try:
        return os.path.samestat(path.stat(follow_symlinks=False), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def remove_leftovers(folder: Path) -> None:
    """Remove the unfinished files and folders that killed runs left in `folder` and below."""
    if not isinstance(folder, ObjectPath):
        for parent, folders, files in os.walk(folder):  # rglob fails in Python 3.11 if another run removes a folder meanwhile
            for name in filter(_TEMPORARY.fullmatch, (*folders, *files)):
                _remove_if_dead(Path(parent, name))


def _remove_leftovers_of(path: Path) -> None:
    with suppress(OSError):  # the folder may be writable but not listable
        for other in path.parent.iterdir():
            match = _TEMPORARY.fullmatch(other.name)
            if match and match[1] == path.name:
                _remove_if_dead(other)


def _remove_if_dead(path: Path) -> None:
    with suppress(OSError):  # it is already gone, is locked by its writer, or is not ours to remove
        kind = path.lstat().st_mode
        if stat.S_ISLNK(kind):  # temporary links exist only for a moment, and the lock of their folder covers them
            path.unlink()
        elif stat.S_ISREG(kind) or stat.S_ISDIR(kind):
            descriptor = os.open(path, (os.O_RDONLY if stat.S_ISDIR(kind) else os.O_RDWR) | os.O_NOFOLLOW)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises while the writer is alive
                if stat.S_ISDIR(kind):
                    shutil.rmtree(path)
                else:
                    path.unlink()
            finally:
                os.close(descriptor)

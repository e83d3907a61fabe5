"""Where compiled kernels are kept between processes, and whose files there are run.

    $BERTPREP_CACHE, else bertprep in $XDG_CACHE_HOME or ~/.cache      and where that cannot be used:
    bertprep-UID in the system's folder for temporary files

What is in a cache is code that the next process runs. So a file is taken only if it is this user's or root's and nobody else
can have written it, or have put it there: every folder on the way to it is opened one in the other, without following a link
unseen, and looked at once it is open. Anything else is left alone, and compiled again into a folder that is safe.
"""

import fcntl
import hashlib
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from bertprep.errors import BertprepError
from bertprep.files.atomic import atomic_file
from bertprep.progress import say

_OPEN_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW  # O_PATH needs no right to list it
_MOST_LINKS = 40


class UnsafeError(Exception):
    """Somebody else could have put there what is there; the text says which file or folder, and why."""


class KernelCache:
    """The cache of this user; use one for a reading and what is kept after it, which tells what was wrong before."""

    def __init__(self) -> None:
        self._trouble = ""

    def read(self, name: str) -> bytes | None:
        """What is kept under a name; None where there is nothing, or it is not to be trusted, or not whole."""
        for folder in self._folders():
            try:
                checksum, _, code = _read_trusted(folder, name).partition(b"\n")
            except FileNotFoundError:
                continue
            except (UnsafeError, OSError) as error:
                self._note(folder, error)
                continue
            if checksum == _checksum(code):
                return code
        return None

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold this user's lock on the cache, so that of many processes that lack something one makes it, and others wait.

        Where there is no place for a cache, or its file system has no locks, everybody goes on at once.
        """
        with ExitStack() as stack:
            for folder in self._folders():
                with suppress(UnsafeError, OSError):
                    opened = _open_trusted(folder, make=True)
                    stack.callback(os.close, opened)
                    listed = os.open(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=opened)  # O_PATH cannot be locked
                    stack.callback(os.close, listed)
                    fcntl.flock(listed, fcntl.LOCK_EX)
                    break
            yield

    def keep(self, name: str, code: bytes) -> None:
        """Keep `code` in the first folder where that can be done; that it is another one than usual, or none, is said."""
        for folder in self._folders():
            try:
                os.close(_open_trusted(folder, make=True))  # nobody else can put another folder under the name after this
                with atomic_file(folder / name, mode=0o644) as file:
                    file.write(_checksum(code) + b"\n" + code)
            except (UnsafeError, OSError, BertprepError) as error:
                self._note(folder, error)
                continue
            if self._trouble:
                say(f"bertprep: {self._trouble}; its compiled kernels are kept in {folder}")
            return
        say(f"bertprep: {self._trouble}; its compiled kernels are kept nowhere, so every run compiles them")

    def _folders(self) -> Iterator[Path]:
        try:
            yield _usual_folder()
        except RuntimeError:  # no HOME, and a user that the system does not know
            self._trouble = "there is no home folder, HOME is not set"
        with suppress(OSError):  # there is no such folder either
            yield Path(tempfile.gettempdir()) / f"bertprep-{os.geteuid()}"

    def _note(self, folder: Path, error: Exception) -> None:
        why = f"{folder}: {error.strerror}" if isinstance(error, OSError) and error.strerror else str(error)
        self._trouble = self._trouble or why


def _checksum(code: bytes) -> bytes:
    return hashlib.sha256(code).hexdigest().encode()


def _usual_folder() -> Path:
    if named := os.environ.get("BERTPREP_CACHE"):
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "bertprep"


def _read_trusted(folder: Path, name: str) -> bytes:
    """The content of a file; raises `UnsafeError` where others could have written it, `OSError` where it cannot be read."""
    opened = _open_trusted(folder)
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=opened)
    finally:
        os.close(opened)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        _check_owner(folder / name, status)
        if not stat.S_ISREG(status.st_mode) or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise UnsafeError(f"{folder / name}: could have been written by others")
        return file.read()


def _open_trusted(folder: Path, *, make: bool = False) -> int:
    """A descriptor of a folder in which only this user and root could have put anything; with `make` it is made if missing."""
    here = os.open("/", _OPEN_FOLDER)
    path = Path("/")
    rest = list(reversed(folder.absolute().parts[1:]))
    links = 0
    try:
        while rest:
            name = rest.pop()
            _check_folder(path, os.fstat(here), is_last=False)
            if make and name != "..":
                with suppress(FileExistsError):
                    os.mkdir(name, 0o755, dir_fd=here)
            status = os.stat(name, dir_fd=here, follow_symlinks=False)
            if stat.S_ISLNK(status.st_mode) and links < _MOST_LINKS:
                _check_owner(path / name, status)
                links += 1
                target = Path(os.readlink(name, dir_fd=here))
                rest += reversed(target.parts[target.is_absolute() :])
                name, path = ("/", Path("/")) if target.is_absolute() else (".", path)
            else:
                path /= name
            here, before = os.open(name, _OPEN_FOLDER, dir_fd=here), here
            os.close(before)
        _check_folder(path, os.fstat(here), is_last=True)
    except BaseException:
        os.close(here)
        raise
    return here


def _check_folder(path: Path, status: os.stat_result, *, is_last: bool) -> None:
    """Raise `UnsafeError` where others may put into a folder what this user would take for its own."""
    _check_owner(path, status)
    mode = status.st_mode
    if mode & stat.S_ISVTX and not is_last:  # as /tmp: nobody replaces what is another's, and owners are looked at
        return
    if mode & stat.S_IWOTH or (mode & stat.S_IWGRP and not _is_alone_in(status.st_gid)):
        raise UnsafeError(f"{path}: can be written by others")


def _check_owner(path: Path, status: os.stat_result) -> None:
    """The owner must be this user or root, who in a container may be anybody: then it is whose the root folder is."""
    if status.st_uid not in (os.geteuid(), 0, Path("/").stat().st_uid):
        raise UnsafeError(f"{path}: belongs to another user, number {status.st_uid}")


def _is_alone_in(group: int) -> bool:
    """Whether a group is this user's own, as many systems give each user one of the same name."""
    import grp
    import pwd

    try:
        name, entry = pwd.getpwuid(os.geteuid()).pw_name, grp.getgrgid(group)
    except KeyError:
        return False
    return entry.gr_name == name and set(entry.gr_mem) <= {name}

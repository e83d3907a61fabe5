"""Paths on this machine or in an object store, used alike: `place("s3://bucket/data")` is a path as `Path("data")` is.

A local path is a plain `Path`, exactly as fast as ever. A URL is an `ObjectPath`, whose files are objects: `/`, names and
parents are those of pathlib; `stat`, `iterdir`, `open` and so on ask the store. What needs a file of the system (a mapping, a
descriptor, a library of another language) takes `local_copy(path)`. `os.fspath` of an `ObjectPath` raises, so that no URL is
taken for the name of a local file.

Copies are kept in $BERTPREP_OBJECT_CACHE (else bertprep/objects in $XDG_CACHE_HOME or ~/.cache), which should be on a disk of
this machine; at most $BERTPREP_OBJECT_CACHE_GB of them (20), the longest unused go first, and none that a running process
reads. All processes of a user share them; each object has a lock while it is downloaded, and its sha256 beside its copy.
"""

from __future__ import annotations

import errno
import fcntl
import io
import os
import stat
import threading
import time
from collections.abc import Collection, Generator, Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import cached_property
from pathlib import Path, PosixPath, PurePath, PurePosixPath
from typing import IO, TYPE_CHECKING, Any, BinaryIO, cast

from bertprep.errors import BertprepError, GivenUpError, UsageError

if TYPE_CHECKING:
    from bertprep.files.object_store import Status

SCHEMES = ("s3", "gs", "az", "memory")
"""Of object stores; `file` is a scheme too, of local paths."""
_FIRST_PARTS = tuple((f"{scheme}:",) for scheme in SCHEMES)
_IN_BUCKET = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
_LONGEST_KEY = 1024  # bytes, of S3 and of Google
CACHE, CACHE_GB = "BERTPREP_OBJECT_CACHE", "BERTPREP_OBJECT_CACHE_GB"
_DEFAULT_CACHE_GB = 20.0
_ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
_LOOK_AGAIN_SECONDS = 0.05
"""Between two looks at a lock that is held: another process downloads."""
HEAD_BYTES = 64 << 10
_NAME_LENGTH = 40  # of a copy, without what follows its first dot
_LOCK, _SUM = ".lock-", ".sha256-"  # before the names of copies
_since_sweep: dict[Path, int] = {}
"""Bytes that this process has downloaded into a folder of copies since it looked through it."""
COPY_DIGITS = 15
"""The first characters of a copy's name, a hexadecimal number, which is another one when the object has changed."""
_KEPT_SECONDS = 60
"""A copy used in the last minute stays: whoever was given its name opens it now."""


def place(text: str | Path) -> Path:
    """The path that a user names: a `Path` for a local one, an `ObjectPath` for the URL of a store.

    Raises `UsageError` for a URL of another scheme, without a bucket, or with "..", a query, a fragment or control characters.

    >>> place("data/part-0"), place("file:///data/my%20text.txt")
    (PosixPath('data/part-0'), PosixPath('/data/my text.txt'))
    >>> place("s3://bucket/data/") / "part-0"
    ObjectPath('s3://bucket/data/part-0')
    """
    if isinstance(text, Path):
        if isinstance(text, ObjectPath) or text.parts[:1] not in _FIRST_PARTS:
            return text
        text = str(text).replace(":/", "://", 1)  # of a Path("s3://...")
    scheme, is_url, rest = text.partition("://")
    scheme = scheme.lower()
    if not is_url or "/" in scheme:
        return Path(text)
    if scheme == "file":
        return _local(text)
    if scheme not in SCHEMES:
        names = ", ".join(f"{each}://" for each in (*SCHEMES, "file") if each != "memory")  # which is for tests
        raise UsageError(f"{_shown(text)}: unknown kind of URL; there are {names} and local paths")
    bucket, _, key = rest.partition("/")
    if not bucket.isascii() or not bucket[:1].isalnum() or not _IN_BUCKET.issuperset(bucket):
        raise UsageError(f"{_shown(text)}: has no name of a bucket, expected {scheme}://BUCKET/NAME")
    if why := _refused(key):
        raise UsageError(f"{_shown(text)}: {why}")
    return ObjectPath(f"{scheme}://{rest}")


def _refused(key: str) -> str | None:
    """Why a key is not taken; None for a good one."""
    if not key.isprintable():
        return "has control characters, which no name here has"
    if "?" in key or "#" in key:
        return "has a query or a fragment; give the bucket and the name alone"
    if ".." in key.split("/"):
        return 'has "..", which is no folder of a store'
    if len(key.encode()) > _LONGEST_KEY:
        return f"is longer than the {_LONGEST_KEY} bytes that a name in a store may have"
    return None


def _shown(text: str) -> str:
    shown = text if text.isprintable() else ascii(text)[1:-1]
    return shown if len(shown) <= 200 else f"{shown[:200]}..."


def _local(text: str) -> Path:
    from urllib.parse import unquote, urlsplit

    try:
        url = urlsplit(text)
    except ValueError as error:
        raise UsageError(f"{_shown(text)}: is not a URL ({error})") from None
    path = unquote(url.path)
    if url.netloc not in ("", "localhost") or not path.startswith("/") or url.query or url.fragment or not path.isprintable():
        raise UsageError(f"{_shown(text)}: is not the URL of a file of this machine, expected file:///FOLDER/NAME")
    return Path(path)


def local_place(option: str, text: str | Path) -> Path:
    """The same where only a path of this machine will do; raises `UsageError` for a URL of a store."""
    path = place(text)
    if isinstance(path, ObjectPath):
        raise UsageError(f"{option} {path}: must be a path of this machine, not a URL")
    return path


def is_object(path: PurePath | str) -> bool:
    """Whether a path lies in a store."""
    return isinstance(path, ObjectPath)


class ObjectPath(PosixPath):
    """The URL of an object, or of a folder of them, with the methods of `Path`; made by `place`.

    Its parts are "s3:", the bucket and names, so `/`, `name`, `with_name` and equality are pathlib's. A path that `iterdir`,
    `glob` or `rglob` yields knows what the listing said, and is not asked for again. Errors of the store are
    `FileNotFoundError` or `BertprepError`.
    """

    _status: Status | None = None

    def __str__(self) -> str:
        if not self.parts or self.parts[0][:-1] not in SCHEMES:  # pathlib makes such of patterns
            return str(PurePosixPath(*self.parts))
        return f"{self.parts[0]}//{'/'.join(self.parts[1:])}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    def __fspath__(self) -> str:
        raise TypeError(f"{self}: is not a file of this machine; read local_copy() of it, write it through atomic_file()")

    @property
    def scheme(self) -> str:
        return str(self.parts[0]).removesuffix(":")

    @property
    def bucket(self) -> str:
        return str(self.parts[1])

    @cached_property
    def key(self) -> str:
        """The object's name in its bucket; raises `BertprepError` for a path that joined what no name here may hold."""
        if len(self.parts) < 2 or self.scheme not in SCHEMES:
            raise BertprepError(f"{self}: is not the URL of a store")
        key = "/".join(self.parts[2:])
        if why := _refused(key.replace("?", "_").replace("#", "_")):  # a listing may hold such names
            raise BertprepError(f"{_shown(str(self))}: {why}")
        return key

    @property
    def parent(self) -> ObjectPath:
        return ObjectPath(*self.parts[:-1]) if len(self.parts) > 2 else self

    @property
    def parents(self) -> tuple[ObjectPath, ...]:
        return tuple(ObjectPath(*self.parts[:end]) for end in range(len(self.parts) - 1, 1, -1))

    def relative_to(self, other: Any, *more: Any, **options: Any) -> Path:  # type: ignore[override]
        """The path below a folder, as a plain `Path`."""
        return Path(PurePosixPath(*self.parts).relative_to(PurePosixPath(*ObjectPath(other, *more).parts)))

    def is_absolute(self) -> bool:
        return True

    def absolute(self) -> ObjectPath:
        return self

    def resolve(self, strict: bool = False) -> ObjectPath:
        return self

    def expanduser(self) -> ObjectPath:
        return self

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        status = self._status or self._look()
        mode = stat.S_IFDIR | 0o777 if status.is_folder else stat.S_IFREG | 0o666
        seconds = status.modified_ns // 10**9
        ten = (mode, 0, 0, 1, 0, 0, status.size_bytes, seconds, seconds, seconds)
        return os.stat_result(ten, {"st_mtime_ns": status.modified_ns})

    def lstat(self) -> os.stat_result:
        return self.stat()

    def _look(self) -> Status:
        from bertprep.files import object_store

        if self.key:
            with suppress(FileNotFoundError):
                return object_store.look(self)
        if object_store.is_folder(self):
            return object_store.Status(is_folder=True)
        raise FileNotFoundError(errno.ENOENT, "there is no such object", str(self))

    def exists(self, *, follow_symlinks: bool = True) -> bool:
        try:
            return bool(self.stat())
        except FileNotFoundError:
            return False

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        from bertprep.files import object_store

        if self._status:
            return not self._status.is_folder
        try:
            return bool(self.key and object_store.look(self))
        except FileNotFoundError:
            return False

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        from bertprep.files import object_store

        return self._status.is_folder if self._status else object_store.is_folder(self)

    def is_symlink(self) -> bool:
        return False

    def mkdir(self, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        """Nothing: a folder is there when an object is in it."""

    def unlink(self, missing_ok: bool = False) -> None:
        from bertprep.files import object_store

        self._status = None
        try:
            object_store.delete(self)
        except FileNotFoundError:
            if not missing_ok:
                raise

    def _with(self, name: str, status: Status) -> ObjectPath:
        found = ObjectPath(*self.parts, *name.split("/"))
        found._status = status
        return found

    def iterdir(self) -> Generator[ObjectPath, None, None]:
        """What is in a folder; raises `FileNotFoundError` where nothing is."""
        from bertprep.files import object_store

        inside = object_store.inside(self)
        if not inside and self.key:
            raise FileNotFoundError(errno.ENOENT, "there is no such folder", str(self))
        return (self._with(name, status) for name, status in inside.items())

    def glob(self, pattern: str, **options: Any) -> Iterator[ObjectPath]:  # type: ignore[override]
        """The objects and folders below that match: one listing, of the folder alone where the pattern is one name."""
        names = pattern.split("/")
        found = {each.name: each for each in self._inside()} if len(names) == 1 and names != ["**"] else self._tree()
        return (path for name, path in found.items() if _matches(name.split("/"), names))

    def rglob(self, pattern: str, **options: Any) -> Iterator[ObjectPath]:  # type: ignore[override]
        return self.glob(f"**/{pattern}")

    def _inside(self) -> Iterator[ObjectPath]:
        with suppress(FileNotFoundError):
            yield from self.iterdir()

    def _tree(self) -> dict[str, ObjectPath]:
        """Everything below, objects and folders, by relative name."""
        from bertprep.files import object_store

        found = {}
        for name, status in object_store.tree(self).items():
            names = name.split("/")
            for end in range(1, len(names)):
                above = "/".join(names[:end])
                if above not in found:
                    found[above] = self._with(above, object_store.Status(is_folder=True))
            found.setdefault(name, self._with(name, status))
        return found

    def open(  # type: ignore[override]
        self, mode: str = "r", buffering: int = -1, encoding: str | None = None, errors: str | None = None,
        newline: str | None = None,
    ) -> IO[Any]:  # fmt: skip
        """Open for reading: a small object from memory, a large one from its local copy."""
        if mode not in ("r", "rt", "rb"):
            raise io.UnsupportedOperation(f"{self}: objects are written whole, through atomic_file(), not opened with {mode!r}")
        raw = _open(self)
        return raw if "b" in mode else io.TextIOWrapper(raw, encoding, errors, newline)

    def read_bytes(self) -> bytes:
        with self.open("rb") as file:
            return cast(bytes, file.read())


def _matches(names: list[str], patterns: list[str]) -> bool:
    """Whether the names of a path match the patterns, of which "**" stands for any number of names."""
    if not patterns:
        return not names
    if patterns[0] == "**":
        return any(_matches(names[start:], patterns[1:]) for start in range(len(names) + 1))
    return bool(names) and PurePosixPath(names[0]).match(patterns[0]) and _matches(names[1:], patterns[1:])


def sizes_of(folder: Path, names: Iterable[str]) -> dict[str, int]:
    """The sizes in bytes of those of these files that are there, by their names in the folder: of a store one listing."""
    if isinstance(folder, ObjectPath):
        from bertprep.files import object_store

        there = object_store.tree(folder)
        return {name: there[name].size_bytes for name in names if name in there}
    found = {}
    for name in names:
        try:
            status = (folder / name).stat()
        except OSError as error:
            if error.errno in _ABSENT:
                continue
            raise
        if stat.S_ISREG(status.st_mode):
            found[name] = status.st_size
    return found


def remove_all(folder: Path, names: Collection[str]) -> None:
    """Remove those of these files of a folder that are there."""
    if isinstance(folder, ObjectPath):
        from bertprep.files import object_store

        object_store.delete_all(folder, names)
    else:
        for name in names:
            (folder / name).unlink(missing_ok=True)


def real_path(path: Path) -> Path:
    """The path without links; `Path.resolve` raises on a loop of them."""
    return path if isinstance(path, ObjectPath) else Path(os.path.realpath(path))


def open_head(path: Path) -> BinaryIO:
    """A file for reading its first bytes: of an object at most the first 64 KiB are there. Does not wait for a FIFO."""
    if not isinstance(path, ObjectPath):
        return open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))
    from bertprep.files import object_store

    return io.BytesIO(object_store.read_head(path, HEAD_BYTES))


def _open(path: ObjectPath) -> BinaryIO:
    from bertprep.files import object_store

    if path._status and path._status.is_folder:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not path._status or path._status.size_bytes <= object_store.BLOCK_BYTES:
        with _still_there(path) if path._status else nullcontext():
            status, content = object_store.read(path)
        if content is not None:
            return io.BytesIO(content)
        path = path.parent._with(path.name, status)
    return local_copy(path).open("rb")


@contextmanager
def _still_there(path: ObjectPath) -> Iterator[None]:
    """Read an object that the store has named: it must not be lost since."""
    try:
        yield
    except FileNotFoundError as error:
        raise BertprepError(
            f"{path}: the store listed it, and no longer has it; see that nothing else removes objects there, and run it again"
        ) from error


def local_copy(path: Path, sha256: str | None = None, *, given_up: threading.Event | None = None) -> Path:
    """A file of this machine with the bytes of `path`, to be opened now and only read; of a local path that itself.

    An object is downloaded once for all processes of a user on this machine, and again when it has changed in the store. Raises
    `FileNotFoundError`, `BertprepError` where the store or the disk fails, or the bytes do not have the `sha256`, and
    `GivenUpError` soon after it is `given_up`, also while the store is silent.
    """
    if not isinstance(path, ObjectPath):
        return path
    import hashlib

    from bertprep.files import object_store
    from bertprep.files.atomic import atomic_file

    status = path._status or object_store.look(path)
    if status.is_folder:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    copy = cache_folder() / copy_name(path, status)
    if _is_kept(copy, status, sha256):
        return copy
    with _one_at_a_time(copy.with_name(_LOCK + copy.name[:_NAME_LENGTH]), given_up):
        if _is_kept(copy, status, sha256):
            return copy
        _make_room(copy.parent, status.size_bytes)
        digest = hashlib.sha256()
        with atomic_file(copy, mode=0o600) as file:
            with _still_there(path):
                for block in object_store.blocks(path, status, given_up):
                    digest.update(block)
                    file.write(block)
            if sha256 not in (None, digest.hexdigest()):
                raise BertprepError(
                    f"{path}: has sha256 {digest.hexdigest()[:16]}..., expected {str(sha256)[:16]}...; the object is damaged, "
                    "make it again"
                )
            with atomic_file(_sum_of(copy), mode=0o600, tidies=False) as beside:
                beside.write(digest.hexdigest().encode())
    return copy


def is_as_downloaded(copy: Path, sha256: str) -> bool:
    """Whether a copy whose bytes now have this sum is what was downloaded; one that is not is removed, to be made again."""
    with suppress(FileNotFoundError):
        if _sum_of(copy).read_bytes() == sha256.encode():
            return True
    copy.unlink(missing_ok=True)
    return False


def copy_name(path: ObjectPath, status: Status | None = None) -> str:
    """What the copy of an object is called in the cache: of this version, or of the one that a listing has told."""
    if (status := status or path._status) is None:
        raise ValueError(f"{path}: comes from no listing")
    name = _name_of(str(path), status.version, str(status.size_bytes))
    return name + "".join(path.suffixes)[-32:]


def _sum_of(copy: Path) -> Path:
    """The file beside a copy that has its sha256, as it was when the copy was made."""
    return copy.with_name(_SUM + copy.name[:_NAME_LENGTH])


def kept_about(path: Path) -> Path:
    """A file among the copies for what was found out about an object; it is removed as they are."""
    return cache_folder() / name_about(path)


def name_about(path: Path) -> str:
    """What it is called."""
    return f"about-{_name_of(str(path))}"


def _name_of(*version: str) -> str:
    import hashlib

    return hashlib.sha256("\0".join(version).encode()).hexdigest()[:_NAME_LENGTH]


def _is_kept(copy: Path, status: Status, sha256: str | None = None) -> bool:
    """Whether there is such a copy, which then counts as used now."""
    try:
        if (kept := copy.stat()).st_size != status.size_bytes:
            return False
        if sha256 is not None and _sum_of(copy).read_bytes() != sha256.encode():
            return False
        os.utime(copy, ns=(time.time_ns(), kept.st_mtime_ns))
    except FileNotFoundError:
        return False
    return True


def cache_folder() -> Path:
    """The folder of this user's copies."""
    import tempfile

    try:
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "bertprep"
    except RuntimeError:  # no HOME, and a user that the system does not know
        home = Path(tempfile.gettempdir()) / f"bertprep-{os.geteuid()}"
    folder = Path(os.environ.get(CACHE) or home / "objects")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if folder.stat().st_uid != os.geteuid():
            raise BertprepError(f"{folder}: is another user's; name a folder for copies with {CACHE}")
    except OSError as error:
        raise BertprepError(
            f"{folder}: no copies of objects can be kept there ({error.strerror}); name another folder with {CACHE}"
        ) from error
    return folder


@contextmanager
def _one_at_a_time(lock: Path, given_up: threading.Event | None) -> Iterator[None]:
    """Hold the lock of a copy while it is made; another process may be downloading the same object."""
    descriptor = _locked(lock, given_up)
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)
        os.close(descriptor)


def _locked(lock: Path, given_up: threading.Event | None) -> int:
    """A descriptor that holds the lock on the file of this name, which its holder before may remove."""
    from bertprep.files.atomic import is_still

    while True:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            with suppress(BlockingIOError):
                with tolerating_no_locks():
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if is_still(lock, descriptor):
                    return descriptor
            if given_up and given_up.is_set():
                raise GivenUpError(f"{lock}: was given up while another process downloads")
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
        time.sleep(_LOOK_AGAIN_SECONDS)


@contextmanager
def tolerating_no_locks() -> Iterator[None]:
    """Pass over a file system that has no locks, where two processes may download the same; not over one that is held."""
    try:
        yield
    except OSError as error:
        if isinstance(error, BlockingIOError):
            raise


def _make_room(folder: Path, more_bytes: int) -> None:
    """Remove the copies that were unused for longest, until there is space for so many bytes.

    Those of files that a running process reads stay: what it has reserved, what it has mapped or open (see `hold_copy`), and
    what it was given in the last minute. The folder is looked through when a process first downloads something, and again after
    each hundredth of its capacity. The sum of a copy goes with it alone; locks that dead processes left are removed.
    """
    from bertprep.files.atomic import remove_leftovers
    from bertprep.files.reservations import RESERVED, reserved_copies

    capacity = cache_bytes()
    _since_sweep[folder] = _since_sweep.get(folder, capacity) + more_bytes
    if _since_sweep[folder] < capacity // 100:
        return
    _since_sweep[folder] = 0
    remove_leftovers(folder)
    _sweep(folder)
    copies = []
    for entry in os.scandir(folder):
        with suppress(FileNotFoundError):
            status = entry.stat(follow_symlinks=False)
            if stat.S_ISREG(status.st_mode) and not entry.name.startswith((_LOCK, _SUM, RESERVED)):
                copies.append((max(status.st_atime, status.st_mtime), status.st_size, entry.path))
    excess = sum(size for _, size, _ in copies) + more_bytes - capacity
    reserved = reserved_copies(folder) if excess > 0 else {}
    for used, size, copy in sorted(copies):
        if excess <= 0 or used > time.time() - _KEPT_SECONDS:
            return
        if Path(copy).name not in reserved and _remove_unheld(copy):
            excess -= size


def _sweep(folder: Path) -> None:
    """Remove the locks that nobody holds, and the sums of copies that are gone, but for that of one that is just made."""
    from bertprep.files.atomic import is_still

    there = {path.name[:_NAME_LENGTH] for path in folder.iterdir() if not path.name.startswith(".")}
    for path in folder.glob(f"{_SUM}*"):
        with suppress(FileNotFoundError):
            if path.name.removeprefix(_SUM) not in there and path.stat().st_mtime < time.time() - _KEPT_SECONDS:
                path.unlink()
    for path in folder.glob(_LOCK + "[0-9a-f]" * _NAME_LENGTH):
        with suppress(OSError):  # it is held or gone, or the file system does not tell
            descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if is_still(path, descriptor):
                    path.unlink()
            finally:
                os.close(descriptor)


def hold_copy(file: BinaryIO) -> None:
    """Keep an opened copy from being removed as long as the file, or a mapping of it, is open."""
    with suppress(OSError):  # a file system without locks, where it lives on unnamed
        fcntl.flock(file, fcntl.LOCK_SH)


def _remove_unheld(copy: str) -> bool:
    """Remove a copy with its sum unless a process has it open; returns whether it is gone."""
    try:
        descriptor = os.open(copy, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError as error:
        return error.errno == errno.ENOENT
    try:
        with tolerating_no_locks():
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _sum_of(Path(copy)).unlink(missing_ok=True)  # first: the next one to make this copy writes another
        Path(copy).unlink()
    except BlockingIOError:
        return False
    except FileNotFoundError:
        pass
    finally:
        os.close(descriptor)
    return True


def cache_bytes() -> int:
    """How many bytes of copies are kept, by $BERTPREP_OBJECT_CACHE_GB."""
    text = os.environ.get(CACHE_GB, str(_DEFAULT_CACHE_GB))
    try:
        if (gigabytes := float(text)) >= 0:
            return int(gigabytes * 1e9)
    except (ValueError, OverflowError):
        pass
    raise BertprepError(f"{CACHE_GB}={text}: must be a number of gigabytes")

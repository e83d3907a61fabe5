"""Makes paths on this machine and URLs in an object store work alike, and opens what they name.

`as_path("data")` is a plain `Path`, and `as_path("s3://bucket/data")` is an `ObjectPath`, which has pathlib's methods. Code
that needs a local file, to map it into memory or to pass it to another library, gets it from `files.object_cache`;
`os.fspath` of an `ObjectPath` raises.
"""

from __future__ import annotations

import errno
import io
import os
import re
import stat
from collections.abc import Collection, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PosixPath, PurePath, PurePosixPath
from typing import IO, Any, BinaryIO, cast

from bertprep.errors import BertprepError, UsageError, reading
from bertprep.files import object_store
from bertprep.files.checksums import BLAKE3, new_hash
from bertprep.files.object_store import Status
from bertprep.files.object_url import SCHEMES, ObjectUrl, shown, why_refused

_FIRST_PARTS = tuple((f"{scheme}:",) for scheme in SCHEMES)
_IN_BUCKET = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
_BLOCK_BYTES = 1 << 20
_ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
HEAD_BYTES = 64 << 10
_MAX_NAME_BYTES, _MAX_PATH_BYTES = 255, 4095  # of Linux and its file systems
_SHOWN = 80  # characters of a path that is too long
_BUFFER_BYTES = 64 << 10  # read buffer of a local file


def as_path(text: str | Path) -> Path:
    """Return the path that a user names: a `Path`, or an `ObjectPath` for the URL of a store.

    Raises `UsageError` for a path that no file can have, another scheme, no bucket, "..", a query, a fragment or control
    characters.

    >>> as_path("data/part-0"), as_path("file:///data/my%20text.txt")
    (PosixPath('data/part-0'), PosixPath('/data/my text.txt'))
    >>> as_path("s3://bucket/data/") / "part-0"
    ObjectPath('s3://bucket/data/part-0')
    """
    if isinstance(text, Path):
        if isinstance(text, ObjectPath) or text.parts[:1] not in _FIRST_PARTS:
            return text if isinstance(text, ObjectPath) else _possible(text)
        text = str(text).replace(":/", "://", 1)  # Path("s3://...") has lost a slash
    if not isinstance(text, str):
        raise UsageError(f"{text!r}: expected a path or a URL")
    scheme, is_url, rest = text.partition("://")
    scheme = scheme.lower()
    if not is_url or "/" in scheme:
        return _possible(Path(text))
    if scheme == "file":
        return _local(text)
    if scheme not in SCHEMES:
        names = ", ".join(f"{each}://" for each in (*SCHEMES, "file"))
        raise UsageError(f"{shown(text)}: unknown kind of URL; expected {names} or a local path")
    bucket, _, key = rest.partition("/")
    if not bucket.isascii() or not bucket[:1].isalnum() or not _IN_BUCKET.issuperset(bucket):
        raise UsageError(f"{shown(text)}: has no valid bucket name; expected {scheme}://BUCKET/NAME")
    if why := why_refused(key):
        raise UsageError(f"{shown(text)}: {why}")
    return ObjectPath(f"{scheme}://{rest}")


def _possible(path: Path) -> Path:
    """Return a local path; raise `UsageError` if no file can have it, which the OS reports in another way for each call."""
    try:
        encoded = os.fsencode(path)
    except UnicodeEncodeError:
        raise UsageError(f"{str(path)[:_SHOWN]!a}: has a character that no file name can have; name another path") from None
    longest = max(map(len, encoded.split(b"/")))
    if longest > _MAX_NAME_BYTES or len(encoded) > _MAX_PATH_BYTES:
        what = f"a name of {longest:,}" if longest > _MAX_NAME_BYTES else f"{len(encoded):,}"
        most = _MAX_NAME_BYTES if longest > _MAX_NAME_BYTES else _MAX_PATH_BYTES
        raise UsageError(f"{str(path)[:_SHOWN]}...: has {what} bytes, expected at most {most:,}; name a shorter path")
    return path


def _local(text: str) -> Path:
    from urllib.parse import unquote, urlsplit

    try:
        url = urlsplit(text)
    except ValueError as error:
        raise UsageError(f"{shown(text)}: is not a URL ({error})") from None
    path = unquote(url.path)
    if url.netloc not in ("", "localhost") or not path.startswith("/") or url.query or url.fragment or not path.isprintable():
        raise UsageError(f"{shown(text)}: is not the URL of a file on this machine; expected file:///FOLDER/NAME")
    return Path(path)


_MISTYPED_URL = re.compile(rf"({'|'.join(SCHEMES)})(//|:/)(?!/)|file:/(?!/)", re.IGNORECASE)


def path_arg(given: str | Path) -> Path:
    """Return the path in an option's value; raises `UsageError` for a mistyped URL.

    >>> path_arg("s3//bucket/x")
    Traceback (most recent call last):
    bertprep.errors.UsageError: s3//bucket/x: is not a URL, expected s3://...; if it is a local path, write an absolute path
    """
    if isinstance(given, str) and (matched := _MISTYPED_URL.match(given)):
        scheme = re.split("[:/]", matched[0])[0]
        raise UsageError(f"{given}: is not a URL, expected {scheme}://...; if it is a local path, write an absolute path")
    return as_path(given)


def local_path(given: str | Path) -> Path:
    """Return the path in the value of an option that needs a local path; raises `ValueError` for a store's URL."""
    if isinstance(path := path_arg(given), ObjectPath):
        raise ValueError("a path on this machine, not a URL")
    return path


def as_local_path(option: str, text: str | Path) -> Path:
    """Return the local path that a user gave to `option`; raises `UsageError` for a store's URL."""
    path = as_path(text)
    if isinstance(path, ObjectPath):
        raise UsageError(f"{option} {path}: must be a path on this machine, not a URL")
    return path


def is_object(path: PurePath | str) -> bool:
    return isinstance(path, ObjectPath)


class ObjectPath(ObjectUrl, PosixPath):
    """The URL of an object or of a folder of objects, with the methods of `Path`; `as_path` makes it.

    Paths from `iterdir`, `glob` and `rglob` keep their status from the listing, and need no further request. Methods raise
    `FileNotFoundError` or `BertprepError`.
    """

    _status: Status | None = None

    def absolute(self) -> ObjectPath:
        return self

    def resolve(self, strict: bool = False) -> ObjectPath:
        return self

    def expanduser(self) -> ObjectPath:
        return self

    def status(self) -> Status:
        """Return the status from the listing that this path comes from, or else from the store."""
        if self._status:
            return self._status
        if self.key:
            with suppress(FileNotFoundError):
                return object_store.look(self)
        if object_store.is_folder(self):
            return Status(is_folder=True)
        raise FileNotFoundError(errno.ENOENT, "there is no such object", str(self))

    def with_status(self) -> ObjectPath:
        return self if self._status else self.parent._with(self.name, self.status())

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        status = self.status()
        mode = stat.S_IFDIR | 0o777 if status.is_folder else stat.S_IFREG | 0o666
        seconds = status.modified_ns // 10**9
        ten = (mode, 0, 0, 1, 0, 0, status.size_bytes, seconds, seconds, seconds)
        return os.stat_result(ten, {"st_mtime_ns": status.modified_ns})

    def lstat(self) -> os.stat_result:
        return self.stat()

    def exists(self, *, follow_symlinks: bool = True) -> bool:
        try:
            return bool(self.stat())
        except FileNotFoundError:
            return False

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        if self._status:
            return not self._status.is_folder
        try:
            return bool(self.key and object_store.look(self))
        except FileNotFoundError:
            return False

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        return self._status.is_folder if self._status else object_store.is_folder(self)

    def is_symlink(self) -> bool:
        return False

    def mkdir(self, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        """Do nothing: a store's folder exists as soon as it contains an object."""

    def unlink(self, missing_ok: bool = False) -> None:
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
        inside = object_store.inside(self)
        if not inside and self.key:
            raise FileNotFoundError(errno.ENOENT, "there is no such folder", str(self))
        return (self._with(name, status) for name, status in inside.items())

    def glob(self, pattern: str, **options: Any) -> Iterator[ObjectPath]:  # type: ignore[override]
        names = pattern.split("/")
        found = {each.name: each for each in self._inside()} if len(names) == 1 and names != ["**"] else self._tree()
        return (path for name, path in found.items() if _matches(name.split("/"), names))

    def rglob(self, pattern: str, **options: Any) -> Iterator[ObjectPath]:  # type: ignore[override]
        return self.glob(f"**/{pattern}")

    def _inside(self) -> Iterator[ObjectPath]:
        with suppress(FileNotFoundError):
            yield from self.iterdir()

    def _tree(self) -> dict[str, ObjectPath]:
        found = {}
        for name, status in object_store.tree(self).items():
            names = name.split("/")
            for end in range(1, len(names)):
                above = "/".join(names[:end])
                if above not in found:
                    found[above] = self._with(above, Status(is_folder=True))
            found.setdefault(name, self._with(name, status))
        return found

    def read_bounded(self, most_bytes: int) -> bytes:
        """Return the bytes of an object; raises `ValueError` if it has more than `most_bytes`."""
        status, content = object_store.read(self, most_bytes)
        if content is None:
            raise ValueError(f"it has {status.size_bytes:,} bytes, expected at most {most_bytes:,}")
        return content

    def open(  # type: ignore[override]
        self, mode: str = "r", buffering: int = -1, encoding: str | None = None, errors: str | None = None,
        newline: str | None = None,
    ) -> IO[Any]:  # fmt: skip
        """Open for reading; a small object is read into memory, and a large one downloaded to an unnamed file."""
        if mode not in ("r", "rt", "rb"):
            raise io.UnsupportedOperation(f"{self}: cannot be opened with mode {mode!r}; write the object with atomic_file()")
        raw = _open(self)
        return raw if "b" in mode else io.TextIOWrapper(raw, encoding, errors, newline)

    def read_bytes(self) -> bytes:
        with self.open("rb") as file:
            return cast(bytes, file.read())


def _matches(names: list[str], patterns: list[str]) -> bool:
    """Return whether the names of a path match the patterns; the pattern "**" matches any number of names."""
    if not patterns:
        return not names
    if patterns[0] == "**":
        return any(_matches(names[start:], patterns[1:]) for start in range(len(names) + 1))
    return bool(names) and PurePosixPath(names[0]).match(patterns[0]) and _matches(names[1:], patterns[1:])


def checksum_of(path: Path, algorithm: str = BLAKE3) -> str:
    """Return the checksum of a file's bytes in hexadecimal; an object is downloaded for it.

    Raises `BertprepError` if the file cannot be read.
    """
    if isinstance(path, ObjectPath):
        return object_store.download(path, path.status(), algorithm=algorithm)
    hashed = new_hash(algorithm)
    with reading(path), open_plain(path) as file:
        while block := file.read(_BLOCK_BYTES):
            hashed.update(block)
    return str(hashed.hexdigest())


def sizes_of(folder: Path, names: Iterable[str]) -> dict[str, int]:
    """Return the sizes in bytes of those of these files that exist, by name; one listing is enough for a store."""
    if isinstance(folder, ObjectPath):
        there = object_store.tree(folder)
        return {name: there[name].size_bytes for name in names if name in there}
    found, start = {}, f"{folder}/"
    for name in names:
        try:
            status = os.stat(start + name)  # noqa: PTH116 - pathlib takes twice the time, and there may be many files
        except OSError as error:
            if error.errno in _ABSENT:
                continue
            raise
        if stat.S_ISREG(status.st_mode):
            found[name] = status.st_size
    return found


def remove_all(folder: Path, names: Collection[str]) -> None:
    """Remove these files from a folder; files that do not exist are skipped."""
    if isinstance(folder, ObjectPath):
        object_store.delete_all(folder, names)
    else:
        for name in names:
            (folder / name).unlink(missing_ok=True)


def real_path(path: Path) -> Path:
    """Return the path with all links resolved; unlike `Path.resolve`, it does not raise for a loop of links."""
    return path if isinstance(path, ObjectPath) else Path(os.path.realpath(path))


class _PlainFile(io.FileIO):
    """A plain file whose read errors contain the file's name; Python adds it only to errors of `open`."""

    def readinto(self, buffer: Any) -> int:
        with self._named():
            return cast(int, super().readinto(buffer))

    def readall(self) -> bytes:
        with self._named():
            return super().readall()

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise OSError(error.errno, error.strerror, self.name) from error


def _open_descriptor(name: str, flags: int) -> int:
    descriptor = os.open(name, flags | os.O_NONBLOCK)  # otherwise opening a FIFO would wait for its writer
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, "it is not a plain file", name)


def open_plain(path: Path) -> io.BufferedReader:
    """Open a local file for reading; every file that a user names is opened by this function.

    Raises `OSError` for anything but a plain file, since a pipe or a device may have no end. All errors contain the file's
    name, including later read errors.
    """
    return io.BufferedReader(_PlainFile(path, opener=_open_descriptor), _BUFFER_BYTES)


def open_head(path: Path) -> BinaryIO:
    """Open a file to read its beginning; for an object, only the first 64 KiB are downloaded."""
    if not isinstance(path, ObjectPath):
        return open_plain(path)
    return io.BytesIO(object_store.read_head(path, HEAD_BYTES))


def _open(path: ObjectPath) -> BinaryIO:
    if path._status and path._status.is_folder:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    try:
        status, content = object_store.read(path)
    except FileNotFoundError as error:
        raise object_store.lost(path) if path._status else error from error
    return io.BytesIO(content) if content is not None else open_download(path.parent._with(path.name, status))


def open_download(path: ObjectPath) -> io.BufferedReader:
    """Download an object to an unnamed local file, which is deleted when it is closed, and return that file."""
    folder = disk_folder()
    import tempfile  # takes 3 ms with its own imports, which most commands need not pay

    file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - the reader closes it
    try:
        object_store.download(path, path.status(), file)
        file.seek(0)
    except BaseException as error:
        file.close()
        if isinstance(error, OSError) and error.filename is None:
            raise BertprepError(
                f"{path}: cannot be downloaded to {folder}: {error.strerror or error}; free some space there, or name another "
                "folder with TMPDIR"
            ) from error
        raise
    return cast(io.BufferedReader, file)


def open_at(path: Path, start: int = 0, *, buffer_bytes: int | None = None) -> io.BufferedReader:
    """Open a file at byte `start`; only the parts of an object that are read are downloaded."""
    if isinstance(path, ObjectPath):
        return io.BufferedReader(_RangeReader(path, start), buffer_bytes or object_store.BLOCK_BYTES)
    file = open_plain(path)
    file.seek(start)
    return file


class _RangeReader(io.RawIOBase):
    def __init__(self, path: ObjectPath, position: int) -> None:
        self._path, self._status, self._position = path, path.status(), position

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._position = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._status.size_bytes}[whence]
        return self._position

    def tell(self) -> int:
        return self._position

    def readinto(self, buffer: Any) -> int:
        size = min(len(buffer), self._status.size_bytes - self._position)
        data = object_store.read_range(self._path, self._position, size, self._status) if size > 0 else b""
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)


def disk_folder() -> Path:
    """Return the folder for large temporary files: /var/tmp unless TMPDIR is set, since /tmp may be in memory."""
    import tempfile

    on_disk = Path("/var/tmp")
    return on_disk if "TMPDIR" not in os.environ and os.access(on_disk, os.W_OK) else Path(tempfile.gettempdir())

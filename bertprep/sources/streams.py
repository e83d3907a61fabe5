"""A file's bytes as a stream, decompressed according to its suffix, from a path or any URL that fsspec supports.

A broken, truncated or empty archive is an error, never a shorter text.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import Any, BinaryIO
from urllib.parse import urlsplit

from bertprep.errors import BertprepError, UsageError
from bertprep.files.archives import COMPRESSIONS, BrokenArchiveError, decompress
from bertprep.files.places import local_copy, place

_STORES = ("s3://", "gs://", "az://")


def is_url(location: str) -> bool:
    """Whether it is a URL for fsspec, such as `s3://bucket/a.jsonl` or `hf://datasets/...`, not a path."""
    return "://" in location


def is_local(location: str) -> bool:
    """Whether it is read as a file of this machine: a path, or a URL of an object store, of which there is a local copy."""
    return not is_url(location) or (location.lower().startswith(_STORES) and "::" not in location)


def is_web(location: str) -> bool:
    """Whether it is an http or https address."""
    return urlsplit(location).scheme in ("http", "https")


def is_glob(location: str) -> bool:
    """Whether a path or URL has wildcards; those of a web address are only `*`, since the others mean something there."""
    return "*" in urlsplit(location).path if is_web(location) else any(sign in location for sign in "*?[")


def suffixes(location: str) -> tuple[str, str]:
    """The suffixes of the name and its compression: ('.jsonl', '.gz'); '' for a missing one."""
    name = PurePosixPath(_hops(location)[1].partition("?")[0] if is_url(location) else location)
    compression = name.suffix.lower() if name.suffix.lower() in COMPRESSIONS else ""
    kind = (PurePosixPath(name.stem) if compression else name).suffix.lower()
    return kind.partition("-")[0], compression  # parts of a dump are named ....xml-p1p41242.bz2


@contextmanager
def open_stream(location: str, processors: int = 1) -> Iterator[BinaryIO]:
    """The decompressed bytes of a file, for one sequential read.

    Raises `BertprepError` if the file cannot be read or the archive is broken, also during reading.
    """
    try:
        with open_raw(location) as raw, decompress(raw, suffixes(location)[1], processors) as stream:
            yield stream
    except (EOFError, OSError, BrokenArchiveError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        advice = "; is it whole? fetch or compress it again" if suffixes(location)[1] else ""
        raise BertprepError(f"{location}: cannot be read: {reason}{advice}") from error


@contextmanager
def open_raw(location: str) -> Iterator[BinaryIO]:
    """The bytes of a file, not decompressed; seekable for a path."""
    if not is_local(location):
        with _open_url(location) as file:
            yield file
    else:
        path = local_copy(place(location))
        if path.exists() and not path.is_file():  # a pipe or a device may have no end
            raise BertprepError(f"{location}: is not a plain file; name a file of text")
        with path.open("rb") as file:
            yield file


def identify(location: str) -> dict[str, Any]:
    """Size and identity of a file at a URL, as reported by its file system, without reading it."""
    file_system, path = _file_system(location)
    with _explained(location):
        return {"name": location, "bytes": file_system.info(path).get("size"), "key": file_system.ukey(path)}


def find_files(location: str) -> list[str] | None:
    """The URLs of the files that match a URL with wildcards, or are below a folder, sorted; None for the URL of a file."""
    if is_local(location):
        return _find_objects(location)
    file_system, path = _file_system(location)
    with _explained(location):
        if is_glob(path) and not file_system.exists(path):
            found = [name for name, info in file_system.glob(path, detail=True).items() if info["type"] == "file"]
        elif file_system.isdir(path):
            found = file_system.find(path)
        else:
            return None
    before, hop, after = _hops(location)
    start = hop.rstrip("/").removesuffix(path)  # with the host, which paths lack
    return [f"{before}{start}{name}{after}" for name in sorted(found)]


def _find_objects(location: str) -> list[str] | None:
    names = location.split("/")
    first = next((number for number, name in enumerate(names) if is_glob(name)), len(names))
    folder = place("/".join(names[:first]))
    if first == len(names) and (folder.is_file() or not folder.is_dir()):
        return None
    return sorted(str(path) for path in folder.glob("/".join(names[first:]) or "**/*") if path.is_file())


def _hops(location: str) -> tuple[str, str, str]:
    """The hop of a chained URL that has the file's path, with what stands before and after it.

    >>> _hops("zip://a/*.txt::s3://bucket/a.zip"), _hops("simplecache::s3://bucket/a.txt")
    (('', 'zip://a/*.txt', '::s3://bucket/a.zip'), ('simplecache::', 's3://bucket/a.txt', ''))
    """
    hops = location.split("::")
    at = next(number for number, hop in enumerate(hops) if "://" in hop)
    return "".join(f"{hop}::" for hop in hops[:at]), hops[at], "".join(f"::{hop}" for hop in hops[at + 1 :])


@contextmanager
def _explained(location: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise UsageError(f"--input {location}: does not exist") from None
    except Exception as error:  # each file system has errors of its own
        raise BertprepError(f"{location}: cannot be reached: {error}") from error


def _file_system(location: str) -> tuple[Any, str]:
    import fsspec

    try:
        file_system, path = fsspec.core.url_to_fs(location)
    except (ImportError, ValueError) as error:  # a protocol that is unknown, or whose package is not installed
        raise UsageError(f"--input {location}: cannot be opened: {error}") from None
    return file_system, path


@contextmanager
def _open_url(location: str) -> Iterator[BinaryIO]:
    file_system, path = _file_system(location)
    with file_system.open(path, "rb") as file:
        yield file

"""A file's bytes as a stream, decompressed by what its name ends in, from a path or from any URL that fsspec knows.

gzip is the standard library's, Zstandard `zstandard`'s; bzip2 on disk is decompressed by indexed_bzip2, which takes half the
standard library's time and can use several processors. An archive that is broken or cut off is an error, never shorter text.
"""

import bz2
import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, cast
from urllib.parse import urlsplit

from bertprep.errors import BertprepError, UsageError

COMPRESSIONS = (".gz", ".bz2", ".zst")
BUFFER_BYTES = 1 << 20


def is_url(location: str) -> bool:
    """Whether fsspec is to open it: `s3://bucket/a.jsonl`, `hf://datasets/...`, but no path."""
    return "://" in location


def is_web(location: str) -> bool:
    """Whether it is an http or https address."""
    return urlsplit(location).scheme in ("http", "https")


def suffixes(location: str) -> tuple[str, str]:
    """What the name ends in, the compression apart: ('.jsonl', '.gz'); '' for either where there is none."""
    name = PurePosixPath(location.partition("?")[0] if is_url(location) else location)
    compression = name.suffix.lower() if name.suffix.lower() in COMPRESSIONS else ""
    kind = (PurePosixPath(name.stem) if compression else name).suffix.lower()
    return kind.partition("-")[0], compression  # the parts of a dump are called ....xml-p1p41242.bz2


@contextmanager
def open_stream(location: str, processors: int = 1) -> Iterator[BinaryIO]:
    """The decompressed bytes of a file, to be read once and in order.

    Raises `BertprepError` where the file cannot be read or the archive is broken, also while it is read.
    """
    try:
        with open_raw(location) as raw, decompress(raw, suffixes(location)[1], processors) as stream:
            yield stream
    except (EOFError, OSError, zlib.error, BrokenArchiveError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        advice = "; is it whole? fetch or compress it again" if suffixes(location)[1] else ""
        raise BertprepError(f"{location}: cannot be read: {reason}{advice}") from error


@contextmanager
def open_raw(location: str) -> Iterator[BinaryIO]:
    """The bytes of a file as they lie there; seekable for a path."""
    if is_url(location):
        with _open_url(location) as file:
            yield file
    else:
        with Path(location).open("rb") as file:
            yield file


def identify(location: str) -> dict[str, Any]:
    """Size and identity of a file behind a URL: what its file system says, without reading it."""
    file_system, path = _file_system(location)
    try:
        info = file_system.info(path)
        key = file_system.ukey(path)
    except FileNotFoundError:
        raise UsageError(f"--input {location}: does not exist") from None
    except Exception as error:  # each file system has errors of its own
        raise BertprepError(f"{location}: cannot be reached: {error}") from error
    return {"name": location, "bytes": info.get("size"), "key": key}


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


def decompress(raw: BinaryIO, compression: str, processors: int = 1) -> BinaryIO:
    """A stream of the decompressed bytes of `raw`; compression is one of `COMPRESSIONS` or ''."""
    if compression == ".gz":
        return cast(BinaryIO, gzip.GzipFile(fileobj=raw))
    if compression == ".bz2":
        if isinstance(raw, io.BufferedReader):
            return io.BufferedReader(_Bzip2Stream(raw, processors), BUFFER_BYTES)
        return cast(BinaryIO, bz2.BZ2File(raw))
    if compression == ".zst":
        return io.BufferedReader(_ZstandardStream(raw), BUFFER_BYTES)
    return raw


class BrokenArchiveError(Exception):
    """What decompression found wrong."""


class _Bzip2Stream(io.RawIOBase):
    """indexed_bzip2's reader, with its errors made ours: a file cut off is a RuntimeError without a word."""

    def __init__(self, raw: io.BufferedReader, processors: int) -> None:
        import indexed_bzip2

        self._file = indexed_bzip2.open(raw.fileno(), parallelization=processors)

    def readable(self) -> bool:
        return True

    def readinto(self, room: Any) -> int:
        try:
            return cast(int, self._file.readinto(room))
        except (RuntimeError, ValueError) as error:
            raise BrokenArchiveError(str(error).replace("std::exception", "ends within a bzip2 block")) from error

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


class _ZstandardStream(io.RawIOBase):
    """All frames of a Zstandard file; zstandard's own reader takes a file that was cut off for one that ends there."""

    def __init__(self, raw: BinaryIO) -> None:
        import zstandard

        self._raw = raw
        self._error = zstandard.ZstdError
        self._new_frame = zstandard.ZstdDecompressor().decompressobj
        self._frame: Any = None
        self._compressed = b""
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, room: Any) -> int:
        while not self._ready:
            if not (self._compressed or (compressed := self._raw.read(BUFFER_BYTES))):
                if self._frame is not None:
                    raise BrokenArchiveError("ends within a Zstandard frame")
                return 0
            compressed, self._compressed = self._compressed or compressed, b""
            self._frame = self._frame or self._new_frame()
            try:
                self._ready = memoryview(self._frame.decompress(compressed))
            except self._error as error:
                raise BrokenArchiveError(str(error)) from error
            if self._frame.eof:
                self._compressed, self._frame = self._frame.unused_data, None
        count = min(len(room), len(self._ready))
        room[:count], self._ready = self._ready[:count], self._ready[count:]
        return count

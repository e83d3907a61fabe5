"""Decompresses gzip, bzip2, Zstandard and xz as streams, in bounded memory.

An archive may have any number of members. isal reads gzip, and pyarrow bzip2: unlike Python's own modules, both reject
truncated archives and trailing garbage. pyarrow also reads Zstandard, except for frames with a long window (`zstd --long`),
which take the memory of that window.
"""

import contextlib
import io
import lzma
from collections.abc import Callable
from typing import Any, BinaryIO, cast

from bertprep.errors import BertprepError

GZIP, BZIP2, ZSTANDARD, XZ = ".gz", ".bz2", ".zst", ".xz"
_MAGIC = {GZIP: b"\x1f\x8b", BZIP2: b"BZh", ZSTANDARD: b"\x28\xb5\x2f\xfd", XZ: b"\xfd7zXZ\0"}
COMPRESSIONS = tuple(_MAGIC)
MAGIC_BYTES = max(map(len, _MAGIC.values()))
BUFFER_BYTES = 1 << 20
_CHUNK_BYTES = 1 << 12
_HEADER_BYTES = 18  # of a frame of Zstandard
_USUAL_WINDOW, _MAX_WINDOW = 1 << 27, 1 << 31  # what its library reads unless asked for more, and what it reads at most


class BrokenArchiveError(Exception):
    """An archive is empty, truncated, corrupt or followed by other bytes."""


def compression_of(start: bytes) -> str:
    r"""Return the compression of a file by its first bytes: one of `COMPRESSIONS`, or '' for none.

    >>> compression_of(b"\x1f\x8b\x08\x00"), compression_of(b"Text.")
    ('.gz', '')
    """
    return next((name for name, magic in _MAGIC.items() if start.startswith(magic)), "")


def decompress(raw: BinaryIO, compression: str) -> BinaryIO:
    """Return a stream of the decompressed bytes of `raw`; `compression` is one of `COMPRESSIONS`, or '' for none.

    Reading from it raises `EOFError` or `BrokenArchiveError` if the archive is incomplete or corrupt.
    """
    return cast(BinaryIO, io.BufferedReader(_Archive(raw, compression), BUFFER_BYTES)) if compression else raw


def decompress_start(start: bytes, compression: str) -> bytes:
    """Return what the first bytes of a file are decompressed; less, or nothing, where the next bytes would be needed."""
    if not compression:
        return start
    archive, data = _Archive(io.BytesIO(start), compression), b""
    with contextlib.suppress(EOFError, BrokenArchiveError, BertprepError):
        while len(data) < len(start) and (more := archive.read(_CHUNK_BYTES)):
            data += more
    return data


def read_fully(file: BinaryIO, size_bytes: int) -> bytes:
    """Return the next `size_bytes` bytes of a stream, whose reads may give less; fewer at its end."""
    data = b""
    while len(data) < size_bytes and (more := file.read(size_bytes - len(data))):
        data += more
    return data


class _Archive(io.RawIOBase):
    def __init__(self, raw: BinaryIO, compression: str) -> None:
        self._raw, self._compression, self._stream = raw, compression, cast(Any, None)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            self._stream = self._stream or self._open()
            data: bytes = self._stream.read(len(buffer))
        except (EOFError, BertprepError):
            raise
        except Exception as error:  # each library has its own exceptions
            raise BrokenArchiveError(str(error)) from error
        buffer[: len(data)] = data
        return len(data)

    def _open(self) -> Any:
        source = io.BufferedReader(cast(io.RawIOBase, self._raw), BUFFER_BYTES)
        if not source.peek(1):
            raise BrokenArchiveError(f"it is empty, and a valid {self._compression} file never is")
        if self._compression == GZIP:
            from isal import igzip

            return igzip.IGzipFile(fileobj=source, mode="rb")  # type: ignore[no-untyped-call]
        if self._compression == XZ:
            return _Members(source, lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ))
        if self._compression == ZSTANDARD:
            import zstandard

            if zstandard.get_frame_parameters(source.peek(_HEADER_BYTES)).window_size > _USUAL_WINDOW:
                return _Members(source, lambda: _LongFrame(zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW)))
        import pyarrow as pa

        return pa.CompressedInputStream(pa.PythonFile(source, "r"), "bz2" if self._compression == BZIP2 else "zstd")


class _Members:
    """Reads the members of an archive one after another; `begin` returns a decompressor like lzma's for the next one."""

    def __init__(self, source: BinaryIO, begin: Callable[[], Any]) -> None:
        self._source, self._begin = source, begin
        self._member: Any = None
        self._unused = b""

    def read(self, most: int) -> bytes:
        """Return at least one byte and at most `most`, or none at the end; raises `EOFError` if the last member is cut off."""
        data = b""
        while not data:
            if self._member is None:
                chunk = (self._unused or self._source.read(_CHUNK_BYTES)).lstrip(b"\0")  # padding
                self._unused = b""
                if not chunk and not (chunk := self._source.read(_CHUNK_BYTES).lstrip(b"\0")):
                    return b""
                self._member = self._begin()
            else:
                chunk = self._source.read(_CHUNK_BYTES) if self._member.needs_input else b""
                if not chunk and self._member.needs_input:
                    raise EOFError("it ends before its last member does")
            data = self._member.decompress(chunk, most)
            if self._member.eof:
                self._unused, self._member = self._member.unused_data, None
        return data


class _LongFrame:
    """A frame of Zstandard with the methods of lzma's decompressor. A chunk gives at most some 100 MB, less than the window."""

    def __init__(self, decompressor: Any) -> None:
        self._frame = decompressor.decompressobj()
        self._ready = b""

    @property
    def needs_input(self) -> bool:
        return not self._ready

    @property
    def eof(self) -> bool:
        return bool(self._frame.eof) and not self._ready

    @property
    def unused_data(self) -> bytes:
        return bytes(self._frame.unused_data)

    def decompress(self, chunk: bytes, most: int) -> bytes:
        self._ready += self._frame.decompress(chunk) if chunk else b""
        data, self._ready = self._ready[:most], self._ready[most:]
        return data

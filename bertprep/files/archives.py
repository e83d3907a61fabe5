"""gzip, bzip2 and Zstandard as streams: in bounded memory, with any number of members, and strict to the last byte.

The libraries' own readers treat an empty file as empty text and a truncated one as complete (zstandard), and ignore everything
after bytes that they do not recognize (bz2, indexed_bzip2). Here each is an error. A few bytes can expand to megabytes, so no
more is decompressed at a time than was requested, or than a few kilobytes expand to.

Large bzip2 files on disk are read by indexed_bzip2, which takes half the standard library's time and can use several
processors; its final position is compared with the end of the file.
"""

import bz2
import io
import os
import re
import zlib
from collections.abc import Callable
from typing import Any, BinaryIO, cast

GZIP, BZIP2, ZSTANDARD = ".gz", ".bz2", ".zst"
COMPRESSIONS = (GZIP, BZIP2, ZSTANDARD)
BUFFER_BYTES = 1 << 20
_INPUT_BYTES = 1 << 17
_ZSTANDARD_INPUT_BYTES = 1 << 10  # decompressed at once, to at most 32,768 times as much, 32 MiB
_ZSTANDARD_WINDOW_BYTES = 1 << 27  # what `zstd --long` needs; a frame may ask for terabytes
_INDEXED_BYTES = 1 << 20  # smaller bzip2 files are not worth threads
_END_OF_STREAM, _END_OF_STREAM_BITS, _CHECKSUM_BITS = 0x177245385090, 48, 32  # of bzip2
_EMPTY_STREAM = re.compile(rb"BZh[1-9]\x17rE8P\x90\0\0\0\0")
_EMPTY_STREAM_BYTES = 14
_NAMES = {GZIP: "gzip", BZIP2: "bzip2", ZSTANDARD: "Zstandard"}


class BrokenArchiveError(Exception):
    """An archive is truncated, damaged or followed by other bytes."""


def decompress(raw: BinaryIO, compression: str, processors: int = 1) -> BinaryIO:
    """A stream of the decompressed bytes of `raw`; compression is one of `COMPRESSIONS` or ''.

    Reading it raises `EOFError` for a truncated archive, `BrokenArchiveError` for one that is damaged, empty or followed by
    anything else.
    """
    if not compression:
        return raw
    stream: io.RawIOBase
    if compression == BZIP2 and isinstance(raw, io.BufferedReader) and _size_of(raw) >= _INDEXED_BYTES:
        stream = _IndexedBzip2(raw, processors)
    else:
        stream = _Members(raw, compression)
    return cast(BinaryIO, io.BufferedReader(stream, BUFFER_BYTES))


def _size_of(file: io.BufferedReader) -> int:
    return os.fstat(file.fileno()).st_size


class _Members(io.RawIOBase):
    """The members (streams, frames) of an archive in sequence, each with its own decompressor object."""

    def __init__(self, raw: BinaryIO, compression: str) -> None:
        self._raw, self._name = raw, _NAMES[compression]
        self._pads = compression == GZIP  # zeros after a member are padding, as on tapes
        self._input_bytes = _ZSTANDARD_INPUT_BYTES if compression == ZSTANDARD else _INPUT_BYTES
        self._new_member, self._error = _decompressor(compression)
        self._member: Any = None
        self._members = 0
        self._is_new = True  # nothing of the member has been decompressed yet
        self._compressed = b""
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._ready:
            self._ready = memoryview(self._expand())
        count = min(len(buffer), len(self._ready))
        buffer[:count], self._ready = self._ready[:count], self._ready[count:]
        return count

    def _expand(self) -> bytes:
        """The next decompressed bytes; none at the end."""
        while True:
            at_end = False
            if not self._compressed and getattr(self._member, "needs_input", True):  # bz2 keeps unused input
                self._compressed = self._raw.read(self._input_bytes)
                at_end = not self._compressed
            if self._member is None:
                if self._pads and self._members:
                    self._compressed = self._compressed.lstrip(b"\0")
                if at_end and not self._members:
                    raise BrokenArchiveError(f"it is empty, which no {self._name} file is")
                if at_end:
                    return b""
                if not self._compressed:
                    continue
                self._member, self._is_new = self._new_member(), True
                self._members += 1
            if expanded := self._decompress():
                return expanded
            if at_end and self._member is not None:
                raise EOFError(f"it ends within its {self._name} data")

    def _decompress(self) -> bytes:
        try:
            if self._input_bytes == _ZSTANDARD_INPUT_BYTES:
                expanded: bytes = self._member.decompress(self._compressed)
            else:
                expanded = self._member.decompress(self._compressed, BUFFER_BYTES)
        except self._error as error:
            if self._members > 1 and self._is_new:
                raise BrokenArchiveError(f"after its {self._name} data comes something else ({error})") from error
            raise BrokenArchiveError(str(error)) from error
        if self._member.eof:
            self._compressed, self._member = self._member.unused_data, None
        else:
            self._compressed = getattr(self._member, "unconsumed_tail", b"")
            self._is_new = self._is_new and not expanded
        return expanded


def _decompressor(compression: str) -> tuple[Callable[[], Any], type[Exception]]:
    """(function that makes a decompressor of one member, the exception that it raises)."""
    if compression == GZIP:
        return lambda: zlib.decompressobj(wbits=31), zlib.error
    if compression == BZIP2:
        return bz2.BZ2Decompressor, OSError
    import zstandard

    return zstandard.ZstdDecompressor(max_window_size=_ZSTANDARD_WINDOW_BYTES).decompressobj, zstandard.ZstdError


class _IndexedBzip2(io.RawIOBase):
    """indexed_bzip2's reader with the errors of this module; some of its own are RuntimeErrors without a message.

    At bytes that it does not recognize it stops as if the file ended there. So the file must end with the end of a stream that
    the reader has reached.
    """

    def __init__(self, raw: io.BufferedReader, processors: int) -> None:
        import indexed_bzip2

        head = raw.read(4)
        if head[:3] != b"BZh" or head[3:] not in b"123456789":
            raise BrokenArchiveError("Invalid data stream")
        raw.seek(0)
        self._raw = raw
        self._file = indexed_bzip2.open(raw.fileno(), parallelization=processors)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            count = cast(int, self._file.readinto(buffer))
            if not count and len(buffer) and not self._is_at_end():
                raise BrokenArchiveError("it ends within its bzip2 data, or something else comes after that")
        except (RuntimeError, ValueError) as error:
            if str(error) == "std::exception":
                raise EOFError("it ends within its bzip2 data") from error
            raise BrokenArchiveError(" ".join(str(error).split())) from error
        return count

    def _is_at_end(self) -> bool:
        """Whether the file ends with the end of a stream, padded to whole bytes, that the reader has reached."""
        size, descriptor = _size_of(self._raw), self._raw.fileno()
        empty = _EMPTY_STREAM_BYTES  # such a stream has no block, and the reader does not always record its end
        while size >= empty and _EMPTY_STREAM.fullmatch(os.pread(descriptor, empty, size - empty)):
            size -= empty
        tail_bits = _END_OF_STREAM_BITS + _CHECKSUM_BITS
        tail = int.from_bytes(os.pread(descriptor, tail_bits // 8 + 1, max(size - tail_bits // 8 - 1, 0)), "big")
        ends = [
            8 * size - padding - tail_bits
            for padding in range(8)
            if tail >> (padding + _CHECKSUM_BITS) & ((1 << _END_OF_STREAM_BITS) - 1) == _END_OF_STREAM
        ]
        return not size or not {*ends}.isdisjoint(self._file.block_offsets())

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()

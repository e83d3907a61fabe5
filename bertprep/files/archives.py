"""gzip, bzip2 and Zstandard as streams: in bounded memory, with any number of members, and strict to the last byte.

The libraries' own readers treat an empty file as empty text and a truncated one as complete (zstandard), and ignore everything
after bytes that they do not recognize (bz2). Here each is an error. A few bytes can expand to megabytes, so no
more is decompressed at a time than was requested, or than a few kilobytes expand to.
"""

import bz2
import io
import zlib
from collections.abc import Callable
from typing import Any, BinaryIO, cast

GZIP, BZIP2, ZSTANDARD = ".gz", ".bz2", ".zst"
COMPRESSIONS = (GZIP, BZIP2, ZSTANDARD)
BUFFER_BYTES = 1 << 20
_INPUT_BYTES = 1 << 17
_ZSTANDARD_INPUT_BYTES = 1 << 10  # decompressed at once, to at most 32,768 times as much, 32 MiB
_ZSTANDARD_WINDOW_BYTES = 1 << 27  # what `zstd --long` needs; a frame may ask for terabytes
_NAMES = {GZIP: "gzip", BZIP2: "bzip2", ZSTANDARD: "Zstandard"}


class BrokenArchiveError(Exception):
    """An archive is truncated, damaged or followed by other bytes."""


def decompress(raw: BinaryIO, compression: str) -> BinaryIO:
    """A stream of the decompressed bytes of `raw`; compression is one of `COMPRESSIONS` or ''.

    Reading it raises `EOFError` for a truncated archive, `BrokenArchiveError` for one that is damaged, empty or followed by
    anything else.
    """
    if not compression:
        return raw
    return cast(BinaryIO, io.BufferedReader(_Members(raw, compression), BUFFER_BYTES))


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

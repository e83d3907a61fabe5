"""Decompresses gzip, bzip2 and Zstandard as streams, in bounded memory.

An archive may have any number of members. isal reads gzip, and pyarrow reads the others: unlike Python's own modules, both
reject truncated archives and trailing garbage.
"""

import io
from typing import Any, BinaryIO, cast

from bertprep.errors import BertprepError

GZIP, BZIP2, ZSTANDARD = ".gz", ".bz2", ".zst"
COMPRESSIONS = (GZIP, BZIP2, ZSTANDARD)
BUFFER_BYTES = 1 << 20


class BrokenArchiveError(Exception):
    """An archive is empty, truncated, corrupt or followed by other bytes."""


def decompress(raw: BinaryIO, compression: str) -> BinaryIO:
    """Return a stream of the decompressed bytes of `raw`; `compression` is one of `COMPRESSIONS`, or '' for none.

    Reading from it raises `EOFError` or `BrokenArchiveError` if the archive is incomplete or corrupt.
    """
    return cast(BinaryIO, io.BufferedReader(_Archive(raw, compression), BUFFER_BYTES)) if compression else raw


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
        import pyarrow as pa

        return pa.CompressedInputStream(pa.PythonFile(source, "r"), "bz2" if self._compression == BZIP2 else "zstd")

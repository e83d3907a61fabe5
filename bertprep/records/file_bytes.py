"""The bytes of a file as an array: mapped into memory, or decompressed where it is gzip.

A mapped file costs no memory of its own: the system holds its pages as long as it likes and drops them when room is needed.
It must not be cut short while it is open, as no mapped file may; bertprep's own files never are, they are replaced whole.
A compressed file is held decompressed, whole: records are read in any order, and gzip cannot be entered in the middle.
"""

import contextlib
import gzip
import mmap
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bertprep.errors import BertprepError

_GZIP_MAGIC = b"\x1f\x8b"


class FileBytes:
    """The bytes of one file, until `close`."""

    def __init__(self, path: Path) -> None:
        """Raises `BertprepError` where the file cannot be read or is no sound gzip file."""
        self._mapping: mmap.mmap | None = None
        self.is_compressed = False
        content: bytes | mmap.mmap = b""
        try:
            if path.exists() and not path.is_file():
                raise BertprepError(f"{path}: is not a plain file; name a record file")
            with path.open("rb") as file:
                self.is_compressed = file.read(2) == _GZIP_MAGIC
                file.seek(0)
                if self.is_compressed:
                    content = gzip.decompress(file.read())
                elif path.stat().st_size:
                    content = self._mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise BertprepError(f"{path}: cannot be decompressed: {error}; the file is damaged, make it again") from error
        except OSError as error:
            raise BertprepError(f"{path}: cannot be read: {error.strerror or error}") from error
        self.array: NDArray[np.uint8] = np.frombuffer(content, np.uint8)

    def close(self) -> None:
        """Give the memory back; the array is empty then."""
        self.array = np.empty(0, np.uint8)
        if self._mapping is not None:
            with contextlib.suppress(BufferError):  # an error on its way still holds the bytes; they go when it does
                self._mapping.close()

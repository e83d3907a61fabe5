"""The bytes of a file as an array: mapped into memory, or decompressed where it is gzip.

A mapped file needs no memory of its own: the system caches its pages and evicts them under memory pressure.
Whoever reads the array calls `check` after it, since another process may cut the file short meanwhile; bertprep's own files
never are, they are replaced whole. A compressed file is decompressed whole, since records are read in any order, and gzip
cannot be entered in the middle: a small one in memory, a larger one to a file on disk that has no name and is gone when it is
closed, however the process ends.
"""

import contextlib
import mmap
import os
import tempfile
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from bertprep.errors import BertprepError
from bertprep.files.archives import BUFFER_BYTES, GZIP, BrokenArchiveError, decompress
from bertprep.files.mapped_file import MappedFile
from bertprep.files.places import local_copy
from bertprep.records.formats import find_format

_GZIP_MAGIC = b"\x1f\x8b"
_IN_MEMORY_BYTES = 16 << 20  # decompressed
_MOST_DECOMPRESSED_BYTES = 32 << 30
_ON_DISK = Path("/var/tmp")  # /tmp may be memory


class FileBytes:
    """The bytes of one file, until `close`."""

    def __init__(self, path: Path) -> None:
        """Raises `BertprepError` if the file cannot be read or its gzip is damaged."""
        self._mapping: mmap.mmap | None = None
        self.is_compressed = False
        content: bytes | mmap.mmap = b""
        try:
            copy = local_copy(path)
            if copy.exists() and not copy.is_file():
                raise BertprepError(f"{path}: is not a plain file; name a record file")
            with copy.open("rb") as file:
                self.is_compressed = file.read(2) == _GZIP_MAGIC
                file.seek(0)
                if self.is_compressed:
                    content = _decompressed(path, file)
                    self._mapping = content if isinstance(content, mmap.mmap) else None
                elif os.fstat(file.fileno()).st_size:
                    content = self._mapping = MappedFile(file)
        except (EOFError, BrokenArchiveError) as error:
            raise BertprepError(f"{path}: cannot be decompressed: {error}; the file is damaged, make it again") from error
        except OSError as error:
            raise BertprepError(f"{path}: cannot be read: {error.strerror or error}") from error
        self.array: NDArray[np.uint8] = np.frombuffer(content, np.uint8)

    def check(self) -> None:
        """Raise `BertprepError` where the file was cut short, and what was read of it is not what it held."""
        if isinstance(self._mapping, MappedFile):
            self._mapping.check()

    def close(self) -> None:
        """Give the memory back; the array is empty then."""
        self.array = np.empty(0, np.uint8)
        if self._mapping is not None:
            with contextlib.suppress(BufferError):  # an error on its way still holds the bytes; they go when it does
                self._mapping.close()


def _decompressed(path: Path, file: BinaryIO) -> bytes | mmap.mmap:
    """What a gzip file holds: as bytes where it is little, else as a mapped file on disk."""
    stream = decompress(file, GZIP)
    first = stream.read(_IN_MEMORY_BYTES)
    if len(first) < _IN_MEMORY_BYTES:
        return first
    find_format(path, np.frombuffer(first, np.uint8), is_whole=False)  # no disk is filled with what are no records
    folder = _ON_DISK if "TMPDIR" not in os.environ and os.access(_ON_DISK, os.W_OK) else Path(tempfile.gettempdir())
    size, block = 0, first
    with tempfile.TemporaryFile(dir=folder, buffering=0) as unnamed:
        while block:
            size += len(block)
            if size > _MOST_DECOMPRESSED_BYTES:
                raise BertprepError(
                    f"{path}: holds more than {_MOST_DECOMPRESSED_BYTES >> 30} GiB, more than is decompressed for one reading; "
                    "decompress it yourself, or give smaller files"
                )
            try:
                left = memoryview(block)
                while left:
                    left = left[unnamed.write(left) :]
            except OSError as error:
                raise BertprepError(
                    f"{path}: cannot be decompressed to {folder} after {size:,} bytes: {error.strerror or error}; "
                    "make space there, name another folder with TMPDIR, or decompress the file yourself"
                ) from error
            block = stream.read(BUFFER_BYTES)
        return mmap.mmap(unnamed.fileno(), 0, access=mmap.ACCESS_READ)

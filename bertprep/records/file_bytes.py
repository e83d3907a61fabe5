"""The bytes of a file as an array: mapped into memory, or rewritten where they cannot be read in place.

A mapped file needs no memory of its own: the system caches its pages and evicts them under memory pressure. Where another
program truncates a file that is mapped, the OS ends the process (SIGBUS), as with NumPy and pyarrow; bertprep's own files are
never truncated, they are replaced whole. A gzip file is decompressed whole, since records are read in any order, and gzip
cannot be entered in the middle; Parquet and foreign forms of Arrow become plain Arrow, see `records.arrow_reader`. What comes
of it is held in a file on disk that has no name and is gone when it is closed, however the process ends.
"""

import contextlib
import io
import mmap
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from bertprep.config import RecordFormat
from bertprep.errors import BertprepError
from bertprep.files.archives import BUFFER_BYTES, GZIP, BrokenArchiveError, decompress
from bertprep.files.object_cache import open_local
from bertprep.records.arrow_reader import Batches, Rows, find_batches, read_rows, rewrite
from bertprep.records.examples import Examples
from bertprep.records.formats import find_format

_GZIP_MAGIC = b"\x1f\x8b"
_MOST_DECOMPRESSED_BYTES = 32 << 30
_REWRITTEN = "rewritten as plain Arrow"
_ON_DISK = Path("/var/tmp")  # /tmp may be memory


class FileBytes:
    """The bytes of one file, until `close`; `format` is that of the file, whatever the bytes were before they were rewritten.

    `batches` are those of Arrow and Parquet.
    """

    def __init__(self, path: Path, *, pred: int | None = None) -> None:
        """Raises `BertprepError` if the file cannot be read, is damaged or has no format of records.

        `pred` is that of records of columns which do not say it.
        """
        self._mapping: mmap.mmap | None = None
        self.is_rewritten = False
        self.batches: Batches | None = None
        self._rows: Rows | None = None
        content: bytes | mmap.mmap = b""
        try:
            if path.exists() and not path.is_file():
                raise BertprepError(f"{path}: is not a plain file; name a record file")
            with open_local(path) as file:
                self.is_rewritten = file.read(2) == _GZIP_MAGIC
                file.seek(0)
                if self.is_rewritten:
                    content = _decompressed(path, file)
                elif os.fstat(file.fileno()).st_size:
                    content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (EOFError, BrokenArchiveError) as error:
            raise BertprepError(f"{path}: cannot be decompressed: {error}; the file is damaged, make it again") from error
        except OSError as error:
            raise BertprepError(f"{path}: cannot be read: {error.strerror or error}") from error
        self._take(content)
        try:
            self.format = find_format(path, self.array)
            if self.is_rewritten and self.format != RecordFormat.TFRECORD:
                raise BertprepError(f"{path}: is a compressed {self.format.label} file, which no trainer reads; decompress it")
            if self.format.is_columnar:
                self._find_batches(path, pred)
        except BaseException:
            self.close()
            raise

    def read_rows(self, records: NDArray[np.int64], examples: Examples, row: int, notes: NDArray[np.int64]) -> int:
        """Read records of Arrow or Parquet to the rows from `row` on; see `arrow_reader.read_rows`."""
        assert self.batches is not None
        self._rows = self._rows or self.batches.rows(self.array.ctypes.data)
        return read_rows(self._rows, records, examples, row, notes)

    def close(self) -> None:
        """Give the memory back; the array is empty then."""
        self.array: NDArray[np.uint8] = np.empty(0, np.uint8)
        if self._mapping is not None:
            with contextlib.suppress(BufferError):  # an error on its way still holds the bytes; they go when it does
                self._mapping.close()

    def _take(self, content: bytes | mmap.mmap) -> None:
        self._mapping = content if isinstance(content, mmap.mmap) else None
        self.array = np.frombuffer(content, np.uint8)

    def _find_batches(self, path: Path, pred: int | None) -> None:
        if self.format == RecordFormat.ARROW and self.array[0] == 0xFF:
            self.batches = find_batches(path, self.array, pred)
        if self.batches is None:
            held = _Held(path, _REWRITTEN, "bertprep convert it where there is space")
            rewrite(path, self.array, self.format, cast(BinaryIO, held))
            self.close()
            self._take(held.content())
            self.is_rewritten = True
            self.batches = find_batches(path, self.array, pred)
            if self.batches is None:
                raise BertprepError(f"{path}: cannot be {_REWRITTEN}; give it as TFRecord")


class _Held(io.RawIOBase):
    """A file without a name that is written for one reading, and is gone when it is closed."""

    def __init__(self, path: Path, done: str, advice: str) -> None:
        self._path, self._done, self._advice = path, done, advice
        own = "TMPDIR" in os.environ or not os.access(_ON_DISK, os.W_OK)
        self._folder, self._size = Path(tempfile.gettempdir()) if own else _ON_DISK, 0
        with self._explained():
            self._file = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115 - until `content`

    def writable(self) -> bool:
        return True

    def write(self, block: Any) -> int:
        """Raises `BertprepError` where that is more than is held for one reading, or the disk takes no more."""
        size = memoryview(block).nbytes
        if self._size + size > _MOST_DECOMPRESSED_BYTES:
            raise BertprepError(
                f"{self._path}: holds more than {_MOST_DECOMPRESSED_BYTES >> 30} GiB, more than is {self._done} for one "
                f"reading; {self._advice}, or give smaller files"
            )
        with self._explained():
            self._file.write(block)
        self._size += size
        return size

    def content(self) -> bytes | mmap.mmap:
        """What was written."""
        with self._explained(), self._file as file:
            file.flush()
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if self._size else b""

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise BertprepError(
                f"{self._path}: cannot be {self._done} to {self._folder} after {self._size:,} bytes: "
                f"{error.strerror or error}; make space there, name another folder with TMPDIR, or {self._advice}"
            ) from error


def _decompressed(path: Path, file: BinaryIO) -> bytes | mmap.mmap:
    """What a gzip file holds."""
    stream = decompress(file, GZIP)
    block = stream.read(BUFFER_BYTES)
    if len(block) == BUFFER_BYTES:
        find_format(path, np.frombuffer(block, np.uint8), is_whole=False)  # no disk is filled with what are no records
    held = _Held(path, "decompressed", "decompress it yourself")
    while block:
        held.write(block)
        block = stream.read(BUFFER_BYTES)
    return held.content()

"""The bytes of a record file in a form that can be read in place, and its format.

Files are mapped; gzip is decompressed, and Parquet and other forms of Arrow are cast, to an unnamed file.

    TFRecord   recognized by the checksum of the first length
    OFRecord   i64 length, data that begins with the tag of a map entry, 0x0A: recognized by that byte
    Arrow      a stream of messages, each after FF FF FF FF and its size, or a file that begins with ARROW1
    Parquet    a file that begins with PAR1
"""

from __future__ import annotations

import contextlib
import io
import mmap
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from bertprep import kernels
from bertprep.config import RecordFormat
from bertprep.errors import BertprepError
from bertprep.files.archives import BUFFER_BYTES, GZIP, BrokenArchiveError, decompress
from bertprep.files.object_cache import open_local
from bertprep.files.paths import disk_folder

if TYPE_CHECKING:
    from bertprep.records.arrow_reader import Table

_MAP_ENTRY = 0x0A
_ARROW_BEGINNINGS = b"\xff\xff\xff\xff", b"ARROW1"
_MAX_MESSAGE_BYTES = 1 << 31  # no protobuf message is longer
_GZIP_MAGIC = b"\x1f\x8b"
_MAX_REWRITTEN_BYTES = 32 << 30


class FileBytes:
    """The bytes of one file, until `close`; `format` is the file's own, `table` has the records of Arrow and Parquet."""

    def __init__(self, path: Path, *, pred: int | None = None) -> None:
        """Raise `BertprepError` for a file that is unreadable, corrupt or no record file; `pred` is for columns without it."""
        self.array: NDArray[np.uint8]
        self.table: Table | None = None
        self._mapping: mmap.mmap | None = None
        try:
            if path.exists() and not path.is_file():
                raise BertprepError(f"{path}: is not a plain file; name a record file")
            with open_local(path) as file:
                self.is_rewritten = file.read(2) == _GZIP_MAGIC
                file.seek(0)
                self._take(_decompressed(path, file) if self.is_rewritten else _map(file))
        except (EOFError, BrokenArchiveError) as error:
            raise BertprepError(f"{path}: cannot be decompressed: {error}; the file is corrupt, make it again") from error
        except OSError as error:
            raise BertprepError(f"{path}: cannot be read: {error.strerror or error}") from error
        try:
            self.format = find_format(path, self.array)
            if self.is_rewritten and self.format != RecordFormat.TFRECORD:
                raise BertprepError(f"{path}: is a compressed {self.format.label} file, which no trainer reads; decompress it")
            if self.format.is_columnar:
                self._find_table(path, pred)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self.array = np.empty(0, np.uint8)
        if self._mapping is not None:
            with contextlib.suppress(BufferError):  # an error on its way still holds the bytes; they go when it does
                self._mapping.close()

    def _take(self, content: mmap.mmap | bytes) -> None:
        self._mapping = content if isinstance(content, mmap.mmap) else None
        self.array = np.frombuffer(content, np.uint8)

    def _find_table(self, path: Path, pred: int | None) -> None:
        from bertprep.records.arrow_reader import cast_file, find_table

        if self.format == RecordFormat.ARROW and self.array[0] == 0xFF:
            self.table = find_table(path, self.array, pred)
        if self.table is None:
            held = _Held(path, "rewritten as plain Arrow", "bertprep convert it where there is space")
            cast_file(path, self.array, self.format, cast(BinaryIO, held))
            self.close()
            self._take(held.content())
            self.is_rewritten = True
            self.table = find_table(path, self.array, pred)
            assert self.table


class _Held(io.RawIOBase):
    """An unnamed file, gone when closed."""

    def __init__(self, path: Path, done: str, advice: str) -> None:
        self._path, self._done, self._advice = path, done, advice
        self._file, self._size = tempfile.TemporaryFile(dir=disk_folder()), 0  # noqa: SIM115 - until `content`

    def writable(self) -> bool:
        return True

    def write(self, block: Any) -> int:
        """Raises `BertprepError` where that is more than is held for one reading, or the disk takes no more."""
        size = memoryview(block).nbytes
        self._size += size
        if self._size > _MAX_REWRITTEN_BYTES:
            raise BertprepError(
                f"{self._path}: holds more than {_MAX_REWRITTEN_BYTES >> 30} GiB, more than is {self._done} for one reading; "
                f"{self._advice}, or give smaller files"
            )
        try:
            self._file.write(block)
            self._file.flush()
        except OSError as error:
            raise BertprepError(
                f"{self._path}: cannot be {self._done} to {disk_folder()} after {self._size - size:,} bytes: "
                f"{error.strerror or error}; make space there, name another folder with TMPDIR, or {self._advice}"
            ) from error
        return size

    def content(self) -> mmap.mmap | bytes:
        with self._file as file:
            return _map(file)


def _map(file: Any) -> mmap.mmap | bytes:
    return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if os.fstat(file.fileno()).st_size else b""


def _decompressed(path: Path, file: BinaryIO) -> mmap.mmap | bytes:
    stream = decompress(file, GZIP)
    block = stream.read(BUFFER_BYTES)
    if len(block) == BUFFER_BYTES:
        find_format(path, np.frombuffer(block, np.uint8), is_whole=False)  # no disk is filled with what are no records
    held = _Held(path, "decompressed", "decompress it yourself")
    while block:
        held.write(block)
        block = stream.read(BUFFER_BYTES)
    return held.content()


def find_format(path: Path, data: NDArray[np.uint8], *, is_whole: bool = True) -> RecordFormat:
    """Return the format of the file with these (first) bytes; raises `BertprepError` for none or an empty file."""
    if len(data) == 0:
        raise BertprepError(f"{path}: is empty, it holds no records; make it again")
    head = data[:13].tobytes()
    length = int.from_bytes(head[:8], "little")
    if len(data) >= 12 and int.from_bytes(head[8:12], "little") == masked_checksum(data[:8]):
        return RecordFormat.TFRECORD
    if head.startswith(_ARROW_BEGINNINGS):
        return RecordFormat.ARROW
    if head.startswith(b"PAR1"):
        return RecordFormat.PARQUET
    if len(data) >= 9 and length < _MAX_MESSAGE_BYTES:
        if head[8] == _MAP_ENTRY:
            return RecordFormat.OFRECORD
        if head[12:] == bytes([_MAP_ENTRY]) and length <= len(data) - 16:
            return RecordFormat.TFRECORD
    size = f"{'' if is_whole else 'more than '}{len(data):,} bytes"
    raise BertprepError(
        f"{path}: is neither TFRecord, OFRecord, Arrow nor Parquet: it has {size} and begins with {head[:12].hex(' ')}; "
        "give a file that bertprep create or a tool like it has made"
    )


def masked_checksum(data: NDArray[np.uint8]) -> int:
    """Return the masked CRC-32C of TFRecord.

    >>> hex(masked_checksum(np.frombuffer(b"123456789", np.uint8)))
    '0xc78ab0e5'
    """
    checksum = kernels.load().checksum(0, data, len(data))
    return ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF  # a CRC of data that has its own CRC would be weak

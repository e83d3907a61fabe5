"""Opens one record file, maps it into memory, and finds where its records are.

    TFRecord, OFRecord      the offset of each record, from a walk over all lengths: 0.1 microseconds per record
    gzip                    decompressed into memory first
    Arrow                   the offset of each column, if the columns have the types that bertprep writes
    Parquet, other Arrow    cast in memory to such an Arrow stream first

The offsets of large files are kept in the user's cache (`files.kept_arrays`). Lengths and checksums are verified every time
records are read.
"""

from __future__ import annotations

import contextlib
import errno
import io
import mmap
import os
import resource
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from bertprep import kernels
from bertprep.config import RecordFormat
from bertprep.errors import BertprepError
from bertprep.files.archives import BUFFER_BYTES, GZIP, BrokenArchiveError, decompress
from bertprep.files.kept_arrays import keep_array, kept_array
from bertprep.files.object_cache import open_local
from bertprep.kernels import numbers as n
from bertprep.records.examples import MAX_VALUES, Examples, PretrainingExamples, Shape, kind_of
from bertprep.records.faults import explain
from bertprep.work.recognize import GZIP_MAGIC, find_format

if TYPE_CHECKING:
    from typing_extensions import Self

    from bertprep.records.arrow_reader import Rows, Table

MIN_RECORD_BYTES = 64
"""No record is shorter: in every kind, the feature names alone, with their protobuf headers, take more bytes."""
MAX_HELD_BYTES = 4 << 30
"""The most memory that all open files together may use for decompressed and cast data."""
_MIN_KEPT_BYTES = 1 << 20  # for a smaller file, the walk takes no longer than opening a file in the cache
_FIRST_OFFSETS = 1 << 16
_OFFSETS = "offsets"  # the folder of the cache


class Closing:
    """A base class for objects that a `with` block closes."""

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class OpenFile(Closing):
    """One open record file; all its records have the shape of the first.

    `data` has the bytes of the file. `offsets` (records + 1,) is where each record begins and the last one ends; for columns,
    `rows` has their positions instead.
    """

    def __init__(self, path: Path, *, pred: int | None = None, may_hold: int = MAX_HELD_BYTES) -> None:
        """Open the file; raises `BertprepError` if it cannot be read, is corrupt, or is not a record file.

        At most `may_hold` bytes may be decompressed or cast into memory. `pred` is the number of predictions for Arrow and
        Parquet files that do not state it; without `pred` it is the largest number in any record.
        """
        self.path = path
        self.data: NDArray[np.uint8] = np.empty(0, np.uint8)
        self.offsets: NDArray[np.int64] = np.empty(0, np.int64)
        self.rows: Rows | None = None
        self.is_held = False
        self.kind: type[Examples] = PretrainingExamples
        self.notes = np.zeros(n.NOTES_SIZE, np.int64)
        self._mapping: mmap.mmap | None = None
        try:
            self._read_bytes(may_hold)
            self.format = find_format(path, self.data)
            if self.is_held and self.format != RecordFormat.TFRECORD:
                raise BertprepError(
                    f"{path}: is {self.format.label} compressed by gzip, which trainers do not read; decompress it"
                )
            if self.format.is_columnar:
                table = self._find_table(pred, may_hold)
                self.check_table(table)
                self.rows, self.records, self.shape = table.rows, table.records, table.shape
            else:
                self.records = self.find_records()
                self.shape = self.measure()
            self.kind = self.shape.kind
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self.data, self.rows = np.empty(0, np.uint8), None
        if self._mapping is not None:
            with contextlib.suppress(BufferError):  # an exception in flight may refer to the bytes, which are freed with it
                self._mapping.close()

    @property
    def held_bytes(self) -> int:
        """Return the memory that decompressed or cast data uses, in bytes; a mapped file uses only the page cache."""
        return int(self.data.size) if self.is_held else 0

    def describe(self, start: int = 0) -> dict[str, Any]:
        """Return the file, from byte `start` on, as an argument for kernels."""
        return describe_file(self.data[start:], self.format, self.offsets)

    def explain(self, fault: int, record: int) -> BertprepError:
        return explain(self.path, self.format, fault, record, self.notes, self.kind)

    # --- overridden by a reader that continues after a bad record

    def check_table(self, table: Table) -> None:
        if table.damage:
            raise table.damage

    def find_records(self) -> int:
        """Find the offsets of all records, and return the number of records."""
        of_file = f"{self.path.absolute()}\0{self._status.st_size}\0{self._status.st_mtime_ns}"
        kept = kept_array(_OFFSETS, of_file) if self._may_be_kept else None
        if kept is not None and are_offsets(kept, self.data.size):
            self.offsets = kept
            return len(kept) - 1
        self.offsets, fault = find_offsets(self.data, self.format, self.notes)
        records, end = len(self.offsets) - 1, int(self.offsets[-1])
        if fault < 0:
            raise self.explain(fault, records)
        if end < self.data.size:
            raise BertprepError(
                f"{self.path}: record {records}: the records before it have {end // records} bytes on average, expected "
                f"{MIN_RECORD_BYTES} or more; the file is corrupt or does not contain BERT records; make it again"
            )
        if self._may_be_kept:
            keep_array(_OFFSETS, of_file, self.offsets)
        return records

    def measure(self) -> Shape:
        """Return the shape of the first record."""
        fault, self.kind, counts = measure_record(self.describe(), self.notes)
        if fault < 0:
            raise self.explain(fault, 0)
        shape = Shape(self.kind, counts["input_ids"], counts.get("masked_lm_positions", 0))
        at_least = Shape(self.kind, max(1, shape.seq), max(1, shape.pred))
        for (name, count), expected in zip(counts.items(), at_least.counts, strict=True):
            if count > MAX_VALUES:
                raise BertprepError(
                    f"{self.path}: record 0: feature {name} has {count:,} values, expected at most {MAX_VALUES:,}; "
                    "give a file of BERT pretraining records"
                )
            if count != expected:
                self.notes[[n.FEATURE, n.FOUND, n.EXPECTED]] = n.NUMBER_OF_FEATURE[name], count, expected
                raise self.explain(n.WRONG_COUNT, 0)
        return shape

    # --- the bytes

    @property
    def _may_be_kept(self) -> bool:
        return not self.is_held and self.data.size >= _MIN_KEPT_BYTES

    def _read_bytes(self, may_hold: int) -> None:
        try:
            with open_local(self.path) as file:
                self._status = os.fstat(file.fileno())
                self.is_held = file.read(2) == GZIP_MAGIC
                file.seek(0)
                if self.is_held:
                    self.data = _decompressed(self.path, file, may_hold)
                else:
                    self._map(file)
        except (EOFError, BrokenArchiveError) as error:
            raise BertprepError(
                f"{self.path}: cannot be decompressed: {error}; the file is corrupt; remove it and make it again"
            ) from error
        except OSError as error:
            advice = "name a record file"
            if error.errno in (errno.EMFILE, errno.ENOMEM):  # the process has as many files or mappings as it may
                advice = "raise the hard limit of ulimit -n, or make fewer files with bertprep convert --shards"
            raise BertprepError(f"{self.path}: cannot be read: {error.strerror or error}; {advice}") from error

    def _map(self, file: Any) -> None:
        if self._status.st_size:
            self._mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            self.data = np.frombuffer(self._mapping, np.uint8)

    def _find_table(self, pred: int | None, may_hold: int) -> Table:
        from bertprep.records.arrow_reader import cast_file, find_table

        if self.format == RecordFormat.ARROW and self.data[0] == 0xFF and (table := find_table(self.path, self.data, pred)):
            return table
        held = _Held(self.path, may_hold, "convert them to Arrow with bertprep convert first")
        cast_file(self.path, self.data, self.format, cast(BinaryIO, held))
        self.close()
        self.data, self.is_held = held.bytes, True
        table = find_table(self.path, self.data, pred)
        assert table
        return table


class _Held(io.RawIOBase):
    """A file in memory that may grow up to a limit."""

    def __init__(self, path: Path, most: int, advice: str) -> None:
        self._path, self._most, self._advice, self._content = path, most, advice, bytearray()

    def writable(self) -> bool:
        return True

    def write(self, block: Any) -> int:
        size = memoryview(block).nbytes
        if len(self._content) + size > self._most:
            raise BertprepError(
                f"{self._path}: needs too much memory; gzip, Parquet and other tools' Arrow files that are read together may "
                f"use {MAX_HELD_BYTES / 1e9:.1f} GB; {self._advice}"
            )
        self._content += block
        return size

    @property
    def bytes(self) -> NDArray[np.uint8]:
        return np.frombuffer(self._content, np.uint8)


def _decompressed(path: Path, file: BinaryIO, may_hold: int) -> NDArray[np.uint8]:
    stream = decompress(file, GZIP)
    block = stream.read(BUFFER_BYTES)
    if len(block) == BUFFER_BYTES:
        find_format(path, np.frombuffer(block, np.uint8), is_whole=False)  # refuses other files before memory is filled
    held = _Held(path, may_hold, "decompress them, or name fewer files")
    while block:
        held.write(block)
        block = stream.read(BUFFER_BYTES)
    return held.bytes


def allow_open_files() -> None:
    """Raise the soft limit on open files to the hard limit: each mapped file counts, and Linux usually allows 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):  # if this fails, a later error names the first file that is too many
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


# --- calls of kernels


def describe_file(data: NDArray[np.uint8], record_format: RecordFormat, offsets: NDArray[np.int64]) -> dict[str, Any]:
    """Return a file's bytes, and the offsets of its records or an array for them, as an argument for kernels."""
    return {
        "data": data, "size": data.size, "format": record_format.number, "offsets": offsets, "records": len(offsets) - 1
    }  # fmt: skip


def measure_record(file: dict[str, Any], notes: NDArray[np.int64]) -> tuple[int, type[Examples], dict[str, int]]:
    """Return (0 or a fault, kind, number of values of each feature) of the first record; `notes` describes a fault."""
    lists = np.zeros(len(n.KNOWN_FEATURES), np.int64)
    fault = kernels.load().find_lists(file, lists, notes)
    if fault < 0:
        return fault, PretrainingExamples, {}
    floats = (n.FLOAT_LIST, n.DOUBLE_LIST) if file["format"] == RecordFormat.OFRECORD.number else (n.FLOAT_LIST,)
    kind = kind_of({name: found in floats for name, found in zip(n.KNOWN_FEATURES, lists.tolist(), strict=True) if found >= 0})
    counts = np.zeros(len(kind.features), np.int64)
    fault = kernels.load().measure(file, kind.empty(0, seq=0), counts, notes)
    return fault, kind, dict(zip([feature.name for feature in kind.features], counts.tolist(), strict=True))


def are_offsets(array: NDArray[np.int64], size_bytes: int) -> bool:
    """Return whether an array from the cache can be the offsets of a file of this size; kernels read there unchecked."""
    return len(array) > 1 and array[0] == 0 and array[-1] == size_bytes and bool((array[:-1] < array[1:]).all())


def find_offsets(
    data: NDArray[np.uint8], record_format: RecordFormat, notes: NDArray[np.int64]
) -> tuple[NDArray[np.int64], int]:
    """Return the offsets of all records and of the end (records + 1,), and the fault that stopped the walk, or 0.

    If the offsets stop before the end without a fault, the records are too small to be BERT's.
    """
    offsets, found = np.zeros(_FIRST_OFFSETS, np.int64), 0
    while True:
        found = kernels.load().find_records(describe_file(data, record_format, offsets), found, len(offsets) - 1, notes)
        fault = min(found, 0)
        records = int(notes[n.ROW]) if fault else found
        if fault or offsets[records] == data.size or records * MIN_RECORD_BYTES > data.size:
            return offsets[: records + 1].copy(), fault
        offsets = np.concatenate([offsets, np.zeros_like(offsets)])

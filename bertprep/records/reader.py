"""One record file of any format to `Examples`, in order or at random.

Opening walks over all lengths, 0.1 microseconds a record; every reading verifies lengths and checksums. Other tools' records
are read too: features in any order, TensorFlow 2's names, packed or not, int32 or int64.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bertprep import kernels
from bertprep.config import RecordFormat
from bertprep.errors import BertprepError
from bertprep.files.paths import as_path
from bertprep.kernels import numbers as n
from bertprep.records.columns import NoColumnsError, record_batch, rows_in_batch, schema_of
from bertprep.records.dataset_info import identify_files, import_datasets
from bertprep.records.examples import MAX_VALUES, Examples, PretrainingExamples, Shape, kind_of
from bertprep.records.faults import explain
from bertprep.records.file_bytes import FileBytes

if TYPE_CHECKING:
    import datasets
    from typing_extensions import Self

    from bertprep.records.arrow_reader import Table

MIN_RECORD_BYTES = 64
"""The names of the features of any kind, with what protobuf puts around them, are longer."""
_FIRST_OFFSETS = 1 << 16

Selection: TypeAlias = slice | Sequence[int] | NDArray[np.integer] | NDArray[np.bool_]
"""Which records: a slice, integers, or for each record whether it is one of them."""


def select_records(records: ArrayLike, count: int, where: Path | str) -> NDArray[np.int64]:
    """Return the indices that a list, range, array or mask names, of `count` records; negative ones are from the end.

    >>> select_records([2, -3], 3, "part-0").tolist(), select_records([True, False, True], 3, "part-0").tolist()
    ([2, 0], [0, 2])
    """
    if isinstance(records, range) and len(records) > count:  # which no array need be made of to know
        raise IndexError(f"{where}: {records} are more records than its {count:,}")
    given: NDArray[Any] = np.empty((0, 0))
    if isinstance(records, range):
        given = np.arange(records.start, records.stop, records.step)
    elif not isinstance(records, tuple):  # to NumPy, a tuple has an index for each axis
        with contextlib.suppress(ValueError):  # lists in a list, of several lengths
            given = np.asarray(records)
    if given.ndim != 1 or (given.size and given.dtype.kind not in "iub"):
        found = f"an array of {given.dtype} {given.shape}" if isinstance(records, np.ndarray) else type(records).__name__
        raise TypeError(f"{where}: records are named by a slice, a list or array of integers, or a mask; found {found}")
    if given.dtype == np.bool_:
        if len(given) != count:
            raise IndexError(f"{where}: a mask of {len(given):,} for {count:,} records")
        return np.flatnonzero(given)
    if given.size and not -count <= given.min() <= given.max() < count:
        wrong = given.max() if given.max() >= count else given.min()
        raise IndexError(f"{where}: record {wrong} of {count:,}")
    indices = given.astype(np.int64, copy=False)
    return np.where(indices < 0, indices + count, indices) if given.size and given.min() < 0 else indices


def describe_file(
    data: NDArray[np.uint8], record_format: RecordFormat, offsets: NDArray[np.int64], start: int = 0
) -> NDArray[np.int64]:
    """Return the file with these bytes, from `start` on, as kernels see it; holds as long as both arrays."""
    row = np.zeros(n.FILE_WIDTH, np.int64)
    row[[n.FILE_SIZE, n.FILE_FORMAT]] = data.size - start, record_format.number
    row[[n.FILE_DATA, n.FILE_OFFSETS]] = data.ctypes.data + start, offsets.ctypes.data
    return row


def measure_record(row: NDArray[np.int64], notes: NDArray[np.int64]) -> tuple[int, type[Examples], dict[str, int]]:
    """Return (0 or a fault, kind, values of each feature) of the first record; `notes` describe a fault."""
    lists = np.zeros(len(n.KNOWN_FEATURES), np.int64)
    fault = kernels.load().find_lists(row, lists, notes)
    if fault < 0:
        return fault, PretrainingExamples, {}
    floats = (n.FLOAT_LIST, n.DOUBLE_LIST) if row[n.FILE_FORMAT] == RecordFormat.OFRECORD.number else (n.FLOAT_LIST,)
    kind = kind_of({name: found in floats for name, found in zip(n.KNOWN_FEATURES, lists.tolist(), strict=True) if found >= 0})
    counts = np.zeros(len(kind.features), np.int64)
    fault = kernels.load().measure(row, kind.empty(0, seq=0).addresses, counts, notes)
    return fault, kind, dict(zip([feature.name for feature in kind.features], counts.tolist(), strict=True))


def find_offsets(
    data: NDArray[np.uint8], record_format: RecordFormat, notes: NDArray[np.int64]
) -> tuple[NDArray[np.int64], int]:
    """Return the offsets (records + 1,) of records and end, and the fault that ends the walk, or 0.

    Offsets that end early without a fault are those of records smaller than any of BERT's.
    """
    offsets, found = np.zeros(_FIRST_OFFSETS, np.int64), 0
    while True:
        found = kernels.load().find_records(describe_file(data, record_format, offsets), found, len(offsets) - 1, notes)
        fault = min(found, 0)
        records = int(notes[n.ROW]) if fault else found
        if fault or offsets[records] == data.size or records * MIN_RECORD_BYTES > data.size:
            return offsets[: records + 1].copy(), fault
        offsets = np.concatenate([offsets, np.zeros_like(offsets)])


class Closing:
    """What is closed at the end of a `with` block."""

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def check_room(examples: Examples, shape: Shape, row: int, count: int, where: str) -> None:
    """Raise `ValueError` unless `count` records of this shape fit into the arrays from `row` on."""
    if examples.shape != shape or row < 0 or row + count > len(examples):
        raise ValueError(
            f"{where}: room for {len(examples)} {examples.title} records of {examples.seq}/{examples.pred}, "
            f"needed for {count} {shape.kind.title} records of {shape.seq}/{shape.pred} from row {row}"
        )


class RecordFile(Closing):
    """The records of one file, by index from 0; for one thread at a time.

    `shape` is `kind` (the class of the records), `seq` and `pred` of the first record, which all others must have. Opening and
    reading raise `BertprepError`, which names file, record and fault. `knows_pred` is False if `pred` is the argument or the
    most predictions of a record. `offsets` are empty for columns.
    """

    def __init__(self, path: Path | str, *, pred: int | None = None) -> None:
        self.path = as_path(path)
        self.kind: type[Examples] = PretrainingExamples
        self._bytes = FileBytes(self.path, pred=pred)
        self._notes = np.zeros(n.NOTES_SIZE, np.int64)
        self._is_open, self.knows_pred = True, True
        self.offsets: NDArray[np.int64] = np.empty(0, np.int64)
        try:
            self.format = self._bytes.format
            if table := self._bytes.table:
                self._check_table(table)
                self._records, self.shape, self.knows_pred = table.records, table.shape, table.knows_pred
            else:
                self._records = self._find_records()
                self._row = describe_file(self._bytes.array, self.format, self.offsets)
                self.shape = self._measure()
            self.kind, self.seq, self.pred = self.shape
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._bytes.close()
        self._is_open = False

    def __len__(self) -> int:
        return self._records

    def __getitem__(self, records: Selection) -> Examples:
        """Return the records of a slice, of a list or array of indices in its order, or of a mask, in new arrays."""
        chosen = range(len(self))[records] if isinstance(records, slice) else select_records(records, len(self), self.path)
        examples = self.kind.empty(len(chosen), seq=self.seq, pred=self.pred)
        self.gather_into(examples, chosen)
        return examples

    def blocks(self, size: int) -> Iterator[Examples]:
        """Yield all records in order, `size` at a time, in arrays that the next block overwrites."""
        buffer = self.kind.empty(size, seq=self.seq, pred=self.pred)
        for start in range(0, len(self), size):
            some = range(start, min(start + size, len(self)))
            self.gather_into(buffer, some)
            yield buffer if len(some) == size else buffer[: len(some)]

    def gather_into(self, examples: Examples, records: range | NDArray[np.int64], *, row: int = 0) -> None:
        """Read the records of a range or an array of indices to the rows from `row` on; fastest some 256 at a time."""
        if not self._is_open:
            raise ValueError(f"{self.path}: is closed")
        is_run = isinstance(records, range) and records.step == 1 and 0 <= records.start <= records.stop <= len(self)
        chosen = records if is_run else select_records(records, len(self), self.path)
        check_room(examples, self.shape, row, len(chosen), str(self.path))
        fault = self._read(chosen, examples, row) if len(chosen) else 0
        if fault < 0:
            raise self._explain(fault, int(chosen[self._notes[n.ROW]]))

    def to_dataset(self) -> datasets.Dataset:
        """Return all records as a `datasets.Dataset` in memory: 1.3 kB and 2 microseconds for each of 128 tokens.

        `bertprep.load_dataset` maps whole folders into memory instead (docs/hugging_face.md).
        """
        import pyarrow as pa

        library = import_datasets()
        schema, batches, done = schema_of(self.shape), [], 0
        for block in self.blocks(rows_in_batch(self.shape)):
            try:
                batches.append(record_batch(block, schema, copy=True))
            except NoColumnsError as error:
                raise BertprepError(f"{self.path}: record {done + error.row}: {error}") from None
            done += len(block)
        return library.Dataset(
            pa.Table.from_batches(batches, schema), fingerprint=identify_files([self.path])
        )  # its own is slow

    @property
    def data_bytes(self) -> int:
        return int(self._bytes.array.size)

    @property
    def is_rewritten(self) -> bool:
        """Whether the file cannot be read in place, and its bytes are held in another form while it is open."""
        return self._bytes.is_rewritten

    def _read(self, records: range | NDArray[np.int64], examples: Examples, row: int = 0) -> int:
        """Read records to the rows from `row` on; return how many, or a fault, which `_notes` tell more of."""
        if table := self._bytes.table:
            return table.rows.read(np.asarray(records), examples, row, self._notes)
        if isinstance(records, range) and records.step == 1:
            return kernels.load().decode(self._row, records.start, len(records), examples.addresses, row, self._notes)
        indices, files = np.asarray(records), np.zeros(len(records), np.int64)  # all are in the one
        return kernels.load().gather(self._row, files, indices, len(indices), examples.addresses, row, self._notes)

    def _check_table(self, table: Table) -> None:
        if table.damage:
            raise table.damage

    def _find_records(self) -> int:
        self.offsets, fault = find_offsets(self._bytes.array, self.format, self._notes)
        records, end = len(self.offsets) - 1, int(self.offsets[-1])
        if fault < 0:
            raise self._explain(fault, records)
        if end < self._bytes.array.size:
            raise BertprepError(
                f"{self.path}: record {records}: those before have {end // records} bytes on average, BERT's have "
                f"{MIN_RECORD_BYTES} or more; corrupt or something else, make the file again"
            )
        return records

    def _measure(self) -> Shape:
        fault, self.kind, counts = measure_record(self._row, self._notes)
        if fault < 0:
            raise self._explain(fault, 0)
        shape = Shape(self.kind, counts["input_ids"], counts.get("masked_lm_positions", 0))
        at_least = Shape(self.kind, max(1, shape.seq), max(1, shape.pred))
        for (name, count), expected in zip(counts.items(), at_least.counts, strict=True):
            if count > MAX_VALUES:
                raise BertprepError(
                    f"{self.path}: record 0: feature {name} has {count:,} values, more than the {MAX_VALUES:,} "
                    "that are read; give a file of BERT pretraining records"
                )
            if count != expected:
                self._notes[[n.FEATURE, n.FOUND, n.EXPECTED]] = n.NUMBER_OF_FEATURE[name], count, expected
                raise self._explain(n.WRONG_COUNT, 0)
        return shape

    def _explain(self, fault: int, record: int) -> BertprepError:
        return explain(self.path, self.format, fault, record, self._notes, self.kind)

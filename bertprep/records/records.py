"""Reads the records of many files as one sequence, in order or at random: `Records(paths)`.

Files are mapped when they are opened, and one call of a kernel gathers a block of records from any of them.
`bertprep.records.open(path)` opens a single file. Data from gzip, Parquet and other tools' Arrow files is held in memory, up to
a limit. Records of other tools can be read, too: features may be in any order, have TensorFlow 2's names, be packed or not, and
be int32 or int64.
"""

from __future__ import annotations

import math
import operator
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeAlias, TypeGuard, overload

import numpy as np
from numpy.typing import NDArray

from bertprep import kernels
from bertprep.config import RecordFormat
from bertprep.errors import BertprepError, UsageError
from bertprep.files.checksums import BLAKE3
from bertprep.files.object_cache import fetch
from bertprep.files.paths import ObjectPath, as_path
from bertprep.kernels import numbers as n
from bertprep.records.columns import NoColumnsError, record_batch, rows_in_batch, schema_of
from bertprep.records.dataset_info import identify_files, import_datasets
from bertprep.records.examples import Examples, Shape, Values
from bertprep.records.faults import explain
from bertprep.records.open_file import MAX_HELD_BYTES, Closing, OpenFile, allow_open_files
from bertprep.work.choose import find_records
from bertprep.work.data_set import DataSet
from bertprep.work.layout import TEST, TRAINING

if TYPE_CHECKING:
    import datasets

    from bertprep.records.arrow_reader import Rows

_MAX_FLOAT, _MINUS_ZERO = 0x7F7FFFFF, 0x80000000  # the bits of the largest finite float32 and of -0

Selection: TypeAlias = slice | Sequence[int] | NDArray[np.integer] | NDArray[np.bool_]
"""Selects records by a slice, by indices, or by a mask with a bool for each record."""


def is_index(given: object) -> TypeGuard[SupportsIndex]:
    """Return whether an argument is a single integer, from Python, NumPy or a tensor, but not a bool."""
    return hasattr(given, "__index__") and not isinstance(given, bool | np.bool_) and not getattr(given, "shape", ())


def select_records(records: int | Selection, count: int, where: Path | str) -> NDArray[np.int64]:
    """Return the indices that a slice, list, range, array or mask selects from `count` records.

    Negative indices count from the end. Raises `IndexError` for an index or a mask that does not fit, and `TypeError` for
    anything that is not a selection.

    >>> select_records([2, -3], 3, "part-0").tolist(), select_records([True, False, True], 3, "part-0").tolist()
    ([2, 0], [0, 2])
    """
    if isinstance(records, slice):
        records = range(count)[records]
    if isinstance(records, range):
        if len(records) > count:  # checked before making an array of them, which may not fit into memory
            raise IndexError(f"{where}: {records} selects {len(records):,} records, but there are only {count:,}")
        records = np.arange(records.start, records.stop, records.step)
    given = _as_array(records)
    if given.dtype == object and given.ndim == 1 and all(isinstance(each, int) for each in given):
        # NumPy makes an array of objects if an integer has more than 64 bits.
        raise IndexError(f"{where}: there is no record {max(given, key=abs):,}, expected {-count:,} to {count - 1:,}")
    if given.ndim != 1 or (given.size and given.dtype.kind not in "iub"):
        raise TypeError(
            f"{where}: expected a slice, a list or array of integers, or a mask to select records; found {_describe(records)}"
        )
    if given.dtype == np.bool_:
        if len(given) != count:
            raise IndexError(f"{where}: the mask has {len(given):,} values, expected {count:,}, one for each record")
        return np.flatnonzero(given)
    if given.size and not -count <= given.min() <= given.max() < count:
        wrong = given.max() if given.max() >= count else given.min()
        raise IndexError(f"{where}: there is no record {wrong:,}, expected {-count:,} to {count - 1:,}")
    indices = given.astype(np.int64)  # a copy, because another thread may change the array after this check
    return np.where(indices < 0, indices + count, indices) if given.size and given.min() < 0 else indices


def _as_array(records: object) -> NDArray[Any]:
    """Return a selection as an array; anything else becomes an array without dimensions."""
    if isinstance(records, tuple):  # to NumPy a tuple is an index for each axis
        return np.empty(())
    try:
        return np.asarray(records)
    except ValueError:  # a list of lists with different lengths
        return np.empty(())


def _describe(records: object) -> str:
    """Describe a value that is not a selection, for an error."""
    if isinstance(records, np.ndarray):
        return f"an array of {records.dtype} {records.shape}"
    if is_index(records):
        return f"{type(records).__name__}; [[{records}]] selects one record"
    return type(records).__name__


def check_room(examples: Examples, shape: Shape, row: int, count: int, where: str) -> None:
    """Raise `ValueError` unless `count` records of this shape fit into the block from `row` on; `TypeError` for a bad block."""
    if not isinstance(examples, Examples):
        raise TypeError(f"{where}: expected Examples to read records into, found {type(examples).__name__}")
    if not (examples.flags.writeable and examples.flags.c_contiguous):
        raise TypeError(f"{where}: expected a writable, contiguous block to read records into; give a copy of this one")
    if examples.sizes != shape or row < 0 or row + count > len(examples):
        raise ValueError(
            f"{where}: {count:,} {shape} do not fit from row {row:,} on into a block of {len(examples):,} {examples.sizes}; "
            "make a block that fits"
        )


class BadRecordError(BertprepError):
    """A record cannot be read or trained on, because it is corrupt or has a value that is too large for the model."""

    def __init__(self, text: str, *, index: int, row: int) -> None:
        """Set the message, the record's `index` among all records or in a run, and the `row` that it was read into."""
        super().__init__(text)
        self.index, self.row = index, row


class Records(Closing):
    """The records in one split of data folders or files, with indices from 0.

    All records have the same shape: `kind` (their class), `seq` and `pred`. Threads may share the object; they read one at a
    time. Opening and reading raise `BertprepError`, which names the file, the record and the fault; a bad record raises its
    subclass `BadRecordError`.
    """

    def __init__(
        self,
        data: Path | str | Sequence[Path | str],
        split: str = TRAINING,
        *,
        is_own_name: bool = False,
        kind: type[Examples] | None = None,
        pred: int | None = None,
        vocab_size: int | None = None,
        labels: int | None = None,
    ) -> None:
        """Open the files; all records must be of one kind, and of `kind` if it is given.

        With `is_own_name`, "test" does not also mean a folder named validation. `pred` is the number of predictions for files
        that do not state it, by default the largest of any file. `vocab_size` and `labels` limit the values, as in `limit_ids`.
        """
        paths = [as_path(path) for path in ([data] if isinstance(data, str | os.PathLike) else data)]
        if not paths:
            raise UsageError("no data; name at least one folder of records")
        found = [found for path in paths for found in _find_files(path, split, is_own_name).items()]
        _check_distinct(path for path, _ in found)
        fetch(dict(found))
        self._hold([path for path, _ in found], pred)
        if kind and self.kind != kind:
            self.close()
            raise self.is_of_another_kind(kind)
        if vocab_size is not None:
            self.limit_ids(vocab_size, labels=labels)

    @classmethod
    def open(cls, path: Path | str, *, pred: int | None = None) -> Records:
        """Open one file, whatever its split."""
        records = cls.__new__(cls)
        records._hold([as_path(path)], pred)
        return records

    def _hold(self, paths: Sequence[Path], pred: int | None) -> None:
        allow_open_files()
        self._lock = threading.Lock()  # one thread may close the files while another reads
        self._highest: NDArray[np.int64] | None = None  # (features,), the highest allowed values
        self._files: list[OpenFile] = []
        self._table: kernels.Table | None = None
        self._columns: Rows | None = None
        self._is_open, may_hold = True, MAX_HELD_BYTES
        try:
            for path in paths:
                self._files.append(file := OpenFile(path, pred=pred, may_hold=may_hold))
                may_hold -= file.held_bytes
            self._check_alike()
        except BaseException:
            self.close()
            raise
        self.kind, self.seq, self.pred = self.shape = self._files[0].shape
        records = np.array([file.records for file in self._files], np.int64)
        self._ends = np.cumsum(records)  # (files,): the index after each file's last record
        self._starts = self._ends - records
        self._is_columnar = np.array([file.format.is_columnar for file in self._files])
        self._table = kernels.load().gather.table("files", [file.describe() for file in self._files])
        of_columns = [(start, file.rows) for start, file in zip(self._starts.tolist(), self._files, strict=True) if file.rows]
        self._columns = of_columns[0][1].join(of_columns) if of_columns else None

    def _check_alike(self) -> None:
        """Raise `BertprepError` if shapes differ. Files that do not state `pred` are reopened with the largest of any file."""
        most = max(file.shape.pred for file in self._files)
        for index, file in enumerate(self._files):
            if file.format.is_columnar and file.shape.pred < most:
                file.close()
                self._files[index] = OpenFile(file.path, pred=most, may_hold=file.held_bytes or MAX_HELD_BYTES)
        first = self._files[0]
        for file in self._files:
            file.shape.check_same(file.path, first.shape, first.path, "give data that was made with the same settings")

    def limit_ids(self, vocab_size: int, type_vocab_size: int = 2, *, labels: int | None = None) -> None:
        """From now on, raise `BadRecordError` for a record with a value that is too large for a model of these sizes."""
        self._highest = _highest_values(self.shape, vocab_size, type_vocab_size, labels)

    def close(self) -> None:
        """Release the memory of the files; examples that were read stay valid."""
        with self._lock:
            self._is_open = False
            self._table = self._columns = None  # they refer to the files' bytes
            for file in self._files:
                file.close()

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __repr__(self) -> str:
        return f"Records({self.path}: {len(self):,} {self.shape})"

    # --- properties of the files

    @property
    def path(self) -> Path:
        """Return the path of the only file, or the folder of the first of several."""
        return self._files[0].path if len(self._files) == 1 else self._files[0].path.parent

    @property
    def format(self) -> RecordFormat:
        """Return the format of the first file."""
        return self._files[0].format

    @property
    def formats(self) -> list[str]:
        return sorted({file.format for file in self._files})

    @property
    def held_bytes(self) -> int:
        """Return the memory for files that cannot be read in place, in bytes: gzip, Parquet and other tools' Arrow files."""
        return sum(file.held_bytes for file in self._files)

    @property
    def file_records(self) -> NDArray[np.int64]:
        """Return the number of records in each file: (files,)."""
        return self._ends - self._starts

    @property
    def offsets(self) -> NDArray[np.int64]:
        """Return the byte at which each record of the first file begins, and the end of the last one: (n + 1,), read-only.

        The array is empty for Arrow and Parquet.
        """
        offsets: NDArray[np.int64] = self._files[0].offsets.view()
        offsets.flags.writeable = False
        return offsets

    def origin_of(self, index: int) -> tuple[Path, int]:
        """Return the file that contains a record, and the record's index in that file, for errors and logs."""
        file = int(np.searchsorted(self._ends, index, side="right"))
        return self._files[file].path, index - int(self._starts[file])

    def is_of_another_kind(self, expected: type[Examples]) -> BertprepError:
        """Return the error for records that are not of the expected kind."""
        first = self._files[0]
        return BertprepError(
            f"{first.path}: has {first.kind.title} records, expected {expected.title} records; name the data of this task"
        )

    # --- reading

    @overload
    def __getitem__(self, records: int) -> np.record: ...
    @overload
    def __getitem__(self, records: Selection) -> Examples: ...
    def __getitem__(self, records: int | Selection) -> np.record | Examples:
        """Return one record for an index, or a new block for a slice, a mask, or a list or array of indices, in their order."""
        if is_index(records):
            return self[[operator.index(records)]][0]  # type: ignore[no-any-return]
        indices = select_records(records, len(self), self.path)
        examples = self.kind.empty(len(indices), seq=self.seq, pred=self.pred)
        self._read(examples, indices, 0)
        return examples

    def blocks(self, size: int) -> Iterator[Examples]:
        """Yield all records in order in blocks of `size`; each block is overwritten by the next one."""
        buffer = self.kind.empty(size, seq=self.seq, pred=self.pred)
        for start in range(0, len(self), size):
            count = min(size, len(self) - start)
            self._read(buffer, np.arange(start, start + count), 0)
            yield buffer if count == size else buffer[:count]

    def gather_into(self, examples: Examples, records: Selection, *, row: int = 0) -> None:
        """Read a selection of records, in its order, into the rows from `row` on; about 256 at a time are fastest."""
        indices = select_records(records, len(self), self.path)
        check_room(examples, self.shape, row, len(indices), str(self.path))
        self._read(examples, indices, row)

    def gather_good(self, examples: Examples, records: Selection) -> list[BadRecordError]:
        """Read records as `gather_into` does, but set the rows of bad records to 0, and return an error for each."""
        indices = select_records(records, len(self), self.path)
        check_room(examples, self.shape, 0, len(indices), str(self.path))
        bad: list[BadRecordError] = []
        start = 0
        while start < len(indices):
            try:
                self._read(examples, indices[start:], start)
                break
            except BadRecordError as error:
                bad.append(error)
                examples[error.row] = 0
                start = error.row + 1
        return bad

    def _read(self, examples: Examples, indices: NDArray[np.int64], row: int) -> None:
        """Read the records with these indices into the rows from `row` on; the caller has checked both."""
        files = np.searchsorted(self._ends, indices, side="right")
        with self._lock:
            if not self._is_open:
                raise ValueError(f"{self.path}: is closed")
            self._gather(examples, files, indices - self._starts[files], row)

    def _gather(self, examples: Examples, files: NDArray[np.int64], records: NDArray[np.int64], row: int) -> None:
        """Read record records[i] of file files[i] into row `row` + i; one call reads a run of protobufs or of columns."""
        notes, fault = np.zeros(n.NOTES_SIZE, np.int64), 0
        bounds = [0, len(records)]
        if self._columns:
            is_columnar = self._is_columnar[files]
            bounds[1:1] = (np.flatnonzero(is_columnar[1:] != is_columnar[:-1]) + 1).tolist()
        for start, stop in pairwise(bounds):
            of_files, some = files[start:stop], records[start:stop]
            if self._columns and len(some) and is_columnar[start]:
                fault = self._columns.read(self._starts[of_files] + some, examples, row + start, notes)
            else:
                fault = kernels.load().gather(self._table, of_files, some, stop - start, examples, row + start, notes)
            if fault < 0:
                notes[n.ROW] += start
                break
        if self._highest is not None:
            read = int(notes[n.ROW]) if fault < 0 else len(records)
            fault = _find_excess(examples[row : row + read], self._highest, notes) or fault
        if fault < 0:
            wrong = int(notes[n.ROW])
            file, record = int(files[wrong]), int(records[wrong])
            error = explain(self._files[file].path, self._files[file].format, fault, record, notes, self.kind)
            raise BadRecordError(str(error), index=int(self._starts[file]) + record, row=row + wrong)

    def to_dataset(self) -> datasets.Dataset:
        """Return all records as a `datasets.Dataset` in memory, which takes 1.3 kB and 2 microseconds per record of 128 tokens.

        `bertprep.load_dataset` maps whole folders into memory instead (docs/how-to/hugging-face.md).
        """
        import pyarrow as pa

        library = import_datasets()
        schema, batches, done = schema_of(self.shape), [], 0
        for block in self.blocks(rows_in_batch(self.shape)):
            try:
                batches.append(record_batch(block, schema))
            except NoColumnsError as error:
                path, record = self.origin_of(done + error.row)
                raise BertprepError(f"{path}: record {record}: {error}") from None
            done += len(block)
        fingerprint = identify_files([file.path for file in self._files])  # much faster than the fingerprint of datasets
        return library.Dataset(pa.Table.from_batches(batches, schema), fingerprint=fingerprint)


def _highest_values(shape: Shape, vocab_size: int, type_vocab_size: int, labels: int | None) -> NDArray[np.int64]:
    """Return the highest value that a model accepts in each feature, floats as their bits: (features,)."""
    highest: dict[Values, int] = {
        "token": vocab_size - 1,
        "flag": 1,
        "segment": type_vocab_size - 1,
        "position": shape.seq - 1,
        "id": n.MAX_INT32,
        "class": n.MAX_INT32 if labels is None else labels - 1,
        "weight": n.FLOAT_ONE,  # fractions are allowed; with 1e30, one token would make up the whole loss
        "score": _MAX_FLOAT,
    }
    return np.array([highest[feature.values] for feature in shape.kind.features], np.int64)


def _find_excess(examples: Examples, most: NDArray[np.int64], notes: NDArray[np.int64]) -> int:
    """Return n.BEYOND_MODEL, and describe the first fault in `notes`, if a value of feature i is above most[i]; else 0.

    Floats are compared by their bits. Integers and weights must not be negative; scores are compared without their sign.
    """
    found: list[tuple[int, int, int, int]] = []
    for array, feature, highest in zip(examples.arrays, examples.features, most.tolist(), strict=True):
        values = array.view(f"u{array.itemsize}").reshape(len(array), math.prod(array.shape[1:]))  # -1 would fail without rows
        if values.max(initial=0) <= highest:
            continue
        compared = values & ~np.uint32(_MINUS_ZERO) if feature.values == "score" else values
        is_beyond = (compared > highest) & ((array.dtype != np.float32) | (values != _MINUS_ZERO))
        if is_beyond.any():
            row, column = np.argwhere(is_beyond)[0].tolist()
            found.append((row, n.NUMBER_OF_FEATURE[feature.name], int(values[row, column]), highest))
    if not found:
        return 0
    notes[[n.ROW, n.FEATURE, n.FOUND, n.EXPECTED]] = min(found, key=lambda each: each[0])
    return n.BEYOND_MODEL


def _find_files(path: Path, split: str, is_own_name: bool = False) -> dict[Path, str | None]:
    """Return the files in a folder's split, or the file itself, with the BLAKE3 of each from the manifest."""
    data_set = find_records(path)
    listed = data_set.manifest.files if data_set.manifest else {}
    files = _with_status(data_set, data_set.named(split) if is_own_name else data_set.paths(split))
    if not files:
        advice = "bertprep shard makes one" if split == TEST else "name a folder that has it"
        raise UsageError(f"{path}: has no {split} split; {advice}")
    return {file: listed.get(str(file.relative_to(data_set.folder)), {}).get(BLAKE3) for file in files}


def _check_distinct(paths: Iterable[Path]) -> None:
    """Raise `UsageError` if a file is named twice, since its records would count twice."""
    folder_of = cache(lambda folder: folder if isinstance(folder, ObjectPath) else folder.resolve())
    found = set()
    for path in paths:
        if (name := folder_of(path.parent) / path.name) in found:
            raise UsageError(f"{path}: is given twice; name each folder or file once")
        found.add(name)


def _with_status(data_set: DataSet, files: list[Path]) -> list[Path]:
    if not isinstance(data_set.folder, ObjectPath):
        return files
    there = {path: path for path in data_set.folder.rglob("*")}
    if missing := [file for file in files if file not in there]:
        raise BertprepError(
            f"{missing[0]}: was removed while bertprep listed the files; start again, and do not change the data until it ends"
        )
    return [there[file] for file in files]  # type: ignore[index]

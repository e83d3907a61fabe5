"""All records of some data folders as one sequence, from which a batch is gathered in one call, from any files.

Files of a URL are fetched first. Files are mapped when a batch needs them, and closed when too many are open. gzip, Parquet and
other layouts of Arrow are rewritten to disk, up to a limit.
"""

from __future__ import annotations

import contextlib
import resource
import threading
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bertprep import kernels
from bertprep.errors import BertprepError, UsageError
from bertprep.files.object_cache import fetch
from bertprep.files.paths import ObjectPath, as_path
from bertprep.kernels import numbers as n
from bertprep.records.data_sets import DataSet, find_records
from bertprep.records.examples import Examples, Shape, Values
from bertprep.records.faults import explain
from bertprep.records.file_bytes import FileBytes
from bertprep.records.reader import Closing, check_room, select_records
from bertprep.records.record_index import IndexedFile, index_path, index_records
from bertprep.work.layout import TEST, TRAINING

_MAX_FLOAT, _MINUS_ZERO = 0x7F7FFFFF, 0x80000000  # the bits of the highest finite float32 and of -0
_MAX_OPEN = 32_000  # Linux allows 65,530 a process
_MAX_REWRITTEN_BYTES = 4 << 30


class BadRecordError(BertprepError):
    """A record that cannot be trained on: corrupt, or with a value that the model cannot take."""

    def __init__(self, text: str, *, number: int, row: int) -> None:
        super().__init__(text)
        self.number, self.row = number, row  # in the set, and where it was to be read to


class RecordSet(Closing):
    """The records of one split of data folders or files, with ids from 0; any thread may gather, one at a time.

    Raises `BertprepError` for unusable folders and different shapes, `BadRecordError` for a record that is corrupt or has a
    value beyond the model's sizes.
    """

    def __init__(
        self,
        data: Sequence[Path | str],
        split: str = TRAINING,
        *,
        is_own_name: bool = False,
        kind: type[Examples] | None = None,
        vocab_size: int | None = None,
        labels: int | None = None,
        max_open: int | None = None,
    ) -> None:
        """Open the files; all records must be of one kind, and of `kind` if given.

        With `is_own_name` "test" does not stand for a folder validation. `vocab_size` and `labels` limit the values. `max_open`
        files are mapped at a time; the default is half of `ulimit -n`.
        """
        if not data:
            raise UsageError("no data; name at least one folder of records")
        indexes = [index for folder in data for index in _find_files(as_path(folder), split, is_own_name)]
        fetch({path: sha256 for _, files in indexes for path, sha256 in files.items()})
        self._files = _with_room([file for kept_at, paths in indexes for file in index_records([*paths], kept_at)], data, split)
        self._is_columnar = np.array([file.format.is_columnar for file in self._files])
        self._check_alike(kind)
        self._check_rewritten()
        self.kind, self.seq, self.pred = self.shape = self._files[0].shape
        records = np.array([file.records for file in self._files], np.int64)
        self._ends = np.cumsum(records)  # (files,): the number of the record after each file's last
        self._starts = self._ends - records
        self._rows = np.zeros((len(self._files), n.FILE_WIDTH), np.int64)  # no data where a file is closed
        self._rows[:, n.FILE_SIZE] = [file.data_bytes for file in self._files]
        self._rows[:, n.FILE_FORMAT] = [file.format.number for file in self._files]
        self._rows[:, n.FILE_OFFSETS] = [file.offsets.ctypes.data for file in self._files]
        self._opened: dict[int, FileBytes] = {}
        self._max_open = max_open or _max_open()
        self._lock = threading.Lock()
        self._highest: NDArray[np.int64] | None = None  # the highest value of each feature
        if vocab_size is not None:
            self.limit_ids(vocab_size, labels=labels)

    def limit_ids(self, vocab_size: int, type_vocab_size: int = 2, *, labels: int | None = None) -> None:
        """Raise `BadRecordError` from now on for a record with a value beyond these sizes of a model."""
        self._highest = _highest_values(self.shape, vocab_size, type_vocab_size, labels)

    def close(self) -> None:
        """Give the files' memory back; what was read stays, and later requests open it again."""
        with self._lock:
            for number in list(self._opened):
                self._close(number)

    def __len__(self) -> int:
        return int(self._ends[-1])

    @property
    def file_records(self) -> NDArray[np.int64]:
        return self._ends - self._starts

    @property
    def formats(self) -> list[str]:
        return sorted({file.format for file in self._files})

    def origin_of(self, number: int) -> tuple[Path, int]:
        """Return the file that has a record, and the record's number in it: what an error or a log names."""
        file = int(np.searchsorted(self._ends, number, side="right"))
        return self._files[file].path, number - int(self._starts[file])

    def gather_into(self, examples: Examples, numbers: NDArray[np.int64], *, row: int = 0) -> None:
        """Read the records of an array of numbers, in its order, to the rows from `row` on."""
        numbers = select_records(numbers, len(self), self._files[0].path.parent)
        check_room(examples, self.shape, row, len(numbers), str(self._files[0].path.parent))
        files = np.searchsorted(self._ends, numbers, side="right")
        records = numbers - self._starts[files]
        # That many records are in at most as many files, which can all be open at once.
        portion = self._max_open if len(self._files) > self._max_open else max(1, len(numbers))
        with self._lock:
            for start in range(0, len(numbers), portion):
                rows = slice(start, start + portion)
                self._gather(examples, files[rows], records[rows], row + start)

    def gather_good(self, examples: Examples, numbers: NDArray[np.int64]) -> list[BadRecordError]:
        """As `gather_into`, but the rows of bad records are 0 in all features; returns what is wrong with each."""
        bad: list[BadRecordError] = []
        start = 0
        while start < len(numbers):
            try:
                self.gather_into(examples, numbers[start:], row=start)
                break
            except BadRecordError as error:
                bad.append(error)
                blank(examples[error.row : error.row + 1])
                start = error.row + 1
        return bad

    def _gather(self, examples: Examples, files: NDArray[np.int64], records: NDArray[np.int64], row: int) -> None:
        if not self._rows[files, n.FILE_DATA].all():
            self._open(set(files.tolist()))
        notes, fault = np.zeros(n.NOTES_SIZE, np.int64), 0
        is_columnar = self._is_columnar[files]
        changes = np.flatnonzero(is_columnar[1:] != is_columnar[:-1]) + 1
        for start, stop in pairwise([0, *changes.tolist(), len(records)]):
            of_files, some = files[start:stop], records[start:stop]
            if is_columnar[start]:
                fault = self._columns.read(self._starts[of_files] + some, examples, row + start, notes)
            else:
                fault = kernels.load().gather(self._rows, of_files, some, stop - start, examples.addresses, row + start, notes)
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
            raise BadRecordError(str(error), number=int(self._starts[file]) + record, row=row + wrong)

    def _open(self, wanted: set[int]) -> None:
        if len(self._opened.keys() | wanted) > self._max_open:
            for number in [each for each in self._opened if each not in wanted and not self._files[each].is_rewritten]:
                self._close(number)
        for number in sorted(wanted - self._opened.keys()):
            file = self._files[number]
            file.check_unchanged()
            opened = FileBytes(file.path, pred=file.pred or None)
            if table := opened.table:
                is_same = not table.damage and (table.records, table.shape) == (file.records, file.shape)
            else:
                is_same = opened.array.size == file.data_bytes
            if not is_same:  # changed since it was checked
                opened.close()
                raise file.changed()
            self._opened[number] = opened
            self._rows[number, n.FILE_DATA] = opened.array.ctypes.data
        rows = [
            (int(self._starts[number]), opened.table.rows) for number, opened in sorted(self._opened.items()) if opened.table
        ]
        if rows:
            self._columns = rows[0][1].join(rows)

    def _close(self, number: int) -> None:
        self._rows[number, n.FILE_DATA] = 0
        self._opened.pop(number).close()

    def _check_alike(self, expected: type[Examples] | None) -> None:
        first = self._files[0]
        if expected and first.kind != expected:
            raise self.is_of_another_kind(expected)
        for file in self._files:
            file.shape.check_same(file.path, first.shape, first.path, "give data that was made with the same settings")

    def is_of_another_kind(self, expected: type[Examples]) -> BertprepError:
        """Return the error for records that are of no use where those of a kind are needed."""
        first = self._files[0]
        return BertprepError(
            f"{first.path}: has {first.kind.title} records, expected {expected.title} records; name the data of this task"
        )

    def _check_rewritten(self) -> None:
        files = [file for file in self._files if file.is_rewritten]
        if (total := sum(file.data_bytes for file in files)) > _MAX_REWRITTEN_BYTES:
            raise BertprepError(
                f"{files[0].path}: is one of {len(files):,} gzip, Parquet or foreign Arrow files of {total / 1e9:,.1f} GB, "
                f"at most {_MAX_REWRITTEN_BYTES / 1e9:,.1f} GB are held rewritten; bertprep convert makes files that need none "
                "of it"
            )


def _highest_values(shape: Shape, vocab_size: int, type_vocab_size: int, labels: int | None) -> NDArray[np.int64]:
    """(features,): the highest value that a model can take in each; of floats as bits."""
    highest: dict[Values, int] = {
        "token": vocab_size - 1,
        "flag": 1,
        "segment": type_vocab_size - 1,
        "position": shape.seq - 1,
        "id": n.MAX_INT32,
        "class": n.MAX_INT32 if labels is None else labels - 1,
        "weight": n.FLOAT_ONE,  # a fraction is a weight too; with 1e30 one token would be all of the loss
        "score": _MAX_FLOAT,
    }
    return np.array([highest[feature.values] for feature in shape.kind.features], np.int64)


def _find_excess(examples: Examples, most: NDArray[np.int64], notes: NDArray[np.int64]) -> int:
    """Return n.BEYOND_MODEL if a value of array i is above most[i], floats by their bits, with `notes` about one; else 0."""
    found: list[tuple[int, int, int, int]] = []
    for array, feature, highest in zip(examples.arrays, examples.features, most.tolist(), strict=True):
        if not array.size or np.amax(array.view(np.uint32)) <= highest:
            continue
        values = array.view(np.uint32).reshape(len(array), -1)
        is_beyond = (values > highest) & ((array.dtype != np.float32) | (values != _MINUS_ZERO))
        if is_beyond.any():
            row, column = np.argwhere(is_beyond)[0].tolist()
            found.append((row, n.NUMBER_OF_FEATURE[feature.name], int(values[row, column]), highest))
    if not found:
        return 0
    notes[[n.ROW, n.FEATURE, n.FOUND, n.EXPECTED]] = min(found, key=lambda each: each[0])
    return n.BEYOND_MODEL


def blank(examples: Examples) -> None:
    """Make all values 0: rows that add nothing to any sum over weights."""
    for array in examples.arrays:
        array[...] = 0


def _find_files(path: Path, split: str, is_own_name: bool = False) -> list[tuple[Path, dict[Path, str | None]]]:
    data_set = find_records(path)
    listed = data_set.manifest.files if data_set.manifest else {}
    of_file = f".{path.name}" if path.is_file() else ""
    if any("/" not in name and of for name, of in data_set.files.items()):  # splits in one folder
        of_file = f".{split}"
    folders: dict[Path, dict[Path, str | None]] = {}
    files = data_set.named(split) if is_own_name else data_set.paths(split)
    for file in _with_status(data_set, files):
        sha256 = listed.get(str(file.relative_to(data_set.folder)), {}).get("sha256")
        folders.setdefault(file.parent, {})[file] = sha256
    if not folders:
        advice = "bertprep shard holds one out" if split == TEST else "name a folder that has it"
        raise UsageError(f"{path}: has no {split} split; {advice}")
    return [((kept := index_path(folder)).with_name(kept.name + of_file), files) for folder, files in folders.items()]


def _with_status(data_set: DataSet, files: list[Path]) -> list[Path]:
    if not isinstance(data_set.folder, ObjectPath):
        return files
    there = {path: path for path in data_set.folder.rglob("*")}
    if missing := [file for file in files if file not in there]:
        raise BertprepError(f"{missing[0]}: was removed while the records were found; leave the data alone, and start again")
    return [there[file] for file in files]  # type: ignore[index]


def _with_room(files: list[IndexedFile], data: Sequence[Path | str], split: str) -> list[IndexedFile]:
    if all(file.knows_pred for file in files):
        return files
    preds = [file.pred for file in files]
    for path in map(as_path, data):
        found = find_records(path)
        for other in found.splits if found.is_whole else []:
            if other not in ("", split):
                with contextlib.suppress(BertprepError):  # is told when that split is opened
                    indexes = _find_files(path, other)
                    preds += [file.pred for kept_at, paths in indexes for file in index_records([*paths], kept_at)]
    return [file if file.knows_pred else replace(file, pred=max(preds)) for file in files]


def _max_open() -> int:
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return min(_MAX_OPEN, allowed // 2) if allowed > 1 else _MAX_OPEN  # "no limit" is -1 or huge

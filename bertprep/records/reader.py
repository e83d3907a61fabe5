"""One record file, TFRecord or OFRecord, to `Examples`: in order, or any records in any order.

Where records begin is found as they are read, and for all at once when the number of records or random access asks for it.
Every length and every checksum that the format has is checked with each reading. What other tools write is read as well:
features in any order, TensorFlow 2's names, numbers packed or not, int32 or int64.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from bertprep import kernels
from bertprep.errors import BertprepError
from bertprep.kernels import faults
from bertprep.records.examples import Examples
from bertprep.records.faults import explain
from bertprep.records.file_bytes import FileBytes
from bertprep.records.formats import OFRECORD, TFRECORD, find_format
from bertprep.records.writer import FEATURES

_FORMAT_NUMBERS = {TFRECORD: 1, OFRECORD: 2}  # as in bertprep.kernels.encode, which is not imported at run time
_SPANS_SIZE = 3 * len(FEATURES)
_FIRST_ROOM = 1024
_POSITIONS = FEATURES.index("masked_lm_positions")


class RecordFile:
    """The records of one file, by number from 0; for one thread at a time.

    `format` is "tfrecord" or "ofrecord"; `seq` and `pred` are the first record's numbers of tokens and of masked ones, which
    all others must share. Any method that reads raises `BertprepError`, which names the file, the record and the fault.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._bytes = FileBytes(self.path)
        try:
            self.format = find_format(self.path, self._bytes.array)
            if self._bytes.is_compressed and self.format == OFRECORD:
                raise BertprepError(f"{self.path}: is a compressed OFRecord file, which no trainer reads; decompress it")
            self.seq, self.pred = self._measure()
        except BaseException:
            self.close()
            raise
        self._offsets = np.zeros(_FIRST_ROOM + 1, np.int64)  # (records found + 1,): where each begins, and the last one ends
        self._found = 0

    def __enter__(self) -> RecordFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Give the file's memory back; what was read stays."""
        self._bytes.close()

    def __len__(self) -> int:
        """The number of records; the first call walks over all lengths in the file, 0.1 microseconds each."""
        self._find_records(None)
        return self._found

    def __getitem__(self, records: slice | NDArray[np.int64]) -> Examples:
        """Records first:last, or those of an array of numbers in its order, in new arrays."""
        if isinstance(records, slice):
            chosen = range(len(self))[records]
            examples = Examples.empty(len(chosen), seq=self.seq, pred=self.pred)
            if chosen.step == 1:
                self.read_into(examples, chosen.start, chosen.stop)
            else:
                self.gather_into(examples, np.array(chosen, np.int64))
            return examples
        examples = Examples.empty(len(records), seq=self.seq, pred=self.pred)
        self.gather_into(examples, records)
        return examples

    def blocks(self, size: int) -> Iterator[Examples]:
        """All records in order, `size` at a time; the arrays are the same each time, so a block is valid until the next."""
        room = Examples.empty(size, seq=self.seq, pred=self.pred)
        start = 0
        while count := self.read_into(room, start, start + size):
            yield room[:count]
            start += count

    def read_into(self, examples: Examples, start: int, stop: int, *, row: int = 0) -> int:
        """Read records start to stop - 1, or to the end of the file, to the rows from `row` on; returns how many.

        Fastest where the arrays stay in the processor's cache: some 256 records of 128 tokens.
        """
        self._check_room(examples, row, stop - start)
        if start < 0 or stop < start:
            raise IndexError(f"records {start} to {stop}")
        self._find_records(start)
        if start > self._found:
            raise IndexError(f"{self.path}: records {start} to {stop} of {self._found}")
        self._make_room(stop)
        problem = np.zeros(faults.PROBLEM_SIZE, np.int64)
        count = kernels.load().decode(
            self._data, self._data.size, _FORMAT_NUMBERS[self.format], self._offsets, start, stop - start,
            row, self.seq, self.pred, *examples.arrays, np.empty(_SPANS_SIZE, np.int64), problem,
        )  # fmt: skip
        if count < 0:
            raise self._explain(count, start + int(problem[faults.ROW]), problem)
        self._found = max(self._found, start + count)
        return count

    def gather_into(self, examples: Examples, records: NDArray[np.int64], *, row: int = 0) -> None:
        """Read the records of an array of numbers, in its order, to the rows from `row` on."""
        self._check_room(examples, row, len(records))
        numbers = np.ascontiguousarray(records, np.int64)
        if len(numbers) == 0:
            return
        lowest, highest = np.min(numbers), np.max(numbers)
        if lowest < 0 or highest >= len(self):
            raise IndexError(f"{self.path}: records {lowest} to {highest} of {len(self)}")
        file = (self._data.size, _FORMAT_NUMBERS[self.format], self._data.ctypes.data, self._offsets.ctypes.data)
        problem = np.zeros(faults.PROBLEM_SIZE, np.int64)
        fault = kernels.load().gather(
            np.array(file, np.int64), np.zeros(len(numbers), np.int64), numbers, len(numbers),
            row, self.seq, self.pred, *examples.arrays, np.empty(_SPANS_SIZE, np.int64), problem,
        )  # fmt: skip
        if fault < 0:
            raise self._explain(fault, int(numbers[problem[faults.ROW]]), problem)

    @property
    def _data(self) -> NDArray[np.uint8]:
        if self._bytes.array.size == 0:
            raise ValueError(f"{self.path}: is closed")
        return self._bytes.array

    def _measure(self) -> tuple[int, int]:
        """(seq, pred) of the first record, whose features must agree."""
        counts = np.zeros(len(FEATURES), np.int64)
        problem = np.zeros(faults.PROBLEM_SIZE, np.int64)
        spans = np.empty(_SPANS_SIZE, np.int64)
        fault = kernels.load().measure(self._data, self._data.size, _FORMAT_NUMBERS[self.format], counts, spans, problem)
        if fault < 0:
            raise self._explain(fault, 0, problem)
        seq, pred = int(counts[0]), int(counts[_POSITIONS])
        for feature, count in enumerate(counts):
            expected = max(1, seq) if feature < _POSITIONS else max(1, pred) if feature < len(FEATURES) - 1 else 1
            if count != expected:
                problem[faults.FEATURE], problem[faults.FOUND], problem[faults.EXPECTED] = feature, count, expected
                raise self._explain(faults.WRONG_COUNT, 0, problem)
        return seq, pred

    def _find_records(self, wanted: int | None) -> None:
        """Find where records begin, up to number `wanted` or to the end of the file."""
        problem = np.zeros(faults.PROBLEM_SIZE, np.int64)
        while self._offsets[self._found] < self._data.size and (wanted is None or self._found < wanted):
            self._make_room(2 * self._found + _FIRST_ROOM if wanted is None else wanted)
            room = len(self._offsets) - 1 if wanted is None else wanted
            found = kernels.load().find_records(
                self._data, self._data.size, _FORMAT_NUMBERS[self.format], self._offsets, self._found, room, problem
            )
            if found < 0:
                raise self._explain(found, int(problem[faults.ROW]), problem)
            self._found = found

    def _make_room(self, records: int) -> None:
        """Room for the offsets of that many records, and as much again."""
        if records >= len(self._offsets):
            offsets = np.zeros(2 * records + 1, np.int64)
            offsets[: self._found + 1] = self._offsets[: self._found + 1]
            self._offsets = offsets

    def _check_room(self, examples: Examples, row: int, count: int) -> None:
        if (examples.seq, examples.pred) != (self.seq, self.pred) or row < 0 or row + count > len(examples):
            raise ValueError(
                f"{self.path}: room for {len(examples)} records of {examples.seq}/{examples.pred}, "
                f"needed for {count} of {self.seq}/{self.pred} from row {row}"
            )

    def _explain(self, fault: int, record: int, problem: NDArray[np.int64]) -> BertprepError:
        return explain(self.path, self.format, fault, record, problem)

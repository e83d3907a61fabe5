"""Many record files as one sequence of records, from which any can be gathered in one call: what shuffled batches need.

A batch of 256 from 1,024 shards meets most files once or not at all; a call for each file would cost more than its records.
Opening finds where the records of all files begin, 0.1 microseconds each; 8 bytes a record stay in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from bertprep import kernels
from bertprep.errors import BertprepError
from bertprep.files.mapped_file import any_cut
from bertprep.kernels import faults
from bertprep.records.examples import Examples
from bertprep.records.reader import RecordFile, select_records


class RecordFiles:
    """The records of several files, numbered through from the first file's first; for one thread at a time.

    All must agree in `seq` and `pred`; the two formats may be mixed. Methods raise `BertprepError` as a `RecordFile`'s do.
    """

    def __init__(self, paths: Sequence[Path | str]) -> None:
        if not paths:
            raise BertprepError("no record files; name at least one")
        self._files: list[RecordFile] = []
        try:
            for path in paths:
                self._files.append(RecordFile(path))
                self._check_alike(self._files[-1])
            lengths = [len(file) for file in self._files]
        except BaseException:
            self.close()
            raise
        self.seq, self.pred = self._files[0].seq, self._files[0].pred
        self._ends = np.cumsum(lengths)  # (files,): the number of the record after each file's last
        self._starts = self._ends - lengths
        self._rows = np.stack([file.row for file in self._files])

    def __enter__(self) -> RecordFiles:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Give the files' memory back; what was read stays."""
        for file in self._files:
            file.close()
        self._rows = np.empty((0, 0), np.int64)

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __getitem__(self, records: Sequence[int] | NDArray[np.integer] | NDArray[np.bool_]) -> Examples:
        """The records of a list or array of numbers, in its order, or of a mask, in new arrays."""
        numbers = select_records(records, len(self), self._name)
        examples = Examples.empty(len(numbers), seq=self.seq, pred=self.pred)
        self.gather_into(examples, numbers)
        return examples

    def gather_into(self, examples: Examples, numbers: NDArray[np.int64], *, row: int = 0) -> None:
        """Read the records of an array of numbers, in its order, to the rows from `row` on."""
        if self._rows.size == 0:
            raise ValueError(f"{self._files[0].path} and those after it are closed")
        numbers = select_records(numbers, len(self), self._name)
        self._files[0].check_room(examples, row, len(numbers))
        if len(numbers) == 0:
            return
        files = np.searchsorted(self._ends, numbers, side="right")
        records = np.ascontiguousarray(numbers - self._starts[files], np.int64)
        notes = np.zeros(faults.NOTES_SIZE, np.int64)
        fault = kernels.load().gather(
            self._rows, np.ascontiguousarray(files, np.int64), records, len(records), examples.room, row, notes
        )
        # A page that was cut in its middle reads as zeros, which OFRecord cannot tell; to ask for every size takes long
        for number in np.unique(files).tolist() if fault < 0 or any_cut() else files[:1].tolist():
            self._files[number].check()
        if fault < 0:
            wrong = notes[faults.ROW]
            raise self._files[files[wrong]].explain(fault, int(records[wrong]), notes)

    @property
    def _name(self) -> str:
        more = len(self._files) - 1
        return f"{self._files[0].path} and {more:,} more" if more else str(self._files[0].path)

    def _check_alike(self, file: RecordFile) -> None:
        first = self._files[0]
        if (file.seq, file.pred) != (first.seq, first.pred):
            raise BertprepError(
                f"{file.path}: has records of {file.seq} tokens and {file.pred} predictions, expected {first.seq} and "
                f"{first.pred} as {first.path} has; give files that were made with the same settings"
            )

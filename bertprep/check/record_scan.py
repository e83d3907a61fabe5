"""Reads all intact records of a file and reports the others: a reader that continues after a bad record.

Only a wrong length or an early end stops the scan, since the next record's start is then unknown. Formats that are rewritten
when opened, such as Parquet, are read as a unit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bertprep import kernels
from bertprep.check.finding import Finding
from bertprep.config import RecordFormat
from bertprep.kernels import numbers as kernel
from bertprep.records.examples import MAX_VALUES, Examples, Shape, rows_in_block
from bertprep.records.open_file import MIN_RECORD_BYTES, OpenFile, find_offsets, measure_record

if TYPE_CHECKING:
    from bertprep.records.arrow_reader import Table

BLOCK = 512
"""Records at a time; at 128 tokens they and what is compared of them, 2 MB, stay in the processor's caches."""
_TRIES = 100  # the first readable one of these many records gives the sizes

# fault: code, what was expected, what was found
_WORDS = {
    kernel.TRUNCATED: (
        "truncated", "as many bytes as its length says", "{found:,} of {expected:,}: the file is truncated or corrupt",
    ),
    kernel.LEFT_OVER: ("trailing-bytes", "the end of the file or a whole record", "{found:,} bytes"),
    kernel.LENGTH_CHECKSUM: ("bad-checksum", "the checksum of its length", "{found:08x} where it should be {expected:08x}"),
    kernel.DATA_CHECKSUM: ("bad-checksum", "the checksum of its data", "{found:08x} where it should be {expected:08x}"),
    kernel.MALFORMED: ("bad-message", "a message of {message}", "other bytes"),
    kernel.MISSING: ("feature-missing", "feature {feature}", "none"),
    kernel.TWICE: ("bad-message", "feature {feature} once", "more than one"),
    kernel.WRONG_TYPE: ("feature-type", "feature {feature} as {values}", "a list of another type"),
    kernel.WRONG_COUNT: ("feature-shape", "{expected:,} values of {feature}", "{found:,}"),
    kernel.OUT_OF_RANGE: ("id-range", "values of {feature} from 0 to {expected}", "{found}"),
}  # fmt: skip


def describe_fault(fault: int, file: str, record: int, notes: Mapping[str, object]) -> Finding:
    """Return the finding of a fault that the reader numbers, with the notes on the record that has it."""
    code, expected, found = _WORDS[fault]
    return Finding(code, file, expected.format(**notes), found.format(**notes), record)


class RecordScan(OpenFile):
    """One file, open until `close`; `findings` grow while it is read.

    `kind`, `seq` and `pred` (`shape`) are those of the first readable record, or 0. Raises `BertprepError` for another file.
    """

    def __init__(self, path: Path, name: str, pred: int | None = None) -> None:
        self._name = name
        self._faults: dict[tuple[str, str], Finding] = {}
        super().__init__(path, pred=pred)

    def __len__(self) -> int:
        return self.records

    @property
    def seq(self) -> int:
        return self.shape.seq

    @property
    def pred(self) -> int:
        return self.shape.pred

    @property
    def findings(self) -> list[Finding]:
        return list(self._faults.values())

    def intact_blocks(self, sample: int | None) -> Iterator[tuple[Examples, NDArray[np.int64]]]:
        """Yield the readable records and their ids, at most `BLOCK` at a time, in reused arrays.

        With `sample`, only that many records, spread evenly.
        """
        rows = rows_in_block(BLOCK, seq=self.seq, pred=self.pred, kind=self.kind)
        buffer = self.kind.empty(rows, seq=self.seq, pred=self.pred)
        wanted = len(self) if sample is None else min(sample, len(self))
        at = 0
        while at < wanted:
            stop = min(at + rows, wanted)
            numbers = np.arange(at, stop) * len(self) // wanted
            done = self._gather(numbers, buffer)
            fault = min(done, 0)
            if fault < 0:
                done = int(self.notes[kernel.ROW])
                self._note(fault, int(numbers[done]))
            if done:
                yield buffer if done == rows else buffer[:done], numbers[:done]
            at += done + (fault < 0)

    def _gather(self, ids: NDArray[np.int64], block: Examples) -> int:
        """Read records to the first rows; return how many, or a fault, which `notes` describe."""
        if self.rows:
            return self.rows.read(ids, block, 0, self.notes)
        gather, files = kernels.load().gather, np.zeros(len(ids), np.int64)
        return gather(gather.table("files", [self.describe()]), files, ids, len(ids), block, 0, self.notes)

    def check_table(self, table: Table) -> None:
        if table.damage:
            found = str(table.damage).removeprefix(f"{self.path}: ")
            self._add(Finding("truncated", self._name, "the batches of a whole file", found, table.records))

    def find_records(self) -> int:
        self.offsets, fault = find_offsets(self.data, self.format, self.notes)
        found = len(self.offsets) - 1
        rest = self.data[self.offsets[found] :]
        if fault < 0 and rest.any():
            self._note(fault, found)
        elif fault < 0:
            zeros = f"{rest.size:,} bytes that are all 0"
            self._add(Finding("trailing-bytes", self._name, "the end of the file", zeros, found))
        elif rest.size:
            mean = f"a mean of {int(self.offsets[found]) // found} before it"
            self._add(Finding("bad-message", self._name, f"records of {MIN_RECORD_BYTES} bytes or more", mean, found))
        return found

    def measure(self) -> Shape:
        for record in range(min(len(self), _TRIES)):
            fault, self.kind, counts = measure_record(self.describe(int(self.offsets[record])), self.notes)
            seq, pred = counts.get("input_ids", 0), counts.get("masked_lm_positions", 0)
            if fault >= 0 and min(counts.values()) > 0 and max(counts.values()) <= MAX_VALUES:
                return Shape(self.kind, seq, pred)
        if len(self) and fault < 0:
            self._note(fault, 0)
        elif len(self):
            expected = f"1 to {MAX_VALUES:,} values in input_ids and masked_lm_positions"
            self._add(Finding("feature-shape", self._name, expected, f"{seq:,} and {pred:,}", 0))
        return Shape(self.kind, 0, 0)

    def _note(self, fault: int, record: int) -> None:
        feature = kernel.KNOWN_FEATURES[int(self.notes[kernel.FEATURE])]
        is_float = fault == kernel.WRONG_TYPE and self.kind.feature(feature).dtype == np.float32
        notes = {
            "found": int(self.notes[kernel.FOUND]),
            "expected": int(self.notes[kernel.EXPECTED]),
            "feature": feature,
            "values": "floats" if is_float else "integers",
            "message": "tf.train.Example" if self.format == RecordFormat.TFRECORD else "OFRecord",
        }
        self._add(describe_fault(fault, self._name, record, notes))

    def _add(self, new: Finding) -> None:
        first = self._faults.get((new.code, new.expected))
        self._faults[new.code, new.expected] = replace(first, count=first.count + 1) if first else new

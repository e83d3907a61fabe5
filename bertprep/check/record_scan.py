"""Reads all intact records of a file and reports the others: a reader that continues after a bad record.

`records.open` raises at the first fault, as a trainer needs. Here a bad record is counted and skipped. Only a wrong length or
an early end of the file ends the scan, since the start of the next record is then unknown; what is rewritten when it is opened,
as Parquet, is read whole or not at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bertprep import kernels
from bertprep.check.findings import ERROR, Finding
from bertprep.config import RecordFormat
from bertprep.kernels import numbers as faults
from bertprep.kernels.numbers import KNOWN_FEATURES
from bertprep.records.examples import MOST_VALUES, Examples, PretrainingExamples, Shape, rows_in_block
from bertprep.records.file_bytes import FileBytes
from bertprep.records.reader import SMALLEST_RECORD, describe_file, measure_record

BLOCK = 256
"""Records at a time; at 128 tokens they fit the processor's cache."""
_ODD_RECORDS = 1024  # records smaller than SMALLEST_RECORD that are still counted
_TRIES = 100  # the first readable one of these many records gives the sizes

CODES = {
    faults.TRUNCATED: "truncated",
    faults.LEFT_OVER: "trailing-bytes",
    faults.LENGTH_CHECKSUM: "bad-checksum",
    faults.DATA_CHECKSUM: "bad-checksum",
    faults.MALFORMED: "bad-message",
    faults.MISSING: "feature-missing",
    faults.TWICE: "bad-message",
    faults.WRONG_TYPE: "feature-type",
    faults.WRONG_COUNT: "feature-shape",
    faults.OUT_OF_RANGE: "id-range",
}


class RecordScan:
    """One file, open until `close`; `findings` grow while it is read.

    Raises `BertprepError` if it is not a record file. `kind`, `seq` and `pred`, together `shape`, are those of the first
    readable record; the sizes are 0 if there is none.
    """

    def __init__(self, path: Path, name: str, pred: int | None = None) -> None:
        """`pred` is as in `RecordFile`."""
        self._name = name
        self.knows_pred = True
        self.kind: type[Examples] = PretrainingExamples  # until the first record tells
        self._notes = np.zeros(faults.NOTES_SIZE, np.int64)
        self._faults: dict[tuple[str, str], Finding] = {}
        self._bytes = FileBytes(path, pred=pred)
        try:
            self.format = self._bytes.format
            if batches := self._bytes.batches:
                self._offsets, self.records, self.shape = batches.table, batches.records, batches.shape
                self.knows_pred = batches.knows_pred
                self._row = self._describe(0)
                if batches.damage:
                    expected, found = "the batches of a whole file", str(batches.damage).removeprefix(f"{path}: ")
                    self._add("truncated", self.records, expected, found)
            else:
                self._offsets = np.zeros(self._bytes.array.size // SMALLEST_RECORD + _ODD_RECORDS, np.int64)
                self._row = self._describe(0)
                self.records = self._find_records()
                self.shape = self._measure()
            self.kind, self.seq, self.pred = self.shape
            self._bytes.check()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Release the file's memory."""
        self._bytes.close()

    @property
    def findings(self) -> list[Finding]:
        """One finding for each kind of fault so far."""
        return list(self._faults.values())

    def blocks(self, sample: int | None) -> Iterator[tuple[Examples, NDArray[np.int64]]]:
        """The readable records and their numbers, at most `BLOCK` at a time, in arrays that the next block reuses.

        The longer the records, the smaller the blocks, so memory does not grow with them. With `sample`, only that many
        records, spread evenly over the file. Raises `BertprepError` if the file is truncated meanwhile.
        """
        rows = rows_in_block(BLOCK, seq=self.seq, pred=self.pred, kind=self.kind)
        buffer = self.kind.empty(rows, seq=self.seq, pred=self.pred)
        wanted = self.records if sample is None else min(sample, self.records)
        files, at = np.zeros(rows, np.int64), 0
        while at < wanted:
            numbers = np.arange(at, min(at + rows, wanted)) * self.records // wanted
            if wanted == self.records:  # in order, so the processor can prefetch
                done = kernels.load().decode(self._row, at, len(numbers), buffer.addresses, 0, self._notes)
            else:
                done = kernels.load().gather(self._row, files, numbers, len(numbers), buffer.addresses, 0, self._notes)
            self._bytes.check()
            fault = min(done, 0)
            if fault < 0:
                done = int(self._notes[faults.ROW])
                self._note(fault, int(numbers[done]))
            if done:
                yield buffer[:done], numbers[:done]
            at += done + (fault < 0)

    def _describe(self, start: int) -> NDArray[np.int64]:
        """Address and size of the file from byte `start` on, for kernels."""
        return describe_file(self._bytes.array, self.format, self._offsets, start)

    def _find_records(self) -> int:
        """The number of complete frames; records a finding about what follows them."""
        found = 0
        while True:
            most = len(self._offsets) - 1
            outcome = kernels.load().find_records(self._row, found, most, self._notes)
            if outcome < 0:
                found = int(self._notes[faults.ROW])
                rest = self._bytes.array[self._offsets[found] :]
                if rest.any():
                    self._note(outcome, found)
                else:
                    self._add("trailing-bytes", found, "the end of the file", f"{rest.size:,} bytes that are all 0")
                return found
            found = outcome
            if self._offsets[found] >= self._bytes.array.size:
                return found
            size = int(self._offsets[found]) // found
            self._add("bad-message", found, f"records of {SMALLEST_RECORD} bytes or more", f"a mean of {size} before it")
            return found

    def _measure(self) -> Shape:
        """The shape of the first readable record."""
        for record in range(min(self.records, _TRIES)):
            fault, self.kind, counts = measure_record(self._describe(int(self._offsets[record])), self._notes)
            seq, pred = counts.get("input_ids", 0), counts.get("masked_lm_positions", 0)
            if fault >= 0 and min(counts.values()) > 0 and max(counts.values()) <= MOST_VALUES:
                return Shape(self.kind, seq, pred)
        # none is readable: the first one's fault is reported for all
        if self.records:
            if fault < 0:
                self._note(fault, 0)
            else:
                expected = f"1 to {MOST_VALUES:,} values in input_ids and masked_lm_positions"
                self._add("feature-shape", 0, expected, f"{seq:,} and {pred:,}")
        return Shape(self.kind, 0, 0)

    def _note(self, fault: int, record: int) -> None:
        expected, found = _words(fault, self.format, self.kind, self._notes)
        self._add(CODES[fault], record, expected, found)

    def _add(self, code: str, record: int, expected: str, found: str) -> None:
        first = self._faults.get((code, expected))
        if first is None:
            self._faults[code, expected] = Finding(ERROR, code, self._name, record, expected, found)
        else:
            self._faults[code, expected] = Finding(
                ERROR, code, self._name, first.record, first.expected, first.found, first.count + 1
            )


def _words(fault: int, record_format: RecordFormat, kind: type[Examples], notes: NDArray[np.int64]) -> tuple[str, str]:
    """(what was expected, what was found)."""
    found, expected = int(notes[faults.FOUND]), int(notes[faults.EXPECTED])
    feature = KNOWN_FEATURES[int(notes[faults.FEATURE])] if fault in _OF_FEATURES else ""
    if fault == faults.TRUNCATED:
        return "as many bytes as its length says", f"{found:,} of {expected:,}: the file is truncated or damaged"
    if fault == faults.LEFT_OVER:
        return "the end of the file or a whole record", f"{found:,} bytes"
    if fault in (faults.LENGTH_CHECKSUM, faults.DATA_CHECKSUM):
        what = "length" if fault == faults.LENGTH_CHECKSUM else "data"
        return f"the checksum of its {what}", f"{found:08x} where it should be {expected:08x}"
    if fault == faults.MALFORMED:
        return (
            f"a message of {'tf.train.Example' if record_format == RecordFormat.TFRECORD else 'OFRecord'}",
            "other bytes",
        )
    if fault == faults.MISSING:
        return f"feature {feature}", "none"
    if fault == faults.TWICE:
        return f"feature {feature} once", "more than one"
    if fault == faults.WRONG_TYPE:
        values = "floats" if kind.feature(feature).dtype == np.float32 else "integers"
        return f"feature {feature} as {values}", "a list of another type"
    if fault == faults.WRONG_COUNT:
        return f"{expected:,} values of {feature}", f"{found:,}"
    return f"values of {feature} from 0 to 2147483647", "another value"


_OF_FEATURES = (faults.MISSING, faults.TWICE, faults.WRONG_TYPE, faults.WRONG_COUNT, faults.OUT_OF_RANGE)

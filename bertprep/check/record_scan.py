"""Read all intact records of a file and report the others, continuing after a bad record.

Only a wrong length or an early end stops the scan, since the start of the next record is then unknown. Formats that are
converted when opened, such as Parquet, are readable as a whole or not at all.
"""

from __future__ import annotations

from collections.abc import Iterator
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
"""The number of records in a block. At 128 tokens a block and its intermediate results, 2 MB, stay in the CPU's caches."""
_TRIES = 100  # the first readable one of these many records gives the sizes

# fault: code, what was expected, what was found
_WORDS = {
    kernel.TRUNCATED: (
        "truncated", "as many bytes as its length field gives", "{found:,} of {expected:,}: the file is truncated or corrupt",
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


class RecordScan(OpenFile):
    """One file, open until `close`. Its `findings` grow while it is read.

    `kind`, `seq` and `pred` (`shape`) are those of the first readable record, or 0. Raises `BertprepError` if the file is not a
    record file.
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
        """Yield blocks of readable records and their indices, at most `BLOCK` at a time, in reused arrays.

        With `sample`, only that many records, spread evenly, are read.
        """
        rows = rows_in_block(BLOCK, seq=self.seq, pred=self.pred, kind=self.kind)
        buffer = self.kind.empty(rows, seq=self.seq, pred=self.pred)
        wanted = len(self) if sample is None else min(sample, len(self))
        start = 0
        while start < wanted:
            ids = np.arange(start, min(start + rows, wanted)) * len(self) // wanted
            done = self._gather(ids, buffer)
            fault = min(done, 0)
            if fault:  # the records before the bad one were read
                done = int(self.notes[kernel.ROW])
                self._add_fault(fault, int(ids[done]))
            if done:
                yield buffer if done == rows else buffer[:done], ids[:done]
            start += done + 1 if fault else done

    def _gather(self, ids: NDArray[np.int64], block: Examples) -> int:
        """Read records into the first rows; return their number, or a fault, which `notes` describe."""
        if self.rows:
            return self.rows.read(ids, block, 0, self.notes)
        gather, files = kernels.load().gather, np.zeros(len(ids), np.int64)
        return gather(gather.table("files", [self.describe()]), files, ids, len(ids), block, 0, self.notes)

    def check_table(self, table: Table) -> None:
        """Add a finding about the place at which an Arrow or Parquet file is damaged."""
        if table.damage:
            found = str(table.damage).removeprefix(f"{self.path}: ")
            self._add("truncated", "the batches of a whole file", found, table.records)

    def find_records(self) -> int:
        """Return the number of complete records; add a finding about bytes after them."""
        self.offsets, fault = find_offsets(self.data, self.format, self.notes)
        count = len(self.offsets) - 1
        rest = self.data[self.offsets[count] :]
        if fault < 0 and rest.any():
            self._add_fault(fault, count)
        elif fault < 0:
            self._add("trailing-bytes", "the end of the file", f"{rest.size:,} bytes that are all 0", count)
        elif rest.size:
            mean = int(self.offsets[count]) // count
            self._add("bad-message", f"records of {MIN_RECORD_BYTES} bytes or more", f"a mean of {mean} before it", count)
        return count

    def measure(self) -> Shape:
        """Return the shape of the first readable record; add a finding if there is none."""
        fault = seq = pred = 0
        for record in range(min(len(self), _TRIES)):
            fault, self.kind, counts = measure_record(self.describe(int(self.offsets[record])), self.notes)
            seq, pred = counts.get("input_ids", 0), counts.get("masked_lm_positions", 0)
            if fault >= 0 and min(counts.values()) > 0 and max(counts.values()) <= MAX_VALUES:
                return Shape(self.kind, seq, pred)
        if fault < 0:
            self._add_fault(fault, 0)
        elif len(self):
            expected = f"1 to {MAX_VALUES:,} values in input_ids and masked_lm_positions"
            self._add("feature-shape", expected, f"{seq:,} and {pred:,}", 0)
        return Shape(self.kind, 0, 0)

    def _add_fault(self, fault: int, record: int) -> None:
        """Add a finding about a fault that a kernel has found; `notes` have its place and values."""
        feature = kernel.KNOWN_FEATURES[int(self.notes[kernel.FEATURE])]
        is_float = fault == kernel.WRONG_TYPE and self.kind.feature(feature).dtype == np.float32
        words = {
            "found": int(self.notes[kernel.FOUND]),
            "expected": int(self.notes[kernel.EXPECTED]),
            "feature": feature,
            "values": "floats" if is_float else "integers",
            "message": "tf.train.Example" if self.format == RecordFormat.TFRECORD else "OFRecord",
        }
        code, expected, found = _WORDS[fault]
        self._add(code, expected.format(**words), found.format(**words), record)

    def _add(self, code: str, expected: str, found: str, record: int) -> None:
        """Add a finding, or count one more record for it."""
        known = self._faults.get((code, expected))
        finding = replace(known, count=known.count + 1) if known else Finding(code, self._name, expected, found, record)
        self._faults[code, expected] = finding

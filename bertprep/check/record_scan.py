"""Reads all intact records of a file and reports the others: a reader that continues after a bad record.

Only a wrong length or an early end stops the scan, since the next record's start is then unknown. Formats that are rewritten
when opened, such as Parquet, are read as a unit.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bertprep.check.outcome import ERROR, Finding
from bertprep.config import RecordFormat
from bertprep.errors import BertprepError
from bertprep.instances import Vocabulary
from bertprep.kernels import numbers as kernel
from bertprep.records.data_sets import DataSet
from bertprep.records.examples import MAX_VALUES, Examples, Shape, rows_in_block
from bertprep.records.reader import MIN_RECORD_BYTES, RecordFile, describe_file, find_offsets, measure_record

if TYPE_CHECKING:
    from bertprep.records.arrow_reader import Table

BLOCK = 256
"""Records at a time; at 128 tokens they fit the processor's cache."""
_FIRST_FILES = 10  # of a split, that give the shape of its records where no manifest does
_FIRST_RECORDS = 1_000  # of each, spread over the file, of which the first block is read
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
    kernel.OUT_OF_RANGE: ("id-range", "values of {feature} from 0 to 2147483647", "another value"),
    kernel.UNEVEN_MASK: ("padding", "input_mask 1 for the text, then 0 to the end", "{found} at position {at}"),
    kernel.PADDING_IDS: ("padding", "input_ids {pad} after the {expected} tokens of text", "{found} at position {at}"),
    kernel.PADDING_SEGMENTS: ("padding", "segment_ids 0 after the {expected} tokens of text", "{found} at position {at}"),
    kernel.PAD_IN_TEXT: ("padding", "no [PAD] within the {expected} tokens of text", "one at position {at}"),
    kernel.NO_CLS: ("no-cls", "[CLS], token {expected}, at position 0", "token {found}"),
    kernel.CLS_IN_TEXT: ("no-cls", "[CLS] at position 0 only", "{found} of them, one at position {at}"),
    kernel.SEP_COUNT: ("separators", "two [SEP]", "{found}"),
    kernel.SEP_LAST: ("separators", "[SEP], token {expected}, at the last position of text, {at}", "token {found}"),
    kernel.EMPTY_SEGMENT: ("separators", "[CLS] A [SEP] B [SEP] with tokens in A and B", "none in one of them"),
    kernel.WRONG_SEGMENTS: ("segments", "segment_ids 0 to the first [SEP], then 1", "{found} at position {at}"),
    kernel.ID_RANGE: ("id-range", "tokens below {expected}, the size of the vocabulary", "{found} at position {at}"),
    kernel.MASK_ORDER: ("mask-order", "ascending masked_lm_positions", "{found} after {expected}"),
    kernel.MASK_OUTSIDE: ("mask-outside", "masked_lm_positions within the {expected} tokens of text", "{at}"),
    kernel.MASK_ON_SPECIAL: ("mask-on-special", "no prediction on [CLS] or [SEP]", "position {at} with label {found}"),
    kernel.UNEVEN_WEIGHTS: ("weights", "masked_lm_weights 1, then 0 to the end", "another at index {at} after {found} ones"),
    kernel.AFTER_PREDICTIONS: (
        "weights", "positions and labels 0 after the {expected} predictions with weight 1", "{found} at index {at}",
    ),
    kernel.PREDICTION_COUNT: ("prediction-count", "{bound}{expected} predictions of {at} tokens", "{found}"),
    kernel.WORD_LEFT_OUT: (
        "prediction-count", "{expected} predictions, or as many as fit", "{found}, and a word of {at} left out",
    ),
    kernel.WORD_IN_PART: (
        "whole-words", "words masked as a whole", "{found} pieces masked unlike the first of their word",
    ),
    kernel.PIECE_OF_NONE: (
        "word-pieces", "## tokens after a part of their word only",
        "token {found} at position {at}, after punctuation or [UNK]",
    ),
    kernel.WRONG_NEXT_SENTENCE: ("next-sentence-label", "0 or 1", "{found}"),
    kernel.MASK_WITHOUT_LABEL: ("mask-without-label", "[MASK] at predicted positions only", "one at position {at}"),
}  # fmt: skip
_WORDS_BY_SEGMENTS = {
    kernel.FULL_SENTENCES: {
        kernel.EMPTY_SEGMENT: ("separators", "tokens before each [SEP]", "{found} of them at or after another special token"),
        kernel.WRONG_SEGMENTS: ("segments", "segment_ids 0", "{found} at position {at}"),
    },
    kernel.ONE_OR_TWO_SEGMENTS: {kernel.SEP_COUNT: ("separators", "one [SEP] or two", "{found}")},
}


def describe_fault(
    fault: int, file: str, record: int, notes: Mapping[str, object], *,
    count: int = 1, level: str = ERROR, segments: int = kernel.TWO_SEGMENTS,
) -> Finding:  # fmt: skip
    """Return the finding of a fault that kernels number, with the notes on the first record that has it."""
    code, expected, found = (_WORDS | _WORDS_BY_SEGMENTS.get(segments, {}))[fault]
    return Finding(code, file, expected.format(**notes), found.format(**notes), record, count, level)


class FirstRecords(NamedTuple):
    """Some records of one of the first files of a split."""

    split: str
    examples: Examples
    knows_pred: bool


class RecordScan(RecordFile):
    """One file, open until `close`; `findings` grow while it is read.

    `kind`, `seq` and `pred` (`shape`) are those of the first readable record, or 0. Raises `BertprepError` for another file.
    """

    def __init__(self, path: Path, name: str, pred: int | None = None) -> None:
        self._name = name
        self._faults: dict[tuple[str, str], Finding] = {}
        super().__init__(path, pred=pred)

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
            done = self._read(range(at, stop) if wanted == len(self) else numbers, buffer)  # a range can be prefetched
            fault = min(done, 0)
            if fault < 0:
                done = int(self._notes[kernel.ROW])
                self._note(fault, int(numbers[done]))
            if done:
                yield buffer if done == rows else buffer[:done], numbers[:done]
            at += done + (fault < 0)

    def _check_table(self, table: Table) -> None:
        if table.damage:
            found = str(table.damage).removeprefix(f"{self.path}: ")
            self._add(Finding("truncated", self._name, "the batches of a whole file", found, table.records))

    def _find_records(self) -> int:
        self.offsets, fault = find_offsets(self._bytes.array, self.format, self._notes)
        found = len(self.offsets) - 1
        rest = self._bytes.array[self.offsets[found] :]
        if fault < 0 and rest.any():
            self._note(fault, found)
        elif fault < 0:
            zeros = f"{rest.size:,} bytes that are all 0"
            self._add(Finding("trailing-bytes", self._name, "the end of the file", zeros, found))
        elif rest.size:
            mean = f"a mean of {int(self.offsets[found]) // found} before it"
            self._add(Finding("bad-message", self._name, f"records of {MIN_RECORD_BYTES} bytes or more", mean, found))
        return found

    def _measure(self) -> Shape:
        for record in range(min(len(self), _TRIES)):
            row = describe_file(self._bytes.array, self.format, self.offsets, int(self.offsets[record]))
            fault, self.kind, counts = measure_record(row, self._notes)
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
        feature = kernel.KNOWN_FEATURES[int(self._notes[kernel.FEATURE])]
        is_float = fault == kernel.WRONG_TYPE and self.kind.feature(feature).dtype == np.float32
        notes = {
            "found": int(self._notes[kernel.FOUND]),
            "expected": int(self._notes[kernel.EXPECTED]),
            "feature": feature,
            "values": "floats" if is_float else "integers",
            "message": "tf.train.Example" if self.format == RecordFormat.TFRECORD else "OFRecord",
        }
        self._add(describe_fault(fault, self._name, record, notes))

    def _add(self, new: Finding) -> None:
        first = self._faults.get((new.code, new.expected))
        self._faults[new.code, new.expected] = replace(first, count=first.count + 1) if first else new


def read_first_records(data_set: DataSet) -> Iterator[FirstRecords]:
    read: Counter[str] = Counter()
    for name, split in data_set.files.items():
        read[split] += 1
        if read[split] > _FIRST_FILES:
            continue
        with contextlib.suppress(BertprepError), RecordScan(data_set.folder / name, name) as scan:
            block = next(scan.intact_blocks(_FIRST_RECORDS), None) if scan.seq else None
            if block:
                yield FirstRecords(split, block[0], scan.knows_pred)


def find_pad(data_set: DataSet, vocabulary: Vocabulary | None, first: Examples | None) -> int:
    """Return the id of padding by vocabulary, manifest, or the first records' most frequent one."""
    if vocabulary:
        return vocabulary.pad
    if data_set.manifest and data_set.manifest.vocabulary:
        return int(data_set.manifest.vocabulary.get("pad", 0))
    return (most_frequent(first.input_ids[first.input_mask == 0]) if first else None) or 0


def most_frequent(tokens: NDArray[np.int32]) -> int | None:
    values, counts = np.unique(tokens, return_counts=True)
    return int(values[np.argmax(counts)]) if len(values) else None

"""Is each of many records an example of a fine-tuning task? What Google's run_squad.py and run_classifier.py write.

A record is [CLS] A [SEP] or [CLS] A [SEP] B [SEP], then padding. SQuAD's always have two segments: the question and a window of
its context, in which an answer is looked for. Task data is small, so whole blocks are compared in NumPy, and only the first
faulty record is examined by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bertprep.check.findings import ERROR, Finding
from bertprep.check.outcome import FileFacts
from bertprep.check.record_checks import FileReport, name_pad, unreadable
from bertprep.check.record_scan import RecordScan
from bertprep.errors import BertprepError
from bertprep.records.examples import (
    ClassificationExamples,
    Examples,
    RegressionExamples,
    Shape,
    SquadEvalExamples,
    SquadExamples,
)
from bertprep.tasks.squad_features import FIRST_UNIQUE_ID

Rows = NDArray[np.bool_]


@dataclass(frozen=True)
class TaskRules:
    """What the records of a split must be; None or -1 where it is unknown."""

    shape: Shape
    tokens: int | None = None  # of the vocabulary
    cls: int = -1
    sep: int = -1
    pad: int = 0
    labels: int | None = None  # classes
    may_be_impossible: bool = True  # SQuAD 2.0 has questions without an answer


@dataclass
class TaskChecker:
    """Checks blocks of the examples of one file; `findings` has one for each kind of fault met so far."""

    name: str
    rules: TaskRules
    unique_ids: list[NDArray[np.int32]] = field(default_factory=list)
    _found: dict[str, Finding] = field(default_factory=dict)

    @property
    def findings(self) -> list[Finding]:
        return list(self._found.values())

    def check(self, examples: Examples, numbers: NDArray[np.int64]) -> None:
        """Check records, numbered `numbers` in their file."""
        self._numbers = numbers
        lengths, is_text = self._check_padding(examples)
        self._check_text(examples, lengths, is_text)
        if isinstance(examples, SquadExamples | SquadEvalExamples):
            self.unique_ids.append(examples.unique_ids.copy())
        if isinstance(examples, SquadExamples):
            self._check_answers(examples, lengths)
        if isinstance(examples, ClassificationExamples | RegressionExamples):
            self._check_labels(examples)

    def _check_padding(self, examples: Examples) -> tuple[NDArray[np.int64], Rows]:
        """(number of tokens of each record before its padding (n,), whether each position holds one of them (n, seq))."""
        is_one = examples.input_mask == 1
        lengths = np.where(is_one.all(axis=1), examples.seq, np.argmin(is_one, axis=1))
        is_text = np.arange(examples.seq) < lengths[:, None]
        self._note_first("padding", "input_mask 1 for the text, then 0 to the end", examples.input_mask, is_text)
        for name, padding in (("input_ids", self.rules.pad), ("segment_ids", 0)):
            values = getattr(examples, name)
            expected = f"{name} {name_pad(padding)} after the text"
            self._note_first("padding", expected, values, np.where(is_text, values, np.int32(padding)))
        is_pad = is_text & (examples.input_ids == self.rules.pad)
        self._note(
            "padding", "no [PAD] within the text", is_pad.any(axis=1), lambda row: f"one at position {_first(is_pad[row])}"
        )
        if self.rules.tokens is not None:
            tokens = self.rules.tokens
            known = np.minimum(examples.input_ids, tokens - 1)
            self._note_first("id-range", f"tokens below {tokens}, the size of the vocabulary", examples.input_ids, known)
        return lengths, is_text

    def _check_text(self, examples: Examples, lengths: NDArray[np.int64], is_text: Rows) -> None:
        """[CLS] first and nowhere else, one [SEP] after each segment, and segments in order."""
        ids, cls, sep = examples.input_ids, self.rules.cls, self.rules.sep
        if cls < 0 or sep < 0:
            return
        self._note("no-cls", f"[CLS], token {cls}, at position 0", ids[:, 0] != cls, lambda row: f"token {ids[row, 0]}")
        more = (ids == cls) & is_text & (np.arange(examples.seq) > 0)
        self._note("no-cls", "[CLS] at position 0 only", more.any(axis=1), lambda row: f"one at position {_first(more[row])}")
        is_sep = (ids == sep) & is_text
        count = is_sep.sum(axis=1)
        is_squad = issubclass(self.rules.shape.kind, SquadExamples | SquadEvalExamples)
        wrong = (count != 2) if is_squad else (count < 1) | (count > 2)
        self._note("separators", "two [SEP]" if is_squad else "one [SEP] or two", wrong, lambda row: f"{count[row]}")
        last = ids[np.arange(len(ids)), np.maximum(lengths - 1, 0)]
        expected = f"[SEP], token {sep}, at the last position of text"
        self._note("separators", expected, (last != sep) & ~wrong, lambda row: f"token {last[row]}")
        first = is_sep.argmax(axis=1)
        segments = (np.arange(examples.seq) > first[:, None]) & is_text
        found = np.where(wrong[:, None], segments, np.where(is_text, examples.segment_ids, 0))
        self._note_first("segments", "segment_ids 0 to the first [SEP], then 1", found, segments)

    def _check_answers(self, examples: SquadExamples, lengths: NDArray[np.int64]) -> None:
        """Positions are in the context or both 0, which they are where there is no answer."""
        start, end, impossible = examples.start_positions, examples.end_positions, examples.is_impossible
        first = (examples.segment_ids == 1).argmax(axis=1)
        none = (start == 0) & (end == 0)

        def positions(row: int) -> str:
            return f"{start[row]} to {end[row]}"

        outside = ~none & ((start < first) | (end >= lengths - 1) | (start > end))
        self._note("answer-positions", "start to end within the context, or both 0", outside, positions)
        self._note("impossible", "is_impossible 0 or 1", impossible >> 1 != 0, lambda row: f"{impossible[row]}")
        self._note("impossible", "positions 0 where is_impossible is 1", (impossible == 1) & ~none, positions)
        if not self.rules.may_be_impossible:
            self._note("impossible", "is_impossible 0, as all of SQuAD 1.1", impossible == 1, lambda _: "1")

    def _check_labels(self, examples: ClassificationExamples | RegressionExamples) -> None:
        labels, real = examples.label_ids, examples.is_real_example
        if isinstance(examples, RegressionExamples):
            wrong = ~np.isfinite(labels) | (labels < 0)
            self._note("label-range", "a finite label of 0 or more", wrong, lambda row: f"{labels[row]}")
        elif self.rules.labels is not None:
            expected = f"label_ids below {self.rules.labels}, the number of labels"
            self._note("label-range", expected, labels >= self.rules.labels, lambda row: f"{labels[row]}")
        self._note("label-range", "is_real_example 0 or 1", real >> 1 != 0, lambda row: f"{real[row]}")

    def _note_first(self, code: str, expected: str, values: NDArray[np.int32], wanted: NDArray[np.int32] | Rows) -> None:
        """A fault of the records with a value that is not the one wanted; the first such value is named."""
        differs = values != wanted

        def first(row: int) -> str:
            position = _first(differs[row])
            return f"{values[row, position]} at position {position}"

        self._note(code, expected, differs.any(axis=1), first)

    def _note(self, code: str, expected: str, bad: Rows, found: Callable[[int], str]) -> None:
        """Count the bad records; the first one's particulars are kept."""
        count = int(np.count_nonzero(bad))
        if not count:
            return
        if known := self._found.get(expected):
            self._found[expected] = replace(known, count=known.count + count)
        else:
            row = _first(bad)
            self._found[expected] = Finding(ERROR, code, self.name, int(self._numbers[row]), expected, found(row), count)


def _first(flags: Rows) -> int:
    return int(np.argmax(flags))


@dataclass(frozen=True)
class TaskReport(FileReport):
    """With the number of the file's first window, -1 where windows have none."""

    first_unique_id: int = -1


def check_task_file(path: Path, name: str, split: str, rules: TaskRules, sample: int | None = None) -> TaskReport:
    """Check one file by itself."""
    size_bytes = path.stat().st_size if path.is_file() else 0
    facts = FileFacts(name, split, 0, size_bytes)
    try:
        scan = RecordScan(path, name)
    except BertprepError as error:
        return TaskReport(facts, "", [unreadable(path, name, size_bytes, error)])
    try:
        facts = FileFacts(name, split, scan.records, size_bytes)
        if scan.seq == 0 or not scan.records:
            return TaskReport(facts, scan.format, scan.findings)
        if scan.shape != rules.shape:
            found, expected = (f"{shape.kind.title} records of {shape.seq} tokens" for shape in (scan.shape, rules.shape))
            other = Finding(ERROR, "mixed-shape", name, 0, f"{expected}, as most have", found)
            return TaskReport(facts, scan.format, [*scan.findings, other])
        checker, read = TaskChecker(name, rules), 0
        for examples, numbers in scan.blocks(sample):
            checker.check(examples, numbers)
            read += len(numbers)
        first, repeated = (-1, []) if sample is not None else _check_order(name, checker.unique_ids)
        return TaskReport(facts, scan.format, [*scan.findings, *checker.findings, *repeated], read=read, first_unique_id=first)
    except BertprepError as error:  # cut short while it was read
        return TaskReport(facts, scan.format, [unreadable(path, name, size_bytes, error)])
    finally:
        scan.close()


def check_unique_ids(reports: list[TaskReport]) -> list[Finding]:
    """Whether the windows of a split are numbered through from `FIRST_UNIQUE_ID`, in whatever order its files are."""
    expected = FIRST_UNIQUE_ID
    whole = [report for report in reports if report.first_unique_id >= 0]
    for report in sorted(whole, key=lambda report: report.first_unique_id):
        if report.first_unique_id != expected:
            found = f"{report.first_unique_id}"
            return [Finding(ERROR, "unique-ids", report.facts.name, 0, f"unique_ids from {expected} on", found)]
        expected += report.facts.records
    return []


def _check_order(name: str, blocks: list[NDArray[np.int32]]) -> tuple[int, list[Finding]]:
    """(the first unique_ids of a file, what is wrong with the others)."""
    if not blocks:
        return -1, []
    numbers = np.concatenate(blocks).astype(np.int64)
    wrong = np.flatnonzero(np.diff(numbers) != 1)
    if not len(wrong):
        return int(numbers[0]), []
    row = int(wrong[0]) + 1
    expected = f"unique_ids that count up, {numbers[row - 1] + 1} here"
    return -1, [Finding(ERROR, "unique-ids", name, row, expected, f"{numbers[row]}", len(wrong))]

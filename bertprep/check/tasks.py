"""Is each of many records an example of a fine-tuning task? What Google's run_squad.py and run_classifier.py write.

A record is [CLS] A [SEP] or [CLS] A [SEP] B [SEP], then padding. SQuAD's always have two segments: the question and a window of
its context, in which an answer is looked for. Task data is small, so whole blocks are compared in NumPy, and only the first
faulty record is examined by itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from bertprep.check.faults import name_pad
from bertprep.check.outcome import Checks, FileReport, FileTask, Finding, Outcome
from bertprep.check.record_scan import FirstRecords, RecordScan, find_pad, scan_file
from bertprep.config import SQUAD_VERSIONS
from bertprep.instances import Vocabulary
from bertprep.records.data_sets import DataSet
from bertprep.records.examples import (
    ClassificationExamples,
    Examples,
    PretrainingExamples,
    RegressionExamples,
    Shape,
    SquadEvalExamples,
    SquadExamples,
)
from bertprep.tasks.squad_features import FIRST_UNIQUE_ID

Rows = NDArray[np.bool_]
Fault = tuple[str, str, Rows, Callable[[int], str]]
"""The code, what was expected, which records have it, and what was found in one of these."""


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


def find_faults(examples: Examples, rules: TaskRules) -> Iterator[Fault]:
    """Yield all kinds of faults, also those that no record has."""
    is_one = examples.input_mask == 1
    lengths = np.where(is_one.all(axis=1), examples.seq, np.argmin(is_one, axis=1))
    is_text = np.arange(examples.seq) < lengths[:, None]
    yield _differ("padding", "input_mask 1 for the text, then 0 to the end", examples.input_mask, is_text)
    for name, padding in (("input_ids", rules.pad), ("segment_ids", 0)):
        values = getattr(examples, name)
        yield _differ("padding", f"{name} {name_pad(padding)} after the text", values, np.where(is_text, values, padding))
    yield _none("padding", "no [PAD] within the text", is_text & (examples.input_ids == rules.pad))
    if rules.tokens is not None:
        expected = f"tokens below {rules.tokens}, the size of the vocabulary"
        yield _differ("id-range", expected, examples.input_ids, np.minimum(examples.input_ids, rules.tokens - 1))
    if rules.cls >= 0 and rules.sep >= 0:
        yield from _text_faults(examples, rules, lengths, is_text)
    if isinstance(examples, SquadExamples):
        yield from _answer_faults(examples, rules, lengths)
    if isinstance(examples, ClassificationExamples | RegressionExamples):
        yield from _label_faults(examples, rules)


def _text_faults(examples: Examples, rules: TaskRules, lengths: NDArray[np.int64], is_text: Rows) -> Iterator[Fault]:
    """Check [CLS] first and nowhere else, one [SEP] after each segment, and segments in order."""
    ids, cls, sep = examples.input_ids, rules.cls, rules.sep
    yield "no-cls", f"[CLS], token {cls}, at position 0", ids[:, 0] != cls, lambda row: f"token {ids[row, 0]}"
    yield _none("no-cls", "[CLS] at position 0 only", (ids == cls) & is_text & (np.arange(examples.seq) > 0))
    is_sep = (ids == sep) & is_text
    count = is_sep.sum(axis=1)
    is_squad = isinstance(examples, SquadExamples | SquadEvalExamples)
    wrong = (count != 2) if is_squad else (count < 1) | (count > 2)
    yield "separators", "two [SEP]" if is_squad else "one [SEP] or two", wrong, lambda row: f"{count[row]}"
    last = ids[np.arange(len(ids)), np.maximum(lengths - 1, 0)]
    expected = f"[SEP], token {sep}, at the last position of text"
    yield "separators", expected, (last != sep) & ~wrong, lambda row: f"token {last[row]}"
    segments = (np.arange(examples.seq) > is_sep.argmax(axis=1)[:, None]) & is_text
    found = np.where(wrong[:, None], segments, np.where(is_text, examples.segment_ids, 0))
    yield _differ("segments", "segment_ids 0 to the first [SEP], then 1", found, segments)


def _answer_faults(examples: SquadExamples, rules: TaskRules, lengths: NDArray[np.int64]) -> Iterator[Fault]:
    """Check that positions are in the context or both 0, which they are where there is no answer."""
    start, end, impossible = examples.start_positions, examples.end_positions, examples.is_impossible
    first = (examples.segment_ids == 1).argmax(axis=1)
    none = (start == 0) & (end == 0)

    def positions(row: int) -> str:
        return f"{start[row]} to {end[row]}"

    outside = ~none & ((start < first) | (end >= lengths - 1) | (start > end))
    yield "answer-positions", "start to end within the context, or both 0", outside, positions
    yield "impossible", "is_impossible 0 or 1", impossible >> 1 != 0, lambda row: f"{impossible[row]}"
    yield "impossible", "positions 0 where is_impossible is 1", (impossible == 1) & ~none, positions
    if not rules.may_be_impossible:
        yield "impossible", "is_impossible 0, as all of SQuAD 1.1", impossible == 1, lambda _: "1"


def _label_faults(examples: ClassificationExamples | RegressionExamples, rules: TaskRules) -> Iterator[Fault]:
    labels, real = examples.label_ids, examples.is_real_example
    if isinstance(examples, RegressionExamples):
        wrong = ~np.isfinite(labels) | (labels < 0)
        yield "label-range", "a finite label of 0 or more", wrong, lambda row: f"{labels[row]}"
    elif rules.labels is not None:
        expected = f"label_ids below {rules.labels}, the number of labels"
        yield "label-range", expected, labels >= rules.labels, lambda row: f"{labels[row]}"
    yield "label-range", "is_real_example 0 or 1", real >> 1 != 0, lambda row: f"{real[row]}"


def _differ(code: str, expected: str, values: NDArray[np.int32], wanted: NDArray[np.int32] | Rows) -> Fault:
    """Return the fault of records with a value that is not the one wanted; the first such value is named."""
    differs = values != wanted
    return (
        code,
        expected,
        differs.any(axis=1),
        lambda row: f"{values[row, _first(differs[row])]} at position {_first(differs[row])}",
    )


def _none(code: str, expected: str, flags: Rows) -> Fault:
    """Return the fault of records with a flag; the first one's position is named."""
    return code, expected, flags.any(axis=1), lambda row: f"one at position {_first(flags[row])}"


def _first(flags: Rows) -> int:
    return int(np.argmax(flags))


@dataclass
class TaskReport(FileReport):
    """With the number of the file's first window, -1 where windows have none."""

    first_unique_id: int = -1


class TaskRecords(Checks[TaskReport]):
    """The checks of one data set; `check_file` runs in workers, the rest where their reports arrive."""

    def __init__(
        self, data_set: DataSet, vocabulary: Vocabulary | None, firsts: Sequence[FirstRecords], *, sample: int | None
    ) -> None:
        self._rules = _rules_by_split(data_set, vocabulary, firsts)
        super().__init__(data_set.files, partial(_check_file, self._rules, sample))

    def judge(self, reports: Sequence[TaskReport], outcome: Outcome) -> list[Finding]:
        _, outcome.seq, outcome.pred = next(iter(self._rules.values())).shape
        findings = [finding for report in reports for finding in report.findings]
        for split in self._rules if not outcome.sampled else ():
            findings += _check_unique_ids([report for report in reports if report.facts.split == split])
        return findings


def _check_file(rules_of: dict[str, TaskRules], sample: int | None, task: FileTask) -> TaskReport:
    rules = rules_of[task.split]

    def check(report: TaskReport, scan: RecordScan) -> None:
        if scan.shape != rules.shape:
            found, expected = (f"{shape.kind.title} records of {shape.seq} tokens" for shape in (scan.shape, rules.shape))
            report.findings.append(Finding("mixed-shape", task.name, f"{expected}, as most have", found, 0))
            return
        findings: dict[str, Finding] = {}
        unique_ids = []
        for examples, numbers in scan.blocks(sample):
            report.read += len(numbers)
            for code, expected, bad, describe in find_faults(examples, rules):
                if bad.any():
                    row = _first(bad)
                    first = Finding(code, task.name, expected, describe(row), int(numbers[row]), 0)
                    first = findings.get(expected, first)
                    findings[expected] = replace(first, count=first.count + int(np.count_nonzero(bad)))
            if isinstance(examples, SquadExamples | SquadEvalExamples):
                unique_ids.append(examples.unique_ids.astype(np.int64))
        report.findings += findings.values()
        if unique_ids and sample is None:
            report.first_unique_id, wrong = _check_order(task.name, np.concatenate(unique_ids))
            report.findings += wrong

    return scan_file(TaskReport, task, check)


def _check_order(name: str, numbers: NDArray[np.int64]) -> tuple[int, list[Finding]]:
    """Return the first unique_ids of a file, and what is wrong with the others."""
    wrong = np.flatnonzero(np.diff(numbers) != 1)
    if not len(wrong):
        return int(numbers[0]), []
    row = int(wrong[0]) + 1
    expected = f"unique_ids that count up, {numbers[row - 1] + 1} here"
    return -1, [Finding("unique-ids", name, expected, f"{numbers[row]}", row, len(wrong))]


def _check_unique_ids(reports: Sequence[TaskReport]) -> list[Finding]:
    """Check that the windows of a split are numbered through from `FIRST_UNIQUE_ID`, in whatever order its files are."""
    expected = FIRST_UNIQUE_ID
    with_ids = [report for report in reports if report.first_unique_id >= 0]
    for report in sorted(with_ids, key=lambda report: report.first_unique_id):
        if report.first_unique_id != expected:
            return [Finding("unique-ids", report.facts.name, f"unique_ids from {expected} on", f"{report.first_unique_id}", 0)]
        expected += report.facts.records
    return []


def _rules_by_split(data_set: DataSet, vocabulary: Vocabulary | None, firsts: Sequence[FirstRecords]) -> dict[str, TaskRules]:
    """Return what the records of each split must be by manifest and vocabulary, or else like most of the first files."""
    made_with = data_set.manifest.made_with if data_set.manifest else {}
    labels = made_with.get("labels")
    shapes = Counter(first.examples.shape for first in firsts)
    rules = {}
    for split in data_set.splits:
        of_split = Counter(first.examples.shape for first in firsts if first.split == split) or shapes
        shape = max(of_split, key=of_split.__getitem__, default=Shape(PretrainingExamples, 0, 0))
        rules[split] = TaskRules(
            shape=shape._replace(seq=made_with["seq"]) if isinstance(made_with.get("seq"), int) else shape,
            tokens=len(vocabulary) if vocabulary else None,
            cls=vocabulary.cls if vocabulary else -1,
            sep=vocabulary.sep if vocabulary else -1,
            pad=find_pad(data_set, vocabulary, firsts[0].examples if firsts else None),
            labels=len(labels) if isinstance(labels, list) and labels else None,
            may_be_impossible=made_with.get("version") != SQUAD_VERSIONS[0],
        )
    return rules

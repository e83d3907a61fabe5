"""Check the features that only fine-tuning records have: answers, labels, ids."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from bertprep.check.counts import Ints
from bertprep.check.finding import Finding
from bertprep.check.outcome import CheckedFile
from bertprep.records.examples import (
    ClassificationExamples,
    Examples,
    RegressionExamples,
    SquadExamples,
    TokenClassificationExamples,
)
from bertprep.tasks.squad_features import FIRST_UNIQUE_ID

Fault = tuple[str, str, NDArray[np.bool_], NDArray[np.generic]]
"""A code, the expected value in words, the flags of the records that have this fault, and the values that were found."""


def find_faults(examples: Examples, numbers: Ints, name: str, *, labels: int | None, squad_2: bool) -> Iterator[Finding]:
    """Yield a finding for each kind of fault in some records of file `name`; `labels` is the number of classes, if known."""
    faults: Iterator[Fault] = iter(())
    if isinstance(examples, SquadExamples):
        faults = _answer_faults(examples, squad_2=squad_2)
    elif isinstance(examples, (ClassificationExamples, RegressionExamples)):
        faults = _label_faults(examples, labels)
    elif isinstance(examples, TokenClassificationExamples):
        faults = _token_label_faults(examples, labels)
    for code, expected, bad, found in faults:
        if bad.any():
            row = int(np.argmax(bad))
            words = " to ".join(map(str, np.atleast_1d(found[row])))
            yield Finding(code, name, expected, words, int(numbers[row]), int(np.count_nonzero(bad)))


def _answer_faults(examples: SquadExamples, *, squad_2: bool) -> Iterator[Fault]:
    start, end, impossible = examples.start_positions, examples.end_positions, examples.is_impossible
    positions, lengths = np.stack([start, end], axis=1), examples.input_mask.sum(axis=1, dtype=np.int64)
    first = (examples.segment_ids == 1).argmax(axis=1)
    none = (start == 0) & (end == 0)
    outside = ~none & ((start < first) | (end >= lengths - 1) | (start > end))
    yield "answer-positions", "start to end within the context, or both 0", outside, positions
    yield "impossible", "is_impossible 0 or 1", ~np.isin(impossible, (0, 1)), impossible
    yield "impossible", "positions 0 where is_impossible is 1", (impossible == 1) & ~none, positions
    if not squad_2:
        yield "impossible", "is_impossible 0, as in all of SQuAD 1.1", impossible == 1, impossible


def _label_faults(examples: ClassificationExamples | RegressionExamples, classes: int | None) -> Iterator[Fault]:
    labels, real = examples.label_ids, examples.is_real_example
    if isinstance(examples, RegressionExamples):
        yield "label-range", "a finite label of 0 or more", ~np.isfinite(labels) | (labels < 0), labels
    elif classes is not None:
        yield "label-range", f"label_ids below {classes}, the number of labels", labels >= classes, labels
    yield "label-range", "is_real_example 0 or 1", ~np.isin(real, (0, 1)), real


def _token_label_faults(examples: TokenClassificationExamples, classes: int | None) -> Iterator[Fault]:
    labels, weights = examples.label_ids, examples.label_weights
    if classes is not None:
        expected = f"label_ids below {classes}, the number of labels"
        yield "label-range", expected, np.any(labels >= classes, axis=1), np.max(labels, axis=1)
    yield "label-range", "label_weights 0 or 1", np.any(~np.isin(weights, (0, 1)), axis=1), np.max(weights, axis=1)
    is_at_padding = (weights > 0) & (examples.input_mask == 0)
    yield "label-range", "no label at padding", np.any(is_at_padding, axis=1), np.max(weights, axis=1)


def check_order(unique_ids: Ints, file: CheckedFile) -> None:
    """Check that the unique_ids of a file count up, and keep the first one."""
    wrong = np.flatnonzero(np.diff(unique_ids) != 1)
    if not len(wrong):
        file.first_unique_id = int(unique_ids[0])
        return
    row = int(wrong[0]) + 1
    expected = f"unique_ids that count up, {unique_ids[row - 1] + 1} here"
    file.add("unique-ids", expected, f"{unique_ids[row]}", row, len(wrong))


def check_first_ids(files: Sequence[CheckedFile]) -> list[Finding]:
    """Check that the windows of a split are numbered from `FIRST_UNIQUE_ID` on, by the first id of each file."""
    expected = FIRST_UNIQUE_ID
    for file in sorted(files, key=lambda file: file.first_unique_id):
        if file.first_unique_id != expected:
            found = f"{file.first_unique_id}"
            return [Finding("unique-ids", file.name, f"unique_ids from {expected} on", found, 0)]
        expected += file.records
    return []

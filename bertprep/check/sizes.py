"""Judge the sizes of files and splits: unlikely sizes are the first sign of wrongly distributed records or documents."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from bertprep.check.finding import WARNING, Finding
from bertprep.check.outcome import CheckedFile
from bertprep.work.layout import TEST, TRAINING

_MIN_FILES, _SIZE_FACTOR = 4, 2.0
_MAX_TEST, _TEST_FACTOR = 1 / 3, 1.5  # above these, documents that stay together do not explain the size of a test split
_MANY_DOCUMENTS = 1000  # with fewer, a few long documents can make a test split large
_FEW = 200  # a test split with fewer records may be any fraction of all records


def judge_file_sizes(files: Iterable[CheckedFile]) -> list[Finding]:
    """Warn about the file of each split that differs most from the others in its number of records, if it differs much."""
    findings = []
    by_split: dict[str, list[CheckedFile]] = {}
    for file in files:
        by_split.setdefault(file.split, []).append(file)
    for of_split in by_split.values():
        if len(of_split) < _MIN_FILES:
            continue
        ordered = sorted(file.records for file in of_split)
        median = (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
        uneven = [file for file in of_split if not median / _SIZE_FACTOR <= file.records <= median * _SIZE_FACTOR]
        if uneven:
            worst = max(uneven, key=lambda file: abs(math.log(max(file.records, 1) / max(median, 1))))
            expected = f"{median / _SIZE_FACTOR:,.0f} to {median * _SIZE_FACTOR:,.0f} records, about as many as the other files"
            more = f"; {len(uneven):,} of {len(of_split):,} files are outside" if len(uneven) > 1 else ""
            findings.append(Finding("file-sizes", worst.name, expected, f"{worst.records:,}{more}", level=WARNING))
    return findings


def judge_split_sizes(
    files: Iterable[CheckedFile], made_with: Mapping[str, Any], documents: int | None = None
) -> list[Finding]:
    """Warn if the test split is far larger than `test_fraction` of all records, or than a third if there are few documents.

    A test split from the user's own test text may be as large as training.
    """
    test_fraction = made_with.get("test_fraction")
    is_given = test_fraction == 0 and bool(made_with.get("test_shards"))
    sizes: dict[str, int] = {}
    for file in files:
        sizes[file.split] = sizes.get(file.split, 0) + file.records
    test, training = sizes.get(TEST, 0), sizes.get(TRAINING)
    if training is None:
        return []
    most = _TEST_FACTOR * (test_fraction or 0.0) * (test + training)
    if not test_fraction or (documents or 0) < _MANY_DOCUMENTS:
        most = max(most, _MAX_TEST * (test + training))
    if is_given:
        most = training
    if test <= (training if test < _FEW else min(most, training)):
        return []
    is_known = test_fraction is not None and not is_given
    why = f"as --test-fraction {test_fraction:g} gives" if is_known else "since the test split is the smaller one"
    expected = f"at most about {most:,.0f} of the {test + training:,} records, {why}"
    return [Finding("split-sizes", TEST, expected, f"{test:,}", level=WARNING)]

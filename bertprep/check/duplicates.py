"""Records that came before: within a file, in another, and of the test split in the training split.

All features of a record are in its hash of 128 bits, as values, so that the formats do not matter. Each round of the
generator masks a text anew; a repeated record of many predictions therefore tells that a file was written twice, or made twice
with the same seed. Only very short texts give the same record again by chance: their records are not unmistakable, as the
hash's lowest bit says. Costs 16 bytes a record, and 24 more while they are sorted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bertprep.check.findings import ERROR, WARNING, Finding
from bertprep.layout import TEST

ACROSS = "across"
_ALL_WARNING, _ALL_ERROR = 0.005, 0.05
_CERTAIN_ERROR = 0.0001
_ACROSS_WARNING, _ACROSS_ERROR = 0.0001, 0.01


@dataclass(frozen=True)
class HashedFile:
    """The hashes of a file's records, (n, 2), in their order."""

    name: str
    split: str
    hashes: NDArray[np.uint64]


@dataclass(frozen=True)
class _Repeats:
    """Records that equal an earlier one: numbers over all files in their order, each with that of the first of its kind."""

    records: NDArray[np.int64]
    firsts: NDArray[np.int64]
    certain: NDArray[np.bool_]


def find_identical_files(files: Sequence[HashedFile]) -> list[Finding]:
    """Files that hold the same records, in whatever order."""
    seen: dict[tuple[int, int, int], str] = {}
    findings = []
    for file in files:
        if not len(file.hashes):
            continue
        first, second = np.sum(file.hashes, axis=0, dtype=np.uint64)  # modulo 2**64
        name = seen.setdefault((len(file.hashes), int(first), int(second)), file.name)
        if name != file.name:
            found = f"the same {len(file.hashes):,} records as in {name}"
            findings.append(Finding(ERROR, "identical-files", file.name, None, "records of its own", found))
    return findings


def find_duplicates(files: Sequence[HashedFile]) -> tuple[list[Finding], dict[str, int]]:
    """The findings, and how many records repeat an earlier one: by split, and in the test split of training under "across".

    `files` come with the training split first. The rule, of the records of a split: any repeated one that is unmistakable is a
    warning, and more than 0.01 % of them an error; of all, more than 0.5 % is a warning and more than 5 % an error. Of test
    records that are in the training split any unmistakable one is an error; of all, more than 0.01 % a warning, 1 % an error.
    """
    starts = np.cumsum([0, *(len(file.hashes) for file in files)])
    repeats = _find_repeats(files, int(starts[-1]))
    file_of = np.searchsorted(starts, repeats.records, side="right") - 1
    file_of_first = np.searchsorted(starts, repeats.firsts, side="right") - 1
    splits = np.array([file.split for file in files])
    findings, counts = [], {}
    for split in dict.fromkeys(file.split for file in files):
        size = sum(len(file.hashes) for file in files if file.split == split)
        within = (splits[file_of] == split) & (splits[file_of_first] == split)
        crossing = (splits[file_of] == split) & (splits[file_of_first] != split)
        # of several test records that equal one in training, all but the first repeat each other as well
        again = np.unique(repeats.firsts[crossing], return_index=True)[1]
        counts[split] = int(within.sum()) + int(crossing.sum()) - len(again)
        rules = [(within, "duplicate-records", _ALL_WARNING, _ALL_ERROR, _CERTAIN_ERROR, "no record twice", "came before")]
        if split == TEST:
            counts[ACROSS] = int(crossing.sum())
            expected, what = "no test record in training", "are in training too"
            rules.append((crossing, "test-in-training", _ACROSS_WARNING, _ACROSS_ERROR, 0.0, expected, what))
        for chosen, code, warning, error, certain_error, expected, what in rules:
            count = int(chosen.sum())
            certain = int((chosen & repeats.certain).sum())
            is_error = count > error * size or certain > certain_error * size
            if not (is_error or certain or count > warning * size):
                continue
            example = int(np.flatnonzero(chosen & repeats.certain if certain else chosen)[0])
            number, first = int(file_of[example]), int(file_of_first[example])
            record = int(repeats.records[example] - starts[number])
            origin = f"{files[first].name}, record {repeats.firsts[example] - starts[first]:,}"
            found = f"{count:,} of {size:,} that {what} ({count / size:.2%}), this one is {origin}"
            level = ERROR if is_error else WARNING
            findings.append(Finding(level, code, files[number].name, record, expected, found, count))
    return findings, counts


def _find_repeats(files: Sequence[HashedFile], total: int) -> _Repeats:
    first = np.empty(total, np.uint64)
    at = 0
    for file in files:
        first[at : at + len(file.hashes)] = file.hashes[:, 0]
        at += len(file.hashes)
    order = np.argsort(first, kind="stable")  # so that of equal ones the earliest comes first
    first = first[order]
    candidates = np.flatnonzero(first[1:] == first[:-1]) + 1
    del first
    if not len(candidates):
        return _Repeats(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.bool_))
    second = np.concatenate([file.hashes[:, 1] for file in files])
    # The first halves differ for different records but once in 2**49 pairs; the second halves decide
    candidates = candidates[second[order[candidates]] == second[order[candidates - 1]]]
    # a run of equal records is candidates that follow each other; its first member stands just before the run
    is_start = np.diff(candidates, prepend=-1) != 1
    run = np.cumsum(is_start) - 1
    firsts = order[candidates[is_start] - 1][run]
    records = order[candidates]
    by_number = np.argsort(records)
    records, firsts = records[by_number], firsts[by_number]
    return _Repeats(records, firsts, (second[records] & np.uint64(1)).astype(np.bool_))

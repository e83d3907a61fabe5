"""Repeated records: within a file, across files, and across splits; also under other masks.

A record has two hashes, of its text and of all values. More equal ones than by chance mean that a file or a seed was used
twice. Costs 16 bytes a record, and 24 more while sorting.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bertprep.check.outcome import ERROR, WARNING, Finding, Ints
from bertprep.check.statistics import minus_log_limit, minus_log_p
from bertprep.terminal import counted
from bertprep.work.layout import TEST

ACROSS = "across"
_MANY = 0.0001
"""Fraction of a split's records, beyond those repeated by chance, above which repeats are an error."""
_TEXTS_WARNING, _TEXTS_ERROR = 0.01, 0.1
"""Fractions of a file's records whose texts another file has under other masks: warning and error."""
_ACROSS_WARNING, _ACROSS_ERROR = 0.001, 0.01
"""Fractions of the test records whose texts training has under other masks: warning and error."""
_REPEATS_ELSEWHERE, _TEXTS_BY_CHANCE = 4, 30
_SMALL_CHANCE = 2.0**-32  # of a record that is preferred as an example
_CHOICES = np.uint64(63)  # the bits of a record's second hash that hold log2 of its possible choices
_CERTAIN_TEXT = np.uint64(1)  # the bit of the first hash that is set if equal texts cannot be chance

Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class HashedFile:
    """The hashes of a file's records, (n, 2), in their order."""

    name: str
    split: str
    hashes: NDArray[np.uint64]


class _SameTexts:
    """Records whose text repeats, in order of text, then values; ids count over all files."""

    def __init__(self, files: Sequence[HashedFile]) -> None:
        self.files, self.starts = files, np.cumsum([0, *(len(file.hashes) for file in files)])
        texts = np.concatenate([np.empty(0, np.uint64), *(file.hashes[:, 0] for file in files)])
        order = np.argsort(texts, kind="stable")
        is_next = np.diff(texts[order]) == 0
        ids = np.unique(np.concatenate([order[:-1][is_next], order[1:][is_next]]))
        del texts, order, is_next
        ends = np.searchsorted(ids, self.starts)
        of_files = [
            file.hashes[ids[a:b] - start] for file, start, a, b in zip(files, self.starts, ends, ends[1:], strict=False)
        ]
        hashes = np.concatenate([np.empty((0, 2), np.uint64), *of_files])
        by_values = np.lexsort((hashes[:, 1], hashes[:, 0]))  # stable: of equal records the earliest comes first
        self.ids, hashes = ids[by_values], hashes[by_values]
        self.file = self.file_of(self.ids)
        is_text = np.diff(hashes[:, 0], prepend=~hashes[:1, 0]) != 0
        is_value = is_text | (np.diff(hashes[:, 1], prepend=~hashes[:1, 1]) != 0)
        starts = np.flatnonzero(is_text)
        self.text = np.cumsum(is_text) - 1
        self.first = self.ids[np.flatnonzero(is_value)][np.cumsum(is_value) - 1]  # with equal values, maybe the record itself
        self.first_of_text = (np.minimum.reduceat(self.ids, starts) if len(starts) else self.ids)[self.text]
        self.is_certain: Flags = (hashes[:, 0] & _CERTAIN_TEXT) > 0
        self.chance = np.exp2(-(hashes[:, 1] & _CHOICES).astype(np.float64))  # to have the masks of another of its text
        self.by_chance = np.minimum((np.arange(len(self.ids)) - starts[self.text]) * self.chance, 1.0)  # of one before it

    def file_of(self, ids: Ints) -> Ints:
        files: Ints = np.searchsorted(self.starts, ids, side="right") - 1
        return files

    def finding(self, code: str, level: str, at: int, origin: int, count: int, expected: str, found: str) -> Finding:
        """Return a finding at a record, whose origin replaces the {} of `found`."""
        own, other = self.file_of(np.array([self.ids[at], origin])).tolist()
        where = f"{self.files[other].name}, record {origin - int(self.starts[other]):,}"
        record = int(self.ids[at] - self.starts[own])
        return Finding(code, self.files[own].name, expected, found.format(where), record, count, level)


def find_identical_files(files: Sequence[HashedFile]) -> list[Finding]:
    """Return a finding for each file with the records of an earlier one, in any order."""
    seen: dict[tuple[int, int, int], str] = {}
    findings = []
    for file in files:
        first, second = file.hashes.sum(0, dtype=np.uint64).tolist()  # modulo 2**64
        name = seen.setdefault((len(file.hashes), first, second), file.name)
        if name != file.name and len(file.hashes):
            found = f"the same {counted(len(file.hashes), 'record')} as in {name}"
            findings.append(Finding("identical-files", file.name, "records of its own", found))
    return findings


def find_duplicates(files: Sequence[HashedFile]) -> tuple[list[Finding], dict[str, int]]:
    """Return the findings, and the number of records that repeat an earlier one, by split.

    "across" counts test records found in training; `files` lists training first. docs/validation.md has the limits.
    """
    splits = list(dict.fromkeys(file.split for file in files))
    same = _SameTexts(files)
    split_of = np.array([splits.index(file.split) for file in files], np.int64)
    split, split_of_first = split_of[same.file], split_of[same.file_of(same.first)]
    is_repeat = same.first != same.ids
    findings, counts = [], {}
    for number, name in enumerate(splits):
        size = sum(len(file.hashes) for file in files if file.split == name)
        is_here = split == number
        within, crossing = is_here & is_repeat & (split_of_first == number), is_here & (split_of_first != number)
        # of several test records equal to one in training, all but the first also repeat each other
        counts[name] = int(within.sum()) + int(crossing.sum()) - len(np.unique(same.first[crossing]))
        rules = [(within, "duplicate-records", _MANY, "no record twice", "repeat an earlier one")]
        if name == TEST:
            counts[ACROSS] = int(crossing.sum())
            rules.append((crossing, "test-in-training", 0.0, "no test record in training", "are in training too"))
        by_chance = float(same.by_chance[is_here].sum())
        for is_chosen, code, many, expected, what in rules:
            chosen = np.flatnonzero(is_chosen)
            count = len(chosen)
            if count <= by_chance or minus_log_p(count, size, by_chance) <= minus_log_limit(1):
                continue
            rare = chosen[same.chance[chosen] <= max(_SMALL_CHANCE, float(np.min(same.chance[chosen])))]
            at = rare[np.argmin(same.ids[rare])]
            found = f"{count:,} of {size:,} that {what} ({count / size:.2%}), this one is {{}}"
            level = ERROR if count - by_chance > many * size else WARNING
            findings.append(same.finding(code, level, at, same.first[at], count, expected, found))
        if name == TEST:
            is_known = split_of[same.file_of(same.first_of_text)] < number
            findings += _judge_test_texts(same, is_here & same.is_certain & ~is_repeat & is_known, size)
    return [*findings, *_judge_texts_of_files(same, split, ~is_repeat)], counts


def _judge_test_texts(same: _SameTexts, is_chosen: Flags, size: int) -> list[Finding]:
    chosen = np.flatnonzero(is_chosen)
    count = len(chosen)
    if count <= _ACROSS_WARNING * size:
        return []
    at = chosen[np.argmin(same.ids[chosen])]
    found = f"{count:,} of {size:,} that are there ({count / size:.2%}), this one is {{}}"
    level = ERROR if count > _ACROSS_ERROR * size else WARNING
    expected = "no text of a test record in training, under any masks"
    return [same.finding("test-text-in-training", level, at, same.first_of_text[at], count, expected, found)]


def _judge_texts_of_files(same: _SameTexts, split: Ints, is_own: Flags) -> list[Finding]:
    """Judge files with the texts of another under other masks; rounds of one run, and distributed records, repeat within files
    too.
    """
    chosen = np.flatnonzero(same.is_certain & is_own)
    chosen = chosen[np.lexsort((same.ids[chosen], same.text[chosen]))]
    text, file = same.text[chosen], same.file[chosen]
    is_again = np.diff(text, prepend=-1) == 0
    twice = np.bincount(file[is_again & (np.diff(file, prepend=-1) == 0)], minlength=len(same.files))
    first = chosen[np.maximum.accumulate(np.where(is_again, 0, np.arange(len(chosen))))]
    is_other = (file != same.file[first]) & (split[chosen] == split[first])
    pairs, at, counts = np.unique(
        np.stack([file, same.file[first]])[:, is_other], axis=1, return_index=True, return_counts=True
    )
    worst: dict[int, tuple[int, int]] = {}  # of a file: how many texts of which other one
    for b, index, count in zip(pairs[0].tolist(), at.tolist(), counts.tolist(), strict=True):
        least = max(_TEXTS_WARNING * len(same.files[b].hashes), _REPEATS_ELSEWHERE * twice[b] + _TEXTS_BY_CHANCE)
        if count > max(least, worst.get(b, (0, 0))[0]):
            worst[b] = count, int(np.flatnonzero(is_other)[index])
    findings = []
    for b, (count, at_first) in worst.items():
        size, origin = len(same.files[b].hashes), int(same.ids[first[at_first]])
        other = same.files[same.file[first[at_first]]].name
        found = f"{count:,} of {size:,} ({count / size:.1%}) with the text of one in {other}, this one of {{}}"
        level = ERROR if count > _TEXTS_ERROR * size else WARNING
        findings.append(same.finding("repeated-texts", level, chosen[at_first], origin, count, "texts of its own", found))
    return findings

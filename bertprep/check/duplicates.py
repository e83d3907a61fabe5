"""Repeated records: within a file, across files, and across the training and test splits; also under other masks.

A record has two hashes, one of its text and one of all its values, so both formats compare equal. Each round of the generator
masks a text again, so texts repeat, more often in short documents. How often a text gets the same masks by chance is known,
because a record's hash includes the number of possible choices. A larger number means that a file was written twice, or made
twice with the same seed. Costs 16 bytes a record, and 24 more while sorting.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bertprep.check.expectations import minus_log_limit, minus_log_p
from bertprep.check.outcome import ERROR, WARNING, Counts, Finding
from bertprep.terminal import counted
from bertprep.text.documents import repeated_rows
from bertprep.workspace.layout import TEST

ACROSS = "across"
_MANY = 0.0001
"""Fraction of a split's records, beyond those repeated by chance, above which repeats are an error."""
_TEXTS_WARNING, _TEXTS_ERROR = 0.01, 0.1
"""Fractions of a file's records whose texts another file has under other masks: warning and error."""
_ACROSS_WARNING, _ACROSS_ERROR = 0.001, 0.01
"""Fractions of the test records whose texts training has under other masks: warning and error."""
_TEXTS_BY_CHANCE = 30
_SMALL_CHANCE = 2.0**-32  # tokens of a record that is preferred as an example
_CHOICES = np.uint64(63)  # the bits of a record's second hash that hold log2 of its possible choices
_CERTAIN_TEXT = np.uint64(1)  # the bit of the first hash that is set if equal texts cannot be chance

Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class HashedFile:
    """The hashes of a file's records, (n, 2), in their order."""

    name: str
    split: str
    hashes: NDArray[np.uint64]


@dataclass(frozen=True)
class _SameTexts:
    """Records whose text occurs more than once, sorted by text and then by number, counted over all files."""

    files: Sequence[HashedFile]
    starts: Counts  # (files + 1,) the number of each file's first record
    records: Counts
    hashes: NDArray[np.uint64]  # (m, 2)
    file: Counts
    split: Counts  # in the order in which the files have them
    first: Counts  # the index of the first record with equal values, which may be this one

    @property
    def is_repeat(self) -> Flags:
        repeats: Flags = self.first != np.arange(len(self.first))
        return repeats

    @property
    def is_certain(self) -> Flags:
        """Whether equal texts cannot be chance."""
        certain: Flags = (self.hashes[:, 0] & _CERTAIN_TEXT) > 0
        return certain

    @property
    def chance(self) -> NDArray[np.float64]:
        """The probability that a record has the same masks as another of its text."""
        chance: NDArray[np.float64] = np.exp2(-(self.hashes[:, 1] & _CHOICES).astype(np.float64))
        return chance

    def count_before(self, is_member: Flags) -> Counts:
        """For each record, how many earlier members have its text."""
        before = np.cumsum(is_member) - is_member
        is_start = np.ones(len(self.records), np.bool_)
        is_start[1:] = self.hashes[1:, 0] != self.hashes[:-1, 0]
        of_text: Counts = before - before[is_start][np.cumsum(is_start) - 1]
        return of_text

    def locate(self, index: int, origin: int) -> tuple[str, int, str]:
        """The file of a record and its number in it, and a description of the one that it repeats."""
        names = [self.files[file].name for file in self.file[[index, origin]]]
        numbers = (self.records - self.starts[self.file])[[index, origin]]
        return names[0], int(numbers[0]), f"{names[1]}, record {numbers[1]:,}"


def find_identical_files(files: Sequence[HashedFile]) -> list[Finding]:
    """Files that hold the same records, in any order."""
    seen: dict[tuple[int, int, int], str] = {}
    findings = []
    for file in files:
        if not len(file.hashes):
            continue
        first, second = np.sum(file.hashes, axis=0, dtype=np.uint64)  # modulo 2**64
        name = seen.setdefault((len(file.hashes), int(first), int(second)), file.name)
        if name != file.name:
            found = f"the same {counted(len(file.hashes), 'record')} as in {name}"
            findings.append(Finding(ERROR, "identical-files", file.name, None, "records of its own", found))
    return findings


def find_duplicates(files: Sequence[HashedFile]) -> tuple[list[Finding], dict[str, int]]:
    """The findings, and the number of records that repeat an earlier one, by split; "across" is test records found in training.

    `files` lists the training split first. More repeats in a split than chance explains are a warning, and an error if the
    excess is above 0.01 % of its records; in the test split, any excess of records found in training is an error.
    """
    splits = list(dict.fromkeys(file.split for file in files))
    same = _find_same_texts(files, np.array([splits.index(file.split) for file in files], np.int64))
    findings, counts = [], {}
    for number, split in enumerate(splits):
        size = sum(len(file.hashes) for file in files if file.split == split)
        is_here = same.split == number
        is_within = same.split[same.first] == number
        within, crossing = same.is_repeat & is_here & is_within, same.is_repeat & is_here & ~is_within
        # of several test records equal to one in training, all but the first also repeat each other
        counts[split] = int(within.sum()) + int(crossing.sum()) - len(np.unique(same.first[crossing]))
        rules = [(within, is_here, "duplicate-records", _MANY, "no record twice", "repeat an earlier one")]
        if split == TEST:
            counts[ACROSS] = int(crossing.sum())
            expected, what = "no test record in training", "are in training too"
            rules.append((crossing, same.split < number, "test-in-training", 0.0, expected, what))
        for is_chosen, others, code, many, expected, what in rules:
            by_chance = float(np.minimum(same.count_before(others) * same.chance, 1.0)[is_here].sum())
            chosen = np.flatnonzero(is_chosen)
            count = len(chosen)
            if count <= by_chance or minus_log_p(count, size, by_chance) <= minus_log_limit(1):
                continue
            rare = chosen[same.chance[chosen] <= max(_SMALL_CHANCE, float(np.min(same.chance[chosen])))]
            example = rare[np.argmin(same.records[rare])]
            file, record, origin = same.locate(example, same.first[example])
            found = f"{count:,} of {size:,} that {what} ({count / size:.2%}), this one is {origin}"
            level = ERROR if count - by_chance > many * size else WARNING
            findings.append(Finding(level, code, file, record, expected, found, count))
        if split == TEST:
            findings += _judge_texts_across(same, number, size)
    return [*findings, *_judge_texts_of_files(same)], counts


def _judge_texts_across(same: _SameTexts, test: int, size: int) -> list[Finding]:
    """Test records whose text is in training under other masks: above 0.1 % a warning, above 1 % an error."""
    is_earlier = same.count_before(same.split < test) > 0
    chosen = np.flatnonzero((same.split == test) & same.is_certain & ~same.is_repeat & is_earlier)
    count = len(chosen)
    if count <= _ACROSS_WARNING * size:
        return []
    example = chosen[np.argmin(same.records[chosen])]
    first_of_text = example - same.count_before(np.ones(len(same.records), np.bool_))[example]
    file, record, origin = same.locate(example, first_of_text)
    expected = "no text of a test record in training, under any masks"
    found = f"{count:,} of {size:,} that are there ({count / size:.2%}), this one is {origin}"
    level = ERROR if count > _ACROSS_ERROR * size else WARNING
    return [Finding(level, "test-text-in-training", file, record, expected, found, count)]


def _judge_texts_of_files(same: _SameTexts) -> list[Finding]:
    """Files that have the texts of another under other masks: a warning above 1 % of the later file, an error above 10 %.

    Rounds of one run repeat texts within a file, or in any file if records were dealt: then two equal texts are in two files no
    more often than in one of them. A shard that occurs twice has few texts twice itself, and most of them in the other file.
    """
    chosen = np.flatnonzero(same.is_certain & ~same.is_repeat)
    here, after = chosen[:-1], chosen[1:]
    is_pair = (same.hashes[here, 0] == same.hashes[after, 0]) & (same.split[here] == same.split[after])
    here, after = here[is_pair], after[is_pair]
    first, second = same.file[here], same.file[after]
    inside = np.bincount(first[first == second], minlength=len(same.files))
    pairs, counts = np.unique(np.stack([second, first])[:, first != second], axis=1, return_counts=True)
    worst: dict[int, tuple[int, int]] = {}
    for b, a, count in zip(*pairs.tolist(), counts.tolist(), strict=True):
        is_dealt = count <= 2 * (inside[a] + inside[b]) + _TEXTS_BY_CHANCE
        if not is_dealt and count > max(_TEXTS_WARNING * len(same.files[b].hashes), worst.get(b, (0, 0))[0]):
            worst[b] = count, a
    findings = []
    for b, (count, a) in worst.items():
        example = int(np.flatnonzero((first == a) & (second == b))[0])
        file, record, origin = same.locate(after[example], here[example])
        size, other = len(same.files[b].hashes), same.files[a].name
        found = f"{count:,} of {size:,} ({count / size:.1%}) with the text of one in {other}, this one of {origin}"
        level = ERROR if count > _TEXTS_ERROR * size else WARNING
        findings.append(Finding(level, "repeated-texts", file, record, "texts of its own", found, count))
    return findings


def _find_same_texts(files: Sequence[HashedFile], splits: Counts) -> _SameTexts:
    starts = np.cumsum([0, *(len(file.hashes) for file in files)])
    texts = np.empty(int(starts[-1]), np.uint64)
    for file, start in zip(files, starts[:-1].tolist(), strict=True):
        texts[start : start + len(file.hashes)] = file.hashes[:, 0]
    order = np.argsort(texts, kind="stable")
    texts = texts[order]
    is_next = texts[1:] == texts[:-1]
    records = np.unique(np.concatenate([order[:-1][is_next], order[1:][is_next]]))
    del texts, order, is_next
    ends = np.searchsorted(records, starts)
    of_files = [file.hashes[records[a:b] - start] for file, start, a, b in zip(files, starts, ends, ends[1:], strict=False)]
    hashes = np.concatenate([np.empty((0, 2), np.uint64), *of_files])
    by_text = np.argsort(hashes[:, 0], kind="stable")  # stable: the earliest of equal ones comes first
    records, hashes = records[by_text], hashes[by_text]
    file_of = np.searchsorted(starts, records, side="right") - 1
    first = np.arange(len(records))
    repeats, origins = repeated_rows(hashes)
    first[repeats] = origins
    return _SameTexts(files, starts, records, hashes, file_of, splits[file_of], first)

"""Repeated records: within a file, across files, and across the training and test splits; also under other masks.

A record has two hashes, one of its text and one of all its values, so both formats compare equal. Each round of the generator
masks a text again, so texts repeat, more often in short documents. How often a text gets the same masks by chance is known,
because a record's hash includes the number of possible choices. A larger number means that a file was written twice, or made
twice with the same seed. Under other masks, rounds of one run repeat texts within a file, or in any file if records were dealt.
A shard that occurs twice puts each text once in either file, whereas dealing leaves half of the pairs of equal texts in one
file. Costs 16 bytes a record, and 24 more while sorting.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bertprep.check.expectations import limit_of_surprise, surprise
from bertprep.check.findings import ERROR, WARNING, Finding
from bertprep.workspace.layout import TEST

ACROSS = "across"
_MANY = 0.0001
"""Fraction of a split's records, beyond those repeated by chance, above which repeats are an error."""
_TEXTS_WARNING, _TEXTS_ERROR = 0.01, 0.1
"""Fractions of a file's records whose texts another file has under other masks: warning and error."""
_ACROSS_WARNING, _ACROSS_ERROR = 0.001, 0.01
"""Fractions of the test records whose texts training has under other masks: warning and error."""
_SMALL_CHANCE = 2.0**-32  # tokens of a record that is preferred as an example
_CHOICES = np.uint64(63)  # the bits of a record's second hash that hold log2 of its possible choices
_CERTAIN_TEXT = np.uint64(1)  # the bit of the first hash that is set if equal texts cannot be chance


@dataclass(frozen=True)
class HashedFile:
    """The hashes of a file's records, (n, 2), in their order."""

    name: str
    split: str
    hashes: NDArray[np.uint64]


@dataclass(frozen=True)
class _SameTexts:
    """Records whose text occurs more than once, sorted by text and then by number, counted over all files."""

    records: NDArray[np.int64]
    text: NDArray[np.int64]  # record number, from 0
    is_certain: NDArray[np.bool_]  # equal texts cannot be chance
    chance: NDArray[np.float64]  # the probability that it has the same masks as another record of its text
    file: NDArray[np.int64]
    split: NDArray[np.int64]
    firsts: NDArray[np.int64]  # the first record with equal values, which may be this one
    split_of_first: NDArray[np.int64]

    @property
    def is_repeat(self) -> NDArray[np.bool_]:
        repeats: NDArray[np.bool_] = self.firsts != self.records
        return repeats

    def count_before(self, is_member: NDArray[np.bool_]) -> NDArray[np.int64]:
        """For each record, how many earlier members have its text."""
        before = np.cumsum(is_member) - is_member
        is_start = np.diff(self.text, prepend=-1) != 0
        of_text: NDArray[np.int64] = before - before[is_start][self.text]
        return of_text


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
            found = f"the same {len(file.hashes):,} records as in {name}"
            findings.append(Finding(ERROR, "identical-files", file.name, None, "records of its own", found))
    return findings


def find_duplicates(files: Sequence[HashedFile]) -> tuple[list[Finding], dict[str, int]]:
    """The findings, and the number of records that repeat an earlier one, by split; "across" is test records found in training.

    `files` lists the training split first. More repeats in a split than chance explains are a warning, and an error if the
    excess is above 0.01 % of its records; in the test split, any excess of records found in training is an error.
    """
    starts = np.cumsum([0, *(len(file.hashes) for file in files)])
    splits = list(dict.fromkeys(file.split for file in files))
    same = _find_same_texts(files, starts, np.array([splits.index(file.split) for file in files], np.int64))
    findings, counts = [], {}
    for number, split in enumerate(splits):
        size = sum(len(file.hashes) for file in files if file.split == split)
        is_here = same.split == number
        within = same.is_repeat & is_here & (same.split_of_first == number)
        crossing = same.is_repeat & is_here & (same.split_of_first != number)
        # of several test records equal to one in training, all but the first also repeat each other
        counts[split] = int(within.sum()) + int(crossing.sum()) - len(np.unique(same.firsts[crossing]))
        rules = [(within, is_here, "duplicate-records", _MANY, "no record twice", "repeat an earlier one")]
        if split == TEST:
            counts[ACROSS] = int(crossing.sum())
            expected, what = "no test record in training", "are in training too"
            rules.append((crossing, same.split < number, "test-in-training", 0.0, expected, what))
        for repeats, others, code, many, expected, what in rules:
            by_chance = float(np.minimum(same.count_before(others) * same.chance, 1.0)[is_here].sum())
            count = int(repeats.sum())
            if count <= by_chance or surprise(count, size, by_chance) <= limit_of_surprise(1):
                continue
            chosen = np.flatnonzero(repeats)
            chosen = chosen[same.chance[chosen] <= max(_SMALL_CHANCE, float(np.min(same.chance[chosen])))]
            example = chosen[np.argmin(same.records[chosen])]
            file, record, origin = _name(files, starts, same.records[example], same.firsts[example])
            found = f"{count:,} of {size:,} that {what} ({count / size:.2%}), this one is {origin}"
            level = ERROR if count - by_chance > many * size else WARNING
            findings.append(Finding(level, code, file, record, expected, found, count))
        if split == TEST:
            findings += _judge_texts_across(files, starts, same, number, size)
    return [*findings, *_judge_texts_of_files(files, starts, same)], counts


def _judge_texts_across(
    files: Sequence[HashedFile], starts: NDArray[np.int64], same: _SameTexts, test: int, size: int
) -> list[Finding]:
    """Test records whose text is in training under other masks: above 0.1 % a warning, above 1 % an error."""
    earlier = same.count_before(same.split < test)
    chosen = np.flatnonzero((same.split == test) & same.is_certain & ~same.is_repeat & (earlier > 0))
    if len(chosen) <= _ACROSS_WARNING * size:
        return []
    example = chosen[np.argmin(same.records[chosen])]
    origin_at = example - same.count_before(np.ones(len(same.text), np.bool_))[example]
    file, record, origin = _name(files, starts, same.records[example], same.records[origin_at])
    expected = "no text of a test record in training, under any masks"
    found = f"{len(chosen):,} of {size:,} that are there ({len(chosen) / size:.2%}), this one is {origin}"
    level = ERROR if len(chosen) > _ACROSS_ERROR * size else WARNING
    return [Finding(level, "test-text-in-training", file, record, expected, found, len(chosen))]


def _judge_texts_of_files(files: Sequence[HashedFile], starts: NDArray[np.int64], same: _SameTexts) -> list[Finding]:
    """Pairs of files with more texts in common than dealing gives: a warning above 1 % of the later file, an error above 10 %.

    If two equal texts are dealt over two files, they land in different files with a probability of about one half; if each file
    is a shard of its own, both are in the same file. So the texts in common are compared with those that one file has twice.
    """
    chosen = np.flatnonzero(same.is_certain & ~same.is_repeat)
    here, after = chosen[:-1], chosen[1:]
    is_pair = (same.text[here] == same.text[after]) & (same.split[here] == same.split[after])
    here, after = here[is_pair], after[is_pair]
    first, second = same.file[here], same.file[after]
    inside = np.bincount(first[first == second], minlength=len(files))
    codes, counts = np.unique((first * len(files) + second)[first != second], return_counts=True)
    worst: dict[int, tuple[int, int]] = {}
    for code, count in zip(codes.tolist(), counts.tolist(), strict=True):
        a, b = divmod(code, len(files))
        of_a, of_b = len(files[a].hashes), len(files[b].hashes)
        pairs = count + int(inside[a] + inside[b])
        dealt = pairs * 2 * of_a * of_b / ((of_a + of_b) * (of_a + of_b - 1))
        unlikely = count > dealt and surprise(count, pairs, dealt) > limit_of_surprise(len(files) * (len(files) - 1) // 2)
        if unlikely and count > max(_TEXTS_WARNING * of_b, worst.get(b, (0, 0))[0]):
            worst[b] = count, a
    findings = []
    for b, (count, a) in sorted(worst.items()):
        example = int(np.flatnonzero((first == a) & (second == b))[0])
        file, record, origin = _name(files, starts, same.records[after[example]], same.records[here[example]])
        fraction = count / len(files[b].hashes)
        found = (
            f"{count:,} of {len(files[b].hashes):,} ({fraction:.1%}) with the text of one in {files[a].name}, "
            f"this one of {origin}"
        )
        level = ERROR if fraction > _TEXTS_ERROR else WARNING
        findings.append(Finding(level, "repeated-texts", file, record, "texts of its own", found, count))
    return findings


def _name(files: Sequence[HashedFile], starts: NDArray[np.int64], number: np.int64, origin: np.int64) -> tuple[str, int, str]:
    """A record's file and its number in it, and a description of the record that it repeats."""
    file, before = np.searchsorted(starts, [number, origin], side="right") - 1
    return files[file].name, int(number - starts[file]), f"{files[before].name}, record {origin - starts[before]:,}"


def _find_same_texts(files: Sequence[HashedFile], starts: NDArray[np.int64], splits: NDArray[np.int64]) -> _SameTexts:
    first = np.empty(int(starts[-1]), np.uint64)
    for file, start in zip(files, starts[:-1].tolist(), strict=True):
        first[start : start + len(file.hashes)] = file.hashes[:, 0]
    order = np.argsort(first, kind="stable")  # stable: the earliest of equal ones comes first
    first = first[order]
    is_next = first[1:] == first[:-1]
    is_member = np.append(is_next, False)
    is_member[1:] |= is_next
    members = np.flatnonzero(is_member)
    records, texts = order[members], first[members]
    del first, order, is_next, is_member
    numbers: NDArray[np.int64] = np.searchsorted(starts, records, side="right") - 1
    whole = np.empty(len(records), np.uint64)
    by_file = np.argsort(numbers, kind="stable")
    ends = np.searchsorted(numbers[by_file], np.arange(len(files) + 1))
    for number, (start, end) in enumerate(itertools.pairwise(ends.tolist())):
        of_file = by_file[start:end]
        whole[of_file] = files[number].hashes[records[of_file] - starts[number], 1]
    text = np.cumsum(np.append(False, texts[1:] != texts[:-1])) if len(texts) else np.empty(0, np.int64)
    # records of one text with equal second hashes are equal
    by_whole = np.lexsort((records, whole, text))
    is_first = np.ones(len(records), np.bool_)
    is_first[1:] = (text[by_whole][1:] != text[by_whole][:-1]) | (whole[by_whole][1:] != whole[by_whole][:-1])
    firsts = np.empty(len(records), np.int64)
    firsts[by_whole] = by_whole[is_first][np.cumsum(is_first) - 1] if len(records) else 0
    return _SameTexts(
        records=records,
        text=text,
        is_certain=(texts & _CERTAIN_TEXT).astype(np.bool_),
        chance=np.exp2(-(whole & _CHOICES).astype(np.float64)),
        file=numbers,
        split=splits[numbers] if len(numbers) else numbers,
        firsts=records[firsts],
        split_of_first=splits[numbers[firsts]] if len(numbers) else numbers,
    )

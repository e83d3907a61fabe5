"""Find repeated records: within a file, across files, and across splits; also with other masks.

Each record has two hashes, one of its text and one of all values. More equal hashes than chance gives mean that a file or a
seed was used twice. docs/reference/findings.md has the limits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bertprep.check.counts import Ints, distinct
from bertprep.check.expected import minus_log_limit, minus_log_p
from bertprep.check.finding import ERROR, WARNING, Finding
from bertprep.check.outcome import CheckedFile
from bertprep.check.repeats import Repeats
from bertprep.terminal import counted
from bertprep.work.layout import TEST

ACROSS = "across"
_TEXTS_WARNING, _TEXTS_ERROR = 0.01, 0.1
"""The fraction of a file's records whose texts another file has with other masks: limits of a warning and of an error."""
_ACROSS_WARNING, _ACROSS_ERROR = 0.001, 0.01
"""The fraction of test records whose texts training has with other masks: limits of a warning and of an error."""
_REPEATS_ELSEWHERE, _TEXTS_BY_CHANCE = 4, 30
_SMALL_CHANCE = 2.0**-32  # of repeating by chance; a record with this chance is preferred as an example
_CHOICES = np.uint64(63)  # the bits of a record's second hash that contain log2 of the number of its possible masks
_CERTAIN_TEXT = np.uint64(1)  # the bit of the first hash that is set if equal texts cannot be chance

Flags = NDArray[np.bool_]


class _Kind(NamedTuple):
    """A kind of repeated records. A fraction of more than `max_share` beyond those expected by chance is an error."""

    code: str
    max_share: float
    expected: str
    found: str


_WITHIN = _Kind("duplicate-records", 0.0001, "no record twice", "repeat an earlier one")
_CROSSING = _Kind("test-in-training", 0.0, "no test record in training", "are in training too")


def find_identical_files(files: Sequence[CheckedFile], unit: str = "record") -> list[Finding]:
    """Return a finding for each file that has the same records, or other units, as an earlier one, in any order."""
    seen: dict[tuple[int, int, int], CheckedFile] = {}
    findings = []
    for file in files:
        first, second = file.hashes.sum(0, dtype=np.uint64).tolist()  # modulo 2**64
        earlier = seen.setdefault((len(file.hashes), first, second), file)
        if earlier is not file and len(file.hashes):
            found = f"the same {counted(len(file.hashes), unit)} as in {earlier.name}"
            of_test = [each.name for each in (earlier, file) if each.split == TEST]
            advice = f"remove {of_test[0]}, or make both splits again" if len(of_test) == 1 else ""
            findings.append(Finding("identical-files", file.name, f"{unit}s of its own", found, advice=advice))
    return findings


class _RepeatedRecords(Repeats):
    """The records whose text occurs more than once, with their splits, and the splits of the first equal records."""

    def __init__(self, files: Sequence[CheckedFile]) -> None:
        super().__init__(files)
        self.splits = list(dict.fromkeys(file.split for file in files))
        self.split_of_file = np.array([self.splits.index(file.split) for file in files], np.int64)
        self.split: Ints = self.split_of_file[self.file]
        self.split_of_first: Ints = self.split_of_file[self.file_of(self.first)]
        self.split_of_first_alike: Ints = self.split_of_file[self.file_of(self.first_alike)]
        self.is_repeat: Flags = self.first != self.ids
        self.is_certain: Flags = (self.hashes[:, 0] & _CERTAIN_TEXT) > 0
        self.chance = np.exp2(-(self.hashes[:, 1] & _CHOICES).astype(np.float64))
        """The chance that a record has the same masks as another given record of the same text."""

    def chance_of_repeat(self) -> NDArray[np.float64]:
        """Return the chance that a record has the same masks as any earlier record of the same text."""
        order = np.argsort(self.first_alike, kind="stable")
        starts = np.flatnonzero(np.diff(self.first_alike[order], prepend=-1))
        sizes = np.diff(starts, append=len(order))
        before = np.empty(len(order), np.int64)
        before[order] = np.arange(len(order)) - np.repeat(starts, sizes)
        chance: NDArray[np.float64] = np.minimum(before * self.chance, 1.0)
        return chance

    def size_of(self, split: str) -> int:
        """Return the number of records of a split, repeated or not."""
        return sum(len(file.hashes) for file in self.files if file.split == split)

    def example(self, at: int, origins: Ints) -> tuple[str, int, str]:
        """Return the file and index of the repeating record at index `at`, and a text on its origin: "FILE, record N"."""
        file, record = self.row_of(int(self.ids[at]))
        origin, origin_record = self.row_of(int(origins[at]))
        return file.name, record, f"{origin.name}, record {origin_record:,}"


def find_duplicates(files: Sequence[CheckedFile]) -> tuple[list[Finding], dict[str, int]]:
    """Return the findings, and by split the number of records that repeat an earlier one.

    The key "across" counts test records that are in training too. `files` must list training first.
    """
    records = _RepeatedRecords(files)
    chance = records.chance_of_repeat()
    findings: list[Finding] = []
    counts: dict[str, int] = {}
    for number, name in enumerate(records.splits):
        is_here = records.split == number
        by_chance = float(chance[is_here].sum())
        within = is_here & records.is_repeat & (records.split_of_first == number)
        crossing = is_here & (records.split_of_first != number)
        # of several test records equal to one in training, all but the first also repeat each other
        counts[name] = int(within.sum()) + int(crossing.sum()) - len(distinct(records.first[crossing]))
        findings += _judge(records, within, _WITHIN, size=records.size_of(name), by_chance=by_chance)
        if name == TEST:
            counts[ACROSS] = int(crossing.sum())
            findings += _judge(records, crossing, _CROSSING, size=records.size_of(name), by_chance=by_chance)
            findings += _judge_test_texts(records, number)
    return [*findings, *_judge_texts_of_files(records)], counts


def _judge(records: _RepeatedRecords, is_chosen: Flags, kind: _Kind, *, size: int, by_chance: float) -> list[Finding]:
    """Return a finding if there are more of the chosen records, among the `size` of their split, than chance explains."""
    chosen = np.flatnonzero(is_chosen)
    count = len(chosen)
    if count <= by_chance or minus_log_p(count, size, by_chance) <= minus_log_limit(1):
        return []
    chances = records.chance[chosen]
    at = int(chosen[chances <= max(_SMALL_CHANCE, float(chances.min()))][0])
    name, record, origin = records.example(at, records.first)
    found = f"{count:,} of {size:,} records {kind.found} ({count / size:.2%}); this one equals {origin}"
    level = ERROR if count - by_chance > kind.max_share * size else WARNING
    return [Finding(kind.code, name, kind.expected, found, record, count, level)]


def _judge_test_texts(records: _RepeatedRecords, test: int) -> list[Finding]:
    """Return a finding if too many test records have a text that training has with other masks."""
    is_test = (records.split == test) & records.is_certain & ~records.is_repeat
    chosen, size = np.flatnonzero(is_test & (records.split_of_first_alike < test)), records.size_of(TEST)
    count = len(chosen)
    if count <= _ACROSS_WARNING * size:
        return []
    name, record, origin = records.example(int(chosen[0]), records.first_alike)
    expected = "no text of a test record in training, whatever its masks"
    found = f"{count:,} of {size:,} records have a text of training ({count / size:.2%}); this one has the text of {origin}"
    level = ERROR if count > _ACROSS_ERROR * size else WARNING
    return [Finding("test-text-in-training", name, expected, found, record, count, level)]


def _judge_texts_of_files(records: _RepeatedRecords) -> list[Finding]:
    """Return findings about files that have the texts of another file of their split with other masks.

    The rounds of one run repeat texts too, and distributing their records over files spreads the repeats. So a file is fine if
    it also repeats texts within itself.
    """
    chosen = np.flatnonzero(records.is_certain & ~records.is_repeat)
    file, first = records.file[chosen], records.first_alike[chosen]
    texts, _ = np.unique(np.stack([file, first]), axis=1, return_counts=True)  # each text of each file once
    files = len(records.files)
    repeats_within = np.bincount(file, minlength=files) - np.bincount(texts[0], minlength=files)
    other = records.file_of(first)
    is_elsewhere = (other != file) & (records.split_of_first_alike[chosen] == records.split[chosen])
    chosen, pairs = chosen[is_elsewhere], np.stack([file, other])[:, is_elsewhere]
    pairs, at, counts = np.unique(pairs, axis=1, return_index=True, return_counts=True)
    most: dict[int, int] = {}  # by file: the pair with the other file that shares most texts
    for pair, (number, count) in enumerate(zip(pairs[0].tolist(), counts.tolist(), strict=True)):
        least = _TEXTS_WARNING * len(records.files[number].hashes)
        least = max(least, _REPEATS_ELSEWHERE * repeats_within[number] + _TEXTS_BY_CHANCE)
        if count > least and (number not in most or count > counts[most[number]]):
            most[number] = pair
    findings = []
    for number, pair in most.items():
        size, count, other_name = len(records.files[number].hashes), int(counts[pair]), records.files[int(pairs[1, pair])].name
        name, record, origin = records.example(int(chosen[at[pair]]), records.first_alike)
        found = (
            f"{count:,} of {size:,} records have a text of {other_name} ({count / size:.1%}); this one has the text of {origin}"
        )
        level = ERROR if count > _TEXTS_ERROR * size else WARNING
        findings.append(Finding("repeated-texts", name, "texts of its own", found, record, count, level))
    return findings

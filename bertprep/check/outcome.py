"""The result of validating one data set, which `report` shows: its files, counts, expectations and faults.

Counts are additive: workers tally files, and their sum, in any order, takes the memory of a few arrays.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from bertprep.check.findings import ERROR, Finding
from bertprep.workspace.manifest import Manifest

Counts = NDArray[np.int64]
Range = tuple[float, float]
"""The lowest and the highest correct value."""


@dataclass
class Tally:
    """Counts over records of seq tokens with up to pred predictions, and of a vocabulary of v tokens.

    Text is a record's tokens with the labels restored at their positions, without padding. All arrays are int64.
    """

    lengths: Counts  # (seq + 1,) records by tokens of text, [CLS] and each [SEP] included
    lengths_of_a: Counts  # (seq + 1,) records by tokens of segment A, without [CLS] and [SEP]; zeros without pairs
    predictions: Counts  # (pred + 1,) records by number of predictions
    positions: Counts  # (seq,) predictions by position
    labels: Counts  # (v,) predictions by their label
    tokens: Counts  # (v,) tokens of text, without [CLS] and each [SEP], by token
    shown: Counts  # (3,) predictions by what the record shows: [MASK], the label itself, another token
    next_sentence: Counts  # (2,) records by next-sentence label: B follows A, B is random; zeros without pairs

    @classmethod
    def empty(cls, *, seq: int, pred: int, vocabulary: int) -> Tally:
        """A tally of zeros."""
        sizes = (seq + 1, seq + 1, pred + 1, seq, vocabulary, vocabulary, 3, 2)
        return cls(*(np.zeros(size, np.int64) for size in sizes))

    @classmethod
    def total(cls, tallies: Iterable[Tally]) -> Tally:
        """The sum of one or more tallies of the same shape."""
        first, *others = tallies
        total = cls(*(getattr(first, counted.name).copy() for counted in fields(first)))
        for tally in others:
            total.add(tally)
        return total

    def add(self, other: Tally) -> None:
        """Add the counts of other records of the same shape."""
        for counted in fields(self):
            mine: Counts = getattr(self, counted.name)
            mine += getattr(other, counted.name)

    @property
    def records(self) -> int:
        return int(self.lengths.sum())

    @property
    def has_pairs(self) -> bool:
        """Whether the records are of two segments; each such has a next-sentence label."""
        return bool(self.next_sentence.any())

    @property
    def text_tokens(self) -> int:
        """All tokens that are not padding."""
        return int(self.lengths @ np.arange(len(self.lengths)))

    @property
    def padding_share(self) -> float:
        """The fraction of all tokens that are padding."""
        tokens = self.records * (len(self.lengths) - 1)
        return 1 - self.text_tokens / tokens if tokens else 0.0


@dataclass(frozen=True)
class Expected:
    """What fair draws give for the records of a split, from their settings, vocabulary and lengths: see `check.expectations`.

    The last three are None with whole-word masking, where predictions depend on where words begin.
    """

    shown: tuple[Range, Range, Range]  # of the predictions, as in `Tally.shown`
    masked: Range  # predictions, of the tokens of text
    random_next: Range  # of the records, if these are pairs
    short: Range  # records shorter than seq, of the records
    streams: int  # files whose draws may be correlated, which widens intervals that many times
    predictions: Counts | None  # (pred + 1,) records by number of predictions
    positions: NDArray[np.float64] | None  # (seq,) predictions by position
    labels: NDArray[np.float64] | None  # (v,) predictions by label


@dataclass(frozen=True)
class FileFacts:
    """One record file, text shard or token shard as found; `records` counts documents if it is text or tokens."""

    name: str  # relative to the data set's folder
    split: str  # "training", "test", or "" if the folder has no splits
    records: int
    size_bytes: int


@dataclass(frozen=True)
class TokenTally:
    """Counts over token shards; a sentence of `LONGEST` tokens or more counts as one of as many."""

    LONGEST: ClassVar[int] = 256

    documents: int = 0
    sentences: int = 0
    tokens: int = 0
    lengths: Counts = field(default_factory=lambda: np.zeros(TokenTally.LONGEST + 1, np.int64))  # sentences by tokens
    unknown: int = 0  # [UNK]

    def __add__(self, other: TokenTally) -> TokenTally:
        return TokenTally(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(self)))


@dataclass
class Outcome:
    """One data set: records of one format and settings in one folder, text shards or token shards.

    `tallies` and `expected` are by split, empty for text shards. `sampled` means that only some records of each file were read,
    so duplicates and checksums were not checked.
    """

    folder: Path
    kind: str  # a record format, "text shards" or "token shards"
    manifest: Manifest | None
    vocabulary: Path | None
    seq: int = 0
    pred: int = 0
    sampled: bool = False
    files: list[FileFacts] = field(default_factory=list)
    tallies: dict[str, Tally] = field(default_factory=dict)
    token_tallies: dict[str, TokenTally] = field(default_factory=dict)  # of token shards, by split
    expected: dict[str, Expected] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    duplicates: dict[str, int] = field(default_factory=dict)  # records that repeat an earlier one: by split, and "across"

    @property
    def errors(self) -> int:
        return sum(finding.level == ERROR for finding in self.findings)

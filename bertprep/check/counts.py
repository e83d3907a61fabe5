"""Count text, tokens and records. The counts of files add up to the counts of their split."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from bertprep.kernels import numbers as kernel

Ints = NDArray[np.int64]


def distinct(values: NDArray[Any]) -> NDArray[Any]:
    """Return the distinct values in order. A plain `np.unique` would load `numpy.ma`, a tenth of a short run.

    >>> distinct(np.array([3, 1, 3]))
    array([1, 3])
    """
    return np.unique(values, return_counts=True)[0]


Addend = TypeVar("Addend", bound="Counts")


@dataclass
class Counts:
    """Numbers, or arrays of them, that add up over files and splits."""

    def __add__(self: Addend, other: Addend) -> Addend:
        return type(self)(*(getattr(self, counted.name) + getattr(other, counted.name) for counted in fields(self)))


@dataclass
class TokenCounts(Counts):
    """Counts over text shards, whose tokens are unknown, or over token shards.

    The last bin of `lengths` counts sentences of `LONGEST` tokens or more. Documents may have any size, so they are counted by
    the number of bits of their size: bin 3 counts sizes 4 to 7.
    """

    LONGEST: ClassVar[int] = 512
    BITS: ClassVar[int] = 40

    documents: int = 0
    sentences: int = 0
    tokens: int = 0
    lengths: Ints = field(default_factory=lambda: np.zeros(TokenCounts.LONGEST + 1, np.int64))  # sentences by tokens
    unknown: int = 0  # [UNK]
    documents_by_sentences: Ints = field(default_factory=lambda: np.zeros(TokenCounts.BITS, np.int64))
    documents_by_tokens: Ints = field(default_factory=lambda: np.zeros(TokenCounts.BITS, np.int64))  # of whole documents only

    def share_over(self, longest: int) -> float:
        """Return the fraction of sentences with more than `longest` tokens, which may be up to `LONGEST` - 1."""
        return float(self.lengths[longest + 1 :].sum()) / max(self.sentences, 1)

    @classmethod
    def by_bits(cls, sizes: Ints) -> Ints:
        """Return the number of documents for each number of bits of their size.

        >>> TokenCounts.by_bits(np.array([0, 1, 3, 4]))[:4].tolist()
        [1, 1, 1, 1]
        """
        bits = np.frexp(sizes)[1]  # sizes below 2**53 are exact
        return np.bincount(np.minimum(bits, cls.BITS - 1), minlength=cls.BITS)


@dataclass
class RecordCounts(Counts):
    """Counts over records of seq tokens with up to pred predictions, for a vocabulary of v tokens.

    A draw is a token, or with whole words a word, counted at its first position. Arrays are int64. Expected counts are in units
    of 1 / SCALE of `kernels.numbers`.
    """

    lengths: Ints  # (seq + 1,) records by tokens of text, [CLS] and each [SEP] included
    lengths_of_a: Ints  # (seq + 1,) records by tokens of segment A, without [CLS] and [SEP]; zeros for full sentences
    predictions: Ints  # (pred + 1,) records by number of predictions
    positions: Ints  # (seq,) predictions by position
    labels: Ints  # (v,) predictions by their label
    tokens: Ints  # (v,) tokens of text, without [CLS] and each [SEP], by token
    shown: Ints  # (3,) predictions by what the record shows: [MASK], the label itself, another token
    next_sentence: Ints  # (2,) records by next-sentence label: B follows A, B is random; zeros for full sentences
    position_steps: Ints  # (seq + 1,) expected draws by position, as differences between adjacent positions
    expected_labels: Ints  # (v,) expected draws by original token
    word_positions: Ints  # (seq,) words drawn by position; empty if tokens are drawn
    word_labels: Ints  # (v,) and by their first token
    replaced: Ints  # (v,) predictions that show another token, by that token
    signs: Ints  # (SIGNS,) single counts, which kernels.numbers names
    predicted: Ints  # (seq + 1,) predictions by tokens of text
    # (6,) cases in which neighbours have more, and fewer, common tokens than distant records; more, and less, similar lengths;
    # and more, and less, similar first tokens
    wins: Ints
    # (2,) pairs of records labelled random in which Bs continue their own As more often, less often than the other's
    continued: Ints

    @classmethod
    def empty(cls, *, seq: int, pred: int, vocabulary: int, whole_words: bool = False) -> RecordCounts:
        of_records = (seq + 1, seq + 1, pred + 1, seq, vocabulary, vocabulary, 3, 2, seq + 1, vocabulary)
        of_words = (seq, vocabulary) if whole_words else (0, 0)
        return cls(*(np.zeros(size, np.int64) for size in (*of_records, *of_words, vocabulary, kernel.SIGNS, seq + 1, 6, 2)))

    @property
    def records(self) -> int:
        return int(self.lengths.sum())

    @property
    def has_pairs(self) -> bool:
        """Whether the records have two segments, and so next-sentence labels."""
        return bool(self.next_sentence.any())

    @property
    def text_tokens(self) -> int:
        return int(self.lengths @ np.arange(len(self.lengths)))

    @property
    def padding_share(self) -> float:
        tokens = self.records * (len(self.lengths) - 1)
        return 1 - self.text_tokens / tokens if tokens else 0.0

    @property
    def expected_positions(self) -> NDArray[np.float64]:
        """The expected draws at each position, (seq,)."""
        return np.cumsum(self.position_steps)[:-1] / kernel.SCALE

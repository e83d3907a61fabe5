"""What is counted over many records: enough for every share and histogram of a data set, in the memory of a few arrays.

Counts add up, so that workers tally files and the whole is their sum, whatever the order.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]


@dataclass
class Tally:
    """Counts over records of seq tokens with pred places to predict, and of a vocabulary of v tokens.

    Text is a record's tokens with the labels put back at their places, padding left out. All arrays are int64.
    """

    lengths: Counts  # (seq + 1,) records by tokens of text, [CLS] and both [SEP] included
    lengths_of_a: Counts  # (seq + 1,) records by tokens of segment A, without [CLS] and [SEP]
    predictions: Counts  # (pred + 1,) records by number of predictions
    positions: Counts  # (seq,) predictions by position
    labels: Counts  # (v,) predictions by the token that stood there
    tokens: Counts  # (v,) tokens of text, but for [CLS] and [SEP] at their places, by token
    shown: Counts  # (3,) predictions by what stands there now: [MASK], the token itself, another
    next_sentence: Counts  # (2,) records by next-sentence label: B follows A, B is random

    @classmethod
    def empty(cls, *, seq: int, pred: int, vocabulary: int) -> Tally:
        """Nothing counted yet."""
        sizes = (seq + 1, seq + 1, pred + 1, seq, vocabulary, vocabulary, 3, 2)
        return cls(*(np.zeros(size, np.int64) for size in sizes))

    def add(self, other: Tally) -> None:
        """Add the counts of other records of the same shape."""
        for field in fields(self):
            mine: Counts = getattr(self, field.name)
            mine += getattr(other, field.name)

    @property
    def records(self) -> int:
        return int(self.lengths.sum())

    @property
    def text_tokens(self) -> int:
        """All tokens that are not padding."""
        return int(self.lengths @ np.arange(len(self.lengths)))

    @property
    def padding_share(self) -> float:
        """The share of all places that hold padding."""
        places = self.records * (len(self.lengths) - 1)
        return 1 - self.text_tokens / places if places else 0.0

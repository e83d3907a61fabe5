"""Lays out the rows of fine-tuning tasks, with one or two segments of tokens, like Google's scripts.

[CLS] a [SEP]              segment 0
[CLS] a [SEP] b [SEP]      segment 0 up to the first [SEP], then 1
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bertprep.instances import Vocabulary
from bertprep.records import Examples


class Segments(NamedTuple):
    """A slice of tokens for each row: tokens[starts[i]:starts[i] + sizes[i]]."""

    tokens: NDArray[np.int32]
    starts: NDArray[np.int64]
    sizes: NDArray[np.int64]

    def of(self, rows: Any) -> Segments:
        """Return the slices for some of the rows."""
        return Segments(self.tokens, self.starts[rows], self.sizes[rows])

    def joined(self) -> NDArray[np.int32]:
        """Return the tokens of all slices, one slice after the other.

        >>> Segments(np.arange(10, 20), np.array([5, 2]), np.array([3, 2])).joined().tolist()
        [15, 16, 17, 12, 13]
        """
        ends = np.cumsum(self.sizes)
        positions: NDArray[np.int64] = np.repeat(self.starts - (ends - self.sizes), self.sizes) + np.arange(self.sizes.sum())
        return self.tokens[positions]


def text_tokens(rows: Examples, special: Sequence[int]) -> NDArray[Any]:
    """Return the tokens (n,) of the text of all rows, without those in `special`, such as [CLS]."""
    return rows.input_ids[(rows.input_mask > 0) & ~np.isin(rows.input_ids, special)]


def lay_out(a: Segments, b: Segments, vocabulary: Vocabulary, seq: int) -> tuple[NDArray[np.int32], ...]:
    """Return input_ids, input_mask and segment_ids (rows, seq); a row whose `b` is empty has one segment."""
    position, a_sizes, b_sizes = np.arange(seq), a.sizes[:, None], b.sizes[:, None]
    b_starts = a_sizes + 2
    is_input = position < b_starts + np.where(b_sizes > 0, b_sizes + 1, 0)
    input_ids = np.where(is_input, vocabulary.sep, vocabulary.pad).astype(np.int32)
    input_ids[:, 0] = vocabulary.cls
    input_ids[(position > 0) & (position <= a_sizes)] = a.joined()
    input_ids[(position >= b_starts) & (position < b_starts + b_sizes)] = b.joined()
    return input_ids, is_input.astype(np.int32), (is_input & (position >= b_starts)).astype(np.int32)

"""Labelled texts to the features of a classifier: Google's `convert_single_example`, some rows at a time.

    [CLS] text_a [SEP]                    segment 0
    [CLS] text_a [SEP] text_b [SEP]       segment 0 up to the first [SEP], then 1

All texts go through the compiled tokenizer at once. Memory: 12 * seq bytes a row, and some 40 for each token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bertprep.instances import Tokenizer, Vocabulary
from bertprep.records.examples import ClassificationExamples, RegressionExamples
from bertprep.tasks.glue_files import Labels, Row


@dataclass(frozen=True)
class Segments:
    """Slices of the tokens of a block, one for each row: tokens[starts[i]:starts[i] + sizes[i]]."""

    starts: NDArray[np.int64]
    sizes: NDArray[np.int64]


def make_examples(
    rows: Sequence[Row], labels: Labels, tokenizer: Tokenizer, vocabulary: Vocabulary, *, seq: int
) -> ClassificationExamples | RegressionExamples:
    """Return the features of some rows, in their order; floating-point labels give `RegressionExamples`."""
    count = len(rows)
    tokens, a, b = _tokenize(rows, tokenizer)
    a_sizes, b_sizes = truncated_sizes(a.sizes, b.sizes, seq)
    has_b = b_sizes > 0
    input_ids, segment_ids = np.full((count, seq), vocabulary.pad, np.int32), np.zeros((count, seq), np.int32)
    row = np.arange(count)
    input_ids[:, 0] = vocabulary.cls
    _copy(tokens, Segments(a.starts, a_sizes), input_ids, np.ones(count, np.int64))
    input_ids[row, a_sizes + 1] = vocabulary.sep
    _copy(tokens, Segments(b.starts, b_sizes), input_ids, a_sizes + 2)
    sizes = a_sizes + 2 + np.where(has_b, b_sizes + 1, 0)
    input_ids[row[has_b], sizes[has_b] - 1] = vocabulary.sep
    position = np.arange(seq)
    input_mask = (position < sizes[:, None]).astype(np.int32)
    np.greater_equal(position, a_sizes[:, None] + 2, out=segment_ids, casting="unsafe")
    segment_ids &= input_mask
    kind = RegressionExamples if labels.dtype == np.float32 else ClassificationExamples
    return kind(input_ids, input_mask, segment_ids, labels, np.ones(count, np.int32))


def truncated_sizes(
    a_sizes: NDArray[np.int64], b_sizes: NDArray[np.int64], seq: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the tokens left of text_a and text_b: the longer loses its last one until both fit, text_b on a tie.

    >>> a, b = truncated_sizes(np.array([9, 9, 2, 9]), np.array([9, 2, 9, 0]), seq=10)
    >>> a.tolist(), b.tolist()
    ([4, 5, 2, 8], [3, 2, 5, 0])
    """
    most = seq - 3  # [CLS], [SEP], [SEP]
    of_pair = np.minimum(a_sizes, np.maximum(most - b_sizes, most - most // 2))
    left = np.where(b_sizes > 0, of_pair, np.minimum(a_sizes, seq - 2))
    return left, np.minimum(b_sizes, np.maximum(most - left, 0))


def _tokenize(rows: Sequence[Row], tokenizer: Tokenizer) -> tuple[NDArray[np.int32], Segments, Segments]:
    lines = b"".join(b"%b\n%b\n" % row[:2] for row in rows)
    tokens, ends = tokenizer.tokenize_lines(lines)
    starts = np.concatenate([np.zeros(1, np.int64), ends[:-1]]) if len(ends) else ends
    sizes = ends - starts
    return tokens, Segments(starts[::2], sizes[::2]), Segments(starts[1::2], sizes[1::2])


def _copy(tokens: NDArray[np.int32], segments: Segments, rows: NDArray[np.int32], columns: NDArray[np.int64]) -> None:
    sizes = segments.sizes
    total = int(sizes.sum())
    offset = np.arange(total) - np.repeat(np.cumsum(sizes) - sizes, sizes)  # of a token within its slice
    row = np.repeat(np.arange(len(rows)), sizes)
    rows[row, np.repeat(columns, sizes) + offset] = tokens[np.repeat(segments.starts, sizes) + offset]

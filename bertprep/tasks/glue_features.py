"""Turns labelled texts into the features of a classifier, like Google's `convert_single_example`.

The compiled tokenizer gets all texts of a block at once. Memory: 12 * seq bytes per row, and about 40 bytes per token.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bertprep.instances import Tokenizer, Vocabulary
from bertprep.records.examples import ClassificationExamples, RegressionExamples
from bertprep.tasks.glue_files import Labels, Row
from bertprep.tasks.segments import Segments, lay_out


def make_examples(
    rows: Sequence[Row], labels: Labels, tokenizer: Tokenizer, vocabulary: Vocabulary, *, seq: int
) -> ClassificationExamples | RegressionExamples:
    """Return the features of rows, in order. Floating-point labels give `RegressionExamples`."""
    tokens, ends = tokenizer.tokenize_lines(b"".join(b"%b\n%b\n" % row[:2] for row in rows))
    starts = np.concatenate([[0], ends[:-1]]).astype(np.int64)[: len(ends)]
    sizes = ends - starts
    a_sizes, b_sizes = truncated_sizes(sizes[::2], sizes[1::2], seq)
    inputs = lay_out(Segments(tokens, starts[::2], a_sizes), Segments(tokens, starts[1::2], b_sizes), vocabulary, seq)
    kind = RegressionExamples if labels.dtype == np.float32 else ClassificationExamples
    return kind(*inputs, labels, np.ones(len(rows), np.int32))


def truncated_sizes(
    a_sizes: NDArray[np.int64], b_sizes: NDArray[np.int64], seq: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the sizes of text_a and text_b after truncation: the longer one loses tokens until both fit, text_b on a tie.

    >>> a, b = truncated_sizes(np.array([9, 9, 2, 9]), np.array([9, 2, 9, 0]), seq=10)
    >>> a.tolist(), b.tolist()
    ([4, 5, 2, 8], [3, 2, 5, 0])
    """
    most = seq - 3  # [CLS], [SEP], [SEP]
    of_pair = np.minimum(a_sizes, np.maximum(most - b_sizes, most - most // 2))
    left = np.where(b_sizes > 0, of_pair, np.minimum(a_sizes, seq - 2))
    return left, np.minimum(b_sizes, np.maximum(most - left, 0))

"""Pack several examples into one row (`--pack`), so that little padding is computed.

    rows       best-fit decreasing: the longest examples first, each into the fullest row in which it fits
    tokens     one example after another; position_ids restart with each, and sequence_ids keep attention within each
    [CLS]      first_positions are the first tokens of a row's examples, each with its next-sentence label and its weight

The examples of a global batch are packed together. A step therefore has the same examples with the same weights as without
packing, and the same loss and gradients except for the order of sums. Packing before training (Krell et al. 2021,
arXiv:2107.02027) would put more examples into a step, and so change the effect of a learning rate.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

_TOKENS_OF_EXAMPLE = 16
"""A row has space for one example per 16 tokens, and for at least 4: enough unless examples average fewer than 16 tokens."""
_SIZES = 32
"""The maximum number of different micro-batch sizes in a run, each of which is compiled separately."""

Batch = Mapping[str, NDArray[Any]]


class Capacity(NamedTuple):
    """The space in a row."""

    tokens: int
    predictions: int

    @property
    def examples(self) -> int:
        return max(4, self.tokens // _TOKENS_OF_EXAMPLE)


def pack(batch: Batch, *, micro_batches: int) -> dict[str, NDArray[Any]]:
    """Pack the examples of a global batch into few rows, equally many for each micro-batch; examples of weight 0 are left out.

    Features of tokens and predictions keep their names and widths. Features of examples become (rows, most examples in a row),
    with 0 for examples that a row does not have.
    """
    capacity = Capacity(batch["input_ids"].shape[1], batch["masked_lm_ids"].shape[1])
    lengths = _lengths(batch)
    is_predicted = batch["masked_lm_weights"] != 0
    rows = assign_rows(lengths.tolist(), is_predicted.sum(axis=1).tolist(), capacity)
    count = micro_batches * _rows_of_micro_batch(len(rows), micro_batches, len(lengths) // micro_batches)

    sizes = np.array([len(row) for row in rows], np.int64)
    order = np.array([example for row in rows for example in row], np.int64)  # examples, sorted by row
    row = np.repeat(np.arange(len(rows)), sizes)
    index = _count_in_groups(sizes)  # of an example in its row
    lengths = lengths[order]
    first = _sum_in_groups(lengths, sizes)  # position of an example's first token in its row

    packed: dict[str, NDArray[Any]] = {}

    def scatter(name: str, width: int, into: NDArray[np.int64], values: NDArray[Any]) -> None:
        packed[name] = np.zeros((count, width), values.dtype)
        packed[name].reshape(-1)[into] = values

    position = _count_in_groups(lengths)  # of a token in its example
    token = np.repeat(order * capacity.tokens, lengths) + position
    into = np.repeat(row * capacity.tokens + first, lengths) + position
    for name in ("input_ids", "input_mask", "segment_ids"):
        scatter(name, capacity.tokens, into, batch[name].reshape(-1)[token])
    scatter("position_ids", capacity.tokens, into, position.astype(np.int32))
    ids = np.repeat(index + 1, lengths) * packed["input_mask"].reshape(-1)[into]  # 0 for padding
    scatter("sequence_ids", capacity.tokens, into, ids.astype(np.int32))

    example, slot = np.nonzero(is_predicted[order])
    counts = np.bincount(example, minlength=len(order))
    into = (row * capacity.predictions + _sum_in_groups(counts, sizes))[example] + _count_in_groups(counts)
    for name in ("masked_lm_ids", "masked_lm_weights"):
        scatter(name, capacity.predictions, into, batch[name][order[example], slot])
    positions = batch["masked_lm_positions"][order[example], slot] + first[example]
    scatter("masked_lm_positions", capacity.predictions, into, positions.astype(np.int32))

    into = row * capacity.examples + index
    scatter("row_weights", capacity.examples, into, batch["row_weights"][order])
    if "next_sentence_labels" in batch:
        scatter("first_positions", capacity.examples, into, first.astype(np.int32))
        scatter("next_sentence_labels", capacity.examples, into, batch["next_sentence_labels"][order])
    return packed


def assign_rows(lengths: Sequence[int], predictions: Sequence[int], capacity: Capacity) -> list[list[int]]:
    """Assign examples to rows, and return the examples of each row; examples without a token are left out.

    >>> assign_rows([5, 3, 2, 4], [1, 1, 1, 1], Capacity(tokens=8, predictions=2))
    [[0, 1], [2, 3]]
    """
    rows: list[list[int]] = []
    predictions_left: list[int] = []
    open_rows: list[tuple[int, int]] = []  # tokens left and row, ascending
    for example in sorted(range(len(lengths)), key=lambda example: -lengths[example]):
        if lengths[example] == 0:
            break
        at = bisect_left(open_rows, (lengths[example], -1))
        while at < len(open_rows) and predictions_left[open_rows[at][1]] < predictions[example]:
            at += 1
        if at < len(open_rows):
            tokens_left, row = open_rows.pop(at)
        else:
            tokens_left, row = capacity.tokens, len(rows)
            rows.append([])
            predictions_left.append(capacity.predictions)
        rows[row].append(example)
        predictions_left[row] -= predictions[example]
        if len(rows[row]) < capacity.examples:
            insort(open_rows, (tokens_left - lengths[example], row))
    return [sorted(row) for row in rows]


def _lengths(batch: Batch) -> NDArray[np.int64]:
    """Return each example's length, up to its last token or its last prediction; 0 for an example of weight 0."""
    positions = np.arange(1, batch["input_mask"].shape[1] + 1)
    last = (batch["input_mask"] * positions).max(axis=1)
    predicted = ((batch["masked_lm_positions"] + 1) * (batch["masked_lm_weights"] != 0)).max(axis=1)
    lengths: NDArray[np.int64] = np.maximum(last, predicted) * (batch["row_weights"] != 0)
    return lengths


def _rows_of_micro_batch(rows: int, micro_batches: int, examples: int) -> int:
    """Return how many rows a micro-batch needs to hold its share of `rows` packed rows: at most `examples`, as unpacked."""
    multiple = -(-examples // _SIZES)
    needed = max(1, -(-rows // micro_batches))
    return min(examples, -(-needed // multiple) * multiple)


def _count_in_groups(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return 0, 1, ..., size - 1 for each group, concatenated: (sum of sizes,)."""
    return np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)


def _sum_in_groups(values: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return, for each value, the sum of the earlier values in its group."""
    before = np.cumsum(values) - values
    firsts = np.cumsum(sizes) - sizes
    sums: NDArray[np.int64] = before - np.repeat(before[firsts], sizes)
    return sums

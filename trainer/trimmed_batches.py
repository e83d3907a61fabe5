"""Make batches of rows of similar length, and cut them to the longest row (`--trim`).

    window   the records of 32 steps (fewer for large global batches), which are sorted by length and divided into batches
    batches  the batches of a window are shuffled, but those of an epoch stay before those of the next
    widths   eighths of the sequence, and as many eighths of the predictions, so an engine compiles at most 8 shapes

A batch depends on the number of its step only: when a run resumes, the records of the window are read again. Padding adds
nothing to a loss, so cutting it does not change the loss of a row.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertprep.tokens.order import permute

WIDTHS = 8
_STEPS, _RECORDS = 32, 1 << 15

Batch = Mapping[str, NDArray[Any]]


def steps_of_window(global_batch: int) -> int:
    """Return the number of steps in a window, whose records are all in memory."""
    return max(1, min(_STEPS, _RECORDS // global_batch))


def eighths(batch: Batch) -> NDArray[np.int64]:
    """Return how many eighths of the full width each row needs, from 1 to `WIDTHS`: (rows,). A row of weight 0 needs 1."""
    seq = batch["input_ids"].shape[1]
    parts = [(_last(batch["input_mask"]), seq)]
    if "masked_lm_weights" in batch:
        is_predicted = batch["masked_lm_weights"] != 0
        positions = ((batch["masked_lm_positions"] + 1) * is_predicted).max(axis=1)
        parts += [(positions, seq), (_last(is_predicted), is_predicted.shape[1])]
    if "label_weights" in batch:
        parts.append((_last(batch["label_weights"] != 0), seq))
    needed = np.max([-(-length * WIDTHS // whole) for length, whole in parts], axis=0)
    widths: NDArray[np.int64] = np.maximum(1, needed * (batch["row_weights"] != 0)).astype(np.int64)
    return widths


def arrange(widths: NDArray[np.int64], epochs: NDArray[np.int64], *, steps: int, seed: int, window: int) -> NDArray[np.int64]:
    """Return the rows of each step of a window, (steps, rows of a step), given the width and the epoch of each row."""
    by_width = np.lexsort((widths, epochs)).reshape(steps, -1)
    first, last = epochs[by_width[:, 0]], epochs[by_width[:, -1]]
    random = permute(np.arange(steps), steps, seed=seed, epoch=window)
    return by_width[np.lexsort((random, first + last))]  # a batch with rows of two epochs stays between the two


def trim(batch: Batch) -> dict[str, NDArray[Any]]:
    """Return a batch without the columns that none of its rows needs."""
    width = int(eighths(batch).max())
    seq = batch["input_ids"].shape[1]
    trimmed = {}
    for name, array in batch.items():
        whole = array.shape[1] if name.startswith("masked_lm_") else seq
        is_of_tokens = array.ndim == 2
        trimmed[name] = np.ascontiguousarray(array[:, : -(-whole * width // WIDTHS)]) if is_of_tokens else array
    return trimmed


def _last(is_used: NDArray[Any]) -> NDArray[np.int64]:
    """Return the number of columns of each row up to the last one that is used."""
    columns: NDArray[np.int64] = ((is_used != 0) * np.arange(1, is_used.shape[1] + 1)).max(axis=1)
    return columns

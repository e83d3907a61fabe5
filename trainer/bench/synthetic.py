"""Synthetic records for measurements: what they say does not matter, only the work that they cause."""

from __future__ import annotations

import numpy as np

from bertprep.records import Examples


def synthetic_records(rng: np.random.Generator, count: int, *, seq: int, pred: int, vocab_size: int) -> Examples:
    """Records without padding, of random tokens, each with all of its predictions."""
    shape = (count, seq)
    is_second = np.arange(seq, dtype=np.int32) >= seq // 2  # (seq,): half of the tokens are each sentence's
    return Examples(
        input_ids=rng.integers(0, vocab_size, shape, np.int32),
        input_mask=np.ones(shape, np.int32),
        segment_ids=np.tile(is_second.astype(np.int32), (count, 1)),
        masked_lm_positions=np.sort(rng.random(shape).argsort(axis=1)[:, :pred], axis=1).astype(np.int32),
        masked_lm_ids=rng.integers(0, vocab_size, (count, pred), np.int32),
        masked_lm_weights=np.ones((count, pred), np.float32),
        next_sentence_labels=rng.integers(0, 2, count, np.int32),
    )

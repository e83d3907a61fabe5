"""Synthetic records are full, valid and all different."""

import numpy as np

from trainer.bench.run import synthetic_records


def test_synthetic_records_are_full_and_valid() -> None:
    examples = synthetic_records(np.random.default_rng(1), 50, seq=16, pred=5, vocab_size=30)
    assert examples.input_ids.shape == (50, 16)
    assert examples.input_mask.all()
    assert set(np.unique(examples.input_ids)) == set(range(30))
    assert set(np.unique(examples.masked_lm_ids)) == set(range(30))
    assert (np.diff(examples.masked_lm_positions, axis=1) > 0).all()
    assert set(np.unique(examples.masked_lm_positions)) == set(range(16))
    assert examples.masked_lm_weights.sum() == 250
    assert set(np.unique(examples.next_sentence_labels)) == {0, 1}
    assert examples.segment_ids[0].tolist() == [0] * 8 + [1] * 8
    assert {array.dtype for array in examples.arrays} == {np.dtype(np.int32), np.dtype(np.float32)}

"""SQuAD's task on TensorFlow: a logit of each token to be the answer's start, and one to be its end."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import tensorflow as tf

from trainer.engines.tensorflow.fused_ops import add_bias, cross_entropy, hits
from trainer.engines.tensorflow.model import Batch, Encoder
from trainer.tasks.squad import SquadSums

Tensor: TypeAlias = Any


class Logits(NamedTuple):
    """The outputs of the head, float32 (sequences, seq); padding has logits too, as in the originals."""

    start_logits: Tensor
    end_logits: Tensor


def logits(encoder: Encoder, batch: Batch) -> Logits:
    """One pass over a batch."""
    hidden = tf.cast(encoder.encode(batch), tf.float32)
    products = tf.matmul(hidden, encoder.weights["cls/squad/output_weights"], transpose_b=True)
    both = tf.reshape(add_bias(products, encoder.weights["cls/squad/output_bias"]), (*batch["input_ids"].shape, 2))
    return Logits(*tf.unstack(both, axis=2))


def totals(batch: Batch) -> list[Tensor]:
    """What `loss` divides by, summed over the global batch: sequences; of a batch of any leading axes."""
    return [tf.size(batch["start_positions"], tf.float32)]


def sums(encoder: Encoder, batch: Batch, row_weights: Tensor | None = None) -> SquadSums:
    """Losses and hits of a batch, or of its rows with weights (sequences,)."""
    said, starts, ends = logits(encoder, batch), batch["start_positions"], batch["end_positions"]
    rows = tf.ones(starts.shape) if row_weights is None else row_weights
    losses = (cross_entropy(starts, said.start_logits) + cross_entropy(ends, said.end_logits)) / 2
    return SquadSums(
        loss_sum=tf.reduce_sum(losses * rows),
        start_correct_sum=tf.reduce_sum(hits(starts, said.start_logits) * rows),
        end_correct_sum=tf.reduce_sum(hits(ends, said.end_logits) * rows),
        sequences=tf.reduce_sum(rows),
    )


def loss(of_part: SquadSums, totals: list[Tensor]) -> Tensor:
    """What a micro-batch adds to the loss of a global batch of these totals."""
    return of_part.loss_sum / totals[0]

"""Classification and regression on TensorFlow: a product with the pooled output; whole numbers as labels are classes."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import tensorflow as tf

from trainer.engines.tensorflow.fused_ops import add_bias, cross_entropy, hits
from trainer.engines.tensorflow.model import Batch, Encoder
from trainer.tasks.classification import ClassificationSums, RegressionSums

Tensor: TypeAlias = Any


class Logits(NamedTuple):
    """The outputs of the head, float32 (sequences, labels), or (sequences, 1) of a regression."""

    logits: Tensor


def logits(encoder: Encoder, batch: Batch) -> Logits:
    """One pass over a batch."""
    pooled = encoder.pool(encoder.encode(batch), batch["input_ids"].shape[0])
    pooled = tf.cast(encoder.dropout(pooled, encoder.config.hidden_dropout_prob), tf.float32)
    products = tf.matmul(pooled, encoder.weights["output_weights"], transpose_b=True)
    return Logits(add_bias(products, encoder.weights["output_bias"]))


def totals(batch: Batch) -> list[Tensor]:
    """What `loss` divides by, summed over the global batch: sequences but for what only fills up a batch."""
    return [tf.reduce_sum(tf.cast(batch["is_real_example"], tf.float32))]


def sums(encoder: Encoder, batch: Batch, row_weights: Tensor | None = None) -> ClassificationSums | RegressionSums:
    """Losses and hits of a batch, or of its rows with weights (sequences,)."""
    said, labels = logits(encoder, batch).logits, batch["label_ids"]
    rows = tf.cast(batch["is_real_example"], tf.float32) * (1.0 if row_weights is None else row_weights)
    sequences = tf.reduce_sum(rows)
    if labels.dtype.is_floating:
        return RegressionSums(tf.reduce_sum(tf.square(said[:, 0] - labels) * rows), sequences)
    correct = tf.reduce_sum(hits(labels, said) * rows)
    return ClassificationSums(tf.reduce_sum(cross_entropy(labels, said) * rows), correct, sequences)


def loss(of_part: ClassificationSums | RegressionSums, totals: list[Tensor]) -> Tensor:
    """What a micro-batch adds to the loss of a global batch of these totals."""
    return of_part.loss_sum / tf.maximum(totals[0], 1.0)

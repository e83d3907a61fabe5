"""Classification and regression on JAX: a product with the pooled output; whole numbers as labels are classes."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from trainer.engines.jax.fused_ops import Array, cross_entropy, dropout, hits
from trainer.engines.jax.model import DRAWS, Batch, Model, Weights, encode, nth_key, pool
from trainer.tasks.classification import ClassificationSums, RegressionSums


class Logits(NamedTuple):
    """The outputs of the head, float32 (sequences, labels), or (sequences, 1) of a regression."""

    logits: Array


def logits(model: Model, weights: Weights, batch: Batch, key: Array | None = None) -> Logits:
    """One pass over a batch."""
    pooled = pool(weights, encode(model, weights, batch, key))
    last = nth_key(key, 1 + DRAWS * model.config.num_hidden_layers)
    pooled = dropout(pooled, model.config.hidden_dropout_prob, last).astype(jnp.float32)
    return Logits(pooled @ weights["output_weights"].T + weights["output_bias"])


def totals(batch: Batch) -> list[Array]:
    """What `loss` divides by, summed over the global batch: sequences but for what only fills up a batch."""
    return [batch["is_real_example"].sum(dtype=jnp.float32)]


def sums(
    model: Model, weights: Weights, batch: Batch, key: Array | None = None, row_weights: Array | None = None
) -> ClassificationSums | RegressionSums:
    """Losses and hits of a batch, or of its rows with weights (sequences,)."""
    said, labels = logits(model, weights, batch, key).logits, batch["label_ids"]
    rows = batch["is_real_example"].astype(jnp.float32) * (1.0 if row_weights is None else row_weights)
    if jnp.issubdtype(labels.dtype, jnp.floating):
        return RegressionSums((jnp.square(said[:, 0] - labels) * rows).sum(), rows.sum())
    correct = (hits(labels, said) * rows).sum()
    return ClassificationSums((cross_entropy(labels, said) * rows).sum(), correct, rows.sum())


def loss(part: ClassificationSums | RegressionSums, totals: list[Array]) -> Array:
    """What a micro-batch adds to the loss of a global batch of these totals."""
    return part.loss_sum / jnp.maximum(totals[0], 1.0)

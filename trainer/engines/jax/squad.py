"""SQuAD's task on JAX: a logit of each token to be the answer's start, and one to be its end."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from trainer.engines.jax.fused_ops import Array, cross_entropy, hits
from trainer.engines.jax.model import Batch, Model, Weights, encode
from trainer.tasks.squad import SquadSums


class Logits(NamedTuple):
    """The outputs of the head, float32 (sequences, seq); padding has logits too, as in the originals."""

    start_logits: Array
    end_logits: Array


def logits(model: Model, weights: Weights, batch: Batch, key: Array | None = None) -> Logits:
    """One pass over a batch."""
    hidden = encode(model, weights, batch, key).astype(jnp.float32)
    both = hidden @ weights["cls/squad/output_weights"].T + weights["cls/squad/output_bias"]  # (sequences, seq, 2)
    return Logits(both[..., 0], both[..., 1])


def totals(batch: Batch) -> list[Array]:
    """What `loss` divides by, summed over the global batch: sequences; of a batch of any leading axes."""
    return [jnp.float32(batch["start_positions"].size)]


def sums(model: Model, weights: Weights, batch: Batch, key: Array | None = None, row_weights: Array | None = None) -> SquadSums:
    """Losses and hits of a batch, or of its rows with weights (sequences,)."""
    said, starts, ends = logits(model, weights, batch, key), batch["start_positions"], batch["end_positions"]
    rows = jnp.ones(starts.shape) if row_weights is None else row_weights
    losses = (cross_entropy(starts, said.start_logits) + cross_entropy(ends, said.end_logits)) / 2
    return SquadSums(
        loss_sum=(losses * rows).sum(),
        start_correct_sum=(hits(starts, said.start_logits) * rows).sum(),
        end_correct_sum=(hits(ends, said.end_logits) * rows).sum(),
        sequences=rows.sum(),
    )


def loss(part: SquadSums, totals: list[Array]) -> Array:
    """What a micro-batch adds to the loss of a global batch of these totals."""
    return part.loss_sum / totals[0]

"""BERT's pretraining task: the masked-LM and next-sentence heads on an encoder's output, and the loss that they are trained by.

The masked-LM head runs at the masked positions only, which makes a step three times cheaper than logits at all positions. Of
batches without next-sentence labels there is no other head. A task is a module with these four functions: `totals`, `sums`,
`loss`, and `logits`, which returns a named tuple.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from trainer.engines.jax.fused_ops import Array, cross_entropy, float32_product, gelu, hits, pick
from trainer.engines.jax.model import WORDS, Batch, Model, Weights, dense, encode, normalize, of_part, pool
from trainer.tasks.pretraining import MaskedLmSums, PretrainingSums

LABELS = "next_sentence_labels"
"""The feature that a batch has if the model has the head for it."""


class Logits(NamedTuple):
    """The outputs of the heads, float32."""

    masked_lm: Array  # (sequences, pred, vocabulary)
    next_sentence: Array | None  # (sequences, 2); of class 0, the next sentence, and 1, a random one


def logits(model: Model, weights: Weights, batch: Batch, key: Array | None = None) -> Logits:
    """One pass over a batch."""
    hidden = encode(model, weights, batch, key)
    masked = pick(hidden, batch["masked_lm_positions"])  # (sequences, pred, hidden)
    masked = gelu(dense(weights, "cls/predictions/transform/dense", masked))
    masked = normalize(of_part(weights, "cls/predictions/transform/LayerNorm"), masked)
    words = weights[WORDS].astype(masked.dtype)
    masked_lm = float32_product("nph,vh->npv", masked, words)
    if LABELS not in batch:
        return Logits(masked_lm + weights["cls/predictions/output_bias"], None)
    pooled = pool(weights, hidden).astype(jnp.float32)
    return Logits(
        masked_lm + weights["cls/predictions/output_bias"],
        pooled @ weights["cls/seq_relationship/output_weights"].T + weights["cls/seq_relationship/output_bias"],
    )


def totals(batch: Batch) -> list[Array]:
    """What `loss` divides by, summed over the global batch: masked-LM weight and sequences; of a batch of any leading axes."""
    return [batch["masked_lm_weights"].sum(), jnp.float32(batch["input_ids"][..., 0].size)]


def sums(
    model: Model, weights: Weights, batch: Batch, key: Array | None = None, row_weights: Array | None = None
) -> PretrainingSums | MaskedLmSums:
    """Losses and hits of a batch; with weights of rows, (sequences,), for their next-sentence labels."""
    said = logits(model, weights, batch, key)
    tokens, masked = batch["masked_lm_ids"], batch["masked_lm_weights"]
    rows = jnp.ones(batch["input_ids"].shape[:1]) if row_weights is None else row_weights
    masked_lm = {
        "masked_lm_loss_sum": (cross_entropy(tokens, said.masked_lm) * masked).sum(),
        "masked_lm_correct_sum": (hits(tokens, said.masked_lm) * masked).sum(),
        "masked_lm_weight_sum": masked.sum(),
    }
    if said.next_sentence is None:
        return MaskedLmSums(**masked_lm, sequences=rows.sum())
    labels = batch[LABELS]
    return PretrainingSums(
        **masked_lm,
        next_sentence_loss_sum=(cross_entropy(labels, said.next_sentence) * rows).sum(),
        next_sentence_correct_sum=(hits(labels, said.next_sentence) * rows).sum(),
        sequences=rows.sum(),
    )


def loss(part: PretrainingSums | MaskedLmSums, totals: list[Array]) -> Array:
    """What a micro-batch adds to the loss of a global batch of these totals."""
    weight, sequences = totals
    masked_lm_loss = part.masked_lm_loss_sum / jnp.maximum(weight, 1e-5)  # 0 for a batch without a masked token
    if isinstance(part, MaskedLmSums):
        return masked_lm_loss
    return masked_lm_loss + part.next_sentence_loss_sum / sequences

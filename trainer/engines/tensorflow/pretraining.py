"""BERT's pretraining task: the masked-LM and next-sentence heads on an encoder's output, and the loss that they are trained by.

The masked-LM head runs at the masked positions only, which makes a step three times cheaper than logits at all positions. Of
batches without next-sentence labels there is no other head. A task is a module with these four functions: `totals`, `sums`,
`loss`, and `logits`, which returns a named tuple.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import tensorflow as tf

from trainer.engines.tensorflow.fused_ops import add_bias, cross_entropy, gelu, hits, look_up
from trainer.engines.tensorflow.model import WORDS, Batch, Encoder
from trainer.tasks.pretraining import MaskedLmSums, PretrainingSums

Tensor: TypeAlias = Any
LABELS = "next_sentence_labels"
"""The feature that a batch has if the model has the head for it."""


class Logits(NamedTuple):
    """The outputs of the heads, float32."""

    masked_lm: Tensor  # (sequences * pred, vocabulary)
    next_sentence: Tensor | None  # (sequences, 2); of class 0, the next sentence, and 1, a random one


def logits(encoder: Encoder, batch: Batch) -> Logits:
    """One pass over a batch."""
    (sequences, seq), weights = batch["input_ids"].shape, encoder.weights
    hidden = encoder.encode(batch)
    positions = batch["masked_lm_positions"] + tf.range(sequences)[:, None] * seq
    masked = gelu(encoder.dense("cls/predictions/transform/dense", look_up(hidden, tf.reshape(positions, (-1,)))))
    masked = encoder.layer_norm("cls/predictions/transform", masked)
    words = tf.cast(weights[WORDS], encoder.compute_dtype)
    masked_lm = tf.cast(tf.matmul(masked, words, transpose_b=True), tf.float32)
    if LABELS not in batch:
        return Logits(add_bias(masked_lm, weights["cls/predictions/output_bias"]), None)
    pooled = tf.cast(encoder.pool(hidden, sequences), tf.float32)
    next_sentence = tf.matmul(pooled, weights["cls/seq_relationship/output_weights"], transpose_b=True)
    return Logits(
        add_bias(masked_lm, weights["cls/predictions/output_bias"]),
        add_bias(next_sentence, weights["cls/seq_relationship/output_bias"]),
    )


def totals(batch: Batch) -> list[Tensor]:
    """What `loss` divides by, summed over the global batch: masked-LM weight and sequences; of a batch of any leading axes."""
    return [tf.reduce_sum(batch["masked_lm_weights"]), tf.size(batch["input_ids"][..., 0], tf.float32)]


def sums(encoder: Encoder, batch: Batch, row_weights: Tensor | None = None) -> PretrainingSums | MaskedLmSums:
    """Losses and hits of a batch; with weights of rows, (sequences,), for their next-sentence labels."""
    said = logits(encoder, batch)
    tokens, weights = tf.reshape(batch["masked_lm_ids"], (-1,)), tf.reshape(batch["masked_lm_weights"], (-1,))
    rows = tf.ones(batch["input_ids"].shape[:1]) if row_weights is None else row_weights
    masked_lm = {
        "masked_lm_loss_sum": tf.reduce_sum(cross_entropy(tokens, said.masked_lm) * weights),
        "masked_lm_correct_sum": tf.reduce_sum(hits(tokens, said.masked_lm) * weights),
        "masked_lm_weight_sum": tf.reduce_sum(weights),
    }
    if said.next_sentence is None:
        return MaskedLmSums(**masked_lm, sequences=tf.reduce_sum(rows))
    labels = batch[LABELS]
    return PretrainingSums(
        **masked_lm,
        next_sentence_loss_sum=tf.reduce_sum(cross_entropy(labels, said.next_sentence) * rows),
        next_sentence_correct_sum=tf.reduce_sum(hits(labels, said.next_sentence) * rows),
        sequences=tf.reduce_sum(rows),
    )


def loss(of_part: PretrainingSums | MaskedLmSums, totals: list[Tensor]) -> Tensor:
    """What a micro-batch adds to the loss of a global batch of these totals."""
    weight, sequences = totals
    masked_lm_loss = of_part.masked_lm_loss_sum / tf.maximum(weight, 1e-5)  # 0 for a batch without a masked token
    if isinstance(of_part, MaskedLmSums):
        return masked_lm_loss
    return masked_lm_loss + of_part.next_sentence_loss_sum / sequences

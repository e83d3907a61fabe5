"""BERT's pretraining task on OneFlow: the masked-LM and next-sentence heads, and the loss that they are trained by.

A task is a module with these names: the last part of the model, the features and the sums of it, and how they make the loss.
Batches without next-sentence labels have no head for them, and none of its sums.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import oneflow as flow
from numpy.typing import NDArray

from trainer.engines.oneflow import model
from trainer.engines.oneflow.model import cross_entropy, hits
from trainer.engines.oneflow.stages import WORDS
from trainer.tasks.pretraining import MaskedLmSums, PretrainingSums

Tensor: TypeAlias = Any
LABELS = ("masked_lm_positions", "masked_lm_ids", "masked_lm_weights", "next_sentence_labels", "row_weights")
"""Of a batch, what the heads take, in this order."""
_MASKED_LM_SUMS = 2
DROPS_OUT = False
"""Whether the heads have dropout of their own."""


def totals(batch: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
    """(2,): what `loss` divides by, summed over the global batch: masked-LM weight and sequences."""
    return np.array([batch["masked_lm_weights"].sum(), batch["row_weights"].sum()], np.float32)


def loss(sums: Sequence[Tensor], loss_weights: Sequence[Tensor]) -> Tensor:
    """What a micro-batch adds to the loss of its global batch; the weights are what 1 is, divided by each total."""
    masked_lm_loss = sums[0] * loss_weights[0]
    return flow.sum(masked_lm_loss + sums[2] * loss_weights[1] if len(sums) > _MASKED_LM_SUMS else masked_lm_loss)


def to_sums(sums: Sequence[float], totals: Sequence[float]) -> PretrainingSums | MaskedLmSums:
    weight, sequences = totals
    if len(sums) == _MASKED_LM_SUMS:
        masked_lm_loss, masked_lm_correct = sums
        return MaskedLmSums(masked_lm_loss, masked_lm_correct, weight, sequences)
    masked_lm_loss, masked_lm_correct, next_sentence_loss, next_sentence_correct = sums
    return PretrainingSums(masked_lm_loss, masked_lm_correct, weight, next_sentence_loss, next_sentence_correct, sequences)


class Heads(model.Heads):
    """The predictions, their losses and their hits: (masked-LM loss, hits, next-sentence loss, hits), as sums."""

    def forward(self, hidden: Tensor, *labels: Tensor) -> tuple[Tensor, ...]:
        positions, tokens, weights, *of_sequences = labels
        masked_lm = self.masked_lm(hidden, positions)
        tokens, weights = flow.reshape(tokens, (-1,)), flow.reshape(weights, (-1,))
        sums = flow.sum(cross_entropy(masked_lm, tokens) * weights), flow.sum(hits(masked_lm, tokens) * weights)
        if len(of_sequences) == 1:  # the weights of rows alone, of which none is needed
            return sums
        next_sentence, row_weights = of_sequences
        of_rows = self.next_sentence(hidden, positions.shape[0])
        return (
            *sums,
            flow.sum(cross_entropy(of_rows, next_sentence) * row_weights),
            flow.sum(hits(of_rows, next_sentence) * row_weights),
        )

    def masked_lm(self, hidden: Tensor, positions: Tensor) -> Tensor:
        """(sequences * pred, vocabulary): the logits of the masked tokens."""
        sequences, size = positions.shape[0], self.bert.hidden_size
        tokens = flow.reshape(hidden, (sequences, -1, size))
        return self._masked_lm(flow.reshape(flow._C.batch_gather(tokens, positions), (-1, size)))

    def next_sentence(self, hidden: Tensor, sequences: int) -> Tensor:
        """(sequences, 2): the logits of the next sentences."""
        return self.multiply("cls/seq_relationship/output", self.pool(hidden, sequences))

    def _masked_lm(self, masked: Tensor) -> Tensor:
        values = flow._C.gelu(self.dense("cls/predictions/transform/dense", masked))
        values = self.layer_norm("cls/predictions/transform", values)
        words = self.variable(WORDS).to(self.compute_dtype)
        return flow._C.matmul(values, words, False, True).to(flow.float32) + self.variable("cls/predictions/output_bias")

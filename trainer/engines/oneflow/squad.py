"""SQuAD's task on OneFlow: a logit of each token to be the answer's start, and one to be its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import oneflow as flow
from numpy.typing import NDArray

from trainer.engines.oneflow import model
from trainer.engines.oneflow.model import cross_entropy, hits
from trainer.tasks.squad import SquadSums

Tensor: TypeAlias = Any
LABELS = ("row_weights", "start_positions", "end_positions")
"""Of a batch, what the heads take, in this order."""
OUTPUTS = ("start_logits", "end_logits")
DROPS_OUT = False


def totals(batch: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
    """(1,): what `loss` divides by, summed over the global batch: sequences."""
    return np.array([batch["row_weights"].sum()], np.float32)


def loss(sums: Sequence[Tensor], loss_weights: Sequence[Tensor]) -> Tensor:
    """What a micro-batch adds to the loss of its global batch; the weight is what 1 is, divided by the total."""
    return flow.sum(sums[0] * loss_weights[0])


def to_sums(sums: Sequence[float], totals: Sequence[float]) -> SquadSums:
    return SquadSums(*sums, *totals)


class Heads(model.Heads):
    """The loss and the hits of starts and ends, as sums; without labels the logits, (sequences, seq) each."""

    def forward(self, hidden: Tensor, row_weights: Tensor, *labels: Tensor) -> tuple[Tensor, ...]:
        both = flow.reshape(self.multiply("cls/squad/output", hidden), (row_weights.shape[0], -1, 2))
        start, end = (flow.squeeze(flow.narrow(both, 2, number, 1), 2) for number in range(2))
        if not labels:
            return start, end
        starts, ends = labels
        losses = (cross_entropy(start, starts) + cross_entropy(end, ends)) * 0.5
        return (
            flow.sum(losses * row_weights),
            flow.sum(hits(start, starts) * row_weights),
            flow.sum(hits(end, ends) * row_weights),
        )

"""Classification and regression on OneFlow: a product with the pooled output; whole numbers as labels are classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import oneflow as flow
from numpy.typing import NDArray

from trainer.engines.oneflow import model
from trainer.engines.oneflow.model import cross_entropy, hits
from trainer.tasks.classification import ClassificationSums, RegressionSums

Tensor: TypeAlias = Any
LABELS = ("row_weights", "is_real_example", "label_ids")
"""Of a batch, what the heads take, in this order."""
OUTPUTS = ("logits",)
DROPS_OUT = True
"""The heads drop units of the pooled output."""


def totals(batch: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
    """(1,): what `loss` divides by, summed over the global batch: sequences but for what only fills up a batch."""
    return np.array([(batch["row_weights"] * batch["is_real_example"]).sum()], np.float32)


def loss(sums: Sequence[Tensor], loss_weights: Sequence[Tensor]) -> Tensor:
    """What a micro-batch adds to the loss of its global batch; the weight is what 1 is, divided by the total."""
    return flow.sum(sums[0] * loss_weights[0])


def to_sums(sums: Sequence[float], totals: Sequence[float]) -> ClassificationSums | RegressionSums:
    """Those of a regression have no hits."""
    return RegressionSums(*sums, *totals) if len(sums) == 1 else ClassificationSums(*sums, *totals)


class Heads(model.Heads):
    """The loss and the hits, as sums; without labels the logits, (sequences, labels)."""

    def forward(self, hidden: Tensor, row_weights: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
        pooled = self.pool(hidden, row_weights.shape[0])
        if not others:
            return (self.multiply("output", pooled),)
        is_real, labels, *draws = others
        if draws:  # of all tokens, as in the other parts; the pooled one is the first
            of_first = flow.squeeze(flow.narrow(draws[0], 1, 0, 1), 1)
            pooled = self.drop(pooled, of_first, self.bert.hidden_dropout_prob)
        logits, rows = self.multiply("output", pooled), is_real.to(flow.float32) * row_weights
        if labels.dtype == flow.float32:
            squares = flow.square(flow.squeeze(logits, 1) - labels)
            return (flow.sum(squares * rows),)
        return flow.sum(cross_entropy(logits, labels) * rows), flow.sum(hits(logits, labels) * rows)

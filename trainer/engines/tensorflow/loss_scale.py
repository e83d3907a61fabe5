"""Loss scaling for float16: the loss is multiplied so that small gradients do not vanish, and the product taken out again.

The factor is looked for all the time: gradients that are not finite cost one update, and halve it; so many finite ones in a
row double it, as in NVIDIA's automatic mixed precision. It is never below 1.

The scale is that of a micro-batch's mean loss. A micro-batch has a part of the global batch's loss, and the more parts there
are the smaller are its gradients; so each part's loss is multiplied by their number too, and one scale suits all ways to cut.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, TypeAlias

from keras import ops

Tensor: TypeAlias = Any  # of whatever framework Keras runs on
GROWTH_STEPS = 1000
"""Finite updates in a row after which the scale doubles."""


class LossScale(NamedTuple):
    """The scale of the next update, and how many finite updates in a row led to it."""

    scale: Any
    good_steps: Any


def next_loss_scale(now: LossScale, is_finite: Tensor) -> LossScale:
    """The scale after an update whose gradients were finite or not."""
    good_steps = now.good_steps + 1
    grows = ops.logical_and(is_finite, good_steps >= GROWTH_STEPS)
    shrunk = ops.maximum(now.scale / 2, 1.0)
    return LossScale(
        ops.where(is_finite, ops.where(grows, now.scale * 2, now.scale), shrunk),
        ops.where(ops.logical_or(grows, ops.logical_not(is_finite)), 0.0, good_steps),
    )


def parts_factor(parts: int) -> float:
    """The number of parts of a global batch as a power of two, with which nothing is rounded.

    >>> parts_factor(1), parts_factor(6)
    (1.0, 8.0)
    """
    return float(2 ** math.ceil(math.log2(parts)))

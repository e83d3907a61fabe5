"""The loss scale after an update, on tensors, so that no step waits for the one before it; see `trainer.engines.loss_scale`."""

from __future__ import annotations

from typing import Any, TypeAlias

from keras import ops

from trainer.engines.loss_scale import GROWTH_STEPS, LossScale

Tensor: TypeAlias = Any  # of whatever framework Keras runs on


def next_loss_scale(now: LossScale, is_finite: Tensor) -> LossScale:
    """The scale after an update whose gradients were finite or not."""
    good_steps = now.good_steps + 1
    grows = ops.logical_and(is_finite, good_steps >= GROWTH_STEPS)
    shrunk = ops.maximum(now.scale / 2, 1.0)
    return LossScale(
        ops.where(is_finite, ops.where(grows, now.scale * 2, now.scale), shrunk),
        ops.where(ops.logical_or(grows, ops.logical_not(is_finite)), 0.0, good_steps),
    )

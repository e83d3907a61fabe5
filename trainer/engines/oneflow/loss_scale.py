"""The loss scale after an update, on numbers: with float16 each step waits for its norm; see `trainer.engines.loss_scale`."""

from __future__ import annotations

from trainer.engines.loss_scale import GROWTH_STEPS, LossScale


def next_loss_scale(now: LossScale, *, is_finite: bool) -> LossScale:
    """The scale after an update whose gradients were finite or not.

    >>> next_loss_scale(LossScale(8.0, 3), is_finite=False)
    LossScale(scale=4.0, good_steps=0)
    """
    if not is_finite:
        return LossScale(max(now.scale / 2, 1.0), 0)
    if now.good_steps + 1 >= GROWTH_STEPS:
        return LossScale(now.scale * 2, 0)
    return LossScale(now.scale, now.good_steps + 1)

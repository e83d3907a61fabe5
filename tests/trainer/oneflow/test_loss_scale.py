"""The loss scale on numbers takes the steps that TensorFlow's takes on tensors."""

import pytest

from trainer.engines.loss_scale import LossScale
from trainer.engines.oneflow import loss_scale
from trainer.engines.oneflow.loss_scale import next_loss_scale


def test_the_loss_scale_by_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss_scale, "GROWTH_STEPS", 3)
    now, seen = LossScale(8.0, 0), []
    for is_finite in [True, True, True, True, False, False, False, False, False, True, True, True]:
        now = next_loss_scale(now, is_finite=is_finite)
        seen.append((now.scale, now.good_steps))
    assert seen == [
        (8, 1), (8, 2), (16, 0), (16, 1),  # three in a row double it
        (8, 0), (4, 0), (2, 0), (1, 0), (1, 0),  # each overflow halves it, down to 1
        (1, 1), (1, 2), (2, 0),
    ]  # fmt: skip

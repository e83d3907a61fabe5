"""What both engines share: the loss scale on plain numbers, and the keys of dropout."""

import numpy as np
import pytest

from trainer import engines
from trainer.engines import LossScale, choose_engine, dropout_keys, suitable_engine
from trainer.settings import EngineSettings
from trainer.start import describe_engine


def test_the_loss_scale_by_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "GROWTH_STEPS", 3)
    now, seen = LossScale(8.0, 0.0), []
    for is_finite in [True, True, True, True, False, False, False, False, False, True, True, True]:
        now = now.after(is_finite, lambda condition, one, other: one if condition else other)
        seen.append((now.scale, now.good_steps))
    assert seen == [
        (8, 1), (8, 2), (16, 0), (16, 1),  # three in a row double it
        (8, 0), (4, 0), (2, 0), (1, 0), (1, 0),  # each overflow halves it, down to 1
        (1, 1), (1, 2), (2, 0),
    ]  # fmt: skip


def test_dropout_keys_are_those_of_each_micro_batch_whoever_has_it() -> None:
    """The bits are pinned: a checkpoint of before must be resumed with the same masks."""
    keys = dropout_keys(1, 7, range(4))
    assert keys.tolist()[:2] == [[1061303675, 1047225702], [508857249, 691098155]]
    np.testing.assert_array_equal(dropout_keys(1, 7, range(2, 4)), keys[2:])
    assert len({tuple(key) for key in (*keys, *dropout_keys(1, 8, range(4)), *dropout_keys(2, 7, range(4)))}) == 12


@pytest.mark.parametrize(
    ("installed", "accelerator", "name", "why"),
    [
        ([], "", "tensorflow", ""),  # and so it is named where it is missing
        (["oneflow"], "", "oneflow", "the only one installed"),
        (["jax"], "GPU", "jax", "the only one installed"),
        (["tensorflow", "jax"], "", "tensorflow", "there is no GPU or TPU that JAX could use (--engine jax takes the other)"),
        (["tensorflow", "jax"], "TPU", "jax", "there is a TPU (--engine tensorflow takes the other)"),
        (["jax", "oneflow"], "", "jax", "there is no GPU or TPU that JAX could use (--engine oneflow takes the other)"),
    ],
)
def test_the_engine_is_the_one_installed_or_the_one_that_suits(
    installed: list[str], accelerator: str, name: str, why: str
) -> None:
    assert suitable_engine(installed, accelerator) == (name, why)


def test_an_engine_that_is_asked_for_needs_no_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = EngineSettings(engine="oneflow")
    assert choose_engine(asked) == asked
    assert describe_engine(asked) == "oneflow"
    monkeypatch.setattr(engines, "installed_engines", lambda: ["jax"])
    assert describe_engine(choose_engine(EngineSettings())) == "jax: the only one installed"

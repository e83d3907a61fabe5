"""Adam and LAMB on OneFlow make the originals' updates: every variable, moment and norm of every step."""

from typing import Any

import numpy as np
import pytest

from tests.trainer.golden_updates import AFTER, BEFORE, read_trace
from trainer.settings import OptimizerSettings

pytestmark = pytest.mark.oneflow


@pytest.mark.parametrize("name", AFTER + BEFORE)
def test_every_update_of_the_originals(name: str) -> None:
    import oneflow as flow

    from trainer.engines.oneflow.optimizers import clip_factor, make_slots, squared_norm, update_variables

    trace = read_trace(name)
    variables = {each: flow.tensor(value) for each, value in trace.initial.items()}
    slots = {each: make_slots(variable) for each, variable in variables.items()}
    settings = OptimizerSettings(name=trace.optimizer)
    for number, (arrays, expected) in enumerate(zip(trace.gradients, trace.steps, strict=True), 1):
        gradients = {each: flow.tensor(value) for each, value in arrays.items()}
        norm = flow.sqrt(squared_norm(gradients.values()))
        assert float(norm) == pytest.approx(expected["global_norm"], rel=1e-6)
        rate = trace.schedule.learning_rate(number + trace.rate_offset)
        factor = clip_factor(norm, settings.clip_norm)
        update_variables(variables, gradients, slots, factor=factor, learning_rate=rate, update=number, settings=settings)
        for each, value in trace.arrays(expected["variables"]).items():
            np.testing.assert_allclose(variables[each].numpy(), value, rtol=0, atol=1e-6)
        for slot in ("m", "v") if "adam_m" in expected else ():
            for each, value in trace.arrays(expected[f"adam_{slot}"]).items():
                np.testing.assert_allclose(getattr(slots[each], slot).numpy(), value, rtol=1e-5, atol=1e-9)


def update_one(gradient: float, number: int, variable: Any, slots: Any, settings: OptimizerSettings) -> None:
    import oneflow as flow

    from trainer.engines.oneflow.optimizers import update_variables

    gradients = {"kernel": flow.tensor([gradient])}
    factor = flow.tensor([1.0])
    update_variables(
        {"kernel": variable}, gradients, {"kernel": slots}, factor=factor, learning_rate=0.01, update=number, settings=settings
    )


def test_bias_correction_is_that_of_adamw() -> None:
    """One weight of 2, gradients 0.5 and -0.25, by hand: the first step is as long as the rate, whatever the gradient."""
    import oneflow as flow

    from trainer.engines.oneflow.optimizers import make_slots

    weight = flow.tensor([2.0])
    slots, settings = make_slots(weight), OptimizerSettings(bias_correction=True, weight_decay=0.1)
    update_one(0.5, 1, weight, slots, settings)
    first = 2 - 0.01 * (1 + 0.1 * 2)
    assert weight.numpy()[0] == pytest.approx(first, abs=1e-6)
    update_one(-0.25, 2, weight, slots, settings)
    m = (0.9 * 0.1 * 0.5 - 0.1 * 0.25) / (1 - 0.9**2)
    v = (0.999 * 0.001 * 0.25 + 0.001 * 0.0625) / (1 - 0.999**2)
    assert weight.numpy()[0] == pytest.approx(first - 0.01 * (m / v**0.5 + 0.1 * first), abs=1e-6)


def test_lamb_moves_a_weight_of_0_as_adam_would() -> None:
    """Its trust ratio is 1 there, and the first step as long as the rate."""
    import oneflow as flow

    from trainer.engines.oneflow.optimizers import make_slots

    weight = flow.tensor([0.0])
    update_one(0.5, 1, weight, make_slots(weight), OptimizerSettings(name="lamb"))
    assert weight.numpy()[0] == pytest.approx(-0.01, abs=1e-6)


def test_the_norm_of_a_large_variable_is_not_lost_in_rounding() -> None:
    """Added up one by one, 23 million squares of 0.02 stop growing at 8192 of 9376."""
    import oneflow as flow

    from trainer.engines.oneflow.optimizers import squared_norm

    words = flow.ones(30522, 768) * 0.02
    assert float(squared_norm([words])) == pytest.approx(30522 * 768 * 0.02**2, rel=1e-5)


@pytest.mark.parametrize("bad", [float("inf"), float("nan")])
def test_a_norm_that_is_not_finite_spoils_the_factor(bad: float) -> None:
    import oneflow as flow

    from trainer.engines.oneflow.optimizers import clip_factor

    assert np.isnan(clip_factor(flow.tensor([bad]), 1.0).numpy()).all()
    np.testing.assert_allclose(clip_factor(flow.tensor([0.5, 1.0, 4.0]), 1.0).numpy(), [1, 1, 0.25])

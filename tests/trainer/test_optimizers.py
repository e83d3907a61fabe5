"""Adam and LAMB make the originals' updates and learning rates, with the operations of each framework.

tests/golden/optimizers.md describes the updates that the originals' optimizers made.
"""

import json
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.golden import GOLDEN
from tests.trainer.small_runs import on_each_engine
from tests.trainer.test_model import framework
from trainer import optimizers
from trainer.model import Operations
from trainer.optimizers import Schedule, Update, clip_factor, next_loss_scale, slots, updates
from trainer.settings import OptimizerSettings

Arrays = dict[str, NDArray[np.float32]]
AFTER = ["google_adam_after", "nvidia_adam_after", "nvidia_lamb_after"]  # the order of things that we take
BEFORE = ["google_adam", "google_adam_no_warmup", "nvidia_adam", "nvidia_lamb", "nvidia_lamb_no_warmup"]


class Trace:
    """Twelve updates of five variables by one of the originals, in tests/golden/optimizers.json."""

    def __init__(self, name: str) -> None:
        golden = json.loads((GOLDEN / "optimizers.json").read_bytes())
        settings, problem = golden["traces"][name], golden["problem"]
        self.initial = {v["name"]: np.array(v["init"], np.float32).reshape(v["shape"]) for v in problem["variables"]}
        self.gradients = [self.arrays(gradients) for gradients in problem["gradients"]]
        self.steps = settings["steps"]
        self.optimizer = "lamb" if "lamb" in name else "adam"
        schedule = Schedule if name.startswith("google") else partial(Schedule.nvidia, self.optimizer)
        of_run = schedule(
            peak=settings["init_lr"], steps=settings["num_train_steps"], warmup_steps=settings["num_warmup_steps"]
        )
        first = 1 if settings["order"] == "after" else 0  # whether update n used the learning rate at n, or the one before
        self.learning_rates = [of_run.learning_rate(step) for step in range(first, first + 12)]

    def arrays(self, values: dict[str, list[float]]) -> Arrays:
        """Values of the file in the shapes of the variables."""
        return {name: np.array(values[name], np.float32).reshape(value.shape) for name, value in self.initial.items()}


class Updates:
    """Variables with their moments, and updates of them on a framework."""

    def __init__(self, engine: str, variables: dict[str, Any], settings: OptimizerSettings) -> None:
        self.on, self.settings, self.variables = framework(engine), settings, list(variables)
        moments = {slot: 0 * value for name, value in variables.items() for slot in slots(settings, name)}
        self.state = {name: self.on.put(value) for name, value in {**variables, **moments}.items()}

    def make(self, arrays: dict[str, Any], learning_rate: float, count: int) -> float:
        """Make one update; returns the norm before clipping."""
        ops, gradients = self.on.ops, {name: self.on.put(array) for name, array in arrays.items()}
        norm = ops.sqrt(sum(ops.sum(gradient * gradient) for gradient in gradients.values()))
        factor = clip_factor(ops, norm, self.settings.clip_norm)
        self.state["updates"] = count - 1
        self.change(factor, gradients, learning_rate)
        return float(norm)

    def change(self, factor: Any, gradients: dict[str, Any], learning_rate: float) -> None:
        self.state |= dict(updates(self.on.ops, self.settings, self.state, gradients, factor, learning_rate))

    def values(self, index: int = 0) -> dict[str, Any]:
        """The variables, or the values of a slot, counted from 1."""
        return {name: self.on.take(self.state[(name, *slots(self.settings, name))[index]]) for name in self.variables}


@pytest.mark.parametrize("name", AFTER + BEFORE)
@on_each_engine
def test_every_update_of_the_originals(engine: str, name: str) -> None:
    trace = Trace(name)
    assert_updates_are(trace, Updates(engine, trace.initial, OptimizerSettings(name=trace.optimizer)))


def assert_updates_are(trace: Trace, updates: Updates) -> None:
    for number, (gradients, expected) in enumerate(zip(trace.gradients, trace.steps, strict=True), 1):
        norm = updates.make(gradients, trace.learning_rates[number - 1], number)
        assert norm == pytest.approx(expected["global_norm"], rel=1e-6)
        for each, value in trace.arrays(expected["variables"]).items():
            np.testing.assert_allclose(updates.values()[each], value, rtol=0, atol=1e-6)
        for index, moment in enumerate(("adam_m", "adam_v") if "adam_m" in expected else (), 1):
            for each, value in trace.arrays(expected[moment]).items():
                np.testing.assert_allclose(updates.values(index)[each], value, rtol=1e-5, atol=1e-9)


@on_each_engine
def test_bias_correction_is_that_of_adamw(engine: str) -> None:
    """One weight of 2, gradients 0.5 and -0.25, by hand: the first step is as long as the learning rate for any gradient."""
    settings = OptimizerSettings(bias_correction=True, weight_decay=0.1)
    updates = Updates(engine, {"kernel": np.array([2.0], np.float32)}, settings)
    updates.make({"kernel": np.array([0.5], np.float32)}, 0.01, 1)
    first = 2 - 0.01 * (1 + 0.1 * 2)
    assert updates.values()["kernel"][0] == pytest.approx(first, abs=1e-6)
    updates.make({"kernel": np.array([-0.25], np.float32)}, 0.01, 2)
    m = (0.9 * 0.1 * 0.5 - 0.1 * 0.25) / (1 - 0.9**2)
    v = (0.999 * 0.001 * 0.25 + 0.001 * 0.0625) / (1 - 0.999**2)
    assert updates.values()["kernel"][0] == pytest.approx(first - 0.01 * (m / v**0.5 + 0.1 * first), abs=1e-6)


@on_each_engine
def test_lamb_moves_a_weight_of_0_as_adam_would(engine: str) -> None:
    """Its trust ratio is 1 there, and the first step as long as the learning rate."""
    updates = Updates(engine, {"kernel": np.zeros(1, np.float32)}, OptimizerSettings(name="lamb"))
    updates.make({"kernel": np.array([0.5], np.float32)}, 0.01, 1)
    assert updates.values()["kernel"][0] == pytest.approx(-0.01, abs=1e-6)


@pytest.mark.parametrize("bad", [float("inf"), float("nan")])
@on_each_engine
def test_a_gradient_that_is_not_finite_makes_all_variables_nan(engine: str, bad: float) -> None:
    ones = np.ones(2, np.float32)
    updates = Updates(engine, {"kernel": ones, "bias": ones}, OptimizerSettings())
    assert not np.isfinite(updates.make({"kernel": np.array([bad, 1.0], np.float32), "bias": ones}, 0.01, 1))
    assert all(np.isnan(value).all() for value in updates.values().values())


class ForeachUpdates(Updates):
    """Updates of all variables at once, as PyTorch's engine makes those of Adam."""

    def change(self, factor: Any, gradients: dict[str, Any], learning_rate: float) -> None:
        from trainer.engines.torch import adam

        adam(Update(self.on.ops, self.settings, self.state, factor, learning_rate), self.state, gradients)


@pytest.mark.torch
@pytest.mark.parametrize("name", [name for name in AFTER + BEFORE if "adam" in name])
def test_adam_of_all_variables_at_once_makes_the_originals_updates(name: str) -> None:
    trace = Trace(name)
    assert_updates_are(trace, ForeachUpdates("torch", trace.initial, OptimizerSettings()))


@pytest.mark.torch
@pytest.mark.parametrize("bias_correction", [False, True])
def test_adam_of_all_variables_at_once_is_that_of_each(bias_correction: bool) -> None:
    """Of an update without gradients too, which changes nothing, and of one that is not finite."""
    trace, settings = Trace("google_adam_after"), OptimizerSettings(bias_correction=bias_correction)
    at_once, one_by_one = (kind("torch", trace.initial, settings) for kind in (ForeachUpdates, Updates))
    empty, bad = ({name: np.full_like(value, number) for name, value in trace.initial.items()} for number in (0, np.inf))
    for number, gradients in enumerate([*trace.gradients, empty, bad], 1):
        before = [{name: value.copy() for name, value in at_once.values(index).items()} for index in range(3)]
        for each in (at_once, one_by_one):
            each.make(gradients, 0.01, number)
        for index in range(3):
            found, expected = at_once.values(index), one_by_one.values(index)
            for name in found:
                np.testing.assert_allclose(found[name], expected[name], rtol=1e-6, atol=1e-8, err_msg=name)
                if gradients is empty:
                    np.testing.assert_array_equal(found[name], before[index][name])
                assert np.isnan(found[name]).all() == (gradients is bad)


class Numbers(Operations):
    def where(self, condition: bool, x: float, y: float) -> float:
        return x if condition else y


def test_the_loss_scale_by_value(monkeypatch: pytest.MonkeyPatch) -> None:
    assert optimizers.GROWTH_STEPS == 1000  # as NVIDIA's
    monkeypatch.setattr(optimizers, "GROWTH_STEPS", 3)
    now, seen = {"loss_scale": 8.0, "good_steps": 0.0}, []
    for is_finite in [True, True, True, True, False, False, False, False, False, True, True, True]:
        now = next_loss_scale(Numbers(), **now, is_finite=is_finite)
        seen.append(tuple(now.values()))
    assert seen == [
        (8, 1), (8, 2), (16, 0), (16, 1),  # three in a row double it
        (8, 0), (4, 0), (2, 0), (1, 0), (1, 0),  # each overflow halves it, down to 1
        (1, 1), (1, 2), (2, 0),
    ]  # fmt: skip


@pytest.mark.parametrize("name", AFTER + BEFORE)
def test_every_learning_rate_of_the_originals(name: str) -> None:
    trace = Trace(name)
    assert trace.learning_rates == pytest.approx([step["learning_rate"] for step in trace.steps], rel=1e-6, abs=1e-12)

"""Adam and LAMB make the originals' updates: every variable, moment and norm of every step."""

import json
from typing import Any

import numpy as np
import pytest

from bertprep.errors import UsageError
from tests.golden import GOLDEN
from tests.trainer.golden_updates import AFTER, BEFORE, read_trace
from trainer.engines import Slots
from trainer.settings import OptimizerSettings, is_decayed

ENGINES = [
    pytest.param(name, marks=getattr(pytest.mark, name.partition("-")[0])) for name in ("tensorflow", "tensorflow-xla", "jax")
]


class Updates:
    """Variables, and updates of them by an engine's optimizer."""

    def __init__(self, engine: str, variables: dict[str, Any], settings: OptimizerSettings) -> None:
        self.settings = settings
        if engine == "jax":
            from trainer.engines.jax.optimizers import update_variables

            self._update: Any = update_variables
            self._variables: Any = variables
            self._slots: Any = {name: Slots(np.zeros_like(value), np.zeros_like(value)) for name, value in variables.items()}
            self.make = self._make_with_jax
        else:
            import tensorflow as tf

            from trainer.engines.tensorflow.optimizers import make_slots, update_variables

            self._variables = {name: tf.Variable(value) for name, value in variables.items()}
            self._slots = make_slots(self._variables)
            self._update = tf.function(self._update_tensorflows, jit_compile=engine.endswith("xla"), autograph=False)
            self._update_variables = update_variables
            self.make = self._make_with_tensorflow

    def _make_with_jax(self, gradients: dict[str, Any], learning_rate: float, number: int) -> float:
        import jax

        self._variables, self._slots, norm = jax.jit(self._update, static_argnames="settings")(
            self._variables, gradients, self._slots, learning_rate=learning_rate, update=number, settings=self.settings
        )
        return float(norm)

    def _update_tensorflows(self, gradients: Any, rate: Any, number: Any) -> Any:
        return self._update_variables(
            self._variables, gradients, self._slots, learning_rate=rate, update=number, settings=self.settings
        )

    def _make_with_tensorflow(self, gradients: dict[str, Any], learning_rate: float, number: int) -> float:
        import tensorflow as tf

        tensors = {name: tf.constant(value) for name, value in gradients.items()}
        return float(self._update(tensors, tf.constant(learning_rate, tf.float32), tf.constant(number)))

    @property
    def variables(self) -> dict[str, Any]:
        return {name: np.array(value) for name, value in self._variables.items()}

    def slots(self, which: str) -> dict[str, Any]:
        return {name: np.array(getattr(slots, which)) for name, slots in self._slots.items()}


@pytest.mark.parametrize("name", AFTER + BEFORE)
@pytest.mark.parametrize("engine", ENGINES)
def test_every_update_of_the_originals(name: str, engine: str) -> None:
    trace = read_trace(name)
    updates = Updates(engine, trace.initial, OptimizerSettings(name=trace.optimizer))
    for number, (gradients, expected) in enumerate(zip(trace.gradients, trace.steps, strict=True), 1):
        rate = trace.schedule.learning_rate(number + trace.rate_offset)
        norm = updates.make(gradients, rate, number)
        assert norm == pytest.approx(expected["global_norm"], rel=1e-6)
        for each, value in trace.arrays(expected["variables"]).items():
            np.testing.assert_allclose(updates.variables[each], value, rtol=0, atol=1e-6)
        for slot in ("m", "v") if "adam_m" in expected else ():
            for each, value in trace.arrays(expected[f"adam_{slot}"]).items():
                np.testing.assert_allclose(updates.slots(slot)[each], value, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("engine", ENGINES)
def test_bias_correction_is_that_of_adamw(engine: str) -> None:
    """One weight of 2, gradients 0.5 and -0.25, by hand: the first step is as long as the rate, whatever the gradient."""
    settings = OptimizerSettings(bias_correction=True, weight_decay=0.1)
    updates = Updates(engine, {"kernel": np.array([2.0], np.float32)}, settings)
    for number, gradient in enumerate([0.5, -0.25], 1):
        updates.make({"kernel": np.array([gradient], np.float32)}, 0.01, number)
        if number == 1:
            assert updates.variables["kernel"][0] == pytest.approx(2 - 0.01 * (1 + 0.1 * 2), abs=1e-6)
    first = 2 - 0.01 * (1 + 0.1 * 2)
    m = (0.9 * 0.1 * 0.5 - 0.1 * 0.25) / (1 - 0.9**2)
    v = (0.999 * 0.001 * 0.25 + 0.001 * 0.0625) / (1 - 0.999**2)
    assert updates.variables["kernel"][0] == pytest.approx(first - 0.01 * (m / v**0.5 + 0.1 * first), abs=1e-6)


def test_what_is_decayed() -> None:
    decayed = ["bert/embeddings/word_embeddings", "bert/pooler/dense/kernel", "cls/seq_relationship/output_weights"]
    spared = ["bert/embeddings/LayerNorm/gamma", "bert/pooler/dense/bias", "cls/predictions/output_bias"]
    assert [name for name in decayed + spared if is_decayed(name)] == decayed


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("bad", [float("inf"), float("nan")])
def test_a_gradient_that_is_not_finite_shows_in_the_norm(bad: float, engine: str) -> None:
    updates = Updates(engine, {"kernel": np.ones(2, np.float32)}, OptimizerSettings())
    assert not np.isfinite(updates.make({"kernel": np.array([bad, 1.0], np.float32)}, 0.01, 1))
    assert np.isnan(updates.variables["kernel"]).all()  # and so does the variable, for a caller that did not look


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "sgd"}, "--optimizer sgd: unknown; choose one of adam, lamb"),
        ({"beta_2": 1.0}, "--beta2 1: must be above 0 and below 1"),
        ({"clip_norm": 0.0}, "--clip-norm 0: must be above 0"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, float], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        OptimizerSettings(**settings)  # type: ignore[arg-type]


def test_the_golden_file_is_the_reference_run() -> None:
    golden = json.loads((GOLDEN / "optimizers.json").read_bytes())
    assert golden["about"].startswith("TF 1.15.0 traces")
    assert set(AFTER + BEFORE) <= golden["traces"].keys()

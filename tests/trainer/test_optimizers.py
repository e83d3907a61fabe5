"""Adam and LAMB make the originals' updates: every variable, moment and norm of every step."""

import json

import numpy as np
import pytest

from bertprep.errors import UsageError
from tests.golden import GOLDEN
from tests.trainer.golden_updates import AFTER, BEFORE, read_trace
from trainer.settings import OptimizerSettings, is_decayed

pytestmark = pytest.mark.tensorflow


@pytest.mark.parametrize("name", AFTER + BEFORE)
@pytest.mark.parametrize("compiled", [False, True], ids=["plain", "xla"])
def test_every_update_of_the_originals(name: str, compiled: bool) -> None:
    import tensorflow as tf

    from trainer.engines.tensorflow.optimizers import make_slots, update_variables

    trace = read_trace(name)
    variables = {name: tf.Variable(value) for name, value in trace.initial.items()}
    slots = make_slots(variables)
    settings = OptimizerSettings(name=trace.optimizer)

    @tf.function(jit_compile=compiled)
    def step(gradients, rate, update):  # type: ignore[no-untyped-def]
        return update_variables(variables, gradients, slots, learning_rate=rate, update=update, settings=settings)

    for number, (gradients, expected) in enumerate(zip(trace.gradients, trace.steps, strict=True), 1):
        rate = trace.schedule.learning_rate(number + trace.rate_offset)
        norm = step(
            {each: tf.constant(value) for each, value in gradients.items()}, tf.constant(rate, tf.float32), tf.constant(number)
        )
        assert float(norm) == pytest.approx(expected["global_norm"], rel=1e-6)
        for each, value in trace.arrays(expected["variables"]).items():
            np.testing.assert_allclose(variables[each].numpy(), value, rtol=0, atol=1e-6)
        for slot in ("m", "v") if "adam_m" in expected else ():
            for each, value in trace.arrays(expected[f"adam_{slot}"]).items():
                np.testing.assert_allclose(getattr(slots[each], slot).numpy(), value, rtol=1e-5, atol=1e-9)


def test_bias_correction_is_that_of_adamw() -> None:
    """One weight of 2, gradients 0.5 and -0.25, by hand: the first step is as long as the rate, whatever the gradient."""
    import tensorflow as tf

    from trainer.engines.tensorflow.optimizers import make_slots, update_variables

    weight = tf.Variable([2.0])
    slots = make_slots({"kernel": weight})
    settings = OptimizerSettings(bias_correction=True, weight_decay=0.1)
    for number, gradient in enumerate([0.5, -0.25], 1):
        gradients = {"kernel": tf.constant([gradient])}
        update_variables({"kernel": weight}, gradients, slots, learning_rate=0.01, update=number, settings=settings)
        if number == 1:
            assert weight.numpy()[0] == pytest.approx(2 - 0.01 * (1 + 0.1 * 2), abs=1e-6)
    first = 2 - 0.01 * (1 + 0.1 * 2)
    m = (0.9 * 0.1 * 0.5 - 0.1 * 0.25) / (1 - 0.9**2)
    v = (0.999 * 0.001 * 0.25 + 0.001 * 0.0625) / (1 - 0.999**2)
    assert weight.numpy()[0] == pytest.approx(first - 0.01 * (m / v**0.5 + 0.1 * first), abs=1e-6)


def test_what_is_decayed() -> None:
    decayed = ["bert/embeddings/word_embeddings", "bert/pooler/dense/kernel", "cls/seq_relationship/output_weights"]
    spared = ["bert/embeddings/LayerNorm/gamma", "bert/pooler/dense/bias", "cls/predictions/output_bias"]
    assert [name for name in decayed + spared if is_decayed(name)] == decayed


@pytest.mark.parametrize("bad", [float("inf"), float("nan")])
def test_a_gradient_that_is_not_finite_shows_in_the_norm(bad: float) -> None:
    import tensorflow as tf

    from trainer.engines.tensorflow.optimizers import make_slots, update_variables

    weight = tf.Variable(tf.ones(2))
    variables, gradients = {"kernel": weight}, {"kernel": tf.constant([bad, 1.0])}
    norm = update_variables(
        variables, gradients, make_slots(variables), learning_rate=0.01, update=1, settings=OptimizerSettings()
    )
    assert not np.isfinite(float(norm))
    assert np.isnan(weight.numpy()).all()  # and so does the variable, for a caller that did not look


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

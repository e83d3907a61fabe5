"""The model computes what Hugging Face's does, in the precision of its weights, and its dropout is as even as chance."""

import re
from functools import cache
from typing import Any

import numpy as np
import pytest

from tests.trainer.golden_model import WEIGHTS, read_golden
from trainer.engines import dropout_keys
from trainer.model_config import ModelConfig
from trainer.weights import read_initial_weights

pytestmark = pytest.mark.jax
GOLDEN = read_golden()
CONFIG: ModelConfig = GOLDEN["config"]
BATCH: dict[str, Any] = GOLDEN["batch"]
SEQUENCES = len(BATCH["input_ids"])


@cache
def weights() -> dict[str, Any]:
    return dict(read_initial_weights(WEIGHTS, CONFIG))


def batch() -> dict[str, Any]:
    import jax.numpy as jnp

    return {name: jnp.asarray(values) for name, values in BATCH.items()}


@cache
def loss_and_gradients_of() -> Any:
    """A function of weights: the loss of the golden batch, its sums and its gradients."""
    import jax

    from trainer.engines.jax import pretraining
    from trainer.engines.jax.model import Model

    def loss(weights: Any) -> Any:
        sums = pretraining.sums(Model(CONFIG), weights, batch())
        return pretraining.loss(sums, pretraining.totals(batch())), sums

    return jax.jit(jax.value_and_grad(loss, has_aux=True))


def test_logits_are_hugging_faces() -> None:
    import jax

    from trainer.engines.jax import pretraining
    from trainer.engines.jax.model import Model

    logits = jax.jit(lambda weights: pretraining.logits(Model(CONFIG), weights, batch()))(weights())
    expected = np.array(GOLDEN["masked_lm_logits"])
    assert expected.std() > 0.5  # so that 1e-5 says something
    np.testing.assert_allclose(logits.masked_lm, expected.reshape(logits.masked_lm.shape), rtol=0, atol=1e-5)
    np.testing.assert_allclose(logits.next_sentence, GOLDEN["next_sentence_logits"], rtol=0, atol=1e-5)


def test_the_loss_and_the_hits_are_hugging_faces() -> None:
    (loss, sums), _ = loss_and_gradients_of()(weights())
    assert float(loss) == pytest.approx(GOLDEN["loss"], abs=2e-6)
    assert (float(sums.masked_lm_weight_sum), float(sums.sequences)) == (8, SEQUENCES)
    guesses = np.argmax(GOLDEN["masked_lm_logits"], axis=-1)
    assert float(sums.masked_lm_correct_sum) == ((guesses == BATCH["masked_lm_ids"]) * BATCH["masked_lm_weights"]).sum()
    guesses = np.argmax(GOLDEN["next_sentence_logits"], axis=-1)
    assert float(sums.next_sentence_correct_sum) == (guesses == BATCH["next_sentence_labels"]).sum()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_products_run_in_the_precision_of_their_weights(dtype: str) -> None:
    import jax
    import jax.numpy as jnp

    from trainer.engines.jax import pretraining
    from trainer.engines.jax.model import Model

    def loss(weights: Any) -> Any:
        return pretraining.loss(pretraining.sums(Model(CONFIG), weights, batch()), pretraining.totals(batch()))

    of_products = ("/kernel", "/bias")
    cast = {name: jnp.asarray(value, dtype if name.endswith(of_products) else None) for name, value in weights().items()}
    gradient = jax.jit(jax.grad(loss))
    lowered = gradient.lower(cast).as_text()
    operands = re.findall(r"stablehlo.dot_general .*: \(tensor<(?:\d+x)*(\w+)>, tensor<(?:\d+x)*(\w+)>\)", lowered)
    assert all(left == right for left, right in operands)
    # those of segments, forward and backward, and of the two next-sentence logits, forward and twice backward
    assert sum(left == "f32" for left, _ in operands) == (len(operands) if dtype == "float32" else 5)
    assert len(operands) > 3 * 6 * CONFIG.num_hidden_layers


def test_the_gradient_is_the_slope_of_the_loss() -> None:
    """Moved along its gradient, every variable changes the loss as the gradient says; the embeddings by both their uses."""
    _, gradients = loss_and_gradients_of()(weights())
    for name, gradient in gradients.items():
        if name.endswith("key/bias"):  # adds the same to all scores of a query, which softmax takes out again
            assert abs(gradient).max() < 1e-6
            continue
        norm, losses = np.linalg.norm(gradient), []
        for distance in (0.01, -0.01):
            moved = {**weights(), name: weights()[name] + np.float32(distance) * gradient / norm}
            losses.append(float(loss_and_gradients_of()(moved)[0][0]))
        assert (losses[0] - losses[1]) / 0.02 == pytest.approx(norm, rel=0.01, abs=2e-4), name


def test_the_gradient_of_a_table_is_the_sum_of_its_tokens_rows() -> None:
    import jax
    import jax.numpy as jnp

    from trainer.engines.jax.fused_ops import look_up

    rng = np.random.default_rng(5)
    for tokens in (rng.integers(0, 50, (8, 64)) ** 2 // 49, np.zeros((2, 3), int), np.array([[49]])):
        upstream = rng.integers(-9, 10, (*tokens.shape, 4)).astype(np.float32)  # whole numbers, whose sums are exact
        expected = np.zeros((50, 4), np.float32)
        np.add.at(expected, tokens, upstream)
        table = jnp.asarray(rng.random((50, 4), np.float32))
        found, gradient = jax.vjp(lambda table, tokens=tokens: look_up(table, jnp.asarray(tokens, jnp.int32)), table)
        np.testing.assert_array_equal(found, np.asarray(table)[tokens])
        np.testing.assert_array_equal(gradient(upstream)[0], expected)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_dropout_drops_that_fraction_and_keeps_the_mean(dtype: str) -> None:
    import jax.numpy as jnp

    from trainer.engines.jax.fused_ops import dropout
    from trainer.engines.jax.model import nth_key

    key = jnp.asarray(dropout_keys(3, 1, range(1))[0])
    draws = [np.array(dropout(jnp.ones((1000, 1000), dtype), 0.1, nth_key(key, number)), np.float32) for number in (0, 1)]
    for values in draws:
        assert (values == 0).mean() == pytest.approx(0.1, abs=0.0015)  # 5 deviations
        assert values.max() == pytest.approx(1 / 0.9, rel=0.005)
    dropped = [(values == 0).ravel() for values in draws]
    for shift in (0, 1, 2, 3, 4, 8):  # a generator that counts must not give the second mask a part of the first
        assert (dropped[0][shift:] & dropped[1][: 10**6 - shift]).mean() == pytest.approx(0.01, abs=0.0005)
        assert (dropped[1][shift:] & dropped[0][: 10**6 - shift]).mean() == pytest.approx(0.01, abs=0.0005)

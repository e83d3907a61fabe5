"""The gradients that are written out are those of the plain formulas, taken in float64 by TensorFlow itself."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from trainer.model_config import LAYER_NORM_EPSILON

pytestmark = pytest.mark.tensorflow
Array = NDArray[np.floating[Any]]
RNG = np.random.default_rng(0)


def value_and_gradients(function: Callable[..., Any], arrays: list[Array], upstream: Array, dtype: str) -> list[Array]:
    """What the function gives, and the gradients of all its arguments for that from above."""
    import tensorflow as tf

    tensors = [tf.constant(array, dtype) for array in arrays]
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        value = function(*tensors)
    gradients = tape.gradient(value, tensors, output_gradients=tf.constant(upstream, dtype))
    return [value.numpy(), *(gradient.numpy() for gradient in gradients)]


def assert_same(ours: Callable[..., Any], plain: Callable[..., Any], arrays: list[Array], upstream: Array) -> None:
    found = value_and_gradients(ours, arrays, upstream, "float32")
    expected = value_and_gradients(plain, arrays, upstream, "float64")
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-6, atol=2e-6 * np.abs(other).max())


def test_gelu() -> None:
    import tensorflow as tf

    from trainer.engines.tensorflow.fused_ops import gelu

    values = np.linspace(-8, 8, 1001).reshape(7, 143)
    assert_same(gelu, lambda x: x * 0.5 * tf.math.erfc(-x * 0.5**0.5), [values], RNG.normal(size=values.shape))


def test_layer_norm() -> None:
    import tensorflow as tf

    from trainer.engines.tensorflow.fused_ops import layer_norm

    def plain(values: Any, gamma: Any, beta: Any) -> Any:
        mean, variance = tf.nn.moments(values, [1], keepdims=True)
        return (values - mean) / tf.sqrt(variance + LAYER_NORM_EPSILON) * gamma + beta

    values, upstream = 2 + 3 * RNG.normal(size=(5, 64)), RNG.normal(size=(5, 64))
    assert_same(layer_norm, plain, [values, RNG.normal(size=64), RNG.normal(size=64)], upstream)


def test_cross_entropy() -> None:
    import tensorflow as tf

    from trainer.engines.tensorflow.fused_ops import cross_entropy

    labels = tf.constant([0, 2, 2, 6])
    logits = RNG.normal(size=(4, 7)) * 5
    logits[1] += 1000  # exp of which is infinite
    assert_same(
        lambda values: cross_entropy(labels, values),
        lambda values: tf.nn.sparse_softmax_cross_entropy_with_logits(labels, values),
        [logits.astype(np.float32)],
        RNG.normal(size=4),
    )


def test_look_up() -> None:
    import tensorflow as tf

    from trainer.engines.tensorflow.fused_ops import look_up

    rows = tf.constant([3, 0, 3])  # one comes twice, others never
    assert_same(
        lambda table: look_up(table, rows),
        lambda table: tf.one_hot(rows, 5, dtype=table.dtype) @ table,
        [RNG.normal(size=(5, 2))],
        RNG.normal(size=(3, 2)),
    )

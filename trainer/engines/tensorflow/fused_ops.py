"""The parts of the model that are no products, each with a gradient of its own, in few passes over memory.

Composed of small operations, their gradients are composed of more, each of which reads and writes all activations once; and
what a framework has ready it refuses where it must be deterministic, or replaces by something slower. The derivatives are
those of the same functions, which tests compare with the framework's own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import tensorflow as tf
from keras import ops

from trainer.model_config import LAYER_NORM_EPSILON

Tensor: TypeAlias = Any


def add_bias(values: Tensor, bias: Tensor) -> Tensor:
    """Rows plus a bias: TensorFlow's own operation, which adds, and sums its gradient, in half the time of an addition."""
    return tf.nn.bias_add(values, bias)


@ops.custom_gradient  # type: ignore[untyped-decorator]
def gelu(values: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """Each value times the probability that a normal variable is below it, by the error function as the originals have it."""
    probability = 0.5 * ops.erf(values * math.sqrt(0.5)) + 0.5

    def gradient(upstream: Tensor) -> Tensor:
        density = ops.exp(values * (values * -0.5)) * (1 / math.sqrt(2 * math.pi))
        return upstream * (probability + values * density)

    return values * probability, gradient


@ops.custom_gradient  # type: ignore[untyped-decorator]
def layer_norm(values: Tensor, gamma: Tensor, beta: Tensor) -> tuple[Tensor, Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]]:
    """Rows shifted and scaled to a mean of 0 and a variance of 1, then times gamma, plus beta."""
    centred = values - ops.mean(values, axis=-1, keepdims=True)
    scale = ops.rsqrt(ops.mean(ops.square(centred), axis=-1, keepdims=True) + LAYER_NORM_EPSILON)
    normal = centred * scale

    def gradient(upstream: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        towards = upstream * gamma
        common = ops.mean(towards, axis=-1, keepdims=True) + normal * ops.mean(towards * normal, axis=-1, keepdims=True)
        return (towards - common) * scale, _sum_of_rows(upstream * normal), _sum_of_rows(upstream)

    return add_bias(normal * gamma, beta), gradient


def _sum_of_rows(values: Tensor) -> Tensor:
    return tf.raw_ops.BiasAddGrad(out_backprop=values)


def cross_entropy(labels: Tensor, logits: Tensor) -> Tensor:
    """-log of each label's probability, (rows,), given logits, (rows, classes)."""

    @ops.custom_gradient  # type: ignore[untyped-decorator]
    def of_logits(logits: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        highest = ops.max(logits, axis=-1, keepdims=True)
        exponentials = ops.exp(logits - highest)
        total = ops.sum(exponentials, axis=-1, keepdims=True)
        of_label = ops.take_along_axis(logits, ops.expand_dims(labels, 1), axis=-1)

        def gradient(upstream: Tensor) -> Tensor:
            upstream = ops.expand_dims(upstream, 1)
            return exponentials * (upstream / total) - ops.one_hot(labels, logits.shape[-1], dtype="float32") * upstream

        return ops.squeeze(ops.log(total) + highest - of_label, -1), gradient

    result: Tensor = of_logits(logits)
    return result


def look_up(table: Tensor, rows: Tensor) -> Tensor:
    """Rows of a table, with a gradient as dense as the table: TensorFlow's own would be a list of rows, to be summed later."""
    size = table.shape[0]

    @ops.custom_gradient  # type: ignore[untyped-decorator]
    def gather(table: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        return ops.take(table, rows, axis=0), lambda upstream: ops.segment_sum(upstream, rows, num_segments=size)

    return gather(table)

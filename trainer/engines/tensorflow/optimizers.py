"""Adam as Google's and NVIDIA's BERT have it, and NVIDIA's LAMB, to the number.

Both keep two moments a variable and divide one by the root of the other, with epsilon outside the root; both add the weight
decay to the result of that, times the learning rate, and spare biases and LayerNorm; both first scale the gradients down to a
global norm of 1. What differs from the optimizers of those names elsewhere:

    Adam    has no bias correction, so its first steps are about three times as long; `bias_correction` makes it AdamW
    LAMB    takes |variable| / |update| as the trust ratio of every variable, biases and LayerNorm too, without bounds

Gradients are those summed over all micro-batches and replicas: the norm must be that of the sum. Updates are counted from 1:
with an update 0 NVIDIA's code divides 0 by 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypeAlias

import tensorflow as tf

from trainer.engines import Slots
from trainer.settings import OptimizerSettings, is_decayed

Tensor: TypeAlias = Any


def make_slots(variables: Mapping[str, Any]) -> dict[str, Slots]:
    """Moments of 0, as variables."""
    return {name: Slots(*(tf.Variable(tf.zeros(variable.shape)) for _ in "mv")) for name, variable in variables.items()}


def update_variables(
    variables: Mapping[str, Any],
    gradients: Mapping[str, Tensor],
    slots: Mapping[str, Slots],
    *,
    learning_rate: Tensor,
    update: Tensor,
    settings: OptimizerSettings,
    scale: Tensor = 1.0,
    skips: bool = False,
) -> Tensor:
    """Clip the summed gradients, update variables and slots in place; returns the norm before clipping.

    `update` counts from 1. `scale` is what the gradients were multiplied by, and is taken out of them again. With a norm that
    is infinite or NaN nothing is changed if it `skips`; if not, the variables become NaN, as in the originals.
    """
    norm = _global_norm([gradients[name] for name in variables]) / scale
    is_finite = tf.math.is_finite(norm)
    factor = settings.clip_norm / tf.maximum(norm, settings.clip_norm)
    factor = (factor + (norm - norm)) / scale  # an infinite norm gives a factor of 0, which would hide it: make it NaN
    m_weight, v_weight = (1 - settings.beta_1) * factor, math.sqrt(1 - settings.beta_2) * factor
    is_lamb = settings.name == "lamb"
    corrections = _bias_corrections(update, settings) if is_lamb or settings.bias_correction else None
    for name, variable in variables.items():
        value, gradient = tf.convert_to_tensor(variable), gradients[name]
        m = settings.beta_1 * slots[name].m + m_weight * gradient
        v = settings.beta_2 * slots[name].v + tf.square(v_weight * gradient)
        direction = _direction(m, v, corrections, settings)
        if is_decayed(name):
            direction += settings.weight_decay * value
        length = _trust_ratio(value, direction) * learning_rate if is_lamb else learning_rate
        for target, new in ((slots[name].m, m), (slots[name].v, v), (variable, value - length * direction)):
            target.assign(tf.where(is_finite, new, target) if skips else new)
    return norm


def _global_norm(gradients: list[Tensor]) -> Tensor:
    # Stacked, since a chain of additions becomes one of TensorFlow's that takes them in any order: another last digit each run
    return tf.sqrt(2 * tf.reduce_sum(tf.stack([tf.nn.l2_loss(gradient) for gradient in gradients])))


def _bias_corrections(update: Tensor, settings: OptimizerSettings) -> Slots:
    """What moments are divided by: 1 - beta ** update, without the cancellation that costs float32 five digits at first."""
    count = tf.cast(update, tf.float32)
    return Slots(*(-tf.math.expm1(count * math.log(beta)) for beta in (settings.beta_1, settings.beta_2)))


def _direction(m: Tensor, v: Tensor, corrections: Slots | None, settings: OptimizerSettings) -> Tensor:
    if corrections:
        m, v = m / corrections.m, v / corrections.v
    return m / (tf.sqrt(v) + settings.epsilon)


def _trust_ratio(variable: Tensor, direction: Tensor) -> Tensor:
    """|variable| / |direction|, or 1 where one of them is 0."""
    of_variable, of_direction = tf.nn.l2_loss(variable), tf.nn.l2_loss(direction)  # halves of squared norms
    both = tf.logical_and(of_variable > 0, of_direction > 0)
    return tf.sqrt(tf.where(both, of_variable / tf.where(both, of_direction, 1.0), 1.0))

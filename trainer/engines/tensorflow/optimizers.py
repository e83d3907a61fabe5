"""Adam as Google's and NVIDIA's BERT have it, and NVIDIA's LAMB, to the number.

Both keep two moments a variable and divide one by the root of the other, with epsilon outside the root; both add the weight
decay to the result of that, times the learning rate, and spare biases and LayerNorm; both first scale the gradients down to a
global norm of 1. What differs from the optimizers of those names elsewhere:

    Adam    has no bias correction, so its first steps are about three times as long; `bias_correction` makes it AdamW
    LAMB    takes |variable| / |update| as the trust ratio of every variable, biases and LayerNorm too, with no bounds

The rules are functions of tensors; `update_variables` puts them to work, once the gradients of all micro-batches and replicas
are summed: the norm must be that of the sum. An update is counted from 1 and never has the number 0, with which NVIDIA's code
divides 0 by 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import keras
import tensorflow as tf
from keras import ops

from trainer.settings import OptimizerSettings, is_decayed

Tensor: TypeAlias = Any


class Slots(NamedTuple):
    """What an optimizer keeps of one variable: the moving averages of its gradient and of that squared."""

    m: Any
    v: Any


def make_slots(variables: Sequence[Any]) -> list[Slots]:
    """Moments of 0 for Keras variables, as variables that are not trained."""
    return [
        Slots(*(keras.Variable(ops.zeros(v.shape), dtype="float32", trainable=False, name=f"{v.name}_{slot}") for slot in "mv"))
        for v in variables
    ]


def global_norm(gradients: Sequence[Tensor]) -> Tensor:
    """The Euclidean norm of all entries of all gradients."""
    # Stacked, since a chain of additions becomes one of TensorFlow's that takes them in any order: another last digit each run
    return ops.sqrt(2 * ops.sum(ops.stack([tf.nn.l2_loss(gradient) for gradient in gradients])))


def clip_factor(norm: Tensor, limit: float) -> Tensor:
    """What to multiply gradients of that norm by, so that it is at most `limit`; NaN where the norm is not finite."""
    factor = limit / ops.maximum(norm, limit)
    return factor + (norm - norm)  # infinity would give a factor of 0, and hide what went wrong


def shares(factor: Tensor, settings: OptimizerSettings) -> Slots:
    """What a gradient that is to be multiplied by `factor` is multiplied by, once for all, as it enters its two averages."""
    return Slots((1 - settings.beta_1) * factor, math.sqrt(1 - settings.beta_2) * factor)


def moments(gradient: Tensor, share: Slots, slots: Slots, settings: OptimizerSettings) -> Slots:
    """The moving averages with one more gradient."""
    return Slots(
        settings.beta_1 * slots.m + share.m * gradient,
        settings.beta_2 * slots.v + ops.square(share.v * gradient),
    )


def corrections(update: Tensor, settings: OptimizerSettings) -> Slots:
    """What the moments are divided by: 1 - beta ** update, without the cancellation that costs float32 five digits at first."""
    count = ops.cast(update, "float32")
    return Slots(*(-ops.expm1(count * math.log(beta)) for beta in (settings.beta_1, settings.beta_2)))


def direction(variable: Tensor, slots: Slots, *, corrected: Slots | None, decayed: bool, settings: OptimizerSettings) -> Tensor:
    """Where a variable is to go, before the learning rate: both optimizers' common part."""
    m, v = slots
    if corrected:
        m, v = m / corrected.m, v / corrected.v
    towards = m / (ops.sqrt(v) + settings.epsilon)
    return towards + settings.weight_decay * variable if decayed else towards


def adam(variable: Tensor, towards: Tensor, rate: Tensor) -> Tensor:
    """The variable after an update by Adam in this direction."""
    return variable - rate * towards


def lamb(variable: Tensor, towards: Tensor, rate: Tensor) -> Tensor:
    """The variable after an update by LAMB in this direction."""
    of_variable, of_direction = tf.nn.l2_loss(variable), tf.nn.l2_loss(towards)  # halves of squared norms
    both = ops.logical_and(of_variable > 0, of_direction > 0)
    ratio = ops.sqrt(ops.where(both, of_variable / ops.where(both, of_direction, 1.0), 1.0))
    return variable - ratio * rate * towards


def update_variables(
    variables: Sequence[Any],
    names: Sequence[str],
    gradients: Sequence[Tensor],
    slots: Sequence[Slots],
    *,
    rate: Tensor,
    update: Tensor,
    settings: OptimizerSettings,
    scale: Tensor = 1.0,
    skips: bool = False,
) -> Tensor:
    """Clip the summed gradients, update variables and slots in place; returns the norm before the clipping.

    `update` counts from 1. `scale` is what the gradients were multiplied by, and is taken out of them again. Where the norm is
    not finite nothing is changed if it `skips`; if not, the variables are NaN, as in the originals.
    """
    rule, is_corrected = (adam, settings.bias_correction) if settings.name == "adam" else (lamb, True)
    norm = global_norm(gradients) / scale
    share, is_finite = shares(clip_factor(norm, settings.clip_norm) / scale, settings), ops.isfinite(norm)
    corrected = corrections(update, settings) if is_corrected else None
    for variable, name, gradient, slot in zip(variables, names, gradients, slots, strict=True):
        value = ops.convert_to_tensor(variable)
        averages = moments(gradient, share, slot, settings)
        towards = direction(value, averages, corrected=corrected, decayed=is_decayed(name), settings=settings)
        value = rule(value, towards, rate)
        for target, new in ((slot.m, averages.m), (slot.v, averages.v), (variable, value)):
            target.assign(ops.where(is_finite, new, target) if skips else new)
    return norm

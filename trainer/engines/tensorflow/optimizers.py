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
from keras import ops

from trainer.optimizer import OptimizerSettings, is_decayed

Tensor: TypeAlias = Any  # of whatever framework Keras runs on


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
    return ops.sqrt(ops.sum(ops.stack([ops.sum(ops.square(gradient)) for gradient in gradients])))


def clip_factor(norm: Tensor, limit: float) -> Tensor:
    """What to multiply gradients of that norm by, so that it is at most `limit`; NaN where the norm is not finite."""
    factor = limit / ops.maximum(norm, limit)
    return factor + (norm - norm)  # infinity would give a factor of 0, and hide what went wrong


def moments(gradient: Tensor, slots: Slots, settings: OptimizerSettings) -> Slots:
    """The moving averages with one more gradient."""
    return Slots(
        settings.beta_1 * slots.m + (1 - settings.beta_1) * gradient,
        settings.beta_2 * slots.v + (1 - settings.beta_2) * ops.square(gradient),
    )


def direction(
    variable: Tensor, slots: Slots, *, update: Tensor, decayed: bool, corrected: bool, settings: OptimizerSettings
) -> Tensor:
    """Where a variable is to go, before the learning rate: both optimizers' common part."""
    m, v = slots
    if corrected:  # 1 - beta ** update, without the cancellation that costs float32 five digits in the first updates
        count = ops.cast(update, "float32")
        m = m / -ops.expm1(count * math.log(settings.beta_1))
        v = v / -ops.expm1(count * math.log(settings.beta_2))
    towards = m / (ops.sqrt(v) + settings.epsilon)
    return towards + settings.weight_decay * variable if decayed else towards


def adam(variable: Tensor, slots: Slots, *, rate: Tensor, update: Tensor, decayed: bool, settings: OptimizerSettings) -> Tensor:
    """The variable after an update by Adam with these moments."""
    return variable - rate * direction(
        variable, slots, update=update, decayed=decayed, corrected=settings.bias_correction, settings=settings
    )


def lamb(variable: Tensor, slots: Slots, *, rate: Tensor, update: Tensor, decayed: bool, settings: OptimizerSettings) -> Tensor:
    """The variable after an update by LAMB with these moments."""
    towards = direction(variable, slots, update=update, decayed=decayed, corrected=True, settings=settings)
    variable_norm, direction_norm = global_norm([variable]), global_norm([towards])
    both = ops.logical_and(variable_norm > 0, direction_norm > 0)
    ratio = ops.where(both, variable_norm / ops.where(both, direction_norm, 1.0), 1.0)
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
    rule = adam if settings.name == "adam" else lamb
    norm = global_norm(gradients) / scale
    factor = clip_factor(norm, settings.clip_norm) / scale  # one pass over the gradients for both
    for variable, name, gradient, slot in zip(variables, names, gradients, slots, strict=True):
        value = ops.convert_to_tensor(variable)
        averages = moments(gradient * factor, slot, settings)
        value = rule(value, averages, rate=rate, update=update, decayed=is_decayed(name), settings=settings)
        for target, new in ((slot.m, averages.m), (slot.v, averages.v), (variable, value)):
            target.assign(ops.where(ops.isfinite(norm), new, target) if skips else new)
    return norm

"""Adam as Google's and NVIDIA's BERT have it, and NVIDIA's LAMB, to the number.

Both keep two moments a variable and divide one by the root of the other, with epsilon outside the root; both add the weight
decay to the result of that, times the learning rate, and spare biases and LayerNorm; both first scale the gradients down to a
global norm of 1. What differs from the optimizers of those names elsewhere:

    Adam    has no bias correction, so its first steps are about three times as long; `bias_correction` makes it AdamW
    LAMB    takes |variable| / |update| as the trust ratio of every variable, biases and LayerNorm too, without bounds

Gradients are those summed over all micro-batches and devices: the norm must be that of the sum. Updates are counted from 1:
with an update 0 NVIDIA's code divides 0 by 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import jax.numpy as jnp

from trainer.engines import Slots
from trainer.engines.jax.fused_ops import Array
from trainer.settings import OptimizerSettings, is_decayed

Arrays = dict[str, Array]


def update_variables(
    variables: Mapping[str, Array],
    gradients: Mapping[str, Array],
    slots: Mapping[str, Slots],
    *,
    learning_rate: Array,
    update: Array,
    settings: OptimizerSettings,
    scale: Array = 1.0,
    skips: bool = False,
) -> tuple[Arrays, dict[str, Slots], Array]:
    """Clip the summed gradients and make an update: the variables and slots after it, and the norm before clipping.

    `update` counts from 1. `scale` is what the gradients were multiplied by, and is taken out of them again. With a norm that
    is infinite or NaN nothing is changed if it `skips`; if not, the variables become NaN, as in the originals.
    """
    norm = jnp.sqrt(jnp.stack([_squares(gradients[name]) for name in variables]).sum()) / scale
    factor = settings.clip_norm / jnp.maximum(norm, settings.clip_norm)
    factor = (factor + (norm - norm)) / scale  # an infinite norm gives a factor of 0, which would hide it: make it NaN
    is_lamb = settings.name == "lamb"
    corrections = _bias_corrections(update, settings) if is_lamb or settings.bias_correction else Slots(1.0, 1.0)
    new_variables, new_slots = {}, {}
    for name, variable in variables.items():
        gradient, old = gradients[name] * factor, slots[name]
        m = settings.beta_1 * old.m + (1 - settings.beta_1) * gradient
        v = settings.beta_2 * old.v + (1 - settings.beta_2) * jnp.square(gradient)
        direction = (m / corrections.m) / (jnp.sqrt(v / corrections.v) + settings.epsilon)
        if is_decayed(name):
            direction += settings.weight_decay * variable
        length = _trust_ratio(variable, direction) * learning_rate if is_lamb else learning_rate
        new = [variable - length * direction, m, v]
        if skips:
            new = [jnp.where(jnp.isfinite(norm), *each) for each in zip(new, (variable, *old), strict=True)]
        new_variables[name], new_slots[name] = new[0], Slots(*new[1:])
    return new_variables, new_slots, norm


def _squares(values: Array) -> Array:
    return jnp.square(values).sum()


def _bias_corrections(update: Array, settings: OptimizerSettings) -> Slots:
    """What moments are divided by: 1 - beta ** update, without the cancellation that costs float32 five digits at first."""
    return Slots(*(-jnp.expm1(update * math.log(beta)) for beta in (settings.beta_1, settings.beta_2)))


def _trust_ratio(variable: Array, direction: Array) -> Array:
    """|variable| / |direction|, or 1 where one of them is 0."""
    of_variable, of_direction = _squares(variable), _squares(direction)
    both = (of_variable > 0) & (of_direction > 0)
    return jnp.sqrt(jnp.where(both, of_variable / jnp.where(both, of_direction, 1.0), 1.0))

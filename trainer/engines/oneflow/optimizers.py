"""Adam as Google's and NVIDIA's BERT have it, and NVIDIA's LAMB, on tensors of OneFlow, updated in place.

The rules are those of `trainer.engines.tensorflow.optimizers`, which describes them, to the number. OneFlow's own classes are
not used: their learning rate and count of updates are fixed in a graph when it is made, their second moment is off by 1.3e-5
(they have 1 - 0.999 in float32), and on a CPU their LAMB adds up squares one by one, which puts the trust ratio of 23 million
equal weights 0.3% off.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import oneflow as flow

from trainer.engines import Slots
from trainer.settings import OptimizerSettings, is_decayed

Tensor: TypeAlias = Any


def make_slots(variable: Tensor) -> Slots:
    return Slots(flow.zeros_like(variable), flow.zeros_like(variable))


def squared_norm(tensors: Iterable[Tensor]) -> Tensor:
    """The sum of the squares of all entries."""
    return sum(flow.sum(flow.square(tensor)) for tensor in tensors)


def clip_factor(norm: Tensor, limit: float) -> Tensor:
    """What to multiply gradients of that norm by, so that it is at most `limit`; NaN where the norm is not finite."""
    return limit / norm.clamp(min=limit) + (norm - norm)  # infinity would give a factor of 0, and hide what went wrong


def update_variables(
    variables: Mapping[str, Tensor],
    gradients: Mapping[str, Tensor],
    slots: Mapping[str, Slots],
    *,
    factor: Tensor,
    learning_rate: float,
    update: int,
    settings: OptimizerSettings,
) -> None:
    """Update variables and slots with gradients multiplied by `factor`; updates count from 1."""
    with flow.no_grad():
        for name, variable in variables.items():
            _average(slots[name], gradients[name] * factor, settings)
            towards = _direction(variable, slots[name], update=update, decayed=is_decayed(name), settings=settings)
            if settings.name == "lamb":
                towards.mul_(_trust_ratio(variable, towards))
            variable.sub_(towards.mul_(learning_rate))


def _average(slots: Slots, gradient: Tensor, settings: OptimizerSettings) -> None:
    slots.m.mul_(settings.beta_1).add_(gradient * (1 - settings.beta_1))
    slots.v.mul_(settings.beta_2).add_(flow.square(gradient).mul_(1 - settings.beta_2))


def _direction(variable: Tensor, slots: Slots, *, update: int, decayed: bool, settings: OptimizerSettings) -> Tensor:
    """The update of a variable before the learning rate, as both optimizers have it."""
    m, v = slots
    if settings.name == "lamb" or settings.bias_correction:  # 1 - beta ** update
        m = m * (1 / -math.expm1(update * math.log(settings.beta_1)))
        v = v * (1 / -math.expm1(update * math.log(settings.beta_2)))
    towards = m / (flow.sqrt(v) + settings.epsilon)
    return towards.add_(variable * settings.weight_decay) if decayed else towards


def _trust_ratio(variable: Tensor, towards: Tensor) -> Tensor:
    """|variable| / |direction|, or 1 where one of them is 0."""
    variable_norm, direction_norm = flow.sqrt(squared_norm([variable])), flow.sqrt(squared_norm([towards]))
    one = flow.ones_like(variable_norm)
    ratio = variable_norm / flow.where(direction_norm > 0, direction_norm, one)
    return flow.where(variable_norm * direction_norm > 0, ratio, one)

"""Adam as in Google's and NVIDIA's BERT, and NVIDIA's LAMB, once for every framework; and their learning rates.

Both divide one moment by the root of the other, with epsilon outside the root; add weight decay, but not for biases and
LayerNorm; and first scale gradients of the global batch down to a norm of 1.

    Adam    has no bias correction, so its first steps are about three times as long; `bias_correction` makes it AdamW
    LAMB    takes |variable| / |update| as the trust ratio of every variable, biases and LayerNorm too, without bounds

The learning rate rises linearly in `warmup_steps` updates, and falls by (1 - update / steps) ** power, counted from the first:
it drops where warmup ends. NVIDIA's Adam starts the decay higher so that the two meet ("crossover").
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from bertprep.errors import UsageError
from trainer.model import Array, Arrays, Operations
from trainer.settings import OptimizerSettings

_NOT_DECAYED = re.compile("LayerNorm|layer_norm|bias")
FIRST_LOSS_SCALE = 2.0**15
GROWTH_STEPS = 1000
"""Finite updates in a row after which the loss scale doubles."""


def moments_of(name: str) -> tuple[str, str]:
    return f"{name}/adam_m", f"{name}/adam_v"


def clip_factor(ops: Operations, norm: Array, clip_norm: float) -> Array:
    """Return the factor that scales gradients of this norm down to `clip_norm`; NaN if `norm` is not finite."""
    return clip_norm / ops.maximum(norm, clip_norm) + (norm - norm)  # an infinite norm alone would give 0, and hide itself


def updates(
    ops: Operations, settings: OptimizerSettings, state: Arrays, gradients: Arrays, factor: Array, learning_rate: Any
) -> Iterator[tuple[str, Array]]:
    """Yield the changes of the state by an update, by name and one variable after the other.

    Gradients are multiplied by `factor`, for clipping and the loss scale. In fp16 an overflow (NaN) changes the loss scale
    only.
    """
    changes = _adam_or_lamb(ops, settings, state, gradients, factor, learning_rate)
    if ops.precision != "fp16":
        yield from changes
        return
    is_finite = ops.is_finite(factor)
    for name, value in changes:
        yield name, ops.where(is_finite, value, state[name])
    yield from next_loss_scale(ops, state["loss_scale"], state["good_steps"], is_finite).items()


def _adam_or_lamb(
    ops: Operations, settings: OptimizerSettings, state: Arrays, gradients: Arrays, factor: Array, learning_rate: Any
) -> Iterator[tuple[str, Array]]:
    is_lamb, count = settings.name == "lamb", state["updates"] + 1
    for name, of_variable in gradients.items():
        variable, gradient, moments = state[name], of_variable * factor, moments_of(name)
        m = settings.beta_1 * state[moments[0]] + (1 - settings.beta_1) * gradient
        v = settings.beta_2 * state[moments[1]] + (1 - settings.beta_2) * (gradient * gradient)
        mean, mean_square = m, v
        if is_lamb or settings.bias_correction:
            # 1 - beta ** count, by expm1: the difference would cost float32 five digits in the first updates
            mean = m / -ops.expm1(count * math.log(settings.beta_1))
            mean_square = v / -ops.expm1(count * math.log(settings.beta_2))
        direction = mean / (ops.sqrt(mean_square) + settings.epsilon)
        if is_decayed(name):
            direction = direction + settings.weight_decay * variable
        length = learning_rate * trust_ratio(ops, variable, direction) if is_lamb else learning_rate
        yield name, variable - direction * length  # OneFlow takes a hundred times as long for the other order
        yield from zip(moments, (m, v), strict=True)
    yield "updates", count


def trust_ratio(ops: Operations, variable: Array, direction: Array) -> Array:
    """|variable| / |direction|, or 1 where one of them is 0."""
    of_variable, of_direction = ops.sum(variable * variable), ops.sum(direction * direction)
    both = (of_variable > 0) & (of_direction > 0)
    return ops.sqrt(ops.where(both, of_variable / ops.where(both, of_direction, 1.0), 1.0))


def next_loss_scale(ops: Operations, loss_scale: Array, good_steps: Array, is_finite: Array) -> dict[str, Array]:
    """Return the loss scale of fp16 after an update: halved by an overflow, doubled after `GROWTH_STEPS` finite updates."""
    good_steps = ops.where(is_finite, good_steps + 1, 0.0)
    is_grown = good_steps >= GROWTH_STEPS
    grown = ops.where(is_grown, loss_scale * 2, loss_scale)
    shrunk = ops.where(loss_scale > 2, loss_scale / 2, 1.0)
    return {"loss_scale": ops.where(is_finite, grown, shrunk), "good_steps": ops.where(is_grown, 0.0, good_steps)}


def is_decayed(name: str) -> bool:
    """Whether weight decay applies to the variable of this name.

    >>> is_decayed("bert/pooler/dense/kernel"), is_decayed("cls/predictions/output_bias")
    (True, False)
    """
    return _NOT_DECAYED.search(name) is None


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Learning rates of a run of `steps` updates: google-research/bert's by default, NVIDIA's by `Schedule.nvidia`."""

    peak: float
    steps: int
    warmup_steps: int = 0
    power: float = 1.0
    crossover: bool = False

    def __post_init__(self) -> None:
        if self.warmup_steps > self.steps:
            raise UsageError(
                f"--warmup-steps {self.warmup_steps}: are more than the {self.steps} steps, so --lr {self.peak:g} would not be "
                "reached"
            )

    @classmethod
    def nvidia(cls, optimizer: str, *, peak: float, steps: int, warmup_steps: int) -> Schedule:
        if optimizer == "adam":
            return cls(peak=peak, steps=steps, warmup_steps=warmup_steps, crossover=True)
        return cls(peak=peak, steps=steps, warmup_steps=warmup_steps, power=0.5)

    def learning_rate(self, update: int) -> float:
        """Return the learning rate of update `update`, counted from 1; 0 in the last one and after.

        >>> schedule = Schedule(peak=0.01, steps=12, warmup_steps=4)
        >>> [round(schedule.learning_rate(update), 5) for update in (1, 3, 4, 11, 12)]
        [0.0025, 0.0075, 0.00667, 0.00083, 0.0]
        """
        if update < self.warmup_steps:
            return self.peak * update / self.warmup_steps
        if update >= self.steps:
            return 0.0
        base = self.peak / (1 - self.warmup_steps / self.steps) if self.crossover else self.peak
        return float(base * (1 - update / self.steps) ** self.power)

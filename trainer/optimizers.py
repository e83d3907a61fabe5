"""Adam as in Google's and NVIDIA's BERT, NVIDIA's LAMB, and Lion, written once for all frameworks; and learning rates.

All first scale gradients of the global batch down to a norm of 1, and add weight decay, but not for biases and LayerNorm.

    Adam    divides one moment by the root of the other, with epsilon outside the root; it has no bias correction, so its first
            steps are about three times as long; `bias_correction` makes it AdamW
    LAMB    Adam with bias correction; |variable| / |update| is the trust ratio of every variable, biases and LayerNorm too,
            without bounds
    Lion    the sign of the mean that the gradient has moved by 1 - beta1; the mean itself moves by 1 - beta2 (Chen et al. 2023)

An optimizer is a row of `_OPTIMIZERS`: the names of its slots, and a function of a gradient and its slots.

The learning rate rises linearly in `warmup_steps` updates, and falls by (1 - update / steps) ** power, counted from the first:
it drops where warmup ends. NVIDIA's Adam starts the decay higher so that the two meet ("crossover").
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from bertprep.errors import UsageError
from trainer.model import Array, Arrays, Operations
from trainer.settings import OptimizerSettings

_NOT_DECAYED = re.compile("LayerNorm|layer_norm|bias")
FIRST_LOSS_SCALE = 2.0**15
_TINY = 1e-37
GROWTH_STEPS = 1000
"""Finite updates in a row after which the loss scale doubles."""


def slots(settings: OptimizerSettings, name: str) -> list[str]:
    """Return the names of an optimizer's slots for a variable; each has the variable's shape and starts at 0."""
    return [f"{name}/{slot}" for slot in _OPTIMIZERS[settings.name].slots]


def clip_factor(ops: Operations, norm: Array, clip_norm: float) -> Array:
    """Return the factor that scales gradients of this norm down to `clip_norm`; 0 if it is 0, NaN if it is not finite."""
    # 1; 0 for a norm of 0; NaN for infinity, whose factor would be 0 otherwise
    is_not_zero = norm / ops.maximum(norm, _TINY)
    return clip_norm / ops.maximum(norm, clip_norm) * is_not_zero


class _Update:
    """The numbers that all variables share in an update.

    Where there are no gradients, the learning rate is 0 and means stay as they are: a choice between numbers is free, one
    between arrays would take as long as the update.
    """

    def __init__(self, ops: Operations, settings: OptimizerSettings, state: Arrays, factor: Array, learning_rate: Any) -> None:
        self.ops, self.settings, self.factor = ops, settings, factor
        self._has_gradients = ops.is_not_zero(factor)
        self._count = state["updates"] + 1
        self.learning_rate = self._unless_empty(learning_rate, 0.0)
        self.counted = state["updates"] + self._unless_empty(1.0, 0.0)

    def mean(self, before: Array, gradient: Array, decay: float) -> Array:
        """Return the running mean of the gradients, after this one times `factor`."""
        added = self._unless_empty(1 - decay, 0.0) * self.factor
        return self._unless_empty(decay, 1.0) * before + gradient * added

    def mean_square(self, before: Array, gradient: Array, decay: float) -> Array:
        root = gradient * (self._unless_empty(math.sqrt(1 - decay), 0.0) * self.factor)
        return self._unless_empty(decay, 1.0) * before + root * root

    def correction(self, decay: float) -> Any:
        """Return 1 - decay ** count, by which a mean that starts at 0 is too small."""
        return -self.ops.expm1(self._count * math.log(decay))  # the difference costs float32 five digits in the first updates

    def _unless_empty(self, value: Any, otherwise: float) -> Any:
        return self.ops.where(self._has_gradients, value, otherwise)


def _adam(update: _Update, gradient: Array, m: Array, v: Array) -> tuple[Array, tuple[Array, ...]]:
    settings, epsilon = update.settings, update.settings.epsilon
    m = update.mean(m, gradient, settings.beta_1)
    v = update.mean_square(v, gradient, settings.second_decay)
    root = update.ops.sqrt(v)
    if settings.name == "lamb" or settings.bias_correction:
        # Both means are corrected at once, by scaling the quotient
        of_mean = update.correction(settings.beta_1)
        root, epsilon = root * (of_mean / update.correction(settings.second_decay) ** 0.5), epsilon * of_mean
    return m / (root + epsilon), (m, v)


def _lion(update: _Update, gradient: Array, m: Array) -> tuple[Array, tuple[Array, ...]]:
    settings = update.settings
    direction = update.ops.sign(update.mean(m, gradient, settings.beta_1))
    return direction, (update.mean(m, gradient, settings.second_decay),)


class _Optimizer(NamedTuple):
    slots: tuple[str, ...]
    direction: Callable[..., tuple[Array, tuple[Array, ...]]]  # (update, gradient, slots) -> (direction, new slots)
    has_trust_ratio: bool = False


_OPTIMIZERS = {
    "adam": _Optimizer(("adam_m", "adam_v"), _adam),
    "lamb": _Optimizer(("adam_m", "adam_v"), _adam, has_trust_ratio=True),
    "lion": _Optimizer(("lion_m",), _lion),
}


def updates(
    ops: Operations, settings: OptimizerSettings, state: Arrays, gradients: Arrays, factor: Array, learning_rate: Any
) -> Iterator[tuple[str, Array]]:
    """Yield the new values of the state by name, one variable after the other.

    Gradients are multiplied by `factor`, for clipping and the loss scale. Where it is 0, as of a batch without targets, no
    variable, moment or count changes. In fp16 an overflow (NaN) changes the loss scale only.
    """
    changes = _changes(_Update(ops, settings, state, factor, learning_rate), state, gradients)
    if ops.precision != "fp16":
        yield from changes
        return
    is_finite = ops.is_finite(factor)
    for name, value in changes:
        yield name, ops.where(is_finite, value, state[name])
    yield from next_loss_scale(ops, state["loss_scale"], state["good_steps"], is_finite).items()


def _changes(update: _Update, state: Arrays, gradients: Arrays) -> Iterator[tuple[str, Array]]:
    settings, optimizer = update.settings, _OPTIMIZERS[update.settings.name]
    for name, gradient in gradients.items():
        variable, kept = state[name], slots(settings, name)
        direction, after = optimizer.direction(update, gradient, *(state[slot] for slot in kept))
        if is_decayed(name):
            direction = direction + settings.weight_decay * variable
        length = update.learning_rate
        if optimizer.has_trust_ratio:
            length = length * trust_ratio(update.ops, variable, direction)
        yield name, variable - direction * length  # OneFlow takes a hundred times as long for the other order
        yield from zip(kept, after, strict=True)
    yield "updates", update.counted


def trust_ratio(ops: Operations, variable: Array, direction: Array) -> Array:
    """Return |variable| / |direction|, or 1 if one of them is 0."""
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

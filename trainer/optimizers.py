"""Update variables by Adam as in Google's and NVIDIA's BERT, or by NVIDIA's LAMB; and compute learning rates.

Both are written once for all frameworks. They first scale the gradients of the global batch down to a maximum norm, and
add weight decay except to biases and LayerNorm.

    Adam    divides the first moment by the root of the second, plus epsilon. It has no bias correction, so its first steps are
            about three times as long. `bias_correction` makes it AdamW.
    LAMB    is Adam with bias correction, times a trust ratio |variable| / |update| without bounds, which also applies to biases
            and LayerNorm.

The learning rate rises linearly in `warmup_steps` updates, and decays by (1 - update / steps) ** power. The decay counts all
updates, so the learning rate drops where warmup ends. NVIDIA's Adam starts the decay higher so that the two meet ("crossover").
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
"""The number of finite updates in a row after which the loss scale doubles."""


def slots(settings: OptimizerSettings, name: str) -> list[str]:
    """Return the names of a variable's slots, such as moments. Each has the variable's shape and starts at 0."""
    return [f"{name}/{slot}" for slot in _OPTIMIZERS[settings.name].slots]


def clip_factor(ops: Operations, norm: Array, clip_norm: float) -> Array:
    """Return the factor that scales gradients of this norm down to `clip_norm`: 0 for a norm of 0, NaN if it is not finite."""
    # 1 for other norms; NaN for infinity, which would otherwise give 0
    is_not_zero = norm / ops.maximum(norm, _TINY)
    return clip_norm / ops.maximum(norm, clip_norm) * is_not_zero


class Update:
    """The numbers that all variables share in an update.

    Without gradients (a factor of 0) the learning rate becomes 0, and moments keep their values. Choosing between numbers costs
    nothing; choosing between arrays would take as long as the update.
    """

    def __init__(self, ops: Operations, settings: OptimizerSettings, state: Arrays, factor: Array, learning_rate: Any) -> None:
        self.ops, self.settings, self.factor = ops, settings, factor
        self._has_gradients = ops.is_not_zero(factor)
        self._count = state["updates"] + 1
        self.learning_rate = self.unless_empty(learning_rate, 0.0)
        self.counted = state["updates"] + self.unless_empty(1.0, 0.0)

    def mean(self, before: Array, gradient: Array, decay: float) -> Array:
        """Return the running mean of the gradients after adding `gradient` times `factor`."""
        added = self.unless_empty(1 - decay, 0.0) * self.factor
        return self.unless_empty(decay, 1.0) * before + gradient * added

    def mean_square(self, before: Array, gradient: Array, decay: float) -> Array:
        root = gradient * (self.unless_empty(math.sqrt(1 - decay), 0.0) * self.factor)
        return self.unless_empty(decay, 1.0) * before + root * root

    def correction(self, decay: float) -> Any:
        """Return 1 - decay ** count, the factor by which a mean that starts at 0 is too small."""
        return -self.ops.expm1(self._count * math.log(decay))  # 1 - x would lose five digits in the first updates

    def unless_empty(self, value: Any, otherwise: float) -> Any:
        """Return the value, or `otherwise` if there are no gradients."""
        return self.ops.where(self._has_gradients, value, otherwise)


def _adam(update: Update, gradient: Array, m: Array, v: Array) -> tuple[Array, tuple[Array, ...]]:
    settings, epsilon = update.settings, update.settings.epsilon
    m = update.mean(m, gradient, settings.beta_1)
    v = update.mean_square(v, gradient, settings.beta_2)
    root = update.ops.sqrt(v)
    if settings.name == "lamb" or settings.bias_correction:
        # Scaling the root and epsilon corrects both means at once
        of_mean = update.correction(settings.beta_1)
        root, epsilon = root * (of_mean / update.correction(settings.beta_2) ** 0.5), epsilon * of_mean
    return m / (root + epsilon), (m, v)


class _Optimizer(NamedTuple):
    slots: tuple[str, ...]
    direction: Callable[..., tuple[Array, tuple[Array, ...]]]  # (update, gradient, slots) -> (direction, new slots)
    has_trust_ratio: bool = False


_OPTIMIZERS = {
    "adam": _Optimizer(("adam_m", "adam_v"), _adam),
    "lamb": _Optimizer(("adam_m", "adam_v"), _adam, has_trust_ratio=True),
}


def updates(
    ops: Operations, settings: OptimizerSettings, state: Arrays, gradients: Arrays, factor: Array, learning_rate: Any
) -> Iterator[tuple[str, Array]]:
    """Yield the name and new value of each variable, moment and counter, one variable after the other.

    Gradients are multiplied by `factor`, for clipping and the loss scale. If it is 0, as for a batch without targets, no value
    changes. In fp16 the loss scale is yielded too, and an overflow (NaN) changes nothing else.
    """
    changes = _changes(Update(ops, settings, state, factor, learning_rate), state, gradients)
    if ops.precision != "fp16":
        yield from changes
        return
    is_finite = ops.is_finite(factor)
    for name, value in changes:
        yield name, ops.where(is_finite, value, state[name])
    yield from next_loss_scale(ops, state["loss_scale"], state["good_steps"], is_finite).items()


def _changes(update: Update, state: Arrays, gradients: Arrays) -> Iterator[tuple[str, Array]]:
    settings, optimizer = update.settings, _OPTIMIZERS[update.settings.name]
    for name, gradient in gradients.items():
        variable, kept = state[name], slots(settings, name)
        direction, after = optimizer.direction(update, gradient, *(state[slot] for slot in kept))
        if is_decayed(name):
            direction = direction + settings.weight_decay * variable
        length = update.learning_rate
        if optimizer.has_trust_ratio:
            length = length * trust_ratio(update.ops, variable, direction)
        yield name, variable - direction * length  # OneFlow takes a hundred times as long for length * direction
        yield from zip(kept, after, strict=True)
    yield "updates", update.counted


def trust_ratio(ops: Operations, variable: Array, direction: Array) -> Array:
    """Return |variable| / |direction|, or 1 if one of them is 0."""
    of_variable, of_direction = ops.sum(variable * variable), ops.sum(direction * direction)
    both = (of_variable > 0) & (of_direction > 0)
    return ops.sqrt(ops.where(both, of_variable / ops.where(both, of_direction, 1.0), 1.0))


def next_loss_scale(ops: Operations, loss_scale: Array, good_steps: Array, is_finite: Array) -> dict[str, Array]:
    """Return the loss scale after an update, and the count of good steps.

    An overflow halves it; `GROWTH_STEPS` finite updates in a row double it.
    """
    good_steps = ops.where(is_finite, good_steps + 1, 0.0)
    is_grown = good_steps >= GROWTH_STEPS
    grown = ops.where(is_grown, loss_scale * 2, loss_scale)
    shrunk = ops.where(loss_scale > 2, loss_scale / 2, 1.0)
    return {"loss_scale": ops.where(is_finite, grown, shrunk), "good_steps": ops.where(is_grown, 0.0, good_steps)}


def is_decayed(name: str) -> bool:
    """Return whether weight decay applies to the variable of this name.

    >>> is_decayed("bert/pooler/dense/kernel"), is_decayed("cls/predictions/output_bias")
    (True, False)
    """
    return _NOT_DECAYED.search(name) is None


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """The learning rates of a run of `steps` updates, by default like google-research/bert's, or like NVIDIA's."""

    peak: float
    steps: int
    warmup_steps: int = 0
    power: float = 1.0
    crossover: bool = False

    def __post_init__(self) -> None:
        if self.warmup_steps > self.steps:
            raise UsageError(
                f"--warmup-steps {self.warmup_steps}: the run has only {self.steps} steps, so it would not reach --lr "
                f"{self.peak:g}; give fewer warmup steps, or more --steps"
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

"""The learning rate of an update, as Google's and NVIDIA's BERT compute it: a pure function of the update's number.

    warmup   from 0 to the peak in `warmup_steps` updates, in a straight line
    decay    (1 - update / steps) ** power, counted from the first update and not from the end of the warmup

So where warmup ends the rate drops: at update w the decay has already taken its w / steps. NVIDIA's Adam starts the decay
from a higher peak that makes the two meet ("crossover"); Google's Adam and NVIDIA's LAMB have the drop, and so do we.

Updates are counted from 1, and the update of number n uses the rate at n. The originals leave open whether it is that or the
rate at n - 1 (their counter grows at no fixed moment of the update); a first update of rate 0 would be one for nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from bertprep.errors import UsageError

MOST_STEPS = 10**10
"""With a global batch of a million, the number of an example is still far from the end of 64 bits."""


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Learning rates of a run of `steps` updates; `Schedule.google` and `Schedule.nvidia` are the originals'."""

    peak: float
    steps: int
    warmup_steps: int = 0
    power: float = 1.0
    crossover: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.peak < float("inf"):
            raise UsageError(f"--lr {self.peak}: must be above 0")
        if not 1 <= self.steps <= MOST_STEPS:
            raise UsageError(f"--steps {self.steps}: must be at least 1 and at most {MOST_STEPS}")
        if self.warmup_steps < 0:
            raise UsageError(f"--warmup-steps {self.warmup_steps}: must be at least 0")
        if not 0 < self.power < float("inf"):
            raise UsageError(f"decay power {self.power}: must be above 0")

    @classmethod
    def google(cls, *, peak: float, steps: int, warmup_steps: int) -> Schedule:
        """That of google-research/bert, whose only optimizer is Adam."""
        return cls(peak=peak, steps=steps, warmup_steps=warmup_steps)

    @classmethod
    def nvidia(cls, optimizer: str, *, peak: float, steps: int, warmup_steps: int) -> Schedule:
        """That of NVIDIA's BERT, which differs between adam and lamb."""
        if optimizer == "adam":
            return cls(peak=peak, steps=steps, warmup_steps=warmup_steps, crossover=True)
        return cls(peak=peak, steps=steps, warmup_steps=warmup_steps, power=0.5)

    def has_rates_of(self, other: Schedule, updates: int) -> bool:
        """Whether the first `updates` learning rates are those of a schedule that may have other steps.

        >>> short, long = (Schedule.google(peak=0.01, steps=steps, warmup_steps=4) for steps in (12, 24))
        >>> long.has_rates_of(short, 3), long.has_rates_of(short, 4)
        (True, False)
        """
        is_warmup = replace(self, steps=other.steps) == other and updates < self.warmup_steps
        return updates == 0 or self == other or is_warmup

    def learning_rate(self, update: int) -> float:
        """The learning rate of update number `update`, counted from 1; 0 in the last update and after it.

        >>> schedule = Schedule.google(peak=0.01, steps=12, warmup_steps=4)
        >>> [round(schedule.learning_rate(update), 5) for update in (1, 3, 4, 11, 12)]
        [0.0025, 0.0075, 0.00667, 0.00083, 0.0]
        """
        if update < self.warmup_steps:
            return self.peak * update / self.warmup_steps
        if update >= self.steps:
            return 0.0
        base = self.peak / (1 - self.warmup_steps / self.steps) if self.crossover else self.peak
        return float(base * (1 - update / self.steps) ** self.power)

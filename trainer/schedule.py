"""The learning rate of an update in Google's and NVIDIA's BERT: a pure function of the update's number.

    warmup   linearly from 0 to the peak in `warmup_steps` updates
    decay    (1 - update / steps) ** power, counted from the first update and not from the end of the warmup

So the learning rate drops where warmup ends: at update w the decay has already progressed by w / steps. NVIDIA's Adam starts
the decay from a higher peak so that the two meet ("crossover"); Google's Adam and NVIDIA's LAMB have the drop, and so does this
trainer.

Updates are counted from 1, and update n uses the learning rate at n. The originals do not define whether it is that at n or n -
1 (their counter is incremented at no fixed point of the update); a first update with a learning rate of 0 would do nothing.

A run may be resumed with more steps than its checkpoint was made with. As long as the updates so far had the learning rates of
the longer run (in the warmup, or in a phase that has not started), the result has the same bytes as a run of that length from
the start. Otherwise `--lengthen` is required, and every later checkpoint records the step, and the schedules in force until
then:

    "lengthened": [{"step": 1000, "schedules": [{"peak": 0.0001, "steps": 1000, "warmup_steps": 100, ...}]}]
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from bertprep.errors import UsageError

MOST_STEPS = 10**10
"""Most steps of a run; with a global batch of a million, the number of an example is still far below 2**64."""
LENGTHENED = "lengthened"
_MAY_DIFFER = ("steps", "warmup_steps")


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Learning rates of a run of `steps` updates: google-research/bert's by default, NVIDIA's with `Schedule.nvidia`."""

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
    def nvidia(cls, optimizer: str, *, peak: float, steps: int, warmup_steps: int) -> Schedule:
        """The schedule of NVIDIA's BERT, which differs between adam and lamb."""
        if optimizer == "adam":
            return cls(peak=peak, steps=steps, warmup_steps=warmup_steps, crossover=True)
        return cls(peak=peak, steps=steps, warmup_steps=warmup_steps, power=0.5)

    def starts_like(self, other: Schedule, updates: int) -> bool:
        """Whether the first `updates` learning rates equal those of a schedule that may have another number of steps.

        >>> short, long = (Schedule(peak=0.01, steps=steps, warmup_steps=4) for steps in (12, 24))
        >>> long.starts_like(short, 3), long.starts_like(short, 4)
        (True, False)
        """
        is_warmup = replace(self, steps=other.steps) == other and updates < self.warmup_steps
        return updates == 0 or self == other or is_warmup

    def learning_rate(self, update: int) -> float:
        """The learning rate of update number `update`, counted from 1; 0 in the last update and after it.

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


@dataclass(frozen=True)
class Lengthening:
    """The change of schedule in a run with more steps, from a checkpoint after `step` steps on."""

    step: int
    update: int  # updates so far in the phase of the next step
    then: Schedule  # of that phase
    now: Schedule
    steps_then: int  # of the run
    steps_now: int

    @property
    def is_seamless(self) -> bool:
        """Whether all updates so far had the learning rates of the longer run."""
        return self.now.starts_like(self.then, self.update)

    def describe(self) -> str:
        """A description of the change."""
        steps = f"{self.steps_now:,} steps"
        change = f"lengthened from {self.steps_then:,} to {steps} after step {self.step:,}"
        if self.is_seamless:
            return f"{change}: its learning rates so far are those of {steps}"
        return (
            f"{change}: from here on the schedule is that of {steps}, with a learning rate of "
            f"{self.now.learning_rate(self.update + 1):.3g} at the next step; at step {self.step:,} it was "
            f"{self.then.learning_rate(self.update):.3g}, a run of {steps} from the start "
            f"has {self.now.learning_rate(self.update):.3g} there"
        )

    def enter(self, made_with: Mapping[str, Any], schedules: list[Any]) -> dict[str, Any]:
        """The `lengthened` entry of later checkpoints."""
        if self.is_seamless:
            return dict(made_with)
        entry = {"step": self.step, "schedules": schedules}
        return {**made_with, LENGTHENED: [*made_with.get(LENGTHENED, []), entry]}


def schedules_of(made_with: Mapping[str, Any]) -> list[Any]:
    """The schedule of each phase in a checkpoint, None for those without one."""
    return [phase.get("schedule") for phase in made_with.get("phases", [])]


def find_lengthening(step: int, then: Mapping[str, Any], now: Mapping[str, Any]) -> Lengthening | None:
    """The lengthening that leads from a checkpoint's settings to the requested ones, if there is one."""
    old, new = schedules_of(then), schedules_of(now)
    if len(old) != len(new) or old == new or None in (*old, *new):
        return None
    start, current = 0, None
    for one, other in zip(old, new, strict=True):
        fixed = {**other, **{name: one.get(name) for name in _MAY_DIFFER}}
        is_over = step > start + one["steps"]  # the next phase has started
        if fixed != one or other["steps"] < one["steps"] or (other != one and (is_over or other["steps"] == one["steps"])):
            return None
        if current is None and step < start + other["steps"]:
            current = step - start, Schedule(**one), Schedule(**other)
        start += one["steps"]
    return Lengthening(step, *current, start, sum(each["steps"] for each in new)) if current else None

"""A run that goes on for more steps than its checkpoint was made with: what differs, and what a checkpoint says of it.

A learning rate follows from the update and from the steps of its phase. As long as the updates made had the same in the longer
run (in the warmup, or in a phase that is not begun), going on makes the very bytes of a run that was that long from the start.
After that it does not: the updates made had the learning rates of the shorter run. It must be asked for (`--lengthen`), and
every checkpoint from there on tells from which step, and which schedules were in force until then:

    "lengthened": [{"step": 1000, "schedules": [{"peak": 0.0001, "steps": 1000, "warmup_steps": 100, ...}]}]
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainer.schedule import Schedule

LENGTHENED = "lengthened"
_MAY_DIFFER = ("steps", "warmup_steps")


@dataclass(frozen=True)
class Lengthening:
    """From the schedules of a checkpoint after `step` steps to longer ones."""

    step: int
    then: tuple[Schedule, ...]
    now: tuple[Schedule, ...]

    @property
    def number(self) -> int:
        """The phase that the next step is of, from 0."""
        ends = [sum(each.steps for each in self.now[: count + 1]) for count in range(len(self.now))]
        return next(number for number, end in enumerate(ends) if self.step < end)

    @property
    def update(self) -> int:
        """The updates of that phase that are made."""
        return self.step - sum(each.steps for each in self.now[: self.number])

    @property
    def is_seamless(self) -> bool:
        """Whether all updates made had the learning rates that they have in the longer run."""
        return self.now[self.number].has_rates_of(self.then[self.number], self.update)

    def describe(self) -> str:
        """What changes, for people."""
        then, now = self.then[self.number], self.now[self.number]
        steps = sum(each.steps for each in self.now)
        begun = f"lengthened from {sum(each.steps for each in self.then):,} to {steps:,} steps after step {self.step:,}"
        if self.is_seamless:
            return f"{begun}: its learning rates so far are those of {steps:,} steps"
        return (
            f"{begun}: from here on the schedule is that of {steps:,} steps, with a learning rate of "
            f"{now.learning_rate(self.update + 1):.3g} at the next step; at step {self.step:,} it was "
            f"{then.learning_rate(self.update):.3g}, a run of {steps:,} steps from the start "
            f"has {now.learning_rate(self.update):.3g} there"
        )

    def enter(self, made_with: Mapping[str, Any], schedules: list[Any]) -> dict[str, Any]:
        """What checkpoints from here on are made with."""
        if self.is_seamless:
            return dict(made_with)
        entry = {"step": self.step, "schedules": schedules}
        return {**made_with, LENGTHENED: [*made_with.get(LENGTHENED, []), entry]}


def schedules_of(made_with: Mapping[str, Any]) -> list[Any]:
    """The schedule of each phase as a checkpoint has it, None where it has none."""
    return [phase.get("schedule") for phase in made_with.get("phases", [])]


def find_lengthening(step: int, then: Mapping[str, Any], now: Mapping[str, Any]) -> Lengthening | None:
    """The lengthening that leads from what a checkpoint was made with to what is asked for now, where there is one."""
    old, new = schedules_of(then), schedules_of(now)
    if len(old) != len(new) or old == new or None in (*old, *new):
        return None
    start = 0
    for one, other in zip(old, new, strict=True):
        fixed = {**other, **{name: one.get(name) for name in _MAY_DIFFER}}
        is_over = step > start + one["steps"]  # the next phase is begun
        if fixed != one or other["steps"] < one["steps"] or (other != one and (is_over or other["steps"] == one["steps"])):
            return None
        start += one["steps"]
    return Lengthening(step, tuple(Schedule(**each) for each in old), tuple(Schedule(**each) for each in new))

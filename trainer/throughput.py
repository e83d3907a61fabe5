"""How fast a run goes, and how long it will take: evaluations and checkpoints left out of the one, and so of the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence


class Pace:
    """Counts steps and seconds; `phases` are the steps of each and the floating-point operations of one step."""

    def __init__(self, phases: Sequence[tuple[int, float]], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._phases, self._clock = phases, clock
        self._steps_per_second = 0.0
        self.restart()

    def restart(self) -> None:
        """Count from here: what lies before was no training."""
        self._steps, self._since = 0, self._clock()

    def count(self) -> None:
        """Count a step that is finished."""
        self._steps += 1

    def measure(self) -> float:
        """Steps a second since the last measure or restart; the same as then where there was none."""
        if self._steps:
            self._steps_per_second = self._steps / max(self._clock() - self._since, 1e-9)
        self.restart()
        return self._steps_per_second

    def seconds_left(self, phase: int, made: int, steps_per_second: float) -> float:
        """Of the run, behind step `made` of a phase; other phases go at the same number of operations a second."""
        steps, flops = self._phases[phase]
        flops_of_others = sum(their_steps * their_flops for their_steps, their_flops in self._phases[phase + 1 :])
        return ((steps - made) * flops + flops_of_others) / max(flops * steps_per_second, 1e-9)

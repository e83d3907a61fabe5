"""What a step returns, its means over the steps between two lines of the log, and how fast the steps are."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from trainer.tasks import Sums


@dataclass(frozen=True)
class StepResult:
    """What a step did, of the global batch and the same in every process."""

    sums: Sums
    gradient_norm: float  # before clipping
    loss_scale: float  # that of the step itself; 1 but for fp16
    is_stop_wanted: bool  # by any process

    @property
    def is_finite(self) -> bool:
        """Where it is not, fp16 skipped the update, and any other precision has spoilt the variables."""
        return math.isfinite(self.gradient_norm) and math.isfinite(self.sums.loss)


@dataclass(frozen=True)
class Interval:
    """The steps since the last line of the log, as sums that a checkpoint keeps: so a run that was stopped logs the same means.

    What is not finite, of steps that fp16 skipped, is left out of them.
    """

    sums: Sums
    gradient_norm_sum: float = 0.0
    gradient_norms: int = 0

    def plus(self, result: StepResult) -> Interval:
        """With one more step."""
        sums = self.sums.plus(result.sums) if math.isfinite(result.sums.loss) else self.sums
        if not math.isfinite(result.gradient_norm):
            return Interval(sums, self.gradient_norm_sum, self.gradient_norms)
        return Interval(sums, self.gradient_norm_sum + result.gradient_norm, self.gradient_norms + 1)

    def means(self, last: StepResult) -> tuple[dict[str, float], float]:
        """The metrics and the mean gradient norm; where no step was finite those of the last."""
        norm = self.gradient_norm_sum / self.gradient_norms if self.gradient_norms else last.gradient_norm
        return (self.sums if self.sums.sequences else last.sums).metrics(), norm

    @classmethod
    def resumed(cls, sums: Callable[..., Sums], numbers: Sequence[float]) -> Interval:
        """That of a checkpoint with these numbers, or without any a new one."""
        *of_sums, norm_sum, norms = numbers or (0.0, 0)
        return cls(sums(*of_sums), norm_sum, int(norms))

    @property
    def numbers(self) -> list[float]:
        """As a checkpoint has them."""
        return [*self.sums, self.gradient_norm_sum, self.gradient_norms]


class Throughput:
    """Steps a second without evaluations and checkpoints, and the time that a run has left.

    `phases` are the steps of each and the floating-point operations of one step.
    """

    def __init__(self, phases: Sequence[tuple[int, float]], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._phases, self._clock = phases, clock
        self._steps_per_second = 0.0
        self.restart()

    def restart(self) -> None:
        """Count from here on: what came before was no training."""
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

    def seconds_left(self, phase: int, finished: int, steps_per_second: float) -> float:
        """Of the run, after `finished` steps of a phase; later phases make as many operations a second."""
        steps, flops = self._phases[phase]
        flops_of_later = sum(their_steps * their_flops for their_steps, their_flops in self._phases[phase + 1 :])
        return ((steps - finished) * flops + flops_of_later) / max(flops * steps_per_second, 1e-9)

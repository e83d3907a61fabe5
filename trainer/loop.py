"""Training from the first step to the last, whatever runs the steps.

    for each phase                weights go on; moments, the count of updates and the order of the data begin anew
        for each step             the batch of that number, the rate of that number, one step of the engine
            log_every             a line with what the step gave
            eval_every            losses on the test split; at the end of a phase in any case
            save_every            a checkpoint; at the end of a phase in any case, and when told to stop
        loss not finite           fp16: the update is skipped and counted; else the end, with the batch's records named

Where a run stands is one number, the steps made in all phases: data, dropout and rate follow from it. What the engine holds at
that number is the checkpoint, so a run that was killed goes on bit-exactly on the same devices and versions; on others it goes
on with the same global batches. While a step runs the next batch is read, and on a GPU the next step is begun.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property

from bertprep.lock import locked
from bertprep.progress import say
from trainer.beginning import begin, describe_run
from trainer.checkpoint import save
from trainer.engines import Engine, steps_ahead
from trainer.log_entries import EvalEntry, TrainEntry
from trainer.metrics import StepResult, Sums
from trainer.not_finite import check_finite
from trainer.pace import Pace
from trainer.phase_data import PhaseData
from trainer.run_log import RunLog
from trainer.settings import RunSettings
from trainer.stopping import StopSignal


@dataclass(frozen=True)
class Outcome:
    """Where a run was left."""

    step: int
    is_finished: bool


@dataclass(frozen=True)
class Step:
    """A step that was begun; its result is waited for when it is first asked for."""

    number: int  # in the run, from 1
    phase: int  # from 0
    number_in_phase: int  # from 1
    rate: float
    is_first: bool  # of its phase in this process
    wait: Callable[[], StepResult]

    @cached_property
    def result(self) -> StepResult:
        return self.wait()


def train(settings: RunSettings, engine: Engine) -> Outcome:
    """Train from where `settings.out` stands to the end of the last phase, or until a signal says to stop."""
    engine.build(settings.model, settings.optimizer, seed=settings.seed)
    with ExitStack() as opened:
        phases = [opened.enter_context(PhaseData(settings, phase, engine)) for phase in settings.phases]
        if engine.is_first:
            opened.enter_context(locked(settings.out))
        made_with = describe_run(settings, engine, phases)
        step, skipped = begin(settings, engine, made_with)
        if step == settings.steps:
            say(f"{settings.out}: is finished, with {step:,} steps; --init {settings.out} and another --out train it further")
            return Outcome(step, is_finished=True)
        log = opened.enter_context(RunLog(settings.out, steps=settings.steps, first_step=step, is_shown=engine.is_first))
        signal = opened.enter_context(StopSignal())
        log.note(**made_with, devices=engine.device_name, versions=dict(engine.versions))
        pace = Pace([(data.phase.steps, data.flops) for data in phases])
        saved = step

        for done in _make_steps(settings, engine, phases, step, signal):
            step, data = done.number, phases[done.phase]
            skipped += check_finite(done.result, settings, data, step=step, step_of_phase=done.number_in_phase - 1)
            pace.count()
            log.advanced(data.batch.size, data.batch.size * data.records.seq)
            is_end = done.number_in_phase == data.phase.steps
            if is_end or is_due(step, settings.log_every):
                log.trained(_train_entry(done, data, pace, skipped))
            elif done.is_first:
                pace.restart()  # which had the compiling
            if data.test and (is_end or is_due(step, settings.eval_every)):
                log.evaluated(_eval_entry(done, data, data.evaluate(engine)))
                pace.restart()
            if is_end or is_due(step, settings.save_every):
                _save(settings, engine, step, skipped, made_with)
                saved = step
                pace.restart()
        if step != saved:
            _save(settings, engine, step, skipped, made_with)
    return Outcome(step, is_finished=step == settings.steps)


def _make_steps(
    settings: RunSettings, engine: Engine, phases: list[PhaseData], step: int, signal: StopSignal
) -> Iterator[Step]:
    """The steps after `step`, as they end; the last one is earlier than that of the run where any rank was told to stop.

    An accelerator is given each step before the one before it is waited for, but where it must stand still behind a step: for
    an evaluation, a checkpoint, the next phase.
    """
    while step < settings.steps:
        number, first = settings.phase_of(step)
        data, accumulation = phases[number], phases[number].phase.accumulation
        if first == 0:
            engine.restart()
        begun: deque[Step] = deque()
        with data.batches.from_step(first, data.phase.steps, held=2) as ready:  # held: a step under way still reads its batch
            for in_phase, examples in enumerate(ready, 1 + first):
                rate = data.phase.schedule.rate(in_phase)
                wait = engine.train(examples, step=step, rate=rate, accumulation=accumulation, stop=signal.has_come)
                step += 1
                begun.append(Step(step, number, in_phase, rate, in_phase == first + 1, wait))
                stands_still = in_phase == data.phase.steps or any(
                    is_due(step, every) for every in (settings.eval_every, settings.save_every)
                )
                while len(begun) > (0 if stands_still else steps_ahead(engine)):
                    yield (done := begun.popleft())
                    if done.result.is_stop_wanted:
                        yield from begun
                        return


def is_due(step: int, every: int) -> bool:
    """Whether what is done every so many steps, or never with 0, is done behind this one."""
    return every > 0 and step % every == 0


def _save(settings: RunSettings, engine: Engine, step: int, skipped: int, made_with: dict[str, object]) -> None:
    state = engine.state()  # of stages in other processes too, which give it
    if engine.is_first:
        save(settings.out, step, skipped, state, made_with, keep=settings.keep)


def _train_entry(done: Step, data: PhaseData, pace: Pace, skipped: int) -> TrainEntry:
    """Losses of the step itself, so that a run that was stopped logs what one that was not does; the pace is since the last."""
    sums, steps_per_second = done.result.sums, pace.measure()
    sequences_per_second = steps_per_second * data.batch.size
    return TrainEntry(
        step=done.number,
        phase=done.phase + 1,
        epoch=done.number_in_phase * data.batch.size / len(data.records),
        learning_rate=done.rate,
        gradient_norm=done.result.gradient_norm,
        loss_scale=done.result.loss_scale,
        skipped=skipped,
        sequences_per_second=sequences_per_second,
        tokens_per_second=sequences_per_second * data.records.seq,
        flops_per_second=steps_per_second * data.flops,
        seconds_left=pace.seconds_left(done.phase, done.number_in_phase, steps_per_second),
        **_means(sums),
    )


def _eval_entry(done: Step, data: PhaseData, sums: Sums) -> EvalEntry:
    return EvalEntry(
        step=done.number,
        phase=done.phase + 1,
        sequences=round(sums.sequences),
        unigram_loss=data.unigram_loss,
        **_means(sums),
    )


def _means(sums: Sums) -> dict[str, float]:
    return {
        "loss": sums.loss,
        "masked_lm_loss": sums.masked_lm,
        "masked_lm_accuracy": sums.masked_lm_accuracy,
        "next_sentence_loss": sums.next_sentence,
        "next_sentence_accuracy": sums.next_sentence_accuracy,
    }

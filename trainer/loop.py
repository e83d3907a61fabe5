"""Training from the first step to the last, whatever runs the steps.

    for each phase                weights go on; moments, the count of updates and the order of the data begin anew
        for each step             the batch of that number, the rate of that number, one step of the engine
            log_every             a line with the means over the steps since the last
            eval_every            losses on the test split; at the end of a phase in any case
            save_every            a checkpoint; at the end of a phase in any case, and when told to stop
        loss not finite           fp16: the update is skipped and counted; else the end, with the batch's records named
        data not readable         the end, with a checkpoint of the last step before; so many bad records may be skipped

Where a run stands is one number, the steps made in all phases: data, dropout and rate follow from it. What the engine holds at
that number is the checkpoint, so a run that was killed goes on bit-exactly on the same devices and versions; on others it goes
on with the same global batches. While a step runs the next batch is read, and on a GPU the next step is begun. A step is begun
only when the batches of the next ones, of all that may be begun before it is waited for, have been read: so all ranks know of a
batch that one of them cannot read before any of them waits for its step.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property

from bertprep.progress import say
from bertprep.workspace.layout import TEST, TRAINING
from trainer.checkpoint import BEST, Evaluated, save, save_best
from trainer.engines import Engine, steps_ahead
from trainer.faults import Faults
from trainer.log import RunLog
from trainer.log_file import EvalEntry, TrainEntry
from trainer.metrics import Interval, StepResult, Sums
from trainer.not_finite import check_finite
from trainer.phase_data import PhaseData
from trainer.prefetch import Lookahead
from trainer.resume import begin, describe_finished, describe_run
from trainer.settings import RunSettings
from trainer.signals import StopSignal
from trainer.throughput import Pace


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
    learning_rate: float
    is_first: bool  # of its phase in this process
    wait: Callable[[], StepResult]

    @cached_property
    def result(self) -> StepResult:
        return self.wait()


def train(settings: RunSettings, engine: Engine) -> Outcome:
    """Train from where `settings.out`, which is locked, stands to the end of the last phase, or until a signal says to stop."""
    engine.build(settings.model, settings.optimizer, seed=settings.seed)
    with ExitStack() as opened:
        phases = [opened.enter_context(PhaseData(settings, phase, engine)) for phase in settings.phases]
        records = [data.records for data in phases]
        begun = begin(settings, engine, describe_run(settings, records, devices=engine.devices, precision=engine.precision))
        step, skipped, made_with, best = begun.step, begun.skipped, begun.made_with, begun.best
        if step == settings.steps:
            say(describe_finished(settings))
            return Outcome(step, is_finished=True)
        log = opened.enter_context(RunLog(settings.out, steps=settings.steps, first_step=step, is_shown=engine.is_first))
        signal = opened.enter_context(StopSignal())
        log.note(**made_with, devices=engine.device_name, versions=dict(engine.versions))
        faults = Faults(settings, engine, phases, signal, begun.bad_records)
        pace = Pace([(data.phase.steps, data.flops) for data in phases])
        interval, saved = begun.interval, step

        def save_checkpoint() -> None:
            state = engine.state()  # of stages in other processes too, which give it
            if engine.is_first:
                bad, keep = faults.counted, settings.keep
                save(settings.out, step, skipped, state, made_with, keep=keep, interval=interval, bad_records=bad)

        for done in _make_steps(settings, engine, phases, step, faults):
            step, data = done.number, phases[done.phase]
            for bad in faults.take_met(step):
                log.skipped_record(bad)
            skipped += check_finite(done.result, settings, data, step=step, step_of_phase=done.number_in_phase - 1)
            interval = interval.plus(done.result)
            pace.count()
            log.advanced(data.batch.size, data.batch.size * data.records.seq)
            is_end = done.number_in_phase == data.phase.steps
            if is_end or is_due(step, settings.log_every):
                log.trained(_train_entry(done, data, interval, pace, skipped))
                interval = Interval()
            elif done.is_first:
                pace.restart()  # which had the compiling
            is_to_end = False
            if data.test and (is_end or is_due(step, settings.eval_every)):
                is_to_end, sums = _evaluate(done, data, engine, faults)
                for bad in faults.take_met(step):
                    log.skipped_record(bad)
                if not faults.has_fault:
                    entry = _eval_entry(done, data, sums)
                    log.evaluated(entry)
                    found = Evaluated(entry.phase, entry.sequences, entry.loss)
                    if settings.keep_best and found.is_below(best):
                        best = found
                        _save_best(settings, engine, step, skipped, made_with, best)
                pace.restart()
            if is_end or is_due(step, settings.save_every):
                save_checkpoint()
                saved = step
                pace.restart()
            if is_to_end:
                break
        if step != saved:
            save_checkpoint()
        faults.raise_any(step)
    return Outcome(step, is_finished=step == settings.steps)


def _make_steps(settings: RunSettings, engine: Engine, phases: list[PhaseData], step: int, faults: Faults) -> Iterator[Step]:
    """The steps after `step`, as they end; the last one is earlier than that of the run where any rank has to stop.

    An accelerator is given each step before the one before it is waited for, but where it must stand still behind a step: for
    an evaluation, a checkpoint, the next phase.
    """
    while step < settings.steps:
        number, first = settings.phase_of(step)
        data, accumulation = phases[number], phases[number].phase.accumulation
        ahead = 1 + steps_ahead(engine)
        begun: deque[Step] = deque()
        # held: those ahead, the one that is being begun, and the one before, which a step under way still reads
        with data.batches.from_step(first, data.phase.steps, held=ahead + 2) as ready:
            batches = Lookahead(ready, ahead)
            _note_faults(faults, batches, data, number, first + ahead, step - first)
            if faults.confer():
                return
            if first == 0:
                engine.restart()
            for in_phase, examples in enumerate(batches, 1 + first):
                _note_faults(faults, batches, data, number, in_phase + ahead, step + 1 - in_phase)
                learning_rate = data.phase.schedule.learning_rate(in_phase)
                wait = engine.train(
                    examples, step=step, learning_rate=learning_rate, accumulation=accumulation, stop=faults.is_to_tell
                )
                step += 1
                begun.append(Step(step, number, in_phase, learning_rate, in_phase == first + 1, wait))
                stands_still = in_phase == data.phase.steps or any(
                    is_due(step, every) for every in (settings.eval_every, settings.save_every)
                )
                while len(begun) > (0 if stands_still else steps_ahead(engine)):
                    yield (done := begun.popleft())
                    if done.result.is_stop_wanted and faults.confer():
                        yield from begun
                        return


def _note_faults(faults: Faults, batches: Lookahead, data: PhaseData, phase: int, last: int, before: int) -> None:
    """Note what was wrong with the batches of a phase up to step `last` of it; there were so many steps `before` the phase."""
    for index, bad in data.batches.take_bad(last - 1):
        faults.meet(before + index + 1, phase, TRAINING, bad)
    faults.end(batches.fault)


def _evaluate(done: Step, data: PhaseData, engine: Engine, faults: Faults) -> tuple[bool, Sums]:
    """Whether the run is to end for what was found, and the sums over the test split."""
    found = data.evaluate(engine)
    if found.is_whole:
        return False, found.sums
    for bad in found.bad:
        faults.meet(done.number, done.phase, TEST, bad)
    faults.end(found.fault)
    return faults.confer(), found.sums


def is_due(step: int, every: int) -> bool:
    """Whether what is done every so many steps, or never with 0, is done behind this one."""
    return every > 0 and step % every == 0


def _save_best(
    settings: RunSettings, engine: Engine, step: int, skipped: int, made_with: dict[str, object], best: Evaluated
) -> None:
    state = engine.state()
    if engine.is_first:
        save_best(settings.out, step, skipped, state, made_with, best)
        say(f"step {step:,}: the lowest loss on the test split so far, {best.loss:.4f}: kept as {settings.out / BEST}")


def _train_entry(done: Step, data: PhaseData, interval: Interval, pace: Pace, skipped: int) -> TrainEntry:
    """Means over the steps since the last entry, which a checkpoint between the two keeps; the rest is of the step itself."""
    steps_per_second = pace.measure()
    sums, gradient_norm = interval.means(done.result)
    sequences_per_second = steps_per_second * data.batch.size
    return TrainEntry(
        step=done.number,
        phase=done.phase + 1,
        epoch=done.number_in_phase * data.batch.size / len(data.records),
        learning_rate=done.learning_rate,
        gradient_norm=gradient_norm,
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

"""Training from the first step to the last, whatever runs the steps and whatever they are steps of.

    for each phase                weights are kept; moments, the count of updates and the order of the data start again
        for each step             the batch of that number, its learning rate, one step of the engine
            log_every             a line with the means over the steps since the last
            eval_every            losses on the test split; at the end of a phase in any case
            save_every            a checkpoint; at the end of a phase in any case, and after a signal to stop
        NaN or overflow           fp16: the update is skipped and counted; else the end, with the batch's records named
        data not readable         the end, with a checkpoint of the last step before; --skip-bad-records are skipped

Where a run stands is one number, the finished steps of all phases: data, dropout and learning rate follow from it. What the
engine holds at that number is the checkpoint, so a run that was killed resumes bit-exactly on the same devices and versions; on
others it resumes with the same global batches. While a step runs the next batch is read, and on a GPU the next step is begun. A
step is begun only when the batches of the next ones, of all that may be begun before it is waited for, have been read: so all
ranks know of a batch that one of them cannot read before any of them waits for its step.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property

from bertprep.errors import BertprepError
from bertprep.files.atomic import atomic_file
from bertprep.progress import say
from bertprep.workspace.layout import TEST, TRAINING
from trainer import checkpoint
from trainer.batches import GlobalBatch, PhaseData, open_phase
from trainer.checkpoint import RunState
from trainer.engines import Engine, steps_ahead
from trainer.evaluation import evaluate
from trainer.faults import Faults
from trainer.log import RunLog
from trainer.metrics import Interval, StepResult, Throughput
from trainer.prefetch import Lookahead
from trainer.resume import add_fingerprints, describe_finished, describe_run, resume
from trainer.settings import RunSettings
from trainer.signals import StopSignal
from trainer.tasks import evaluated_split

BATCH_FILE = "not_finite.txt"


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


def train(settings: RunSettings, engine: Engine) -> bool:
    """Train from where `settings.out`, which is locked, stands; returns whether to the end, and not until a signal to stop."""
    engine.build(settings.model, settings.optimizer, seed=settings.seed, task=settings.task)
    with ExitStack() as opened:
        phases = [opened.enter_context(open_phase(settings, phase, engine)) for phase in settings.phases]
        records = [data.records for data in phases]
        state = resume(settings, engine, describe_run(settings, records, devices=engine.devices, precision=engine.precision))
        if state.step == settings.steps:
            say(describe_finished(settings))
            return True
        log = opened.enter_context(
            RunLog(settings.out, settings.task, steps=settings.steps, first_step=state.step, is_shown=engine.is_first)
        )
        signal = opened.enter_context(StopSignal())
        for of_phase in records:
            of_phase.give_up_when(lambda: signal.has_come)
        log.note(**state.made_with, devices=engine.device_name, versions=dict(engine.versions))
        faults = Faults(settings, engine, phases, signal, set(state.bad_records))
        run = _Run(settings, engine, phases, state, log, faults)
        for step in _make_steps(settings, engine, phases, state.step, faults):
            run.finish(step)
            if run.is_to_end:
                break
        run.save_unsaved()
        faults.raise_any(state.step)
        if engine.is_first and state.step < settings.steps:
            say(f"stopped after step {state.step:,} of {settings.steps:,}; the same command resumes from {settings.out}")
    return state.step == settings.steps


def _make_steps(
    settings: RunSettings, engine: Engine, phases: Sequence[PhaseData], step: int, faults: Faults
) -> Iterator[Step]:
    """The steps after `step`, as they end; the last one comes before that of the run where any rank has to stop.

    An accelerator is given each step before the one before it is waited for, except after a step that it must be idle after:
    for an evaluation, a checkpoint, the next phase.
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
                    examples, step=step, learning_rate=learning_rate, accumulation=accumulation, stop=faults.is_to_report
                )
                step += 1
                begun.append(Step(step, number, in_phase, learning_rate, in_phase == first + 1, wait))
                is_idle_after = in_phase == data.phase.steps or any(
                    is_due(step, every) for every in (settings.eval_every, settings.save_every)
                )
                while len(begun) > (0 if is_idle_after else steps_ahead(engine)):
                    yield (done := begun.popleft())
                    if done.result.is_stop_wanted and faults.confer():
                        yield from begun
                        return


def _note_faults(faults: Faults, batches: Lookahead, data: PhaseData, phase: int, last: int, before: int) -> None:
    """Note what was wrong with the batches of a phase up to its step `last`; `before` are the steps of the run before it."""
    for index, bad in data.batches.take_bad(last - 1):
        faults.meet(before + index + 1, phase, TRAINING, bad)
    faults.end(batches.fault)


def is_due(step: int, every: int) -> bool:
    """Whether what is done every so many steps, or never with 0, is done after this one."""
    return every > 0 and step % every == 0


@dataclass
class _Run:
    """What is done after each step; `state` is where the run stands."""

    settings: RunSettings
    engine: Engine
    phases: Sequence[PhaseData]
    state: RunState
    log: RunLog
    faults: Faults
    is_to_end = False  # for what an evaluation met

    def __post_init__(self) -> None:
        self._saved = self.state.step
        self._interval = Interval.resumed(self.settings.task.sums, self.state.interval)
        self._throughput = Throughput([(data.phase.steps, data.flops) for data in self.phases])

    def finish(self, step: Step) -> None:
        """Count a step, then log, evaluate and save where it is due."""
        settings, state, data = self.settings, self.state, self.phases[step.phase]
        state.step = step.number
        self._log_bad_records()
        if not step.result.is_finite:
            if step.result.loss_scale == 1:  # otherwise the engine has skipped the update, and the next scale is half
                raise self._explain_not_finite(step, data)
            state.skipped += 1
        self._interval = self._interval.plus(step.result)
        self._throughput.count()
        self.log.advanced(data.batch.size, data.batch.size * data.records.seq)
        is_end = step.number_in_phase == data.phase.steps
        if is_end or is_due(step.number, settings.log_every):
            self._log_training(step, data)
        elif step.is_first:
            self._throughput.restart()  # without the compiling
        if data.test and (is_end or is_due(step.number, settings.eval_every)):
            self._evaluate(step, data)
            self._throughput.restart()
        if is_end or is_due(step.number, settings.save_every):
            self._save()
            self._throughput.restart()

    def _explain_not_finite(self, step: Step, data: PhaseData) -> BertprepError:
        """What to look at after NaN or overflow that no loss scale cures; the records of the batch are listed in a file."""
        out, result = self.settings.out, step.result
        whole = data.batches_of(GlobalBatch(data.batch.size)).places(step.number_in_phase - 1)
        places = [f"{path}: record {record}" for path, record in whole]
        if self.engine.is_first:  # all ranks know the whole batch, and end here
            with atomic_file(out / BATCH_FILE, replace=True) as file:
                file.write(("\n".join(places) + "\n").encode())
        newest = checkpoint.newest(out)
        after = f"resumes from the newest checkpoint, {newest.name}" if newest else "starts again, since there is no checkpoint"
        return BertprepError(
            f"step {step.number:,}: the loss is {result.sums.loss}, the norm of the gradients {result.gradient_norm}; "
            f"its batch is {places[0]}, and {len(places) - 1:,} more in {out / BATCH_FILE}; look at them with bertprep "
            f"inspect, or lower --lr; the same command {after}"
        )

    def _log_bad_records(self) -> None:
        for entry in self.faults.take_met(self.state.step):
            self.log.skipped_record(entry)

    def _log_training(self, step: Step, data: PhaseData) -> None:
        steps_per_second = self._throughput.measure()
        sequences_per_second = steps_per_second * data.batch.size
        metrics, gradient_norm = self._interval.means(step.result)
        self._interval = Interval(self.settings.task.sums())
        self.log.trained(
            {
                "step": step.number,
                "phase": step.phase + 1,
                "epoch": step.number_in_phase * data.batch.size / len(data.records),
                **metrics,
                "learning_rate": step.learning_rate,
                "gradient_norm": gradient_norm,  # before clipping
                "loss_scale": step.result.loss_scale,
                "skipped": self.state.skipped,  # updates of the run so far, whose gradients were not finite
                "sequences_per_second": sequences_per_second,
                "tokens_per_second": sequences_per_second * data.records.seq,
                "flops_per_second": steps_per_second * data.flops,  # the model's, estimated
                "seconds_left": self._throughput.seconds_left(step.phase, step.number_in_phase, steps_per_second),
            }
        )

    def _evaluate(self, step: Step, data: PhaseData) -> None:
        """Log the metrics on the test split; what was met there that cannot be taken may end the run."""
        faults, batches, task = self.faults, data.evaluation_batches, self.settings.task
        sequences, metrics = evaluate(self.engine, task, batches, data.scorer)
        if sequences != batches.sequences:  # some rank left something out
            for bad in batches.bad:
                faults.meet(step.number, step.phase, TEST, bad)
                if task.is_scored:  # which takes all
                    faults.end(bad)
            faults.end(batches.fault)
            self.is_to_end = faults.confer()
        self._log_bad_records()
        if faults.has_fault:
            return
        entry = {"step": step.number, "phase": step.phase + 1, "sequences": sequences, **metrics, **data.baseline}
        self.log.evaluated(entry)
        found = checkpoint.Evaluated(step.phase + 1, sequences, metrics[task.criterion], task.criterion)
        if self.settings.keep_best and found.is_better_than(self.state.best):
            self._save_best(found)

    def _save_best(self, found: checkpoint.Evaluated) -> None:
        self.state.best = found
        self._add_fingerprints()
        state, arrays = self.state, self.engine.state()
        if self.engine.is_first:
            path = checkpoint.save_best(self.settings.out, state, arrays, found)
            best = "lowest" if found.metric == checkpoint.LOSS else "highest"
            split = evaluated_split(self.settings.task)
            say(
                f"step {state.step:,}: the {best} {found.metric} on the {split} split so far, {found.value:.4f}: kept as {path}"
            )

    def _save(self, *, waits: bool = True) -> None:
        self._saved = self.state.step
        self._add_fingerprints(waits=waits)
        self.state.interval, self.state.bad_records = self._interval.numbers, self.faults.counted
        arrays = self.engine.state()  # of stages in other processes too, which send it
        if self.engine.is_first:
            self.log.keep()
            checkpoint.save(self.settings.out, self.state, arrays, keep=self.settings.keep)

    def _add_fingerprints(self, *, waits: bool = True) -> None:
        """Complete what the run is made with; all ranks call it, before a checkpoint."""
        records = [data.records for data in self.phases]
        self.state.made_with = add_fingerprints(self.state.made_with, records, self.engine, waits=waits)

    def save_unsaved(self) -> None:
        """Save the last finished step where that was not due, at once: the run was told to stop, or cannot go on."""
        if self.state.step != self._saved:
            self._save(waits=False)

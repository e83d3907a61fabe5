"""Train from the first step to the last, on any framework and for any task.

    for each step             read its batch, compute its learning rate, run one step of the engine
        every log_every       log the means over the steps since the last line, or since the run was resumed
        every save_every      save a checkpoint, also after the last step and before an early end
        every eval_every      save a checkpoint, then evaluate on the test split, also after the last step
    NaN or overflow           fp16 skips the update; other precisions end the run and name the first record of the batch
    only bad records          no update
    SIGTERM, SIGUSR1 and others, Ctrl-C    the run ends after this step or evaluation
    unreadable data           the run ends; bad records end it once there are more than --skip-bad-records

The number of finished steps decides what comes next. A rank that has to stop raises a flag, which reaches all ranks with the
sums of the step.
"""

from __future__ import annotations

import os
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import islice
from types import FrameType
from typing import NamedTuple

import numpy as np

from bertprep.errors import BertprepError, UsageError
from bertprep.files.atomic import atomic_file, remove_leftovers
from bertprep.progress import Reporter, print_message
from bertprep.records.records import BadRecordError, Records
from bertprep.work.layout import TEST, TRAINING
from trainer import checkpoint
from trainer.batches import EvaluationBatches, GlobalBatch, RankBatch, TrainingBatches
from trainer.checkpoint import Evaluated, RunState
from trainer.engines import STOP_SIGNALS, Engine, StepResult
from trainer.evaluate import evaluate, without_targets
from trainer.log import RunLog
from trainer.run import Run
from trainer.tasks.pretraining import PretrainOptions
from trainer.tasks.task import Sums
from trainer.weights import read_weights


class Stop:
    """Whether the run has to stop, and why: a signal, data that this rank cannot read, or a request of another rank."""

    def __init__(self) -> None:
        self.is_signalled = False
        self.fault: BertprepError | None = None
        self.is_agreed = False  # all ranks know that one of them wants to stop, and end after the same step

    @property
    def is_wanted(self) -> bool:
        """Whether this rank has to stop."""
        return self.is_signalled or self.fault is not None

    def take(self, error: BertprepError) -> None:
        if self.fault is None:
            self.fault = error.with_traceback(None)  # its frames would keep the engine alive

    @contextmanager
    def on_signals(self) -> Iterator[None]:
        """Make `STOP_SIGNALS` end the run with a checkpoint; a second Ctrl-C raises KeyboardInterrupt."""

        def handle(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - Python calls handlers with both
            if self.is_signalled and number == signal.SIGINT:
                raise KeyboardInterrupt
            if self.is_signalled:  # the signal of the CPU limit comes every second
                return
            self.is_signalled = True
            # Not print: it is not reentrant, and the signal may have interrupted one
            os.write(2, f"{signal.Signals(number).name}: stopping after this step or evaluation, with a checkpoint\n".encode())

        with ExitStack() as opened:
            for number in STOP_SIGNALS:
                opened.callback(signal.signal, number, signal.signal(number, handle))
            yield


def train(run: Run, engine: Engine) -> bool:
    """Train from the newest checkpoint in `run.out`, if any; return True if the run finished, False if it was stopped."""
    engine.build(run.model, run.optimizer, seed=run.options.seed, task=run.task)
    state, stop = resume(run, engine), Stop()
    guessed = run.guessed_losses() if engine.is_first else {}
    log = RunLog(run.out, run.task, steps=run.schedule.steps, first_step=state.step, rank=engine.rank, guessed=guessed)
    with log, stop.on_signals():
        mixture = run.mixture(run.schedule.steps)
        log.note(
            **state.settings,
            **({"mixture": mixture} if mixture else {}),
            devices=engine.device_name,
            versions=dict(engine.versions),
        )
        loop = _Loop(run, engine, state, log, stop)
        loop.make_steps()
        if stop.fault is not None:
            raise _explain_fault(run, state, stop.fault) from stop.fault
    if run.is_finished(state.step, state.evaluated):
        if engine.is_first:
            then = f"python -m trainer export {run.out} DIR"
            if run.data.test is not None:
                vocab = run.options.vocab if isinstance(run.options, PretrainOptions) else None
                of_vocab = "" if vocab is None else f" --vocab {vocab}"
                then = f"python -m trainer evaluate {run.out} --data {run.data.folders[0]}{of_vocab}, or {then}"
            print_message(f"{run.out}: contains the trained model; next: {then}")
        return True
    if not stop.is_signalled and engine.processes > 1:
        raise BertprepError(
            f"data rank {engine.data_rank} of {engine.data_world_size}: another process was stopped, or could not read its "
            f"data; its own message says why; step {state.step:,} is saved, and the same command resumes after it"
        )
    if engine.is_first:
        print_message(f"stopped after step {state.step:,} of {run.schedule.steps:,}; the same command resumes from {run.out}")
    return False


def resume(run: Run, engine: Engine) -> RunState:
    """Load the newest checkpoint, the weights of --init, or random weights into the engine."""
    newest, message = checkpoint.newest(run.out), ""
    state = RunState(run.settings(precision=engine.precision))
    if newest:
        state, arrays = checkpoint.read(newest)
        checkpoint.check_state(newest, arrays, engine.shapes)
        state.settings = run.settings_resumed_from(newest, precision=engine.precision)
        engine.restore(arrays)
        message = f"{newest}: resuming after step {state.step:,}"
    elif run.init:
        weights, message = read_weights(run.init, run.model, run.task)
        engine.restore(weights)
    if len(set(engine.gather(checkpoint.fingerprint({**state.settings, "step": state.step})))) > 1:
        raise UsageError(
            "the processes differ in settings, data or the step they resume after; start all with the same command, and with "
            "an --out that all hosts share"
        )
    if engine.is_first:
        remove_leftovers(run.out)
        for name, content in run.files().items():
            with atomic_file(run.out / name, replace=True) as file:
                file.write(content)
        if message:
            print_message(message)
    return state


def _explain_fault(run: Run, state: RunState, fault: BertprepError) -> BertprepError:
    advice = "no step was finished before"
    if state.step:
        advice = f"step {state.step:,} is saved, and the same command resumes after it"
    if isinstance(fault, BadRecordError):
        advice = f"this is one bad record more than --skip-bad-records {run.options.skip_bad_records}; {advice}"
    return BertprepError(f"{fault}; {advice}")


@dataclass
class _Interval:
    """Sums over the steps since the last line of the log, or since the run was started or resumed."""

    sums: Sums
    gradient_norm: float = 0.0
    steps: int = 0

    def add(self, result: StepResult) -> None:
        self.sums = self.sums + result.sums
        self.gradient_norm += result.gradient_norm
        self.steps += 1


class _BadRecords:
    """Counts the bad records that this rank skips, each once in a run."""

    def __init__(self, known: set[str], *, most: int) -> None:
        """`known` contains the messages of the bad records that were skipped before the run was resumed."""
        self._known, self._most = known, most

    def count(self, bad: Sequence[BadRecordError]) -> tuple[list[BadRecordError], BadRecordError | None]:
        """Return the records that are bad for the first time, and the first one above the limit."""
        new: list[BadRecordError] = []
        for error in bad:
            if str(error) in self._known:
                continue
            if len(self._known) >= self._most:
                return new, error
            self._known.add(str(error))
            new.append(error)
        return new, None


class _ReadBatch(NamedTuple):
    batch: RankBatch
    new_bad: list[BadRecordError]  # its records that are skipped for the first time


class _StartedStep(NamedTuple):
    number: int
    read: _ReadBatch
    wait: Callable[[], StepResult]


class _Loop:
    def __init__(self, run: Run, engine: Engine, state: RunState, log: RunLog, stop: Stop) -> None:
        self.run, self.engine, self.state, self.log, self.stop = run, engine, state, log, stop
        records, task = run.data.records, run.task
        self.batch = GlobalBatch(run.global_batch, engine.data_world_size, engine.data_rank)
        self.batches = TrainingBatches(
            records, self.batch, seed=run.options.seed, shuffle_shards=run.shuffle_shards, packed_into=run.packed_into
        )
        self.interval = self.new_interval()
        self.bad_records = _BadRecords(log.known_bad, most=run.options.skip_bad_records)
        self.first = self.saved = state.step
        test = run.data.test
        self.scorer = None
        if isinstance(test, Records) and task.is_scored:  # opened now, so that missing labels fail before the first step
            self.scorer = task.scorer(run.data.folders[0], test, TEST, None)
        self.best = checkpoint.read_best(run.out, state) if run.keep_best else None
        self.restart_clock()

    def new_interval(self) -> _Interval:
        return _Interval(np.zeros((len(self.run.task.outputs), 3)))

    def make_steps(self) -> None:
        """Make the remaining steps, and save the last one.

        On an accelerator one step is queued ahead. A step starts only when its batch and those queued behind it have been read,
        so that a rank that cannot read raises its flag before the others block.
        """
        steps = self.run.schedule.steps
        self.make_up_evaluation()
        if self.first < steps and not self.stop.is_agreed:
            self.make_remaining_steps(steps)
        is_faulty = self.engine.is_on_any_rank(self.stop.fault is not None)
        if is_faulty:  # files may be repaired before the run is resumed
            self.state.settings = {**self.state.settings, "files": {}}
        if self.state.step != self.saved or self.state.evaluated == steps or (is_faulty and self.state.step):
            self.save()

    def make_up_evaluation(self) -> None:
        """Evaluate first if the run was stopped between saving a step and the evaluation that was due after it."""
        is_due = self.first > 0 and self.is_due(self.first, self.run.eval_every)
        if self.run.data.test is None or self.state.evaluated == self.first or not is_due:
            return
        if self.engine.is_on_any_rank(self.log.has_evaluation):  # only the first rank has the log
            self.state.evaluated = self.first
        else:
            self.evaluate()

    def make_remaining_steps(self, steps: int) -> None:
        ahead = 1 if self.engine.has_accelerator else 0
        with self.batches.from_step(self.first, steps) as batches:
            readable = self.readable(batches)
            read = deque(islice(readable, ahead + 1))
            self.agree_to_stop()  # no earlier step could have carried a flag
            in_flight: deque[_StartedStep] = deque()
            for number in range(self.first + 1, steps + 1):
                if self.stop.is_agreed:
                    break
                read.extend(islice(readable, 1))
                in_flight.append(self.start(number, read.popleft()))
                drains = self.is_due(number, self.run.eval_every, self.run.options.save_every)
                while len(in_flight) > (0 if drains else ahead):
                    self.finish(in_flight.popleft())
            for step in in_flight:
                self.finish(step)

    def readable(self, batches: Iterator[RankBatch]) -> Iterator[_ReadBatch]:
        """Yield the batches before the first one that cannot be read or has too many bad records."""
        try:
            for batch in batches:
                new_bad, excess = self.bad_records.count(batch.bad)
                if excess:
                    self.stop.take(excess)
                    return
                yield _ReadBatch(batch, new_bad)
        except BertprepError as error:
            self.stop.take(error)

    def agree_to_stop(self) -> None:
        """Agree on whether any rank has to stop; all ranks call it."""
        self.stop.is_agreed |= self.engine.is_on_any_rank(self.stop.is_wanted)

    def start(self, number: int, read: _ReadBatch) -> _StartedStep:
        wait = self.engine.train(
            read.batch.arrays, step=number, learning_rate=self.run.schedule.learning_rate(number),
            accumulation=self.run.options.accumulation, stop=self.stop.is_wanted,
        )  # fmt: skip
        return _StartedStep(number, read, wait)

    def is_due(self, step: int, *every: int) -> bool:
        """Return whether this is the last step or a multiple of a cadence; 0 means no cadence."""
        return step == self.run.schedule.steps or any(each > 0 and step % each == 0 for each in every)

    def finish(self, step: _StartedStep) -> None:
        """Wait for a step and count it, then log, evaluate and save if due."""
        state, options, number, result = self.state, self.run.options, step.number, step.wait()
        state.step = number
        self.log.bad_records(TRAINING, number, step.read.new_bad)
        _, _, weights = result.sums.T  # (outputs,) each
        if not result.is_finite:
            if result.loss_scale == 1:  # the scale cannot go lower
                raise self.explain_loss(result)
            state.skipped += 1  # the engine has skipped the update, and the next scale is half
        elif weights[0] > 0:
            self.interval.add(result)
        elif not self.engine.is_on_any_rank(bool(step.read.batch.bad)):  # only bad records: no update was made
            raise self.explain_loss(result)
        self.count_tokens(step.read.batch)
        if self.is_due(number, self.run.log_every):
            self.log_training(result)
        elif number == self.first + 1:
            self.restart_clock()  # excludes compilation
        if self.is_due(number, options.save_every):
            self.save()
        if self.is_due(number, self.run.eval_every):
            self.evaluate()
        self.stop.is_agreed |= result.is_stop_wanted

    def count_tokens(self, batch: RankBatch) -> None:
        """Count the tokens that a step has computed on all ranks, including padding."""
        rows, seq = batch.arrays["input_ids"].shape
        pred = batch.arrays["masked_lm_ids"].shape[1] if "masked_lm_ids" in batch.arrays else self.run.data.records.pred
        rows *= self.batch.data_world_size
        self.tokens_on_clock += rows * seq
        self.flops_on_clock += rows * self.run.task.flops(self.run.model, seq=seq, pred=pred)
        self.log.advance(self.batch.size, rows * seq)

    def restart_clock(self) -> None:
        """Measure throughput from here on, so that earlier evaluations and checkpoints do not count."""
        self.clock, self.clock_step = time.monotonic(), self.state.step
        self.tokens_on_clock = self.flops_on_clock = 0

    def log_training(self, result: StepResult) -> None:
        records, number, schedule = self.run.data.records, self.state.step, self.run.schedule
        interval = self.interval
        if interval.steps == 0:  # no update was made: log the last step
            interval.add(result)
        metrics = self.run.task.metrics(interval.sums)
        self.interval = self.new_interval()
        if not metrics:  # all steps had only bad records
            return
        seconds = max(time.monotonic() - self.clock, 1e-9)
        steps_per_second = (number - self.clock_step) / seconds
        tokens_per_second, flops_per_second = self.tokens_on_clock / seconds, self.flops_on_clock / seconds
        self.restart_clock()
        self.log.train(
            {
                "step": number,
                "epoch": number * self.batch.size / len(records),
                **metrics,
                "learning_rate": schedule.learning_rate(number),
                "gradient_norm": interval.gradient_norm / interval.steps,  # before clipping
                "loss_scale": result.loss_scale,
                "skipped": self.state.skipped,  # updates that fp16 has skipped so far
                "sequences_per_second": steps_per_second * self.batch.size,
                "tokens_per_second": tokens_per_second,  # with padding
                "flops_per_second": flops_per_second,  # the model's, estimated
                "seconds_left": (schedule.steps - number) / max(steps_per_second, 1e-9),
            }
        )

    def evaluate(self) -> None:
        """Log the metrics on the test split, and keep the best checkpoint; unreadable data end the run.

        A checkpoint is saved first, so that a failure here loses no step.
        """
        run, state, engine, test = self.run, self.state, self.engine, self.run.data.test
        if test is None:
            return
        if state.step != self.saved:
            self.save()
        batch = GlobalBatch(run.options.batch_size * engine.devices, engine.data_world_size, engine.data_rank)
        batches = EvaluationBatches(test, batch, most=run.eval_sequences, reporter=Reporter(engine.is_first))
        sequences, metrics, _ = evaluate(engine, run.task, batches, self.scorer)
        new_bad, excess = self.bad_records.count(batches.bad)
        error = batches.fault or excess
        if error is None and batches.bad and self.scorer:
            error = batches.bad[0]  # a score needs all records
        if error is None and not metrics and sequences == batches.sequences:
            error = without_targets(batches)
        if error is not None:
            self.stop.take(error)
        self.agree_to_stop()
        if self.engine.is_on_any_rank(error is not None):
            return
        self.log.bad_records(TEST, state.step, new_bad)
        state.evaluated = state.step
        if metrics:
            found = Evaluated(sequences, run.task.criterion, metrics[run.task.criterion])
            if run.keep_best and found.is_better_than(self.best):
                self.best = found
                self.save_best(found)
            self.log.evaluation({"step": state.step, "sequences": sequences, **metrics})
        elif engine.is_first:
            split = run.task.name_of_split(TEST)
            print_message(
                f"step {state.step:,}: {split} split: not evaluated, since none of its good records has a masked token"
            )
        self.restart_clock()

    def save_best(self, found: Evaluated) -> None:
        arrays = self.engine.state()
        if self.engine.is_first:
            path = checkpoint.save_best(self.run.out, self.state, arrays, found)
            best, split = "lowest" if found.metric == "loss" else "highest", self.run.task.name_of_split(TEST)
            metric = f"{best} {found.metric} on the {split} split so far, {found.value:.4f}"
            print_message(f"step {self.state.step:,}: {metric}: saved as {path}")

    def save(self) -> None:
        self.saved = self.state.step
        arrays = self.engine.state()
        self.log.keep()
        if self.engine.is_first:
            checkpoint.save(self.run.out, self.state, arrays, keep=self.run.options.keep)
        self.restart_clock()

    def explain_loss(self, result: StepResult) -> BertprepError:
        """Return the error for a batch without masked tokens, for NaN, or for an overflow that no loss scale avoids."""
        path, record = self.batches.locations(self.state.step - 1)[0]
        *_, weights = result.sums.T
        what, advice = "its records have 0 masked tokens or labels, so there is no loss", ""
        if not result.is_finite:
            loss = self.run.task.metrics(result.sums).get("loss", 0.0)  # none without targets
            what = (
                f"the loss over {weights[0]:g} masked tokens or labels is {loss}, and the gradient norm {result.gradient_norm}"
            )
            advice = ", or lower --lr"
        end = f"the same command resumes after step {self.saved:,}" if self.saved else "no checkpoint was saved before"
        return BertprepError(
            f"step {self.state.step:,}: {what}; look at the first record of the batch, {path}: record {record}, with bertprep "
            f"inspect{advice}; {end}"
        )

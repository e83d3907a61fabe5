"""Training from the first step to the last, whatever the framework and the task.

    for each step             the batch of that number, its learning rate, one step of the engine
        log_every             a line with the means over the steps since the last
        save_every            a checkpoint; at the end in any case, and before any early end
        eval_every            a checkpoint, then metrics on the test split; at the end in any case
    NaN or overflow           fp16: the update is skipped; else the end, with the batch's first record named
    bad records alone         no update
    SIGTERM, Ctrl-C           the end after this step or evaluation
    data not readable         the end; of bad records, once there are more than --skip-bad-records

All follows from the number of finished steps. A rank that has to stop raises a flag, which reaches all ranks with the step's
sums.
"""

from __future__ import annotations

import os
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import islice
from types import FrameType

import numpy as np
from numpy.typing import NDArray

from bertprep.errors import BertprepError, UsageError
from bertprep.files.atomic import atomic_file, remove_leftovers
from bertprep.files.outputs import check_output, marked_by
from bertprep.instances.tokenizer_files import TOKENIZER_CONFIG
from bertprep.progress import Reporter, print_message
from bertprep.records.records import BadRecordError, Records
from bertprep.work.layout import TEST, TOKENIZER, TRAINING, VOCABULARY
from trainer import checkpoint
from trainer.batches import EvaluationBatches, GlobalBatch, RankBatch, TrainingBatches
from trainer.checkpoint import Evaluated, RunState
from trainer.engines import Engine, StepResult
from trainer.evaluate import evaluate, without_targets
from trainer.log import LOG, PICTURE, RunLog
from trainer.run import Run, with_defaults
from trainer.scores import scorer_of
from trainer.tasks import name_of_split
from trainer.weights import read_weights

MODEL_CONFIG = "bert_config.json"


class Stop:
    """Why this rank has to stop: a signal, or data that it cannot read."""

    def __init__(self) -> None:
        self.is_signalled = False
        self.fault: BertprepError | None = None

    def __bool__(self) -> bool:
        return self.is_signalled or self.fault is not None

    def take(self, error: BertprepError) -> None:
        if self.fault is None:
            self.fault = error.with_traceback(None)  # whose frames would keep the engine alive

    @contextmanager
    def on_signals(self) -> Iterator[None]:
        """Let SIGTERM and Ctrl-C stop the run with a checkpoint; a second Ctrl-C raises KeyboardInterrupt."""

        def handle(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - what signal handlers are given
            if self.is_signalled and number == signal.SIGINT:
                raise KeyboardInterrupt
            self.is_signalled = True
            # not print: the signal may have interrupted one, which is not reentrant
            os.write(2, f"{signal.Signals(number).name}: stopping after this step or evaluation, with a checkpoint\n".encode())

        with ExitStack() as opened:
            for number in (signal.SIGTERM, signal.SIGINT):
                opened.callback(signal.signal, number, signal.signal(number, handle))
            yield


def train(run: Run, engine: Engine) -> bool:
    """Train to the end, from the newest checkpoint in `run.out`, which is locked; return whether the next run may start."""
    engine.build(run.model, run.optimizer, seed=run.options.seed, task=run.task)
    state, stop = resume(run, engine), Stop()
    log = RunLog(run.out, run.task, steps=run.schedule.steps, first_step=state.step, is_shown=engine.is_first)
    with log, stop.on_signals():
        log.note(**state.settings, devices=engine.device_name, versions=dict(engine.versions))
        loop = _Loop(run, engine, state, log, stop)
        loop.make_steps()
        if stop.fault is not None:
            raise _explain_fault(run, state, stop.fault) from stop.fault
    # The next phase reads what the first rank has saved; so all wait for it here.
    if run.is_finished(state.step, state.evaluated) and (run.is_last or not loop.is_on_any_rank(bool(stop))):
        if engine.is_first and run.is_last:
            then = f"python -m trainer export {run.out} DIR"
            if run.data.test is not None:
                then = f"python -m trainer evaluate --init {run.out} --data {run.data.folders[0]}, or {then}"
            print_message(f"{run.out}: holds the trained model; next: {then}")
        return True
    if not stop.is_signalled and engine.processes > 1:
        raise BertprepError(
            f"data rank {engine.data_rank} of {engine.data_world_size}: another process was stopped, or met data that it "
            f"cannot read, and says which; step {state.step:,} is saved, and the same command resumes after it"
        )
    if engine.is_first:
        print_message(f"stopped after step {state.step:,} of {run.schedule.steps:,}; the same command resumes from {run.out}")
    return False


def resume(run: Run, engine: Engine) -> RunState:
    """Give the engine what it starts from: the newest checkpoint, the weights of --init, or the seed's."""
    newest, settings = checkpoint.newest(run.out), run.header(precision=engine.precision)
    state, message = RunState(settings), ""
    if newest:
        state, arrays = checkpoint.read(newest)
        state.settings = checkpoint.compare(newest, with_defaults(state.settings), settings, lengthen=run.options.lengthen)
        engine.restore(arrays)
        message = f"{newest}: resuming after step {state.step:,}"
    elif run.init:
        weights, message = read_weights(run.init, run.model, run.task)
        engine.restore(weights)
    if len(set(engine.gather(checkpoint.fingerprint({**state.settings, "step": state.step})))) > 1:
        raise UsageError(
            "the processes differ in settings, data or the step they resume after; start all with the same command, and an "
            "--out that all hosts see"
        )
    if engine.is_first:
        remove_leftovers(run.out)
        for name, content in _files_of_model(run).items():
            with atomic_file(run.out / name, replace=True) as file:
                file.write(content)
        if message:
            print_message(message)
    return state


def check_out(run: Run) -> None:
    """Raise `UsageError` where a new run would replace files that no run wrote, such as those of a model of another tool."""
    is_of_run = marked_by(run.out / LOG)
    for name, content in _files_of_model(run).items():
        path = run.out / name
        if not (path.is_file() and path.read_bytes() == content):
            check_output(path, is_of_run, "--out")
    check_output(run.out / PICTURE, is_of_run, "--out")


def _files_of_model(run: Run) -> dict[str, bytes]:
    files = {MODEL_CONFIG: run.model.to_json().encode()}
    if run.data.vocabulary:
        name = TOKENIZER if run.data.vocabulary.name == TOKENIZER else VOCABULARY
        files[name] = run.data.vocabulary.read_bytes()
        config = run.data.vocabulary.with_name(TOKENIZER_CONFIG)  # which is there where it names the mask token
        if name == TOKENIZER and config.is_file():
            files[TOKENIZER_CONFIG] = config.read_bytes()
    return files


def _explain_fault(run: Run, state: RunState, fault: BertprepError) -> BertprepError:
    advice = "no step was finished before"
    if state.step:
        advice = f"step {state.step:,} is saved, and the same command resumes after it"
    if isinstance(fault, BadRecordError):
        advice = f"it is one more than --skip-bad-records {run.options.skip_bad_records}; {advice}"
    return BertprepError(f"{fault}; {advice}")


class _Loop:
    def __init__(self, run: Run, engine: Engine, state: RunState, log: RunLog, stop: Stop) -> None:
        self.run, self.engine, self.state, self.log, self.stop = run, engine, state, log, stop
        records, task = run.data.records, run.task
        self.batch = GlobalBatch(run.global_batch, engine.data_world_size, engine.data_rank)
        self.batches = TrainingBatches(records, self.batch, seed=run.options.seed, order=run.order)
        self.flops = run.global_batch * task.flops(run.model, seq=records.seq, pred=records.pred)
        # (3 * outputs + 2,) since the last line of the log: all sums, the sum of the gradient norms, the number of steps
        self.interval = np.array(state.interval or [0.0] * (3 * len(task.outputs) + 2))
        self.known_bad = set(log.known_bad)
        self.is_stopping = False  # a stop was requested on some rank; the same on all
        self.first = self.saved = state.step
        test = run.data.test
        # at the start, which reads labels or questions: a run must not end at its first evaluation for them
        self.scorer = scorer_of(task, run.data.folders[0], test) if isinstance(test, Records) and task.is_scored else None
        self.best = checkpoint.read_best(run.out, state) if run.keep_best else None
        self.restart_clock()

    def make_steps(self) -> None:
        """Make the remaining steps, and save the last one.

        On an accelerator one step is queued ahead. A step starts only when its batch and those queued behind it have been read,
        so that a rank that cannot read raises its flag before the others block.
        """
        steps = self.run.schedule.steps
        self.make_up_evaluation()
        if self.first < steps and not self.is_stopping:
            self.make_remaining_steps(steps)
        if self.state.step != self.saved or self.state.evaluated == steps:
            self.save()

    def make_up_evaluation(self) -> None:
        """Evaluate after the step that the run resumes after, if it ended between that checkpoint and the evaluation."""
        is_due = self.first > 0 and self.is_due(self.first, self.run.eval_every)
        if self.run.data.test is None or self.state.evaluated == self.first or not is_due:
            return
        if self.is_on_any_rank(self.log.has_evaluation):  # of the first, which has the log
            self.state.evaluated = self.first
        else:
            self.evaluate()

    def make_remaining_steps(self, steps: int) -> None:
        ahead = 1 if self.engine.has_accelerator else 0
        with self.batches.from_step(self.first, steps) as batches:
            readable = self.readable(batches)
            read = deque(islice(readable, ahead + 1))
            self.is_stopping = self.is_on_any_rank(bool(self.stop))  # no step could carry a flag before
            in_flight: deque[tuple[int, RankBatch, Callable[[], StepResult]]] = deque()
            for number in range(self.first + 1, steps + 1):
                if self.is_stopping:
                    break
                read.extend(islice(readable, 1))
                batch = read.popleft()
                in_flight.append((number, batch, self.start(number, batch)))
                drains = self.is_due(number, self.run.eval_every, self.run.options.save_every)
                while len(in_flight) > (0 if drains else ahead):
                    self.finish(*in_flight.popleft())
            for step in in_flight:
                self.finish(*step)

    def readable(self, batches: Iterator[RankBatch]) -> Iterator[RankBatch]:
        """Iterate over the batches up to the first that cannot be read, or has too many bad records."""
        try:
            for batch in batches:
                if excess := self.count_bad(batch.bad):
                    self.stop.take(excess)
                    return
                yield batch
        except BertprepError as error:
            self.stop.take(error)

    def count_bad(self, bad: Sequence[BadRecordError]) -> BadRecordError | None:
        """Count bad records, each once in a run; returns the first of more than may be skipped."""
        for each in bad:
            self.known_bad.add(str(each))
            if len(self.known_bad) > self.run.options.skip_bad_records:
                return each
        return None

    def is_on_any_rank(self, condition: bool) -> bool:
        """Whether the condition holds on this rank or another; all ranks call it."""
        return any(self.engine.gather(int(condition)))

    def start(self, number: int, batch: RankBatch) -> Callable[[], StepResult]:
        return self.engine.train(
            batch.arrays, step=number, learning_rate=self.run.schedule.learning_rate(number),
            accumulation=self.run.options.accumulation, stop=bool(self.stop),
        )  # fmt: skip

    def is_due(self, step: int, *every: int) -> bool:
        """Whether this is the last step, or a multiple of a cadence; one of 0 is none."""
        return step == self.run.schedule.steps or any(each > 0 and step % each == 0 for each in every)

    def finish(self, number: int, batch: RankBatch, wait: Callable[[], StepResult]) -> None:
        """Wait for a step and count it, then log, evaluate and save where it is due."""
        state, options, result = self.state, self.run.options, wait()
        state.step = number
        self.log.bad_records(TRAINING, number, batch.bad)
        _, _, weights = result.sums.T  # (outputs,) each
        if not result.is_finite:
            if result.loss_scale == 1:  # a lower one is no cure
                raise self.explain_loss(result)
            state.skipped += 1  # the engine has skipped the update, and the next scale is half
        elif weights[0] > 0:
            self.interval += _numbers_of(result)
        elif not self.is_on_any_rank(bool(batch.bad)):  # of bad records alone the engine has made no update
            raise self.explain_loss(result)
        self.log.advance(self.batch.size, self.batch.size * self.run.data.records.seq)
        if self.is_due(number, options.log_every):
            self.log_training(result)
        elif number == self.first + 1:
            self.restart_clock()  # without compiling
        if self.is_due(number, options.save_every):
            self.save()
        if self.is_due(number, self.run.eval_every):
            self.evaluate()
        self.is_stopping |= result.is_stop_wanted

    def restart_clock(self) -> None:
        """Measure throughput from here on, without evaluations and checkpoints before."""
        self.clock, self.clock_step = time.monotonic(), self.state.step

    def log_training(self, result: StepResult) -> None:
        records, number, schedule = self.run.data.records, self.state.step, self.run.schedule
        *sums, gradient_norms, steps = self.interval if self.interval[-1] else _numbers_of(result)
        metrics = self.run.task.metrics(np.reshape(sums, (-1, 3)))
        if not metrics:  # all steps were of bad records alone
            return
        self.interval[:] = 0
        steps_per_second = (number - self.clock_step) / max(time.monotonic() - self.clock, 1e-9)
        self.restart_clock()
        sequences_per_second = steps_per_second * self.batch.size
        self.log.train(
            {
                "step": number,
                "epoch": number * self.batch.size / len(records),
                **metrics,
                "learning_rate": schedule.learning_rate(number),
                "gradient_norm": gradient_norms / steps,  # before clipping
                "loss_scale": result.loss_scale,
                "skipped": self.state.skipped,  # updates of the run so far, by fp16
                "sequences_per_second": sequences_per_second,
                "tokens_per_second": sequences_per_second * records.seq,
                "flops_per_second": steps_per_second * self.flops,  # the model's, estimated
                "seconds_left": (schedule.steps - number) / max(steps_per_second, 1e-9),
            }
        )

    def evaluate(self) -> None:
        """Log the metrics on the test split, and keep the best checkpoint; unreadable data end the run.

        The step is saved before, so that whatever happens here costs no step.
        """
        run, state, engine, test = self.run, self.state, self.engine, self.run.data.test
        if test is None:
            return
        if state.step != self.saved:
            self.save()
        batch = GlobalBatch(run.options.batch_size * engine.devices, engine.data_world_size, engine.data_rank)
        batches = EvaluationBatches(test, batch, most=run.eval_sequences, reporter=Reporter(engine.is_first))
        sequences, metrics = evaluate(engine, run.task, batches, self.scorer)
        error = batches.fault or self.count_bad(batches.bad)
        if error is None and batches.bad and self.scorer:
            error = batches.bad[0]  # a score takes all records
        if error is None and not metrics and sequences == batches.sequences:
            error = without_targets(batches)
        if error is not None:
            self.stop.take(error)
        self.is_stopping |= self.is_on_any_rank(bool(self.stop))
        if self.is_on_any_rank(error is not None):
            return
        self.log.bad_records(TEST, state.step, batches.bad)
        state.evaluated = state.step
        if metrics:
            found = Evaluated(sequences, run.task.criterion, metrics[run.task.criterion])
            if run.keep_best and found.is_better_than(self.best):
                self.best = found
                self.save_best(found)
            self.log.evaluation({"step": state.step, "sequences": sequences, **metrics})
        elif engine.is_first:
            split = name_of_split(run.task, TEST)
            print_message(
                f"step {state.step:,}: {split} split: not evaluated, since no masked token is left without bad records"
            )
        self.restart_clock()

    def save_best(self, found: Evaluated) -> None:
        arrays = self.engine.state()
        if self.engine.is_first:
            path = checkpoint.save_best(self.run.out, self.state, arrays, found)
            best, split = "lowest" if found.metric == "loss" else "highest", name_of_split(self.run.task, TEST)
            metric = f"{best} {found.metric} on the {split} split so far, {found.value:.4f}"
            print_message(f"step {self.state.step:,}: {metric}: kept as {path}")

    def save(self) -> None:
        self.saved = self.state.step
        self.state.interval = self.interval.tolist()
        arrays = self.engine.state()
        if self.engine.is_first:
            self.log.keep()
            checkpoint.save(self.run.out, self.state, arrays, keep=self.run.options.keep)
        self.restart_clock()

    def explain_loss(self, result: StepResult) -> BertprepError:
        """Return the error for a batch without a masked token, NaN, or an incurable overflow."""
        path, record = self.batches.locations(self.state.step - 1)[0]
        *_, weights = result.sums.T
        what, advice = "its records have 0 masked tokens or labels, so there is no loss", ""
        if not result.is_finite:
            loss = self.run.task.metrics(result.sums).get("loss", 0.0)  # none without targets
            what = f"the loss is {loss}, of {weights[0]:g} masked tokens or labels, the gradient norm {result.gradient_norm}"
            advice = ", or lower --lr"
        end = f"the same command resumes after step {self.saved:,}" if self.saved else "no checkpoint was saved before"
        return BertprepError(
            f"step {self.state.step:,}: {what}; look at its first record, {path}: record {record}, with bertprep inspect"
            f"{advice}; {end}"
        )


def _numbers_of(result: StepResult) -> NDArray[np.float64]:
    return np.append(result.sums, [result.gradient_norm, 1.0])

"""Reports a run: lines on standard error, log.jsonl, scalars for TensorBoard, and a plot of its losses.

    OUT/log.jsonl                         one entry a line
    OUT/tensorboard/events.out.tfevents.* the same numbers, as training/NAME and test/NAME
    OUT/loss.png                          redrawn after each evaluation and at the end

    "train"       metrics and the gradient norm as means over the steps since the previous entry, without those that fp16
                  skipped; throughput since then too; everything else for the step itself
    "evaluation"  metrics on the test split, and the baseline that a model must beat
    "bad_record"  a record met for the first time in the run, in the batch of a step or the evaluation after it
    "run"         at each start, the settings of the run

Each entry is written before the next step: a kill loses at most the line being written. A resumed run first removes the entries
of the steps that it repeats. Where OUT is a URL, the files are written on this machine and brought there before each checkpoint
and at the end, since objects cannot grow; so the log there always has the entries of all steps that a checkpoint has.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from bertprep.errors import BertprepError
from bertprep.files.atomic import atomic_file, explain_write_error, temporary_folder
from bertprep.files.places import is_object
from bertprep.progress import Progress, say
from bertprep.terminal import duration
from trainer.log_file import EventFile, append, cut_log, log_line
from trainer.plot import draw_losses
from trainer.tasks import Task, evaluated_split

LOG, EVENTS, PICTURE = "log.jsonl", "tensorboard", "loss.png"
Entry = Mapping[str, Any]


class RunLog:
    """The log of a run of `steps` steps that has finished `first_step`; none unless `is_shown`, as on the first rank.

    Use as a context manager. Raises `BertprepError` if a file cannot be written, or an existing log is something else.
    """

    def __init__(self, out: Path, task: Task, *, steps: int, first_step: int, is_shown: bool = True) -> None:
        self._out, self._task, self._steps, self._first_step, self._is_shown = out, task, steps, first_step, is_shown
        self._folder = out  # that of the files as they are written
        self._closing = ExitStack()
        self._is_drawn = True  # the plot already shows the whole log
        self._picture_error = ""

    def __enter__(self) -> RunLog:
        if not self._is_shown:
            return self
        with ExitStack() as opened:
            if is_object(self._out):
                self._folder = opened.enter_context(temporary_folder(self._out))
                self._fetch_log()
            path = self._folder / LOG
            cut_log(path, self._first_step)
            try:
                self._folder.mkdir(parents=True, exist_ok=True)
                self._file = opened.enter_context(path.open("ab", buffering=0))
            except OSError as error:
                raise explain_write_error(path, error) from error
            self._events = opened.enter_context(EventFile(self._folder / EVENTS, first_step=self._first_step))
            opened.callback(self._keep_last)
            opened.callback(self._draw)
            self._bar = opened.enter_context(Progress("train", self._steps, "steps", enabled=sys.stderr.isatty()))
            self._bar.advance(self._first_step)
            self._closing = opened.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self._closing.__exit__(kind, value, trace)  # the bar first, then the plot

    def note(self, **what: Any) -> None:
        """Log the settings of the run, at each start."""
        self._enter("run", {"step": self._first_step, **what})

    def trained(self, entry: Entry) -> None:
        """Report the progress of training."""
        self._report("train", "training", entry, training_line(self._task, entry, self._steps))

    def evaluated(self, entry: Entry) -> None:
        """Report an evaluation, and plot the losses."""
        self._report("evaluation", "test", entry, evaluation_line(self._task, entry))
        self._draw()

    def skipped_record(self, entry: Entry) -> None:
        """Report a bad record that training or an evaluation skipped."""
        if self._is_shown:
            self._enter("bad_record", entry)
            say("step {step:,}: skipped a bad record: {file}: record {record}: {what}".format(**entry))

    def advanced(self, sequences: int, tokens: int) -> None:
        """Advance the progress bar by a finished step."""
        if self._is_shown:
            self._bar.advance(tokens=tokens, sequences=sequences)

    def _report(self, kind: str, group: str, entry: Entry, line: str) -> None:
        if not self._is_shown:
            return
        self._enter(kind, entry)
        scalars = {f"{group}/{name}": value for name, value in entry.items() if name != "step" and value is not None}
        self._events.write(entry["step"], scalars)
        self._is_drawn = False
        say(line)

    def _enter(self, kind: str, entry: Entry) -> None:
        if self._is_shown:
            append(self._file, log_line({"kind": kind, **entry}))

    def keep(self) -> None:
        """Bring the files to OUT where that is a URL; call it before a checkpoint, whose steps then are in the log there."""
        if not self._is_shown or self._folder == self._out:
            return
        for path in (self._folder / LOG, self._events.path, self._folder / PICTURE):
            if path.is_file():
                with atomic_file(self._out / path.relative_to(self._folder), replace=True) as file:
                    file.write(path.read_bytes())

    def _keep_last(self) -> None:
        """The same at the end, whose error would hide that which ended the run; all but the picture is there by then."""
        try:
            self.keep()
        except BertprepError as error:
            say(str(error))

    def _fetch_log(self) -> None:
        """Take over the log that another process, perhaps on another machine, has left at the URL."""
        with suppress(FileNotFoundError):
            (self._folder / LOG).write_bytes((self._out / LOG).read_bytes())

    def _draw(self) -> None:
        """Plot the losses; a failure is reported once and does not stop the run."""
        if self._is_drawn:
            return
        try:
            draw_losses({self._out.resolve().name: self._folder / LOG}, self._folder / PICTURE)
            self._is_drawn = True
        except BertprepError as error:
            if str(error) != self._picture_error:
                say(str(error))
            self._picture_error = str(error)


def training_line(task: Task, entry: Entry, steps: int) -> str:
    """The console line of a training entry, less than 210 characters."""
    return ", ".join(
        [
            f"step {entry['step']:,}/{steps:,}: {task.describe_training(entry)}",
            f"rate {entry['learning_rate']:.2e}",
            f"norm {entry['gradient_norm']:.3g}",
            *([f"scale 2^{math.log2(entry['loss_scale']):g}"] if entry["loss_scale"] != 1 else []),
            *([f"{entry['skipped']:,} skipped"] if entry["skipped"] else []),
            f"{_short(entry['sequences_per_second'])} sequences/s",
            f"{_short(entry['tokens_per_second'])} tokens/s",
            f"{_short(entry['flops_per_second'], ' ')}FLOP/s",
            f"{duration(entry['seconds_left'])} left",
        ]
    )


def evaluation_line(task: Task, entry: Entry) -> str:
    """The console line of an evaluation."""
    where = f"{evaluated_split(task)} split, {entry['sequences']:,} sequences"
    return f"step {entry['step']:,}: {where}: {task.describe_evaluation(entry)}"


def _short(value: float, space: str = "") -> str:
    """Three digits and a prefix.

    >>> _short(84.25), _short(157952.0), _short(123.4e12, " ")
    ('84.2', '158k', '123 T')
    """
    for prefix in ("", "k", "M", "G", "T"):
        if float(f"{value:.3g}") < 1000:
            return f"{value:.3g}{space}{prefix}"
        value /= 1000
    return f"{value:.3g}{space}P"

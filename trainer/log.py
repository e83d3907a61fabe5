"""What a run tells: a line on standard error, a line in log.jsonl, scalars for TensorBoard, and a picture of its losses.

    OUT/log.jsonl                         the entries of trainer.log_file, one a line
    OUT/tensorboard/events.out.tfevents.* the same numbers, as training/NAME and test/NAME
    OUT/loss.png                          drawn anew after each evaluation and at the end

Each entry is in its files before the next step: a kill loses no more than the line that is being written. A run that goes on
cuts off first what the log says of the steps that it makes again.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any

from bertprep.errors import BertprepError
from bertprep.files.atomic import explain_write_error
from bertprep.progress import Progress, say
from trainer.log_file import BadRecordEntry, EvalEntry, TrainEntry, cut_log, log_line
from trainer.plot import draw_losses
from trainer.tensorboard import EventFile, append

LOG, EVENTS, PICTURE = "log.jsonl", "tensorboard", "loss.png"


class RunLog:
    """The log of a run of `steps` steps that has finished `first_step`; without `is_shown`, as in ranks but the first, none.

    Use as a context manager. Raises `BertprepError` where a file cannot be written, or a log that is there is none.
    """

    def __init__(self, out: Path, *, steps: int, first_step: int, is_shown: bool = True) -> None:
        self._out, self._steps, self._first_step, self._is_shown = out, steps, first_step, is_shown
        self._closing = ExitStack()
        self._is_drawn = True  # the picture shows all that is in the log
        self._trouble_with_picture = ""

    def __enter__(self) -> RunLog:
        if not self._is_shown:
            return self
        path = self._out / LOG
        cut_log(path, self._first_step)
        with ExitStack() as opened:
            try:
                self._out.mkdir(parents=True, exist_ok=True)
                self._file = opened.enter_context(path.open("ab", buffering=0))
            except OSError as error:
                raise explain_write_error(path, error) from error
            self._events = opened.enter_context(EventFile(self._out / EVENTS, first_step=self._first_step))
            opened.callback(self._draw)
            self._bar = opened.enter_context(Progress("train", self._steps, "steps", enabled=sys.stderr.isatty()))
            self._bar.advance(self._first_step)
            self._closing = opened.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self._closing.__exit__(kind, value, trace)  # the bar first, then the picture

    def note(self, **what: Any) -> None:
        """Enter what the run is made with, at each start."""
        self._enter("run", {"step": self._first_step, **what})

    def trained(self, entry: TrainEntry) -> None:
        """Tell where training is."""
        self._tell("train", "training", asdict(entry), training_line(entry, self._steps))

    def evaluated(self, entry: EvalEntry) -> None:
        """Tell what an evaluation found, and draw the losses."""
        self._tell("evaluation", "test", asdict(entry), evaluation_line(entry))
        self._draw()

    def skipped_record(self, entry: BadRecordEntry) -> None:
        """Tell which record training, or an evaluation, went on without."""
        if self._is_shown:
            self._enter("bad_record", asdict(entry))
            say(f"step {entry.step:,}: without a bad record: {entry.file}: record {entry.record}: {entry.what}")

    def advanced(self, sequences: int, tokens: int) -> None:
        """Count a step that is finished, for who watches a terminal."""
        if self._is_shown:
            self._bar.advance(tokens=tokens, sequences=sequences)

    def _tell(self, kind: str, group: str, values: Mapping[str, Any], line: str) -> None:
        if not self._is_shown:
            return
        self._enter(kind, values)
        scalars = {name: value for name, value in values.items() if name != "step" and value is not None}
        self._events.write(values["step"], {f"{group}/{name}": value for name, value in scalars.items()})
        self._is_drawn = False
        say(line)

    def _enter(self, kind: str, values: Mapping[str, Any]) -> None:
        if self._is_shown:
            append(self._file, log_line({"kind": kind, **values}))

    def _draw(self) -> None:
        """A picture that cannot be made is said once, and stops no run."""
        if self._is_drawn:
            return
        try:
            draw_losses({self._out.resolve().name: self._out / LOG}, self._out / PICTURE)
            self._is_drawn = True
        except BertprepError as error:
            if str(error) != self._trouble_with_picture:
                say(str(error))
            self._trouble_with_picture = str(error)


def training_line(entry: TrainEntry, steps: int) -> str:
    """What is said of training, in less than 210 characters; the accuracies are those of masked LM and next sentence."""
    return ", ".join(
        [
            f"step {entry.step:,}/{steps:,}: loss {entry.loss:.2f} (masked LM {entry.masked_lm_loss:.2f}",
            f"next sentence {entry.next_sentence_loss:.2f})",
            f"accuracy {entry.masked_lm_accuracy:.2f}/{entry.next_sentence_accuracy:.2f}",
            f"rate {entry.learning_rate:.2e}",
            f"norm {entry.gradient_norm:.3g}",
            *([f"scale 2^{math.log2(entry.loss_scale):g}"] if entry.loss_scale != 1 else []),
            *([f"{entry.skipped:,} skipped"] if entry.skipped else []),
            f"{_short(entry.sequences_per_second)} sequences/s",
            f"{_short(entry.tokens_per_second)} tokens/s",
            f"{_short(entry.flops_per_second, ' ')}FLOP/s",
            f"{_duration(entry.seconds_left)} left",
        ]
    )


def evaluation_line(entry: EvalEntry) -> str:
    """What is said of an evaluation; accuracies are in brackets."""
    unigram = "" if entry.unigram_loss is None else f"; by unigram frequencies {entry.unigram_loss:.2f}"
    return (
        f"step {entry.step:,}: test split, {entry.sequences:,} sequences: masked-LM loss {entry.masked_lm_loss:.2f} "
        f"(accuracy {entry.masked_lm_accuracy:.2f}{unigram}), next sentence {entry.next_sentence_loss:.2f} "
        f"({entry.next_sentence_accuracy:.2f})"
    )


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


def _duration(seconds: float) -> str:
    """In the unit that fits.

    >>> _duration(45), _duration(760), _duration(18_900), _duration(440_000)
    ('45 s', '13 min', '5.2 h', '5 days')
    """
    minutes, hours = seconds / 60, seconds / 3600
    if seconds < 100:
        return f"{seconds:.0f} s"
    if minutes < 100:
        return f"{minutes:.0f} min"
    return f"{hours:.1f} h" if hours < 100 else f"{hours / 24:.0f} days"

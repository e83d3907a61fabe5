"""Report on a run: by lines on standard error, log.jsonl, scalars for TensorBoard, and a plot of the losses.

    OUT/log.jsonl                         {"kind": ..., "step": steps finished, ...}, one entry per line
    OUT/log-1.jsonl                       bad records that process 1 has skipped
    OUT/tensorboard/events.out.tfevents.* the same numbers, as training/NAME and test/NAME, if tensorboard is installed
    OUT/loss.png                          redrawn after each evaluation and at the end

docs/reference/trainer.md lists the kinds of entries. A resumed run first removes the entries of the steps that it repeats.
"""

from __future__ import annotations

import json
import math
import os
import socket
import struct
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np

from bertprep.errors import BertprepError, UsageError
from bertprep.files.atomic import atomic_file, explain_write_error, temporary_folder
from bertprep.files.crc32c import masked_checksum
from bertprep.files.paths import is_object
from bertprep.progress import Progress, print_message
from bertprep.records.records import BadRecordError
from bertprep.terminal import duration
from bertprep.work.layout import TEST
from trainer.metrics import describe_metrics
from trainer.plot import draw_losses, read_log
from trainer.tasks.task import Task

LOG, EVENTS, PICTURE = "log.jsonl", "tensorboard", "loss.png"
Entry = Mapping[str, Any]


class RunLog:
    """The log of a run of `steps` steps, of which `first_step` are finished.

    The first process logs everything; the others only print and log the bad records that they skip. The losses of guessing by
    frequency in `guessed` are printed next to the losses of evaluations.
    """

    def __init__(
        self, out: Path, task: Task, *, steps: int, first_step: int, rank: int = 0, guessed: Mapping[str, float] | None = None
    ) -> None:
        self._out, self._task, self._steps, self._first_step = out, task, steps, first_step
        self._is_shown, self._guessed = rank == 0, guessed or {}
        self._name = LOG if self._is_shown else f"log-{rank}.jsonl"
        self._folder = out  # the folder in which the files are written
        self._opened = ExitStack()
        self._file: BinaryIO | None = None
        self._events: EventFile | None = None
        self._can_draw = True
        self.known_bad: set[str] = set()  # the messages of the bad records that this process has skipped so far
        self.has_evaluation = False  # whether the log has an evaluation at `first_step`
        self._has_new_losses = False  # whether there are entries that the picture does not show

    def __enter__(self) -> RunLog:
        with ExitStack() as opened:
            for name in (self._name, EVENTS):
                if (self._out / name).is_symlink():
                    raise UsageError(
                        f"{self._out / name}: is a link, through which a run does not write; remove it, or make the whole "
                        "--out a link"
                    )
            if is_object(self._out):
                self._folder = opened.enter_context(temporary_folder(self._out))
                with suppress(FileNotFoundError):  # the run may have started on another machine, which left its log at the URL
                    (self._folder / self._name).write_bytes((self._out / self._name).read_bytes())
            kept = truncate_log(self._folder / self._name, self._first_step)
            self.known_bad = {str(entry.get("what")) for entry in kept if entry["kind"] == "bad_record"}
            if self._is_shown:
                self._open(opened, kept)
            self._opened = opened.pop_all()
        return self

    def _open(self, opened: ExitStack, kept: Sequence[Entry]) -> None:
        self.has_evaluation = any(entry["kind"] == "evaluation" and entry["step"] == self._first_step for entry in kept)
        self._has_new_losses = any(entry["kind"] in ("train", "evaluation") for entry in kept)
        self._open_file(opened)
        with suppress(ImportError):
            self._events = opened.enter_context(closing(EventFile(self._folder / EVENTS, first_step=self._first_step)))
        opened.callback(self._finish)
        self._bar = opened.enter_context(Progress("train", self._steps, "steps", enabled=sys.stderr.isatty()))
        self._bar.advance(self._first_step)

    def _open_file(self, opened: ExitStack) -> BinaryIO:
        path = self._folder / self._name
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._file = opened.enter_context(path.open("ab", buffering=0))
        except OSError as error:
            raise explain_write_error(path, error) from error
        return self._file

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self._opened.__exit__(kind, value, trace)  # close the bar first

    def note(self, **settings: Any) -> None:
        if self._is_shown:
            guessed = {"guessing_by_frequency": self._guessed} if self._guessed else {}
            self._append("run", {"step": self._first_step, **settings, **guessed})

    def train(self, entry: Entry) -> None:
        self._report("train", "training", entry, training_line(entry, self._steps))

    def evaluation(self, entry: Entry) -> None:
        self._report("evaluation", "test", entry, evaluation_line(self._task, entry, self._guessed))
        self._draw()

    def bad_records(self, split: str, step: int, bad: Iterable[BadRecordError]) -> None:
        """Print and log these bad records, which are skipped for the first time."""
        for error in bad:
            self._append("bad_record", {"step": step, "split": split, "what": str(error)})
            print_message(f"step {step:,}: skipped a bad record: {error}")

    def advance(self, sequences: int, tokens: int) -> None:
        if self._is_shown:
            self._bar.advance(tokens=tokens, sequences=sequences)

    def _report(self, kind: str, group: str, entry: Entry, line: str) -> None:
        if self._is_shown:
            self._append(kind, entry)
            self._has_new_losses = True
            if self._events:
                self._events.write(entry["step"], {f"{group}/{name}": value for name, value in entry.items() if name != "step"})
            print_message(line)

    def _append(self, kind: str, entry: Entry) -> None:
        append(self._file or self._open_file(self._opened), log_line({"kind": kind, **entry}))

    def keep(self) -> None:
        """Upload the files if OUT is a URL. This is called before each checkpoint."""
        if self._folder == self._out:
            return
        paths = [self._folder / self._name]
        if self._is_shown:
            paths += [self._folder / PICTURE, *([self._events.path] if self._events else [])]
        for path in paths:
            if path.is_file():
                with atomic_file(self._out / path.relative_to(self._folder), replace=True) as file:
                    file.write(path.read_bytes())

    def _finish(self) -> None:
        """Draw and upload the rest. An error is only printed, so that it does not hide an earlier one."""
        self._draw()
        try:
            self.keep()
        except BertprepError as error:
            print_message(str(error))

    def _draw(self) -> None:
        try:
            if self._is_shown and self._can_draw and self._has_new_losses:
                draw_losses({self._out.resolve().name: self._folder / LOG}, self._folder / PICTURE)
                self._has_new_losses = False
        except BertprepError as error:
            self._can_draw = False
            print_message(str(error))


def training_line(entry: Entry, steps: int) -> str:
    of_fp16 = f", loss scale 2^{math.log2(entry['loss_scale']):g}" if entry["loss_scale"] != 1 else ""
    skipped = f", {entry['skipped']:,} skipped" if entry["skipped"] else ""
    return (
        f"step {entry['step']:,}/{steps:,}: {describe_metrics(entry)}, learning rate {entry['learning_rate']:.2e}, "
        f"norm {entry['gradient_norm']:.3g}{of_fp16}{skipped}, {entry['sequences_per_second']:,.1f} sequences/s, "
        f"{entry['tokens_per_second']:,.0f} tokens/s, {entry['flops_per_second'] / 1e12:.3g} TFLOP/s, "
        f"{duration(entry['seconds_left'])} left"
    )


def evaluation_line(task: Task, entry: Entry, guessed: Mapping[str, float] | None = None) -> str:
    split = task.name_of_split(TEST)
    return f"step {entry['step']:,}: {split} split, {entry['sequences']:,} sequences: {describe_metrics(entry, guessed)}"


def append(file: BinaryIO, data: bytes) -> None:
    """Write all of `data` to an unbuffered file; raises `BertprepError` if that fails."""
    rest = memoryview(data)
    try:
        while rest:  # a write may be partial, for instance on a full disk
            rest = rest[file.write(rest) :]
    except OSError as error:
        raise explain_write_error(Path(file.name), error) from error


def log_line(entry: Entry) -> bytes:
    """Return an entry as JSON, with null for NaN and infinity, such as the gradient norm of a skipped step."""
    finite = {name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in entry.items()}
    return json.dumps(finite, default=str).encode() + b"\n"


def truncate_log(path: Path, step: int) -> list[dict[str, Any]]:
    """Remove the entries of a log after `step`, and an incomplete last line; return the remaining entries."""
    if not path.exists():
        return []
    kept = [entry for entry in read_log(path) if entry["step"] <= step]
    content = b"".join(map(log_line, kept))
    if content != path.read_bytes():
        with atomic_file(path) as file:
            file.write(content)
    return kept


class EventFile:
    """A new file of TensorBoard's events for a run that has finished `first_step` steps; each entry is written at once.

    Raises `ImportError` if the package tensorboard is not installed. Its messages are written here, because its own writer
    imports TensorFlow into the process of any engine.
    """

    def __init__(self, folder: Path, *, first_step: int) -> None:
        from tensorboard.compat.proto.event_pb2 import Event

        self._event = Event
        # TensorBoard reads files in the order of their names
        self.path = folder / f"events.out.tfevents.{time.time_ns()}.{socket.gethostname()}.{os.getpid()}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("xb", buffering=0)
        except OSError as error:
            raise explain_write_error(folder, error) from error
        self._append(file_version="brain.Event:2")
        # START makes TensorBoard discard the steps from this one on that earlier files have
        self._append(step=first_step + 1, session_log={"status": "START"})

    def write(self, step: int, scalars: Mapping[str, float]) -> None:
        self._append(step=step, summary={"value": [{"tag": tag, "simple_value": value} for tag, value in scalars.items()]})

    def _append(self, **fields: Any) -> None:
        append(self._file, frame(self._event(wall_time=time.time(), **fields).SerializeToString()))

    def close(self) -> None:
        self._file.close()


def frame(data: bytes) -> bytes:
    """Return a TFRecord frame: length, checksum of the length, data, checksum of the data."""
    parts = (struct.pack("<Q", len(data)), data)
    return b"".join(part + struct.pack("<I", masked_checksum(np.frombuffer(part, np.uint8))) for part in parts)

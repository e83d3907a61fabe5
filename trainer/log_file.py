"""The entries of a run's log.jsonl: what each says, and how they are written, read and cut.

    {"kind": "run", "train", "evaluation" or "bad_record", "step": steps finished, ...}    one a line

A run that goes on from a checkpoint makes again the steps after it: what the log says of those is cut off first, with a last
line that a kill has torn off, so that it reads as that of a run which was never stopped.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertprep.errors import BertprepError
from bertprep.files.atomic import atomic_file
from bertprep.progress import say
from bertprep.untrusted import parse_json


@dataclass(frozen=True, kw_only=True)
class TrainEntry:
    """Where training is: losses in nats, accuracies and the norm are means over the steps since the entry before.

    Steps that are not finite, which fp16 skips, are left out of them. Speeds are since then too, all else is of the step.
    """

    step: int  # steps of the whole run that are finished
    phase: int  # from 1
    epoch: float
    loss: float
    masked_lm_loss: float
    masked_lm_accuracy: float
    next_sentence_loss: float
    next_sentence_accuracy: float
    learning_rate: float
    gradient_norm: float  # before clipping
    loss_scale: float  # 1 but for fp16
    skipped: int  # updates of the run so far, whose gradients were not finite
    sequences_per_second: float
    tokens_per_second: float
    flops_per_second: float  # the model's, estimated
    seconds_left: float  # of the run, estimated


@dataclass(frozen=True, kw_only=True)
class EvalEntry:
    """What the model makes of the test split after so many steps; losses are in nats."""

    step: int
    phase: int
    sequences: int
    loss: float
    masked_lm_loss: float
    masked_lm_accuracy: float
    next_sentence_loss: float
    next_sentence_accuracy: float
    unigram_loss: float | None  # masked-LM loss of predicting by the frequencies of the training labels


@dataclass(frozen=True, kw_only=True)
class BadRecordEntry:
    """A bad record that the batch of a step, or the evaluation after it, met for the first time in the run."""

    step: int
    phase: int
    split: str
    file: str
    record: int  # from 0
    what: str


def log_line(entry: Mapping[str, Any]) -> bytes:
    """JSON, which has no infinite numbers: such a gradient norm, of a step that was skipped, is null."""
    finite = {name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in entry.items()}
    return json.dumps(finite, default=str).encode() + b"\n"


def read_log(path: Path) -> list[dict[str, Any]]:
    """The entries of a log, without a last line that a kill has torn off.

    A line that is no entry, as a full disk or an editor leaves it, is named and left out; raises `BertprepError` where none is
    one, since that is the file of something else.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise BertprepError(f"{path}: cannot be read: {error.strerror or error}") from error
    lines = content.split(b"\n")[:-1]
    entries = [(number, line, _read_entry(line)) for number, line in enumerate(lines, 1)]
    good = [entry for _, _, entry in entries if entry is not None]
    if lines and not good:
        raise BertprepError(
            f"{path}: line 1: expected an entry of a log, with a kind and a step, found {_shown(lines[0])}; remove it"
        )
    for number, line, entry in entries:
        if entry is None:
            say(f"{path}: line {number}: left out, it is no entry of a log: {_shown(line)}")
    return good


def _read_entry(line: bytes) -> dict[str, Any] | None:
    try:
        entry = parse_json(line)
    except ValueError:
        return None
    is_entry = isinstance(entry, dict) and isinstance(entry.get("kind"), str) and isinstance(entry.get("step"), int)
    return entry if is_entry else None


def _shown(line: bytes) -> str:
    return repr(line[:40].decode(errors="replace"))


def cut_log(path: Path, step: int) -> None:
    """Take from a log, where there is one, all that it says of steps after `step`, and every line that is not whole."""
    if not path.exists():
        return
    kept = b"".join(log_line(entry) for entry in read_log(path) if entry["step"] <= step)
    if kept != path.read_bytes():
        with atomic_file(path) as file:
            file.write(kept)

"""Checkpoints: all that a run needs to resume as if it had never been stopped, in one file.

    OUT/checkpoint-000001000.safetensors    after 1,000 steps of the run, all phases counted

The arrays are those of `Engine.state`; the header has, as JSON, the step, what the run was made with, and the sha256 of the
arrays. There is no time, no path and no random state in it: the position in the data is the step, and so is dropout's, so two
runs that do the same write the same bytes. A file appears under its name only when it is whole; the newest few are kept, and
with --keep-best the one that was best on the test split, whose header has the metric that says so:

    OUT/checkpoint-best.safetensors
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bertprep.errors import BertprepError
from bertprep.untrusted import COUNT, LIST, OBJECT, SHA256, Rule, check_values, parse_json
from bertprep.weights.hugging_face import Weights
from bertprep.weights.safetensors import read_metadata, read_safetensors, write_safetensors

_NAME = "checkpoint-{:09d}.safetensors"
_PATTERN = f"checkpoint-{'[0-9]' * 9}.safetensors"  # no other name: a copy that a user makes is neither newest nor removed
BEST = "checkpoint-best.safetensors"
_METADATA = "bertprep"
LOSS = "loss"
_NUMBERS = Rule("a list of numbers", lambda value: LIST.holds(value) and all(type(each) in (int, float) for each in value))
_BAD_RECORDS = Rule("a list of phases, splits and numbers", lambda value: LIST.holds(value) and all(map(_is_bad_record, value)))
_HEADER = {
    "step": COUNT, "skipped": COUNT, "sha256": SHA256, "model": OBJECT, "interval": _NUMBERS, "bad_records": _BAD_RECORDS,
}  # fmt: skip
_NOT_MADE_WITH = ("step", "skipped", "sha256", "interval", "bad_records", "test")
BadRecordKey = tuple[int, str, int]
"""A bad record of a run: the phase from 0, the split, its number there."""


def _is_bad_record(value: object) -> bool:
    return isinstance(value, list) and [type(each) for each in value] == [int, str, int]


@dataclass(frozen=True)
class Evaluated:
    """A metric on the test split, comparable within a phase and for the same number of sequences."""

    phase: int  # from 1
    sequences: int
    value: float
    metric: str = LOSS

    def is_better_than(self, other: Evaluated | None) -> bool:
        """Whether this is a new best: a lower loss, or more of any other metric; NaN never is."""
        if other is None or (self.phase, self.sequences, self.metric) != (other.phase, other.sequences, other.metric):
            return math.isfinite(self.value)
        return self.value < other.value if self.metric == LOSS else self.value > other.value

    @property
    def entry(self) -> dict[str, Any]:
        """As a header has it, the value by its metric."""
        return {"phase": self.phase, "sequences": self.sequences, self.metric: self.value}

    @classmethod
    def of_entry(cls, entry: Mapping[str, Any]) -> Evaluated:
        (metric,) = entry.keys() - {"phase", "sequences"}
        return cls(entry["phase"], entry["sequences"], entry[metric], metric)


@dataclass
class RunState:
    """Where a run stands: what its checkpoints say besides the arrays; `made_with` is what the loop says of it, by name."""

    made_with: Mapping[str, Any]
    step: int = 0  # finished steps of the run
    skipped: int = 0  # updates among them
    interval: Sequence[float] = ()  # the sums since the last line of the log; see `trainer.metrics.Interval`
    bad_records: Collection[BadRecordKey] = frozenset()
    best: Evaluated | None = None  # of the best checkpoint


class Checkpoint(NamedTuple):
    """What a file holds."""

    run: RunState
    state: Weights


def save(folder: Path, run: RunState, state: Weights, *, keep: int) -> Path:
    """Write the checkpoint of a step, then remove all but the newest `keep`.

    The header has the interval and the bad records met so far only where there are any.
    """
    header: dict[str, Any] = dict(run.made_with)
    if any(run.interval):
        header["interval"] = list(run.interval)
    if run.bad_records:
        header["bad_records"] = sorted(run.bad_records)
    path = _write(folder / _NAME.format(run.step), run, state, header)
    for old in find_checkpoints(folder)[:-keep]:
        old.unlink(missing_ok=True)
    return path


def save_best(folder: Path, run: RunState, state: Weights, test: Evaluated) -> Path:
    """Write the checkpoint of a step as the best one."""
    return _write(folder / BEST, run, state, {**run.made_with, "test": test.entry})


def read_best(folder: Path, step: int, made_with: Mapping[str, Any]) -> Evaluated | None:
    """What the best checkpoint was evaluated to, if there is one of the run that resumes after `step`.

    A checkpoint of a later step is one that this run will make again, or of a run that took another way from here.
    """
    if not (folder / BEST).is_file():
        return None
    header = read_header(folder / BEST)
    try:
        then = {name: value for name, value in header.items() if name not in _NOT_MADE_WITH}
        is_of_this_run = header["step"] <= step or then == json.loads(json.dumps(made_with))
        return Evaluated.of_entry(header["test"]) if is_of_this_run else None
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise damaged(folder / BEST, f"its header does not say its test loss: {error!r}") from error


def _write(path: Path, run: RunState, state: Weights, header: Mapping[str, Any]) -> Path:
    known = {"step": run.step, "skipped": run.skipped, "sha256": _sha256(state)}
    metadata = json.dumps({**known, **header}, sort_keys=True)
    write_safetensors(path, state, {_METADATA: metadata})
    return path


def read_header(path: Path) -> dict[str, Any]:
    """The step, the updates skipped, the sha256 and what a checkpoint was made with, without its arrays."""
    try:
        text = read_metadata(path).get(_METADATA)
    except BertprepError as error:
        raise damaged(path, error) from error
    if text is None:
        raise BertprepError(f"{path}: is no checkpoint of this trainer; to start from its weights give it as --init")
    try:
        return dict(check_values(parse_json(text.encode()), _HEADER, needed=("step", "skipped", "sha256")))
    except ValueError as error:
        raise damaged(path, f"its header does not say what it was made with: {error}") from error


def read(path: Path) -> Checkpoint:
    """The contents of a checkpoint; raises `BertprepError` for what is none, or has changed since it was written."""
    header = read_header(path)
    try:
        state = read_safetensors(path)
    except BertprepError as error:
        raise damaged(path, error) from error
    if _sha256(state) != header["sha256"]:
        raise damaged(path, "its arrays are not those that were written, by their sha256")
    bad = frozenset((phase, split, number) for phase, split, number in header.get("bad_records", ()))
    made_with = {name: value for name, value in header.items() if name not in _NOT_MADE_WITH}
    return Checkpoint(RunState(made_with, header["step"], header["skipped"], header.get("interval", ()), bad), state)


def _sha256(state: Weights) -> str:
    digest = hashlib.sha256()
    for name in sorted(state):
        digest.update(np.ascontiguousarray(state[name], "<f4").data)
    return digest.hexdigest()


def damaged(path: Path, why: object) -> BertprepError:
    """The error for a checkpoint that is not what was written."""
    before = [each.name for each in find_checkpoints(path.parent) if each.name < path.name]
    advice = f"remove it, to resume from {before[-1]}" if before else "remove it, to start again"
    return BertprepError(f"{path}: is damaged ({str(why).removeprefix(f'{path}: ')}); {advice}")


def is_checkpoint(file: Path) -> bool:
    """Whether a safetensors file is of a run of this trainer."""
    return _METADATA in read_metadata(file)


def newest(folder: Path) -> Path | None:
    """The checkpoint of the highest step in a folder, if there is one."""
    found = find_checkpoints(folder)
    return found[-1] if found else None


def precision_of(folder: Path) -> str | None:
    """The precision of a folder's newest checkpoint, where its header says it."""
    path = newest(folder)
    try:
        found = read_header(path).get("precision") if path else None
    except BertprepError:
        return None
    return found if isinstance(found, str) else None


def find_checkpoints(folder: Path) -> list[Path]:
    """All checkpoints of a folder, by their steps."""
    return sorted(folder.glob(_PATTERN))

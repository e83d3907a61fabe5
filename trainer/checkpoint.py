"""Write and read checkpoints: everything that a run needs to resume, in one file.

    OUT/checkpoint-000001000.safetensors    after 1,000 steps
    OUT/checkpoint-best.safetensors         with --keep-best: the step with the best metric on the test split

The arrays are those of `Engine.state`. The header is JSON with the format, the step, the settings (`trainer.run.Run.settings`)
and the sha256 of the arrays, but without times and paths, so that equal runs write equal bytes. Files are written atomically.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np

from bertprep.errors import BertprepError, UsageError
from bertprep.rules import Rule
from bertprep.untrusted import (
    COUNT,
    FLAG,
    LIST,
    OBJECT,
    POSITIVE,
    SEED,
    SHA256_DIGITS,
    TEXT,
    check_values,
    optional,
    parse_json,
)
from bertprep.weights.google_names import Shapes, sizes
from bertprep.weights.hugging_face import Weights, is_index
from bertprep.weights.pytorch import is_pytorch
from bertprep.weights.safetensors import read_dtypes, read_metadata, read_safetensors, write_safetensors
from bertprep.weights.tensor_bundle import find_prefix
from bertprep.work.format import FORMAT, check_format
from trainer.model_config import ModelConfig
from trainer.tasks import task_of_checkpoint
from trainer.tasks.task import Task

_NAME = "checkpoint-{:09d}.safetensors"
_PATTERN = f"checkpoint-{'[0-9]' * 9}.safetensors"  # exact, so that a user's renamed copy is never resumed nor removed
BEST = "checkpoint-best.safetensors"
_METADATA = "bertprep"
_ALWAYS = {
    "step": COUNT, "skipped": COUNT, "evaluated": COUNT, "sha256": SHA256_DIGITS, "model": OBJECT, "schedule": OBJECT,
    "examples": OBJECT,
}  # fmt: skip
_NUMBER = Rule(kinds=(float,))
_HEADER = {
    **_ALWAYS, "lengthened": LIST, "test": OBJECT, "optimizer": OBJECT, "task": OBJECT, "files": OBJECT, "seq": POSITIVE,
    "pred": COUNT, "records": POSITIVE, "global_batch": POSITIVE, "shuffle_shards": COUNT, "seed": SEED,
    "data": optional(TEXT), "precision": optional(TEXT), "vocabulary_sha256": optional(TEXT), "cased": optional(FLAG),
}  # fmt: skip
_WITHIN: dict[str, dict[str, Rule]] = {  # the rules for values within the objects of a header
    "schedule": {"steps": POSITIVE, "warmup_steps": COUNT, "peak": _NUMBER, "power": _NUMBER, "crossover": FLAG},
    "test": {"sequences": COUNT, "metric": TEXT, "value": _NUMBER},
    "examples": {"on_the_fly": FLAG},
}
_NOT_IN_ALL = ("files", "task")
"""Settings that a header may lack: those that an earlier version did not write, and the task of pretraining with pairs."""
OPTIONS = {  # the option of each setting in a header, if their names differ
    "global_batch": "global batch (--batch-size, --accumulate, devices)", "precision": "--amp", "schedule.peak": "--lr",
    "schedule.power": "--schedule: power", "schedule.crossover": "--schedule: crossover",
    "optimizer.name": "--optimizer", "optimizer.beta_1": "--beta1", "optimizer.beta_2": "--beta2",
    "model.hidden_dropout_prob": "--no-dropout: hidden_dropout_prob",
    "model.attention_probs_dropout_prob": "--attention-dropout", "records": "--data: records", "data": "--data: sha256",
    "cased": "--data: cased", "vocabulary_sha256": "--vocab: sha256", "examples.on_the_fly": "--format tokens",
    "examples.packed": "--no-packed: packed", "examples.weights": "--data: weights",
}  # fmt: skip

_OF_EXAMPLES = {"data", "records", "seq", "pred"}
"""Settings in a header that follow from the settings of on-the-fly examples."""


@dataclass
class RunState:
    """The state of a run that its checkpoints store in addition to the arrays."""

    settings: dict[str, Any]  # from `Run.settings`
    step: int = 0  # finished steps
    skipped: int = 0  # updates that fp16 has skipped
    evaluated: int = 0  # the step of the last evaluation


@dataclass(frozen=True)
class Evaluated:
    """A metric, and the number of test sequences that it was measured on."""

    sequences: int
    metric: str
    value: float

    def is_better_than(self, other: Evaluated | None) -> bool:
        """Return whether this is better: a lower loss, or a higher value of any other metric. NaN is never better."""
        if other is None or (self.sequences, self.metric) != (other.sequences, other.metric):
            return math.isfinite(self.value)
        return self.value < other.value if self.metric == "loss" else self.value > other.value


class Checkpoint(NamedTuple):
    """The contents of a checkpoint file."""

    run: RunState
    state: Weights


def check_resumable(
    newest: Path, then: Mapping[str, Any], now: Mapping[str, Any], *, lengthen: bool, options: Mapping[str, str] = OPTIONS
) -> dict[str, Any]:
    """Return the settings of a run that resumes from a checkpoint; raises `UsageError` if the checkpoint has other settings.

    With `lengthen` more steps are accepted, and recorded in `lengthened` as [step, earlier schedule]. Errors name the settings
    by `options`.
    """
    trained, task = task_of_checkpoint(then), task_of_checkpoint(now)
    take = "name another --out"
    if not trained.is_scored:  # a fine-tuned model is made again from the weights that the command names already
        take += f" and start from the weights with --init {newest.parent}"
    if trained != task:
        raise UsageError(f"{newest}: was trained for {trained.describe()}, but the data are for {task.describe()}; {take}")
    if missing := list(_missing(then, now)):
        raise corrupt(newest, f"its header lacks {missing[0]}")
    differences = list(_differences(then, now))
    if any(name.startswith("examples.") for name, _, _ in differences):  # other settings follow from these
        differences = [each for each in differences if each[0] not in _OF_EXAMPLES]
    lengthened = list(then.get("lengthened", []))
    changes_length_alone = {name for name, _, _ in differences} <= {"schedule.steps", "schedule.warmup_steps"}
    is_longer = changes_length_alone and now["schedule"]["steps"] > then["schedule"]["steps"]
    if is_longer and lengthen:
        lengthened.append([then["step"], then["schedule"]])
    elif differences:
        differing = ", ".join(f"{_option_of(name, options)} {before} -> {after}" for name, before, after in differences)
        advice = "add --lengthen for the learning rates of the longer run, or resume" if is_longer else "resume"
        same = "options and data" if any(name.startswith("files.") for name, _, _ in differences) else "options"
        raise UsageError(f"{newest}: was made with other options: {differing}; {advice} with the same {same}, or {take}")
    return {**now, "lengthened": lengthened} if lengthened else dict(now)


def _option_of(setting: str, options: Mapping[str, str]) -> str:
    kind, _, name = setting.partition(".")
    if kind == "model":
        return options.get(setting, f"--model: {name}")
    if kind == "files":
        return f"--data: {name} files"
    return options.get(setting) or f"--{setting.rpartition('.')[2].replace('_', '-')}"


def _differences(then: Mapping[str, Any], now: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield each setting that differs, such as ("schedule.peak", 1e-4, 2e-4). None means unknown, and never differs."""
    for key, value in now.items():
        before = then.get(key)
        if isinstance(value, Mapping):
            yield from _differences(before or {}, value, f"{key}.")
        elif before is not None and value is not None and before != _as_json(value):
            yield prefix + key, before, value


def _missing(then: Mapping[str, Any], now: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield each setting that every run saves, but that a header lacks. Settings of examples depend on their kind."""
    for key, value in now.items():
        if key not in then:
            if key not in _NOT_IN_ALL:
                yield prefix + key
        elif isinstance(value, Mapping) and key not in (*_NOT_IN_ALL, "examples"):
            yield from _missing(then[key], value, f"{prefix}{key}.")


def _as_json(value: Any) -> Any:
    """Return a value as it is read back from JSON, where tuples are lists."""
    return json.loads(json.dumps(value))


def fingerprint(settings: Mapping[str, Any]) -> int:
    """Return a 31-bit hash of settings, by which ranks check that they agree."""
    return crc32(json.dumps(settings, sort_keys=True).encode()) >> 1


def save(folder: Path, run: RunState, state: Weights, *, keep: int) -> Path:
    """Write the checkpoint of a step, then remove all but the newest `keep`."""
    path = _write(folder / _NAME.format(run.step), run, state, {})
    for old in find_checkpoints(folder)[:-keep]:
        old.unlink(missing_ok=True)
    return path


def save_best(folder: Path, run: RunState, state: Weights, test: Evaluated) -> Path:
    """Write the checkpoint of a step as the best one."""
    return _write(folder / BEST, run, state, {"test": asdict(test)})


def read_best(folder: Path, run: RunState) -> Evaluated | None:
    """Return the evaluation of the best checkpoint; None if there is none, or if the run will repeat its step."""
    if not (folder / BEST).is_file():
        return None
    header = read_header(folder / BEST)
    return Evaluated(**header["test"]) if "test" in header and header["step"] <= run.step else None


def _write(path: Path, run: RunState, state: Weights, more: Mapping[str, Any]) -> Path:
    counts = {"step": run.step, "skipped": run.skipped, "evaluated": run.evaluated, "sha256": _sha256(state)}
    header = json.dumps({"format": FORMAT, **run.settings, **counts, **more}, sort_keys=True)
    write_safetensors(path, state, {_METADATA: header})
    return path


def read_header(path: Path) -> dict[str, Any]:
    """Return the header of a checkpoint; raises `BertprepError` for any other file, and for a format of another version."""
    try:
        text = read_metadata(path).get(_METADATA)
    except BertprepError as error:
        raise corrupt(path, error) from error
    if text is None:
        raise BertprepError(f"{path}: is not a checkpoint of this trainer; give it as --init to start from its weights")
    try:
        header = check_values(parse_json(text.encode()), {})
        check_format(path, header, "name another file, or another --out")
        check_values(header, _HEADER, needed=tuple(_ALWAYS))
        for name in _WITHIN.keys() & header.keys():
            needed = tuple(_WITHIN[name]) if name == "test" else ()
            check_values(header[name], _WITHIN[name], prefix=f"{name}.", needed=needed)
    except ValueError as error:
        raise corrupt(path, f"its header is not as expected: {error}") from error
    if path.match(_PATTERN) and path.name != _NAME.format(header["step"]):
        raise corrupt(path, f"its header is of step {header['step']:,}")
    steps = header["schedule"].get("steps", header["step"])
    if max(header["step"], header["skipped"], header["evaluated"]) > steps:
        raise corrupt(path, f"its header has more steps than the {steps:,} of its run")
    try:
        task_of_checkpoint(header)
    except BertprepError as error:
        raise BertprepError(f"{path}: {error}") from error
    return header


def model_of(path: Path) -> ModelConfig:
    """Return the sizes of the model of a checkpoint."""
    try:
        return ModelConfig.from_settings(read_header(path)["model"])
    except UsageError as error:
        raise corrupt(path, f"its header is not as expected: model: {error}") from error


def read(path: Path) -> Checkpoint:
    """Read a checkpoint; raises `BertprepError` if the file is corrupt or not a checkpoint."""
    header = read_header(path)
    try:
        state = read_safetensors(path)
    except BertprepError as error:
        raise corrupt(path, error) from error
    if others := [name for name, dtype in read_dtypes(path).items() if dtype != "F32"]:
        raise corrupt(path, f"{others[0]!a:.99} is not of the type F32")
    if _sha256(state) != header["sha256"]:
        raise corrupt(path, "its arrays do not have the sha256 of its header")
    counts = {name: header[name] for name in ("step", "skipped", "evaluated")}
    settings = {name: value for name, value in header.items() if name not in (*counts, "format", "sha256", "test")}
    return Checkpoint(RunState(settings, **counts), state)


def _sha256(state: Weights) -> str:
    digest = sha256()
    for name in sorted(state):
        digest.update(np.ascontiguousarray(state[name], "<f4").data)
    return digest.hexdigest()


def check_state(path: Path, state: Weights, shapes: Shapes) -> None:
    """Raise `BertprepError` unless a checkpoint has exactly the arrays of a run, with their shapes and usable values."""
    differing = sorted(state.keys() ^ shapes.keys())
    if differing:
        verb = "lacks" if differing[0] in shapes else "has"
        raise corrupt(path, f"it {verb} {differing[0]!a:.99}{f' and {len(differing) - 1} others' if differing[1:] else ''}")
    for name, shape in shapes.items():
        if state[name].shape != shape:
            raise corrupt(path, f"{name} has the shape {sizes(state[name].shape)}, expected {sizes(shape)}")
        if not np.isfinite(state[name]).all():
            raise corrupt(path, f"{name} has NaN or infinite values")
    if "loss_scale" in state and state["loss_scale"] <= 0:
        raise corrupt(path, f"its loss scale is {state['loss_scale']:g}, expected a number above 0")


def corrupt(path: Path, why: object) -> BertprepError:
    """Return the error for a corrupt checkpoint."""
    before = [each.name for each in find_checkpoints(path.parent) if each.name < path.name]
    advice = f"remove it to resume from {before[-1]}" if before else "remove it to start again"
    return BertprepError(f"{path}: is corrupt ({str(why).removeprefix(f'{path}: ')}); {advice}")


def is_checkpoint(file: Path) -> bool:
    return not (find_prefix(file) or is_index(file) or is_pytorch(file)) and _METADATA in read_metadata(file)


def task_of(file: Path) -> Task:
    return task_of_checkpoint(read_header(file))


def newest(folder: Path) -> Path | None:
    """Return the checkpoint with the highest step in a folder, if there is one."""
    return next(iter(reversed(find_checkpoints(folder))), None)


def find_checkpoints(folder: Path) -> list[Path]:
    """Return all checkpoints of a folder, sorted by step."""
    return sorted(folder.glob(_PATTERN))

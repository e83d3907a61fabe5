"""Checkpoints: all that a run needs to go on as if it had never been stopped, in one file.

    OUT/checkpoint-000001000.safetensors    after 1,000 steps of the run, all phases counted

The arrays are those of `Engine.state`; the header has, as JSON, the step, what the run was made with, and the sha256 of the
arrays. There is no time, no place and no random state in it: the position in the data is the step, and so is dropout's, so two
runs that do the same write the same bytes. A file appears under its name only when it is whole; the newest few are kept.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bertprep.atomic import remove_leftovers
from bertprep.errors import BertprepError
from trainer.safetensors import read_metadata, read_safetensors, write_safetensors
from trainer.weights import Weights

_NAME = "checkpoint-{:09d}.safetensors"
_PATTERN = f"checkpoint-{'[0-9]' * 9}.safetensors"  # no other name: a copy that a user makes is neither newest nor removed
_METADATA = "bertprep"


@dataclass(frozen=True)
class Checkpoint:
    """What a file holds; `made_with` is what the loop says of a run, by name."""

    path: Path
    step: int
    skipped: int  # updates of the run so far
    state: Weights
    made_with: dict[str, Any]


def save(folder: Path, step: int, skipped: int, state: Weights, made_with: Mapping[str, Any], *, keep: int) -> Path:
    """Write the checkpoint of a step, then remove all but the newest `keep`."""
    path = folder / _NAME.format(step)
    settings = json.dumps({"step": step, "skipped": skipped, "sha256": _sha256(state), **made_with}, sort_keys=True)
    write_safetensors(path, state, {_METADATA: settings})
    for old in find_checkpoints(folder)[:-keep]:
        old.unlink(missing_ok=True)
    return path


def read(path: Path) -> Checkpoint:
    """The contents of a checkpoint; raises `BertprepError` for what is none, or is no more what was written."""
    try:
        text = read_metadata(path).get(_METADATA)
        state = read_safetensors(path)
    except BertprepError as error:
        raise _damaged(path, error) from error
    if text is None:
        raise BertprepError(f"{path}: is no checkpoint of this trainer; to begin with its weights give it as --init")
    try:
        made_with = dict(json.loads(text))
        step, skipped, sha256 = int(made_with.pop("step")), int(made_with.pop("skipped")), made_with.pop("sha256")
    except (KeyError, TypeError, ValueError) as error:
        raise _damaged(path, f"its header does not say what it was made with: {error!r}") from error
    if _sha256(state) != sha256:
        raise _damaged(path, "its arrays are not those that were written, by their sha256")
    return Checkpoint(path, step, skipped, state, made_with)


def _sha256(state: Weights) -> str:
    digest = hashlib.sha256()
    for name in sorted(state):
        digest.update(np.ascontiguousarray(state[name], "<f4").data)
    return digest.hexdigest()


def _damaged(path: Path, why: object) -> BertprepError:
    before = [each.name for each in find_checkpoints(path.parent) if each.name < path.name]
    advice = f"remove it, to go on from {before[-1]}" if before else "remove it, to begin anew"
    return BertprepError(f"{path}: is damaged ({str(why).removeprefix(f'{path}: ')}); {advice}")


def is_checkpoint(file: Path) -> bool:
    """Whether a safetensors file is of a run of this trainer."""
    return _METADATA in read_metadata(file)


def newest(folder: Path) -> Path | None:
    """The checkpoint of the highest step in a folder, if there is one."""
    found = find_checkpoints(folder)
    return found[-1] if found else None


def find_checkpoints(folder: Path) -> list[Path]:
    """All checkpoints of a folder, by their steps."""
    return sorted(folder.glob(_PATTERN))


def clear_leftovers(folder: Path) -> None:
    """Take away what a killed run left half-written."""
    if folder.is_dir():
        remove_leftovers(folder)

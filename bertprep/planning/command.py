"""What `bertprep plan` shows: one plan or those of the two published phases, or a training run on records that are there."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bertprep.commands.plan import Plan, check_run, plan, with_training
from bertprep.config import InstanceSettings
from bertprep.errors import UsageError
from bertprep.files.atomic import atomic_file
from bertprep.planning.table import Row, plan_rows, room_lines, training_lines, training_rows
from bertprep.planning.training import (
    PHASES,
    PUBLISHED_GLOBAL_BATCHES,
    PUBLISHED_STEPS,
    TrainingUse,
    published_phases,
    read_training_records,
)


@dataclass(frozen=True)
class Shown:
    """Tables and lines to be printed, and the same as values."""

    tables: list[list[Row]]
    lines: list[str]
    content: dict[str, Any]

    def write_json(self, path: Path) -> None:
        """Write the values to a file."""
        with atomic_file(path) as file:
            file.write((json.dumps(self.content, indent=1) + "\n").encode())


def make_plans(
    steps: int | None, global_batches: Sequence[int] | None, *, phases: bool, settings: InstanceSettings, **arguments: Any
) -> Shown:
    """The plan of `create` with these arguments, or with `phases` one for each of the published sequence lengths."""
    runs = _runs(steps, global_batches, phases=phases)
    wanted = [replace(settings, seq=seq, pred=pred) for seq, pred in PHASES] if phases else [settings]
    plans = [plan(settings=one, **arguments) for one in wanted]
    if runs:
        plans = [with_training(one, *run) for one, run in zip(plans, runs, strict=True)]
    uses = [one.training for one in plans if one.training]
    tables = [plan_rows(plans)] + ([training_rows(uses)] if uses else [])
    return Shown(
        tables, [*training_lines(uses), *_notes(plans), *room_lines(plans)], {"plans": [one.as_json() for one in plans]}
    )


def plan_existing(folders: Sequence[Path], steps: int | None, global_batches: Sequence[int] | None, *, phases: bool) -> Shown:
    """What a run makes of the records in these folders, one folder for each phase."""
    runs = _runs(steps, global_batches, phases=phases)
    if not runs:
        raise UsageError("--records: needs a training run, --steps N --global-batch B, or --phases")
    if len(folders) != len(runs):
        expected = "two folders with --phases, of phase 1 and of phase 2" if phases else "one folder"
        raise UsageError(f"--records: expected {expected}, found {len(folders)}")
    uses = [TrainingUse(read_training_records(folder), *run) for folder, run in zip(folders, runs, strict=True)]
    return Shown([training_rows(uses)], training_lines(uses), {"training": [use.as_json() for use in uses]})


def _runs(steps: int | None, global_batches: Sequence[int] | None, *, phases: bool) -> list[tuple[int, int]]:
    """(steps, global batch) of each training run that is asked for."""
    if phases:
        if len(batches := global_batches or PUBLISHED_GLOBAL_BATCHES) > len(PHASES):
            raise UsageError(f"--global-batch: expected one number, or two with --phases, found {len(batches)}")
        runs = published_phases(steps or PUBLISHED_STEPS, batches)
        if min(steps for steps, _ in runs) < 1:
            raise UsageError(f"--steps {steps}: leaves a phase without a step; give at least 10, for two phases")
        return runs
    check_run(steps, global_batches[0] if global_batches else None)
    if global_batches and len(global_batches) > 1:
        raise UsageError(f"--global-batch: expected one number without --phases, found {len(global_batches)}")
    return [(steps, global_batches[0])] if steps and global_batches else []


def _notes(plans: Sequence[Plan]) -> list[str]:
    if all(one.measured_bytes >= one.text_bytes for one in plans):
        return []
    return ["records and sizes are scaled from the measured text; expect them to be right within some percent"]

"""A plan as the few lines that a person reads before deciding."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from bertprep.commands.plan import Plan
from bertprep.planning.training import TrainingUse

Row = tuple[str, ...]


def plan_rows(plans: Sequence[Plan]) -> list[Row]:
    """A column for each plan: what is made, and what it takes."""
    rows: list[Row] = [
        ("seq/pred", *(f"{plan.settings.seq}/{plan.settings.pred}" for plan in plans)),
        ("text, MB", *(_megabytes(plan.text_bytes) for plan in plans)),
        ("measured, MB", *(_megabytes(plan.measured_bytes) for plan in plans)),
        ("training records", *(f"{plan.training_records:,}" for plan in plans)),
        ("test records", *(f"{plan.test_records:,}" for plan in plans)),
        ("padding, %", *(f"{plan.padding_share:.1%}".rstrip("%") for plan in plans)),
    ]
    rows += [(f"{name}, MB", *(_megabytes(plan.size_bytes[name]) for plan in plans)) for name in plans[0].size_bytes]
    return [
        *rows,
        ("CPU time, h:mm:ss", *(duration(plan.cpu_seconds) for plan in plans)),
        (f"wall time, --workers {plans[0].workers}", *(duration(plan.wall_seconds) for plan in plans)),
        ("memory a worker, MB", *(_megabytes(plan.worker_peak_bytes) for plan in plans)),
    ]


def room_lines(plans: Sequence[Plan]) -> list[str]:
    """Whether the disk will do, a line for each file system, for all plans together."""
    needed: dict[str, int] = {}
    free: dict[str, int] = {}
    for plan in plans:
        for room in plan.rooms:
            folder = str(room.folder)
            needed[folder] = needed.get(folder, 0) + room.needed_bytes
            free[folder] = room.free_bytes
    return [
        f"disk of {folder}: {_megabytes(needed[folder])} MB are still to come, {_megabytes(free[folder])} MB are free: "
        + ("enough" if needed[folder] <= free[folder] else "NOT ENOUGH; make room, or take another --workdir or --output")
        for folder in needed
    ]


def training_rows(uses: Sequence[TrainingUse]) -> list[Row]:
    """A row for each training run: what it makes of its records."""
    head = (
        "seq/pred", "steps", "global batch", "sequences", "passes over records", "over text", "tokens, G", "padding, %",
    )  # fmt: skip
    return [
        head,
        *(
            (
                f"{use.data.seq}/{use.data.pred}",
                f"{use.steps:,}",
                f"{use.global_batch:,}",
                f"{use.sequences:,}",
                f"{use.epochs_over_records:,.2f}",
                "unknown" if use.epochs_over_text is None else f"{use.epochs_over_text:,.2f}",
                f"{use.tokens / 1e9:,.2f}",
                f"{use.data.padding_share * 100:.1f}",
            )
            for use in uses
        ),
    ]


def training_lines(uses: Sequence[TrainingUse]) -> list[str]:
    """What the passes mean: how often each mask is met again."""
    return [
        f"{use.data.seq}/{use.data.pred}: each of {use.data.records:,} records, with its mask, is seen "
        f"{use.epochs_over_records:,.2f} times"
        + (f", each text {use.epochs_over_text:,.2f} times in {use.data.dupe} cuts and masks" if use.epochs_over_text else "")
        for use in uses
    ]


def duration(seconds: float) -> str:
    """Hours, minutes and seconds; below a minute with tenths.

    >>> duration(3725), duration(2.34)
    ('1:02:05', '0:00:02.3')
    """
    return f"0:00:{seconds:04.1f}" if seconds < 59.95 else str(timedelta(seconds=round(seconds)))


def _megabytes(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:,.1f}" if size_bytes < 1e9 else f"{size_bytes / 1e6:,.0f}"

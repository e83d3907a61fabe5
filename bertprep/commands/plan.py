"""`bertprep plan`: forecasts the output of `create` for a corpus and these settings, and its cost on this machine.

A few pieces of the text are made into records exactly as `create` does, and scaled by bytes of text; a small corpus is measured
whole. Missing shards and a missing vocabulary are made first and kept, as with `create`; nothing else is left behind.
"""

from __future__ import annotations

import argparse
import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertprep.commands import DEFAULT_VOCABULARY_SIZE, add_record_options, record_arguments
from bertprep.config import DEFAULT_DIALECT, DEFAULT_FORMATS, Dialect, InstanceSettings, RecordFormat
from bertprep.errors import UsageError
from bertprep.files.atomic import atomic_file, temporary_folder
from bertprep.files.free_space import FreeSpace, free_space
from bertprep.files.places import place, sizes_of
from bertprep.options import how_many, path_or_url
from bertprep.progress import SILENT, Reporter
from bertprep.terminal import duration, megabytes, tell, tell_table
from bertprep.workspace.layout import TEST, TRAINING
from bertprep.workspace.targets import check_target

if TYPE_CHECKING:
    from bertprep.planning.measure import MadePiece
    from bertprep.planning.training import TrainingRecords, TrainingUse
    from bertprep.records.make import TextShard

PHASES = ((128, 20), (512, 80))
PUBLISHED_STEPS = 7_820
PUBLISHED_GLOBAL_BATCHES = (65_536, 32_768)
MEASURED_BYTES = 64_000_000
"""Text measured by default: a second or two of work at the default settings."""


def add_options(parser: argparse.ArgumentParser) -> None:
    add_record_options(parser)
    parser.add_argument(
        "--records", nargs="+", type=path_or_url, default=[], metavar="DIR",
        help="existing records to plan a training run on, without measuring (with --phases, one folder for each)",
    )  # fmt: skip
    parser.add_argument("--steps", type=how_many, metavar="INT", help="steps of the training run")
    parser.add_argument(
        "--global-batch", nargs="+", type=how_many, metavar="INT", help="sequences per step; with --phases, one for each"
    )
    parser.add_argument(
        "--phases", action="store_true",
        help="plan both published phases, 128/20 and 512/80 (default: 7,820 steps, 65,536 and 32,768 sequences)",
    )  # fmt: skip
    parser.add_argument("--json", type=path_or_url, metavar="FILE", help="write the plan to FILE too")


def run(options: argparse.Namespace) -> None:
    """Print the plan for `create`, or with --records only that of a training run on them."""
    check_target("--json", options.json, ".json")
    runs = _training_runs(options.steps, options.global_batch, phases=options.phases)
    if options.records:
        uses = _uses_of(options.records, runs, phases=options.phases)
        content: dict[str, Any] = {"training": [use.as_json() for use in uses]}
        plans = []
    else:
        arguments = record_arguments(options)
        settings = arguments.pop("settings")
        wanted = [replace(settings, seq=seq, pred=pred) for seq, pred in PHASES] if options.phases else [settings]
        plans = [plan(settings=one, **arguments, progress=True) for one in wanted]
        plans = [_with_training(one, *run) for one, run in zip(plans, runs, strict=True)] if runs else plans
        uses = [one.training for one in plans if one.training]
        content = {"plans": [one.as_json() for one in plans]}
        tell_table(_plan_rows(plans))
    if uses:
        tell_table(_training_rows(uses))
        tell(*map(_training_line, uses))
    if any(one.measured_bytes < one.text_bytes for one in plans):
        tell("records and sizes are scaled from the measured text; expect them to be right within a few percent")
    tell(*space_lines(plans))
    if options.json:
        with atomic_file(options.json, replace=True) as file:
            file.write((json.dumps(content, indent=1) + "\n").encode())


@dataclass(frozen=True)
class Plan:
    """The forecast output and cost of `create` for a text; measured on `measured_bytes` of `text_bytes`.

    `size_bytes` is by format; `cpu_seconds` is user and system time of all processes together. `rooms` has, for each file
    system, the space that these records still need, without existing ones, and the free space.
    """

    settings: InstanceSettings
    dialect: Dialect
    shards: int
    text_bytes: int
    measured_bytes: int
    training_records: int
    test_records: int
    padding_share: float
    size_bytes: dict[str, int]
    workers: int
    cpu_seconds: float
    wall_seconds: float
    worker_peak_bytes: int
    rooms: tuple[FreeSpace, ...]
    training: TrainingUse | None = None

    @property
    def records(self) -> int:
        return self.training_records + self.test_records

    @property
    def fits(self) -> bool:
        """Whether the free space suffices."""
        return all(room.enough for room in self.rooms)

    @property
    def training_data(self) -> TrainingRecords:
        """The records that a training run will read."""
        from bertprep.planning.training import TrainingRecords

        asked = self.settings
        return TrainingRecords(self.training_records, asked.seq, asked.pred, asked.dupe, self.padding_share)

    def as_json(self) -> dict[str, Any]:
        return {
            **asdict(self),
            "rooms": [{**asdict(room), "folder": str(room.folder)} for room in self.rooms],
            "training": self.training and self.training.as_json(),
        }


def plan(
    *,
    settings: InstanceSettings | None = None,
    dialect: Dialect = DEFAULT_DIALECT,
    formats: str | tuple[str, ...] = DEFAULT_FORMATS,
    vocab: Path | str | None = None,
    vocab_size: int = DEFAULT_VOCABULARY_SIZE,
    inputs: Sequence[Path | str] = (),
    output: Path | str | None = None,
    workdir: Path | str = "data",
    corpus: str | None = None,
    workers: int | None = None,
    steps: int | None = None,
    global_batch: int | None = None,
    measured_bytes: int = MEASURED_BYTES,
    progress: bool = False,
) -> Plan:
    """Forecast the output and cost of `create` with these arguments on this machine, starting from nothing.

    With `steps` and `global_batch`, in sequences, also the passes of such a training run over the training records. At most
    about `measured_bytes` of text are measured. `output` may be omitted with `inputs`; then the current folder's disk is
    assumed.

        bertprep.plan(settings=bertprep.InstanceSettings(seq=512, pred=80), steps=1564, global_batch=32768)
    """
    from bertprep.commands.record_job import find_given_tokens, resolve
    from bertprep.planning.measure import Forecast, forecast, measure
    from bertprep.planning.pieces import choose_pieces, first_documents, size_of
    from bertprep.records.make import RecordMaker

    reporter = Reporter(enabled=progress)
    _check_run(steps, global_batch)
    if output is not None and not inputs:
        raise UsageError("--output goes with --input; the records of a corpus go to the workspace (--workdir)")
    if tokens := find_given_tokens(inputs, SILENT):
        raise UsageError(f"--input {tokens.folder}: holds token shards, and a plan is measured on text; name the text files")
    job = resolve(
        settings=settings or InstanceSettings(), dialect=dialect, formats=formats, vocab=vocab, vocab_size=vocab_size,
        inputs=inputs, output=output, workdir=workdir, corpus=corpus, workers=workers, reporter=reporter,
    )  # fmt: skip
    sizes = [size_of(shard) for shard in job.shards]
    workers = min(job.workers, len(sizes))
    maker, names = RecordMaker(job.vocabulary, job.settings, job.dialect), [RecordFormat(name) for name in job.homes]
    with _temporary_folder(place(output or ".") if inputs else place(workdir)) as folder:
        pieces = choose_pieces(job.shards, sizes, folder, workers=workers, dupe=job.settings.dupe, budget_bytes=measured_bytes)
        text_bytes = sum(piece.size_bytes for piece in pieces)
        reporter.say(f"plan: measuring {text_bytes / 1e6:,.1f} of {sum(sizes) / 1e6:,.1f} MB of text")
        measured = measure(pieces, maker, names, folder, workers)
        if text_bytes == sum(sizes):
            taken = Forecast(measured.cpu_seconds, measured.wall_seconds, measured.peak_bytes)
        else:
            firsts = [first_documents(piece, folder, number) for number, piece in enumerate(pieces[:workers])]
            taken = forecast(sizes, measure(firsts, maker, names, folder, workers), measured, workers)
    counts, size_bytes = _scale(job.shards, sizes, measured.made)
    still_to_come = {}
    for name, home in job.homes.items():
        there = sizes_of(home.records, (shard.names[name] for shard in job.shards))
        still_to_come[home.records] = max(0, size_bytes[name] - sum(there.values()))
    planned = Plan(
        settings=job.settings,
        dialect=dialect,
        shards=len(sizes),
        text_bytes=sum(sizes),
        measured_bytes=text_bytes,
        training_records=counts[TRAINING],
        test_records=counts[TEST],
        padding_share=_padding_fraction(measured.made, job.settings.seq),
        size_bytes=size_bytes,
        workers=workers,
        cpu_seconds=taken.cpu_seconds,
        wall_seconds=taken.wall_seconds,
        worker_peak_bytes=taken.peak_bytes,
        rooms=tuple(free_space(still_to_come)),
    )
    return planned if steps is None or global_batch is None else _with_training(planned, steps, global_batch)


@contextlib.contextmanager
def _temporary_folder(root: Path) -> Iterator[Path]:
    """A temporary folder on the disk of the records; removed afterwards, or by the next plan after a kill."""
    existing = next(path for path in (root.absolute(), *root.absolute().parents) if path.is_dir())
    with temporary_folder(existing / "bertprep-plan") as folder:
        yield folder


def _scale(
    shards: Sequence[TextShard], sizes: Sequence[int], made: Sequence[MadePiece]
) -> tuple[dict[str, int], dict[str, int]]:
    """(records by split, bytes by format) of all shards: as measured if whole, else scaled by bytes."""
    whole = {one.piece.shard.path: one for one in made if one.piece.is_whole}
    measured_bytes = sum(one.piece.size_bytes for one in made)
    records_per_byte = sum(one.records for one in made) / measured_bytes
    bytes_per_byte = {name: sum(one.file_bytes[name] for one in made) / measured_bytes for name in made[0].file_bytes}
    counts = {TRAINING: 0.0, TEST: 0.0}
    size_bytes = dict.fromkeys(bytes_per_byte, 0.0)
    for shard, size in zip(shards, sizes, strict=True):
        split = TEST if next(iter(shard.names.values())).startswith(f"{TEST}/") else TRAINING
        known = whole.get(shard.path)
        counts[split] += known.records if known else size * records_per_byte
        for name, ratio in bytes_per_byte.items():
            size_bytes[name] += known.file_bytes[name] if known else size * ratio
    return {name: round(count) for name, count in counts.items()}, {name: round(size) for name, size in size_bytes.items()}


def _padding_fraction(made: Sequence[MadePiece], seq: int) -> float:
    """The fraction of all positions that are padding: that of each piece's sampled records, weighted by its records."""
    tokens = sum(one.records * one.tokens_looked_at / one.records_looked_at for one in made)
    return 1 - tokens / (seq * sum(one.records for one in made))


def _with_training(planned: Plan, steps: int, global_batch: int) -> Plan:
    """The plan as JSON values, with that of a training run on its records."""
    from bertprep.planning.training import TrainingUse

    return replace(planned, training=TrainingUse(planned.training_data, steps, global_batch))


def _check_run(steps: int | None, global_batch: int | None) -> None:
    """Raise `UsageError` if only one of --steps and --global-batch is given."""
    if (steps is None) != (global_batch is None):
        raise UsageError("--steps and --global-batch go together: both describe the training run")


def _training_runs(steps: int | None, global_batches: Sequence[int] | None, *, phases: bool) -> list[tuple[int, int]]:
    """(steps, global batch) of each requested training run."""
    if phases:
        if len(batches := global_batches or PUBLISHED_GLOBAL_BATCHES) > len(PHASES):
            raise UsageError(f"--global-batch: expected one number, or two with --phases, found {len(batches)}")
        runs = published_phases(steps or PUBLISHED_STEPS, batches)
        if min(steps for steps, _ in runs) < 1:
            raise UsageError(f"--steps {steps}: leaves a phase without a step; give at least 10, for two phases")
        return runs
    _check_run(steps, global_batches[0] if global_batches else None)
    if global_batches and len(global_batches) > 1:
        raise UsageError(f"--global-batch: expected one number without --phases, found {len(global_batches)}")
    return [(steps, global_batches[0])] if steps and global_batches else []


def published_phases(steps: int, global_batches: Sequence[int]) -> list[tuple[int, int]]:
    """(steps, global batch) of the two phases: nine tenths of the steps, then a tenth with the second batch.

    As in NVIDIA's LAMB script, `steps` counts steps of the first batch; a smaller second batch turns its tenth into more steps.

    >>> published_phases(7820, (65536, 32768))
    [(7038, 65536), (1564, 32768)]
    """
    first, second = global_batches[0], global_batches[-1]
    return [(steps * 9 // 10, first), (steps // 10 * first // second, second)]


def _uses_of(folders: Sequence[Path], runs: Sequence[tuple[int, int]], *, phases: bool) -> list[TrainingUse]:
    """The use that each run makes of the records in its folder."""
    from bertprep.planning.training import TrainingUse, read_training_records

    if not runs:
        raise UsageError("--records: needs a training run, --steps N --global-batch B, or --phases")
    if len(folders) != len(runs):
        expected = "two folders with --phases, of phase 1 and of phase 2" if phases else "one folder"
        raise UsageError(f"--records: expected {expected}, found {len(folders)}")
    return [TrainingUse(read_training_records(folder), *run) for folder, run in zip(folders, runs, strict=True)]


def _plan_rows(plans: Sequence[Plan]) -> list[tuple[str, ...]]:
    """The table of the plans, a column each: output and cost."""
    return [
        ("seq/pred", *(f"{plan.settings.seq}/{plan.settings.pred}" for plan in plans)),
        ("text, MB", *(megabytes(plan.text_bytes) for plan in plans)),
        ("measured, MB", *(megabytes(plan.measured_bytes) for plan in plans)),
        ("training records", *(f"{plan.training_records:,}" for plan in plans)),
        ("test records", *(f"{plan.test_records:,}" for plan in plans)),
        ("padding, %", *(f"{plan.padding_share * 100:.1f}" for plan in plans)),
        *((f"{name}, MB", *(megabytes(plan.size_bytes[name]) for plan in plans)) for name in plans[0].size_bytes),
        ("CPU time, h:mm:ss", *(duration(plan.cpu_seconds) for plan in plans)),
        (f"wall time, --workers {plans[0].workers}", *(duration(plan.wall_seconds) for plan in plans)),
        ("memory per worker, MB", *(megabytes(plan.worker_peak_bytes) for plan in plans)),
    ]


def space_lines(plans: Sequence[Plan]) -> list[str]:
    """One line per file system: whether the free space suffices for all plans together."""
    needed: dict[str, int] = {}
    free: dict[str, int] = {}
    for room in (room for plan in plans for room in plan.rooms):
        folder = str(room.folder)
        needed[folder] = needed.get(folder, 0) + room.needed_bytes
        free[folder] = room.free_bytes
    return [
        f"disk of {folder}: {megabytes(needed[folder])} MB are still to be written, {megabytes(free[folder])} MB are free: "
        + ("enough" if needed[folder] <= free[folder] else "NOT ENOUGH; free some, or choose another --workdir or --output")
        for folder in needed
    ]


def _training_rows(uses: Sequence[TrainingUse]) -> list[tuple[str, ...]]:
    """The table of the training runs, a row each: steps, passes, tokens."""
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


def _training_line(use: TrainingUse) -> str:
    """Explains the passes: how often each mask is seen."""
    line = (
        f"{use.data.seq}/{use.data.pred}: each of {use.data.records:,} records, with its mask, is seen "
        f"{use.epochs_over_records:,.2f} times"
    )
    over_text = use.epochs_over_text
    return line if over_text is None else f"{line}, each text {over_text:,.2f} times in {use.data.dupe} cuts and masks"

"""Before the work: what `bertprep create` will make of a corpus with these settings, and what that costs on this machine.

A few pieces of the text are made into records, exactly as `create` does, and scaled by bytes of text; a small corpus is
measured whole. Shards and vocabulary are made first where they are missing, and kept, as `create` would; nothing else stays.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from bertprep import pool
from bertprep.config import DEFAULT_DIALECT, RECORD_FORMATS, Dialect, InstanceSettings, check_formats
from bertprep.errors import BertprepError, UsageError
from bertprep.files.atomic import explain_write_error
from bertprep.files.free_space import FreeSpace, free_space
from bertprep.instances import load_vocabulary
from bertprep.planning.estimate import estimate_peak_bytes, estimate_seconds, padding_share, scale
from bertprep.planning.measure import CommandCost, measure_create, measure_pieces
from bertprep.planning.pieces import MEASURED_BYTES, choose_pieces
from bertprep.planning.text import DEFAULT_VOCABULARY_SIZE, PlannedText, find_text
from bertprep.planning.training import TrainingRecords, TrainingUse
from bertprep.progress import Reporter
from bertprep.records.make import RecordMaker
from bertprep.workspace.layout import TEST, TRAINING

_FIRST_TEXT_BYTES = 20_000  # of which the cost of starting is taken: little, and yet some documents


@dataclass(frozen=True)
class Plan:
    """What `create` will make of a text, and what it will take; measured on `measured_bytes` of `text_bytes`.

    `size_bytes` is by format; `cpu_seconds` is user and system time of all processes together. `rooms` says of each file
    system what these records still need there, those that lie there already left out, and what is free.
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
        """Whether the disk will do."""
        return all(room.enough for room in self.rooms)

    @property
    def training_data(self) -> TrainingRecords:
        """The records that a training run will read."""
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
    formats: str | tuple[str, ...] = RECORD_FORMATS,
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
    """What `create` with these arguments will make and cost on this machine, all of it made anew.

    With `steps` and `global_batch`, in sequences, also what such a training run makes of the training records. Not more than
    about `measured_bytes` of text are measured. `output` may be left out with `inputs`: the current folder's disk is taken.

        bertprep.plan(settings=bertprep.InstanceSettings(seq=512, pred=80), steps=1564, global_batch=32768)
    """
    reporter = Reporter(enabled=progress)
    settings = settings or InstanceSettings()
    formats = check_formats(formats)
    dialect.check_fits(formats, "--format")
    workers = workers or pool.default_workers()
    check_run(steps, global_batch)
    text = find_text(
        settings, dialect, formats, vocab=vocab, vocab_size=vocab_size, inputs=inputs, output=output,
        workdir=Path(workdir), corpus=corpus, workers=workers, reporter=reporter,
    )  # fmt: skip
    maker = RecordMaker(load_vocabulary(text.vocabulary), settings, dialect)
    workers = min(workers, len(text.shards))
    with _temporary_folder(text) as folder:
        pieces = choose_pieces(
            text.shards, text.sizes, folder, workers=workers, dupe=settings.dupe, budget_bytes=measured_bytes
        )
        measured_bytes = sum(piece.size_bytes for piece in pieces)
        reporter.say(f"plan: measuring {measured_bytes / 1e6:,.1f} of {sum(text.sizes) / 1e6:,.1f} MB of text")
        costs = measure_pieces(pieces, maker, formats, folder, workers)
        start = _measure_start(pieces[0].path, text.vocabulary, settings, dialect, formats, folder)
        largest = max(pieces, key=lambda piece: piece.size_bytes)
        alone = measure_create(largest.path, text.vocabulary, settings, dialect, formats, folder / "largest")
    made = scale(text.shards, text.sizes, costs)
    cpu_seconds, wall_seconds = estimate_seconds(text.sizes, costs, start, workers)
    planned = Plan(
        settings=settings,
        dialect=dialect,
        shards=len(text.shards),
        text_bytes=sum(text.sizes),
        measured_bytes=measured_bytes,
        training_records=made.records[TRAINING],
        test_records=made.records[TEST],
        padding_share=padding_share(costs, settings.seq),
        size_bytes=made.size_bytes,
        workers=workers,
        cpu_seconds=cpu_seconds,
        wall_seconds=wall_seconds,
        worker_peak_bytes=estimate_peak_bytes(text.sizes, largest, alone, start),
        rooms=tuple(
            free_space({text.folders[name]: _still_to_come(text, name, size) for name, size in made.size_bytes.items()})
        ),
    )
    if steps is None or global_batch is None:
        return planned
    return with_training(planned, steps, global_batch)


def with_training(planned: Plan, steps: int, global_batch: int) -> Plan:
    """The plan, with what a training run makes of its records."""
    return replace(planned, training=TrainingUse(planned.training_data, steps, global_batch))


def check_run(steps: int | None, global_batch: int | None) -> None:
    """Raise `UsageError` where half of a training run is given."""
    if (steps is None) != (global_batch is None):
        raise UsageError("--steps and --global-batch go together: both describe the training run")


@contextlib.contextmanager
def _temporary_folder(text: PlannedText) -> Iterator[Path]:
    """A folder on the disk of the records, whose speed counts; gone afterwards."""
    root = text.root.absolute()
    existing = next(path for path in (root, *root.parents) if path.is_dir())
    try:
        temporary = tempfile.TemporaryDirectory(prefix="bertprep-plan-", dir=existing)
    except OSError as error:
        raise explain_write_error(existing / "bertprep-plan", error) from error
    with temporary as folder:
        yield Path(folder)


def _measure_start(
    text: Path, vocabulary: Path, settings: InstanceSettings, dialect: Dialect, formats: Sequence[str], folder: Path
) -> CommandCost:
    """What a `create` costs that makes next to nothing: the beginning of a text that was measured."""
    with text.open("rb") as file:
        beginning = file.read(_FIRST_TEXT_BYTES)
    first = folder / "first.txt"
    first.write_bytes(beginning[: beginning.rfind(b"\n") + 1])
    try:
        return measure_create(first, vocabulary, settings, dialect, formats, folder / "start")
    except BertprepError:  # a beginning without a word
        return measure_create(text, vocabulary, settings, dialect, formats, folder / "start_whole")


def _still_to_come(text: PlannedText, record_format: str, size_bytes: int) -> int:
    """The bytes of a format that are not there yet."""
    paths = (text.folders[record_format] / shard.names[record_format] for shard in text.shards)
    return max(0, size_bytes - sum(path.stat().st_size for path in paths if path.is_file()))

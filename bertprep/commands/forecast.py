"""`bertprep create --dry-run`: forecast the number of records, the disk space and the time of `create` from a sample.

Records are made from at most 64 MB of text, taken from shards at regular intervals, in a temporary folder on the target disk,
or on another disk if that one has no space. The results are scaled by bytes of text. Nothing is downloaded or left behind.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from bertprep import pool
from bertprep.commands.request import LOCAL, TextRequest
from bertprep.commands.shard import missing_shards, shard
from bertprep.commands.texts import (
    choose_case,
    choose_corpus,
    choose_vocabulary,
    find_given_tokens,
    finished_shards,
    given_texts,
    named_vocabulary,
    texts_of_corpus,
    warn_of_lone_documents_in,
)
from bertprep.config import InstanceSettings, RecordFormat, Variant, VocabularySettings
from bertprep.errors import BertprepError, UsageError, WriteError
from bertprep.files.atomic import atomic_file, temporary_folder
from bertprep.files.free_space import FreeSpace, free_space
from bertprep.files.outputs import begins_with, write_output
from bertprep.files.paths import as_path, disk_folder, is_object
from bertprep.instances import Vocabulary, load_vocabulary
from bertprep.progress import SILENT
from bertprep.sources.sample import SAMPLE
from bertprep.terminal import duration, megabytes, print_results, print_table
from bertprep.text.vocabulary import train
from bertprep.tokens.make import Texts, TextShard, record_job, without_last_document
from bertprep.work.layout import TEST, TRAINING, Workspace

IS_FORECAST = begins_with(b'{\n "text_bytes": ')
SAMPLE_BYTES = 64_000_000
_IN_MEMORY = Path("/dev/shm")
_MIN_PIECES = 8


@dataclass(frozen=True)
class Forecast:
    """The expected output and time of `create` for `text_bytes` of text, scaled from a sample of `sample_bytes`.

    `vocabulary` is the one that `create` would use; with `trains_vocabulary` it would train it first, and `wall_seconds`
    includes that. `size_bytes` is by format, `wall_seconds` is for `workers` processes, and `disks` has the needed and free
    space.
    """

    text_bytes: int
    sample_bytes: int
    vocabulary: Path
    trains_vocabulary: bool
    training_records: int
    test_records: int
    size_bytes: dict[str, int]
    workers: int
    wall_seconds: float
    disks: tuple[FreeSpace, ...]


def show_forecast(found: Forecast, to_json: Path | None) -> None:
    """Print a forecast, and write it to `to_json` if that is given."""
    print_table(
        [
            ("text, MB", megabytes(found.text_bytes)),
            ("sampled text, MB", megabytes(found.sample_bytes)),
            ("training records", f"{found.training_records:,}"),
            ("test records", f"{found.test_records:,}"),
            *((f"{name}, MB", megabytes(size)) for name, size in found.size_bytes.items()),
            (f"time with --workers {found.workers}, h:mm:ss", duration(found.wall_seconds)),
        ]
    )
    print_results(f"vocabulary: {found.vocabulary}{', which create trains first' if found.trains_vocabulary else ''}")
    for disk in found.disks:
        enough = "enough" if disk.enough else "NOT ENOUGH; free some space, or choose another --workdir or --output"
        print_results(
            f"disk of {disk.folder}: {megabytes(disk.needed_bytes)} MB needed, {megabytes(disk.free_bytes)} MB free: {enough}"
        )
    if to_json:
        content = json.dumps(asdict(found), indent=1, default=str) + "\n"
        write_output(to_json, content.encode(), IS_FORECAST, "--json")


def forecast_of(
    request: TextRequest, settings: InstanceSettings, variant: Variant, formats: Sequence[RecordFormat]
) -> Forecast:
    """Return the forecast of a request, as if nothing were made yet.

    The sample is made on the target disk, or where nothing can be written there, on another one or in memory.
    """
    if request.part is not None:
        raise UsageError(f"--part {request.part}: a forecast is for all parts together; leave it out")
    if request.executor != LOCAL:
        raise UsageError(f"--executor {request.executor}: a forecast is made on this machine; leave it out")
    named = named_vocabulary(request, cased=settings.cased)  # like `create`, refuse a wrong one before text is read
    disks = _find_disks(as_path(request.output or request.workspace.root))
    for disk in disks:
        try:
            with temporary_folder(disk / "bertprep-forecast") as folder:
                return _forecast_in(folder, request, settings, variant, formats, named)
        except WriteError:
            request.reporter.message(
                f"create: the disk of {disk} has no space for a sample of the text, or cannot be written to"
            )
    raise BertprepError(
        f"--dry-run: cannot write a sample of the text to any of {', '.join(map(str, disks))}; free some space, or set "
        "TMPDIR to another folder"
    )


def _find_disks(root: Path) -> list[Path]:
    """Return folders in which to try the sample, on different disks: the target, that of temporary files, and memory."""
    folders = [next(path for path in (root.absolute(), *root.absolute().parents) if path.is_dir())]
    with suppress(OSError):  # raised if no folder for temporary files can be written to
        folders.append(disk_folder())
    if _IN_MEMORY.is_dir():
        folders.append(_IN_MEMORY)
    by_device: dict[int, Path] = {}
    for folder in folders:
        by_device.setdefault(0 if is_object(folder) else folder.stat().st_dev, folder)
    return [*by_device.values()]


def _forecast_in(
    folder: Path,
    request: TextRequest,
    settings: InstanceSettings,
    variant: Variant,
    formats: Sequence[RecordFormat],
    named: Vocabulary | None,
) -> Forecast:
    """Return the forecast of a request from a sample, which is made in a folder; `named` is the vocabulary of --vocab."""
    from bertprep import kernels

    texts = _find_texts(request, folder, pairs=settings.has_pairs)
    if settings.has_pairs:
        warn_of_lone_documents_in(texts)
    workers = min(request.workers or pool.default_workers(), len(texts.shards))
    sample = _write_sample(texts, folder / "text", workers)
    total, sampled = _size_of(texts.shards), _size_of(sample.shards)
    request.reporter.message(f"create: forecasting from {sampled / 1e6:,.1f} of {total / 1e6:,.1f} MB of text")
    kernels.load()
    started = time.monotonic()
    cased = choose_case(texts.letters, request.reporter, cased=settings.cased, uncased=request.uncased, trains=named is None)
    settings = replace(settings, cased=cased)
    if named is None:
        path = choose_vocabulary(request.workspace, texts, request.reporter, cased=settings.cased, reads=False)
        vocabulary = _load_or_train(path, sample, folder, workers, cased=settings.cased)
    else:
        path, vocabulary = named.path, named
    records, size_bytes = {TRAINING: 0, TEST: 0}, Counter[str]()
    for split in dict.fromkeys(each.split for each in sample.shards):
        of_split = _of_split(sample, split)
        folders = {name: folder / split / name for name in formats}
        made = record_job(of_split, vocabulary, settings, variant, folders).run(None, workers, SILENT)
        scale = _size_of(_of_split(texts, split).shards) / _size_of(of_split.shards)
        for name, manifest in made.manifests.items():
            entries = manifest.files.values()
            records[split] = round(scale * sum(entry["examples"] for entry in entries))
            size_bytes[name] += round(scale * sum(entry["bytes"] for entry in entries))
    seconds = time.monotonic() - started
    busiest = _busiest(texts.shards, workers) / _busiest(sample.shards, workers)
    return Forecast(
        text_bytes=total,
        sample_bytes=sampled,
        vocabulary=path,
        trains_vocabulary=vocabulary.path != path,
        training_records=records[TRAINING],
        test_records=records[TEST],
        size_bytes=dict(size_bytes),
        workers=workers,
        wall_seconds=seconds * busiest,
        disks=tuple(free_space({as_path(request.output or request.workspace.root): sum(size_bytes.values())})),
    )


def _find_texts(request: TextRequest, folder: Path, *, pairs: bool) -> Texts:
    """Return the text of a request; if the sample corpus has no shards yet, make them in `folder`, which is temporary."""
    if tokens := find_given_tokens(request.inputs, request.reporter):
        raise UsageError(
            f"--input {tokens.folder}: has token shards, and a forecast needs text; name the text that they were made from"
        )
    if request.inputs:
        return given_texts(request, pairs=pairs)
    corpus, workspace = choose_corpus(request.workspace, request.corpus, request.reporter), request.workspace
    manifest = finished_shards(workspace, corpus)
    if manifest is None and corpus == SAMPLE:
        workspace = Workspace(folder)
        manifest = shard(workdir=folder, workers=request.workers).manifest
    if manifest is None:
        raise missing_shards(request.workspace, corpus)
    return texts_of_corpus(workspace, corpus, manifest)


def _load_or_train(path: Path, sample: Texts, folder: Path, workers: int, *, cased: bool) -> Vocabulary:
    """Return the vocabulary at a path; if there is none yet, train one on the sample in the temporary folder."""
    if path.exists():
        return load_vocabulary(path)
    trained = folder / path.name
    train(sample.paths(TRAINING), trained, VocabularySettings(cased=cased), workers, SILENT)
    return load_vocabulary(trained)


def _write_sample(texts: Texts, folder: Path, workers: int) -> Texts:
    """Return the texts, or if they are large, write and return the beginnings of some shards of each split."""
    shards = texts.shards
    if _size_of(shards) <= SAMPLE_BYTES:
        return replace(texts, shards=[replace(shard, expected=None) for shard in shards])
    step = -(-len(shards) // max(_MIN_PIECES, 2 * workers))
    chosen = [*shards[::step]]
    if chosen[-1].split != shards[-1].split:
        chosen.append(shards[-1])  # so that the sample has the test split
    sample, piece_bytes = [], SAMPLE_BYTES // len(chosen)
    for index, shard_of_text in enumerate(chosen):
        path = shard_of_text.path
        if path.stat().st_size > piece_bytes:
            with path.open("rb") as file:
                text = file.read(piece_bytes)
            path = folder / f"{index:05d}.txt"
            with atomic_file(path) as file:
                file.write(without_last_document(text))  # the last document is cut off
        sample.append(replace(shard_of_text, path=path, expected=None))
    return replace(texts, shards=sample)


def _of_split(texts: Texts, split: str) -> Texts:
    """Return the texts of a split; a shard keeps its number, and therefore its seed."""
    return replace(texts, shards=[shard for shard in texts.shards if shard.split == split])


def _size_of(shards: Sequence[TextShard]) -> int:
    return sum(shard.path.stat().st_size for shard in shards)


def _busiest(shards: Sequence[TextShard], workers: int) -> float:
    """Return the number of bytes of text that the busiest worker has to process."""
    sizes = [shard.path.stat().st_size for shard in shards]
    return max(*sizes, sum(sizes) / workers)

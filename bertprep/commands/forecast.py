"""`bertprep create --dry-run`: the records, disk, time and memory of `create`, forecast from a `create` of a sample.

At most 64 MB of text from all over the shards are made into records in a temporary folder, on the disk where records will be,
and scaled by bytes of text; a smaller text is made as a whole. Missing shards and a missing vocabulary are made there too, of a
sample. Nothing is downloaded, and nothing is left behind.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bertprep import pool
from bertprep.commands.shard import check_text_files, choose_corpus, downloaded_sources, finished_shards, missing_shards, shard
from bertprep.commands.vocab import find_vocabulary
from bertprep.config import ShardSettings
from bertprep.files.atomic import atomic_file, temporary_folder
from bertprep.files.free_space import FreeSpace, free_space
from bertprep.files.places import place
from bertprep.progress import SILENT
from bertprep.sources.corpora import parts_of
from bertprep.sources.sample import SAMPLE
from bertprep.terminal import duration, megabytes, tell, tell_table
from bertprep.work.layout import TEST, TRAINING, VOCABULARY, Workspace
from bertprep.work.manifest import Manifest

if TYPE_CHECKING:
    from bertprep.commands.create import Create

SAMPLE_BYTES = 64_000_000
_MIN_PIECES = 8
_MAXRSS_BYTES = 1 if sys.platform == "darwin" else 1024  # the unit of ru_maxrss


@dataclass(frozen=True)
class Shard:
    """A text shard of `size_bytes`, and a file with its text or a part of it."""

    split: str
    size_bytes: float
    path: Path


@dataclass(frozen=True)
class Forecast:
    """The output and cost of `create` for a text, from a sample of `sample_bytes` of its `text_bytes`.

    `size_bytes` is by format; `cpu_seconds` is user and system time of all processes together, a vocabulary that has to be
    trained included. `disks` has the needed and the free space of each file system; a store has none.
    """

    shards: int
    text_bytes: int
    sample_bytes: int
    training_records: int
    test_records: int
    size_bytes: dict[str, int]
    workers: int
    cpu_seconds: float
    wall_seconds: float
    worker_peak_bytes: int
    disks: tuple[FreeSpace, ...]

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "disks": [{**asdict(disk), "folder": str(disk.folder)} for disk in self.disks]}


def show_forecast(found: Forecast, to_json: Path | None) -> None:
    """Print a forecast, and write it to a file."""
    tell_table(
        [
            ("text, MB", megabytes(found.text_bytes)),
            ("of which sampled, MB", megabytes(found.sample_bytes)),
            ("training records", f"{found.training_records:,}"),
            ("test records", f"{found.test_records:,}"),
            *((f"{name}, MB", megabytes(size)) for name, size in found.size_bytes.items()),
            ("CPU time, h:mm:ss", duration(found.cpu_seconds)),
            (f"wall time, --workers {found.workers}", duration(found.wall_seconds)),
            ("memory per worker, MB", megabytes(found.worker_peak_bytes)),
        ]
    )
    for disk in found.disks:
        room = "enough" if disk.enough else "NOT ENOUGH; free some, or choose another --workdir or --output"
        tell(f"disk of {disk.folder}: {megabytes(disk.needed_bytes)} of {megabytes(disk.free_bytes)} MB free: {room}")
    if to_json:
        with atomic_file(to_json, replace=True) as file:
            file.write((json.dumps(found.as_json(), indent=1) + "\n").encode())


def forecast_of(request: Create) -> Forecast:
    """Return the forecast of a request, as if nothing were made yet."""
    from bertprep import kernels

    reporter, workspace, inputs = request.reporter, request.workspace, request.inputs
    workers = request.workers or pool.default_workers()
    root = place(request.output or workspace.root)
    existing = next(path for path in (root.absolute(), *root.absolute().parents) if path.is_dir())
    with temporary_folder(existing / "bertprep-forecast") as folder:
        if inputs:
            shards = [Shard(TRAINING, path.stat().st_size, path) for path in check_text_files(inputs)]
        else:
            shards = _shards_of(workspace, choose_corpus(workspace, request.corpus, reporter), folder, workers)
        workers = min(workers, len(shards))
        sample = _write_sample(shards, folder / "text", workers)
        total, made = sum(each.size_bytes for each in shards), sum(each.size_bytes for each in sample)
        reporter.say(f"create: forecasting from {made / 1e6:,.1f} of {total / 1e6:,.1f} MB of text")
        vocabulary = None if request.vocab is None else find_vocabulary(workspace, request.vocab)
        start = _used()
        kernels.load()
        loaded = _used()
        records, size_bytes = dict.fromkeys((TRAINING, TEST), 0.0), Counter[str]()
        for split in dict.fromkeys(each.split for each in sample):  # each by itself: its shards are numbered from 0
            some = [each for each in sample if each.split == split]
            created = replace(
                request,
                inputs=[each.path for each in some],
                output=folder / split,
                workdir=folder,
                corpus=None,
                vocab=vocabulary,
                workers=workers,
                lines_are_sentences=request.lines_are_sentences or not inputs,
                progress=False,
            ).create()
            vocabulary = next(iter(created.folders.values())) / VOCABULARY  # the test split has that of the training split
            scale = sum(each.size_bytes for each in shards if each.split == split) / sum(each.size_bytes for each in some)
            for name, manifest in created.manifests.items():
                entries = manifest.files.values()
                records[split] = scale * sum(entry["examples"] for entry in entries)
                size_bytes[name] += round(scale * sum(entry["bytes"] for entry in entries))
        used = _used()
    largest = max(each.size_bytes for each in shards) / max(each.size_bytes for each in sample)
    busiest = _busiest(shards, workers) / _busiest(sample, workers)
    return Forecast(
        shards=len(shards),
        text_bytes=round(total),
        sample_bytes=round(made),
        training_records=round(records[TRAINING]),
        test_records=round(records[TEST]),
        size_bytes=dict(size_bytes),
        workers=workers,
        cpu_seconds=loaded.cpu_seconds - start.cpu_seconds + (used.cpu_seconds - loaded.cpu_seconds) * total / made,
        wall_seconds=loaded.seconds - start.seconds + (used.seconds - loaded.seconds) * busiest,
        worker_peak_bytes=loaded.peak_bytes + round((used.peak_bytes - loaded.peak_bytes) * largest),
        disks=tuple(free_space({root: sum(size_bytes.values())})),
    )


def _shards_of(workspace: Workspace, corpus: str, folder: Path, workers: int) -> list[Shard]:
    """Return the text shards of a corpus, or where it has none, shards of a sample of its files, made in `folder`."""
    sharded = workspace.sharded(corpus)
    if manifest := finished_shards(workspace, corpus):
        return _listed(manifest, sharded, 1.0)
    if corpus == SAMPLE:
        return _listed(shard(workdir=folder, workers=workers), Workspace(folder).sharded(SAMPLE), 1.0)
    from bertprep.text.shards import shard_corpus

    shards: list[Shard] = []
    for part in parts_of(corpus):
        sources = list(downloaded_sources(workspace, part))
        sizes = [Path(each.location).stat().st_size for each in sources]
        chosen, made_of = [], 0
        for source, size in zip(sources, sizes, strict=True):
            if made_of < SAMPLE_BYTES:
                chosen.append(source)
                made_of += size
        made = Workspace(folder / part)
        manifest = shard_corpus(made, part, chosen, ShardSettings(), workers=workers, reporter=SILENT)
        shards += _listed(manifest, made.sharded(part), sum(sizes) / made_of)
    if not shards:
        raise missing_shards(workspace, corpus)
    return shards


def _listed(manifest: Manifest, folder: Path, scale: float) -> list[Shard]:
    files = sorted(manifest.files.items(), key=lambda item: not item[0].startswith(TRAINING))
    return [Shard(name.partition("/")[0], scale * entry["bytes"], folder / name) for name, entry in files]


def _write_sample(shards: Sequence[Shard], folder: Path, workers: int) -> list[Shard]:
    """Return shards from all over the text, the first documents of large ones as files in `folder`."""
    is_small = sum(each.path.stat().st_size for each in shards) <= SAMPLE_BYTES
    count = len(shards) if is_small else max(_MIN_PIECES, 2 * workers)
    chosen = shards[:: -(-len(shards) // count)]
    if chosen[-1].split != shards[-1].split:
        chosen = [*chosen, shards[-1]]  # the test split is in the sample
    sample = []
    folder.mkdir()
    for index, each in enumerate(chosen):
        path, size = each.path, each.path.stat().st_size
        if not is_small and size > SAMPLE_BYTES // len(chosen):
            with path.open("rb") as file:
                text = file.read(SAMPLE_BYTES // len(chosen))
            text = text[: text.rfind(b"\n\n") + 2] or text[: text.rfind(b"\n") + 1]  # the last document goes on
            path, size = folder / f"{index:05d}.txt", len(text)
            path.write_bytes(text)
        sample.append(Shard(each.split, size, path))
    return sample


def _busiest(shards: Sequence[Shard], workers: int) -> float:
    """Return about how many bytes the busiest worker makes."""
    return max(max(each.size_bytes for each in shards), sum(each.size_bytes for each in shards) / workers)


class _Used(NamedTuple):
    """The time and memory that this process and its workers have used."""

    seconds: float
    cpu_seconds: float
    peak_bytes: int


def _used() -> _Used:
    own, workers = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    cpu_seconds = own.ru_utime + own.ru_stime + workers.ru_utime + workers.ru_stime
    return _Used(time.monotonic(), cpu_seconds, max(own.ru_maxrss, workers.ru_maxrss) * _MAXRSS_BYTES)

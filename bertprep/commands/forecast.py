"""`bertprep create --dry-run`: records, disk, time and memory, forecast from a `create` of a sample.

At most 64 MB from all over the shards are made into records in a temporary folder, on the target disk, and scaled by bytes of
text. Nothing is downloaded or left behind.
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

from bertprep import pool
from bertprep.commands.request import LOCAL, OfRecords
from bertprep.commands.shard import check_text_files, choose_corpus, finished_shards, missing_shards, shard
from bertprep.commands.vocab import find_vocabulary
from bertprep.errors import UsageError
from bertprep.files.atomic import temporary_folder
from bertprep.files.free_space import FreeSpace, free_space
from bertprep.files.outputs import begins_with, write_output
from bertprep.files.paths import as_path
from bertprep.sources.sample import SAMPLE
from bertprep.terminal import duration, megabytes, print_results, print_table
from bertprep.work.layout import TEST, TRAINING, VOCABULARY, Workspace

IS_FORECAST = begins_with(b'{\n "text_bytes": ')
SAMPLE_BYTES = 64_000_000
_MIN_PIECES = 8
_MAXRSS_BYTES = 1 if sys.platform == "darwin" else 1024  # the unit of ru_maxrss


@dataclass(frozen=True)
class Shard:
    """A text shard, or the first documents of one, in a file."""

    split: str
    path: Path

    @property
    def size_bytes(self) -> int:
        return self.path.stat().st_size


@dataclass(frozen=True)
class Forecast:
    """The output and cost of `create`, from a sample of `sample_bytes` of its `text_bytes`.

    `size_bytes` is by format; `cpu_seconds` of all processes, training a vocabulary included; `disks` has needed and free
    space.
    """

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


def show_forecast(found: Forecast, to_json: Path | None) -> None:
    """Print a forecast, and write it to a file."""
    print_table(
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
        enough = "enough" if disk.enough else "NOT ENOUGH; free some, or choose another --workdir or --output"
        print_results(
            f"disk of {disk.folder}: {megabytes(disk.needed_bytes)} of {megabytes(disk.free_bytes)} MB free: {enough}"
        )
    if to_json:
        content = json.dumps(asdict(found), indent=1, default=str) + "\n"
        write_output(to_json, content.encode(), IS_FORECAST, "--json")


def forecast_of(request: OfRecords) -> Forecast:
    """Return the forecast of a request, as if nothing were made yet."""
    from bertprep import kernels
    from bertprep.commands.record_job import make_records

    if request.part is not None:
        raise UsageError(f"--part {request.part}: a forecast is of all parts together; leave it out")
    if request.executor != LOCAL:
        raise UsageError(f"--executor {request.executor}: a forecast is made on this machine; leave it out")
    root = as_path(request.output or request.workspace.root)
    existing = next(path for path in (root.absolute(), *root.absolute().parents) if path.is_dir())
    with temporary_folder(existing / "bertprep-forecast") as folder:
        shards = _find_shards(request, folder)
        workers = min(request.workers or pool.default_workers(), len(shards))
        sample = _write_sample(shards, folder / "text", workers)
        total, made = (sum(each.size_bytes for each in some) for some in (shards, sample))
        request.reporter.message(f"create: forecasting from {made / 1e6:,.1f} of {total / 1e6:,.1f} MB of text")
        vocabulary = None if request.vocab is None else find_vocabulary(request.workspace, request.vocab)
        start = _used()
        kernels.load()
        loaded = _used()
        records, size_bytes = {TRAINING: 0, TEST: 0}, Counter[str]()
        for split in dict.fromkeys(each.split for each in sample):  # each by itself: its shards are numbered from 0
            some = [each for each in sample if each.split == split]
            sampled = replace(
                request,
                inputs=[each.path for each in some],
                output=folder / split,
                workdir=folder,
                corpus=None,
                vocab=vocabulary,
                any_case=request.any_case or request.vocab is None,  # one that was trained on the sample fits it
                workers=workers,
                lines_are_sentences=request.lines_are_sentences or not request.inputs,
                progress=False,
            )
            created = make_records(sampled, workers)
            vocabulary = next(iter(created.folders.values())) / VOCABULARY  # the test split has that of the training split
            scale = sum(each.size_bytes for each in shards if each.split == split) / sum(each.size_bytes for each in some)
            for name, manifest in created.manifests.items():
                entries = manifest.files.values()
                records[split] = round(scale * sum(entry["examples"] for entry in entries))
                size_bytes[name] += round(scale * sum(entry["bytes"] for entry in entries))
        used = _used()
        largest = max(each.size_bytes for each in shards) / max(each.size_bytes for each in sample)
        busiest = _busiest(shards, workers) / _busiest(sample, workers)
    seconds, cpu_seconds, peak_bytes = (
        load - begin + (end - load) * factor
        for begin, load, end, factor in zip((*start[:2], 0), loaded, used, (busiest, total / made, largest), strict=True)
    )
    return Forecast(
        text_bytes=total,
        sample_bytes=made,
        training_records=records[TRAINING],
        test_records=records[TEST],
        size_bytes=dict(size_bytes),
        workers=workers,
        cpu_seconds=cpu_seconds,
        wall_seconds=seconds,
        worker_peak_bytes=round(peak_bytes),
        disks=tuple(free_space({root: sum(size_bytes.values())})),
    )


def _find_shards(request: OfRecords, folder: Path) -> list[Shard]:
    from bertprep.commands.record_job import find_given_tokens

    if tokens := find_given_tokens(request.inputs, request.reporter):
        raise UsageError(f"--input {tokens.folder}: holds token shards; a forecast is of text, so name theirs")
    if request.inputs:
        return [Shard(TRAINING, path) for path in check_text_files(request.inputs)]
    corpus, workspace = choose_corpus(request.workspace, request.corpus, request.reporter), request.workspace
    manifest = finished_shards(workspace, corpus)
    if manifest is None and corpus == SAMPLE:
        workspace = Workspace(folder)
        manifest = shard(workdir=folder, workers=request.workers).manifest
    if manifest is None:
        raise missing_shards(request.workspace, corpus)
    names = sorted(manifest.files, key=lambda name: not name.startswith(TRAINING))
    return [Shard(name.partition("/")[0], workspace.sharded(corpus) / name) for name in names]


def _write_sample(shards: Sequence[Shard], folder: Path, workers: int) -> list[Shard]:
    if sum(each.size_bytes for each in shards) <= SAMPLE_BYTES:
        return list(shards)
    chosen = shards[:: -(-len(shards) // max(_MIN_PIECES, 2 * workers))]
    if chosen[-1].split != shards[-1].split:
        chosen = [*chosen, shards[-1]]  # the test split is in the sample
    sample, piece_bytes = [], SAMPLE_BYTES // len(chosen)
    folder.mkdir()
    for index, each in enumerate(chosen):
        path = each.path
        if each.size_bytes > piece_bytes:
            with path.open("rb") as file:
                text = file.read(piece_bytes)
            path = folder / f"{index:05d}.txt"
            path.write_bytes(text[: text.rfind(b"\n\n") + 2] or text[: text.rfind(b"\n") + 1])  # the last document goes on
        sample.append(Shard(each.split, path))
    return sample


def _busiest(shards: Sequence[Shard], workers: int) -> float:
    sizes = [each.size_bytes for each in shards]
    return max(*sizes, sum(sizes) / workers)


def _used() -> tuple[float, float, int]:
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    cpu_seconds = sum(each.ru_utime + each.ru_stime for each in usage)
    return time.monotonic(), cpu_seconds, max(each.ru_maxrss for each in usage) * _MAXRSS_BYTES

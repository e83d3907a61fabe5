"""Checks text shards: every document once, whole, in one split, in shards of equal size.

Each shard is read once, in parallel (`text_scan`); shards are compared by 16 bytes a document, and 33 more during the
comparison. A document in both training and test makes the test worthless, so it is an error however the shards were made.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np

from bertprep import pool
from bertprep.check.findings import ERROR, SHOWN_OF_A_CODE, WARNING, Finding
from bertprep.check.manifest_checks import check_names
from bertprep.check.text_scan import ScannedShard, line_of_document, scan_shard
from bertprep.config import HASH
from bertprep.files.atomic import TEMPORARY_SUFFIX
from bertprep.files.places import sizes_of
from bertprep.text.documents import repeated_rows
from bertprep.workspace.layout import MANIFEST, SPLITS
from bertprep.workspace.manifest import Manifest

_TASK_BYTES = 16_000_000
_TASK_SHARDS = 256
"""The most in a task, so that progress is seen also where each of them is a request to a store."""
_TASKS_EACH, _MOST_TAKERS = 4, 64
"""Tasks for each worker, of at most so many: Ray's are any number."""
MOST_ABOVE_MEAN = 0.02  # fraction of a shard's size, beyond one document
_DEVIATIONS = 6
"""Standard deviations by which the largest of 100,000 shards may exceed the mean."""


def check_text_shards(
    folder: Path, manifest: Manifest | None, workers: int, scanned: Callable[[list[ScannedShard]], None] = lambda _: None
) -> list[Finding]:
    """Findings about the text shards in `folder`, WORKDIR/sharded/CORPUS; files are named relative to it.

    Without a manifest, all files in the folders of the two splits are checked, and missing ones go unnoticed. Calls `scanned`
    with some shards at a time, as they are read.
    """
    shards = scan_text_shards(folder, workers, scanned)
    keeps_duplicates = manifest is not None and bool(manifest.made_with.get("keep_duplicates"))
    return [
        *(finding for shard in shards for finding in shard.findings),
        *(_compare(shards, manifest) if manifest else ()),
        *_find_repeated(folder, shards, WARNING if keeps_duplicates else ERROR),
        *_check_balance(shards, by_hash=manifest is not None and manifest.made_with.get("assign") == HASH),
    ]


def scan_text_shards(folder: Path, workers: int, scanned: Callable[[list[ScannedShard]], None]) -> list[ScannedShard]:
    """All files of the two splits, training first, by name; unfinished ones of a killed run are left out."""
    paths = [path for split in SPLITS for path in sorted((folder / split).glob("[!.]*")) if path.suffix != TEMPORARY_SUFFIX]
    sizes = sizes_of(folder, [path.relative_to(folder).as_posix() for path in paths])
    tasks = [(str(folder / names[0]), (folder, names)) for names in _group(sizes, workers)]
    found = {}
    with closing(pool.run(_scan_shards, tasks, workers=workers)) as results:
        for _, shards in results:
            found.update({shard.name: shard for shard in shards})
            scanned(shards)
    return [found[name] for name in sizes]


def _group(sizes: dict[str, int], workers: int) -> list[list[str]]:
    """Neighbouring shards that are one task: a pipe to a worker costs more than reading a tiny one."""
    most = max(1, min(_TASK_SHARDS, len(sizes) // (_TASKS_EACH * min(workers, _MOST_TAKERS))))
    groups: list[list[str]] = []
    filled = 0
    for name, size in sizes.items():
        if not groups or filled + size > _TASK_BYTES or len(groups[-1]) == most:
            groups.append([])
            filled = 0
        groups[-1].append(name)
        filled += size
    return groups


def _scan_shards(task: tuple[Path, list[str]]) -> list[ScannedShard]:
    folder, names = task
    return [scan_shard((folder, name)) for name in names]


def _compare(shards: Sequence[ScannedShard], manifest: Manifest) -> list[Finding]:
    """Findings about files that differ from the manifest."""
    found = check_names(manifest, (shard.name for shard in shards))
    for shard in shards:
        facts = manifest.files.get(shard.name)
        if facts and (shard.size_bytes, shard.sha256) != (facts["bytes"], facts["sha256"]):
            expected = f"{facts['bytes']:,} bytes, sha256 {facts['sha256'][:16]}..., as {MANIFEST} says"
            there = f"{shard.size_bytes:,} bytes, sha256 {shard.sha256[:16]}..."
            found.append(Finding(ERROR, "file-changed", shard.name, None, expected, there))
    return found


def _find_repeated(folder: Path, shards: Sequence[ScannedShard], level: str) -> Iterator[Finding]:
    """Findings about repeated documents: for each file, one for those of its own split, one for those of the other.

    Those that are shown have lines; the others, of which there may be one for each of thousands of files, have none.
    """
    counts = [shard.documents for shard in shards]
    ends = np.cumsum(counts)
    if not sum(counts):
        return
    later, first = repeated_rows(np.concatenate([shard.digests for shard in shards]))
    file_of_later, file_of_first = (np.searchsorted(ends, rows, side="right") for rows in (later, first))

    def name_of(row: int, file: int, *, is_shown: bool) -> tuple[str, int | None]:
        name = shards[file].name  # and the line, for which the file is read again
        return name, line_of_document(folder / name, row - int(ends[file]) + counts[file]) if is_shown else None

    split_of = np.array([SPLITS.index(Path(shard.name).parts[0]) for shard in shards])
    across = split_of[file_of_later] != split_of[file_of_first]
    for code, of_level, chosen in (("document-twice", level, ~across), ("document-in-both-splits", ERROR, across)):
        rows = np.flatnonzero(chosen)
        files, firsts, repeats = np.unique(file_of_later[rows], return_index=True, return_counts=True)
        for number, (file, row, count) in enumerate(zip(files.tolist(), rows[firsts].tolist(), repeats.tolist(), strict=True)):
            is_shown = number < SHOWN_OF_A_CODE
            name, line = name_of(int(later[row]), file, is_shown=is_shown)
            before, line_before = name_of(int(first[row]), int(file_of_first[row]), is_shown=is_shown)
            expected = "each document once" if code == "document-twice" else "no test document in training"
            found = f"the document of {before}" if line_before is None else f"the document of {before}, line {line_before:,}"
            yield Finding(of_level, code, name, line, expected, found, count)


def _check_balance(shards: Sequence[ScannedShard], *, by_hash: bool) -> Iterator[Finding]:
    """Findings about shards that exceed the mean by more than one document explains, or if `by_hash` by more than chance does.

    The variance of a shard's size is then at most its mean, times the size of the largest document.
    """
    for split in SPLITS:
        of_split = [shard for shard in shards if Path(shard.name).parts[0] == split]
        if not of_split:
            continue
        mean = sum(shard.size_bytes for shard in of_split) / len(of_split)
        largest = max(of_split, key=lambda shard: shard.size_bytes)
        largest_document = max(shard.largest_document for shard in of_split) if by_hash else largest.largest_document
        by_chance = _DEVIATIONS * math.sqrt(mean * largest_document) if by_hash else 0.0
        if largest.size_bytes > (1 + MOST_ABOVE_MEAN) * mean + largest_document + by_chance:
            how = "and as much as chance gives" if by_hash else "and a document"
            expected = f"at most {MOST_ABOVE_MEAN:.0%} {how} above the mean of {split}, {mean:,.0f} bytes"
            yield Finding(WARNING, "shard-balance", largest.name, None, expected, f"{largest.size_bytes:,} bytes")

"""The commands, one file each: a request, its function, and its output (`run`).

`bertprep.cli` imports only the requested command, which imports slow modules where it uses them, so `--help` is fast.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertprep.terminal import print_results, print_table
from bertprep.work.layout import SPLIT_NAMES, TRAINING

if TYPE_CHECKING:
    from bertprep.commands.request import InParts
    from bertprep.work.manifest import Manifest


@dataclass(frozen=True)
class Created:
    """The result of `create`, `tokenize` and `task`: folder and manifest of each format, seconds, and how many shards were
    `made`.
    """

    folders: dict[str, Path]
    manifests: dict[str, Manifest]
    seconds: float
    made: int


def split_rows(files: dict[str, dict[str, Any]], *counts: str) -> list[tuple[str, ...]]:
    """Return a row for each split of a manifest's files, training first: name, files, totals of `counts`, megabytes."""
    splits: dict[str, list[dict[str, Any]]] = {}
    for name, entry in sorted(files.items(), key=lambda item: SPLIT_NAMES.get(item[0].partition("/")[0]) != TRAINING):
        splits.setdefault(name.rpartition("/")[0], []).append(entry)
    return [
        (
            split,
            f"{len(entries):,}",
            *(f"{sum(entry.get(name, 0) for entry in entries):,}" for name in counts),
            f"{sum(entry['bytes'] for entry in entries) / 1e6:,.1f}",
        )
        for split, entries in splits.items()
    ]


def tell_files(manifests: Mapping[str, Manifest], *counts: str) -> None:
    """Print a row for each format and split; records are `examples` in manifests."""
    names = ("records" if name == "examples" else name for name in counts)
    rows: list[tuple[str, ...]] = [("format", "split", "files", *names, "MB")]
    for name, manifest in manifests.items():
        rows += [(name, *row) for row in split_rows(manifest.files, *counts)]
    print_table(rows)


def print_created(created: Created, request: InParts) -> None:
    """Print how long the missing files took and where they are, as the last lines of a command."""
    how = f"made in {created.seconds:.1f} s:" if created.made else "nothing to do, all files exist:"
    print_results(how, *(f"  {folder}" for folder in created.folders.values()))
    tell_finished(request)


def tell_finished(request: InParts) -> None:
    """Print that --part finish has found nothing missing."""
    if request.part == "finish":
        print_results("all parts are finished, and the manifest is written")

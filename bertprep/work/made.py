"""The result of a command: where its files are, what they contain, and the table that a user sees.

Shell and Python get the same lines: a command prints the `repr` of its result.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bertprep.terminal import table_lines
from bertprep.work.layout import SPLIT_NAMES, TRAINING, TokenFile
from bertprep.work.manifest import RECORD_KINDS, TOKEN_SHARDS, Manifest
from bertprep.work.truncation import FITTING, OVER_RULES, Truncation

_COLUMN_OF_COUNT = {
    "documents": "documents", "sentences": "sentences", "words": "words", "tokens": "tokens", "examples": "records",
    "samples": "rows",
}  # fmt: skip
"""Count in a file's manifest entry -> heading of its column, in the order of the columns."""
_CUT_OFF, _TRUNCATED = "cut off", "truncated"
_SHARES = (_CUT_OFF, _TRUNCATED, *(f"over {longest}" for longest in FITTING))
"""The headings of what `work.truncation` counts: tokens that are not in the records, and sentences that will exceed one."""


@dataclass(frozen=True, repr=False)
class Made:
    """The result of a command: the folder and the manifest of each format, such as "tfrecord", "tokens" or "text".

    `made` counts the shards (for records: files) that were made, `kept` those that existed; `seconds` is the time of the whole
    command, with its earlier steps. The manifests list all files. If other parts are not finished, `is_complete` is False and
    the manifests list only the files that exist.
    """

    folders: dict[str, Path]
    manifests: dict[str, Manifest]
    made: int
    kept: int
    seconds: float
    is_complete: bool = True

    @property
    def folder(self) -> Path:
        """The folder of the first format."""
        return next(iter(self.folders.values()))

    @property
    def manifest(self) -> Manifest:
        """The manifest of the first format."""
        return next(iter(self.manifests.values()))

    def since(self, started: float) -> Made:
        """Return the result with the seconds since `started`, a value of `time.monotonic()`, to include earlier steps."""
        return replace(self, seconds=time.monotonic() - started)

    def rows(self) -> list[tuple[str, ...]]:
        """Return a table: the headings, then for each format and split the number of files, the counts in them, and MB."""
        return files_table(self.manifests)

    def lines(self) -> list[str]:
        """Return the lines that a command prints: the table, how long it took, and where the files are."""
        return [*table_lines(self.rows()), self._how(), *(f"  {folder}" for folder in self.folders.values())]

    def _how(self) -> str:
        if self.made:
            kept = f", {self.kept:,} existed" if self.kept else ""
            if self.is_complete:
                return f"made in {self.seconds:.1f} s{kept}:"
            return f"made this part in {self.seconds:.1f} s{kept}; the data is not complete until the other parts are made:"
        if self.is_complete:
            return "nothing to do, all files exist:"
        return "nothing to do in this part; the data is not complete until the other parts are made:"

    def __repr__(self) -> str:
        return "\n".join(self.lines())


def files_table(manifests: Mapping[str, Manifest]) -> list[tuple[str, ...]]:
    """Return the table of the files of these formats, without columns that are empty."""
    rows = [
        {"format": name, "split": split, **_totals(manifest, entries)}
        for name, manifest in manifests.items()
        for split, entries in _by_split(manifest).items()
    ]
    known = ["format", "split", "shards", "files", *_COLUMN_OF_COUNT.values(), "MB", *_SHARES]
    columns = [column for column in known if any(row.get(column) for row in rows)]
    return [tuple(columns), *(tuple(row.get(column, "") for column in columns) for row in rows)]


def _by_split(manifest: Manifest) -> dict[str, dict[str, dict[str, Any]]]:
    """Return the files of each split, training first. Token shards outside of split folders are training data."""
    splits: dict[str, dict[str, dict[str, Any]]] = {}
    for name, entry in manifest.files.items():
        split = name.rpartition("/")[0]
        if manifest.kind == TOKEN_SHARDS:
            split = split or TRAINING
        splits.setdefault(split, {})[name] = entry
    return dict(sorted(splits.items(), key=lambda item: SPLIT_NAMES.get(item[0].partition("/")[0]) != TRAINING))


def _totals(manifest: Manifest, entries: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Return the cells of a row of the table. A token shard counts once, although it has two or three files."""
    first_files = [name for name in entries if manifest.kind != TOKEN_SHARDS or name.endswith(f".{TokenFile.BIN}")]
    totals = {"files" if manifest.kind in RECORD_KINDS else "shards": f"{len(first_files):,}"}
    for count, column in _COLUMN_OF_COUNT.items():
        counted = [entry[count] for entry in entries.values() if count in entry]
        if counted:
            totals[column] = f"{sum(counted):,}"
    totals["MB"] = f"{sum(entry['bytes'] for entry in entries.values()) / 1e6:,.1f}"
    if truncation := Truncation.of_entries(entries.values()):
        totals |= {_CUT_OFF: f"{truncation.cut_off:.1%}", _TRUNCATED: f"{truncation.truncated:.1%}"}
    of_sentences = [entry for entry in entries.values() if OVER_RULES.keys() <= entry.keys()]
    if sentences := sum(entry.get("sentences", 0) for entry in of_sentences):
        over = {longest: sum(entry[f"over_{longest}"] for entry in of_sentences) for longest in FITTING}
        totals |= {f"over {longest}": f"{count / sentences:.1%}" for longest, count in over.items()}
    return totals

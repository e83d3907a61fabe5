"""What `validate` finds out about one data set: its files, its counts, its faults; what `report` shows."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from bertprep.check.findings import ERROR, Finding
from bertprep.check.tally import Tally
from bertprep.workspace.manifest import Manifest


@dataclass(frozen=True)
class FileFacts:
    """One record file or text shard as it lies there; `records` are its documents where it is text."""

    name: str  # relative to the data set's folder
    split: str  # "training", "test", or "" where the folder has none
    records: int
    size_bytes: int


@dataclass
class Outcome:
    """One data set: records of one format and settings in one folder, or text shards.

    `tallies` are by split, empty for text shards. `sampled` says that only some records of each file were looked at, and so
    that what needs all of them (duplicates, sums) was left out.
    """

    folder: Path
    kind: str  # "tfrecord", "ofrecord" or "text shards"
    manifest: Manifest | None
    vocabulary: Path | None
    seq: int = 0
    pred: int = 0
    sampled: bool = False
    files: list[FileFacts] = field(default_factory=list)
    tallies: dict[str, Tally] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    duplicates: dict[str, int] = field(default_factory=dict)  # records that repeat an earlier one: by split, and "across"

    @property
    def errors(self) -> int:
        return sum(finding.level == ERROR for finding in self.findings)

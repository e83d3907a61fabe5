"""Which records go into which file of a conversion: file for file, or dealt over another number of files.

The order of the records is kept, within a file and from file to file, so that a data set dealt over many files and back is
the same data set. The names of the files are those that trainers in the field look for.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertprep.config import DEFAULT_DIALECT, Dialect, RecordFormat
from bertprep.errors import UsageError
from bertprep.records.convert import Span
from bertprep.workspace.data_sets import IdentifiedFile, RecordFolder
from bertprep.workspace.layout import SPLITS, TRAINING, record_file_name
from bertprep.workspace.record_home import RecordHome, home_for_converted, part_digits


@dataclass(frozen=True)
class Output:
    """A file to be made: its name relative to the folder, the records for it, and what the old manifest says of them."""

    name: str
    path: Path
    spans: tuple[Span, ...]
    facts: dict[str, Any]


def plan_outputs(
    folder: RecordFolder,
    sources: Sequence[IdentifiedFile],
    target: Path,
    to: RecordFormat,
    shards: int | None,
    dialect: Dialect = DEFAULT_DIALECT,
) -> list[Output]:
    """The files to be made, split by split; without splits in the folder of their format."""
    outputs = []
    home = RecordHome(target) if sources[0].file.split else home_for_converted(target, to)
    digits = part_digits(home.records)
    for split in dict.fromkeys(source.file.split for source in sources):
        files = [source for source in sources if source.file.split == split]
        in_name = next((name for name in (split, folder.path.name) if name in SPLITS), TRAINING)
        spans = deal(files, shards) if shards else [(Span(source.file.path),) for source in files]
        for number, of_file in enumerate(spans):
            file_name = record_file_name(to, folder.corpus, in_name, number, dialect, part_digits=digits)
            name = home.prefix + f"{split}/{file_name}".lstrip("/")
            known = folder.manifest.files[files[number].file.name] if folder.manifest and not shards else {}
            outputs.append(Output(name, target / name, of_file, known))
    return outputs


def deal(files: Sequence[IdentifiedFile], shards: int) -> list[tuple[Span, ...]]:
    """The records of the files, in order, as `shards` runs whose sizes differ by one at most, the longer ones first."""
    records = sum(file.records for file in files)
    if shards > records:
        whose = f"{split} split" if (split := files[0].file.split) else "source"
        raise UsageError(f"--shards {shards:,}: the {whose} has {records:,} records, so at most as many files")
    dealt = []
    stop = 0
    for shard in range(shards):
        start, stop = stop, stop + records // shards + (shard < records % shards)
        spans, first = [], 0
        for file in files:
            begin, end = max(start - first, 0), min(stop - first, file.records)
            if begin < end:
                spans.append(Span(file.file.path, begin, end))
            first += file.records
        dealt.append(tuple(spans))
    return dealt

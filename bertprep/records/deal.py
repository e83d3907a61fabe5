"""Which records go into which file of a conversion: file for file, dealt over another number of files, or some of them alone.

Before anything is made, each source is read once: its sha256, and how many records of which shape it holds. The order of the
records is kept, within a file and from file to file, so that a data set dealt over many files and back is the same data set.
The files have the names that trainers in the field look for.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from bertprep.config import DEFAULT_DIALECT, Dialect, RecordFormat
from bertprep.errors import BertprepError, UsageError
from bertprep.records.convert import SAME_SETTINGS, Picked, Span
from bertprep.records.data_sets import DataSet
from bertprep.records.examples import Shape
from bertprep.records.reader import RecordFile
from bertprep.terminal import counted
from bertprep.work.layout import DEV, MANIFEST, SPLITS, TASK_SPLITS, TEST, TRAINING, record_file_name, split_folder
from bertprep.work.manifest import TASK_RECORDS, sha256_of, sha256_of_vocabulary


@dataclass(frozen=True)
class IdentifiedFile:
    """A record file that was read: what it holds, and the sha256 of its bytes. `name` and `split` are the data set's."""

    path: Path
    name: str
    split: str
    format: RecordFormat
    shape: Shape
    records: int
    size_bytes: int
    sha256: str
    knows_pred: bool = True


def identify(path: Path, name: str = "", split: str = "") -> IdentifiedFile:
    """Read a record file's sha256 and count its records; raises `BertprepError` where it is none."""
    with RecordFile(path) as file:
        records, size_bytes = len(file), path.stat().st_size
        of_file = file.format, file.shape, records, size_bytes, sha256_of(path), file.knows_pred
        return IdentifiedFile(path, name, split, *of_file)


def with_one_pred(files: Sequence[IdentifiedFile]) -> list[IdentifiedFile]:
    """The files, of which those that do not say for how many predictions their records have room get the highest number."""
    most = max((file.shape.pred for file in files), default=0)
    return [file if file.knows_pred else replace(file, shape=file.shape._replace(pred=most)) for file in files]


def check_identified(data_set: DataSet, files: Sequence[IdentifiedFile]) -> None:
    """Raise where a file is not what the manifest says, or has records of another shape than the first of its split."""
    manifest, manifest_path = data_set.manifest, data_set.root.folder / MANIFEST
    expected = sha256_of_vocabulary(manifest)
    if data_set.vocabulary and expected and (found_sum := sha256_of(data_set.vocabulary)) != expected:
        raise BertprepError(
            f"{data_set.vocabulary}: is not the vocabulary that the records were made with: sha256 {found_sum[:16]}..., "
            f"expected {expected[:16]}... by {manifest_path}; put the right one there"
        )
    first_of: dict[str, IdentifiedFile] = {}
    for found in files:
        first = first_of.setdefault(found.split, found)
        found.shape.check_same(found.path, first.shape, first.path, SAME_SETTINGS)
        if manifest and (listed := str(manifest.files[found.name].get("sha256"))) != found.sha256:
            raise BertprepError(
                f"{found.path}: has sha256 {found.sha256[:16]}..., expected {listed[:16]}... by {manifest_path}; "
                "it is damaged or was changed, make it again"
            )


@dataclass(frozen=True)
class Output:
    """A file to be made: its name relative to the folder, the records for it, and its entry in the old manifest, if any."""

    name: str
    split: str
    spans: tuple[Span | Picked, ...]
    entry: dict[str, Any]


def plan_outputs(
    data_set: DataSet,
    sources: Sequence[IdentifiedFile],
    to: RecordFormat,
    shards: int | None,
    dialect: Dialect = DEFAULT_DIALECT,
    pick: int | None = None,
) -> list[Output]:
    """Return the files to be made, in the folder of their split, which is training where there are none."""
    outputs = []
    is_task = data_set.manifest is not None and data_set.manifest.kind == TASK_RECORDS
    for split in dict.fromkeys(source.split for source in sources):
        files = [source for source in sources if source.split == split]
        named = DEV if split == TEST and is_task else split
        folder = next((name for name in (named, data_set.folder.name) if name in (*SPLITS, *TASK_SPLITS)), TRAINING)
        for number, of_file in enumerate(contents_of(files, shards, pick)):
            file_name = record_file_name(to, data_set.corpus, folder, number, dialect)
            known = data_set.manifest.files[files[number].name] if data_set.manifest and not (shards or pick) else {}
            outputs.append(Output(f"{split_folder(to, folder)}/{file_name}", folder, of_file, known))
    return outputs


def contents_of(files: Sequence[IdentifiedFile], shards: int | None, pick: int | None) -> Sequence[tuple[Span | Picked, ...]]:
    """What each file of a split is made of."""
    if pick:
        return deal_picked(files, pick, shards or 1)
    return deal(files, shards) if shards else [(Span(source.path),) for source in files]


def deal_picked(files: Sequence[IdentifiedFile], pick: int, shards: int) -> list[tuple[Picked, ...]]:
    """`pick` records of the files, evenly spaced and in order, dealt over `shards` files as `deal` does.

    Record i of them is that of number int(i * (records / pick)), in floating point, as MLPerf's pick_eval_samples.py has it.
    """
    records = sum(file.records for file in files)
    if pick > records:
        raise UsageError(
            f"--pick {pick:,}: the {_whose(files)} has {counted(records, 'record')}, so at most as many can be picked"
        )
    if shards > pick:
        raise UsageError(f"--shards {shards:,}: --pick {pick:,} gives at most as many files")
    numbers = (np.arange(pick) * (records / pick)).astype(np.int64)
    firsts = np.cumsum([0, *(file.records for file in files)])  # (files + 1,): which record of all is the first of each
    dealt = []
    for of_shard in np.array_split(numbers, shards):
        cuts = pairwise(np.searchsorted(of_shard, firsts))
        picked = (
            (file.path, of_shard[start:stop] - first) for file, first, (start, stop) in zip(files, firsts, cuts, strict=False)
        )
        dealt.append(tuple(Picked(path, chosen) for path, chosen in picked if len(chosen)))
    return dealt


def _whose(files: Sequence[IdentifiedFile]) -> str:
    return f"{split} split" if (split := files[0].split) else "source"


def deal(files: Sequence[IdentifiedFile], shards: int) -> list[tuple[Span, ...]]:
    """The records of the files, in order, as `shards` runs whose sizes differ by one at most, the longer ones first."""
    records = sum(file.records for file in files)
    if shards > records:
        raise UsageError(f"--shards {shards:,}: the {_whose(files)} has {counted(records, 'record')}, so at most as many files")
    dealt = []
    stop = 0
    for shard in range(shards):
        start, stop = stop, stop + records // shards + (shard < records % shards)
        spans, first = [], 0
        for file in files:
            begin, end = max(start - first, 0), min(stop - first, file.records)
            if begin < end:
                spans.append(Span(file.path, begin, end))
            first += file.records
        dealt.append(tuple(spans))
    return dealt

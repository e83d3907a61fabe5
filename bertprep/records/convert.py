"""Records of some files to other files: one for one, distributed over another number of files, or a selection.

Each source is read once beforehand, for its checksum, shape and number of records. The order of records is kept, every checksum
verified. The bytes are those that `create` writes for the same values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertprep import kernels
from bertprep.config import DEFAULT_DIALECT, RecordFormat, Variant
from bertprep.errors import BertprepError, UsageError
from bertprep.files.checksums import BLAKE3, SHA256, Checksum, listed_checksum
from bertprep.files.paths import checksum_of
from bertprep.records.columns import NoColumnsError
from bertprep.records.examples import Examples, Shape, rows_in_block
from bertprep.records.records import Records
from bertprep.records.write import WrittenFile, entry_of, write_examples
from bertprep.terminal import counted
from bertprep.work.data_set import DataSet
from bertprep.work.layout import DEV, MANIFEST, SPLITS, TASK_SPLITS, TEST, TRAINING, record_file_name, split_folder
from bertprep.work.ledger import Entry
from bertprep.work.manifest import TASK_RECORDS, sha256_of_vocabulary
from bertprep.work.run import Maker

_SAME_SETTINGS = "give files that were made with the same settings"
_BLOCK_TOKENS = 1 << 15  # of a block of records: what the arrays of it take fits into the processor's cache


@dataclass(frozen=True)
class IdentifiedFile:
    """A record file that was read: its contents and checksum. `name` and `split` are the data set's."""

    path: Path
    name: str
    split: str
    format: RecordFormat
    shape: Shape
    records: int
    size_bytes: int
    checksum: Checksum
    knows_pred: bool = True


def identify(path: Path, name: str = "", split: str = "", algorithm: str = BLAKE3) -> IdentifiedFile:
    """Read a record file's checksum and count its records; raises `BertprepError` where it is none."""
    with Records.open(path) as file:
        records, size_bytes = len(file), path.stat().st_size
        checksum = Checksum(algorithm, checksum_of(path, algorithm))
        of_file = file.format, file.shape, records, size_bytes, checksum, file.knows_pred
        return IdentifiedFile(path, name, split, *of_file)


def with_one_pred(files: Sequence[IdentifiedFile]) -> list[IdentifiedFile]:
    """The files, of which those that do not say for how many predictions their records have room get the highest number."""
    most = max((file.shape.pred for file in files), default=0)
    return [file if file.knows_pred else replace(file, shape=file.shape._replace(pred=most)) for file in files]


def check_identified(data_set: DataSet, files: Sequence[IdentifiedFile]) -> None:
    """Raise if a file differs from the manifest, or in shape from the first of its split."""
    manifest, manifest_path = data_set.manifest, data_set.folder / MANIFEST
    expected = sha256_of_vocabulary(manifest)
    if data_set.vocabulary and expected and (found_sum := checksum_of(data_set.vocabulary, SHA256)) != expected:
        raise BertprepError(
            f"{data_set.vocabulary}: is not the vocabulary that the records were made with: sha256 {found_sum[:16]}..., "
            f"expected {expected[:16]}... by {manifest_path}; put the right one there"
        )
    first_of: dict[str, IdentifiedFile] = {}
    for found in files:
        first = first_of.setdefault(found.split, found)
        found.shape.check_same(found.path, first.shape, first.path, _SAME_SETTINGS)
        if manifest and (listed := listed_checksum(manifest.files[found.name])) != found.checksum:
            raise BertprepError(
                f"{found.path}: has {found.checksum}, expected {listed} by {manifest_path}; it is corrupt or was changed, make "
                "it again"
            )


@dataclass(frozen=True)
class Span:
    """Records of a file by their indices, or all of them where `records` is None."""

    path: Path
    records: range | NDArray[np.int64] | None = None


@dataclass(frozen=True)
class Output:
    """A file to be made: its name relative to the folder, the records for it, and its entry in the old manifest, if any."""

    name: str
    split: str
    spans: tuple[Span, ...]
    entry: dict[str, Any]


def plan_outputs(
    data_set: DataSet,
    sources: Sequence[IdentifiedFile],
    to: RecordFormat,
    shards: int | None,
    variant: Variant = DEFAULT_DIALECT,
    pick: int | None = None,
) -> list[Output]:
    """Return the files to be made, in the folder of their split, which is training where there are none."""
    outputs = []
    is_task = data_set.manifest is not None and data_set.manifest.kind == TASK_RECORDS
    for split in dict.fromkeys(source.split for source in sources):
        files = [source for source in sources if source.split == split]
        named = DEV if split == TEST and is_task else split
        folder = next((name for name in (named, data_set.folder.name) if name in (*SPLITS, *TASK_SPLITS)), TRAINING)
        for number, of_file in enumerate(assign(files, shards, pick)):
            file_name = record_file_name(to, data_set.corpus, folder, number, variant)
            known = data_set.manifest.files[files[number].name] if data_set.manifest and not (shards or pick) else {}
            outputs.append(Output(f"{split_folder(to, folder)}/{file_name}", folder, of_file, known))
    return outputs


def assign(files: Sequence[IdentifiedFile], shards: int | None, pick: int | None = None) -> list[tuple[Span, ...]]:
    """Return the sources of each file of a split: one each, or all records in order in `shards` runs of nearly equal size.

    With `pick` record i is int(i * (records / pick)), in floating point, like MLPerf's pick_eval_samples.py.
    """
    if not shards and not pick:
        return [(Span(file.path),) for file in files]
    records = sum(file.records for file in files)
    total, shards = pick or records, shards or 1
    whose = f"{split} split" if (split := files[0].split) else "source"
    if total > records:
        raise UsageError(f"--pick {pick:,}: the {whose} has {counted(records, 'record')}, so at most as many can be picked")
    if shards > total:
        why = f"--pick {pick:,} gives" if pick else f"the {whose} has {counted(records, 'record')}, so"
        raise UsageError(f"--shards {shards:,}: {why} at most as many files")
    picked = (np.arange(pick) * (records / pick)).astype(np.int64) if pick else None
    assigned = []
    for shard in range(shards):
        start, stop = (shard * (total // shards) + min(shard, total % shards) for shard in (shard, shard + 1))
        spans, first = [], 0
        for file in files:
            of_file: range | NDArray[np.int64] = range(max(start - first, 0), min(stop - first, file.records))
            if picked is not None:
                here = picked[start:stop] - first
                of_file = here[(here >= 0) & (here < file.records)]
            if len(of_file):
                spans.append(Span(file.path, of_file))
            first += file.records
        assigned.append(tuple(spans))
    return assigned


class RecordConverter(Maker):
    """Writes spans of record files as files of one format, until `close`; keeps the last file open for the next span."""

    label, things = "convert", "files"

    def __init__(
        self,
        record_format: RecordFormat,
        variant: Variant = DEFAULT_DIALECT,
        labels: Sequence[str] = (),
        pred: int | None = None,
        *,
        tidies: bool = True,
    ) -> None:
        self._tidies = tidies
        self._format, self._variant, self._labels, self._pred = record_format, variant, labels, pred
        self._source: Records | None = None
        self._indices: range | NDArray[np.int64] = range(0)  # of the records read last, in that file

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_source": None}

    def prepare(self) -> None:
        kernels.load()

    def make(self, argument: Output, paths: Mapping[str, Path]) -> dict[str, Entry]:
        ((name, path),) = paths.items()
        return {name: {**argument.entry, **entry_of(self.convert(argument.spans, path))}}

    def amounts(self, entries: Sequence[Entry]) -> dict[str, float]:
        return {"records": entries[0]["examples"], "MB": entries[0]["bytes"] / 1e6}

    def convert(self, spans: Sequence[Span], path: Path) -> WrittenFile:
        """Write the records of `spans`, in order, to `path`, atomically.

        Raises `BertprepError` for a record that is corrupt, has another shape or does not fit the format, and for a failed
        write.
        """
        try:
            return write_examples(self._blocks(spans), {self._format: path}, self._variant, self._labels, tidies=self._tidies)[
                self._format
            ]
        except NoColumnsError as error:
            path = self._source.path if self._source else path
            raise BertprepError(
                f"{path}: record {self._indices[error.row]}: {error}; convert to TFRecord or OFRecord"
            ) from None

    def close(self) -> None:
        if self._source is not None:
            self._source.close()
        self._source = None

    def _blocks(self, spans: Sequence[Span]) -> Iterator[Examples]:
        buffer: Examples | None = None
        for span in spans:
            source = self._open(span.path)
            if buffer is None:
                rows = rows_in_block(max(1, _BLOCK_TOKENS // source.seq), seq=source.seq, pred=source.pred, kind=source.kind)
                buffer = source.kind.empty(rows, seq=source.seq, pred=source.pred)
            else:
                source.shape.check_same(source.path, buffer.sizes, spans[0].path, _SAME_SETTINGS)
            records = range(len(source)) if span.records is None else span.records
            for start in range(0, len(records), len(buffer)):
                self._indices = records[start : start + len(buffer)]
                source.gather_into(buffer, self._indices)
                yield buffer if len(self._indices) == len(buffer) else buffer[: len(self._indices)]

    def _open(self, path: Path) -> Records:
        if self._source is None or self._source.path != path:
            self.close()
            self._source = Records.open(path, pred=self._pred or None)
        return self._source

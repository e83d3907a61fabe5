"""Converts record files: to another format, to another number of files, or to a selection of the records.

Records keep their order, and every checksum is verified. `create` would write the same bytes for these values. The new manifest
keeps the settings of the old one and lists the checksum of each source under `converted_from`, so a killed run resumes only
with the same sources.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertprep import kernels
from bertprep.config import DEFAULT_VARIANT, SQUAD, RecordFormat, Variant
from bertprep.errors import BertprepError, UsageError
from bertprep.files.atomic import temporary_folder
from bertprep.files.checksums import BLAKE3
from bertprep.files.paths import checksum_of
from bertprep.records.arrow_reader import class_names
from bertprep.records.columns import NoColumnsError
from bertprep.records.dataset_info import ledgers_by_format
from bertprep.records.examples import (
    ClassificationExamples,
    Examples,
    Shape,
    SquadEvalExamples,
    SquadExamples,
    TokenClassificationExamples,
    rows_in_block,
)
from bertprep.records.identify import SAME_SETTINGS, IdentifiedFile
from bertprep.records.records import Records
from bertprep.records.write import WrittenFile, entry_of, write_examples
from bertprep.terminal import counted
from bertprep.work.data_set import DataSet
from bertprep.work.layout import (
    DEV,
    QUESTIONS,
    SPLITS,
    TASK_SPLITS,
    TEST,
    TRAINING,
    VOCABULARY,
    record_file_name,
    split_folder,
)
from bertprep.work.ledger import Entry, Ledger
from bertprep.work.manifest import RECORDS, TASK_RECORDS, Manifest
from bertprep.work.run import Job, Maker, Task

_BLOCK_TOKENS = 1 << 15  # tokens in a block of records, whose arrays then fit into the processor's cache


@dataclass(frozen=True)
class Span:
    """Records of a file, selected by their indices; None selects all records."""

    path: Path
    records: range | NDArray[np.int64] | None = None


@dataclass(frozen=True)
class Output:
    """A file to make: its name relative to the folder, its records, and its entry in the old manifest, or {} without one."""

    name: str
    split: str
    spans: tuple[Span, ...]
    entry: dict[str, Any]


@dataclass(frozen=True)
class Conversion:
    """The settings of a conversion: the format and its variant, and for each split the number of files and of records.

    Without `shards` each source becomes one file, and without `pick` all records are kept. With `pick` alone there is one file.
    """

    to: RecordFormat
    variant: Variant = DEFAULT_VARIANT
    shards: int | None = None
    pick: int | None = None

    @property
    def made_with(self) -> dict[str, Any]:
        """Return the settings for the manifest."""
        picked = {} if self.pick is None else {"pick": self.pick}
        return {**self.variant.made_with, "converted_to": {"format": self.to, "shards": self.shards, **picked}}


def conversion_job(data_set: DataSet, sources: Sequence[IdentifiedFile], target: Path, conversion: Conversion) -> Job:
    """Return the job that converts the identified files of a data set to files in the folder `target`.

    Raises `UsageError` if the records do not allow the selection or the number of files.
    """
    shape = sources[0].shape
    check_pick(data_set.folder, conversion.pick, shape)
    outputs = plan_outputs(data_set, sources, conversion)
    manifest = data_set.manifest or Manifest(RECORDS, sizes_of_records(shape))
    kind, known = manifest.kind, manifest.made_with
    variant = asdict(conversion.variant)
    copies = {} if data_set.vocabulary is None else {VOCABULARY: data_set.vocabulary}
    questions = data_set.folder / QUESTIONS
    if kind == TASK_RECORDS and known["task"] == SQUAD and questions.is_file():
        copies[QUESTIONS] = questions
    template = Ledger(
        folder=target,
        kind=kind,
        made_with={
            **{name: value for name, value in known.items() if name not in variant},
            **conversion.made_with,
            "converted_from": {source.name: source.blake3 for source in sources},
        },
        versions={},
        counts=manifest.counts,
        copies=copies,
        advice="choose another target folder",
    )
    to, labels = conversion.to, class_labels(data_set, sources[0])
    tasks = [Task(str(target / output.name), {to: output.name}, output) for output in outputs]
    shape_of = {source.path: source.shape for source in sources}
    shapes = {output.split: shape_of[output.spans[0].path] for output in outputs}
    ledgers = ledgers_by_format(template, {to: target}, tasks, shapes, labels)
    return Job(RecordConverter(to, conversion.variant, labels, pred=shape.pred, tidies=False), ledgers, tasks)


def convert_file(data_set: DataSet, source: IdentifiedFile, target: Path, conversion: Conversion) -> Entry:
    """Convert one file to the file `target`, and return its entry for a manifest.

    Raises `UsageError` if `target` exists with other bytes; it is kept, since nothing shows who made it.
    """
    check_pick(source.path, conversion.pick, source.shape)
    (spans,) = assign([source], None, conversion.pick)
    labels, pred = class_labels(data_set, source), source.shape.pred
    with closing(RecordConverter(conversion.to, conversion.variant, labels, pred=pred)) as converter:
        if not target.is_file():
            return entry_of(converter.convert(spans, target))
        with temporary_folder(target) as folder:
            entry = entry_of(converter.convert(spans, folder / target.name))
    if checksum_of(target) != entry[BLAKE3]:
        raise UsageError(
            f"{target}: exists with other content than this conversion's; name another file, or move this one away"
        )
    return entry


def check_pick(source: Path, pick: int | None, shape: Shape) -> None:
    """Raise `UsageError` if `pick` would select some of SQuAD's windows, which belong together."""
    if pick is not None and issubclass(shape.kind, SquadExamples | SquadEvalExamples):
        raise UsageError(
            f"--pick {pick}: {source} has windows of SQuAD questions, which are numbered consecutively and scored together; "
            "convert all of them, or make records of fewer questions with bertprep task squad --input"
        )


def class_labels(data_set: DataSet, source: IdentifiedFile) -> Sequence[str]:
    """Return the class names of a classification task from the manifest or the columns; () if they are unknown."""
    if source.shape.kind not in (ClassificationExamples, TokenClassificationExamples):
        return ()
    known: Sequence[str] = data_set.manifest.made_with.get("labels", ()) if data_set.manifest else ()
    return known or (class_names(source.path) if source.format.is_columnar else ())


def sizes_of_records(shape: Shape) -> dict[str, Any]:
    """Return the settings that can be read from the records themselves, for records without a manifest."""
    return {"seq": shape.seq, "pred": shape.pred} if shape.pred else {"seq": shape.seq}


def plan_outputs(data_set: DataSet, sources: Sequence[IdentifiedFile], conversion: Conversion) -> list[Output]:
    """Return the files to make, each in the folder of its split; records without a split go to training."""
    outputs = []
    to, shards, pick = conversion.to, conversion.shards, conversion.pick
    is_task = data_set.manifest is not None and data_set.manifest.kind == TASK_RECORDS
    for split in dict.fromkeys(source.split for source in sources):
        files = [source for source in sources if source.split == split]
        named = DEV if split == TEST and is_task else split
        folder = next((name for name in (named, data_set.folder.name) if name in (*SPLITS, *TASK_SPLITS)), TRAINING)
        for number, of_file in enumerate(assign(files, shards, pick)):
            file_name = record_file_name(to, data_set.corpus, folder, number, conversion.variant)
            known = data_set.manifest.files[files[number].name] if data_set.manifest and not (shards or pick) else {}
            outputs.append(Output(f"{split_folder(to, folder)}/{file_name}", folder, of_file, known))
    return outputs


def assign(files: Sequence[IdentifiedFile], shards: int | None, pick: int | None = None) -> list[tuple[Span, ...]]:
    """Return the spans of records for each output file of a split.

    Without `shards` and `pick`, each source becomes one file. Otherwise all records, or the picked ones, are distributed in
    order over `shards` files of nearly equal size. Picked record i has the index int(i * (records / pick)), computed in
    floating point as in MLPerf's pick_eval_samples.py.
    """
    if not shards and not pick:
        return [(Span(file.path),) for file in files]
    records = sum(file.records for file in files)
    total, shards = pick or records, shards or 1
    whose = f"{split} split" if (split := files[0].split) else "source"
    if total > records:
        raise UsageError(f"--pick {pick:,}: the {whose} has {counted(records, 'record')}; pick at most as many")
    if shards > total:
        why = f"--pick selects {counted(total, 'record')}" if pick else f"the {whose} has {counted(records, 'record')}"
        raise UsageError(f"--shards {shards:,}: {why}, and each file needs at least one; use at most {total:,}")
    picked = (np.arange(pick) * (records / pick)).astype(np.int64) if pick else None
    assigned = []
    for shard in range(shards):
        start = shard * (total // shards) + min(shard, total % shards)
        stop = (shard + 1) * (total // shards) + min(shard + 1, total % shards)
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
    """Writes spans of record files as files of one format. It keeps the last source open for the next span, until `close`."""

    label, things = "convert", "files"

    def __init__(
        self,
        record_format: RecordFormat,
        variant: Variant = DEFAULT_VARIANT,
        labels: Sequence[str] = (),
        pred: int | None = None,
        *,
        tidies: bool = True,
    ) -> None:
        self._tidies = tidies
        self._format, self._variant, self._labels, self._pred = record_format, variant, labels, pred
        self._source: Records | None = None
        self._indices: range | NDArray[np.int64] = range(0)  # of the last records that were read from it

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
        """Write the records of `spans` in order to the file `path`, atomically.

        Raises `BertprepError` if a record is corrupt, has another shape or does not fit the format, or if a write fails.
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
                source.shape.check_same(source.path, buffer.sizes, spans[0].path, SAME_SETTINGS)
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

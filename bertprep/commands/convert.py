"""Convert records to another format, another variant or another number of files, all or some; each new file is one task.

The new manifest lists the checksum of each source under `converted_from`, so a killed run resumes only from the same sources,
and keeps the old one's metadata of the records.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertprep import pool
from bertprep.commands import split_rows, tell_finished
from bertprep.commands.request import InParts, InRows, OfTokens, function_of
from bertprep.config import DEFAULT_FORMATS, RECORD_FORMATS, SQUAD, RecordFormat, Variant
from bertprep.errors import UsageError
from bertprep.files.atomic import temporary_folder
from bertprep.files.checksums import listed_checksum
from bertprep.files.paths import as_path, checksum_like, path_arg, real_path
from bertprep.options import described, narrowed, option
from bertprep.progress import Reporter
from bertprep.terminal import print_results, print_table, warn
from bertprep.work.layout import MDS_FORMAT, QUESTIONS, VOCABULARY
from bertprep.work.manifest import MDS, RECORDS, TASK_RECORDS

if TYPE_CHECKING:
    from bertprep.records.convert import IdentifiedFile
    from bertprep.records.examples import Shape
    from bertprep.work.data_set import DataSet
    from bertprep.work.run import Made


_PART = re.compile(r"part-\d+")


@dataclass(frozen=True)
class Converted:
    """The result of `convert`: a file, or a folder of files with the manifest's entry for each, and the seconds it took.

    `made` is False if nothing was missing.
    """

    target: Path
    format: str
    files: dict[str, dict[str, Any]]
    seconds: float
    made: bool


@dataclass(frozen=True, kw_only=True)
class Convert(Variant, InRows, InParts):
    """Which records, or token shards, become what, and where."""

    source: Path | str = field(
        kw_only=False,
        metadata=described(
            "a record file or a folder of them, written by any tool; for MDS a folder of token shards",
            metavar="SRC",
            check=path_arg,
            positional=True,
        ),
    )
    target: Path | str = field(
        kw_only=False, metadata=described("file or folder to write", metavar="DST", check=path_arg, positional=True)
    )
    to: str | None = option(
        None, "tfrecord, ofrecord, arrow or parquet, or of token shards mds (default: what the name of DST says, such as "
        "out.arrow, or else ofrecord for tfrecord, tfrecord for any other)", metavar="FORMAT",
        choices=(*RECORD_FORMATS, MDS_FORMAT),
    )  # fmt: skip
    shards: int | None = option(
        None, "number of files of each split, written to a folder (default: as many as the source has)", least=1
    )
    pick: int | None = option(
        None, "take N records of each split, evenly spaced and in order, into one file or --shards of them; not of SQuAD's "
        "(default: all)", metavar="N", least=1,
    )  # fmt: skip

    def convert(self) -> Converted:
        """Write the records of a file or a folder in another format, number of files, or selection; no value changes.

        The name of `target` implies the format if `to` does not. A file becomes the file `target`; a folder a folder with the
        same splits, file for file, or with `shards` files for each. With `pick` only records int(i * (n / pick)) of each split
        are taken. The vocabulary is copied next to the records. Finished files are kept. With `part`, such as "3/400", only
        that part is made (docs/cluster.md).

        Raises `UsageError` for a request that cannot be met, `BertprepError` for corrupt records, files that differ from their
        manifest, and a `target` that holds something else.

            bertprep.convert("data/tfrecord/.../sample", "records/ofrecord", shards=8)
        """
        from bertprep.work.choose import find_records

        started, source, target = time.monotonic(), as_path(self.source), as_path(self.target)
        workers = self.start_workers(shared=target)
        self.check_rows("--to mds", is_mds=self.to == MDS_FORMAT)
        self._check_paths(source, target)
        if self.to == MDS_FORMAT:
            rows = make_mds(self, source, target, workers)
            return Converted(target, MDS_FORMAT, rows.manifests[MDS].files, time.monotonic() - started, bool(rows.tasks))
        data_set = find_records(source)
        for note in data_set.notes:
            warn(note)
        if source.is_file() and self.shards is None:
            if self.part:
                raise UsageError(f"{source}: is one file, which has no parts; leave out --part, or give --shards")
            (to, files), made = _convert_file(data_set, self), True
        else:
            to, files, made = convert_data_set(data_set, self, workers)
        return Converted(target, to, files, time.monotonic() - started, made)

    @property
    def variant(self) -> Variant:
        return narrowed(Variant, self)

    def choose_format(self, found: set[RecordFormat]) -> RecordFormat:
        to = _format_of_target(as_path(self.target), self.to)
        if to is None and len(found) > 1:
            raise UsageError(f"{self.source}: holds files of several formats; choose one with --to")
        to = to or next(name for name in DEFAULT_FORMATS if name not in found)
        self.variant.check_fits((to,), "--to")
        return to

    def _check_paths(self, source: Path, target: Path) -> None:
        if self.to == MDS_FORMAT:
            variant = {f"--{name.replace('_', '-')}": value for name, value in asdict(self.variant).items()}
            given = {"--shards": self.shards, "--pick": self.pick, **(variant if self.variant != Variant() else {})}
            for name, value in given.items():
                if value is not None:
                    raise UsageError(f"{name} {value}: is not for --to mds; leave it out")
        elif (to := _format_of_target(target, self.to)) is not None:
            self.variant.check_fits((to,), "--to")
        real_source, real_target = map(real_path, (source, target))
        if real_source == real_target:
            raise UsageError(f"{target}: is the source itself; name another file or folder for the result")
        if source.is_file() and self.shards is None and self.to != MDS_FORMAT:
            if target.is_dir():
                raise UsageError(f"{target}: is a folder; name the file to write, or give --shards")
            return
        if target.is_file():
            raise UsageError(f"{target}: is a file; name a folder for the records")
        if real_target in real_source.parents or real_source in real_target.parents:
            raise UsageError(f"{target}: source and target must not contain each other ({source}); name a folder outside")


REQUEST = Convert
convert = function_of(Convert, Convert.convert)


def run(request: Convert) -> None:
    """Convert, and print a summary of each split."""
    converted = request.convert()
    count = "samples" if converted.format == MDS_FORMAT else "examples"
    rows = [(converted.format, *row) for row in split_rows(converted.files, count)]
    print_table([("format", "split", "files", "records", "MB"), *rows])
    if converted.format != MDS_FORMAT and _format_of_target(converted.target, request.to) is None:
        print_results(f"{converted.format} by default, as the name {converted.target.name} says no format; --to names another")
    if converted.format == RecordFormat.ARROW and converted.target.is_dir():
        print_results(f'datasets.load_from_disk("{converted.target}") opens them')
    how = f"made in {converted.seconds:.1f} s" if converted.made else "nothing to do, all files exist"
    print_results(f"{how}: {converted.target}")
    tell_finished(request)


def make_mds(request: Convert | OfTokens, source: Path, target: Path, workers: int) -> Made:
    """Make the rows of a folder of token shards, as far as they are missing."""
    from bertprep.tokens.documents import open_all_splits
    from bertprep.tokens.mds import INPUT_IDS, mds_job
    from bertprep.work.run import run as run_tasks

    maker, ledger, tasks = mds_job(open_all_splits(source), target, request.seq or 0, request.column or INPUT_IDS)
    return run_tasks(maker, {MDS: ledger}, tasks, request.read_part(), workers, request.reporter)


def _format_of_target(target: Path, to: str | None) -> RecordFormat | None:
    suffix = Path(target.name.removesuffix(".gz")).suffix[1:].lower()
    named = "ofrecord" if _PART.fullmatch(target.name) else suffix if suffix in RECORD_FORMATS else None
    if named is None or to == named:
        return None if to is None else RecordFormat(to)
    if to is None:
        return RecordFormat(named)
    raise UsageError(f"--to {to}: {target} is the name of {named} files; name one for {to}, or leave --to out")


def _check_pick(source: Path, pick: int | None, shape: Shape) -> None:
    from bertprep.records.examples import SquadEvalExamples, SquadExamples

    if pick is not None and issubclass(shape.kind, SquadExamples | SquadEvalExamples):
        raise UsageError(
            f"--pick {pick}: {source} has windows of SQuAD's questions, which are numbered consecutively and scored together; "
            "convert all of them, or make records of fewer questions: bertprep task squad --input"
        )


def _convert_file(data_set: DataSet, request: Convert) -> tuple[RecordFormat, dict[str, dict[str, Any]]]:
    from bertprep.records.convert import RecordConverter, assign, identify
    from bertprep.records.write import entry_of

    source, target = as_path(request.source), as_path(request.target)
    identified = identify(source)
    _check_pick(source, request.pick, identified.shape)
    to = request.choose_format({identified.format})
    (spans,) = assign([identified], None, request.pick)
    with contextlib.closing(RecordConverter(to, request.variant, _labels(data_set, identified))) as converter:
        if not target.is_file():
            return to, {target.name: entry_of(converter.convert(spans, target))}
        with temporary_folder(target) as folder:  # nothing tells who made the records that are there, so they stay
            entry = entry_of(converter.convert(spans, folder / target.name))
    if (listed := listed_checksum(entry)) != checksum_like(listed, target):
        raise UsageError(f"{target}: exists, and is not what this conversion gives; name another file, or move this one away")
    return to, {target.name: entry}


def convert_data_set(
    data_set: DataSet, request: Convert, workers: int = 1
) -> tuple[RecordFormat, dict[str, dict[str, Any]], bool]:
    """Convert a data set with its manifest; return its format, the entries of its files, and whether any was made."""
    from bertprep.records.convert import RecordConverter, plan_outputs
    from bertprep.records.dataset_info import ledgers_by_format
    from bertprep.work.ledger import Ledger
    from bertprep.work.run import Task
    from bertprep.work.run import run as run_tasks

    target, shards, pick, variant = as_path(request.target), request.shards, request.pick, request.variant
    data_set = data_set if data_set.is_whole else data_set.by_itself()
    sources = _identify_all(data_set, workers, request.reporter)
    _check_pick(data_set.folder, pick, sources[0].shape)
    to = request.choose_format({source.format for source in sources})
    outputs = plan_outputs(data_set, sources, to, shards, variant, pick)
    kind = data_set.manifest.kind if data_set.manifest else RECORDS
    known = data_set.manifest.made_with if data_set.manifest else _sizes(sources[0].shape)
    questions = data_set.folder / QUESTIONS
    copies = {} if data_set.vocabulary is None else {VOCABULARY: data_set.vocabulary}
    if kind == TASK_RECORDS and known["task"] == SQUAD and questions.is_file():
        copies[QUESTIONS] = questions
    template = Ledger(
        folder=target,
        kind=kind,
        made_with={
            **{name: value for name, value in known.items() if name not in asdict(variant)},
            **variant.made_with,
            "converted_to": {"format": to, "shards": shards, **({} if pick is None else {"pick": pick})},
            "converted_from": {source.name: source.checksum.digits for source in sources},
        },
        versions={},
        copies=copies,
        advice="choose another target folder",
    )
    tasks = [Task(str(target / each.name), {to: each.name}, each) for each in outputs]
    shape_of = {source.path: source.shape for source in sources}
    shapes = {each.split: shape_of[each.spans[0].path] for each in outputs}
    labels = _labels(data_set, sources[0])
    ledgers = ledgers_by_format(template, {to: target}, tasks, shapes, labels)
    with contextlib.closing(RecordConverter(to, variant, labels, pred=sources[0].shape.pred, tidies=False)) as converter:
        made = run_tasks(converter, ledgers, tasks, request.read_part(), workers, request.reporter)
    return to, made.manifests[to].files, bool(made.tasks)


def _labels(data_set: DataSet, source: IdentifiedFile) -> Sequence[str]:
    from bertprep.records.arrow_reader import class_names
    from bertprep.records.examples import ClassificationExamples

    if source.shape.kind is not ClassificationExamples:
        return ()
    known: Sequence[str] = data_set.manifest.made_with.get("labels", ()) if data_set.manifest else ()
    return known or (class_names(source.path) if source.format.is_columnar else ())


def _sizes(shape: Shape) -> dict[str, int]:
    return {"seq": shape.seq, "pred": shape.pred} if shape.pred else {"seq": shape.seq}


def _identify_all(data_set: DataSet, workers: int, reporter: Reporter) -> list[IdentifiedFile]:
    from bertprep import kernels
    from bertprep.files.checksums import BLAKE3, find_checksum
    from bertprep.records.convert import check_identified, identify, with_one_pred

    kernels.load()
    identified: dict[str, IdentifiedFile] = {}
    entries = data_set.manifest.files if data_set.manifest else {}
    tasks = [(name, (name, split)) for name, split in data_set.files.items()]

    def read(source: tuple[str, str]) -> IdentifiedFile:
        name, split = source
        listed = find_checksum(entries.get(name, {}))
        return identify(data_set.folder / name, name, split, listed.algorithm if listed else BLAKE3)

    with (
        reporter.progress("read", len(tasks), "files") as shown,
        contextlib.closing(pool.run(read, tasks, workers=workers)) as results,
    ):
        for name, found in results:
            identified[name] = found
            shown.advance(records=found.records, MB=found.size_bytes / 1e6)
    files = with_one_pred([identified[name] for name in data_set.files])
    check_identified(data_set, files)
    return files

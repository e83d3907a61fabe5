"""Records of one format to the other's, in another dialect, or over another number of files: each new file is one task.

What a folder is made of is identified first, by the sha256 of every file, and stands in the new manifest under
`converted_from`; so a killed run goes on only with the same sources, and the bytes are the same whatever the number of
workers. All that the old manifest knew is kept.
"""

import contextlib
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bertprep import kernels, pool
from bertprep.config import DEFAULT_DIALECT, RECORD_FORMATS, Dialect, RecordFormat, check_format
from bertprep.errors import BertprepError, UsageError
from bertprep.files.atomic import atomic_file
from bertprep.progress import Reporter
from bertprep.records.convert import RecordConverter, Span
from bertprep.records.deal import Output, plan_outputs
from bertprep.records.make import KIND
from bertprep.records.writer import WrittenFile
from bertprep.workspace.data_sets import FoundFile, IdentifiedFile, RecordFolder, check_identified, find_records, identify
from bertprep.workspace.layout import MANIFEST, VOCABULARY
from bertprep.workspace.manifest import JOURNAL_SUFFIX, Journal, read_finished, sha256_of, versions_of
from bertprep.workspace.record_home import check_vocabulary_place


@dataclass(frozen=True)
class Converted:
    """What `convert` leaves: a file, or a folder of files with the manifest's facts of each, and the seconds it took."""

    target: Path
    format: str
    files: dict[str, dict[str, Any]]
    seconds: float


def convert(
    source: Path | str,
    target: Path | str,
    *,
    to: str | None = None,
    dialect: Dialect = DEFAULT_DIALECT,
    shards: int | None = None,
    workers: int | None = None,
    progress: bool = False,
) -> Converted:
    """Write the records of a file, or of a folder, in the format `to`, by default the other one; no value changes.

    TFRecords are written in `dialect`, whatever that of the source is; so with `to="tfrecord"` they change to it or from it.

    A file becomes the file `target`. A folder becomes the folder `target`, with training/ and test/ below it as in the source,
    or else with a folder named for the format: file for file, or with `shards` dealt over that many files for each split, in
    order, in runs that differ by one record at most; so may a single file. The vocabulary of the records goes along. What
    other tools wrote is taken as well: see docs/formats.md. What is already there is not made again.

    Raises `UsageError` for a request that cannot be met, `BertprepError` for damaged records, for files that are not those
    of their manifest, and where `target` holds something else.

        bertprep.convert("data/tfrecord/.../sample", "records/ofrecord", shards=8)
    """
    reporter = Reporter(enabled=progress)
    started = time.monotonic()
    source, target, workers = Path(source), Path(target), workers or pool.default_workers()
    to = None if to is None else check_format(to, "--to")
    _check_request(source, target, to, dialect, shards)
    folder = find_records(source)
    if source.is_file() and shards is None:
        to, files = _convert_file(folder.files[0], target, to, dialect)
    else:
        to, files = _convert_folder(folder, target, to, dialect, shards, workers, reporter)
    return Converted(target, to, files, time.monotonic() - started)


def _check_request(source: Path, target: Path, to: RecordFormat | None, dialect: Dialect, shards: int | None) -> None:
    """Raise `UsageError` for what cannot be, whatever the records are."""
    if to is not None:
        dialect.check_fits((to,), "--to")
    if shards is not None and shards < 1:
        raise UsageError(f"--shards {shards}: there must be at least 1 file")
    real_source, real_target = (Path(os.path.realpath(path)) for path in (source, target))  # resolve() fails on a symlink loop
    if real_source == real_target:
        raise UsageError(f"{target}: is what is to be converted; name another place for the result")
    if source.is_file() and shards is None:
        if target.is_dir():
            raise UsageError(f"{target}: is a folder; name the file to be made in it, or give --shards")
        return
    if target.is_file():
        raise UsageError(f"{target}: is a file; name a folder for the records")
    if real_target in real_source.parents or real_source in real_target.parents:
        raise UsageError(f"{target}: one of it and {source} lies in the other; name a folder apart")


def _other_format(found: set[RecordFormat], source: Path) -> RecordFormat:
    if len(found) > 1:
        raise UsageError(f"{source}: holds files of both formats; choose one with --to")
    return next(name for name in RECORD_FORMATS if name not in found)


def _convert_file(
    source: FoundFile, target: Path, to: RecordFormat | None, dialect: Dialect
) -> tuple[RecordFormat, dict[str, dict[str, Any]]]:
    """(format, facts of the file): one file on its own, without a manifest."""
    identified = identify(source)
    to = to or _other_format({identified.format}, source.path)
    dialect.check_fits((to,), "--to")
    if target.exists():
        identify(FoundFile(target, target.name, ""))  # only records are replaced
    with contextlib.closing(RecordConverter(to, dialect)) as converter:
        written = converter.convert([Span(source.path)], target)
    return to, {target.name: _facts(written)}


def _convert_folder(
    folder: RecordFolder,
    target: Path,
    to: RecordFormat | None,
    dialect: Dialect,
    shards: int | None,
    workers: int,
    reporter: Reporter,
) -> tuple[RecordFormat, dict[str, dict[str, Any]]]:
    """(format, facts of the files): a data set, with its manifest."""
    sources = _identify_all(folder, workers, reporter)
    to = to or _other_format({source.format for source in sources}, folder.path)
    dialect.check_fits((to,), "--to")
    outputs = plan_outputs(folder, sources, target, to, shards, dialect)
    known = folder.manifest.made_with if folder.manifest else {"seq": sources[0].seq, "pred": sources[0].pred}
    made_with = {
        **{name: value for name, value in known.items() if name not in asdict(dialect)},
        **dialect.made_with,
        "converted_to": {"format": to, "shards": shards},
        "converted_from": {source.file.name: source.sha256 for source in sources},
    }
    if finished := read_finished(target, KIND, made_with):
        reporter.say(f"convert: all {len(outputs):,} files are made already")
        return to, finished.files
    _check_free(target, outputs)
    if folder.vocabulary is not None:
        check_vocabulary_place(target, sha256_of(folder.vocabulary))
    owned = {output.name.rpartition("/")[0] or "." for output in outputs}
    with (
        Journal(target, KIND, made_with, owned=owned) as journal,
        contextlib.closing(RecordConverter(to, dialect)) as converter,
    ):
        _keep_vocabulary(folder, target)
        kernels.load()
        tasks = [(str(output.path), output) for output in outputs if output.name not in journal.done]

        def make(output: Output) -> tuple[str, WrittenFile]:
            return output.name, converter.convert(output.spans, output.path)

        facts = {output.name: output.facts for output in outputs}
        with (
            reporter.progress("convert", len(tasks), "files") as shown,
            contextlib.closing(pool.run(make, tasks, workers=workers)) as results,
        ):
            for _, (name, written) in results:
                journal.add(name, {**facts[name], **_facts(written)})
                shown.advance(records=written.records, MB=written.bytes / 1e6)
        manifest = journal.finish([output.name for output in outputs], versions_of("llvmlite", "numpy"))
    return to, manifest.files


def _identify_all(folder: RecordFolder, workers: int, reporter: Reporter) -> list[IdentifiedFile]:
    """All files of a folder, read and found to be what they should be."""
    kernels.load()
    identified: dict[str, IdentifiedFile] = {}
    tasks = [(str(file.path), file) for file in folder.files]
    with (
        reporter.progress("read", len(tasks), "files") as shown,
        contextlib.closing(pool.run(identify, tasks, workers=workers)) as results,
    ):
        for name, found in results:
            identified[name] = found
            shown.advance(records=found.records, MB=found.size_bytes / 1e6)
    files = [identified[str(file.path)] for file in folder.files]
    check_identified(folder, files)
    return files


def _facts(written: WrittenFile) -> dict[str, Any]:
    return {"examples": written.records, "bytes": written.bytes, "sha256": written.sha256}


def _check_free(target: Path, outputs: Sequence[Output]) -> None:
    """Raise where files stand in the way that are in no manifest: nobody knows what they are."""
    if (target / MANIFEST).exists() or (target / (MANIFEST + JOURNAL_SUFFIX)).exists():
        return
    for output in outputs:
        if output.path.exists():
            raise BertprepError(
                f"{output.path}: stands there already, in no manifest; choose another folder, or remove this one"
            )


def _keep_vocabulary(folder: RecordFolder, target: Path) -> None:
    """Lay the vocabulary beside the manifest: the records mean nothing without it."""
    if folder.vocabulary is not None:
        content, kept = folder.vocabulary.read_bytes(), target / VOCABULARY
        if not (kept.is_file() and kept.read_bytes() == content):
            with atomic_file(kept) as file:
                file.write(content)

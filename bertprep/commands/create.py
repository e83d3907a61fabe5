"""`bertprep create`: text shards become masked-LM record files; earlier stages run first if their output is missing.

With `--task` the files of a fine-tuning task become records instead: see `task_records`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

from bertprep.commands import (
    DEFAULT_VOCABULARY_SIZE,
    Created,
    add_engine,
    add_part,
    add_record_options,
    add_verify,
    part_of,
    record_arguments,
    split_rows,
    task_records,
    tell_created,
)
from bertprep.config import DEFAULT_DIALECT, DEFAULT_FORMATS, Dialect, InstanceSettings
from bertprep.errors import UsageError
from bertprep.files.places import place
from bertprep.options import path_or_url
from bertprep.pool import LOCAL, choose_workers
from bertprep.progress import Reporter
from bertprep.terminal import tell_table
from bertprep.workspace.parts import Part, read_part
from bertprep.workspace.targets import check_target


def add_options(parser: argparse.ArgumentParser) -> None:
    add_record_options(parser, only_given=True)
    add_engine(parser)
    add_verify(parser)
    add_part(parser)
    parser.add_argument(
        "--dry-run", action="store_true",
        help="write nothing: forecast records, disk, time and memory, from making a sample of the text in a temporary folder",
    )  # fmt: skip
    parser.add_argument("--json", type=path_or_url, metavar="FILE", help="write the forecast of --dry-run to FILE too")
    task_records.add_options(parser)


def run(options: argparse.Namespace) -> None:
    """Make the records, and print a summary of each format and split."""
    if options.json and not options.dry_run:
        raise UsageError("--json: is for the forecast of --dry-run; add it")
    check_target("--json", options.json, ".json")
    if options.dry_run:
        if options.task is not None:
            raise UsageError("--dry-run: forecasts records for pretraining, not those of --task; leave one out")
        from bertprep.commands import forecast

        task_records.check_no_task(options)
        forecast.run(options)
        return
    if options.task is not None:
        task_records.run(options)
        return
    task_records.check_no_task(options)
    created = create(
        **record_arguments(options), engine=options.engine, verify=options.verify, part=part_of(options), progress=True
    )
    rows: list[tuple[str, ...]] = [("format", "split", "files", "documents", "records", "MB")]
    for name, manifest in created.manifests.items():
        rows += [(name, *row) for row in split_rows(manifest.files, "documents", "examples")]
    tell_table(rows)
    tell_created(created, options)


def create(
    *,
    settings: InstanceSettings | None = None,
    dialect: Dialect = DEFAULT_DIALECT,
    formats: str | tuple[str, ...] = DEFAULT_FORMATS,
    vocab: Path | str | None = None,
    vocab_size: int = DEFAULT_VOCABULARY_SIZE,
    inputs: Sequence[Path | str] = (),
    lines_are_sentences: bool = False,
    output: Path | str | None = None,
    workdir: Path | str = "data",
    corpus: str | None = None,
    workers: int | None = None,
    engine: str = LOCAL,
    verify: bool = False,
    part: Part | str | None = None,
    progress: bool = False,
) -> Created:
    """Make masked-LM record files: exactly the examples of Google's generator, each text shard with a seed of its own.

    With `inputs` and `output`, each given text file (one sentence per line, a blank line after each document) becomes one
    record file per format in output/FORMAT, with one manifest and vocabulary for all in `output`; so does each token shard of a
    given folder. Running text is refused where pairs are made of it, unless `lines_are_sentences`. Otherwise the text shards of
    `corpus` in `workdir` do, both splits; those of the sample corpus and of downloads are made first if they are missing.
    `vocab` is a file or the name of a model whose vocabulary was downloaded; without it a vocabulary of `vocab_size` tokens is
    trained, and kept. `dialect` is the form of the TFRecords; with any but the default, TFRecord must be the only format.
    Existing files are kept if their size is right, or with `verify`, which reads them, their sha256. `engine` "ray" has the
    work done on the Ray cluster at $RAY_ADDRESS.

    With `part`, such as "3/400", only that part of the shards is made, and the manifest by the part that finds all there
    (docs/cluster.md); the text shards must be finished.

    Raises `UsageError` for a request that cannot be met, `BertprepError` for invalid text or vocabulary, a failing machine, or
    an output folder made with other settings.

        bertprep.create(settings=InstanceSettings(seq=512, pred=80), workdir="data", progress=True)
    """
    from bertprep.commands.record_job import mask_remark, padding_remark, resolve
    from bertprep.records.make import RecordMaker, make_records

    started = time.monotonic()
    workers = choose_workers(workers, engine, shared=place(workdir if output is None else output))
    reporter = Reporter(enabled=progress)
    part = read_part(part)
    if bool(inputs) != (output is not None):
        raise UsageError("--input and --output go together: text files as shards, and the folder for their records")
    job = resolve(
        settings=settings or InstanceSettings(), dialect=dialect, formats=formats, vocab=vocab, vocab_size=vocab_size,
        inputs=inputs, output=output, workdir=workdir, corpus=corpus, workers=workers, verify=verify, part=part,
        takes_tokens=True, lines_are_sentences=lines_are_sentences, reporter=reporter,
    )  # fmt: skip
    for line in (*padding_remark(job.vocabulary), *mask_remark(job.settings)):
        reporter.say(line)
    manifests, made = make_records(
        job.shards,
        job.homes,
        job.made_with,
        RecordMaker(job.vocabulary, job.settings, job.dialect),
        job.workers,
        reporter,
        check_texts=bool(inputs),
        verify=verify,
        part=part,
    )
    folders = {str(name): home.records for name, home in job.homes.items()}
    return Created(folders, {str(name): manifest for name, manifest in manifests.items()}, time.monotonic() - started, made)

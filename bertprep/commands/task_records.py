"""`bertprep create --task squad` and `--task glue`: the files of a fine-tuning task become record files."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

from bertprep.commands import Created, part_of, split_rows, tell_created
from bertprep.config import (
    DEFAULT_DIALECT,
    DEFAULT_FORMATS,
    GLUE,
    SQUAD,
    SQUAD_VERSIONS,
    TASKS,
    Dialect,
    GlueSettings,
    InstanceSettings,
    SquadSettings,
)
from bertprep.errors import UsageError
from bertprep.files.places import place
from bertprep.options import add_options as add_settings
from bertprep.options import read_options
from bertprep.pool import LOCAL, choose_workers
from bertprep.progress import Reporter
from bertprep.terminal import tell, tell_table
from bertprep.workspace.layout import TRAINING
from bertprep.workspace.manifest import TASK_RECORDS
from bertprep.workspace.parts import Part, read_part

_SETTINGS = {SQUAD: SquadSettings, GLUE: GlueSettings}
_OF_TASK = {SQUAD: ("version", "doc_stride", "max_query"), GLUE: ("name", "labels")}
"""The options of each task that the other lacks."""
_UNUSUAL = {
    "dropped": "whose answer is not in their context",
    "recovered": "which run_squad.py drops for the white space in or around their answer",
}
"""What the manifest counts of SQuAD's questions for training besides all of them."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options for fine-tuning tasks; --seq, --cased and those that say where are `create`'s."""
    group = parser.add_argument_group(
        "fine-tuning tasks",
        "Of the options above, tasks take --seq (default: 384 for squad, 128 for glue), --cased, --format, --compress, --vocab "
        "(default: that of bert-base), --input, --output, --workdir, --workers, --engine, --part, --finish and --verify.",
    )
    group.add_argument("--task", choices=TASKS, help="make records of this task, from what was downloaded or from --input")
    group.add_argument("--version", choices=SQUAD_VERSIONS, help=f"squad: version (default: {SQUAD_VERSIONS[0]})")
    add_settings(group, SquadSettings, without=("seq", "cased"), only_given=True)
    group.add_argument("--name", metavar="NAME", help="glue: task, such as mrpc, or a name of your own for --input")
    group.add_argument(
        "--labels", metavar="NAME,NAME[,...]",
        help="glue: labels of your own task, in the order of their numbers (default: those of the training file, sorted)",
    )  # fmt: skip


def check_no_task(options: argparse.Namespace) -> None:
    """Raise where an option of a task is given without it."""
    for task, names in _OF_TASK.items():
        for name in names:
            if getattr(options, name, None) is not None:
                raise UsageError(f"{_spelled(name)}: is for --task {task}; add it")


def run(options: argparse.Namespace) -> None:
    """Make the records of a task, and print what each format and split has."""
    task = options.task
    _check_fits(options, task)
    created = create_task(
        task,
        settings=read_options(_SETTINGS[task], options),
        version=options.version or SQUAD_VERSIONS[0],
        name=options.name,
        labels=options.labels.split(",") if options.labels else (),
        dialect=read_options(Dialect, options),
        formats=options.format,
        vocab=options.vocab,
        inputs=options.input,
        output=options.output,
        workdir=options.workdir,
        workers=options.workers,
        engine=options.engine,
        verify=options.verify,
        part=part_of(options),
        progress=True,
    )
    rows: list[tuple[str, ...]] = [("format", "split", "files", "records", "MB")]
    for name, manifest in created.manifests.items():
        rows += [(name, *row) for row in split_rows(manifest.files, "examples")]
    tell_table(rows)
    manifest = next(iter(created.manifests.values()))
    counts, labels = manifest.counts, manifest.made_with.get("labels")
    if labels:
        tell(f"labels: {', '.join(labels)}")  # a misspelled one would be a class of its own
    for name, why in _UNUSUAL.items():
        if found := counts.get(f"{TRAINING}_{name}"):
            tell(f"{name}: {found:,} of {counts[f'{TRAINING}_questions']:,} questions for training, {why}")
    tell_created(created, options)


def _check_fits(options: argparse.Namespace, task: str) -> None:
    """Raise where an option is given that the task does not have."""
    other = next(name for name in TASKS if name != task)
    for name in _OF_TASK[other]:
        if getattr(options, name, None) is not None:
            raise UsageError(f"{_spelled(name)}: is for --task {other}, not for --task {task}; leave it out")
    own = {field.name for field in fields(_SETTINGS[task])}
    pretraining = [field.name for field in fields(InstanceSettings) if field.name not in own and hasattr(options, field.name)]
    pretraining += ["corpus"] if options.corpus is not None else []
    pretraining += ["vocab_size"] if options.vocab_size is not None else []
    pretraining += ["lines_are_sentences"] if options.lines_are_sentences else []
    if pretraining:
        raise UsageError(f"{_spelled(pretraining[0])}: is for pretraining, not for --task {task}; leave it out")


def _spelled(name: str) -> str:
    return "--" + name.replace("_", "-")


def create_task(
    task: str,
    *,
    settings: SquadSettings | GlueSettings | None = None,
    version: str = SQUAD_VERSIONS[0],
    name: str | None = None,
    labels: Sequence[str] = (),
    dialect: Dialect = DEFAULT_DIALECT,
    formats: str | tuple[str, ...] = DEFAULT_FORMATS,
    vocab: Path | str | None = None,
    inputs: Sequence[Path | str] = (),
    output: Path | str | None = None,
    workdir: Path | str = "data",
    workers: int | None = None,
    engine: str = LOCAL,
    verify: bool = False,
    part: Part | str | None = None,
    progress: bool = False,
) -> Created:
    """Make record files of a task, "squad" or "glue": the examples of Google's `run_squad.py` or `run_classifier.py`.

    They are made of what `download` brought, or of `inputs`: files whose names begin with train, dev or test, or a folder of
    them. `version` is SQuAD's; `name` is a task of GLUE, or one of the user's own with texts and labels in TSV or JSON
    Lines, whose classes are `labels` or else those of the training file. `vocab` is a file or the name of a downloaded model,
    bert-base by default. The records are in `output`/FORMAT, or in the workspace. What exists is not made again. With `part`,
    such as "3/400", only that part of the files is made (docs/cluster.md).

    Raises `UsageError` for a request that cannot be met, `BertprepError` for wrong files, vocabulary or machine, and where the
    output folder was made with other settings.

        bertprep.create_task("glue", name="mrpc", workdir="data")
    """
    from bertprep.commands.task_job import resolve_task
    from bertprep.records.make import make_records
    from bertprep.tasks.records import TaskRecordMaker

    started = time.monotonic()
    part = read_part(part)
    workers = choose_workers(workers, engine, shared=place(workdir if output is None else output))
    if task not in TASKS:
        raise UsageError(f"--task {task}: unknown; choose one of {', '.join(TASKS)}")
    if settings is None:
        settings = SquadSettings() if task == SQUAD else GlueSettings()
    if not isinstance(settings, _SETTINGS[task]):
        raise UsageError(f"--task {task}: takes {_SETTINGS[task].__name__}, found {type(settings).__name__}")
    job = resolve_task(
        settings=settings, version=version, name=name, labels=labels, dialect=dialect, formats=formats, vocab=vocab,
        inputs=inputs, output=output, workdir=workdir,
    )  # fmt: skip
    reporter = Reporter(enabled=progress)
    for line in job.remarks:
        reporter.say(line)
    manifests, made = make_records(
        job.shards,
        job.homes,
        job.made_with,
        TaskRecordMaker(job.source, dialect),
        workers,
        reporter,
        check_texts=False,
        verify=verify,
        kind=TASK_RECORDS,
        counts=job.source.counts,
        kept=job.kept,
        advice="choose another --output or --workdir",
        part=part,
    )
    folders = {str(each): home.records for each, home in job.homes.items()}
    return Created(folders, {str(each): manifest for each, manifest in manifests.items()}, time.monotonic() - started, made)

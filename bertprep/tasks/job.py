"""Builds the job that makes the record files of a fine-tuning task, from the examples of its files, by split."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bertprep.config import GLUE, SQUAD, GlueSettings, RecordFormat, SquadSettings, Variant
from bertprep.errors import UsageError
from bertprep.files.checksums import SHA256
from bertprep.files.paths import checksum_of
from bertprep.instances import Vocabulary
from bertprep.instances.generator import GENERATOR
from bertprep.instances.lower_case import NO_CHANGES, LetterChanges, measure_texts
from bertprep.instances.vocabulary import padding_warnings, repeat_warnings
from bertprep.records.dataset_info import ledgers_by_format
from bertprep.tasks import EXAMPLES_PER_FILE
from bertprep.tasks.glue import GlueTask, find_task, own_task
from bertprep.tasks.glue_files import TextFile, canonical, find_labels, leave_out_unlabelled, read_file
from bertprep.tasks.records import TaskRecordMaker, TaskSource, glue_source, squad_source
from bertprep.tasks.squad import read_squad
from bertprep.tasks.squad_features import SquadFeatures, make_features
from bertprep.tasks.squad_offsets import explain_offsets
from bertprep.terminal import counted, listed
from bertprep.untrusted import CORPUS
from bertprep.work.layout import DEV, QUESTIONS, TRAINING, VOCABULARY, record_names
from bertprep.work.ledger import Ledger
from bertprep.work.manifest import TASK_RECORDS
from bertprep.work.run import Job, Task


@dataclass(frozen=True)
class TaskRecords:
    """The examples of a task, from its files by split, with the settings and file checksums for the manifest.

    `data_set` is the name of the folder for the records, such as squad_v1.1 or glue_mrpc.
    """

    task: str
    data_set: str
    files: Mapping[str, Path]
    source: TaskSource
    made_with: dict[str, Any]
    warnings: list[str] = field(default_factory=list)
    copies: Mapping[str, Path] = field(default_factory=dict)
    letters: LetterChanges = NO_CHANGES
    """What lower-casing changes in the texts."""


def task_job(records: TaskRecords, vocabulary: Vocabulary, variant: Variant, folders: Mapping[RecordFormat, Path]) -> Job:
    """Return the job that makes the records of a task, in a folder for each format."""
    tasks = [
        Task(
            f"{records.files[split]}, block {number}",
            record_names([*folders], records.data_set, split, number, variant),
            (split, number),
        )
        for split, examples in records.source.splits.items()
        for number in range(examples.files)
    ]
    is_cased = records.made_with["cased"]
    template = Ledger(
        folder=next(iter(folders.values())),
        kind=TASK_RECORDS,
        made_with={
            "generator": GENERATOR,
            "task": records.task,
            "corpus": records.data_set,
            **records.made_with,
            **variant.made_with,
            "examples_per_file": EXAMPLES_PER_FILE,
            "vocabulary": vocabulary.made_with,
        },
        versions={},
        counts={**records.source.counts, **({} if is_cased else records.letters.counts)},
        copies={VOCABULARY: vocabulary.path, **records.copies},
        advice="choose another --output or --workdir",
    )
    warnings = [*padding_warnings(vocabulary), *repeat_warnings(vocabulary), *records.warnings]
    if records.letters.are_many and not is_cased:
        warnings.append(f"{records.letters.warning}; give --cased and a cased vocabulary to keep the letters")
    shapes = {split: examples.shape for split, examples in records.source.splits.items()}
    ledgers = ledgers_by_format(template, folders, tasks, shapes, records.source.labels)
    maker = TaskRecordMaker(records.source, vocabulary, records.files, variant)
    return Job(maker, ledgers, tasks, warnings)


def squad_records(files: Mapping[str, Path], version: str, vocabulary: Vocabulary, settings: SquadSettings) -> TaskRecords:
    """Return the features of SQuAD's training and dev files: each question with the windows of its paragraph."""
    for split, path in files.items():
        if split not in (TRAINING, DEV):
            raise UsageError(f"--input {path}: SQuAD only has files for training and dev; name it train... or dev...")
    features = {}
    for split, path in files.items():
        is_training = split == TRAINING
        data = read_squad(path, f"v{version}", training=is_training)
        features[split] = make_features(data, vocabulary, settings, training=is_training)
    inputs = [_describe(split, path.stat().st_size, checksum_of(path, SHA256)) for split, path in files.items()]
    return TaskRecords(
        task=SQUAD,
        data_set=f"squad_v{version}",
        files=files,
        source=squad_source(features),
        made_with={"version": version, "inputs": inputs, **asdict(settings)},
        warnings=_squad_warnings(features, files, settings),
        copies={QUESTIONS: files[DEV]} if DEV in files else {},
        letters=measure_texts(context for each in features.values() for context in each.data.contexts),
    )


def _squad_warnings(features: Mapping[str, SquadFeatures], files: Mapping[str, Path], settings: SquadSettings) -> list[str]:
    warnings = []
    if TRAINING in files:
        training, path = features[TRAINING], files[TRAINING]
        if training.misplaced:
            names = f": {listed(training.dropped)}" if training.dropped else ""
            warnings.append(
                f"{path}: {len(training.misplaced):,} of {len(training.data):,} answers are not at their answer_start "
                f"({explain_offsets(training.data, training.misplaced)}); dropped {counted(len(training.dropped), 'question')}"
                f"{names}"
            )
        if training.without_tokens:
            warnings.append(
                f"{path}: dropped {counted(len(training.without_tokens), 'question')} whose answer has no token: "
                f"{listed(training.without_tokens)}"
            )
    smallest = settings.seq - settings.max_query - 3  # [CLS] and two [SEP]
    if settings.doc_stride > smallest:
        warnings.append(
            f"--doc-stride {settings.doc_stride}: a window of --seq {settings.seq} may have only {smallest} tokens of "
            f"the context, so tokens between two windows would be lost; give at most --doc-stride {smallest}"
        )
    return warnings


def name_glue_task(name: str, labels: Sequence[str] = ()) -> GlueTask:
    """Return the GLUE task with this name, or a task of the user's own, whose labels may come from its training file.

    Raises `UsageError` for a name that a folder cannot have, and for `labels` if the task has its own.
    """
    try:
        task = find_task(name)
    except UsageError:
        if not CORPUS.holds(name):
            raise UsageError(f"{name}: must consist of letters, digits, '_', '-' and '.'") from None
        return GlueTask(name=name)
    if labels:
        own = ", ".join(task.labels) or "scores"
        raise UsageError(f"--labels {','.join(labels)}: {task.name} has its own labels ({own}); leave the option out")
    return task


def glue_records(
    files: Mapping[str, Path], task: GlueTask, labels: Sequence[str], vocabulary: Vocabulary, settings: GlueSettings
) -> TaskRecords:
    """Return the labelled texts of a GLUE task or of the user's own task.

    The labels of a user's own task are `labels` or, by default, those in its training file.
    """
    for split, path in files.items():
        if task.folder and split not in task.files:
            expected = ", ".join(file.name for file in task.files.values())
            raise UsageError(f"--input {path}: {task.name} has no {split} split; its files are {expected}")
    texts = {split: read_file(path, split, task) for split, path in files.items()}
    if not task.folder:
        if not labels and TRAINING not in texts:
            raise UsageError(f"{task.name}: its labels are unknown; give --labels, or a training file (train...)")
        task = own_task(task.name, [*map(canonical, labels)] or find_labels(texts[TRAINING]))
    inputs = [_describe(split, file.size_bytes, file.sha256) for split, file in texts.items()]
    texts = {split: leave_out_unlabelled(file, task) for split, file in texts.items()}
    return TaskRecords(
        task=GLUE,
        data_set=f"glue_{task.name}",
        files=files,
        source=glue_source(texts, task, vocabulary, settings),
        made_with={"name": task.name, "labels": list(task.labels), "inputs": inputs, **asdict(settings)},
        warnings=_glue_warnings(texts, task, labels),
        letters=measure_texts(b" ".join(row[:2]).decode() for file in texts.values() for row in file.rows),
    )


def _glue_warnings(texts: Mapping[str, TextFile], task: GlueTask, given: Sequence[str]) -> list[str]:
    warnings = [
        f"{file.path}: left out {file.unlabelled:,} of {file.unlabelled + len(file.rows):,} rows, since they have no label or "
        "no text"
        for file in texts.values()
        if file.unlabelled
    ]
    if not task.folder and task.is_regression:
        warnings.append(
            f"{texts[TRAINING].path}: the labels are numbers with fractions, so they are taken as scores to predict; to make "
            "classes of them, name all of them with --labels"
        )
    if "-1" in task.labels and not given:
        others = ",".join(label for label in task.labels if label != "-1")
        warnings.append(
            f"{texts[TRAINING].path}: -1 is taken as a class; if these rows have no label, give --labels {others} to leave "
            "them out"
        )
    return warnings


def _describe(split: str, size_bytes: int, sha256: str) -> dict[str, Any]:
    return {"split": split, "bytes": size_bytes, "sha256": sha256}

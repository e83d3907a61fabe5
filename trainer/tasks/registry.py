"""The task that records, or a checkpoint, are of: their manifest says it, or the header."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bertprep.config import UNPAIRED
from bertprep.errors import BertprepError, UsageError
from bertprep.records import Examples, MaskedExamples, PretrainingExamples
from bertprep.records.data_sets import DataSet
from bertprep.records.reader import RecordFile
from bertprep.sources.tasks.weights import CONFIG
from bertprep.tasks.glue import TASKS, GlueTask, own_task
from bertprep.untrusted import OBJECT, TEXT, TEXTS, check_values, parse_json, read_bounded
from bertprep.weights.tensor_bundle import find_prefix
from bertprep.workspace.layout import MANIFEST
from bertprep.workspace.manifest import TASK_RECORDS
from trainer import checkpoint
from trainer.tasks import Task
from trainer.tasks.classification import Classification
from trainer.tasks.pretraining import MASKED_LM, PRETRAINING, pretraining_on
from trainer.tasks.squad import Squad


def task_of_records(data_set: DataSet) -> Task:
    """That of a folder of records; raises `UsageError` for records of a task without a manifest that names it."""
    manifest = data_set.manifest
    if manifest is None or manifest.kind != TASK_RECORDS:
        kind: type[Examples] = PretrainingExamples
        for name in list(data_set.files)[:1]:
            with RecordFile(data_set.folder / name) as file:
                kind = file.kind
            if not issubclass(kind, MaskedExamples):
                raise UsageError(
                    f"{data_set.folder}: has {kind.title} records without a {MANIFEST} that names their task; make them by "
                    "bertprep create --task"
                )
        return pretraining_on(kind)
    made_with = manifest.made_with
    if made_with["task"] == Squad.name:
        return Squad(f"v{made_with['version'].removeprefix('v')}")
    return Classification(_glue_task(made_with["name"], made_with.get("labels", ())))


def task_of_checkpoint(made_with: Mapping[str, Any]) -> Task:
    """That of what a checkpoint was made with; raises `BertprepError` where it is none that is known here."""
    described = made_with.get("task")
    if described is None:
        return PRETRAINING
    try:
        known = check_values(
            described, {"name": TEXT, "version": TEXT, "of": TEXT, "labels": TEXTS, "pairs": TEXT}, needed=("name",)
        )
        if known["name"] == PRETRAINING.name and known["pairs"] == UNPAIRED:
            return MASKED_LM
        if known["name"] == Squad.name:
            return Squad(known["version"])
        if known["name"] == Classification.name:
            return Classification(_glue_task(known["of"], known["labels"]))
    except (ValueError, KeyError, UsageError) as error:
        raise BertprepError(f"a checkpoint's task is not described as expected: {error}") from error
    raise BertprepError(f"a checkpoint of the task {known['name']!r}, which this version does not have; use a newer one")


def _glue_task(name: str, labels: Any) -> GlueTask:
    known = TASKS.get(name)
    return known if known and list(known.labels) == list(labels) else own_task(name, labels)


def describe_task(task: Task) -> str:
    """A task for messages: its name, and its version or its labels."""
    if isinstance(task, Squad):
        return f"SQuAD {task.version}"
    if isinstance(task, Classification):
        return f"{task.of.name}, " + (f"labels {', '.join(task.of.labels)}" if task.of.labels else "a score")
    if task.name == PRETRAINING.name:
        return f"pretraining {'without' if task == MASKED_LM else 'with'} sentence pairs"
    return task.name


def check_task_of_weights(file: Path, task: Task, data: Path) -> None:
    """Raise `UsageError` where weights are known to be of another task, or of other labels, than the records in `data`.

    A checkpoint names its task, and a model of Hugging Face's its labels; other weights, of pretraining too, may be of any.
    """
    if find_prefix(file):
        return
    if not checkpoint.is_checkpoint(file):
        if isinstance(task, Classification):
            _check_labels(file.parent / CONFIG, task.of, data)
        return
    trained = task_of_checkpoint(checkpoint.read_header(file))
    expected = Classification(TASKS["mnli"]) if task == Classification(TASKS["ax"]) else task  # ax is for models of MNLI
    if trained not in (PRETRAINING, MASKED_LM, expected):
        raise UsageError(
            f"{file}: was trained for {describe_task(trained)}, the records in {data} are of {describe_task(task)}; name "
            "weights and records of the same task"
        )


def _check_labels(config: Path, of: GlueTask, data: Path) -> None:
    """Raise where a config.json has a label of the task at another index; other names, LABEL_0 for example, say nothing."""
    try:
        names = check_values(parse_json(read_bounded(config)), {"id2label": OBJECT}).get("id2label", {})
        check_values(names, dict.fromkeys(names, TEXT), place="id2label.")
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise BertprepError(f"{config}: does not say what its labels are: {why}") from error
    found = {number: name.casefold() for number, name in names.items()}
    for number, label in enumerate(of.labels):
        if found.get(str(number)) != label.casefold() and label.casefold() in found.values():
            raise UsageError(
                f"{config}: its labels are {', '.join(names.values())}, those of the records in {data} are "
                f"{', '.join(of.labels)}; make your own records with --labels in the model's order, or name another model"
            )

"""The task that records, or a checkpoint, are of: their manifest says it, or the header."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bertprep.errors import BertprepError, UsageError
from bertprep.records.data_sets import DataSet
from bertprep.tasks.glue import TASKS, GlueTask, own_task
from bertprep.untrusted import TEXT, TEXTS, check_values
from bertprep.workspace.manifest import TASK_RECORDS
from trainer.tasks import Task
from trainer.tasks.classification import Classification
from trainer.tasks.pretraining import PRETRAINING
from trainer.tasks.squad import Squad


def task_of_records(data_set: DataSet) -> Task:
    """That of a folder of records; of one without a task in its manifest, pretraining."""
    manifest = data_set.manifest
    if manifest is None or manifest.kind != TASK_RECORDS:
        return PRETRAINING
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
        known = check_values(described, {"name": TEXT, "version": TEXT, "of": TEXT, "labels": TEXTS}, needed=("name",))
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

"""Name the tasks that a model can be trained for. A new task is one file, and one line in `TASKS`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bertprep.errors import BertprepError, UsageError
from bertprep.records import MaskedExamples
from bertprep.records.records import Records
from bertprep.work.data_set import DataSet
from bertprep.work.layout import MANIFEST
from bertprep.work.manifest import TASK_RECORDS
from trainer.tasks.classification import Classification
from trainer.tasks.pretraining import Pretraining
from trainer.tasks.squad import Squad
from trainer.tasks.task import Task
from trainer.tasks.token_classification import TokenClassification

TASKS: dict[str, type[Task]] = {each.command: each for each in (Pretraining, Squad, Classification, TokenClassification)}
"""The tasks by the command that trains them."""


def task_of_records(data_set: DataSet) -> Task:
    """Return the task of a folder of records; raises `UsageError` if they need a manifest to name it, and have none."""
    manifest = data_set.manifest
    if manifest is not None and manifest.kind == TASK_RECORDS:
        return TASKS[manifest.made_with["task"]].from_manifest(manifest.made_with)
    with Records.open(data_set.folder / next(iter(data_set.files))) as file:
        kind = file.kind
    if not issubclass(kind, MaskedExamples):
        raise UsageError(
            f"{data_set.folder}: has {kind.title} records without a {MANIFEST} that names their task; make them with "
            "bertprep task"
        )
    return Pretraining.from_examples(kind)


def task_of_checkpoint(header: Mapping[str, Any]) -> Task:
    """Return the task that a checkpoint's header names; raises `BertprepError` if this version does not know it."""
    metadata = header.get("task")
    if metadata is None:
        return Pretraining()
    if isinstance(metadata, Mapping):
        for kind in TASKS.values():
            task = kind.from_metadata(metadata) if metadata.get("name") == kind.name else None
            if task is not None:
                return task
    raise BertprepError(
        f"is a checkpoint for the task {metadata!r:.200}, which this version does not know; use a newer version"
    )

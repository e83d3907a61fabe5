"""Define classification of a sentence or a pair, as in GLUE. A task without label names is a regression.

GLUE's metrics score all records of a split.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from bertprep.errors import UsageError
from bertprep.options import option
from bertprep.records.records import Records
from bertprep.tasks.glue import TASKS, UNLABELLED, GlueTask, find_task, own_task
from bertprep.tasks.glue_metrics import (
    check_metrics_installed,
    compute_metrics,
    submission_path,
    write_predictions,
    write_submission,
)
from bertprep.weights.google_names import Shapes
from bertprep.work.manifest import TASK_RECORDS
from trainer.model import Array, Bert
from trainer.model_config import ModelConfig
from trainer.settings import MAX_EPOCHS, RunOptions, Wanted
from trainer.tasks.task import Logits, Output, Scorer, Task, mean_cross_entropy, read_features


@dataclass(frozen=True, kw_only=True)
class GlueOptions(RunOptions):
    """Options of `glue`. The defaults are the values that Google's README gives for MRPC."""

    name: str | None = option(
        None,
        f"task: {', '.join(name for name in TASKS if name != 'ax')}, or your own (required, or --data)",
        metavar="NAME",
    )
    learning_rate: float | None = option(2e-5, "peak learning rate", name="--lr", above=0)
    epochs: float | None = option(None, "passes over the training records (default: 3)", above=0, most=MAX_EPOCHS)
    default_epochs: ClassVar[float] = 3.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.name is None and not self.data:
            raise UsageError("which task? give --name, such as --name mrpc, or the folder of its records with --data")

    @property
    def task_name(self) -> str | None:
        """The task's name in manifests; `--name` may spell the names of GLUE's tasks differently."""
        try:
            return self.name and find_task(self.name).name
        except UsageError:
            return self.name

    @property
    def wanted(self) -> Wanted:
        make = "bertprep task glue"
        if self.task_name:
            make += f" {self.task_name}"
        return Wanted(TASK_RECORDS, "corpus", f"glue_{self.task_name}", make)


@dataclass(frozen=True)
class Classification(Task):
    """A task of GLUE, or of the user, with its labels."""

    of: GlueTask
    name: ClassVar[str] = "classification"
    command: ClassVar[str] = "glue"
    help: ClassVar[str] = "fine-tune a model on records of labelled texts; resumes where it stopped"
    options: ClassVar[type[RunOptions]] = GlueOptions
    is_scored: ClassVar[bool] = True
    head_names: ClassVar[Mapping[str, str]] = {"output_weights": "classifier.weight", "output_bias": "classifier.bias"}
    hugging_face_class = "BertForSequenceClassification"

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any]) -> Classification | None:
        match metadata:
            case {"of": str(name), "labels": [*labels]}:
                return cls(_glue_task(name, [str(label) for label in labels]))
        return None

    @classmethod
    def from_manifest(cls, settings: Mapping[str, Any]) -> Classification:
        return cls(_glue_task(settings["name"], settings.get("labels", ())))

    def metadata(self) -> dict[str, Any]:
        return {"task": {"name": self.name, "of": self.of.name, "labels": list(self.of.labels)}}

    def describe(self) -> str:
        return f"{self.of.name}, " + (f"labels {', '.join(self.of.labels)}" if self.of.labels else "a score")

    def is_requested_by(self, options: RunOptions) -> bool:
        return isinstance(options, GlueOptions) and options.task_name in (None, self.of.name)

    @property
    def outputs(self) -> tuple[Output, ...]:
        return (Output("label", "label_ids", is_regression=self.of.is_regression),)

    @property
    def labels(self) -> tuple[str, ...]:
        return self.of.labels

    @property
    def criterion(self) -> str:
        return self.of.metrics[0]  # the first of the task's GLUE metrics

    @property
    def predicted_by(self) -> Task:
        return Classification(TASKS["mnli"]) if self.of == TASKS["ax"] else self

    def head(self, bert: Bert, hidden: Array) -> dict[str, Array]:
        """Return the (sequences, labels) logits, or the (sequences, 1) prediction of a regression."""
        return {"label": bert.logits("output", bert.drop(bert.pool(hidden), bert.config.hidden_dropout_prob))}

    def head_shapes(self, model: ModelConfig) -> Shapes:
        """Return the shapes of run_classifier.py's head; a regression has one row."""
        labels = len(self.of.labels) or 1
        return {"output_weights": (labels, model.hidden_size), "output_bias": (labels,)}

    def hugging_face_settings(self) -> dict[str, Any]:
        names = self.of.labels or ("score",)
        return {
            "problem_type": "regression" if self.of.is_regression else "single_label_classification",
            "label2id": {name: index for index, name in enumerate(names)},
            "id2label": {str(index): name for index, name in enumerate(names)},
        }

    def scorer(self, data: Path, records: Records, split: str, options: Any) -> Scorer:  # noqa: ARG002
        return ClassificationScorer(self.of, records, self.name_of_split(split))

    def check_scoring(self, splits: Collection[str]) -> None:
        if not set(splits) <= set(UNLABELLED):
            check_metrics_installed()


def _glue_task(name: str, labels: Sequence[str]) -> GlueTask:
    known = TASKS.get(name)
    return known if known and known.labels == tuple(labels) else own_task(name, labels)


class ClassificationScorer:
    """Scores predictions against the labels of a split, if it has any, without filler records."""

    def __init__(self, of: GlueTask, records: Records, split: str) -> None:
        self._of, self._split = of, split
        labels, is_real = read_features(records, ["label_ids", "is_real_example"])
        self._rows = np.flatnonzero(is_real)
        self._labels = labels[self._rows]

    def score(self, logits: Logits, out: Path | None = None) -> dict[str, float]:
        """Return metrics by name, none without labels; write predictions to `out`, if given."""
        found = logits["label"][self._rows]
        if out is not None and self._is_for_submission:
            write_submission(self._of, self._split, found, out)
        elif out is not None:
            write_predictions(self._of, found, out / self._split / "predictions.tsv")
        if self._split in UNLABELLED:
            return {}
        if self._of.is_regression:
            loss = float(np.mean((found[:, 0].astype(np.float64) - self._labels) ** 2))
        else:
            loss = mean_cross_entropy(found, self._labels)
        return {"loss": loss, **compute_metrics(self._of, found, self._labels)}

    def files(self, out: Path) -> list[Path]:
        """Return the files that `score` writes."""
        if self._is_for_submission:
            return [submission_path(self._of, self._split, out)]
        return [out / self._split / "predictions.tsv"]

    @property
    def _is_for_submission(self) -> bool:
        return self._split in UNLABELLED and bool(self._of.submissions)

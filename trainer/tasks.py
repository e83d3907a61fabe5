"""What a model is trained for, as data: the outputs of its head, their metrics, its name in checkpoints.

    Pretraining       masked_lm and next_sentence, or masked_lm alone for records without sentence pairs (MLM only)
    Squad             start and end of the answer, in a window of tokens
    Classification    label of a sentence or a pair, as in GLUE; a regression where the task has no names of labels

A head is a function of `trainer.model` with the task's name. Metrics are means from sums of losses, correct predictions and
weights.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from bertprep.config import UNPAIRED
from bertprep.errors import BertprepError, UsageError
from bertprep.records import Examples, MaskedExamples, PretrainingExamples
from bertprep.records.records import Records
from bertprep.tasks.glue import TASKS, GlueTask, own_task
from bertprep.tasks.squad import V1
from bertprep.weights import google_names
from bertprep.work.data_set import DataSet
from bertprep.work.layout import DEV, MANIFEST, TEST
from bertprep.work.manifest import TASK_RECORDS
from trainer.model import TARGETS
from trainer.model_config import ModelConfig

Sums = NDArray[np.float64]
"""(outputs, 3): the losses of each output of a task in nats, its correct predictions and weights, summed over the rows."""


@dataclass(frozen=True)
class Task(ABC):
    """What a model is trained for."""

    name: ClassVar[str]  # of its head in trainer.model
    is_scored: ClassVar[bool] = False  # evaluated by `trainer.scores` on the outputs for all records, not by sums

    @property
    @abstractmethod
    def outputs(self) -> tuple[str, ...]:
        """The names of `trainer.model.TARGETS` that its head gives, in that order."""

    @property
    def classes(self) -> int | None:
        """How many label_ids there are, where records have some; a regression has scores."""
        return None

    @property
    def criterion(self) -> str:
        """The metric by which evaluations are compared: the lowest loss is best, the highest of any other."""
        return "loss"

    @abstractmethod
    def variable_shapes(self, model: ModelConfig) -> dict[str, tuple[int, ...]]:
        """Name and shape of every variable, the head's last, in the order of every checkpoint."""

    @abstractmethod
    def metadata(self) -> dict[str, Any]:
        """Return the task's part of a checkpoint's header; empty for pretraining with sentence pairs."""

    @abstractmethod
    def describe(self) -> str:
        """The task in messages: its name, and its version or labels."""

    def flops(self, model: ModelConfig, *, seq: int, pred: int) -> int:
        """Return the floating-point operations of a sequence, forward and backward: matrix products only.

        >>> round(Pretraining().flops(ModelConfig.preset("base"), seq=128, pred=20) / 1e9, 1)
        69.9
        """
        tokens = {  # that each matrix is multiplied by; the pooler and other heads take the first of a sequence
            google_names.WORD_EMBEDDINGS: pred, "bert/embeddings/": 0, "bert/encoder/": seq, "cls/predictions/": pred,
            "cls/squad/": seq,
        }  # fmt: skip
        attention = 2 * seq * seq * model.hidden_size  # scores, and their products with the values
        forward = model.num_hidden_layers * attention
        for name, shape in self.variable_shapes(model).items():
            if len(shape) == 2:
                forward += math.prod(shape) * next((count for start, count in tokens.items() if name.startswith(start)), 1)
        return 3 * 2 * forward  # of multiply-adds; backward takes twice what forward takes

    def metrics(self, sums: Sums) -> dict[str, float]:
        """Return means by name, the loss first; none if the first output has no weight."""
        loss_sums, correct_sums, weight_sums = sums.T.tolist()
        if weight_sums[0] == 0:
            return {}
        is_regression = self.outputs == ("label",) and self.classes is None
        means: dict[str, float] = {}
        loss = 0.0
        for name, loss_sum, correct_sum, weight_sum in zip(self.outputs, loss_sums, correct_sums, weight_sums, strict=True):
            prefix = "" if name == "label" else f"{name}_"
            means[f"{prefix}loss"] = loss_sum / weight_sum
            loss += TARGETS[name].share * means[f"{prefix}loss"]
            if not is_regression:
                means[f"{prefix}accuracy"] = correct_sum / weight_sum
        return {"loss": loss, **means}


@dataclass(frozen=True)
class Pretraining(Task):
    """Masked LM and next sentence, whose mean losses are added; MLM only on records without sentence pairs."""

    has_pairs: bool = True
    name: ClassVar[str] = "pretraining"

    @property
    def outputs(self) -> tuple[str, ...]:
        return ("masked_lm", "next_sentence") if self.has_pairs else ("masked_lm",)

    def variable_shapes(self, model: ModelConfig) -> dict[str, tuple[int, ...]]:
        return google_names.variable_shapes(asdict(model), next_sentence=self.has_pairs)

    def metadata(self) -> dict[str, Any]:
        return {} if self.has_pairs else {"task": {"name": self.name, "pairs": UNPAIRED}}

    def describe(self) -> str:
        return f"pretraining {'with' if self.has_pairs else 'without'} sentence pairs"


@dataclass(frozen=True)
class Squad(Task):
    """Start and end of the answer, whose mean losses are averaged; in 2.0 no answer is the first token."""

    version: str = V1
    name: ClassVar[str] = "squad"
    is_scored: ClassVar[bool] = True
    criterion = "f1"
    outputs = ("start", "end")

    def variable_shapes(self, model: ModelConfig) -> dict[str, tuple[int, ...]]:
        # like Hugging Face's BertForQuestionAnswering; Google keeps a pooler that nothing uses
        sizes = asdict(model)
        return {**google_names.body_shapes(sizes, pooler=False), **google_names.squad_heads(sizes)}

    def metadata(self) -> dict[str, Any]:
        return {"task": {"name": self.name, "version": self.version}}

    def describe(self) -> str:
        return f"SQuAD {self.version}"


@dataclass(frozen=True)
class Classification(Task):
    """The label of a sentence or a pair; a regression without names of labels."""

    of: GlueTask
    name: ClassVar[str] = "classification"
    is_scored: ClassVar[bool] = True
    outputs = ("label",)

    @property
    def classes(self) -> int | None:
        return len(self.of.labels) or None

    @property
    def criterion(self) -> str:
        return self.of.metrics[0]  # GLUE's first of the task

    def variable_shapes(self, model: ModelConfig) -> dict[str, tuple[int, ...]]:
        sizes = asdict(model)
        return {**google_names.body_shapes(sizes), **google_names.classification_heads(sizes, self.classes or 1)}

    def metadata(self) -> dict[str, Any]:
        return {"task": {"name": self.name, "of": self.of.name, "labels": list(self.of.labels)}}

    def describe(self) -> str:
        return f"{self.of.name}, " + (f"labels {', '.join(self.of.labels)}" if self.of.labels else "a score")


_METRICS = ("loss", "accuracy", "exact_match", "exact", "f1", "matthews", "pearson", "spearman")
"""What the names of metrics in the log end with."""


def metric_names(entries: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the metrics of log entries, losses first, without a redundant sum."""
    names = dict.fromkeys(name for entry in entries for name in entry if name.endswith(_METRICS))
    if "masked_lm_loss" in names:
        names.pop("loss", None)
    return sorted(names, key=lambda name: not name.endswith("loss"))


def name_in_text(metric: str) -> str:
    """A metric's name in the field's spelling.

    >>> name_in_text("masked_lm_loss")
    'masked-LM loss'
    """
    return metric.replace("masked_lm", "masked-LM").replace("next_sentence", "next-sentence").replace("_", " ")


def describe_metrics(entry: Mapping[str, Any]) -> str:
    """Return the metrics of a log entry in words.

    >>> describe_metrics({"step": 9, "loss": 9.674, "masked_lm_loss": 8.98, "next_sentence_loss": 0.694})
    'masked-LM loss 8.98, next-sentence loss 0.694'
    """
    found = {name: entry[name] for name in metric_names([entry]) if entry[name] is not None}
    return ", ".join(f"{name_in_text(name)} {value:.3g}" for name, value in found.items())


def pretraining_on(kind: type[Examples]) -> Pretraining:
    return Pretraining(has_pairs=issubclass(kind, PretrainingExamples))


def name_of_split(task: Task, split: str) -> str:
    """What users call a split: the test split of a scored task is its dev set."""
    return DEV if task.is_scored and split == TEST else split


def task_of_records(data_set: DataSet) -> Task:
    """Return the task of a folder of records; raises `UsageError` if only a manifest could tell."""
    manifest = data_set.manifest
    if manifest is not None and manifest.kind == TASK_RECORDS:
        settings = manifest.made_with
        if settings["task"] == Squad.name:
            return Squad(f"v{settings['version'].removeprefix('v')}")
        return Classification(_glue_task(settings["name"], settings.get("labels", ())))
    with Records.open(data_set.folder / next(iter(data_set.files))) as file:
        kind = file.kind
    if not issubclass(kind, MaskedExamples):
        raise UsageError(
            f"{data_set.folder}: has {kind.title} records without a {MANIFEST} that names their task; make them by "
            "bertprep task"
        )
    return pretraining_on(kind)


def task_of_checkpoint(header: Mapping[str, Any]) -> Task:
    """The task in a checkpoint's header; raises `BertprepError` for one that is unknown here."""
    match header.get("task"):
        case None:
            return Pretraining()
        case {"name": Pretraining.name, "pairs": pairs} if pairs == UNPAIRED:
            return Pretraining(has_pairs=False)
        case {"name": Squad.name, "version": str(version)}:
            return Squad(version)
        case {"name": Classification.name, "of": str(name), "labels": [*labels]}:
            return Classification(_glue_task(name, [str(label) for label in labels]))
        case unknown:
            raise BertprepError(f"the checkpoint is of the task {unknown!r:.200}, not one of this version; use a newer one")


def _glue_task(name: str, labels: Sequence[str]) -> GlueTask:
    known = TASKS.get(name)
    return known if known and known.labels == tuple(labels) else own_task(name, labels)

"""Classification and regression of a sentence or a pair, as GLUE has them: the class or the number by the pooled first token.

Labels, their names and the metrics come from the manifest of the records; a task without names of labels is a regression.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from bertprep.records import ClassificationExamples, Examples, RegressionExamples
from bertprep.records.record_set import RecordSet
from bertprep.weights import google_names
from trainer.model_config import ModelConfig
from trainer.tasks import Outputs, Sums, encoder_flops, open_labelled


class ClassificationSums(NamedTuple):
    """See `trainer.tasks.Sums`; a checkpoint has them in this order."""

    loss_sum: Any = 0.0
    correct_sum: Any = 0.0
    sequences: Any = 0.0

    def plus(self, other: ClassificationSums) -> ClassificationSums:
        return ClassificationSums(*(one + another for one, another in zip(self, other, strict=True)))

    @property
    def loss(self) -> float:
        return self.metrics()["loss"]

    def metrics(self) -> dict[str, float]:
        """Means over sequences; 0 where there are none."""
        sequences = max(self.sequences, 1e-5)
        return {"loss": float(self.loss_sum / sequences), "accuracy": float(self.correct_sum / sequences)}


class RegressionSums(NamedTuple):
    """See `trainer.tasks.Sums`; a checkpoint has them in this order."""

    loss_sum: Any = 0.0  # of squared errors
    sequences: Any = 0.0

    def plus(self, other: RegressionSums) -> RegressionSums:
        return RegressionSums(*(one + another for one, another in zip(self, other, strict=True)))

    @property
    def loss(self) -> float:
        return self.metrics()["loss"]

    def metrics(self) -> dict[str, float]:
        """The mean over sequences; 0 where there are none."""
        return {"loss": float(self.loss_sum / max(self.sequences, 1e-5))}


@dataclass(frozen=True)
class Classification:
    """A task by name, as mrpc, with the names of its labels; one without any is a regression."""

    task: str
    labels: tuple[str, ...]
    metrics: tuple[str, ...] = ("accuracy",)
    name = "classification"
    is_scored = True

    @property
    def is_regression(self) -> bool:
        return not self.labels

    @property
    def examples(self) -> type[Examples]:
        return RegressionExamples if self.is_regression else ClassificationExamples

    @property
    def sums(self) -> Callable[..., Sums]:
        return RegressionSums if self.is_regression else ClassificationSums

    @property
    def criterion(self) -> str:
        return self.metrics[0]

    def variable_shapes(self, model: ModelConfig) -> dict[str, tuple[int, ...]]:
        sizes = asdict(model)
        return {**google_names.body_shapes(sizes), **google_names.classification_heads(sizes, max(1, len(self.labels)))}

    def open_records(self, data: Sequence[Path], split: str, model: ModelConfig) -> RecordSet:
        return open_labelled(data, split, model, (self.examples,))

    def flops(self, model: ModelConfig, *, seq: int, pred: int) -> int:  # noqa: ARG002 - as for any task
        heads = model.hidden_size * (model.hidden_size + max(1, len(self.labels)))
        return 3 * 2 * (encoder_flops(model, seq) + heads)

    def baseline(self, *_: Any, **__: Any) -> dict[str, float | None]:
        return {}

    def score(self, outputs: Outputs, records: RecordSet, data: Path) -> dict[str, float]:
        raise NotImplementedError

    def made_with(self) -> dict[str, Any]:
        return {"task": {"name": self.name, "task": self.task, "labels": list(self.labels), "metrics": list(self.metrics)}}

    def describe_training(self, entry: Mapping[str, Any]) -> str:
        accuracy = "" if self.is_regression else f", accuracy {entry['accuracy']:.2f}"
        return f"loss {entry['loss']:.3f}{accuracy}"

    def describe_evaluation(self, entry: Mapping[str, Any]) -> str:
        return ", ".join(f"{name} {entry[name]:.4f}" for name in dict.fromkeys(("loss", *self.metrics)))

"""Classification and regression of a sentence or a pair, as GLUE has them: the class or the number by the pooled first token.

Labels, their names and the metrics come from the manifest of the records; a task without names of labels is a regression.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bertprep.records import ClassificationExamples, Examples, RegressionExamples
from bertprep.records.record_set import RecordSet
from bertprep.tasks.glue import UNLABELLED, GlueTask
from bertprep.tasks.glue_metrics import compute_metrics, write_predictions, write_submission
from bertprep.weights import google_names
from bertprep.workspace.layout import TEST
from trainer.model_config import ModelConfig
from trainer.tasks import Outputs, Scored, Sums, encoder_flops, name_of_split, read_blocks


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
    """One of GLUE's tasks, or of the user's own, with the names of its labels; one without any is a regression."""

    of: GlueTask
    name = "classification"
    is_scored = True

    @property
    def examples(self) -> type[Examples]:
        return RegressionExamples if self.of.is_regression else ClassificationExamples

    @property
    def sums(self) -> Callable[..., Sums]:
        return RegressionSums if self.of.is_regression else ClassificationSums

    @property
    def criterion(self) -> str:
        return self.of.metrics[0]

    @property
    def outputs(self) -> int:
        """Of the head: one for each label, or the number that a regression predicts."""
        return max(1, len(self.of.labels))

    def variable_shapes(self, model: ModelConfig) -> dict[str, tuple[int, ...]]:
        sizes = asdict(model)
        return {**google_names.body_shapes(sizes), **google_names.classification_heads(sizes, self.outputs)}

    def open_records(self, data: Sequence[Path], split: str, model: ModelConfig) -> RecordSet:
        labels = None if self.of.is_regression else self.outputs
        sizes = {"vocab_size": model.vocab_size, "type_vocab_size": model.type_vocab_size}
        return RecordSet(data, split, kind=self.examples, labels=labels, **sizes)

    def flops(self, model: ModelConfig, *, seq: int, pred: int) -> int:  # noqa: ARG002 - as for any task
        heads = model.hidden_size * (model.hidden_size + self.outputs)
        return 3 * 2 * (encoder_flops(model, seq) + heads)

    def baseline(self, *_: Any, **__: Any) -> dict[str, float | None]:
        return {}

    def scorer(self, data: Path, records: RecordSet, split: str = TEST) -> ClassificationScorer:  # noqa: ARG002 - any task's
        return ClassificationScorer(self.of, records, split)

    def made_with(self) -> dict[str, Any]:
        return {"task": {"name": self.name, "of": self.of.name, "labels": list(self.of.labels)}}

    def describe_training(self, entry: Mapping[str, Any]) -> str:
        accuracy = "" if self.of.is_regression else f", accuracy {entry['accuracy']:.2f}"
        return f"loss {entry['loss']:.3f}{accuracy}"

    def describe_evaluation(self, entry: Mapping[str, Any]) -> str:
        return ", ".join(f"{name} {entry[name]:.4f}" for name in ("loss", *self.of.metrics))


class ClassificationScorer:
    """The labels of a split, if it has any, but for those of records that only fill up a batch."""

    def __init__(self, of: GlueTask, records: RecordSet, split: str) -> None:
        self._of, self._split = of, split
        blocks = [(block.label_ids.copy(), block.is_real_example.copy()) for block in read_blocks(records)]
        labels, is_real = (np.concatenate(arrays) for arrays in zip(*blocks, strict=True))
        self._rows = np.flatnonzero(is_real)
        self._labels = labels[self._rows]

    def score(self, outputs: Outputs, out: Path | None = None) -> Scored:
        logits = outputs["logits"][self._rows]
        files = () if out is None else (self._write(logits, out),)
        if self._split in UNLABELLED:
            return Scored({}, files)
        metrics = compute_metrics(self._of, logits, self._labels)
        return Scored({"loss": self._loss(logits.astype(np.float64)), **metrics}, files)

    def _write(self, logits: NDArray[np.float32], out: Path) -> Path:
        if self._split in UNLABELLED and self._of.submissions:
            return write_submission(self._of, self._split, logits, out)
        return write_predictions(self._of, logits, out / name_of_split(self._split) / "predictions.tsv")

    def _loss(self, logits: NDArray[np.float64]) -> float:
        if self._of.is_regression:
            return float(np.mean((logits[:, 0] - self._labels) ** 2))
        highest = logits.max(axis=1, keepdims=True)
        of_label = np.take_along_axis(logits, self._labels[:, None].astype(np.int64), axis=1)
        return float(np.mean(np.log(np.exp(logits - highest).sum(axis=1, keepdims=True)) + highest - of_label))

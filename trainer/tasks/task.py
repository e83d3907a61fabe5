"""Define what a task is: its head on the encoder, its outputs with their losses, variables, options, records and scores.

Every other file in this folder is one task. Model, step, checkpoints, exports and commands use tasks only through `Task`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from bertprep.records.records import Records
from bertprep.weights import google_names
from bertprep.weights.google_names import Shapes
from bertprep.work.layout import DEV, TEST
from trainer.model import Array, Bert
from trainer.model_config import ModelConfig
from trainer.settings import RunOptions

Sums = NDArray[np.float64]
"""(outputs, 3): for each output of a task the losses in nats, correct predictions and weights, summed over rows."""
Logits = Mapping[str, NDArray[np.float32]]
"""The logits of all records of a split, by the names of the task's outputs."""
_BLOCK = 1024  # records read at a time


@dataclass(frozen=True)
class Output:
    """An output of a head: the features with its labels and weights, and its share of the loss."""

    name: str
    labels: str
    weights: str = "row_weights"
    share: float = 1.0
    is_regression: bool = False  # its loss is the squared error, and it has no accuracy

    @property
    def prefix(self) -> str:
        """The prefix of the names of its metrics."""
        return "" if self.name == "label" else f"{self.name}_"


class Scorer(Protocol):
    """Scores a split, given the logits of all of its records."""

    def score(self, logits: Logits, out: Path | None = None) -> dict[str, float]:
        """Return metrics by name, none for a split without labels; write predictions to `out`, if given."""

    def files(self, out: Path) -> list[Path]:
        """Return the files that `score` may write."""


@dataclass(frozen=True)
class Task(ABC):
    """A training task. A subclass covers all variants of a task; an instance is one variant."""

    name: ClassVar[str]  # in checkpoints
    command: ClassVar[str]  # of the trainer, and also the task's name in manifests of records
    help: ClassVar[str]  # of the command
    options: ClassVar[type[RunOptions]]  # of the command
    is_scored: ClassVar[bool] = False  # evaluated by a scorer on the logits of all records, not by sums
    scoring: ClassVar[type | None] = None  # the options of its scorer, which `evaluate` adds to its own
    # Hugging Face's names of the head's variables, if they do not follow from Google's
    head_names: ClassVar[Mapping[str, str]] = {}

    @classmethod
    @abstractmethod
    def from_metadata(cls, metadata: Mapping[str, Any]) -> Task | None:
        """Return the task that `metadata` in a checkpoint's header describes; None if it does not describe one."""

    @classmethod
    def from_manifest(cls, settings: Mapping[str, Any]) -> Task:
        """Return the task of records made with these settings."""
        raise NotImplementedError

    @abstractmethod
    def metadata(self) -> dict[str, Any]:
        """Return the task's part of a checkpoint's header; empty for pretraining with sentence pairs."""

    @abstractmethod
    def describe(self) -> str:
        """Return a text for messages: the task's name, and its version or labels."""

    def is_requested_by(self, options: RunOptions) -> bool:
        """Return whether a command with these options trains this task."""
        return isinstance(options, self.options)

    @property
    @abstractmethod
    def outputs(self) -> tuple[Output, ...]:
        """The outputs of the head, in order."""

    @property
    def labels(self) -> tuple[str, ...] | None:
        """The names of the classes in the order of their ids; empty for a regression, None for a task without classes."""
        return None

    @property
    def criterion(self) -> str:
        """The metric by which evaluations are compared. The lowest loss is best, or the highest value of any other metric."""
        return "loss"

    @property
    def predicted_by(self) -> Task:
        """The task whose models predict its records."""
        return self

    @abstractmethod
    def head(self, bert: Bert, hidden: Array) -> dict[str, Array]:
        """Return the logits of each output from the encoder's last layer, (sequences * seq, hidden)."""

    @abstractmethod
    def head_shapes(self, model: ModelConfig) -> Shapes:
        """Return the shape of each variable of the head, by Google's names."""

    def body_shapes(self, model: ModelConfig) -> Shapes:
        """Return the shape of each variable of the encoder, by Google's names."""
        return google_names.body_shapes(asdict(model))

    def rows_of_head(self, name: str, *, seq: int, pred: int) -> int:  # noqa: ARG002 - other tasks need both
        """Return the number of vectors per sequence that a matrix of the head multiplies."""
        return 1

    def variable_shapes(self, model: ModelConfig) -> dict[str, tuple[int, ...]]:
        """Return the shape of every variable, in the order of checkpoints: the encoder's, then the head's."""
        return {**self.body_shapes(model), **self.head_shapes(model)}

    @property
    @abstractmethod
    def hugging_face_class(self) -> str:
        """The class of transformers that loads the exported model."""

    def hugging_face_settings(self) -> dict[str, Any]:
        """Return the task's settings in `config.json`."""
        return {}

    def scorer(self, data: Path, records: Records, split: str, options: Any) -> Scorer | None:  # noqa: ARG002 - others need them
        """Return the scorer of a split; raises `BertprepError` if records do not match their questions.

        `options` is an instance of `scoring`, or None for the defaults.
        """
        return None

    def check_scoring(self, splits: Collection[str]) -> None:  # noqa: B027 - most need none
        """Raise `BertprepError` if the metrics of these splits need a package that is not installed."""

    def name_of_split(self, split: str) -> str:
        """Return the name of a split for users: a scored task calls its test split the dev set."""
        return DEV if self.is_scored and split == TEST else split

    def flops(self, model: ModelConfig, *, seq: int, pred: int) -> int:
        """Return the floating-point operations of the matrix products for one sequence, forward and backward."""
        attention = 2 * seq * seq * model.hidden_size  # scores, and their products with the values
        forward = model.num_hidden_layers * attention
        for name, shape in self.variable_shapes(model).items():
            if len(shape) == 2:
                forward += math.prod(shape) * self._rows_of(name, seq=seq, pred=pred)
        return 3 * 2 * forward  # a multiply-add is two operations, and backward has twice as many as forward

    def _rows_of(self, name: str, *, seq: int, pred: int) -> int:
        if name.startswith("bert/encoder/"):
            return seq
        if name.startswith("bert/embeddings/") and name != google_names.WORD_EMBEDDINGS:
            return 0
        return self.rows_of_head(name, seq=seq, pred=pred)

    def metrics(self, sums: Sums) -> dict[str, float]:
        """Return the mean losses and accuracies by name, the loss first; none if the first output has no weight."""
        if sums[0, 2] == 0:
            return {}
        means: dict[str, float] = {}
        loss = 0.0
        for output, (loss_sum, correct_sum, weight_sum) in zip(self.outputs, sums.tolist(), strict=True):
            means[f"{output.prefix}loss"] = loss_sum / weight_sum
            loss += output.share * means[f"{output.prefix}loss"]
            if not output.is_regression:
                means[f"{output.prefix}accuracy"] = correct_sum / weight_sum
        return {"loss": loss, **means}


def read_features(records: Records, names: Sequence[str]) -> list[NDArray[Any]]:
    """Return these features of all records of a split, each as one array."""
    blocks = []
    for start in range(0, len(records), _BLOCK):
        indices = np.arange(start, min(start + _BLOCK, len(records)), dtype=np.int64)
        block = records.kind.empty(len(indices), seq=records.seq, pred=records.pred)
        records.gather_into(block, indices)
        blocks.append([getattr(block, name) for name in names])
    return [np.concatenate(arrays) for arrays in zip(*blocks, strict=True)]


def entropy(labels: NDArray[np.integer[Any]]) -> float | None:
    """Return the entropy of labels in nats: the mean loss of guessing them by their frequency; None if there are none.

    >>> round(entropy(np.array([3, 3, 7, 7])), 3)  # ln 2
    0.693
    """
    _, counts = np.unique(labels, return_counts=True)
    frequencies = counts / max(len(labels), 1)
    return float(-np.sum(frequencies * np.log(frequencies))) if len(labels) else None


def mean_cross_entropy(logits: NDArray[np.floating[Any]], labels: NDArray[np.integer[Any]]) -> float:
    """Return the mean cross-entropy in nats between labels (n,) and logits (n, classes)."""
    exact = logits.astype(np.float64)
    log_softmax = exact - np.logaddexp.reduce(exact, axis=1, keepdims=True)
    return float(-np.mean(log_softmax[np.arange(len(exact)), labels]))

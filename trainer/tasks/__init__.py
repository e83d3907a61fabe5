"""What a model is trained for: all that the loop, the log and the evaluation need to know of a task.

A task opens its records, names the sums that an engine adds up over a batch, and turns these into metrics and words. How the
sums are computed is in `trainer.engines`, since that takes a framework. An evaluation is of such sums, or, where a task is
scored, of the outputs for all records together: no sum over batches makes an F1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from bertprep.records import Examples
from bertprep.records.record_set import Records, RecordSet
from bertprep.workspace.layout import DEV, TEST
from trainer.model_config import ModelConfig

_BLOCK = 1024  # records read at a time
Outputs = Mapping[str, NDArray[np.float32]]
"""What a model says of many records, by the names of `Engine.predict`."""


class Sums(Protocol):
    """Losses (in nats) and hits as a named tuple of sums over a batch, or over a micro-batch: those add up to the batch's.

    Within an engine these are tensors of its framework; what it returns are numbers, and the metrics are of those.
    """

    def __iter__(self) -> Iterator[Any]: ...

    @property
    def sequences(self) -> Any:
        """How many sequences count."""

    @property
    def loss(self) -> float:
        """What training minimizes."""

    def plus(self, other: Any) -> Any:
        """The sums of both."""

    def metrics(self) -> dict[str, float]:
        """Means, by their names in the log and in its order: the loss first."""


class Scored(NamedTuple):
    """Metrics by their names in the log, none for a split without labels, and the files of predictions that were written."""

    metrics: dict[str, float]
    files: tuple[Path, ...] = ()


class Scorer(Protocol):
    """Turns a model's outputs for all records of a split into metrics and predictions."""

    def score(self, outputs: Outputs, out: Path | None = None) -> Scored:
        """The metrics; where `out` is a folder, predictions are written to it, in the files that the field's scripts read."""


class Task(Protocol):
    """One kind of training.

    An engine has a module of the same name with the task's heads, `trainer.engines.tensorflow.pretraining` for example.
    """

    @property
    def name(self) -> str:
        """What engines, checkpoints and messages know it by: pretraining, squad or classification."""

    @property
    def examples(self) -> type[Examples]:
        """The kind of the records that it trains on."""

    @property
    def criterion(self) -> str:
        """The metric by which evaluations are compared: the lowest loss is best, of anything else the highest."""

    @property
    def is_scored(self) -> bool:
        """Whether an evaluation is of outputs, by `scorer`, and not of sums."""

    @property
    def sums(self) -> Callable[..., Sums]:
        """The type of its sums; all are 0 without arguments."""

    def variable_shapes(self, model: ModelConfig) -> dict[str, tuple[int, ...]]:
        """Name and shape of every variable, its heads' last, in the order in which they are kept everywhere."""

    def open_records(self, data: Sequence[Path], split: str, model: ModelConfig) -> RecordSet:
        """The records of a split, whose values are held against the sizes of the model as they are read."""

    def flops(self, model: ModelConfig, *, seq: int, pred: int) -> int:
        """Floating-point operations of a sequence, forward and backward."""

    def baseline(self, training: Records, test: Records, model: ModelConfig, *, test_sequences: int) -> dict[str, float | None]:
        """Metrics on the test split that a model must beat, by their names in the log; None where one is not known."""

    def scorer(self, data: Path, records: RecordSet, split: str = TEST) -> Scorer:
        """What scores outputs for all records of a split of a folder, if the task is scored.

        Raises `BertprepError` where the records are not those that their labels, or questions, belong to.
        """

    def made_with(self) -> dict[str, Any]:
        """What a checkpoint says of the task: nothing for pretraining, else its name and what its heads mean."""

    def describe_training(self, entry: Mapping[str, Any]) -> str:
        """The metrics of an entry of the log, for the console's line of a step."""

    def describe_evaluation(self, entry: Mapping[str, Any]) -> str:
        """The metrics of an entry of the log, for the console's line of an evaluation."""


def encoder_flops(model: ModelConfig, seq: int) -> int:
    """Multiplications with additions of the layers' matrix products for a sequence, forward."""
    hidden, inner = model.hidden_size, model.intermediate_size
    layer = seq * (4 * hidden * hidden + 2 * hidden * inner) + 2 * seq * seq * hidden
    return model.num_hidden_layers * layer


def evaluated_split(task: Task) -> str:
    """What users call the split that a run is evaluated on."""
    return name_of_split(TEST) if task.is_scored else TEST


def name_of_split(split: str) -> str:
    """What users call a task's split: its test split is the dev set."""
    return DEV if split == TEST else split


def read_blocks(records: RecordSet) -> Iterator[Any]:
    """All records in order; a block is valid until the next."""
    block = records.kind.empty(min(_BLOCK, len(records)), seq=records.seq, pred=records.pred)
    for start in range(0, len(records), _BLOCK):
        numbers = np.arange(start, min(start + _BLOCK, len(records)))
        records.gather_into(block, numbers)
        yield block[: len(numbers)]

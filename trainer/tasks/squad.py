"""SQuAD: the start and the end of the answer among a window's tokens, whose mean losses are averaged.

The test split has no answers, as Google writes it: predictions are made from the logits of all windows of a question and held
against the questions' file, which `bertprep create --task` keeps beside the records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from bertprep.records import Examples, SquadEvalExamples, SquadExamples
from bertprep.records.record_set import RecordSet
from bertprep.weights import google_names
from bertprep.workspace.layout import TRAINING
from trainer.model_config import ModelConfig
from trainer.tasks import Outputs, encoder_flops, open_labelled


class SquadSums(NamedTuple):
    """See `trainer.tasks.Sums`; a checkpoint has them in this order."""

    loss_sum: Any = 0.0
    start_correct_sum: Any = 0.0
    end_correct_sum: Any = 0.0
    sequences: Any = 0.0

    def plus(self, other: SquadSums) -> SquadSums:
        return SquadSums(*(one + another for one, another in zip(self, other, strict=True)))

    @property
    def loss(self) -> float:
        return self.metrics()["loss"]

    def metrics(self) -> dict[str, float]:
        """Means over sequences; 0 where there are none."""
        sequences = max(self.sequences, 1e-5)
        return {
            "loss": float(self.loss_sum / sequences),
            "start_accuracy": float(self.start_correct_sum / sequences),
            "end_accuracy": float(self.end_correct_sum / sequences),
        }


@dataclass(frozen=True)
class Squad:
    """The task of one version; 2.0 has questions without an answer, whose start and end are the first token."""

    version: str = "1.1"
    name = "squad"
    examples: type[Examples] = SquadExamples
    criterion, is_scored = "f1", True
    sums = SquadSums

    def variable_shapes(self, model: ModelConfig) -> dict[str, tuple[int, ...]]:
        # As Hugging Face's BertForQuestionAnswering; Google keeps a pooler that nothing uses
        sizes = asdict(model)
        return {**google_names.body_shapes(sizes, pooler=False), **google_names.squad_heads(sizes)}

    def open_records(self, data: Sequence[Path], split: str, model: ModelConfig) -> RecordSet:
        return open_labelled(data, split, model, (SquadExamples,) if split == TRAINING else (SquadEvalExamples,))

    def flops(self, model: ModelConfig, *, seq: int, pred: int) -> int:  # noqa: ARG002 - as for any task
        return 3 * 2 * (encoder_flops(model, seq) + seq * 2 * model.hidden_size)

    def baseline(self, *_: Any, **__: Any) -> dict[str, float | None]:
        return {}

    def score(self, outputs: Outputs, records: RecordSet, data: Path) -> dict[str, float]:
        raise NotImplementedError

    def made_with(self) -> dict[str, Any]:
        return {"task": {"name": self.name, "version": self.version}}

    def describe_training(self, entry: Mapping[str, Any]) -> str:
        return f"loss {entry['loss']:.3f}, accuracy of start {entry['start_accuracy']:.2f}, of end {entry['end_accuracy']:.2f}"

    def describe_evaluation(self, entry: Mapping[str, Any]) -> str:
        return f"exact match {entry['exact_match']:.2f}, F1 {entry['f1']:.2f}"

"""SQuAD: the start and the end of the answer among a window's tokens, whose mean losses are averaged.

The test split has no answers, as Google writes it: predictions are made from the logits of all windows of a question and held
against the questions' file, which `bertprep create --task` keeps beside the records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple

from bertprep.config import SquadSettings
from bertprep.errors import BertprepError
from bertprep.instances import load_vocabulary
from bertprep.records import Examples, SquadEvalExamples, SquadExamples
from bertprep.records.data_sets import find_records
from bertprep.records.record_set import RecordSet
from bertprep.tasks.squad import V1, read_squad
from bertprep.tasks.squad_answers import SquadPredictions, predict_answers
from bertprep.tasks.squad_features import make_features
from bertprep.tasks.squad_scores import score_answers, search_threshold
from bertprep.weights import google_names
from bertprep.workspace.layout import MANIFEST, QUESTIONS, TRAINING, VOCABULARY
from trainer.model_config import ModelConfig
from trainer.tasks import Outputs, encoder_flops


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

    version: str = V1
    threshold: float | None = field(default=None, compare=False)
    """Of no answer, for 2.0: a score above it is none; without it the one of the highest F1 is searched for."""
    name = "squad"
    examples: type[Examples] = SquadExamples
    criterion, is_scored = "f1", True
    sums = SquadSums

    def variable_shapes(self, model: ModelConfig) -> dict[str, tuple[int, ...]]:
        # As Hugging Face's BertForQuestionAnswering; Google keeps a pooler that nothing uses
        sizes = asdict(model)
        return {**google_names.body_shapes(sizes, pooler=False), **google_names.squad_heads(sizes)}

    def open_records(self, data: Sequence[Path], split: str, model: ModelConfig) -> RecordSet:
        kind = SquadExamples if split == TRAINING else SquadEvalExamples
        return RecordSet(data, split, kind=kind, vocab_size=model.vocab_size, type_vocab_size=model.type_vocab_size)

    def flops(self, model: ModelConfig, *, seq: int, pred: int) -> int:  # noqa: ARG002 - as for any task
        return 3 * 2 * (encoder_flops(model, seq) + seq * 2 * model.hidden_size)

    def baseline(self, *_: Any, **__: Any) -> dict[str, float | None]:
        return {}

    def scorer(self, data: Path, records: RecordSet) -> SquadScorer:
        return SquadScorer(self, data, len(records))

    def made_with(self) -> dict[str, Any]:
        return {"task": {"name": self.name, "version": self.version}}

    def describe_training(self, entry: Mapping[str, Any]) -> str:
        return f"loss {entry['loss']:.3f}, accuracy of start {entry['start_accuracy']:.2f}, of end {entry['end_accuracy']:.2f}"

    def describe_evaluation(self, entry: Mapping[str, Any]) -> str:
        threshold = f"; no answer above {entry['threshold']:.2f}" if "threshold" in entry else ""
        return f"exact match {entry['exact_match']:.2f}, F1 {entry['f1']:.2f}{threshold}"


class SquadScorer:
    """The questions of a folder of records, whose windows are made again: they turn positions into words."""

    def __init__(self, task: Squad, data: Path, rows: int) -> None:
        data_set = find_records(data)
        path = data_set.home.folder / QUESTIONS
        manifest, vocabulary = data_set.manifest, data_set.vocabulary
        if manifest is None or vocabulary is None or not path.is_file():
            raise BertprepError(
                f"{data}: lacks {path.name}, {VOCABULARY} or {MANIFEST}, which predictions are made of; make the records by "
                "bertprep create --task squad"
            )
        known = {each.name for each in fields(SquadSettings)}
        settings = SquadSettings(**{name: value for name, value in manifest.made_with.items() if name in known})
        self._data = read_squad(path, task.version, training=False)
        self._features = make_features(self._data, load_vocabulary(vocabulary), settings, training=False)
        self._threshold = task.threshold
        if len(self._features) != rows:
            raise BertprepError(
                f"{path}: its questions have {len(self._features):,} windows, the records of the test split are {rows:,}; "
                "make the records again"
            )

    def metrics(self, outputs: Outputs) -> dict[str, float]:
        predictions = self._predict(outputs)
        threshold = self._choose_threshold(predictions)
        scores = score_answers(self._data, predictions, threshold)
        found = {"exact_match": scores.get("exact_match", scores.get("exact")), "f1": scores["f1"]}
        return found if self._data.version == V1 else {**found, "threshold": threshold}

    def write(self, outputs: Outputs, out: Path) -> list[Path]:
        predictions = self._predict(outputs)
        predictions.write(out, self._choose_threshold(predictions))
        names = ("predictions", "nbest_predictions", *([] if predictions.null_odds is None else ["null_odds"]))
        return [out / f"{name}.json" for name in names]

    def _predict(self, outputs: Outputs) -> SquadPredictions:
        return predict_answers(self._features, outputs["start_logits"], outputs["end_logits"])

    def _choose_threshold(self, predictions: SquadPredictions) -> float:
        if self._data.version == V1:
            return 0.0
        is_fixed = self._threshold is not None or not self._data.labelled
        return (self._threshold or 0.0) if is_fixed else search_threshold(self._data, predictions)

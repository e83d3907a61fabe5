"""SQuAD: the start and the end of the answer among a window's tokens, whose mean losses are averaged.

The test split has no answers, as Google writes it: predictions are made from the logits of all windows of a question and held
against the questions' file, which `bertprep create --task` keeps beside the records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from bertprep.config import SquadSettings
from bertprep.errors import BertprepError
from bertprep.instances import load_vocabulary
from bertprep.records import Examples, SquadEvalExamples, SquadExamples
from bertprep.records.data_sets import find_records
from bertprep.records.record_set import RecordSet
from bertprep.tasks.squad import V1, read_squad
from bertprep.tasks.squad_answers import SquadPredictions, predict_answers
from bertprep.tasks.squad_features import FIRST_UNIQUE_ID, make_features
from bertprep.tasks.squad_scores import score_answers, search_threshold
from bertprep.weights import google_names
from bertprep.workspace.layout import MANIFEST, QUESTIONS, TEST, TRAINING, VOCABULARY
from bertprep.workspace.manifest import Manifest, sha256_of, sha256_of_questions
from trainer.model_config import ModelConfig
from trainer.tasks import Outputs, Scored, encoder_flops, read_blocks


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
    nbest_size: int = field(default=20, compare=False)
    max_answer_length: int = field(default=30, compare=False)  # in tokens
    name = "squad"
    examples: ClassVar[type[Examples]] = SquadExamples
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

    def scorer(self, data: Path, records: RecordSet, split: str = TEST) -> SquadScorer:  # noqa: ARG002 - it has no other
        return SquadScorer(self, data, records)

    def made_with(self) -> dict[str, Any]:
        return {"task": {"name": self.name, "version": self.version}}

    def describe_training(self, entry: Mapping[str, Any]) -> str:
        return f"loss {entry['loss']:.3f}, accuracy of start {entry['start_accuracy']:.2f}, of end {entry['end_accuracy']:.2f}"

    def describe_evaluation(self, entry: Mapping[str, Any]) -> str:
        threshold = f"; no answer above {entry['threshold']:.2f}" if "threshold" in entry else ""
        return f"exact match {entry['exact_match']:.2f}, F1 {entry['f1']:.2f}{threshold}"


class SquadScorer:
    """The questions of a folder of records, whose windows are made again: they turn positions into words."""

    def __init__(self, task: Squad, data: Path, records: RecordSet) -> None:
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
        _check_questions(path, manifest)
        self._data = read_squad(path, task.version, training=False)
        self._features = make_features(self._data, load_vocabulary(vocabulary), settings, training=False)
        self._task = task
        if (len(self._features), settings.seq) != (len(records), records.seq):
            raise BertprepError(
                f"{path}: its questions have {len(self._features):,} windows of {settings.seq} tokens, the records of the "
                f"dev split are {len(records):,} of {records.seq}; make the records again"
            )
        _check_order(records)

    def score(self, outputs: Outputs, out: Path | None = None) -> Scored:
        task, is_labelled = self._task, self._data.labelled
        predictions = predict_answers(
            self._features, outputs["start_logits"], outputs["end_logits"],
            nbest_size=task.nbest_size, max_answer_length=task.max_answer_length,
        )  # fmt: skip
        threshold = self._choose_threshold(predictions)
        files: tuple[Path, ...] = ()
        if out is not None:
            predictions.write(out, threshold)
            names = ("predictions", "nbest_predictions", *([] if predictions.null_odds is None else ["null_odds"]))
            files = tuple(out / f"{name}.json" for name in names)
            if not is_labelled:
                return Scored({}, files)
        scores = score_answers(self._data, predictions, threshold)
        metrics = {"exact_match": scores.get("exact_match", scores.get("exact")), "f1": scores["f1"]}
        if self._data.version != V1:
            of_kinds = {name: score for name, score in scores.items() if name.endswith(("_exact", "_f1"))}
            metrics |= {**of_kinds, "threshold": threshold}  # of questions with an answer, and of those without
        return Scored(metrics, files)

    def _choose_threshold(self, predictions: SquadPredictions) -> float:
        if self._data.version == V1:
            return 0.0
        given = self._task.threshold
        return (given or 0.0) if given is not None or not self._data.labelled else search_threshold(self._data, predictions)


def _check_questions(path: Path, manifest: Manifest) -> None:
    """Raise where the questions are not those that the records were made of."""
    expected = sha256_of_questions(manifest)
    if (found := sha256_of(path)) != expected:
        raise BertprepError(
            f"{path}: has sha256 {found[:16]}..., expected {str(expected)[:16]}... by {MANIFEST}; it is not the file that the "
            "records were made of: put that one there, or make the records again"
        )


def _check_order(records: RecordSet) -> None:
    """Raise where the windows are not in the order in which they were made, by their unique ids."""
    start = 0
    for block in read_blocks(records):
        wrong = np.flatnonzero(block.unique_ids != FIRST_UNIQUE_ID + start + np.arange(len(block)))
        if len(wrong):
            row = int(wrong[0])
            path, number = records.place_of(start + row)
            raise BertprepError(
                f"{path}: record {number}: has unique_id {block.unique_ids[row]}, expected {FIRST_UNIQUE_ID + start + row}; "
                "predictions need all windows in order: make the records again"
            )
        start += len(block)

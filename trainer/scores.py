"""The official scores of SQuAD and GLUE, from the logits for all records together, and the files of predictions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bertprep.config import SquadSettings
from bertprep.errors import BertprepError
from bertprep.files.checksums import SHA256
from bertprep.files.paths import checksum_of
from bertprep.instances import load_vocabulary
from bertprep.records.records import Records
from bertprep.tasks.glue import UNLABELLED, GlueTask
from bertprep.tasks.glue_metrics import compute_metrics, submission_path, write_predictions, write_submission
from bertprep.tasks.squad import V1, read_squad
from bertprep.tasks.squad_answers import PREDICTION_FILES, predict_answers
from bertprep.tasks.squad_features import FIRST_UNIQUE_ID, make_features
from bertprep.tasks.squad_scores import score_answers, search_threshold
from bertprep.work.choose import find_records
from bertprep.work.layout import MANIFEST, QUESTIONS, TEST, VOCABULARY
from bertprep.work.manifest import sha256_of_questions
from trainer.tasks import Classification, Squad, Task, name_of_split

Outputs = Mapping[str, NDArray[np.float32]]
"""Logits for all records of a split, by the names of the task's outputs."""
_BLOCK = 1024  # records read at a time


class AnswerOptions(NamedTuple):
    """How answers are chosen from the logits of their tokens."""

    nbest_size: int = 20
    max_answer_length: int = 30  # tokens
    threshold: float | None = None  # 2.0: no answer where its score is higher; None: the one of the best F1


class ClassificationScorer:
    """The labels of a split, if any, without padding records."""

    def __init__(self, of: GlueTask, records: Records, split: str) -> None:
        self._of, self._split = of, split
        labels, is_real = _read_features(records, "label_ids", "is_real_example")
        self._rows = np.flatnonzero(is_real)
        self._labels = labels[self._rows]

    def score(self, outputs: Outputs, out: Path | None = None) -> dict[str, float]:
        """Return metrics by name, none without labels; with `out` write the predictions there."""
        logits = outputs["label"][self._rows]
        if out is not None and self._is_for_submission:
            write_submission(self._of, self._split, logits, out)
        elif out is not None:
            write_predictions(self._of, logits, out / self._split / "predictions.tsv")
        if self._split in UNLABELLED:
            return {}
        return {"loss": self._loss(logits.astype(np.float64)), **compute_metrics(self._of, logits, self._labels)}

    def files(self, out: Path) -> list[Path]:
        """Return the files that `score` writes."""
        if self._is_for_submission:
            return [submission_path(self._of, self._split, out)]
        return [out / self._split / "predictions.tsv"]

    @property
    def _is_for_submission(self) -> bool:
        return self._split in UNLABELLED and bool(self._of.submissions)

    def _loss(self, logits: NDArray[np.float64]) -> float:
        if self._of.is_regression:
            return float(np.mean((logits[:, 0] - self._labels) ** 2))
        log_softmax = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
        return float(-np.mean(log_softmax[np.arange(len(logits)), self._labels]))


class SquadScorer:
    """The questions of a folder of records, whose windows are made again: they turn positions into words."""

    def __init__(self, task: Squad, data: Path, records: Records, options: AnswerOptions) -> None:
        data_set = find_records(data)
        path = data_set.folder / QUESTIONS
        manifest, vocabulary = data_set.manifest, data_set.vocabulary
        if manifest is None or vocabulary is None or not path.is_file():
            raise BertprepError(
                f"{data}: lacks {path.name}, {VOCABULARY} or {MANIFEST}, which predictions are made of; make the records by "
                "bertprep task squad"
            )
        if (found := checksum_of(path, SHA256)) != (expected := sha256_of_questions(manifest)):
            raise BertprepError(
                f"{path}: has sha256 {found[:16]}..., expected {str(expected)[:16]}... by {MANIFEST}; it is not the file that "
                "the records were made of: put that one there, or make the records again"
            )
        known = {each.name for each in fields(SquadSettings)}
        settings = SquadSettings(**{name: value for name, value in manifest.made_with.items() if name in known})
        self._options, self._data = options, read_squad(path, task.version, training=False)
        self._features = make_features(self._data, load_vocabulary(vocabulary), settings, training=False)
        (ids,) = _read_features(records, "unique_ids")
        in_order = FIRST_UNIQUE_ID + np.arange(len(self._features))
        if settings.seq != records.seq or not np.array_equal(ids, in_order):
            raise BertprepError(
                f"{path}: its questions have {len(in_order):,} windows of {settings.seq} tokens, the records of the dev split "
                f"are {len(records):,} of {records.seq}, or in another order; make the records again"
            )

    def score(self, outputs: Outputs, out: Path | None = None) -> dict[str, float]:
        """Return metrics by name, none without known answers; with `out` write the predictions there."""
        data, (nbest_size, max_answer_length, threshold) = self._data, self._options
        predictions = predict_answers(
            self._features, outputs["start"], outputs["end"], nbest_size=nbest_size, max_answer_length=max_answer_length
        )
        if threshold is None:
            has_choice = data.version != V1 and data.labelled
            threshold = search_threshold(data, predictions) if has_choice else 0.0
        if out is not None:
            predictions.write(out, threshold)
        if not data.labelled:
            return {}
        scores = score_answers(data, predictions, threshold)
        if data.version == V1:
            return {"exact_match": scores["exact_match"], "f1": scores["f1"]}
        by_kind = {name: score for name, score in scores.items() if name.endswith(("_exact", "_f1"))}
        return {"exact_match": scores["exact"], "f1": scores["f1"], **by_kind, "threshold": threshold}

    def files(self, out: Path) -> list[Path]:
        """Return the files that `score` may write."""
        return [out / f"{name}.json" for name in PREDICTION_FILES]


Scorer: TypeAlias = ClassificationScorer | SquadScorer
_DEFAULT_ANSWERS = AnswerOptions()


def scorer_of(
    task: Task, data: Path, records: Records, split: str = TEST, answers: AnswerOptions = _DEFAULT_ANSWERS
) -> Scorer | None:
    """Return the scorer of a split, None for pretraining; raises `BertprepError` if records do not match their questions."""
    if isinstance(task, Squad):
        return SquadScorer(task, data, records, answers)
    if isinstance(task, Classification):
        return ClassificationScorer(task.of, records, name_of_split(task, split))
    return None


def _read_features(records: Records, *names: str) -> list[NDArray[Any]]:
    blocks = []
    for start in range(0, len(records), _BLOCK):
        indices = np.arange(start, min(start + _BLOCK, len(records)), dtype=np.int64)
        block = records.kind.empty(len(indices), seq=records.seq, pred=records.pred)
        records.gather_into(block, indices)
        blocks.append([getattr(block, name) for name in names])
    return [np.concatenate(arrays) for arrays in zip(*blocks, strict=True)]

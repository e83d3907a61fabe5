"""Predictions to scores: the official exact match and F1, and for v2.0 the threshold of no answer that suits them best."""

from typing import Any

from bertprep.errors import BertprepError
from bertprep.tasks.squad import V1, SquadData
from bertprep.tasks.squad_answers import SquadPredictions
from bertprep.tasks.squad_metric import EvaluationV2, Questions, evaluate_v1


def score_answers(data: SquadData, predictions: SquadPredictions, threshold: float = 0.0) -> dict[str, Any]:
    """Return the scores in percent under the official names: exact_match and f1; for v2.0 exact, f1 and more."""
    questions = _questions(data)
    if data.version == V1:
        return evaluate_v1(questions, predictions.answers())
    return EvaluationV2(questions, predictions.answers(threshold)).averages(1.0)


def search_threshold(data: SquadData, predictions: SquadPredictions) -> float:
    """Return the threshold for v2.0 with the highest F1, on the questions that it is then used for, like the published
    scores.
    """
    if predictions.null_odds is None:
        raise ValueError("v1.1 has no questions without an answer, and no threshold")
    evaluation = EvaluationV2(_questions(data), predictions.best, predictions.null_odds)
    found = float(evaluation.best()["best_f1_thresh"])
    all_blank = min(predictions.null_odds.values()) - 1.0  # which best() calls 0, as if odds were probabilities
    return max((found, all_blank), key=lambda threshold: float(evaluation.averages(threshold)["f1"]))


def _questions(data: SquadData) -> Questions:
    if not data.labelled:
        raise BertprepError(f"{data.path}: has no answers to score predictions with; score them where the answers are")
    return list(zip(data.ids, data.answers, strict=True))

"""Scores predictions with the official exact match and F1, and finds the best no-answer threshold for v2.0."""

from typing import Any

from bertprep.errors import BertprepError
from bertprep.tasks.squad import V1, SquadData
from bertprep.tasks.squad_answers import SquadPredictions
from bertprep.tasks.squad_metric import EvaluationV2, Questions, evaluate_v1


def score_answers(data: SquadData, predictions: SquadPredictions, threshold: float = 0.0) -> dict[str, Any]:
    """Return the scores in percent, under their official names: exact_match and f1, or for v2.0 exact, f1 and more."""
    questions = _questions(data)
    if data.version == V1:
        return evaluate_v1(questions, predictions.answers())
    return EvaluationV2(questions, predictions.answers(threshold)).averages(1.0)


def search_threshold(data: SquadData, predictions: SquadPredictions) -> float:
    """Return the no-answer threshold with the highest F1 for v2.0.

    As for published scores, it is chosen on the same questions that are then scored.
    """
    if predictions.null_odds is None:
        raise ValueError("v1.1 has no threshold, since each of its questions has an answer")
    evaluation = EvaluationV2(_questions(data), predictions.best, predictions.null_odds)
    found = float(evaluation.best()["best_f1_thresh"])
    all_blank = min(predictions.null_odds.values()) - 1.0  # best() returns 0 for this, as if the odds were probabilities
    return max((found, all_blank), key=lambda threshold: float(evaluation.averages(threshold)["f1"]))


def _questions(data: SquadData) -> Questions:
    if not data.labelled:
        raise BertprepError(f"{data.path}: has no answers to score predictions with; name a file with answers")
    return list(zip(data.ids, data.answers, strict=True))

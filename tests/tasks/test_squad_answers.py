"""Answers from logits that a person can check by eye, in random contexts, and their scores."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from bertprep.errors import BertprepError
from bertprep.tasks.squad import read_squad
from bertprep.tasks.squad_answers import SquadPredictions, predict_answers
from bertprep.tasks.squad_features import SquadFeatures, SquadSettings, make_features
from bertprep.tasks.squad_scores import score_answers, search_threshold
from tests.tasks.squad_files import answer, features_of, question, squad, vocabulary, write

Logits = dict[tuple[int, int], float]  # (row, position) -> logit; 0 elsewhere


def logits(features: SquadFeatures, values: Logits) -> NDArray[np.float32]:
    filled = np.zeros((len(features), features.settings.seq), np.float32)
    for position, value in values.items():
        filled[position] = value
    return filled


def predict(features: SquadFeatures, starts: Logits, ends: Logits, **options: Any) -> SquadPredictions:
    return predict_answers(features, logits(features, starts), logits(features, ends), **options)


# The text of a context between two positions; its first token is at position 3, and one row holds all.
TEXTS: dict[str, tuple[str, int, int, str]] = {
    "capitals return": ("The CAFE c", 3, 4, "The CAFE"),
    "without the brackets": ("(1895-1943).", 4, 6, "1895-1943"),
    "a piece of a word": ("a xyz", 4, 5, "xy"),
    "a piece that is found earlier in the word": ("a xyxz", 6, 6, "x"),
    "a narrow no-break space becomes a space": ("a\u202fb c", 3, 4, "a b"),
    "a no-break space stays, with its word": ("a\u00a0b c", 3, 3, "a\u00a0b"),
    "a combining accent: lengths differ, the whole word": ("cafe\u0301, c", 3, 3, "cafe\u0301,"),
    "an unknown token: the whole words": ("a ß, c", 4, 4, "ß,"),
    "## in the text vanishes: the whole word": ("a ##b c", 4, 6, "##b"),
}


@pytest.mark.parametrize("case", TEXTS)
def test_texts(tmp_path: Path, case: str) -> None:
    context, first, last, wanted = TEXTS[case]
    features = features_of(tmp_path, context, question(answers=[answer(context, context)]), seq=24)
    found = predict(features, {(0, first): 9.0}, {(0, last): 9.0})
    assert found.answers() == {"q1": wanted}
    assert found.nbest["q1"][0] == {**found.nbest["q1"][0], "text": wanted, "start_logit": 9.0, "end_logit": 9.0}


def test_equal_logits_keep_their_order(tmp_path: Path) -> None:
    """All are equal: the first start with its ends in order, then the next one; 0.0 and -0.0 are equal too."""
    features = features_of(tmp_path, "a b c", question(answers=[answer("a b c", "a")]), seq=12)
    texts = [entry["text"] for entry in predict(features, {(0, 3): -0.0}, {(0, 3): -0.0}).nbest["q1"]]
    assert texts == ["a", "a b", "a b c", "b", "b c", "c"]


def test_odds_of_no_answer(tmp_path: Path) -> None:
    """The least score of position 0 over the windows, 1 + 2, less that of the best answer, 4 + 1."""
    context = "a b c d e f"
    features = features_of(tmp_path, context, question(answers=[]), version="v2.0")
    starts: Logits = {(0, 0): 5.0, (1, 0): 1.0, (0, 3): 4.0}
    found = predict(features, starts, {(0, 0): 5.0, (1, 0): 2.0, (0, 4): 1.0})
    assert found.null_odds == {"q1": -2.0}
    assert (found.best, found.answers(), found.answers(-2.0)) == ({"q1": "a b"}, {"q1": "a b"}, {"q1": "a b"})
    assert found.answers(-2.5) == {"q1": ""}
    assert [entry["text"] for entry in found.nbest["q1"][:3]] == ["a b", "a", "a b c"]
    assert "" in [entry["text"] for entry in found.nbest["q1"]]


@pytest.mark.parametrize(("version", "wanted"), [("v1.1", "empty"), ("v2.0", "")])
def test_a_context_without_words_has_no_answer(tmp_path: Path, version: str, wanted: str) -> None:
    """Where Google's code fails for v2.0, the question is taken to have no answer."""
    questions = [question(name, answers=[{"text": "a"}]) for name in ("blank", "vanishes", "other")]
    content = squad(version, (" \n", questions[:1]), ("\u200b", questions[1:2]), ("a b", questions[2:]))
    data = read_squad(write(tmp_path, content), version, training=False)
    features = make_features(data, vocabulary(tmp_path), SquadSettings(seq=12, max_query=4), training=False)
    assert len(features) == 1
    found = predict(features, {(0, 3): 1.0}, {(0, 3): 1.0})
    assert found.answers() == {"blank": wanted, "vanishes": wanted, "other": "a"}
    first = {"text": wanted, "probability": 1.0, "start_logit": 0.0, "end_logit": 0.0}
    assert found.nbest["blank"] == [first]
    assert found.null_odds is None or found.null_odds["blank"] == 1_000_000.0


def test_logits_that_are_no_numbers(tmp_path: Path) -> None:
    context = "a b c d e f"
    features = features_of(tmp_path, context, question(answers=[answer(context, "a")]))
    for value in (np.nan, np.inf):
        with pytest.raises(BertprepError, match="logits of unique_id 1000000001 are NaN or infinite"):
            predict(features, {}, {(1, 4): value})
    with pytest.raises(ValueError, match=r"expected float32 \(2, 8\)"):
        predict_answers(features, np.zeros((1, 8), np.float32), np.zeros((1, 8), np.float32))


# --- scores


def scored(folder: Path, version: str, golds: dict[str, list[str]], odds: dict[str, float]) -> tuple[Any, SquadPredictions]:
    """Return data with these answers, and predictions of "a" with these odds of no answer."""
    questions = [question(name, answers=[{"text": text} for text in texts]) for name, texts in golds.items()]
    data = read_squad(write(folder, squad(version, ("a b c", questions))), version, training=False)
    return data, SquadPredictions(dict.fromkeys(golds, "a b"), {}, odds if version == "v2.0" else None)


def test_scores_of_v2_by_threshold(tmp_path: Path) -> None:
    """X and y have answers; at 1.5 only z, which has none, is left blank."""
    data, predictions = scored(tmp_path, "v2.0", {"x": ["b"], "y": ["b"], "z": []}, {"x": -1.0, "y": 1.5, "z": 2.0})
    assert score_answers(data, predictions)["exact"] == pytest.approx(200 / 3)  # "y" is blank at 0
    assert search_threshold(data, predictions) == 1.5
    assert score_answers(data, predictions, 1.5)["exact"] == 100.0
    assert score_answers(data, predictions, 2.0)["NoAns_exact"] == 0.0


def test_the_threshold_that_leaves_all_blank(tmp_path: Path) -> None:
    data, predictions = scored(tmp_path, "v2.0", {"x": [], "y": [], "z": ["b"]}, {"x": -3.0, "y": -2.0, "z": -1.0})
    threshold = search_threshold(data, predictions)
    assert threshold < -3.0
    assert score_answers(data, predictions, threshold)["exact"] == pytest.approx(200 / 3)


def test_a_file_without_answers_cannot_be_scored(tmp_path: Path) -> None:
    features = features_of(tmp_path, "a b", question())
    with pytest.raises(BertprepError, match="has no answers to score predictions with"):
        score_answers(features.data, predict(features, {}, {}))
    with pytest.raises(ValueError, match="no threshold"):
        search_threshold(features.data, predict(features, {}, {}))

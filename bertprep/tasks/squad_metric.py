"""Computes SQuAD's metrics, exact match and F1, and has the command lines that trainers call to score predictions.

`bertprep download squad` writes this file next to the data of each version, as evaluate-v1.1.py and evaluate-v2.0.py. They
take the arguments of the published programs and print the same output, to every digit. So this file needs only the standard
library of Python 3.6 or later (hence the quoted annotations).

Answers are normalized before they are compared: to lower case, without ASCII punctuation and articles, with single spaces.
Part of bertprep, Apache-2.0.
"""

import argparse
import json
import re
import string
import sys
from collections import Counter
from pathlib import Path
from typing import Any, List, Tuple

PUNCTUATION = str.maketrans("", "", string.punctuation)
ARTICLES = re.compile(r"\b(a|an|the)\b")

_SCORES = b'{"exact": '  # the beginning of a file of scores
Questions = List[Tuple[str, List[str]]]
"""The id and the gold answers of each question, in order; an unanswerable question has no gold answers."""


class EvaluationError(Exception):
    """An invalid file; the command line prints the message and exits with status 1."""


def normalize(answer: str) -> str:
    """Return the form in which answers are compared; punctuation is removed before articles.

    >>> normalize("The  U.S. on a well-kept the-apple")
    'us on wellkept theapple'
    """
    return " ".join(ARTICLES.sub(" ", answer.lower().translate(PUNCTUATION)).split())


def exact_match(gold: str, prediction: str) -> bool:
    """Return whether two answers are equal after normalization."""
    return normalize(gold) == normalize(prediction)


def f1(gold: str, prediction: str) -> float:
    """Return the F1 of the words that two answers share; 0 if one of them has no words.

    >>> f1("in 1968", "1968")
    0.6666666666666666
    """
    gold_words, words = normalize(gold).split(), normalize(prediction).split()
    shared = sum((Counter(gold_words) & Counter(words)).values())
    if not shared:
        return 0.0
    precision, recall = shared / len(words), shared / len(gold_words)
    return 2 * precision * recall / (precision + recall)


def f1_or_blank(gold: str, prediction: str) -> float:
    """Return the F1 of v2.0, where a blank answer can be right: two answers without words are equal."""
    # an int as in the published program: since Python 3.12, sum() rounds floats and ints differently in the last digit
    return f1(gold, prediction) or int(not normalize(gold) and not normalize(prediction))


def questions_of(articles: "list[Any]") -> Questions:
    """Return the id and the gold answers of each question of a data file, in order."""
    return [
        (question["id"], [answer["text"] for answer in question["answers"]])
        for article in articles
        for paragraph in article["paragraphs"]
        for question in paragraph["qas"]
    ]


def evaluate_v1(questions: Questions, predictions: "dict[str, str]") -> "dict[str, Any]":
    """Return exact match and F1 in percent. A question without a prediction is wrong, and reported on standard error."""
    matches, f1_sum = 0, 0.0
    for question, golds in questions:
        if question not in predictions:
            print(f"Unanswered question {question} will receive score 0.", file=sys.stderr)
            continue
        if not golds:
            raise EvaluationError(
                f"question {question} has no answer, but v1.1 has one for each; use evaluate-v2.0.py for v2.0"
            )
        matches += max(exact_match(gold, predictions[question]) for gold in golds)
        f1_sum += max(f1(gold, predictions[question]) for gold in golds)
    return {"exact_match": _percent(matches, len(questions)), "f1": _percent(f1_sum, len(questions))}


class EvaluationV2:
    """The scores of predictions for v2.0, by question; if a question has no gold answer, a blank prediction is right.

    `no_answer` has the model's no-answer probability for each question. Above a threshold, the prediction counts as blank.
    """

    def __init__(
        self, questions: Questions, predictions: "dict[str, str]", no_answer: "dict[str, float] | None" = None
    ) -> None:
        self.golds = dict(questions)
        self.predictions = predictions
        self.no_answer = dict.fromkeys(predictions, 0.0) if no_answer is None else no_answer
        missing = [question for question in self.golds if question not in predictions]
        for question in missing:
            print(f"Missing prediction for {question}")
        if missing:
            raise EvaluationError(f'{len(missing)} of {len(self.golds)} questions have no prediction; write "" for a blank one')
        unknown = [question for question in self.golds if question not in self.no_answer]
        if unknown:
            raise EvaluationError(f"{len(unknown)} of {len(self.golds)} questions have no probability, such as {unknown[0]}")
        self.exact: dict[str, float] = {}
        self.f1: dict[str, float] = {}
        for question, golds in self.golds.items():
            wanted = [gold for gold in golds if normalize(gold)] or [""]
            self.exact[question] = max(exact_match(gold, predictions[question]) for gold in wanted)
            self.f1[question] = max(f1_or_blank(gold, predictions[question]) for gold in wanted)

    def averages(self, threshold: float) -> "dict[str, Any]":
        """Return the scores in percent: for all questions and, if there are any, for those with and without an answer."""
        exact, f1_scores = self._blanked(self.exact, threshold), self._blanked(self.f1, threshold)
        has_answer = [question for question, golds in self.golds.items() if golds]
        has_none = [question for question, golds in self.golds.items() if not golds]
        found = {}
        for prefix, questions in (("", list(self.golds)), ("HasAns_", has_answer), ("NoAns_", has_none)):
            if questions or not prefix:
                found[prefix + "exact"] = _percent(sum(exact[question] for question in questions), len(questions))
                found[prefix + "f1"] = _percent(sum(f1_scores[question] for question in questions), len(questions))
                found[prefix + "total"] = len(questions)
        return found

    def _blanked(self, scores: "dict[str, float]", threshold: float) -> "dict[str, float]":
        return {
            question: float(not self.golds[question]) if self.no_answer[question] > threshold else score
            for question, score in scores.items()
        }

    def best(self) -> "dict[str, Any]":
        """Return the best scores over all thresholds, with their thresholds."""
        found = {}
        asked = (question for question in self.no_answer if question in self.golds)
        surest_first = sorted(asked, key=lambda question: self.no_answer[question])
        for name, scores in (("exact", self.exact), ("f1", self.f1)):
            best = total = float(sum(not golds for golds in self.golds.values()))  # everything blank
            best_threshold: float = 0.0
            for question in surest_first:
                if self.golds[question]:
                    total += scores[question]
                elif self.predictions[question]:
                    total -= 1
                if total > best:
                    best, best_threshold = total, self.no_answer[question]
            found["best_" + name] = _percent(best, len(scores))
            found["best_" + name + "_thresh"] = best_threshold
        return found


def _percent(total: float, count: int) -> float:
    if not count:
        raise EvaluationError("the data file has no questions")
    return 100.0 * total / count


def _read(path: str) -> "dict[str, Any]":
    try:
        with Path(path).open(encoding="utf-8") as file:
            content = json.load(file)
    except OSError as error:
        raise EvaluationError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise EvaluationError(f"{path}: is not JSON ({error})") from None
    if not isinstance(content, dict):
        raise EvaluationError(f"{path}: has a JSON {type(content).__name__}, expected an object")
    return content


def _read_questions(path: str) -> "tuple[dict[str, Any], Questions]":
    content = _read(path)
    try:
        return content, questions_of(content["data"])
    except (KeyError, TypeError) as error:
        raise EvaluationError(f"{path}: is not a SQuAD data file ({type(error).__name__}: {error})") from None


def _read_by_question(path: str, name: str, kinds: "tuple[type, ...]") -> "dict[str, Any]":
    values = _read(path)
    for question, value in values.items():
        if not isinstance(value, kinds):
            raise EvaluationError(f"{path}: question {question}: the {name} is {value!r}, expected {kinds[0].__name__}")
    return values


def run_v1(arguments: "list[str]") -> None:
    """Run evaluate-v1.1.py DATA PREDICTIONS, which prints one line of JSON."""
    parser = argparse.ArgumentParser(description="Evaluation for SQuAD 1.1")
    parser.add_argument("dataset_file", help="Dataset file")
    parser.add_argument("prediction_file", help="Prediction File")
    options = parser.parse_args(arguments)
    content, questions = _read_questions(options.dataset_file)
    if content.get("version") != "1.1":
        print(f"Evaluation expects v-1.1, but got dataset with v-{content.get('version')}", file=sys.stderr)
    print(json.dumps(evaluate_v1(questions, _read_by_question(options.prediction_file, "answer", (str,)))))


def run_v2(arguments: "list[str]") -> None:
    """Run evaluate-v2.0.py DATA PREDICTIONS [options], which prints JSON or writes it to a file."""
    parser = argparse.ArgumentParser(description="Evaluation for SQuAD 2.0")
    parser.add_argument("data_file", metavar="data.json", help="Input data JSON file.")
    parser.add_argument("pred_file", metavar="pred.json", help="Model predictions.")
    parser.add_argument("--out-file", "-o", metavar="eval.json", help="Write the scores to this file (default: print them).")
    parser.add_argument("--na-prob-file", "-n", metavar="na_prob.json", help="The model's no-answer probabilities.")
    parser.add_argument(
        "--na-prob-thresh",
        "-t",
        type=float,
        default=1.0,
        help='Predict "" if the no-answer probability is above this (default: 1.0).',
    )
    parser.add_argument("--verbose", "-v", action="store_true", help="Accepted, and ignored.")
    if not arguments:
        parser.print_help()
        sys.exit(1)
    options = parser.parse_args(arguments)
    _, questions = _read_questions(options.data_file)
    predictions = _read_by_question(options.pred_file, "answer", (str,))
    probabilities = None
    if options.na_prob_file:
        probabilities = _read_by_question(options.na_prob_file, "probability", (float, int))
    evaluation = EvaluationV2(questions, predictions, probabilities)
    found = evaluation.averages(options.na_prob_thresh)
    if probabilities is not None:
        found.update(evaluation.best())
    if options.out_file:
        _write_scores(Path(options.out_file), json.dumps(found))
    else:
        print(json.dumps(found, indent=2))


def _write_scores(path: Path, scores: str) -> None:
    """Write the scores, and replace a file only if it has scores too."""
    if path.is_file():
        with path.open("rb") as file:
            if file.read(len(_SCORES)) not in (b"", _SCORES):
                raise EvaluationError(f"{path}: exists and is not a file of scores; name another file")
    path.write_text(scores, encoding="utf-8")


def main(version: str) -> None:
    """Score the predictions given on the command line; `version` is "v1.1" or "v2.0"."""
    try:
        {"v1.1": run_v1, "v2.0": run_v2}[version](sys.argv[1:])
    except (EvaluationError, OSError) as error:
        sys.exit(f"evaluate-{version}.py: error: {error}")

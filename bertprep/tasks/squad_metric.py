"""The metric of SQuAD, exact match and F1 of answers, and the command lines by which trainers have predictions scored.

`bertprep download squad` writes this file beside the data of each version, as evaluate-v1.1.py and evaluate-v2.0.py: what is
given, what is printed, and every digit of it, are those of the programs that the task was published with. So it needs nothing
but the standard library, of Python 3.6 or later (whence annotations in quotes), and matplotlib for the plots alone.

Before answers are compared they are normalized: lower case; no ASCII punctuation; no articles; words joined by one space.
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

Questions = List[Tuple[str, List[str]]]
"""The id and the gold answers of each question, in order; none is for one that has no answer."""


class EvaluationError(Exception):
    """What is wrong with a file; the command line prints it and exits with status 1."""


def normalize(answer: str) -> str:
    """The form in which answers are compared; punctuation goes before articles do.

    >>> normalize("The  U.S. on a well-kept the-apple")
    'us on wellkept theapple'
    """
    return " ".join(ARTICLES.sub(" ", answer.lower().translate(PUNCTUATION)).split())


def exact_match(gold: str, prediction: str) -> bool:
    """Whether two answers are the same when normalized."""
    return normalize(gold) == normalize(prediction)


def f1(gold: str, prediction: str) -> float:
    """The F1 of the words that two answers share; 0 where one of them has no word.

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
    """F1 as v2.0 has it, where saying nothing can be right: two answers without a word are equal."""
    # an int, as it was published: since Python 3.12 sum() rounds ints and floats differently, which moves the last digit
    return f1(gold, prediction) or int(not normalize(gold) and not normalize(prediction))


def questions_of(articles: "list[Any]") -> Questions:
    """The id and the gold answers of each question of a data file, in order."""
    return [
        (question["id"], [answer["text"] for answer in question["answers"]])
        for article in articles
        for paragraph in article["paragraphs"]
        for question in paragraph["qas"]
    ]


def evaluate_v1(questions: Questions, predictions: "dict[str, str]") -> "dict[str, Any]":
    """Exact match and F1 in percent; a question without a prediction counts as wrong, which is said on standard error."""
    matches, f1_sum = 0, 0.0
    for question, golds in questions:
        if question not in predictions:
            print(f"Unanswered question {question} will receive score 0.", file=sys.stderr)
            continue
        if not golds:
            raise EvaluationError(f"question {question} has no answer; v1.1 has one for each, evaluate-v2.0.py is for v2.0")
        matches += max(exact_match(gold, predictions[question]) for gold in golds)
        f1_sum += max(f1(gold, predictions[question]) for gold in golds)
    return {"exact_match": _percent(matches, len(questions)), "f1": _percent(f1_sum, len(questions))}


class EvaluationV2:
    """The scores of predictions for v2.0, question by question; a question without a gold answer is right to leave blank.

    `no_answer` is the model's probability for each question that it has none: above a threshold the prediction counts as blank.
    """

    def __init__(
        self, questions: Questions, predictions: "dict[str, str]", no_answer: "dict[str, float] | None" = None
    ) -> None:
        self.golds = dict(questions)
        for question in self.golds:
            if question not in predictions:
                print(f"Missing prediction for {question}")
        missing = [question for question in self.golds if question not in predictions]
        if missing:
            raise EvaluationError(
                f'{len(missing)} of {len(self.golds)} questions have no prediction; blank ones are given as ""'
            )
        self.predictions = predictions
        self.no_answer = dict.fromkeys(predictions, 0.0) if no_answer is None else no_answer
        unknown = [question for question in self.golds if question not in self.no_answer]
        if unknown:
            raise EvaluationError(
                f"{len(unknown)} of {len(self.golds)} questions have no probability, the first is {unknown[0]}"
            )
        self.exact: dict[str, float] = {}
        self.f1: dict[str, float] = {}
        for question, golds in self.golds.items():
            wanted = [gold for gold in golds if normalize(gold)] or [""]
            self.exact[question] = max(exact_match(gold, predictions[question]) for gold in wanted)
            self.f1[question] = max(f1_or_blank(gold, predictions[question]) for gold in wanted)

    def averages(self, threshold: float) -> "dict[str, Any]":
        """In percent: of all questions, of those with an answer and of those without, as far as there are any."""
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
        """The best that any threshold gives, and that threshold."""
        found = {}
        for name, scores in (("exact", self.exact), ("f1", self.f1)):
            best = total = float(sum(not golds for golds in self.golds.values()))  # everything blank
            best_threshold: float = 0.0
            for question in self._surest_first():
                if self.golds[question]:
                    total += scores[question]
                elif self.predictions[question]:
                    total -= 1
                if total > best:
                    best, best_threshold = total, self.no_answer[question]
            found["best_" + name] = _percent(best, len(scores))
            found["best_" + name + "_thresh"] = best_threshold
        return found

    def _surest_first(self) -> "list[str]":
        """The questions, those that the model is surest to have an answer first; equal ones as in the file of probabilities."""
        return sorted((question for question in self.no_answer if question in self.golds), key=lambda q: self.no_answer[q])

    def curves(self) -> "dict[str, list[tuple[float, float]]]":
        """Recall and precision at every threshold: of exact match, of F1, and of telling whether there is an answer."""
        answerable = sum(1 for golds in self.golds.values() if golds)
        if not answerable:
            return {}
        oracle = {question: float(bool(golds)) for question, golds in self.golds.items()}
        order, found = self._surest_first(), {}
        for name, scores in (("exact", self.exact), ("f1", self.f1), ("oracle", oracle)):
            curve, right = [(0.0, 1.0)], 0.0
            for place, question in enumerate(order, 1):
                if self.golds[question]:
                    right += scores[question]
                if place == len(order) or self.no_answer[question] != self.no_answer[order[place]]:
                    curve.append((right / answerable, right / place))
            found[name] = curve
        return found


def average_precision(curve: "list[tuple[float, float]]") -> float:
    """The area below a curve of recall and precision, in percent."""
    area = 0.0
    for (before, _), (recall, precision) in zip(curve, curve[1:]):
        area += precision * (recall - before)
    return 100.0 * area


def plot_all(evaluation: EvaluationV2, folder: Path) -> None:
    """The curves and the distribution of the probabilities as PNG files; without matplotlib a line that says so."""
    try:
        import matplotlib
    except ImportError:
        print("matplotlib is not installed, so there are no plots", file=sys.stderr)
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    titles = {
        "exact": "Precision-Recall curve for Exact Match score",
        "f1": "Precision-Recall curve for F1 score",
        "oracle": "Oracle Precision-Recall curve (binary task of HasAns vs. NoAns)",
    }
    for name, curve in evaluation.curves().items():
        recalls, precisions = zip(*curve)
        figure, axes = pyplot.subplots()
        axes.step(recalls, precisions, color="b", alpha=0.2, where="post")
        axes.fill_between(recalls, precisions, step="post", alpha=0.2, color="b")
        axes.set(title=titles[name], xlabel="Recall", ylabel="Precision", xlim=(0.0, 1.05), ylim=(0.0, 1.05))
        _save(figure, folder / f"pr_{name}.png")
    for name, wanted in (("hasAns", True), ("noAns", False)):
        values = [evaluation.no_answer[question] for question, golds in evaluation.golds.items() if bool(golds) == wanted]
        if values:
            figure, axes = pyplot.subplots()
            axes.hist(values, weights=[1 / len(values)] * len(values), bins=20, range=(0.0, 1.0))
            axes.set(title=f"Histogram of no-answer probability: {name}")
            axes.set(xlabel="Model probability of no-answer", ylabel="Proportion of dataset")
            _save(figure, folder / f"na_prob_hist_{name}.png")


def _save(figure: Any, path: Path) -> None:
    from matplotlib import pyplot

    figure.savefig(str(path))
    pyplot.close(figure)


def _percent(total: float, count: int) -> float:
    if not count:
        raise EvaluationError("the data file holds no question")
    return 100.0 * total / count


def _read(path: str, what: str) -> Any:
    """What a JSON file holds, which is to be an object."""
    try:
        with Path(path).open(encoding="utf-8") as file:
            content = json.load(file)
    except OSError as error:
        raise EvaluationError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise EvaluationError(f"{path}: is not JSON ({error})") from None
    if not isinstance(content, dict):
        raise EvaluationError(f"{path}: holds no object; expected {what}")
    return content


def _read_questions(path: str) -> "tuple[dict[str, Any], Questions]":
    content = _read(path, "a data file of SQuAD")
    try:
        return content, questions_of(content["data"])
    except (KeyError, TypeError) as error:
        raise EvaluationError(f"{path}: is not a data file of SQuAD ({type(error).__name__}: {error})") from None


def _read_predictions(path: str) -> "dict[str, str]":
    predictions = _read(path, "the answer to each question, by its id")
    for question, answer in predictions.items():
        if not isinstance(answer, str):
            raise EvaluationError(f"{path}: question {question}: the answer is {answer!r}, expected a string")
    return dict(predictions)


def _read_probabilities(path: str) -> "dict[str, float]":
    probabilities = _read(path, "the probability that a question has no answer, by its id")
    for question, probability in probabilities.items():
        if not isinstance(probability, (int, float)):
            raise EvaluationError(f"{path}: question {question}: the probability is {probability!r}, expected a number")
    return dict(probabilities)


def run_v1(arguments: "list[str]") -> None:
    """evaluate-v1.1.py DATA PREDICTIONS: one line of JSON on standard output."""
    parser = argparse.ArgumentParser(description="Evaluation for SQuAD 1.1")
    parser.add_argument("dataset_file", help="Dataset file")
    parser.add_argument("prediction_file", help="Prediction File")
    options = parser.parse_args(arguments)
    content, questions = _read_questions(options.dataset_file)
    if content.get("version") != "1.1":
        print(f"Evaluation expects v-1.1, but got dataset with v-{content.get('version')}", file=sys.stderr)
    print(json.dumps(evaluate_v1(questions, _read_predictions(options.prediction_file))))


def run_v2(arguments: "list[str]") -> None:
    """evaluate-v2.0.py DATA PREDICTIONS [options]: JSON on standard output or in a file."""
    parser = argparse.ArgumentParser(description="Evaluation for SQuAD 2.0")
    parser.add_argument("data_file", metavar="data.json", help="Input data JSON file.")
    parser.add_argument("pred_file", metavar="pred.json", help="Model predictions.")
    parser.add_argument("--out-file", "-o", metavar="eval.json", help="Write the scores to this file (default: print them).")
    parser.add_argument("--na-prob-file", "-n", metavar="na_prob.json", help="The model's probabilities of no answer.")
    parser.add_argument(
        "--na-prob-thresh", "-t", type=float, default=1.0, help='Predict "" where that is above this (default: 1.0).'
    )
    parser.add_argument("--out-image-dir", "-p", metavar="out_images", help="Save precision-recall curves to this folder.")
    parser.add_argument("--verbose", "-v", action="store_true", help="Is taken, and changes nothing.")
    if not arguments:
        parser.print_help()
        sys.exit(1)
    options = parser.parse_args(arguments)
    _, questions = _read_questions(options.data_file)
    predictions = _read_predictions(options.pred_file)
    probabilities = _read_probabilities(options.na_prob_file) if options.na_prob_file else None
    evaluation = EvaluationV2(questions, predictions, probabilities)
    found = evaluation.averages(options.na_prob_thresh)
    if probabilities is not None:
        found.update(evaluation.best())
        if options.out_image_dir:
            found.update({f"pr_{name}_ap": average_precision(curve) for name, curve in evaluation.curves().items()})
            Path(options.out_image_dir).mkdir(parents=True, exist_ok=True)
            plot_all(evaluation, Path(options.out_image_dir))
    if options.out_file:
        Path(options.out_file).write_text(json.dumps(found), encoding="utf-8")
    else:
        print(json.dumps(found, indent=2))


def main(version: str) -> None:
    """Score the predictions that the command line names; `version` is "v1.1" or "v2.0"."""
    try:
        {"v1.1": run_v1, "v2.0": run_v2}[version](sys.argv[1:])
    except (EvaluationError, OSError) as error:
        sys.exit(f"evaluate-{version}.py: error: {error}")

"""Writes scores.json: what the field's scorers give for odd predictions, by which the trainer's figures are tested.

In an environment with scikit-learn, SciPy and seqeval, with SQuAD's published programs:

    python make_scores.py evaluate-v1.1.py evaluate-v2.0.py > scores.json
"""

from __future__ import annotations

import importlib.util
import json
import platform
import random
import sys
import warnings
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from scipy import stats
from sklearn import metrics

CLASSES = {  # predicted classes and labels
    "all right": ([0, 1, 1, 0], [0, 1, 1, 0]),
    "one class is predicted": ([1, 1, 1, 1], [0, 1, 1, 0]),
    "the other class is predicted": ([0, 0, 0, 0], [0, 1, 1, 0]),
    "one class is there": ([0, 1, 1, 0], [1, 1, 1, 1]),
    "one class is there and predicted": ([0, 0, 0], [0, 0, 0]),
    "the classes are swapped": ([1, 0, 0, 1], [0, 1, 1, 0]),
    "one example": ([1], [1]),
    "one wrong example": ([1], [0]),
    "three classes": ([2, 0, 1, 2, 2], [2, 1, 0, 0, 2]),
}
SCORES = {  # predicted and true scores
    "linear": ([1.0, 2.0, 3.0], [0.0, 1.0, 2.0]),
    "reversed": ([3.0, 2.0, 1.0], [0.0, 1.0, 2.0]),
    "ties": ([1.0, 1.0, 2.0, 2.0, 5.0], [0.0, 3.0, 3.0, 1.0, 3.0]),
    "constant predictions": ([2.5, 2.5, 2.5], [0.0, 1.0, 2.0]),
    "constant labels": ([1.0, 2.0, 4.0], [3.0, 3.0, 3.0]),
    "two examples": ([1.0, 2.0], [5.0, 0.0]),
    "tiny differences": ([1.0, 1.0000001, 1.0000002], [0.0, 1.0, 3.0]),
    "huge values": ([1e30, -1e30, 3e30], [0.0, 1.0, 3.0]),
    "NaN": ([1.0, float("nan"), 2.0], [0.0, 1.0, 3.0]),
}
ANSWERS = [  # prediction, gold answers; none: the question has no answer
    ("", []), ("empty", []), ("", ["Paris"]), (" ", ["Paris"]), (" ", []), ("the", []), ("the", ["a"]), ("The the", ["Paris"]),
    (".", []), (".", ["!"]), ("", ["."]), ("x", [".", ""]), ("Paris", ["Paris", ""]), ("an apple", ["apple"]),
    ("AN APPLE", ["a apple"]),
    ("a\u00a0cat", ["cat"]), ("a\u2003cat", ["cat"]), ("\u0430 cat", ["cat"]), ("the\u2019s", ["s"]), ("l'a", ["la"]),
    ("caf\u00e9", ["cafe\u0301"]), ("\u4e2d\u56fd\u5317\u4eac", ["\u5317\u4eac"]), ("\u5317 \u4eac", ["\u5317\u4eac"]),
    ("\uff0c\u5317\u4eac\u3002", ["\u5317\u4eac"]), ("\u0130stanbul", ["istanbul"]), ("\u1e9e", ["\u00df"]),
    ("STRASSE", ["stra\u00dfe"]),
    ("\u2170", ["\u2160"]), ("1,000", ["1000"]), ("$5", ["5"]), ("\u20ac5", ["5"]), ("5\u20135", ["55"]), ("U.S.A.", ["USA"]),
    ("a_the_b", ["ab"]), ("\u200bParis", ["Paris"]), ("Paris\x00", ["Paris"]), ("Paris\n\nFrance", ["Paris France"]),
    ("to be or not to be", ["be to not or be to"]), ("be be", ["be"]), ("\U0001f600 smile", ["smile"]), ("null", ["None"]),
]  # fmt: skip
TAGS = {
    "IOB2": ("O", "B-PER", "I-PER", "B-LOC", "I-LOC"),
    "IOB1": ("O", "I-PER", "I-PER", "I-LOC", "B-LOC"),
    "BIOES": ("O", "B-PER", "I-PER", "E-PER", "S-PER", "S-LOC", "B-LOC", "E-LOC"),
    "BILOU": ("O", "B-PER", "I-PER", "L-PER", "U-PER", "U-LOC"),
    "BMES": ("O", "B-PER", "M-PER", "E-PER", "S-PER", "B-LOC", "E-LOC"),
    "no types": ("O", "B", "I", "E", "S"),
    "lower case": ("O", "b-per", "i-per", "B-PER"),
    "underscores": ("O", "B_PER", "I_PER", "B_LOC"),
    "hyphens in types": ("O", "B-ORG-GOV", "I-ORG-GOV", "I-ORG-COM", "I-ORG"),
    "no prefixes": ("O", "PER", "LOC", "ORG"),
}


def load(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(path).stem.replace("-", "_").replace(".", "_"), path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def score_classes(predicted: list[int], labels: list[int]) -> dict[str, float]:
    found = {"accuracy": metrics.accuracy_score(labels, predicted), "matthews": metrics.matthews_corrcoef(labels, predicted)}
    if max(*predicted, *labels) < 2:
        found["f1"] = metrics.f1_score(labels, predicted)
    return {name: float(value) for name, value in found.items()}


def score_scores(predicted: list[float], labels: list[float]) -> dict[str, Any]:
    predicted = np.array(predicted, np.float32).tolist()  # as a model's outputs
    return {
        "predicted": predicted,
        "labels": labels,
        "pearson": float(stats.pearsonr(predicted, labels).statistic),
        "spearman": float(stats.spearmanr(predicted, labels).statistic),
    }


def score_answers(v1: ModuleType, v2: ModuleType) -> dict[str, Any]:
    def data(rows: list[tuple[str, list[str]]]) -> tuple[list[Any], dict[str, str]]:
        questions = [{"id": str(at), "answers": [{"text": gold} for gold in golds]} for at, (_, golds) in enumerate(rows)]
        return [{"paragraphs": [{"qas": questions}]}], {str(at): prediction for at, (prediction, _) in enumerate(rows)}

    rows = []
    for prediction, golds in ANSWERS:
        row: dict[str, Any] = {"prediction": prediction, "golds": golds}
        if golds:
            row["v1.1"] = v1.evaluate(*data([(prediction, golds)]))
        exact, f1 = v2.get_raw_scores(*data([(prediction, golds)]))
        rows.append({**row, "v2.0": {"exact": exact["0"], "f1": f1["0"]}})
    exact, f1 = v2.get_raw_scores(*data(ANSWERS))
    return {
        "rows": rows,
        "v1.1": v1.evaluate(*data([row for row in ANSWERS if row[1]])),
        "v2.0": v2.make_eval_dict(exact, f1),
    }


def score_tags(names: tuple[str, ...], rng: random.Random) -> dict[str, Any]:
    expected = [[rng.choice(names) for _ in range(rng.randint(1, 9))] for _ in range(6)]
    found = [[tag if rng.random() < 0.7 else rng.choice(names) for tag in sentence] for sentence in expected]
    read = [
        [[f"I-{tag}" if len(tag) > 1 and tag[1].isalnum() else tag for tag in s] for s in each] for each in (expected, found)
    ]
    return {"expected": expected, "found": found, **seqeval_of(*read)}


def seqeval_of(expected: list[list[str]], found: list[list[str]]) -> dict[str, float]:
    from seqeval.metrics import accuracy_score, f1_score, precision_score, recall_score  # which tests do not install

    scorers = {"precision": precision_score, "recall": recall_score, "f1": f1_score}
    scores = {name: float(scorer(expected, found, zero_division=0)) for name, scorer in scorers.items()}
    return {**scores, "accuracy": float(accuracy_score(expected, found))}


def main() -> None:
    warnings.simplefilter("ignore")
    rng = random.Random(7)
    tags = {scheme: [score_tags(names, rng) for _ in range(6)] for scheme, names in TAGS.items()}
    for name, expected, found in (
        ("nothing is expected", [["O", "O"]], [["O", "B-PER"]]),
        ("nothing is found", [["O", "B-PER"]], [["O", "O"]]),
        ("nothing at all", [["O", "O"]], [["O", "O"]]),
    ):
        tags[name] = [{"expected": expected, "found": found, **seqeval_of(expected, found)}]
    content = {
        "made with": {
            **{package: version(package) for package in ("scikit-learn", "scipy", "seqeval", "numpy")},
            "python": platform.python_version(),
        },
        "classes": {name: {"predicted": p, "labels": y, **score_classes(p, y)} for name, (p, y) in CLASSES.items()},
        "scores": {name: score_scores(p, y) for name, (p, y) in SCORES.items()},
        "answers": score_answers(load(sys.argv[1]), load(sys.argv[2])),
        "tags": tags,
    }  # fmt: skip
    print(json.dumps(content, separators=(",", ":")))


if __name__ == "__main__":
    main()

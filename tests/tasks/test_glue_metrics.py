"""GLUE's metrics by hand, and the files that its site takes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertprep.errors import BertprepError, UsageError
from bertprep.tasks.glue import find_task
from bertprep.tasks.glue_metrics import compute_metrics, predict, write_predictions, write_submission
from bertprep.work.layout import DEV, SUBMISSION, SUBMISSION_MISMATCHED


def logits(*predicted: int, labels: int = 2) -> "np.ndarray[tuple[int, int], np.dtype[np.float32]]":
    return np.eye(labels, dtype=np.float32)[list(predicted)]


def labels(*values: int) -> "np.ndarray[tuple[int], np.dtype[np.int32]]":
    return np.array(values, np.int32)


SCORES = np.array([[1], [2], [4]], np.float32)
ONE_WRONG_OF_EACH = logits(1, 1, 1, 0, 0), labels(1, 1, 0, 1, 0)  # TP 2, TN 1, FP 1, FN 1


@pytest.mark.parametrize(
    ("task", "outputs", "known", "expected"),
    [
        ("mrpc", *ONE_WRONG_OF_EACH, {"accuracy": 3 / 5, "f1": 2 * 2 / (2 * 2 + 1 + 1)}),
        ("cola", *ONE_WRONG_OF_EACH, {"matthews": 1 / 6}),  # (2 * 1 - 1 * 1) / sqrt(3 * 3 * 2 * 2)
        ("stsb", SCORES, np.arange(3, dtype=np.float32), {"pearson": 3 / np.sqrt(2 * 14 / 3), "spearman": 1}),
        ("stsb", np.ones_like(SCORES), np.arange(3, dtype=np.float32), {"pearson": np.nan, "spearman": np.nan}),
    ],
)
def test_metrics(task: str, outputs: Any, known: Any, expected: dict[str, float]) -> None:
    assert compute_metrics(find_task(task), outputs, known) == pytest.approx(expected, nan_ok=True)


def test_of_equal_outputs_the_first_is_predicted() -> None:
    assert predict(find_task("mnli"), np.array([[1, 2, 2], [0, 0, 0]], np.float32)).tolist() == [1, 0]


def test_outputs_must_fit_the_task() -> None:
    with pytest.raises(BertprepError, match=r"mnli: the outputs have shape \(1, 2\), expected \(examples, 3\)"):
        predict(find_task("mnli"), logits(1))
    with pytest.raises(BertprepError, match="2 outputs for 1 labels"):
        compute_metrics(find_task("mrpc"), logits(1, 1), labels(1))


def test_predictions_of_scores_are_not_cut_to_the_range_of_submissions(tmp_path: Path) -> None:
    path = write_predictions(find_task("stsb"), np.array([[5.2], [-0.1]], np.float32), tmp_path / "dev" / "predictions.tsv")
    assert path.read_text() == "index\tprediction\n0\t5.200\n1\t-0.100\n"


def test_submissions(tmp_path: Path) -> None:
    scores = np.array([[2.34567], [5.2], [-0.1]], np.float32)
    for task, split, outputs, name, lines in (
        ("mnli", SUBMISSION_MISMATCHED, logits(2, 0, labels=3), "MNLI-mm.tsv", "0\tneutral\n1\tcontradiction\n"),
        ("mrpc", SUBMISSION, logits(1, 0), "MRPC.tsv", "0\t1\n1\t0\n"),
        ("stsb", SUBMISSION, scores, "STS-B.tsv", "0\t2.346\n1\t5.000\n2\t0.000\n"),
    ):
        path = write_submission(find_task(task), split, outputs, tmp_path)
        assert (path.name, path.read_text()) == (name, f"index\tprediction\n{lines}")
    for split in (DEV, SUBMISSION_MISMATCHED):
        with pytest.raises(UsageError, match=f"mrpc: {split} cannot be submitted to GLUE"):
            write_submission(find_task("mrpc"), split, logits(1), tmp_path)

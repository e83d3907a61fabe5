"""GLUE's metrics by hand, and the files that its site takes."""

from pathlib import Path

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


def test_accuracy_and_f1() -> None:
    # true positives 2, false positives 1, false negatives 1
    found = compute_metrics(find_task("mrpc"), logits(1, 1, 1, 0, 0), labels(1, 1, 0, 1, 0))
    assert found == pytest.approx({"accuracy": 3 / 5, "f1": 2 * 2 / (2 * 2 + 1 + 1)})


def test_matthews() -> None:
    # TP 2, TN 1, FP 1, FN 1: (2 * 1 - 1 * 1) / sqrt(3 * 3 * 2 * 2)
    found = compute_metrics(find_task("cola"), logits(1, 1, 1, 0, 0), labels(1, 1, 0, 1, 0))
    assert found == pytest.approx({"matthews": 1 / 6})


def test_correlations() -> None:
    scores = np.array([[1], [2], [4]], np.float32)
    found = compute_metrics(find_task("stsb"), scores, np.array([0, 1, 2], np.float32))
    assert found == pytest.approx({"pearson": 3 / np.sqrt(2 * 14 / 3), "spearman": 1})


def test_a_correlation_with_a_constant_is_0() -> None:
    found = compute_metrics(find_task("stsb"), np.ones((3, 1), np.float32), np.array([0, 1, 2], np.float32))
    assert found == {"pearson": 0, "spearman": 0}


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
    path = write_submission(find_task("mnli"), SUBMISSION_MISMATCHED, logits(2, 0, labels=3), tmp_path)
    assert (path.name, path.read_text()) == ("MNLI-mm.tsv", "index\tprediction\n0\tneutral\n1\tcontradiction\n")
    path = write_submission(find_task("mrpc"), SUBMISSION, logits(1, 0), tmp_path)
    assert (path.name, path.read_text()) == ("MRPC.tsv", "index\tprediction\n0\t1\n1\t0\n")
    path = write_submission(find_task("stsb"), SUBMISSION, np.array([[2.34567], [5.2], [-0.1]], np.float32), tmp_path)
    assert (path.name, path.read_text()) == ("STS-B.tsv", "index\tprediction\n0\t2.346\n1\t5.000\n2\t0.000\n")


def test_only_what_the_site_takes_is_written(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="mrpc: dev is no split for a submission"):
        write_submission(find_task("mrpc"), DEV, logits(1), tmp_path)
    with pytest.raises(UsageError, match="mrpc: submission_mismatched is no split"):
        write_submission(find_task("mrpc"), SUBMISSION_MISMATCHED, logits(1), tmp_path)

"""Turns a classifier's outputs into predictions, GLUE's metrics and submission files.

scikit-learn and SciPy compute the metrics; the extra `finetune` installs them.
"""

from __future__ import annotations

import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertprep.errors import BertprepError, UsageError
from bertprep.files.atomic import atomic_file
from bertprep.tasks.glue import ACCURACY, F1, MATTHEWS, MAX_SCORE, PEARSON, SPEARMAN, UNLABELLED, GlueTask


def predict(task: GlueTask, logits: NDArray[np.float32]) -> NDArray[np.int64] | NDArray[np.float32]:
    """Return the predicted classes (n,), or scores (n,) of a regression task, from outputs (n, labels) or (n, 1).

    Among equal outputs, the first class wins.
    """
    expected = max(1, len(task.labels))
    if logits.ndim != 2 or logits.shape[1] != expected:
        raise BertprepError(f"{task.name}: the outputs have shape {logits.shape}, expected (examples, {expected})")
    return logits[:, 0] if task.is_regression else logits.argmax(axis=1)


def compute_metrics(
    task: GlueTask, logits: NDArray[np.float32], labels: NDArray[np.int32] | NDArray[np.float32]
) -> dict[str, float]:
    """Return the task's metrics for outputs (n, labels or 1) and true labels (n,); F1 is for class 1.

    A correlation is NaN where SciPy's is: if all predictions or all labels are equal, or one of them is not finite.
    """
    predictions = predict(task, logits)
    if len(predictions) != len(labels) or not len(labels):
        raise BertprepError(f"{task.name}: there are {len(predictions):,} outputs for {len(labels):,} labels")
    return {name: _compute(name, labels, predictions) for name in task.metrics}


def check_metrics_installed() -> None:
    """Raise `BertprepError` if a package that computes metrics is missing; the packages are not imported."""
    if missing := next((name for name in ("scipy", "sklearn") if find_spec(name) is None), None):
        raise BertprepError(f"metrics need {missing}, which is not installed; pip install 'bertprep[finetune]'")


def _compute(name: str, labels: NDArray[Any], predictions: NDArray[Any]) -> float:
    check_metrics_installed()
    from scipy import stats
    from sklearn import metrics

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a class that is never predicted, and of constant scores
        if name in (PEARSON, SPEARMAN):
            if len(labels) < 2 or not np.isfinite(predictions).all():
                return float("nan")
            correlate = stats.pearsonr if name == PEARSON else stats.spearmanr
            return float(correlate(labels.astype(np.float64), predictions.astype(np.float64)).statistic)
        score = {ACCURACY: metrics.accuracy_score, F1: metrics.f1_score, MATTHEWS: metrics.matthews_corrcoef}[name]
        return float(score(labels, predictions))


def write_predictions(task: GlueTask, logits: NDArray[np.float32], path: Path) -> Path:
    """Write a line for each output, with its index from 0 and the name of its label or a score with three decimals."""
    predictions = predict(task, logits).tolist()
    shown = [f"{each:.3f}" if task.is_regression else task.labels[each] for each in predictions]
    with atomic_file(path) as file:
        file.write("".join(f"{index}\t{label}\n" for index, label in [("index", "prediction"), *enumerate(shown)]).encode())
    return path


def write_submission(task: GlueTask, split: str, logits: NDArray[np.float32], folder: Path) -> Path:
    """Write the file with the predictions of an unlabelled split for GLUE, such as MNLI-mm.tsv, and return its path."""
    allowed = np.clip(logits, 0, MAX_SCORE) if task.is_regression else logits
    return write_predictions(task, allowed, submission_path(task, split, folder))


def submission_path(task: GlueTask, split: str, folder: Path) -> Path:
    """Return the path of the prediction file of a split, with GLUE's name for it; raise `UsageError` for a labelled split."""
    if split not in UNLABELLED[: len(task.submissions)]:
        names = " and ".join(UNLABELLED[: len(task.submissions)]) or "none"
        raise UsageError(f"{task.name}: {split} cannot be submitted to GLUE; the splits for submissions are: {names}")
    return folder / f"{task.submissions[UNLABELLED.index(split)]}.tsv"

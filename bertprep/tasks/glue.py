"""GLUE's tasks: which columns of which files hold the texts and the label, the labels' numbers, and the metrics.

Files and columns are those that `sources.tasks.glue` writes, which are the published ones; labels have the order of Google's
`run_classifier.py`, or where it lacks the task, that of the published paper's code. A task of the user's own has its columns by
name. A model's label i is `labels[i]`; a task without labels predicts a score.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from bertprep.errors import UsageError
from bertprep.sources.tasks.glue import TASKS as PUBLISHED
from bertprep.sources.tasks.glue import File
from bertprep.workspace.layout import DEV, DEV_MISMATCHED, SUBMISSION, SUBMISSION_MISMATCHED, TRAINING

ACCURACY, F1, MATTHEWS, PEARSON, SPEARMAN = "accuracy", "f1", "matthews", "pearson", "spearman"
SPLIT_OF_FILE = {
    "train": TRAINING,
    "dev": DEV,
    "dev_matched": DEV,
    "dev_mismatched": DEV_MISMATCHED,
    "test": SUBMISSION,
    "test_matched": SUBMISSION,
    "test_mismatched": SUBMISSION_MISMATCHED,
    "diagnostic": SUBMISSION,
}
"""The split of a file, by its name without ".tsv" or ".jsonl"."""
UNLABELLED = (SUBMISSION, SUBMISSION_MISMATCHED)
HIGHEST_SCORE = 5.0


@dataclass(frozen=True)
class Columns:
    """Where a line of a published file has its texts and label, by position; a file of labels has at least `least` columns."""

    text_a: int
    text_b: int | None
    label: int | None  # None in the files for submissions; -1 is the last, whatever stands before it
    has_header: bool
    least: int


@dataclass(frozen=True, kw_only=True)
class GlueTask:
    """One task: `texts` and `label` are names of columns; one without a `folder` is the user's own.

    >>> find_task("mrpc").columns(TRAINING)
    Columns(text_a=3, text_b=4, label=0, has_header=True, least=5)
    """

    name: str
    folder: str = ""  # among the downloads
    texts: tuple[str, ...] = ()
    label: str = "label"
    labels: tuple[str, ...] = ("0", "1")  # in the order of their numbers; none for a score
    metrics: tuple[str, ...] = (ACCURACY,)
    submissions: tuple[str, ...] = ()  # what GLUE's site calls the predictions, matched and mismatched

    @property
    def is_regression(self) -> bool:
        return not self.labels

    @cached_property
    def files(self) -> dict[str, File]:
        """The published files by split; none of the user's own tasks."""
        files = PUBLISHED[self.folder].files if self.folder else ()
        return {SPLIT_OF_FILE[file.name.removesuffix(".tsv")]: file for file in files}

    def columns(self, split: str) -> Columns:
        """Where the columns of a split's published file are."""
        file = self.files[split]
        text_a, *more = (file.columns.index(name) for name in self.texts)
        label = None
        if split not in UNLABELLED:
            label = file.columns.index(self.label)
            label = -1 if label == len(file.columns) - 1 else label
        used = [text_a, *more, *([] if label in (None, -1) else [label])]
        least = len(file.columns) if label == -1 else max(used) + 1
        return Columns(text_a, more[0] if more else None, label, file.header, least)


_PAIR = ("sentence1", "sentence2")
_ENTAILMENT = ("entailment", "not_entailment")
_NLI = ("contradiction", "entailment", "neutral")
TASKS = {
    task.name: task
    for task in (
        GlueTask(name="cola", folder="CoLA", texts=("sentence",), metrics=(MATTHEWS,), submissions=("CoLA",)),
        GlueTask(name="sst2", folder="SST-2", texts=("sentence",), submissions=("SST-2",)),
        GlueTask(
            name="mrpc", folder="MRPC", texts=("#1 String", "#2 String"), label="Quality", metrics=(ACCURACY, F1),
            submissions=("MRPC",),
        ),
        GlueTask(
            name="qqp", folder="QQP", texts=("question1", "question2"), label="is_duplicate", metrics=(ACCURACY, F1),
            submissions=("QQP",),
        ),
        GlueTask(
            name="stsb", folder="STS-B", texts=_PAIR, label="score", labels=(), metrics=(PEARSON, SPEARMAN),
            submissions=("STS-B",),
        ),
        GlueTask(
            name="mnli", folder="MNLI", texts=_PAIR, label="gold_label", labels=_NLI, submissions=("MNLI-m", "MNLI-mm")
        ),
        GlueTask(name="qnli", folder="QNLI", texts=("question", "sentence"), labels=_ENTAILMENT, submissions=("QNLI",)),
        GlueTask(name="rte", folder="RTE", texts=_PAIR, labels=_ENTAILMENT, submissions=("RTE",)),
        GlueTask(name="wnli", folder="WNLI", texts=_PAIR, submissions=("WNLI",)),
        GlueTask(name="ax", folder="diagnostic", texts=_PAIR, labels=_NLI, metrics=(MATTHEWS,), submissions=("AX",)),
    )
}  # fmt: skip
"""GLUE's nine tasks, and its diagnostic set `ax`, which a model of MNLI predicts."""


def find_task(name: str) -> GlueTask:
    """The task of that name, written as here or as its folder is, in upper or lower case; raises `UsageError`.

    >>> find_task("SST-2").name
    'sst2'
    """
    wanted = _folded(name)
    for task in TASKS.values():
        if wanted in (task.name, _folded(task.folder)):
            return task
    raise UsageError(
        f"--name {name}: GLUE has no such task; choose one of {', '.join(TASKS)}, or give files of your own with --input"
    )


def own_task(name: str, labels: Sequence[str]) -> GlueTask:
    """A task of the user's own files, which predicts one of `labels`."""
    if len(labels) < 2 or len(set(labels)) < len(labels) or not all(labels):
        raise UsageError(f"--labels {','.join(labels)}: must be two or more different names")
    return GlueTask(name=name, labels=tuple(labels))


def _folded(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")

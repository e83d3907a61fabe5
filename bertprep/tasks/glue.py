"""Defines GLUE's tasks: the columns of their published files, their names on the Hub, labels and metrics.

Labels have the order of Google's `run_classifier.py`, or else alphabetical order. In the files of a user's own task, columns
are found by name. A task without labels predicts a score, as does a user's own task whose labels have fractions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bertprep.errors import UsageError
from bertprep.work.layout import DEV, DEV_MISMATCHED, SUBMISSION, SUBMISSION_MISMATCHED, TRAINING

ACCURACY, F1, MATTHEWS, PEARSON, SPEARMAN = "accuracy", "f1", "matthews", "pearson", "spearman"
UNLABELLED = (SUBMISSION, SUBMISSION_MISMATCHED)
MAX_SCORE = 5.0


@dataclass(frozen=True)
class File:
    """A published TSV file: its split on the Hub, its columns in order, and whether a header names them."""

    split: str
    name: str
    columns: tuple[str, ...]
    header: bool = True


@dataclass(frozen=True, kw_only=True)
class GlueTask:
    """A task; if it has no `folder`, it is the user's own.

    `texts` and `label` are names of columns. `words` maps a label's name on the Hub to its name in the file.
    """

    name: str
    folder: str = ""  # in the folder of downloads
    texts: tuple[str, ...] = ()
    hub_texts: tuple[str, ...] = ()  # the names of these columns on the Hub
    label: str = "label"
    labels: tuple[str, ...] = ()  # in the order of their ids; empty if the task predicts a score
    words: Mapping[str, str] = field(default_factory=dict, hash=False)
    metrics: tuple[str, ...] = (ACCURACY,)
    submissions: tuple[str, ...] = ()  # the names of prediction files on GLUE's site: matched, mismatched
    files: Mapping[str, File] = field(default_factory=dict, hash=False)  # the published files, by split

    @property
    def is_regression(self) -> bool:
        return not self.labels

    @property
    def source(self) -> dict[str, str]:
        """Return the Hub's name for each column of the files that the Hub has."""
        return {"index": "idx", "id": "idx", self.label: "label", **dict(zip(self.texts, self.hub_texts, strict=True))}


def _file(split: str, name: str, columns: str, *, header: bool = True) -> File:
    return File(split, f"{name}.tsv", tuple(columns.split(",")), header)


def _three_files(columns: str, test_columns: str, *, header: bool = True) -> dict[str, File]:
    return {
        TRAINING: _file("train", "train", columns, header=header),
        DEV: _file("validation", "dev", columns, header=header),
        SUBMISSION: _file("test", "test", test_columns),
    }


def _published(name: str, folder: str, texts: str, words: Mapping[str, str], **more: object) -> GlueTask:
    columns = tuple(texts.split(","))
    settings = {"hub_texts": columns, "labels": tuple(sorted(words.values())), "submissions": (folder,), **more}
    return GlueTask(name=name, folder=folder, texts=columns, words=words, **settings)  # type: ignore[arg-type]


_PAIR = "sentence1,sentence2"
_ENTAILMENT = {name: name for name in ("entailment", "not_entailment")}
_NLI = {name: name for name in ("entailment", "neutral", "contradiction")}
_NLI_TEXTS = ("premise", "hypothesis")
_PARSES = "sentence1_binary_parse,sentence2_binary_parse,sentence1_parse,sentence2_parse"
_NLI_PAIR = f"index,promptID,pairID,genre,{_PARSES},{_PAIR}"
_NLI_DEV = f"{_NLI_PAIR},label1,label2,label3,label4,label5,gold_label"
_MNLI_FILES = {
    TRAINING: _file("train", "train", f"{_NLI_PAIR},label1,gold_label"),
    DEV: _file("validation_matched", "dev_matched", _NLI_DEV),
    DEV_MISMATCHED: _file("validation_mismatched", "dev_mismatched", _NLI_DEV),
    SUBMISSION: _file("test_matched", "test_matched", _NLI_PAIR),
    SUBMISSION_MISMATCHED: _file("test_mismatched", "test_mismatched", _NLI_PAIR),
}
_STSB_PAIR = f"index,genre,filename,year,old_index,source1,source2,{_PAIR}"

_TASKS = (
    _published(
        "cola", "CoLA", "sentence", {"unacceptable": "0", "acceptable": "1"}, metrics=(MATTHEWS,),
        files=_three_files("source,label,star,sentence", "index,sentence", header=False),
    ),
    _published(
        "sst2", "SST-2", "sentence", {"negative": "0", "positive": "1"},
        files=_three_files("sentence,label", "index,sentence"),
    ),
    _published(
        "mrpc", "MRPC", "#1 String,#2 String", {"not_equivalent": "0", "equivalent": "1"}, hub_texts=("sentence1", "sentence2"),
        label="Quality", metrics=(ACCURACY, F1),
        files=_three_files("Quality,#1 ID,#2 ID,#1 String,#2 String", "index,#1 ID,#2 ID,#1 String,#2 String"),
    ),
    _published(
        "qqp", "QQP", "question1,question2", {"not_duplicate": "0", "duplicate": "1"}, label="is_duplicate",
        metrics=(ACCURACY, F1), files=_three_files("id,qid1,qid2,question1,question2,is_duplicate", "id,question1,question2"),
    ),
    _published(
        "stsb", "STS-B", _PAIR, {}, label="score", metrics=(PEARSON, SPEARMAN),
        files=_three_files(f"{_STSB_PAIR},score", _STSB_PAIR),
    ),
    _published(
        "mnli", "MNLI", _PAIR, _NLI, hub_texts=_NLI_TEXTS, label="gold_label", submissions=("MNLI-m", "MNLI-mm"),
        files=_MNLI_FILES,
    ),
    _published(
        "qnli", "QNLI", "question,sentence", _ENTAILMENT,
        files=_three_files("index,question,sentence,label", "index,question,sentence"),
    ),
    _published("rte", "RTE", _PAIR, _ENTAILMENT, files=_three_files(f"index,{_PAIR},label", f"index,{_PAIR}")),
    _published(
        "wnli", "WNLI", _PAIR, {"not_entailment": "0", "entailment": "1"},
        files=_three_files(f"index,{_PAIR},label", f"index,{_PAIR}"),
    ),
    _published(
        "ax", "diagnostic", _PAIR, _NLI, hub_texts=_NLI_TEXTS, metrics=(MATTHEWS,), submissions=("AX",),
        files={SUBMISSION: _file("test", "diagnostic", f"index,{_PAIR}")},
    ),
)  # fmt: skip
TASKS = {task.name: task for task in _TASKS}
"""GLUE's nine tasks, and its diagnostic set `ax`, whose predictions come from a model trained on MNLI."""


def find_task(name: str) -> GlueTask:
    """Return the task with this name or folder, ignoring case; raise `UsageError` if there is none.

    >>> find_task("SST-2").name
    'sst2'
    """
    wanted = _folded(name)
    for task in TASKS.values():
        if wanted in (task.name, _folded(task.folder)):
            return task
    raise UsageError(f"{name}: is not a GLUE task; choose one of {', '.join(TASKS)}, or give your own files with --input")


def own_task(name: str, labels: Sequence[str]) -> GlueTask:
    """Return a task for the user's own files, which predicts one of `labels`, or a score if there are none."""
    if not labels:
        return GlueTask(name=name, label="score", metrics=(PEARSON, SPEARMAN))
    if len(labels) < 2 or len(set(labels)) < len(labels) or not all(labels):
        raise UsageError(f"--labels {','.join(labels)}: expected two or more different names")
    return GlueTask(name=name, labels=tuple(labels))


def _folded(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")

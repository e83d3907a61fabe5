"""Converts GLUE's tasks from the Hub's Parquet to the published TSV files, which trainers read by column position.

Trainers take column 3 or 8 or the last, whatever its name, without quoting. So every column of the published files is present
at its position, and those that the Hub lacks are blank: parse trees, ids of pairs, single annotators' labels. Labels are the
published words. A tab, line break or NUL in a sentence would shift columns or stop the reader, and becomes a space; everything
else, quotes and outer spaces included, is unchanged. Test files have no labels: the Hub has only -1 there.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertprep.errors import BertprepError, UsageError
from bertprep.sources.tasks.task_files import Row, class_names, read_rows, split_files, write_if_different

BREAKS = re.compile("\r\n|[\t\n\r\0]")


@dataclass(frozen=True)
class File:
    """One TSV file: its split, its columns in order, and whether the first line names them."""

    split: str
    name: str
    columns: tuple[str, ...]
    header: bool = True


@dataclass(frozen=True)
class Task:
    """The files of a task, and where their columns come from; a column that is not in `source` stays blank.

    `words` maps a label's name on the Hub, in the order of its integers, to its name in the file. Without words the label is a
    score from 0 to 5, which the published file has with three decimals.
    """

    files: tuple[File, ...]
    source: dict[str, str]
    words: dict[str, str]


def _three_files(columns: str, test_columns: str, *, header: bool = True) -> tuple[File, ...]:
    """Train, dev and test; columns are separated by tabs, as in the files."""
    labelled = tuple(columns.split("\t"))
    return (
        File("train", "train.tsv", labelled, header),
        File("validation", "dev.tsv", labelled, header),
        File("test", "test.tsv", tuple(test_columns.split("\t"))),
    )


SENTENCES = {"index": "idx", "sentence1": "sentence1", "sentence2": "sentence2", "label": "label"}
BINARY_ENTAILMENT = {"entailment": "entailment", "not_entailment": "not_entailment"}
PAIR = "index\tsentence1\tsentence2"

NLI = {"index": "idx", "sentence1": "premise", "sentence2": "hypothesis", "gold_label": "label"}
NLI_WORDS = {"entailment": "entailment", "neutral": "neutral", "contradiction": "contradiction"}
NLI_PAIR = (
    "index", "promptID", "pairID", "genre", "sentence1_binary_parse", "sentence2_binary_parse", "sentence1_parse",
    "sentence2_parse", "sentence1", "sentence2",
)  # fmt: skip
NLI_TRAIN = (*NLI_PAIR, "label1", "gold_label")
NLI_DEV = (*NLI_PAIR, "label1", "label2", "label3", "label4", "label5", "gold_label")

SIMILARITY = "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2"

TASKS = {
    "CoLA": Task(
        _three_files("source\tlabel\tstar\tsentence", "index\tsentence", header=False),
        {"index": "idx", "label": "label", "sentence": "sentence"},
        {"unacceptable": "0", "acceptable": "1"},
    ),
    "SST-2": Task(
        _three_files("sentence\tlabel", "index\tsentence"),
        {"index": "idx", "label": "label", "sentence": "sentence"},
        {"negative": "0", "positive": "1"},
    ),
    "MRPC": Task(
        _three_files("Quality\t#1 ID\t#2 ID\t#1 String\t#2 String", "index\t#1 ID\t#2 ID\t#1 String\t#2 String"),
        {"index": "idx", "Quality": "label", "#1 String": "sentence1", "#2 String": "sentence2"},
        {"not_equivalent": "0", "equivalent": "1"},
    ),
    "QQP": Task(
        _three_files("id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate", "id\tquestion1\tquestion2"),
        {"id": "idx", "question1": "question1", "question2": "question2", "is_duplicate": "label"},
        {"not_duplicate": "0", "duplicate": "1"},
    ),
    "STS-B": Task(
        _three_files(f"{SIMILARITY}\tscore", SIMILARITY),
        {"index": "idx", "sentence1": "sentence1", "sentence2": "sentence2", "score": "label"},
        {},
    ),
    "MNLI": Task(
        (
            File("train", "train.tsv", NLI_TRAIN),
            File("validation_matched", "dev_matched.tsv", NLI_DEV),
            File("validation_mismatched", "dev_mismatched.tsv", NLI_DEV),
            File("test_matched", "test_matched.tsv", NLI_PAIR),
            File("test_mismatched", "test_mismatched.tsv", NLI_PAIR),
        ),
        NLI,
        NLI_WORDS,
    ),
    "QNLI": Task(
        _three_files("index\tquestion\tsentence\tlabel", "index\tquestion\tsentence"),
        {"index": "idx", "question": "question", "sentence": "sentence", "label": "label"},
        BINARY_ENTAILMENT,
    ),
    "RTE": Task(_three_files(f"{PAIR}\tlabel", PAIR), SENTENCES, BINARY_ENTAILMENT),
    "WNLI": Task(_three_files(f"{PAIR}\tlabel", PAIR), SENTENCES, {"not_entailment": "0", "entailment": "1"}),
    "diagnostic": Task((File("test", "diagnostic.tsv", ("index", "sentence1", "sentence2")),), NLI, NLI_WORDS),
}  # folder, as in `catalogue.GLUE` -> task


def write_glue(task: str, parquet_folder: Path, output_folder: Path) -> None:
    """Write the TSV files of a task (a folder name of `catalogue.GLUE`) from its Parquet files; keep correct ones."""
    if task not in TASKS:
        raise UsageError(f"GLUE has no task {task!r}; choose one of {', '.join(TASKS)}")
    for file in TASKS[task].files:
        write_if_different(output_folder / file.name, _tsv(TASKS[task], file, parquet_folder))


def _tsv(task: Task, file: File, parquet_folder: Path) -> bytearray:
    """The whole content of one file, rows in the order of the Hub's files."""
    columns = [task.source.get(column) for column in file.columns]  # of the Hub; None: blank
    label_type = int if task.words else float
    kinds = {name: {"idx": int, "label": label_type}.get(name, str) for name in columns if name is not None}
    content = bytearray(("\t".join(file.columns) + "\n").encode() if file.header else b"")
    rows = 0
    for path in split_files(parquet_folder, file.split):
        words = _words(task, path) if "label" in kinds else []
        for row in read_rows(path, kinds):
            values = dict(zip(kinds, row.values, strict=True))
            if "label" in values:
                values["label"] = _label(row, values["label"], words)
            line = "\t".join(_field(values[name]) if name is not None else "" for name in columns)
            content += f"{line}\n".encode()
            rows += 1
    if not rows:
        raise BertprepError(f"{parquet_folder}: {file.split}-*.parquet hold no row; download them again")
    return content


def _field(value: Any) -> str:
    r"""A value as it stands between two tabs.

    >>> _field("a \"quote\"\tand two\r\nlines ")
    'a "quote" and two lines '
    """
    return BREAKS.sub(" ", value) if isinstance(value, str) else str(value)


def _words(task: Task, path: Path) -> list[str]:
    """The words for the labels 0, 1, ..., from the names in the file if it has them; empty for scores."""
    names = class_names(path, "label") if task.words else None
    if names is None:
        return list(task.words.values())
    if sorted(names) != sorted(task.words):
        raise BertprepError(
            f"{path}: has the labels {', '.join(names)}, expected {', '.join(task.words)}; is it a file of this task?"
        )
    return [task.words[name] for name in names]


def _label(row: Row, label: int | float, words: list[str]) -> str:
    if not words:
        if not 0 <= label <= 5:
            raise row.fault(f"the score is {label}, expected 0 to 5; download the file again")
        return f"{label:.3f}"
    if label not in range(len(words)):
        raise row.fault(f"the label is {label}, expected 0 to {len(words) - 1}; download the file again")
    return words[int(label)]

"""Converts GLUE's tasks from the Hub's Parquet to the published TSV files, which trainers read by column position.

Trainers take column 3 or 8 or the last, whatever its name, without quoting. So every column of the published files is present
at its position, and those that the Hub lacks are blank: parse trees, ids of pairs, single annotators' labels. Labels are the
published words. A tab, line break or NUL in a sentence would shift columns or stop the reader, and becomes a space; everything
else, quotes and outer spaces included, is unchanged. Test files have no labels: the Hub has only -1 there.
"""

import re
from pathlib import Path
from typing import Any

from bertprep.errors import BertprepError, UsageError
from bertprep.sources.task_files import Row, class_names, read_rows, split_files, write_if_different
from bertprep.tasks.glue import TASKS, File, GlueTask

BREAKS = re.compile("\r\n|[\t\n\r\0]")


def write_glue(task: str, parquet_folder: Path, output_folder: Path) -> None:
    """Write the TSV files of a task (a folder name of `catalogue.GLUE`) from its Parquet files; keep correct ones."""
    tasks = {each.folder: each for each in TASKS.values()}
    if task not in tasks:
        raise UsageError(f"GLUE has no task {task!r}; choose one of {', '.join(tasks)}")
    for file in tasks[task].files.values():
        write_if_different(output_folder / file.name, _tsv(tasks[task], file, parquet_folder))


def _tsv(task: GlueTask, file: File, parquet_folder: Path) -> bytearray:
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


def _words(task: GlueTask, path: Path) -> list[str]:
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

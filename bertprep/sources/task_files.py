"""Converts SQuAD and GLUE from the Hub's Parquet to the published files, JSON and TSV, which trainers read.

The Hub has a row for each question of SQuAD; the published files have articles, their paragraphs and the questions of each.
Questions are grouped by title and context, in the order of first occurrence. Key order and the form of non-ASCII characters are
those of the published files, so the two can be compared. `plausible_answers` of v2.0 is omitted, because the Hub lacks it.
evaluate-VERSION.py, which NVIDIA's run_squad.sh calls, is `squad_metric` as a standalone program.

Of GLUE's files trainers take column 3 or 8 or the last, whatever its name, without quoting. So every column of the published
files is present at its position, and those that the Hub lacks are blank: parse trees, ids of pairs, single annotators' labels.
Labels are the published words. A tab, line break or NUL in a sentence would shift columns or stop the reader, and becomes a
space. Test files have no labels: the Hub has only -1 there.

Each row is checked when it is read, and knows its file and number, for errors. A finished file is rewritten if it is wrong.
"""

import hashlib
import inspect
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from bertprep.errors import BertprepError, UsageError
from bertprep.files.atomic import atomic_file
from bertprep.sources.fields import show_names
from bertprep.sources.readers import MAX_ROWS, open_parquet
from bertprep.tasks import squad_metric
from bertprep.tasks.glue import TASKS, File, GlueTask
from bertprep.tasks.squad import VERSIONS
from bertprep.untrusted import parse_json
from bertprep.work.manifest import sha256_of

NUMBERED = re.compile(r"-(\d{5})-of-(\d{5})\.parquet$")
SQUAD_FILES = {"train": "train", "validation": "dev"}  # split on the Hub -> beginning of the file's name
SQUAD_COLUMNS = {"id": str, "title": str, "context": str, "question": str, "answers": dict}
Article = dict[str, list[dict[str, Any]]]  # context -> questions
BREAKS = re.compile("\r\n|[\t\n\r\0]")


class Row(NamedTuple):
    """A row of a Parquet file; `number` counts from 0 in its file."""

    path: Path
    number: int
    values: tuple[Any, ...]

    def fault(self, text: str) -> BertprepError:
        """An error that names the file and row."""
        return BertprepError(f"{self.path}: row {self.number} (from 0): {text}")


def split_files(folder: Path, split: str) -> list[Path]:
    """The files SPLIT-00000-of-00002.parquet, ... in `folder` or below, in order; raises if one is missing."""
    paths = sorted(folder.rglob(f"{split}-*.parquet"), key=lambda path: path.name)
    if not paths:
        raise BertprepError(f"{folder}: has no file {split}-*.parquet, in it or below; download it again")
    numbered = NUMBERED.search(paths[0].name)
    wanted = int(numbered[2]) if numbered else len(paths)
    numbers = {match[1] for path in paths if (match := NUMBERED.search(path.name))} if numbered else paths
    if not len(numbers) == len(paths) == wanted:
        raise BertprepError(
            f"{folder}: has {len(paths)} files {split}-*.parquet, expected the {wanted} of one download; "
            "remove the folder and download it again"
        )
    return paths


def read_rows(path: Path, columns: Mapping[str, type]) -> Iterator[Row]:
    """Yield the rows of a file with the values of `columns`, in that order and of the types given there."""
    with open_parquet(str(path)) as file:
        names = file.schema_arrow.names
        if missing := [name for name in columns if name not in names]:
            raise BertprepError(
                f"{path}: has no column {', '.join(missing)}, found {show_names(names)}; "
                "is it a file of this task? If so, download it again"
            )
        batches = file.iter_batches(MAX_ROWS, columns=list(columns), use_threads=False)
        values = (each for batch in batches for each in zip(*(batch.column(name).to_pylist() for name in columns), strict=True))
        for number, found in enumerate(values):
            row = Row(path, number, found)
            for value, (name, kind) in zip(found, columns.items(), strict=True):
                if not isinstance(value, kind):
                    raise row.fault(
                        f"column {name} is {type(value).__name__}, expected {kind.__name__}; download the file again"
                    )
            yield row


def class_names(path: Path, column: str) -> list[str] | None:
    """The meaning of the integers 0, 1, ... of `column` by the Hub's metadata in the file; None without it."""
    with open_parquet(str(path)) as file:
        description = (file.schema_arrow.metadata or {}).get(b"huggingface")
    try:
        names = parse_json(description or b"null")["info"]["features"][column]["names"]
    except (KeyError, TypeError, ValueError):
        return None
    return [str(name) for name in names] if isinstance(names, list) else None


def write_if_different(path: Path, content: bytes | bytearray) -> None:
    """Write `content` to `path` unless it already has it."""
    try:
        if path.stat().st_size == len(content) and sha256_of(path) == hashlib.sha256(content).hexdigest():
            return
    except OSError:  # missing or unreadable
        pass
    with atomic_file(path) as file:
        file.write(content)


def write_squad(parquet_folder: Path, output_folder: Path, version: str) -> None:
    """Write train-VERSION.json and dev-VERSION.json from train-*.parquet and validation-*.parquet, and evaluate-VERSION.py.

    Correct files are kept.
    """
    if version not in VERSIONS:
        raise UsageError(f"SQuAD has no version {version!r}; choose {' or '.join(VERSIONS)}")
    for split, name in SQUAD_FILES.items():
        rows = (row for path in split_files(parquet_folder, split) for row in read_rows(path, SQUAD_COLUMNS))
        articles = _group(rows, version)
        if not articles:
            raise BertprepError(f"{parquet_folder}: {split}-*.parquet hold no question; download them again")
        write_if_different(output_folder / f"{name}-{version}.json", json.dumps(_published(articles, version)).encode())
    write_if_different(output_folder / f"evaluate-{version}.py", evaluation_program(version).encode())


def evaluation_program(version: str) -> str:
    """The source of evaluate-VERSION.py, which needs Python alone."""
    return inspect.getsource(squad_metric) + f'\n\nif __name__ == "__main__":\n    main("{version}")\n'


def _group(rows: Iterable[Row], version: str) -> dict[str, Article]:
    """Title -> context -> questions."""
    articles: dict[str, Article] = {}
    for row in rows:
        identifier, title, context, question, _ = row.values
        answers = _answers(row)
        if version == "v1.1":
            if not answers:
                raise row.fault(f"question {identifier!r} has no answer, and v1.1 has one for each; is this v2.0?")
            # The published v1.1 has its keys in another order than v2.0, also within a question.
            answers = [{"answer_start": answer["answer_start"], "text": answer["text"]} for answer in answers]
            entry = {"answers": answers, "question": question, "id": identifier}
        else:
            entry = {"question": question, "id": identifier, "answers": answers, "is_impossible": not answers}
        articles.setdefault(title, {}).setdefault(context, []).append(entry)
    return articles


def _answers(row: Row) -> list[dict[str, Any]]:
    """The answers to one question, each checked against its offset, which counts characters as Python does."""
    identifier, _, context, _, answers = row.values
    texts, starts = answers.get("text"), answers.get("answer_start")
    if not isinstance(texts, list) or not isinstance(starts, list) or len(texts) != len(starts):
        raise row.fault(
            f"the answers to question {identifier!r} are {_short(answers)}, "
            "expected two lists of one length, text and answer_start; download the file again"
        )
    for text, start in zip(texts, starts, strict=True):
        if not text or start is None:
            raise row.fault(f"an answer to question {identifier!r} is empty; download the file again")
        if start < 0 or not context.startswith(text, start):
            found = context[start : start + len(text)] if start >= 0 else ""
            raise row.fault(
                f"question {identifier!r}: expected the answer {_short(text)} at character {start} of the context, "
                f"found {_short(found)}; download the file again"
            )
    return [{"text": text, "answer_start": start} for text, start in zip(texts, starts, strict=True)]


def _published(articles: dict[str, Article], version: str) -> dict[str, Any]:
    """The whole file, with the keys in the order of the published one."""
    if version == "v1.1":
        return {
            "data": [
                {"title": title, "paragraphs": [{"context": context, "qas": qas} for context, qas in article.items()]}
                for title, article in articles.items()
            ],
            "version": "1.1",
        }
    return {
        "version": "v2.0",
        "data": [
            {"title": title, "paragraphs": [{"qas": qas, "context": context} for context, qas in article.items()]}
            for title, article in articles.items()
        ],
    }


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


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

"""Convert SQuAD and GLUE from the Hub's Parquet files to the published JSON and TSV files, which trainers read.

Trainers read GLUE's columns by position and without quoting. So every published column is present, blank if the Hub lacks it,
and a tab, line break or NUL in a sentence becomes a space.
"""

import inspect
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bertprep.errors import BertprepError, UsageError
from bertprep.files.atomic import write_if_different
from bertprep.sources.fields import show_names
from bertprep.sources.readers import MAX_ROWS, open_parquet
from bertprep.tasks import squad_metric
from bertprep.tasks.glue import MAX_SCORE, File, GlueTask
from bertprep.tasks.squad import VERSIONS
from bertprep.untrusted import parse_json

SQUAD_FILES = {"train": "train", "validation": "dev"}  # split on the Hub -> first part of the file's name
SQUAD_COLUMNS = {"id": str, "title": str, "context": str, "question": str, "answers": dict}
BREAKS = re.compile("\r\n|[\t\n\r\0]")
_AGAIN = "; download the file again"


def write_squad(parquet_folder: Path, output_folder: Path, version: str) -> None:
    """Write train-VERSION.json and dev-VERSION.json from train-*.parquet and validation-*.parquet, and evaluate-VERSION.py.

    Files that are already correct are kept.
    """
    if version not in VERSIONS:
        raise UsageError(f"SQuAD has no version {version!r}; choose {' or '.join(VERSIONS)}")
    for split, name in SQUAD_FILES.items():
        articles: dict[str, dict[str, list[dict[str, Any]]]] = {}  # title -> context -> questions
        for path in find_files(parquet_folder, split):
            for where, row in read_rows(path, SQUAD_COLUMNS):
                questions = articles.setdefault(row["title"], {}).setdefault(row["context"], [])
                questions.append(_question(where, row, version))
        write_if_different(output_folder / f"{name}-{version}.json", json.dumps(_published(articles, version)).encode())
    write_if_different(output_folder / f"evaluate-{version}.py", evaluation_program(version).encode())


def evaluation_program(version: str) -> str:
    """Return the source of evaluate-VERSION.py, which needs only Python."""
    return inspect.getsource(squad_metric) + f'\n\nif __name__ == "__main__":\n    main("{version}")\n'


def find_files(folder: Path, split: str) -> list[Path]:
    """Return the Parquet files of a split in `folder` or below it, in the order of their names."""
    if paths := sorted(folder.rglob(f"{split}-*.parquet"), key=lambda path: path.name):
        return paths
    raise BertprepError(f"{folder}: has no file {split}-*.parquet in it or in its folders; download it again")


def read_rows(path: Path, columns: Mapping[str, type]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield for each row its location, for errors, and the values of `columns`. Raises `BertprepError` for a wrong type."""
    with open_parquet(str(path)) as file:
        names = file.schema_arrow.names
        if missing := [name for name in columns if name not in names]:
            raise BertprepError(
                f"{path}: has no column {', '.join(missing)}, found {show_names(names)}; check that it is a file of this task, "
                "or download it again"
            )
        if not file.metadata.num_rows:
            raise BertprepError(f"{path}: has no rows{_AGAIN}")
        batches = file.iter_batches(MAX_ROWS, columns=list(columns), use_threads=False)
        for index, row in enumerate(row for batch in batches for row in batch.to_pylist()):
            where = f"{path}: row {index} (from 0)"
            for name, kind in columns.items():
                if not isinstance(row[name], kind):
                    found = type(row[name]).__name__
                    raise BertprepError(f"{where}: column {name} is {found}, expected {kind.__name__}{_AGAIN}")
            yield where, row


def _question(where: str, row: Mapping[str, Any], version: str) -> dict[str, Any]:
    identifier, context, answers = row["id"], row["context"], row["answers"]
    texts, starts = answers.get("text"), answers.get("answer_start")
    if not isinstance(texts, list) or not isinstance(starts, list) or len(texts) != len(starts):
        raise BertprepError(f"{where}: the answers to question {identifier!r} are not lists of one length{_AGAIN}")
    for text, start in zip(texts, starts, strict=True):
        is_answer = isinstance(text, str) and isinstance(start, int) and text and start >= 0
        if not is_answer or not context.startswith(text, start):
            raise BertprepError(
                f"{where}: question {identifier!r}: its answer {str(text)[:80]!r} is not at character {start} of the context"
                f"{_AGAIN}, or, if it was published like this, give it to bertprep task squad --input, which counts them"
            )
    if version == "v2.0":
        found = [{"text": text, "answer_start": start} for text, start in zip(texts, starts, strict=True)]
        return {"question": row["question"], "id": identifier, "answers": found, "is_impossible": not found}
    if not texts:
        raise BertprepError(f"{where}: question {identifier!r} has no answer, but v1.1 has one for each; is this v2.0?")
    # The keys of the published v1.1 are in another order than those of v2.0, also within a question.
    found = [{"answer_start": start, "text": text} for text, start in zip(texts, starts, strict=True)]
    return {"answers": found, "question": row["question"], "id": identifier}


def _published(articles: Mapping[str, Mapping[str, Any]], version: str) -> dict[str, Any]:
    def paragraphs(article: Mapping[str, Any]) -> list[dict[str, Any]]:
        if version == "v1.1":
            return [{"context": context, "qas": questions} for context, questions in article.items()]
        return [{"qas": questions, "context": context} for context, questions in article.items()]

    data = [{"title": title, "paragraphs": paragraphs(article)} for title, article in articles.items()]
    return {"data": data, "version": "1.1"} if version == "v1.1" else {"version": "v2.0", "data": data}


def write_glue(task: GlueTask, parquet_folder: Path, output_folder: Path) -> None:
    """Write the TSV files of a GLUE task from its Parquet files. Files that are already correct are kept."""
    for file in task.files.values():
        write_if_different(output_folder / file.name, _tsv(task, file, parquet_folder))


def _tsv(task: GlueTask, file: File, parquet_folder: Path) -> bytes:
    columns = [task.source.get(column) for column in file.columns]  # columns on the Hub, None for a blank one
    kinds = {name: {"idx": int, "label": int if task.words else float}.get(name, str) for name in columns if name}
    lines = ["\t".join(file.columns)] if file.header else []
    for path in find_files(parquet_folder, file.split):
        words = _words(task, path) if "label" in kinds else []
        for where, row in read_rows(path, kinds):
            if "label" in row:
                row["label"] = _label(where, row["label"], words)
            lines.append("\t".join(BREAKS.sub(" ", str(row[name])) if name else "" for name in columns))
    return "".join(f"{line}\n" for line in lines).encode()


def _words(task: GlueTask, path: Path) -> list[str]:
    with open_parquet(str(path)) as file:
        description = (file.schema_arrow.metadata or {}).get(b"huggingface")
    try:
        names = [str(name) for name in parse_json(description or b"null")["info"]["features"]["label"]["names"]]
    except (KeyError, TypeError, ValueError):
        names = list(task.words)
    if sorted(names) != sorted(task.words):
        raise BertprepError(
            f"{path}: has the labels {', '.join(names)}, expected {', '.join(task.words)}; check that it is a file of this task"
        )
    return [task.words[name] for name in names]


def _label(where: str, label: int | float, words: list[str]) -> str:
    if not words and 0 <= label <= MAX_SCORE:
        return f"{label:.3f}"
    if label in range(len(words)):
        return words[int(label)]
    most = len(words) - 1 if words else int(MAX_SCORE)
    raise BertprepError(f"{where}: the {'label' if words else 'score'} is {label}, expected 0 to {most}{_AGAIN}")

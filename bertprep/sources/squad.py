"""Converts SQuAD from the Hub's Parquet to the published JSON files, which trainers read.

The Hub has a row for each question; the published files have articles, their paragraphs and the questions of each. Questions
are grouped by title and context, in the order of first occurrence. Key order and the form of non-ASCII characters are those of
the published files, so the two can be compared. `plausible_answers` of v2.0 is omitted, because the Hub lacks it. An answer
that is not at its offset in the context is an error, because no trainer would notice.

Beside them it writes evaluate-VERSION.py, which NVIDIA's run_squad.sh calls: `squad_metric` as a standalone program.
"""

import inspect
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bertprep.errors import BertprepError, UsageError
from bertprep.sources.task_files import Row, read_rows, split_files, write_if_different
from bertprep.tasks import squad_metric
from bertprep.tasks.squad import VERSIONS

FILES = {"train": "train", "validation": "dev"}  # split on the Hub -> beginning of the file's name
COLUMNS = {"id": str, "title": str, "context": str, "question": str, "answers": dict}

Article = dict[str, list[dict[str, Any]]]  # context -> questions


def write_squad(parquet_folder: Path, output_folder: Path, version: str) -> None:
    """Write train-VERSION.json and dev-VERSION.json from train-*.parquet and validation-*.parquet, and evaluate-VERSION.py.

    Correct files are kept.
    """
    if version not in VERSIONS:
        raise UsageError(f"SQuAD has no version {version!r}; choose {' or '.join(VERSIONS)}")
    for split, name in FILES.items():
        rows = (row for path in split_files(parquet_folder, split) for row in read_rows(path, COLUMNS))
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

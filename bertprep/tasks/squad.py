"""Reads and checks SQuAD's questions: each context is kept once, and each question is a row in a few columns.

The bytes of a file tell which of these layouts it has, at any level of SQuAD's nesting:

    {"data": [{"paragraphs": [{"context": ..., "qas": [{"id", "question", "answers": [{"text", "answer_start"}]}]}]}]}
    {"context", "question", "id", "answers": {"text": [...], "answer_start": [...]}}     rows of `datasets`, JSON or Parquet

An invalid value is an error that names the file and the question. Unused values are not checked: evaluation reads only the
texts of the answers, like Google's run_squad.py (commit eedf5716).
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from bertprep.config import SQUAD_VERSIONS
from bertprep.errors import BertprepError, UsageError, first_line
from bertprep.tasks.tables import is_parquet, json_rows, parquet_rows, read_data, read_text

VERSIONS = V1, V2 = tuple(f"v{version}" for version in SQUAD_VERSIONS)
"""The versions, as in the names of the files. In v1.1 each question has an answer; in v2.0 some have none."""
WHITE_SPACE = "\t\n\r \u202f"
"""The characters that separate words in Google's reader. Other white space, such as a no-break space, is part of a word."""
NO_ANSWER, NEGATIVE = -1, -2
"""The offset of a question without an answer, and of one whose answer_start is negative."""
_MOST = 1 << 40  # an offset beyond any context
_SHOWN = 60  # characters of a value, in errors
_OTHER_FILE = "is this a SQuAD file of this version?"

_KINDS = {list: "a list", str: "text", bool: "true or false", int: "a whole number"}

Object = dict[str, Any]
T = TypeVar("T")


@dataclass(frozen=True)
class SquadData:
    """The questions of a file, in their order; question i is about contexts[paragraphs[i]]."""

    path: Path
    version: str
    contexts: list[str]
    ids: list[str]
    questions: list[str]
    paragraphs: NDArray[np.int64]
    answers: list[list[str]]  # the texts of all answers of each question
    answer_starts: NDArray[np.int64]
    """For training: the offset of each question's first answer in its context, in code points; it may be wrong. `NO_ANSWER` if
    there is none."""
    labelled: bool  # whether the file has answers to score predictions with

    def __len__(self) -> int:
        return len(self.ids)


def read_squad(path: Path, version: str, *, training: bool) -> SquadData:
    """Read a file for training or evaluation; raise `BertprepError` for an invalid value.

    Training also needs the position of each answer, right or wrong (`squad_words.find_answers`).
    """
    if version not in VERSIONS:
        raise UsageError(f"SQuAD has no version {version!r}; choose {' or '.join(VERSIONS)}")
    data = read_data(path, "a file of SQuAD's questions")
    try:
        return _read(path, _parse(path, data), version, training)
    except (ValueError, RecursionError) as error:
        raise BertprepError(f"{path}: {error}") from error


def _parse(path: Path, data: bytes) -> object:
    """Return the content of a file: an object, or the rows of JSON Lines or Parquet."""
    if is_parquet(data):
        return [row for _, row in parquet_rows(path, data)[1]]
    text = read_text(path, data) if data else ""
    try:
        return json.loads(text)  # untrusted.parse_json would take three times as long; `_read` checks all values that are used
    except (ValueError, RecursionError) as error:
        if text.lstrip().startswith("{") and text.count("\n{") > 0:
            return [row for _, row in json_rows(path, data)]
        raise BertprepError(f"{path}: is not a JSON file ({first_line(error)}); name a file of SQuAD's questions") from error


def _questions(content: object) -> Iterator[tuple[str, Object]]:
    """Yield each question with its context, from any level of SQuAD's nesting."""
    if isinstance(content, list):
        for each in content:
            yield from _questions(each)
    elif isinstance(content, dict) and "context" in content:
        context = _get(content, "context", str)
        for question in _get(content, "qas", list) if "qas" in content else [content]:
            yield context, question
    else:
        below = next((name for name in ("data", "paragraphs") if isinstance(content, dict) and name in content), None)
        if below is None:
            found = f"an object with {', '.join(content)[:_SHOWN]}" if isinstance(content, dict) else _shown(content)
            raise ValueError(f"has {found}, expected an object with data, paragraphs, or context and questions; {_OTHER_FILE}")
        yield from _questions(_get(content, below, list))


def _read(path: Path, content: object, version: str, training: bool) -> SquadData:
    found = content.get("version") if isinstance(content, dict) else None
    known = f"v{found.removeprefix('v')}" if isinstance(found, str) else ""
    if known in VERSIONS and known != version:  # other data sets of this layout have versions of their own
        raise ValueError(f"has version {known}, expected {version}; choose --version {known[1:]}, or name another file")
    contexts: dict[str, int] = {}  # context -> its index
    names: set[str] = set()
    rows: list[tuple[str, int, str, list[str] | None, int]] = []  # id, index of the context, question, answers, first start
    for context, question in _questions(content):
        name = _name(question, len(rows))
        if name in names and not training:
            raise ValueError(f"two questions have the id {_shown(name)}; predictions need unique ids")
        names.add(name)
        index = contexts.setdefault(context, len(contexts))
        try:
            text = _get(question, "question", str)
            rows.append((name, index, text, *_read_answers(question, context, version, training)))
        except ValueError as error:
            raise ValueError(f"question {_shown(name)}: {error}") from error
    if not rows:
        raise ValueError("has no questions; name another file")
    ids, paragraphs, questions, answers, starts = zip(*rows, strict=True)
    unlabelled = answers.count(None)
    if unlabelled not in (0, len(rows)):
        raise ValueError(f"{unlabelled:,} of {len(rows):,} questions have no list of answers, expected all or none")
    return SquadData(
        path, version, list(contexts), list(ids), list(questions), np.array(paragraphs, np.int64),
        answers=[texts or [] for texts in answers], answer_starts=np.array(starts, np.int64), labelled=not unlabelled,
    )  # fmt: skip


def _name(question: object, index: int) -> str:
    """Return the id of a question: text, a whole number, or, where it has none, its index in the file."""
    if not isinstance(question, dict):
        raise ValueError(f"has {_shown(question)} where a question is expected; {_OTHER_FILE}")
    found = question.get("id", index)
    return str(found) if type(found) is int else _get(question, "id", str)


def _read_answers(question: Object, context: str, version: str, training: bool) -> tuple[list[str] | None, int]:
    """Return the texts of a question's answers, and the offset of the first one: `NO_ANSWER` in evaluation too."""
    if question.get("answers") is None and not training:
        return None, NO_ANSWER
    answers = _answers(question)
    texts = [_get(answer, "text", str) for answer in answers]
    is_impossible = training and version == V2 and _is_impossible(question, texts)
    if not texts and not is_impossible and (training or version == V1):
        raise ValueError("has no answer; is this a v2.0 file (--version 2.0), or is_impossible wrong?")
    if not training:
        return texts, NO_ANSWER
    if not context.strip(WHITE_SPACE):
        raise ValueError("its context is blank, expected a text that contains the answer")
    if is_impossible:
        if any(texts):
            raise ValueError(f"is_impossible is true, but it has the answer {_shown(texts[0])}; correct one of them")
        return [], NO_ANSWER
    if not texts[0].strip():
        raise ValueError(f"its answer is {_shown(texts[0])}, expected a text of the context")
    start = _get(answers[0], "answer_start", int)
    return texts, min(start, _MOST) if start >= 0 else NEGATIVE


def _answers(question: Object) -> list[Object]:
    """Return the answers as SQuAD has them, a list of objects; `datasets` has an object of lists."""
    found = question.get("answers")
    if not isinstance(found, dict):
        return _get(question, "answers", list)
    texts, starts = _get(found, "text", list), _get(found, "answer_start", list)
    if len(texts) != len(starts):
        raise ValueError(f"has {len(texts):,} texts and {len(starts):,} starts of answers, expected as many")
    return [{"text": text, "answer_start": start} for text, start in zip(texts, starts, strict=True)]


def _is_impossible(question: Object, texts: list[str]) -> bool:
    """Return whether a question of v2.0 has no answer; rows of `datasets` do not say so, but have no answer."""
    return not texts if question.get("is_impossible") is None else _get(question, "is_impossible", bool)


def _get(parent: object, name: str, kind: type[T]) -> T:
    if not isinstance(parent, dict):
        raise ValueError(f"has {_shown(parent)} where an object with {name} is expected; {_OTHER_FILE}")
    value = parent.get(name)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ValueError(f"{name} is {_shown(value)}, expected {_KINDS[kind]}; {_OTHER_FILE}")
    if kind is str:
        str(value).encode()  # raises ValueError for half of a surrogate pair
    return value


def _shown(value: object) -> str:
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else f"a list of {len(value):,}"
    text = json.dumps(value[: _SHOWN + 1] if isinstance(value, str) else value, ensure_ascii=False)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."

"""Reads and checks SQuAD's JSON files: each paragraph is kept once, and each question is a row in a few columns.

An invalid value is an error that names the file and the question. Unused values are not checked: evaluation reads only the
texts of the answers, like Google's run_squad.py (commit eedf5716).
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from bertprep.config import SQUAD_VERSIONS
from bertprep.errors import BertprepError, UsageError, reading
from bertprep.untrusted import read_bounded

VERSIONS = V1, V2 = tuple(f"v{version}" for version in SQUAD_VERSIONS)
"""The versions, as in the names of the files. In v1.1 each question has an answer; in v2.0 some have none."""
MAX_JSON_BYTES = 1 << 30
WHITE_SPACE = "\t\n\r \u202f"
"""The characters that separate words in Google's reader. Other white space, such as a no-break space, is part of a word."""
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
    """For training: the offset of each question's first answer in its context, in code points; -1 if it has no answer."""
    labelled: bool  # whether the file has answers to score predictions with

    def __len__(self) -> int:
        return len(self.ids)


def read_squad(path: Path, version: str, *, training: bool) -> SquadData:
    """Read a file for training or evaluation; raise `BertprepError` for an invalid value.

    Training also needs the position of each answer, which must be in the context.
    """
    if version not in VERSIONS:
        raise UsageError(f"SQuAD has no version {version!r}; choose {' or '.join(VERSIONS)}")
    try:
        with reading(path, "; name a JSON file of SQuAD"):
            data = read_bounded(path, MAX_JSON_BYTES)
        # untrusted.parse_json would take three times as long, and `_read` checks all values that are used
        content = json.loads(data.decode().removeprefix("\ufeff"))
    except (ValueError, RecursionError) as error:
        raise BertprepError(f"{path}: is not a JSON file ({error}); name a JSON file of SQuAD") from error
    try:
        return _read(path, content, version, training)
    except ValueError as error:
        raise BertprepError(f"{path}: {error}") from error


def _read(path: Path, content: object, version: str, training: bool) -> SquadData:
    found = content.get("version") if isinstance(content, dict) else None
    known = f"v{found.removeprefix('v')}" if isinstance(found, str) else ""
    if known in VERSIONS and known != version:  # other data sets of this layout have versions of their own
        raise ValueError(f"has version {known}, expected {version}; choose --version {known[1:]}, or name another file")
    contexts: list[str] = []
    rows: dict[str, tuple[int, str, list[str] | None, int]] = {}  # id -> index of the context, question, answers, first start
    for article in _get(content, "data", list):
        for paragraph in _get(article, "paragraphs", list):
            contexts.append(_get(paragraph, "context", str))
            for question in _get(paragraph, "qas", list):
                name = _get(question, "id", str)
                if name in rows:
                    raise ValueError(f"two questions have the id {_shown(name)}; predictions need unique ids")
                try:
                    text = _get(question, "question", str)
                    rows[name] = len(contexts) - 1, text, *_read_answers(question, contexts[-1], version, training)
                except ValueError as error:
                    raise ValueError(f"question {_shown(name)}: {error}") from error
    if not rows:
        raise ValueError("has no questions; name another file")
    paragraphs, questions, answers, starts = zip(*rows.values(), strict=True)
    unlabelled = answers.count(None)
    if unlabelled not in (0, len(rows)):
        raise ValueError(f"{unlabelled:,} of {len(rows):,} questions have no list of answers, expected all or none")
    return SquadData(
        path, version, contexts, list(rows), list(questions), np.array(paragraphs, np.int64),
        answers=[texts or [] for texts in answers], answer_starts=np.array(starts, np.int64), labelled=not unlabelled,
    )  # fmt: skip


def _read_answers(question: Object, context: str, version: str, training: bool) -> tuple[list[str] | None, int]:
    """Return the texts of a question's answers, and the offset of the first one: -1 without answers, and for evaluation."""
    if "answers" not in question and not training:
        return None, -1
    answers = _get(question, "answers", list)
    texts = [_get(answer, "text", str) for answer in answers]
    is_impossible = training and version == V2 and _get(question, "is_impossible", bool)
    if not texts and not is_impossible and (training or version == V1):
        raise ValueError("has no answer; is this a v2.0 file, or is_impossible wrong?")
    if not training:
        return texts, -1
    if not context.strip(WHITE_SPACE):
        raise ValueError("its context is blank, expected a text that contains the answer")
    if is_impossible:
        if texts:
            raise ValueError(f"is_impossible is true, but it has the answer {_shown(texts[0])}; correct one of them")
        return texts, -1
    start = _get(answers[0], "answer_start", int)
    if not texts[0].strip() or not 0 <= start <= len(context) - len(texts[0]):
        raise ValueError(
            f"its answer {_shown(texts[0])} at {start} is not in its context, which has {len(context):,} characters"
        )
    return texts, start


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

"""SQuAD's JSON files, checked where they enter: each paragraph once, and for each question its row in a few columns.

A file comes from anywhere, so every value that is used is looked at, and a wrong one is a line with the file and the question.
What is not used is not looked at: evaluation takes the texts of the answers and nothing else of them, as Google's run_squad.py
(commit eedf5716), which reads `is_impossible` and `answer_start` for training only. Files without answers can be predicted on.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from bertprep.config import SQUAD_VERSIONS
from bertprep.errors import BertprepError, UsageError
from bertprep.untrusted import read_bounded

VERSIONS = V1, V2 = tuple(f"v{version}" for version in SQUAD_VERSIONS)
"""As files and their names spell them. In v1.1 each question has an answer; in v2.0 some have none."""
MOST_BYTES = 1 << 30
WHITE_SPACE = "\t\n\r \u202f"
"""What separates words for Google's reader; other white space, such as a no-break space, is part of a word."""
_SHOWN = 60  # characters of a value, in errors

Object = dict[str, Any]


@dataclass(frozen=True)
class SquadData:
    """The questions of a file in its order; question i is about contexts[paragraphs[i]]."""

    path: Path
    version: str
    contexts: list[str]
    ids: list[str]
    questions: list[str]
    paragraphs: NDArray[np.int64]
    answers: list[list[str]]
    """The texts of all answers of each question."""
    answer_starts: NDArray[np.int64]
    """For training: where the first of them begins in the context, in code points; -1 where a question has no answer."""
    labelled: bool
    """Whether there are answers to score predictions with."""

    def __len__(self) -> int:
        return len(self.ids)


def read_squad(path: Path, version: str, *, training: bool) -> SquadData:
    """Read a file for training, where each question must have its answer at its position, or for evaluation.

    Raises `BertprepError` with the file and the question where anything is not as SQuAD's files are, `UsageError` for a version
    that there is not.
    """
    if version not in VERSIONS:
        raise UsageError(f"SQuAD has no version {version!r}; choose {' or '.join(VERSIONS)}")
    try:
        # not untrusted.parse_json, which takes three times as long: all that is used of the content is checked by the reader
        content = json.loads(read_bounded(path, MOST_BYTES).decode().removeprefix("\ufeff"))
    except OSError as error:
        raise BertprepError(f"{path}: cannot be read: {error.strerror}; name a JSON file of SQuAD") from error
    except (ValueError, RecursionError) as error:
        raise BertprepError(f"{path}: is not a JSON file ({error}); name a JSON file of SQuAD") from error
    return _Reader(path, version, training).read(content)


class _Reader:
    """Collects the columns of a file, and says where in it something is wrong."""

    def __init__(self, path: Path, version: str, training: bool) -> None:
        self._path, self._version, self._training = path, version, training
        self._contexts: list[str] = []
        self._ids: list[str] = []
        self._questions: list[str] = []
        self._paragraphs: list[int] = []
        self._answers: list[list[str]] = []
        self._answer_starts: list[int] = []
        self._unlabelled = 0
        self._location: dict[str, int | str] = {}  # where in the file the reader is, for errors

    def read(self, content: object) -> SquadData:
        """The data of a parsed file."""
        if not isinstance(content, dict):
            self._fail(f"holds {_shown(content)}, expected an object with data; name a JSON file of SQuAD")
        self._check_version(content.get("version"))
        for article in self._objects(content, "data", "article"):
            for paragraph in self._objects(article, "paragraphs", "paragraph"):
                self._read_paragraph(paragraph)
        self._location.clear()
        if not self._ids:
            self._fail("holds no question; name another file")
        self._check_unique()
        if self._unlabelled not in (0, len(self._ids)):
            self._fail(f"{self._unlabelled:,} of {len(self._ids):,} questions have no list of answers, expected all or none")
        return SquadData(
            path=self._path,
            version=self._version,
            contexts=self._contexts,
            ids=self._ids,
            questions=self._questions,
            paragraphs=np.array(self._paragraphs, np.int64),
            answers=self._answers,
            answer_starts=np.array(self._answer_starts, np.int64),
            labelled=not self._unlabelled,
        )

    def _check_version(self, found: object) -> None:
        # other data sets of this shape have versions of their own, which say nothing about questions without answers
        known = f"v{found.removeprefix('v')}" if isinstance(found, str) else ""
        if known in VERSIONS and known != self._version:
            self._fail(f"is of version {known}, expected {self._version}; choose {known}, or name another file")

    def _objects(self, parent: Object, name: str, one: str) -> Iterator[Object]:
        """The objects of the list `name`; `one` of them is what the reader is at."""
        found = parent.get(name)
        if type(found) is not list:
            what = f"has no {name}" if name not in parent else f"{name} is {_shown(found)}"
            self._fail(f"{what}, expected a list; is it a JSON file of SQuAD?")
        for number, each in enumerate(found):
            self._location[one] = number
            if type(each) is not dict:
                self._fail(f"is {_shown(each)}, expected an object")
            yield each
        self._location.pop(one, None)

    def _read_paragraph(self, paragraph: Object) -> None:
        context = self._text(paragraph, "context")
        number = len(self._contexts)
        self._contexts.append(context)
        blank = self._training and not context.strip(WHITE_SPACE)
        for question in self._objects(paragraph, "qas", "question"):
            identifier = self._text(question, "id")
            self._location["question"] = identifier
            self._ids.append(identifier)
            self._questions.append(self._text(question, "question"))
            self._paragraphs.append(number)
            if blank:
                self._fail("its context is blank, expected a text that holds the answer")
            texts, start = self._read_answers(question, len(context))
            self._answers.append(texts)
            self._answer_starts.append(start)

    def _read_answers(self, question: Object, context_size: int) -> tuple[list[str], int]:
        """The texts of a question's answers, and where the first begins: -1 for none, and in evaluation."""
        impossible = self._is_impossible(question)
        if "answers" not in question and not self._training:
            self._unlabelled += 1
            return [], -1
        texts, start = [], None
        for answer in self._objects(question, "answers", "answer"):
            texts.append(self._text(answer, "text"))
            if len(texts) == 1:
                start = answer.get("answer_start")
        if not texts and not impossible and (self._training or self._version == V1):
            advice = "v1.1 has one for each; is the file v2.0?" if self._version == V1 else "is_impossible is false"
            self._fail(f"has no answer; {advice}")
        if impossible and texts:
            self._fail(f"is_impossible is true, and it has the answer {_shown(texts[0])}; correct one of them")
        if not self._training or impossible:
            return texts, -1
        if not texts[0].strip():
            self._fail(f"its answer is {_shown(texts[0])}, expected text of the context")
        most = context_size - len(texts[0])
        if most < 0:
            self._fail(f"its answer has {len(texts[0]):,} characters, more than the {context_size:,} of its context")
        if type(start) is not int or not 0 <= start <= most:
            self._fail(
                f"answer_start is {_shown(start)}, expected a whole number from 0 to {most}, "
                f"as the context has {context_size:,} characters and the answer {len(texts[0]):,}"
            )
        return texts, start

    def _is_impossible(self, question: Object) -> bool:
        if not self._training or self._version == V1:
            return False
        if "is_impossible" not in question:
            self._fail("has no is_impossible, expected true or false; is the file v1.1?")
        found = question["is_impossible"]
        if type(found) is not bool:
            self._fail(f"is_impossible is {_shown(found)}, expected true or false")
        return bool(found)

    def _text(self, parent: Object, name: str) -> str:
        found = parent.get(name)
        if type(found) is not str:
            self._fail(f"has no {name}, expected text" if name not in parent else f"{name} is {_shown(found)}, expected text")
        if not found.isascii():
            try:
                found.encode()
            except UnicodeEncodeError as error:
                self._fail(f"character {error.start:,} of its {name} is half of a surrogate pair, expected Unicode text")
        return found

    def _check_unique(self) -> None:
        if len(set(self._ids)) < len(self._ids):
            seen: set[str] = set()
            for identifier in self._ids:
                if identifier in seen:
                    self._fail(f"two questions have the id {_shown(identifier)}, expected one; predictions go by it")
                seen.add(identifier)

    def _fail(self, text: str) -> NoReturn:
        location = self._location
        if isinstance(location.get("question"), str):  # an id, which alone finds the question
            location = {"question": location["question"]}
        words = ", ".join(f"{name} {_shown(value)}" for name, value in location.items())
        raise BertprepError(f"{self._path}: {words}: {text}" if words else f"{self._path}: {text}")


def _shown(value: object) -> str:
    """The beginning of a value, for an error."""
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else f"a list of {len(value):,}"
    text = json.dumps(value[: _SHOWN + 1] if isinstance(value, str) else value, ensure_ascii=False)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."

"""A file that is not as SQuAD's are is one line, with the file and the question; what is not used is not looked at."""

from pathlib import Path
from typing import Any

import pytest

from bertprep.errors import BertprepError
from bertprep.tasks.squad import SquadData, read_squad
from tests.tasks.squad_files import answer, question, squad, write

CONTEXT = "a b c"
RIGHT = [answer(CONTEXT, "b")]


def read(folder: Path, content: Any, version: str = "v1.1", *, training: bool = True) -> SquadData:
    return read_squad(write(folder, content), version, training=training)


def one(**values: Any) -> dict[str, Any]:
    """Return a file of v1.1 with a single question."""
    return squad("1.1", (CONTEXT, [question(**values)]))


# The file, and the line that it gives after the file's name, when it is read for training as v1.1.
MISTAKES: dict[str, tuple[Any, str]] = {
    "no JSON": ("{", "is not a JSON file (Expecting property name"),
    "a list": ([], "has no questions; name another file"),
    "no question": (squad("1.1", (CONTEXT, [])), "has no questions; name another file"),
    "no answer": (one(answers=[]), 'question "q1": has no answer; is this a v2.0 file (--version 2.0)'),
    "a blank answer": (one(answers=[{"text": " \u00a0", "answer_start": 1}]), 'question "q1": its answer is " \u00a0", exp'),
    "answer_start is NaN": ('{"data": [{"paragraphs": [{"context": "a", "qas": [{"id": "q1", "question": "", "answers": '
                            '[{"text": "a", "answer_start": NaN}]}]}]}]}', 'question "q1": answer_start is NaN, expected'),
    "a blank context": (
        squad("1.1", (" \n\u202f", [question(answers=[answer("", "", 0)])])),
        'question "q1": its context is blank, expected a text that contains the answer',
    ),
    "half a character": (one(text="\ud83d"), 'question "q1": \'utf-8\' codec can\'t encode character'),
    "the other version": (squad("v2.0", (CONTEXT, [])), "has version v2.0, expected v1.1; choose --version 2.0, or name an"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line_with_its_location(tmp_path: Path, mistake: str) -> None:
    content, wanted = MISTAKES[mistake]
    with pytest.raises(BertprepError) as caught:
        read(tmp_path, content)
    assert str(caught.value).startswith(f"{tmp_path / 'squad.json'}: {wanted}")
    assert "\n" not in str(caught.value)


def test_evaluation_takes_the_texts_of_answers_alone(tmp_path: Path) -> None:
    asked = question(answers=[{"text": "x", "answer_start": 99}, {"text": ""}], is_impossible=7)
    data = read(tmp_path, squad("v2.0", (CONTEXT, [asked])), "v2.0", training=False)
    assert (data.answers, data.answer_starts.tolist()) == ([["x", ""]], [-1])


def test_evaluation_needs_unique_ids(tmp_path: Path) -> None:
    twice = squad("1.1", (CONTEXT, [question("x", answers=RIGHT), question("x", answers=RIGHT)]))
    assert read(tmp_path, twice).ids == ["x", "x"]
    with pytest.raises(BertprepError, match='two questions have the id "x"; predictions need unique ids'):
        read(tmp_path, twice, training=False)


def test_evaluation_needs_no_answers(tmp_path: Path) -> None:
    assert not read(tmp_path, one(), training=False).labelled
    both = squad("1.1", (CONTEXT, [question("x"), question("y", answers=RIGHT)]))
    with pytest.raises(BertprepError, match="1 of 2 questions have no list of answers, expected all or none"):
        read(tmp_path, both, training=False)
    with pytest.raises(BertprepError, match='question "q1": has no answer; is this a v2'):
        read(tmp_path, one(answers=[]), training=False)

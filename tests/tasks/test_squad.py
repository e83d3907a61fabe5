"""A file that is not as SQuAD's are is one line, with the file and the question; what is not used is not looked at."""

import copy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertprep.errors import BertprepError
from bertprep.tasks.squad import SquadData, read_squad
from bertprep.tasks.squad_features import SquadSettings, make_features
from tests.tasks.squad_files import answer, question, squad, vocabulary, write

CONTEXT = "a b c"
RIGHT = [answer(CONTEXT, "b")]


def read(folder: Path, content: Any, version: str = "v1.1", *, training: bool = True) -> SquadData:
    return read_squad(write(folder, content), version, training=training)


def one(**values: Any) -> dict[str, Any]:
    """A file of v1.1 with a single question."""
    return squad("1.1", (CONTEXT, [question(**values)]))


def test_columns(tmp_path: Path) -> None:
    content = squad("v2.0", ("a b c", [question("x", "why", answers=[answer("a b c", "c")], is_impossible=False)]))
    content["data"][0]["paragraphs"].append({"context": "d", "qas": [question("y", answers=[], is_impossible=True)]})
    data = read(tmp_path, content, "v2.0")
    assert (data.contexts, data.ids, data.questions) == (["a b c", "d"], ["x", "y"], ["why", "q"])
    assert (data.paragraphs.tolist(), data.answers, data.answer_starts.tolist()) == ([0, 1], [["c"], []], [4, -1])
    assert (len(data), data.version, data.labelled) == (2, "v2.0", True)


# The file, and the line that it gives after the file's name, when it is read for training as v1.1.
MISTAKES: dict[str, tuple[Any, str]] = {
    "no JSON": ("{", "is not a JSON file (Expecting property name"),
    "a list": ([], "has a list of 0 where an object with data is expected; is it a file of SQuAD"),
    "no question": (squad("1.1", (CONTEXT, [])), "holds no question; name another file"),
    "no answer": (one(answers=[]), 'question "q1": has no answer; is the file v2.0, or is_impossible wrong?'),
    "a blank answer": (one(answers=[{"text": " \u00a0", "answer_start": 1}]), 'question "q1": its answer " \u00a0" at 1 is'),
    "answer_start is NaN": ('{"data": [{"paragraphs": [{"context": "a", "qas": [{"id": "q1", "question": "", "answers": '
                            '[{"text": "a", "answer_start": NaN}]}]}]}]}', 'question "q1": answer_start is NaN, expected'),
    "answer_start is negative": (one(answers=[answer(CONTEXT, "b", -1)]), 'question "q1": its answer "b" at -1 is not in'),
    "a blank context": (
        squad("1.1", (" \n\u202f", [question(answers=[answer("", "", 0)])])),
        'question "q1": its context is blank, expected a text that holds the answer',
    ),
    "half a character": (one(text="\ud83d"), 'question "q1": \'utf-8\' codec can\'t encode character'),
    "an id twice": (
        squad("1.1", (CONTEXT, [question("x", answers=RIGHT), question("x", answers=RIGHT)])),
        'two questions have the id "x", expected one; predictions go by it',
    ),
    "the other version": (squad("v2.0", (CONTEXT, [])), "is of version v2.0, expected v1.1; choose --version 2.0, or name an"),
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


def test_evaluation_needs_no_answers(tmp_path: Path) -> None:
    assert not read(tmp_path, one(), training=False).labelled
    both = squad("1.1", (CONTEXT, [question("x"), question("y", answers=RIGHT)]))
    with pytest.raises(BertprepError, match="1 of 2 questions have no list of answers, expected all or none"):
        read(tmp_path, both, training=False)
    with pytest.raises(BertprepError, match='question "q1": has no answer; is the file v2'):
        read(tmp_path, one(answers=[]), training=False)


def paths_in(content: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The keys that lead to each value of a parsed file."""
    children = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    return [path, *(deeper for key, child in children for deeper in paths_in(child, (*path, key)))]


ODD = [None, True, False, 0, 1, 10**30, 0.5, "", " ", "b", "\u200b", "\ud800", "v2.0", [], {}, [[]]]
VALUES = st.one_of(st.sampled_from(ODD), st.integers(-9, 9), st.text(max_size=5))


@given(data=st.data())
def test_any_value_anywhere_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """A value of a right file is replaced or removed: what is not refused in one line has features."""
    questions = [question("x", answers=RIGHT, is_impossible=False), question("y", answers=[], is_impossible=True)]
    version, training = data.draw(st.sampled_from(["v1.1", "v2.0"])), data.draw(st.booleans())
    content = copy.deepcopy(squad(version, (CONTEXT, questions[: 1 + (version == "v2.0")]), ("d", [])))
    *parents, key = data.draw(st.sampled_from(paths_in(content)[1:]))
    parent: Any = content
    for each in parents:
        parent = parent[each]
    if data.draw(st.booleans()):
        parent[key] = data.draw(VALUES)
    else:
        del parent[key]
    folder = tmp_path_factory.getbasetemp()
    refusal = ""
    try:
        found = read(folder, content, version, training=training)
        settings = SquadSettings(seq=8, doc_stride=2, max_query=4)
        features = make_features(found, vocabulary(folder), settings, training=training)
    except BertprepError as error:
        refusal = str(error)
    if refusal:
        assert refusal.startswith(f"{folder / 'squad.json'}: ")
        assert "\n" not in refusal
    else:
        assert len(features[:]) == len(features) > 0

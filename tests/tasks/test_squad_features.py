"""Features that a person can check by eye, answers in random contexts, and the order of training."""

import random
from pathlib import Path

import pytest

from bertprep.errors import BertprepError
from bertprep.tasks.squad import read_squad
from bertprep.tasks.squad_features import SquadSettings, make_features
from tests.tasks.squad_files import answer, features_of, question, squad, tokens_of, vocabulary, write

# Windows of four tokens, two apart, after "[CLS] q [SEP]": the context's first token is at position 3.
# (context, answer, where it begins if not where it is first, (tokens of the window, first and last position) of each window)
CASES: dict[str, tuple[str, str, int | None, list[tuple[str, int, int]]]] = {
    "the first token": ("a b c d", "a", None, [("a b c d", 3, 3)]),
    "a window's edge, and the next one's middle": ("a b c d e f", "d", None, [("a b c d", 6, 6), ("c d e f", 4, 4)]),
    "in both windows": ("a b c d e f", "c d", None, [("a b c d", 5, 6), ("c d e f", 3, 4)]),
    "across an edge": ("a b c d e f", "d e", None, [("a b c d", 0, 0), ("c d e f", 4, 5)]),
    "longer than a window": ("a b c d e", "a b c d e", None, [("a b c d", 0, 0), ("c d e", 0, 0)]),
    "the last window is shorter": ("a b c d e", "e", None, [("a b c d", 0, 0), ("c d e", 5, 5)]),
    "a piece is no answer, the word is": ("a xyz", "y", None, [("a x ##y ##z", 4, 6)]),
    "the beginning of a word": ("japanese a", "japan", None, [("japanese a", 3, 3)]),
    "after punctuation": ("(1895-1943).", "1943", None, [("( 1895 - 1943", 6, 6), ("- 1943 ) .", 4, 4)]),
    "before a full stop": ("a b.", "b", None, [("a b .", 4, 4)]),
    "an accent as a character of its own": ("a Cafe\u0301 b", "b", None, [("a cafe b", 5, 5)]),
    "CJK, a token for each character": ("北京大学", "大", None, [("北 京 大 学", 5, 5)]),
    "after an emoji, a word that repeats": ("b 😀 a b", "b", 6, [("b [UNK] a b", 6, 6)]),
    "a final sigma": ("a ΣΣ", "ΣΣ", None, [("a σ ##ς", 4, 5)]),
    "a tab, a line end, a carriage return": ("a\tb\nc\rd", "d", None, [("a b c d", 6, 6)]),
    "begins on the space before": ("a b c", " b", 1, [("a b c", 4, 4)]),
    "a narrow no-break space inside": ("a\u202fb c", "a\u202fb", None, [("a b c", 3, 4)]),
    "a word that vanishes": ("a \u200b b c", "c", None, [("a b c", 5, 5)]),
    "a character that is not in the vocabulary": ("a ß b", "ß", None, [("a [UNK] b", 4, 4)]),
    "a word of 201 characters": (f"a {'x' * 201} b", "b", None, [("a [UNK] b", 5, 5)]),
    # Google drops these four
    "a no-break space inside": ("a\u00a0b c", "a\u00a0b", None, [("a b c", 3, 4)]),
    "white space before the context, in the answer": ("  a b", "  a", None, [("a b", 3, 3)]),
    "a no-break space before the answer": ("c a\u00a0b", "\u00a0b", None, [("c a b", 5, 5)]),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_windows_and_answers(tmp_path: Path, case: str) -> None:
    context, text, start, wanted = CASES[case]
    features = features_of(tmp_path, context, question(answers=[answer(context, text, start)]), training=True)
    rows = features[:]
    found = [
        (tokens_of(features, row), int(rows.start_positions[row]), int(rows.end_positions[row])) for row in range(len(features))
    ]
    assert found == [(f"[CLS] q [SEP] {window} [SEP]", first, last) for window, first, last in wanted]
    assert features.dropped == []


@pytest.mark.parametrize(
    ("text", "context", "cased", "tokens"),
    [
        ("The", "The Cafe the Café", True, "[CLS] The [SEP] The Cafe the [UNK] [SEP]"),
        (" \u200b\r\n", "x y", False, "[CLS] [SEP] x y [SEP]"),  # a question may have no token
    ],
)
def test_case_and_questions_without_tokens(text: str, context: str, cased: bool, tokens: str, tmp_path: Path) -> None:
    asked = question(text=text, answers=[answer(context, context.split()[1])])
    features = features_of(tmp_path, context, asked, training=True, cased=cased, seq=12)
    assert tokens_of(features, 0) == tokens
    assert features[:].start_positions.tolist() == [tokens.split().index(context.split()[1])]


def test_questions_without_an_answer(tmp_path: Path) -> None:
    """In training their windows have positions 0 and is_impossible 1; the others is_impossible 0, found or not."""
    context = "a b c d e f"
    features = features_of(
        tmp_path, context,
        question("no", answers=[], is_impossible=True),
        question("yes", answers=[answer(context, "f")], is_impossible=False),
        version="v2.0", training=True,
    )  # fmt: skip
    rows = features[:]
    assert features.examples.tolist() == [0, 0, 1, 1]
    assert rows.is_impossible.tolist() == [1, 1, 0, 0]
    assert rows.start_positions.tolist() == rows.end_positions.tolist() == [0, 0, 0, 6]


def test_answers_that_are_not_there_are_dropped_and_of_several_the_first_is_learned(tmp_path: Path) -> None:
    context = "a b \u200b c \u200b\u00a0\u200b"
    answers = {
        "wrong text": [answer(context, "x", 0)],
        "elsewhere": [answer(context, "c", 0)],
        "vanishes": [answer(context, "\u200b")],
        "vanishes too": [answer(context, "\u200b\u00a0\u200b")],
        "right": [answer(context, "b"), answer(context, "a")],
    }
    questions = [question(name, answers=found) for name, found in answers.items()]
    features = features_of(tmp_path, context, *questions, training=True)
    assert (features.dropped, features.recovered) == (["wrong text", "elsewhere"], [])
    assert (features.without_tokens, features.misplaced) == (["vanishes", "vanishes too"], [0, 1])
    assert [features.data.ids[index] for index in features.order] == ["right"]
    assert (features[:].start_positions.tolist(), features[:].end_positions.tolist()) == ([4], [4])
    with pytest.raises(BertprepError, match="none of its 1 questions has features"):
        features_of(tmp_path, context, questions[0], training=True)


def test_training_examples_are_in_googles_order(tmp_path: Path) -> None:
    """random.Random(12345).shuffle, after the drops; all windows of an example together; ids count rows."""
    context = "a b c d e f"
    asked = [question(f"q{n}", answers=[answer(context, "a")]) for n in range(6)]
    asked.insert(2, question("dropped", answers=[answer(context, "x", 0)]))
    data = read_squad(write(tmp_path, squad("v1.1", (context, asked))), "v1.1", training=True)
    settings = SquadSettings(seq=8, doc_stride=2, max_query=4)
    features = make_features(data, vocabulary(tmp_path), settings, training=True)
    wanted = [f"q{n}" for n in range(6)]
    random.Random(12345).shuffle(wanted)
    assert [data.ids[features.order[example]] for example in features.examples] == [name for name in wanted for _ in range(2)]
    assert wanted == ["q5", "q4", "q1", "q2", "q0", "q3"]
    assert features[:].unique_ids.tolist() == list(range(1_000_000_000, 1_000_000_012))
    again = make_features(data, vocabulary(tmp_path), settings, training=True)
    assert all((mine == same).all() for mine, same in zip(features[:].arrays, again[:].arrays, strict=True))


def test_the_window_of_most_context(tmp_path: Path) -> None:
    """Of "c" at the edge of the first window; "d" has 0 and 1 tokens beside it; "e" and "f" are in the second alone."""
    features = features_of(tmp_path, "a b c d e f", question(answers=[answer("a b c d e f", "a")]))
    best = features.max_context(0).astype(int).tolist()
    assert best == [[1, 1, 1, 0, 0, 0], [0, 0, 0, 1, 1, 1]]

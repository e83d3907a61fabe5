"""Where sentences end, and that splitting loses nothing."""

import textwrap
from functools import partial

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bertprep.kernels.numbers import TEXT_SLACK
from bertprep.text import sentences
from bertprep.text.sentences import Splitter, are_paragraphs, split_lines, split_sentences

LINE_BREAKS = "\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"  # where str.splitlines breaks a line


def test_sentences_end_by_the_rules_of_the_language() -> None:
    text = "The U.S. paid $3.5 million, i.e. all of it. Mr. Jay (of New York) said: “It is done.” Was it? No! He left."
    assert split_sentences(text) == [
        "The U.S. paid $3.5 million, i.e. all of it.",
        "Mr. Jay (of New York) said: “It is done.”",
        "Was it?",
        "No!",
        "He left.",
    ]


def test_another_language_has_other_rules() -> None:
    text = "Sie kam z.B. am 3. Mai. Er auch."
    assert split_sentences(text, "de") == ["Sie kam z.B. am 3. Mai.", "Er auch."]


def test_an_unpaired_mark_reaches_at_most_to_the_end_of_its_paragraph() -> None:
    paragraphs = ["(5) The tax is low (as is", "right. It stays so. Then it ends.", "It is fair) they say. It is.", "Is it?"]
    assert split_sentences("\n".join([paragraphs[0] + ".", *paragraphs[1:]])) == [
        "(5) The tax is low (as is.",
        "right.",
        "It stays so.",
        "Then it ends.",
        "It is fair) they say.",
        "It is.",
        "Is it?",
    ]


@pytest.mark.parametrize(
    ("lines", "paragraphs"),
    [
        (["One line only."], False),  # either way the same sentences
        (["I came. I saw.", "I conquered."], True),
        (["He said: “I came.”", "(I saw.)", "I conquered"], True),
        (["Fellow-Citizens:", "I came.", "I saw!", "I conquered."], True),  # a heading among them
        (["我来了。", "我看见了！", "我征服了。"], True),
        (["I came and", "saw. Then", "I conquered", "Gaul."], False),
        (["I came and I saw.", "Then, I con-", "quered."], False),  # a sentence may end where a line does
    ],
)
def test_lines_are_paragraphs_if_most_end_like_sentences(lines: list[str], paragraphs: bool) -> None:
    assert are_paragraphs(lines) is paragraphs


def test_wrapped_text_gives_the_sentences_of_the_text_before_it_was_wrapped() -> None:
    text = (
        "It is with peculiar satisfaction that I meet you. The season has been propitious; our trade has grown. "
        "Mr. Adams, our minister in London, writes that a treaty is near. What more could we ask? I shall lay it before you."
    )
    assert split_sentences(textwrap.fill(text, 40)) == split_sentences(text)
    assert len(split_sentences(text)) == 5


@pytest.mark.parametrize("line_break", LINE_BREAKS)
def test_no_sentence_holds_a_line_break_of_any_kind(line_break: str) -> None:
    assert split_sentences(f"One{line_break}two.{line_break}") == ["One two."]
    assert split_lines(f"One{line_break}two.{line_break}") == (["One", "two."] if line_break == "\n" else ["One two."])


TEXT = st.text(st.characters(codec="utf-8") | st.sampled_from("aB.!?…。“”)\"' " + LINE_BREAKS), max_size=200)


@given(TEXT)
@example("Dr. A.\u2028B. C.\x00\x00. \ufeff.")
@example("你好。再见！")
def test_no_text_is_lost(text: str) -> None:
    for found in (split_sentences(text), split_lines(text)):
        assert "".join("".join(found).split()) == "".join(text.split())
        assert all(sentence == " ".join(sentence.split()) != "" for sentence in found)
        assert all(sentence.splitlines() == [sentence] for sentence in found)


def at_once(splitter: Splitter, texts: list[str]) -> str:
    """Return the lines that a splitter makes of documents in one batch."""
    encoded = [text.encode() for text in texts]
    ends = np.cumsum([len(text) for text in encoded], dtype=np.int64)
    return bytes(splitter.split(np.frombuffer(b"".join(encoded) + b"\xaa" * TEXT_SLACK, np.uint8), ends)).decode()


def one_by_one(name: str, language: str, texts: list[str]) -> str:
    split = split_lines if name == "lines" else partial(split_sentences, language=language)
    return "".join("\n".join(split(text)) + "\n\n" for text in texts)


SPLITTERS = {(name, code): Splitter(name, code) for name, code in (("sentencex", "en"), ("sentencex", "de"), ("lines", "en"))}
"""Used by all tests, so that they know many words."""

PIECES = (
    "The law is old. |They came! |Did he go? |It cost $3.5 million, in 1894. |We saw it. |So (of us) it is. |Mr. |etc. |U.S. |"
    "p.m. |5 ft. |J. |I. |Inc. |Yahoo! |e.g. |A.D. |No. |St. |Ph.D. |. |.|! |?|...|. . . | .|!?|,|.,|.\"|\" |'|' |"
    "don't |States' |'tis |``|''|(|)|(1) |(a) |a) |2)|ii. |iv) |[1]|[|]|<|>|{|}|\\|@|a@b.co |1. |- |\u201c|\u201d|\u2019|"
    "\u2018|\u2013|\u2014 |\u2026 |\u2022 |\u00e9|\u00b0 |\u3002|\u00ab| |  |\n|\t|\r\n|\u00a0|\u2028|\x00|\x7f|=|/|`|* |"
    "\u201e|\u4f60\u597d|the |house |House |mild|civil|x|I |A |7 |7|responsibilities |a-very-long-word-of-many-bytes "
)
DOCUMENTS = st.lists(
    st.lists(st.sampled_from(PIECES.split("|")) | st.text(max_size=3), min_size=1, max_size=40).map("".join).filter(str.strip),
    max_size=4,
)


@pytest.mark.parametrize(("name", "language"), SPLITTERS)
@given(texts=DOCUMENTS)
@example(
    texts=["The law is old. (So it is.", "I came.\nI saw (all).", "He said \u201cNo.\u201d I left. Ok", "civil) We saw it."]
)
@example(
    texts=["mild. The law is old. It is", "'The law is old.'", 'A "b. The law is old.', "wrapped. The law\nis old. We\nso on"]
)
def test_many_documents_at_once_have_the_sentences_of_each(name: str, language: str, texts: list[str]) -> None:
    assert at_once(SPLITTERS[name, language], texts) == one_by_one(name, language, texts)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("_MAX_WORDS", 3),  # a full table of words changes nothing
        ("PLAIN_IN", ()),  # a version of sentencex that nobody compared: all lines are left to it
    ],
)
def test_the_sentences_do_not_depend_on_what_the_kernel_knows(
    name: str, value: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sentences, name, value)
    splitter = Splitter("sentencex", "en")
    words = ("house", "mile", "law", "end", "day")
    texts = [f"It is the {word}. We left the {word}!\nDid the {word}? So it is. Mr. Jay knew." for word in words]
    for _ in range(3):  # with words that are new, then known
        assert at_once(splitter, texts) == one_by_one("sentencex", "en", texts)


def test_words_that_end_a_sentence_are_learnt() -> None:
    splitter = Splitter("sentencex", "en")
    texts = ["We saw the house. Mr. Jay saw 5 ft. The rest was a mile. An inc. It was.", "It was a mile. So it ends."]
    for _ in range(2):
        assert at_once(splitter, texts) == one_by_one("sentencex", "en", texts)
    text = b"It was a mile. We saw the house."
    plain = np.frombuffer(text + bytes(TEXT_SLACK), np.uint8)
    assert isinstance(splitter.split(plain, np.array([len(text)], np.int64)), memoryview)  # sentencex was not asked

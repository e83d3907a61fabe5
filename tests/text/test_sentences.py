"""Where sentences end, and that splitting loses nothing."""

import textwrap

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sentencex import segment

from bertprep.text.sentences import are_paragraphs, split_lines, split_sentences

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


def test_a_language_without_rules_has_those_of_english_which_know_other_full_stops() -> None:
    text = "Dr. Jay såg en hund. Han gick."
    assert split_sentences(text, "sv") == split_sentences(text, "en") == ["Dr. Jay såg en hund.", "Han gick."]
    assert split_sentences("他说话。我走了。", "zh") == ["他说话。", "我走了。"]


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


PIECES = (
    "The law is old. |They came! |Did he go? |It cost $3.5 million, in 1894. |So (of us) it is. |Mr. |U.S. |p.m. |J. |. |.|! |"
    "?|. . . |,|.\"|\" |'|' |(|)|(1) |a) |2)|ii. |[|]|<|>|1. |- |\u201c|\u201d|\u2019|\u2026 |\u3002|\u00ab|\u201e|"
    "\u4f60\u597d|the |House |civil|I |A |7 |\t|\r\n|\u00a0|\u2028|\x00| |  |\n"
)
PARAGRAPHS = st.lists(st.lists(st.sampled_from(PIECES.split("|")) | st.text(max_size=3), min_size=1).map("".join), max_size=5)


@pytest.mark.parametrize("language", ["en", "de", "zh"])
@given(paragraphs=PARAGRAPHS)
@example(paragraphs=["(So it is.", "I came.", "He said \u201cNo. I left.", "Ok)\u201d he said. It is."])
def test_paragraphs_are_split_as_each_alone(language: str, paragraphs: list[str]) -> None:
    lines = [line for paragraph in paragraphs for line in split_lines(paragraph)]
    if are_paragraphs(lines):
        alone = [part.strip(" ") for line in lines for part in segment(language, line)]
        assert split_sentences("\n".join(lines), language) == list(filter(None, alone))

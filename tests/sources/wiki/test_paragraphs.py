"""The Hub's extraction loses headings, lists and remains of markup, and keeps prose whatever mark it ends with."""

import pytest

from bertprep.sources.wiki.paragraphs import Removed, clean_articles, ends_sentence, join_lines, prose_of

PROSE = [
    "Sie sagte kurz vor ihrem Tod: „Ich bin es.“", "Elle disait : « C'est moi. »", "Elle disait : «\u00a0C'est moi.\u00a0»",
    "သူသည် ကျောင်းသို့ သွားသည်။", "គាត់ទៅសាលារៀន។", "他说：“我来了。”", "「これは町だ。」", "यह एक शहर है।", "هل زرتها؟", "Սա քաղաք է։",
    "ይህ ከተማ ነው።", "He said, “It is so.” (He was right.)", "„Кто там?“", "བོད་ཡིག་ཡིན།",
]  # fmt: skip


@pytest.mark.parametrize("paragraph", PROSE)
def test_a_paragraph_is_prose_whatever_mark_closes_behind_its_stop(paragraph: str) -> None:
    assert ends_sentence(paragraph)
    assert prose_of(f"A lead is here.\n\n{paragraph}\n\nAnother is here.").split("\n\n")[1] == " ".join(paragraph.split())


def test_headings_lists_and_rests_of_markup_go_and_are_counted() -> None:
    removed = Removed()
    article = (
        "Bach (; 1685) was a [[composer]]__NOTOC__.\n\nLife \n\nHe was born -{zh-tw:資訊;zh-cn:信息}-.\n\nWorks\n Mass\n"
        " He wrote a mass.\nthumb|A picture\n\nBooks\n\nA. Meier, Bach, ISBN 3-16-148410-0.\n\n"
        "References \n\nBerlin, 1990. A long line of a list, which ends like a sentence.\n\nComposers\nGermans"
    )
    expected = ["Bach (1685) was a composer.", "He was born 信息.", "He wrote a mass."]
    assert prose_of(article, removed).split("\n\n") == expected
    assert removed.counts == {
        "headings": 5, "list_items": 1, "rows": 1, "bibliography": 1, "appendices": 2,
    }  # fmt: skip


def test_a_wrapped_paragraph_of_the_extraction_is_joined_and_its_first_line_is_no_heading() -> None:
    lines = "This is the first line of a paragraph that is wrapped in the\nsource of the page, so that the\nlines are short."
    assert prose_of(f"It is.\n\n{lines}") == "It is.\n\n" + lines.replace("\n", " ")
    assert prose_of(lines) == lines.replace("\n", " ")


def test_lines_of_scripts_without_spaces_are_joined_without_one() -> None:
    assert join_lines(["これは", "本です。"]) == "これは本です。"
    assert join_lines(["ห้า", "พัน"]) == "ห้าพัน"
    assert join_lines(["그는", "왔다."]) == "그는 왔다."
    assert join_lines(["see 本", "A", ""]) == "see 本 A"


def test_pages_that_are_lists_are_skipped_and_counted() -> None:
    removed = Removed()
    articles = [
        ("Merkur (Begriffsklärung)", "Es ist."), ("Mercury", "Mercury may refer to:\n\n A planet."), ("Anna (name)", "It is."),
        ("Cat", "A cat is an animal."),
    ]  # fmt: skip
    assert [*clean_articles(articles, removed)] == ["A cat is an animal."]
    assert removed.counts == {"disambiguations": 2, "name_lists": 1}

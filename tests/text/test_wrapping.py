"""Which lines are joined to paragraphs, and what belongs to a page and not to the text."""

import textwrap

import pytest

from bertprep.text.sentences import split_sentences
from bertprep.text.wrapping import Counts

PROSE = (
    "It is with peculiar satisfaction that I meet you. The season has been propitious; our trade has grown. "
    "Mr. Adams, our minister in London, writes that a treaty is near. What more could we ask? I shall lay it before you."
)
GERMAN = (
    "Der Befehl zeigt die Pakete an. Die Sicherheitsaktualisierungen der Verteilung werden danach geladen, und "
    "die Verwaltung der Abhängigkeiten gehört zu den Aufgaben des Systems. Mit der Einstellung lassen sich Fehler finden."
)
JAPANESE = (
    "デフォルトでは、このコマンドはファイルの一覧を表示します。長いオプションで必須となっている引数は短いオプションでも必須です。"
    "要素はアルファベット順でソートされます。詳しい説明は別の文書にあります。"
)
THAI = "ระบบปฏิบัติการนี้เป็นซอฟต์แวร์เสรีซึ่งทุกคนสามารถนำไปใช้งานได้โดยไม่มีค่าใช้จ่าย"


def marked(text: str) -> str:
    return "|".join(split_sentences(text))


def fill_wide(text: str, columns: int, indent: str = "") -> str:
    """Wrap text of wide characters, as a terminal does."""
    width = (columns - len(indent)) // 2
    return "\n".join(indent + text[start : start + width] for start in range(0, len(text), width))


@pytest.mark.parametrize("width", [40, 60, 72, 100, 119])
@pytest.mark.parametrize("text", [PROSE, GERMAN], ids=["English", "German"])
@pytest.mark.parametrize("times", [1, 20])
def test_wrapped_lines_give_the_sentences_of_the_text_before_it_was_wrapped(text: str, width: int, times: int) -> None:
    wrapped = "\n\n".join([textwrap.fill(text, width)] * times)
    assert split_sentences(wrapped) == split_sentences(text) * times


@pytest.mark.parametrize("indent", ["", "       "])
def test_joined_lines_of_scripts_without_spaces_get_no_space(indent: str) -> None:
    for text in (JAPANESE, "我们今天去了北京，看见了很多人。" * 8):
        assert split_sentences(fill_wide(text, 80, indent), "ja") == split_sentences(text, "ja")
    wrapped = f"{THAI}\n{THAI}\n{THAI}"
    assert "".join(split_sentences(wrapped, "th")).replace(" ", "") == THAI * 3
    assert " " not in "".join(split_sentences(wrapped, "th"))


# Lines, and the sentences that they give, with a "|" between them.
LINES = {
    "a heading above wrapped lines": (f"CHAPTER I\n{textwrap.fill(PROSE, 60)}", f"CHAPTER I|{marked(PROSE)}"),
    "headings and paragraphs, a line each": (
        f"Apache installieren\n{GERMAN}\n12.3. Virtuelle Rechner\nEin Satz.\n{GERMAN}",
        f"Apache installieren|{marked(GERMAN)}|12.3. Virtuelle Rechner|Ein Satz.|{marked(GERMAN)}",
    ),
    "headings between blank lines": (
        "Chapter 1\n\nHe came.\n\n\nChapter 2\n\nHe left.", "Chapter 1|He came.|Chapter 2|He left.",
    ),
    "a long line among short ones": (f"One\n{PROSE}\nand two", f"One|{marked(PROSE)}|and two"),
    "a verse": (
        "The sun was slow to rise\nAnd nobody awake\nUntil a dog, to my surprise,\nBarked twice for barking's sake.",
        "The sun was slow to rise|And nobody awake|Until a dog, to my surprise,|Barked twice for barking's sake.",
    ),
    "a verse in Chinese": (
        "床前明月光，\n疑是地上霜。\n举头望明月，\n低头思故乡。", "床前明月光，|疑是地上霜。|举头望明月，|低头思故乡。",
    ),
    "items of a list": (
        "- the first of the items is long and so it goes on\n  in a second line\n- the second of the items is shorter\n- three",
        "- the first of the items is long and so it goes on in a second line|- the second of the items is shorter|- three",
    ),
    "numbered items": (
        "1. Apples and pears\n2. Oranges\n3. Lemons and limes", "1. Apples and pears|2. Oranges|3. Lemons and limes",
    ),
    "options of a command": (
        "-a, --all\n              . で始まる要素を無視しない\n\n-b\n              表示不可能な文字を表示する",
        "-a, --all|. で始まる要素を無視しない|-b|表示不可能な文字を表示する",
    ),
    "a table": ("│ one ┃ two │\n│ 1   ┃ 2   │\n│ 3   ┃ 4   │", "│ one ┃ two │|│ 1 ┃ 2 │|│ 3 ┃ 4 │"),
    "an unbalanced quotation mark": (
        "He said: “It is so.\n\nWe left. (We came\n\nback. All did.", "He said: “It is so.|We left.|(We came|back.|All did.",
    ),
    "names": (
        "Mr. John Smith\nMiss Mary Jones\nDr. Peter Miller\nMrs. Anna Brown",
        "Mr. John Smith|Miss Mary Jones|Dr. Peter Miller|Mrs. Anna Brown",
    ),
    "Google's format": (
        "The sun rose over the hills.\nNobody was awake.\nThen a dog barked twice.",
        "The sun rose over the hills.|Nobody was awake.|Then a dog barked twice.",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("text", "sentences"), LINES.values(), ids=LINES)
@pytest.mark.parametrize("around", ["", textwrap.fill(PROSE, 72)], ids=["alone", "in a book"])
def test_each_line_that_is_not_wrapped_is_a_paragraph(text: str, sentences: str, around: str) -> None:
    before = split_sentences(PROSE) if around else []
    assert split_sentences("\n\n".join(filter(None, [around, text]))) == [*before, *sentences.split("|")]


def test_a_word_that_a_line_break_divides_is_joined_where_the_whole_word_stands_elsewhere() -> None:
    counts = Counts()
    text = (
        "The govern-\nment of the coun-\ntry. Its Govern\u00ad\nment is well-\nknown. The government, pre-\nand postwar, "
        "stood still --\nso."
    )
    assert split_sentences(text, counts=counts) == [
        "The government of the coun-try.", "Its Government is well-known.", "The government, pre- and postwar, stood still --",
        "so.",
    ]  # fmt: skip
    assert (counts.joined_words, counts.kept_hyphens) == (2, 2)


PAGES = {
    "a page's end in a sentence": (
        "The house and\n12\n\x0cTHE BOOK OF DAYS\n\nthe tree fell.", ["The house and the tree fell."], (1, 1, 1),
    ),
    "repeated heads": (
        "It was\n\n1\n\x0cThe Book  2\n\nlate. He\n\n2\n\x0cThe Book  3\n\nwent.\n\n3\n\x0cThe Book  4\n\nShe came.",
        ["It was late.", "He went.", "She came."], (3, 3, 3),
    ),
    "chapters begin pages": (
        "He came.\n\x0cChapter 1\n\nHe went.\n\x0cChapter 2\n\nHe left.",
        ["He came.", "Chapter 1", "He went.", "Chapter 2", "He left."], (0, 0, 2),
    ),
    "numbers of chapters stay": (
        "\n\n".join(f"{number}\n\n" + "\n".join(["He came and went and so it was all day."] * 8) for number in range(1, 5)),
        [each for number in range(1, 5) for each in (str(number), *["He came and went and so it was all day."] * 8)], (0, 0, 0),
    ),
    "no page": ("In\n1984\nhe came.", ["In", "1984", "he came."], (0, 0, 0)),
}  # fmt: skip


@pytest.mark.parametrize(("text", "sentences", "expected"), PAGES.values(), ids=PAGES)
def test_page_numbers_running_heads_and_form_feeds_go_and_are_counted(
    text: str, sentences: list[str], expected: tuple[int, int, int]
) -> None:
    counts = Counts()
    assert split_sentences(text, counts=counts) == sentences
    assert (counts.page_numbers, counts.running_heads, counts.form_feeds) == expected


def test_page_numbers_without_form_feeds_interrupt_the_text() -> None:
    words = [f"word{number}" for number in range(600)]
    lines = textwrap.wrap(" ".join(words), 60)
    pages = ["\n".join(lines[start : start + 15]) for start in range(0, len(lines), 15)]
    text = "".join(f"{page}\n\n- {number} -\n\n" for number, page in enumerate(pages, 7))
    counts = Counts()
    assert " ".join(split_sentences(text, counts=counts)) == " ".join(words)
    assert counts.page_numbers == len(pages)

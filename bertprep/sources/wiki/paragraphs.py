"""Choose the prose among the paragraphs and lines of a wiki's page: the same rules for dumps and for the Hub's extraction.

A paragraph that ends a sentence is prose, and so is a long one whatever its end. The end is judged by Unicode: a stop of any
script, behind which quotation marks and brackets may close. What is removed is counted by reason.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from bertprep.sources.plain_text import has_word
from bertprep.sources.wiki.pages import is_appendix, is_disambiguation, is_list_of_names, opens_disambiguation
from bertprep.sources.wiki.tidy import choose_variants, tidy

MAX_HEADING = 80
"""The most letters of a heading; a letter of a script without spaces counts as three."""
HEADINGS, LIST_ITEMS, SHORT, APPENDIX, BIBLIOGRAPHY, ROWS, TEMPLATES, FORMULAS = (
    "headings", "list_items", "short_lines", "appendices", "bibliography", "rows", "templates", "formulas",
)  # fmt: skip
REASONS = {
    HEADINGS: "headings",
    LIST_ITEMS: "list items that are no sentences",
    SHORT: "short lines that are no sentences",
    APPENDIX: "lines of sections such as References",
    BIBLIOGRAPHY: "lines that name a book by its ISBN",
    ROWS: "rows of unclosed tables and boxes",
    TEMPLATES: "templates without a rule in paragraphs",
    FORMULAS: "formulas in paragraphs",
}
"""Why something was removed from a page; manifests have these keys, after "removed_"."""
_STOPS = (
    "!.?…‽\u0589\u061d-\u061f\u06d4\u0700-\u0702\u07f9\u0837\u0839\u083d\u083e\u0964\u0965\u0df4\u0e5a\u0e5b\u0f08\u0f0d-\u0f12"
    "\u104a\u104b\u1362\u1367\u1368\u166e\u1735\u1736\u17d4\u17d5\u1803\u1809\u1944\u1945\u1aa8-\u1aab\u1b5a\u1b5b\u1b5e\u1b5f"
    "\u1c3b\u1c3c\u1c7e\u1c7f\u203c\u2047-\u2049\u2e2e\u2e3c\u3002\ua4ff\ua60e\ua60f\ua6f3\ua6f7\ua876\ua877\ua8ce\ua8cf\ua92f"
    "\ua9c8\ua9c9\uaa5d-\uaa5f\uaaf0\uaaf1\uabeb\ufe12\ufe15\ufe16\ufe52\ufe56\ufe57\uff01\uff0e\uff1f\uff61"
)
"""Unicode's Sentence_Terminal, with the ellipsis, and the marks that end sections of Sinhala, Thai, Khmer and Tibetan."""
_IS_STOP = re.compile(f"[{_STOPS}]")
_STOP_INSIDE = re.compile(rf"\w\s+\w+\S*\s+\w+[{_STOPS}][\"'”»)]*\s")
_CLOSING = frozenset({"Pe", "Pf", "Pi", "Zs", "Cf", "Mn"})
"""Categories of what may follow a stop: brackets, quotation marks of both directions („ “, » «), spaces, invisible signs."""
_ALSO_CLOSING = frozenset("\"'’*†‡′″`´＂＇,")
_NO_SPACES = "\u0e00-\u0eff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff\u2e80-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff"
_LETTER_WITHOUT_SPACES = re.compile(f"[{_NO_SPACES}\U00020000-\U0003ffff]")
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u30ff\u3400-\u9fff\uf900-\ufaff\uff00-\uff65\U00020000-\U0003ffff]"
)
"""Characters between which a line break is no space: Han, kana, Thai, Lao, Khmer, Burmese, full-width marks; not Hangul."""
_BOOK = re.compile(
    r"\bISBN(?:-1[03])?[\s:\u00a0]*[\dX]|\bISSN[\s:\u00a0]*\d|\bOCLC[\s:\u00a0]*\d|\bdoi:\s?10\.|\bDOI[: ]\s?10\."
)
_WITHOUT_STOPS = re.compile("[\u0e00-\u0eff]")  # Thai and Lao
_FEW_WORDS = 2  # that a line with an equals sign has, if it is no formula
_MANY_WORDS, _MANY_LETTERS = 8, 12  # of a paragraph without a stop that is a sentence; letters of a script without stops
_MAX_BOOK = 400  # characters of a line that is about a book; a longer one is prose that names it
_MAX_WRAPPED = 120  # characters of a line of wrapped text
_MAX_TITLE = 40  # characters of a first line that is a heading although the next line is short, too
_MARKUP_LINE = re.compile(r"\s*(?:[|!]|\{\||(?:thumb|thumbnail|mini|vignette|upright|left|right|center|\d+px)\|)")
"""Lines that the Hub's extraction leaves of tables and pictures."""
_GAP = re.compile(r"\n[ \t]*\n\s*?(?=[^\n]|\Z)")


def name_count(reason: str) -> str:
    """Return the key in a manifest for what was removed for a reason, or for pages that were skipped."""
    return f"removed_{reason}" if reason in REASONS else f"skipped_{reason}"


@dataclass
class Removed:
    """What cleaning removed: numbers by reason (`REASONS`, and kinds of pages), and the names of templates without a rule."""

    counts: Counter[str] = field(default_factory=Counter)
    templates: Counter[str] = field(default_factory=Counter)


def ends_sentence(line: str) -> bool:
    """Return whether a line ends with a stop of any script, not counting the marks that close behind it.

    >>> [ends_sentence(line) for line in ("Sie sagte: „Ich bin es.“", "Elle disait : « C'est moi. »", "A heading", "သူလာသည်။")]
    [True, True, False, True]
    """
    end = len(line)
    while end and (line[end - 1] in _ALSO_CLOSING or unicodedata.category(line[end - 1]) in _CLOSING):
        end -= 1
    return bool(end and _IS_STOP.match(line[end - 1]))


def is_short(line: str) -> bool:
    """Return whether a line is short enough for a heading."""
    return len(line) <= MAX_HEADING and _weight(line) <= MAX_HEADING


def _weight(line: str) -> int:
    return len(line) + 2 * len(_LETTER_WITHOUT_SPACES.findall(line))


def join_lines(lines: Iterable[str]) -> str:
    """Join the lines of a paragraph with spaces, but for scripts without spaces.

    >>> join_lines(["It is", "so."]), join_lines(["これは", "本です。"])
    ('It is so.', 'これは本です。')
    """
    joined = ""
    pieces = []
    for line in map(str.strip, lines):
        if joined and line:
            glued = _UNSPACED.match(joined[-1]) and _UNSPACED.match(line[0])
            pieces.append("" if glued else " ")
        pieces.append(line)
        joined = line or joined
    return "".join(pieces).strip()


def leads_on(paragraph: str) -> bool:
    """Return whether a short paragraph only leads into what follows it, such as "He said:"."""
    return paragraph.endswith((":", "：", ",", ";")) and is_short(paragraph)


def is_prose(paragraph: str, removed: Removed, *, in_list: bool = False, may_be_heading: bool = False) -> bool:
    """Return whether a paragraph, or with `in_list` a list item, is kept; count it if not.

    A short one without a stop at its end is kept if it is surely no heading, no list item, and still has a sentence.
    """
    if not has_word(paragraph):
        return False
    if len(paragraph) <= _MAX_BOOK and _BOOK.search(paragraph):
        removed.counts[BIBLIOGRAPHY] += 1
        return False
    words = sum(len(word) > 1 and word[0].isalpha() for word in paragraph.split())
    is_formula = "=" in paragraph and words < _FEW_WORDS and not _LETTER_WITHOUT_SPACES.search(paragraph)
    if not is_formula and (ends_sentence(paragraph) or not is_short(paragraph)):
        return True
    if not (is_formula or in_list or may_be_heading or leads_on(paragraph)) and _has_sentence(paragraph, words):
        return True
    removed.counts[LIST_ITEMS if in_list else SHORT] += 1
    return False


def _has_sentence(paragraph: str, words: int) -> bool:
    """Return whether a paragraph without a stop at its end has one inside, several verses, or the words of a sentence."""
    many_words = words >= (_FEW_WORDS if "\n" in paragraph else _MANY_WORDS)
    many_letters = len(_WITHOUT_STOPS.findall(paragraph)) >= _MANY_LETTERS
    return many_words or many_letters or bool(_STOP_INSIDE.search(paragraph))


def prose_of(article: str, removed: Removed | None = None) -> str:
    r"""Return the prose of an article of the Hub's extraction, with a blank line between paragraphs.

    The extraction has a heading as the first line of a block between blank lines, and list items begin with a space.

    >>> prose_of("A cat is an animal\nthat purrs.\n\nSee also\n\n Dog\n List of cats\n\nReferences\n\nFelines")
    'A cat is an animal that purrs.'
    """
    removed = Removed() if removed is None else removed
    return "\n\n".join(_paragraphs_of(article, removed))


def _paragraphs_of(article: str, removed: Removed) -> Iterator[str]:
    in_appendix = False
    blocks = [block.split("\n") for block in _GAP.split(choose_variants(article))]
    for index, lines in enumerate(blocks):
        if index and _is_heading(lines):  # no heading is before the first paragraph
            removed.counts[HEADINGS] += 1
            following = [*lines[1:], *(blocks[index + 1] if index + 1 < len(blocks) else ())]
            is_list = in_appendix and (not following or following[0].startswith(" ") or is_short(following[0]))
            in_appendix = is_list or is_appendix(lines[0])
            lines = lines[1:]
        if in_appendix:
            removed.counts[APPENDIX] += sum(map(bool, map(str.strip, lines)))
        else:
            yield from _prose_lines(lines, removed)


def _prose_lines(lines: list[str], removed: Removed) -> Iterator[str]:
    paragraph: list[str] = []
    for line in [*lines, ""]:
        is_item = line.startswith((" ", "\t"))
        if _MARKUP_LINE.match(line):
            removed.counts[ROWS] += 1
            continue
        if line.strip() and not is_item:
            paragraph.append(line)
            continue
        for part in [join_lines(paragraph)] if _is_wrapped(paragraph) else paragraph:
            if is_prose(words := tidy(part), removed, may_be_heading=True):
                yield words
        paragraph = []
        if is_item and is_prose(words := tidy(line), removed, in_list=True):
            yield words


def _is_heading(lines: list[str]) -> bool:
    """Return whether the first line of a block is a heading, not the first of several lines of a wrapped paragraph."""
    first = lines[0]
    if first.startswith((" ", "\t")) or not first.strip() or ends_sentence(first) or not is_short(first):
        return False
    following = lines[1] if len(lines) > 1 else ""
    if not following or following.startswith(" ") or is_appendix(first):
        return True
    return not following[:1].islower() and (len(first) < _MAX_TITLE or len(following) > _MAX_WRAPPED)


def _is_wrapped(lines: list[str]) -> bool:
    """Return whether lines are one wrapped paragraph, not names with a line each, such as those of categories."""
    if len(lines) <= 1:
        return True
    go_on = sum(line[0].islower() for line in lines[1:])
    return 2 * go_on >= len(lines) - 1 or sum(map(_weight, lines[:-1])) >= _MAX_TITLE * (len(lines) - 1)


def clean_articles(articles: Iterable[tuple[str, str]], removed: Removed) -> Iterator[str]:
    """Yield the prose of articles of the Hub's extraction, given as title and text, without disambiguation pages."""
    for title, text in articles:
        first = text.lstrip().partition("\n")[0]
        if is_disambiguation(title, "") or opens_disambiguation(first):
            removed.counts["disambiguations"] += 1
        elif is_list_of_names(title, ""):
            removed.counts["name_lists"] += 1
        else:
            yield prose_of(text, removed)

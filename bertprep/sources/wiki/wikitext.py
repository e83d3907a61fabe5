"""Convert the wikitext of a dump's page to prose, a blank line between paragraphs.

Comments, references, tables, files, categories, headings and final sections are removed, and the words of links and of known
templates stay (`wiki.templates`). One pass over the brackets of a page finds what is in what, so the time is linear in its
length whatever the balance of its markup. The lines of a paragraph are joined before any rule about short lines.
"""

import html
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from bertprep.sources.dump import SiteInfo
from bertprep.sources.wiki.formulas import render_formula
from bertprep.sources.wiki.pages import FILES, is_appendix
from bertprep.sources.wiki.paragraphs import (
    APPENDIX,
    FORMULAS,
    HEADINGS,
    LIST_ITEMS,
    ROWS,
    SHORT,
    TEMPLATES,
    Removed,
    ends_sentence,
    is_prose,
    join_lines,
    leads_on,
)
from bertprep.sources.wiki.template_rules import APOSTROPHE, SUPERSCRIPT, read_arguments
from bertprep.sources.wiki.templates import find_rule
from bertprep.sources.wiki.tidy import choose_variants, tidy

_MAX_NESTED = 20  # levels of templates, tables and links in others; deeper ones are dropped
_MAX_INLINE = 12  # arguments, with the name, of a template that may be part of a sentence; a longer one is a box
_HOLE = "\0"  # before and after the name of a template that leaves a hole in its sentence
_NOTHING = _HOLE + _HOLE  # from a template that has no words, a picture or a category
_BREAK, _VERSE = "\x01", "\x02"  # a line break in a paragraph; one that stays, since it ends a verse
_FORMULA = "a formula"  # the name of a hole that a formula leaves
# Each expression reads a character a few times at most, so no page can be made to take very long.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_COMMENT = re.compile(r"^[ \t]*<!--(?:(?!-->).)*-->[ \t]*\n|<!--.*?(?:-->|\Z)", re.DOTALL | re.MULTILINE)
_NOWIKI = re.compile(r"<nowiki\s*>([^<]*(?:<(?!/?nowiki\b)[^<]*)*)</nowiki\s*>", re.IGNORECASE)
_MARKUP = re.compile(r"[\[\]{}|'=*#:;~_<>-]")
_WITH_CONTENT = (
    "ref|references|chem|ce|pre|syntaxhighlight|source|gallery|imagemap|timeline|score|hiero|graph|mapframe|maplink|table|"
    "categorytree|inputbox|templatedata|noinclude|templatestyles|indicator|phonos"
)
_DROPPED = re.compile(
    rf"<({_WITH_CONTENT})\b[^<>]*/>|<({_WITH_CONTENT})\b[^<>]*>[^<]*(?:<(?!/?\2\b)[^<]*)*</\2\s*>", re.DOTALL | re.IGNORECASE
)
_MATH = re.compile(r"<(math|chem|ce)\b[^<>]*(?:/>|>([^<]*(?:<(?!/?\1\b)[^<]*)*)</\1\s*>)", re.IGNORECASE)
_POEM = re.compile(r"<poem\b[^<>]*>([^<]*(?:<(?!/?poem\b)[^<]*)*)</poem\s*>", re.IGNORECASE)
_DISPLAY = re.compile(r"\n:+[ \t]*(<math\b[^<>]*>[^<]*</math\s*>[ \t]*[.,;]?)[ \t]*(?=\n)", re.IGNORECASE)
"""A formula on a line of its own, which the sentence before and after it goes through."""
_POWER = re.compile(r"<sup>\s*([-+−]?[0-9]*[-+−]?)\s*</sup>", re.IGNORECASE)
_LINE_BREAK = re.compile(r"<br\b[^<>]*>", re.IGNORECASE)
_BLOCK = re.compile(
    r"</?(?:p|div|center|blockquote|poem|li|ul|ol|dl|dd|dt|h[1-6]|section|hr|table|tr|td|th|caption|tbody)\b[^<>]*>",
    re.IGNORECASE,
)
_TAG = re.compile(r"</?[A-Za-z]+\b[^<>]*>")
_EXTERNAL_LINK = re.compile(r"\[(?:[a-z]+:)?//[^\s\[\]]*[ \t]*([^\[\]\n]*)\]?", re.IGNORECASE)
_ELISION = re.compile(r"\b([cdjlmnstCDJLMNST]|[Qq]u)'''(?=\w)")  # l'''Iliade'' has an apostrophe and italics
_QUOTES = re.compile(r"'{2,}")
_HEADING = re.compile(r"^(={1,6})([^=\n].*?)\1[ \t]*$", re.MULTILINE)
_HATNOTE = re.compile(r"^:+[ \t]*''(?!')[^\n]{0,300}\[\[[^\n]{0,300}''[ \t.]*$", re.MULTILINE)
_LIST_ITEM = re.compile(r"[*#:;]+\s*")
_RULE = re.compile(r"-{4,}")
_ROW = re.compile(r"\|(?!\|)|\|\||!.*(?:!!|\|\|)|[{}]\s*$|[|{}]{2}")
_TOKEN = re.compile(r"^[ \t:*#]*\{\|(?!\})|^[ \t]*\|\}(?!\})|\{\{|\}\}|\[\[|\]\]|\|", re.MULTILINE)
_LANGUAGE = re.compile(r"(?:[a-z]{2,3}|simple)(?:-[a-z]+)*:(?=\S)")  # interlanguage links: [[de:Kunst]], [[zh-min-nan:X]]
_FUNCTION = re.compile(r"#?[^\W\d_]+:")
_CASES: dict[str, Callable[[str], str]] = {
    "lc": str.lower, "uc": str.upper, "lcfirst": lambda text: text[:1].lower() + text[1:],
    "ucfirst": lambda text: text[:1].upper() + text[1:], "formatnum": str,
}  # fmt: skip
_GAP = re.compile(r" (\0[^\0]*\0(?=[,.;:)]))")
"""A space that would be left before a mark of punctuation; French writes one before its own."""
_ASIDE = re.compile(r" ?\([^()\0]{0,100}\0([^<>()\0]+)\0[^()\0]{0,100}\)")
"""An aside in parentheses with a hole, which would be wrong without the template: (${{Inflation|US|5|1929}} in 2016)."""


def to_prose(wikitext: str, site: SiteInfo, removed: Removed | None = None) -> str:
    r"""Return the prose of an article, with a blank line between paragraphs, and count what is left out in `removed`.

    >>> to_prose("'''Bach''' ({{IPA-de|bax}}; 1685) was a [[composer]].<ref>x</ref>\n== Works ==\n{{Cantatas}}", SiteInfo())
    'Bach (1685) was a composer.'
    """
    removed = Removed() if removed is None else removed
    text = _COMMENT.sub("", _CONTROL.sub("", wikitext))
    text = _NOWIKI.sub(lambda found: _MARKUP.sub(lambda mark: f"&#{ord(mark[0])};", found[1]), text)
    text = _MATH.sub(_words_of_formula, _DISPLAY.sub(r"\n\1", text))
    text = _cut_appendices(_cut_hatnotes(_DROPPED.sub("", text), removed), removed)
    text = _POEM.sub(lambda poem: f"\n\n{poem[1].strip().replace(chr(10), _VERSE)}\n\n", text)
    text = _POWER.sub(lambda power: power[1].translate(SUPERSCRIPT), text)  # 10<sup>6</sup> is not 106
    text = _TAG.sub("", _BLOCK.sub("\n\n", _LINE_BREAK.sub(_BREAK, text)))
    text = _EXTERNAL_LINK.sub(r"\1", choose_variants(text))
    text = choose_variants(_Brackets(site).words(text))
    text = _QUOTES.sub("", _ELISION.sub(r"\1'", text)).replace(APOSTROPHE, "'")
    return "\n\n".join(_paragraphs(text, removed))


def _words_of_formula(formula: re.Match[str]) -> str:
    words = render_formula(formula[2] or "")
    return f"{_HOLE}{_FORMULA}{_HOLE}" if words is None else _MARKUP.sub(lambda mark: f"&#{ord(mark[0])};", words)


def _cut_hatnotes(text: str, removed: Removed) -> str:
    """Remove lines before the first heading such as :''For the planet, see [[Mercury (planet)]].''"""
    heading = _HEADING.search(text)
    lead, rest = (text[: heading.start()], text[heading.start() :]) if heading else (text, "")
    lead, count = _HATNOTE.subn("", lead)
    if count:
        removed.counts[LIST_ITEMS] += count
    return lead + rest


def _cut_appendices(text: str, removed: Removed) -> str:
    parts: list[str] = []
    position = appendix = 0  # level of the heading of the appendix
    for heading in [*_HEADING.finditer(text), None]:
        start = heading.start() if heading else len(text)
        if appendix:
            removed.counts[APPENDIX] += sum(map(bool, map(str.strip, text[position:start].split("\n"))))
        else:
            parts.append(text[position:start])
        if heading is None:
            break
        removed.counts[HEADINGS] += 1
        level = len(heading[1])
        if not appendix or level <= appendix:
            appendix = level if is_appendix(_TAG.sub("", heading[2])) else 0
        parts.append("\n\n")
        position = heading.end()
    return "".join(parts)


@dataclass
class _Frame:
    """An open template, link or table, or the page itself: the mark that opened it, and its text, with a list for each bar."""

    mark: str
    nearest: dict[str, int]  # for each mark, the depth of the nearest frame of that kind, this one included
    arguments: list[list[str]] = field(default_factory=lambda: [[]])

    def add(self, text: str) -> None:
        self.arguments[-1].append(text)

    def texts(self) -> list[str]:
        return ["".join(pieces) for pieces in self.arguments]


_TEMPLATE, _LINK, _TABLE, _PAGE = "{{", "[[", "{|", ""
_CLOSES = {"}}": _TEMPLATE, "]]": _LINK, "|}": _TABLE}


class _Brackets:
    """Replace templates, links and tables by their words."""

    def __init__(self, site: SiteInfo) -> None:
        self._site = site
        self._stack: list[_Frame] = []

    def words(self, text: str) -> str:
        stack = self._stack = [_Frame(_PAGE, {_TEMPLATE: 0, _LINK: 0, _TABLE: 0})]
        position = 0
        for token in _TOKEN.finditer(text):
            stack[-1].add(text[position : token.start()])
            position = token.end()
            mark = token[0].strip(" \t:*#")
            if mark == "|":
                self._bar()
            elif mark in _CLOSES:
                self._close(_CLOSES[mark])
            else:
                depth = len(stack)
                stack.append(_Frame(mark, {**stack[-1].nearest, mark: depth}))
        stack[-1].add(text[position:])
        while len(stack) > 1:
            self._give_up()
        return "".join(stack[0].texts())

    def _bar(self) -> None:
        frame = self._stack[-1]
        if frame.mark in (_TEMPLATE, _LINK):
            frame.arguments.append([])
        else:
            frame.add("|")

    def _close(self, mark: str) -> None:
        """Close the nearest frame of a kind; open frames in it become text. A mark that closes none is dropped."""
        stack = self._stack
        depth = stack[-1].nearest[mark]
        # a link's brackets close nothing outside the template that they stand in, and a template's nothing outside a table
        outer = {_LINK: _TEMPLATE, _TEMPLATE: _TABLE, _TABLE: _PAGE}[mark]
        if not depth or depth < stack[-1].nearest.get(outer, 0):
            if mark == _TABLE:  # the bar of a template's argument: {{A\n|}}
                self._bar()
            return
        if mark == _TABLE:
            del stack[depth + 1 :]
        while len(stack) - 1 > depth:
            self._give_up()
        frame = stack.pop()
        if len(stack) > _MAX_NESTED:
            return
        if mark == _TEMPLATE:
            stack[-1].add(self._words_of_template(frame.texts()))
        elif mark == _LINK:
            stack[-1].add(self._words_of_link(frame.texts()))
        else:
            stack[-1].add("\n\n")

    def _give_up(self) -> None:
        """Take the innermost frame, which never closes, as text; a template or table loses its first line."""
        frame = self._stack.pop()
        if len(self._stack) > _MAX_NESTED:
            return
        texts = frame.texts()
        if frame.mark == _LINK and len(texts) > 1 and not self._is_dropped(texts[0]):
            del texts[0]
        text = "|".join(texts)
        is_words = frame.mark == _LINK and not self._is_dropped(text)
        self._stack[-1].add(text if is_words else "".join(text.partition("\n")[1:]))

    def _words_of_template(self, texts: list[str]) -> str:
        name = _without_holes(texts[0]).strip()
        if function := _FUNCTION.match(name):
            called = function[0].rstrip(":").lower()
            if called in _CASES:
                return _CASES[called](texts[0].strip().partition(":")[2].strip()) or _NOTHING
            if called.startswith("#") and called != "#tag":  # computes words, such as {{#expr:1+2}}
                return f"{_HOLE}{called}{_HOLE}"
            if find_rule(name) is None:  # a setting of the page, such as {{DEFAULTSORT:a}}
                return _NOTHING
        rule = find_rule(name)
        if rule is not None:
            return rule(read_arguments(texts[1:])) or _NOTHING
        is_box = any("\n" in text.strip() for text in texts) or len(texts) > _MAX_INLINE
        return _NOTHING if is_box else f"{_HOLE}{' '.join(name.split())}{_HOLE}"

    def _words_of_link(self, texts: list[str]) -> str:
        title = texts[0].strip()
        if self._is_dropped(title) or (len(texts) == 1 and _LANGUAGE.match(title)):
            return _NOTHING
        words = "|".join(texts[1:]).strip("\n")
        return words or title.lstrip(":")

    def _is_dropped(self, title: str) -> bool:
        prefix = title.partition(":")[0].strip().lower().replace("_", " ")
        return prefix in self._site.file_namespaces or prefix in self._site.category_namespaces or prefix in FILES


def _paragraphs(text: str, removed: Removed) -> Iterator[str]:
    """Yield the prose; a short line that leads into the next one, as "He said:" does, only if that one is prose."""
    lead_in: list[str] = []
    for paragraph, in_list in _candidates(text, removed):
        holes: list[str] = []
        words = _clean(paragraph, holes)
        if lead_in and not (is_prose(words, Removed(), in_list=in_list) or (words and not in_list and leads_on(words))):
            removed.counts[SHORT] += 1
            lead_in = []
        if not in_list and leads_on(words):
            lead_in.append(words)
        elif is_prose(words, removed, in_list=in_list):
            yield from lead_in
            lead_in = []
            _count_holes(holes, removed)
            yield words
    if lead_in:
        removed.counts[SHORT] += 1


def _candidates(text: str, removed: Removed) -> Iterator[tuple[str, bool]]:
    """Yield paragraphs, their lines joined, and list items, each with whether it is a list item."""
    waiting: list[str] = []  # the lines of a paragraph
    after_markup = False  # whether the last line had only markup; it does not end a paragraph that goes on in lower case
    for line in [*text.split("\n"), ""]:
        plain = _without_holes(line).strip(f" \t{_BREAK}{_VERSE}")
        if not plain and line.strip():
            after_markup = True
            continue
        is_item = _LIST_ITEM.match(plain)
        is_row = _ROW.match(plain) or _RULE.match(plain) or _HEADING.match(plain)
        if waiting and (not plain or is_item or is_row or (after_markup and not plain[0].islower())):
            yield join_lines(waiting), False
            waiting = []
        after_markup = False
        if is_item:
            yield _LIST_ITEM.sub("", line.lstrip(), count=1), True
        elif is_row:
            removed.counts[ROWS] += 1
        elif plain:
            waiting.append(line)


def _without_holes(line: str) -> str:
    return "".join(line.split(_HOLE)[::2]) if _HOLE in line else line


def _clean(paragraph: str, holes: list[str]) -> str:
    """Return a paragraph without the rest of its markup, and collect the names of the holes in it."""
    if _HOLE in paragraph:
        paragraph = _ASIDE.sub(f"{_HOLE}\\1{_HOLE}", _GAP.sub(r"\1", paragraph))
    parts = paragraph.split(_HOLE)
    holes += filter(None, parts[1::2])
    return "\n".join(filter(None, map(tidy, _break_lines(html.unescape("".join(parts[::2]))))))


def _count_holes(holes: list[str], removed: Removed) -> None:
    for name in holes:
        removed.counts[FORMULAS if name == _FORMULA else TEMPLATES] += 1
        if name != _FORMULA:
            removed.templates[name.lower()] += 1


def _break_lines(text: str) -> Iterator[str]:
    """Yield the verses of a poem, and else the parts of a paragraph between breaks that follow a sentence."""
    for verse in text.split(_VERSE):
        waiting: list[str] = []
        for part in verse.split(_BREAK):
            waiting.append(part)
            if ends_sentence(part.strip()):
                yield " ".join(waiting)
                waiting = []
        yield " ".join(waiting)

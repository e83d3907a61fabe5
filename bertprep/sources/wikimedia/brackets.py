"""Replaces wikitext's templates, tables and links, however nested, by the words that a reader sees.

One pass over the brackets with a stack; links and templates without inner brackets, nearly all, are matched as a whole. A
closing bracket closes the nearest matching one, and unclosed ones in between count as text, so unbalanced markup costs only its
brackets, not the rest of the page. Nesting beyond that of any real page is not followed, which keeps time linear.
"""

import re

from bertprep.sources.wikimedia.dump import SiteInfo
from bertprep.sources.wikimedia.templates import template_words

MAX_DEPTH = 40
MAX_TITLE = 300  # longer than any title

_BRACKETS = re.compile(
    r"\[\[([^][{}|\n]*)(?:\|([^][{}|\n]*))?\]\]"  # 1, 2: a link, [[title]] or [[title|text]]
    r"|\{\{([^][{}|]*)(\|[^][{}]*)?\}\}"  # 3, 4: a template, {{name}} or {{name|arguments}}
    r"|\[\[|\]\]|\{\{|\}\}|\{\||\|\}(?!\})"
)
_OPENED_BY = {"]]": "[[", "}}": "{{", "|}": "{|"}

_FILE = re.compile(r"[^:]+:[^|]*\.(?:jpe?g|png|gif|svg|webp|tiff?|og[gva]|webm|mp3|wav|flac|midi?|pdf|djvu)\s*", re.IGNORECASE)
# Language codes, in lower case and with no space after the colon, as robots wrote them: [[de:Kunst]], [[zh-min-nan:X]].
_LANGUAGE = re.compile(r"(?:[a-z]{2,3}|simple)(?:-[a-z]+)*:(?=\S)")
_SISTER = re.compile(
    r"\s*(?:w|wikt|s|q|b|n|v|d|c|m|mw|voy|species|commons|meta|wikt?ionary|wiki(?:pedia|source|quote|books|news|versity|data|"
    r"species|voyage)|wp|doi|hdl|oeis|rfc|arxiv):",
    re.IGNORECASE,
)
_DISAMBIGUATION = re.compile(r"\s*\([^()]*\)\s*$|, .*$")


def replace_brackets(wikitext: str, site: SiteInfo) -> str:
    """The text with every link, template and table replaced by its words; stray brackets may remain.

    >>> replace_brackets("{{About|[[X]]}}A [[cat|tom]][[File:a.png|by [[B]]]] is {{nowrap|5 [[gram|g]]}}.", SiteInfo())
    'A tom is 5 g.'
    """
    words: list[str] = []
    opened: list[tuple[str, int]] = []  # each open bracket, and the number of words before it
    count = {"[[": 0, "{{": 0, "{|": 0}  # of the open brackets
    too_deep = 0
    position = 0
    for token in _BRACKETS.finditer(wikitext):
        start, end = token.span()
        if start > position:
            words.append(wikitext[position:start])
        position = end
        group = token.lastindex
        if group is not None:
            words.append(link_words(token[1], token[2], site) if group < 3 else template_words(token[3], token[4] or "", site))
            continue
        bracket = token[0]
        if "|" in bracket and not _begins_line(wikitext, start):
            words.append(bracket)
        elif bracket in count:
            if len(opened) < MAX_DEPTH:
                opened.append((bracket, len(words)))
                count[bracket] += 1
            else:
                too_deep += 1
        elif too_deep:
            too_deep -= 1
        elif not count[_OPENED_BY[bracket]] or (bracket == "]]" and opened[-1][0] != "[["):
            words.append(bracket)
        else:
            kind, first = opened.pop()
            while kind != _OPENED_BY[bracket]:
                count[kind] -= 1
                if kind == "[[":
                    _drop_open_file(words, first, site)
                kind, first = opened.pop()
            count[kind] -= 1
            words[first:] = [_enclosed_words(kind, words[first:], site)]
    words.append(wikitext[position:])
    for kind, first in reversed(opened):
        if kind == "[[":
            _drop_open_file(words, first, site)
    return "".join(words)


def _begins_line(text: str, position: int) -> bool:
    before = text[max(position - 20, 0) : position].rstrip(" \t:*#")
    return before.endswith("\n") or (not before and position <= 20)


def _enclosed_words(kind: str, inner: list[str], site: SiteInfo) -> str:
    """The words of a table, a template or a link, given its content, in which all brackets are already replaced."""
    if kind == "{|":
        return "\n\n"
    if kind == "{{":
        return template_words(*_at_first_bar("".join(inner)), site)
    title, text = _at_first_bar("".join(inner))
    if len(title) > MAX_TITLE or title.lstrip().startswith("["):
        return title + text
    return link_words(title, text[1:] if text else None, site)


def _at_first_bar(text: str) -> tuple[str, str]:
    before, bar, after = text.partition("|")
    return before, bar + after


def _drop_open_file(words: list[str], first: int, site: SiteInfo) -> None:
    """Drop the part of an unclosed file link before its first bracket or the end of the line."""
    if first < len(words) and link_words(words[first].partition("|")[0], None, site) == "":
        words[first] = "\n" + words[first].partition("\n")[2]


def link_words(title: str, text: str | None, site: SiteInfo) -> str:
    """The visible words of [[title|text]], or of [[title]] if `text` is None; '' for files, categories and translations.

    >>> link_words("Mercury (planet)", "", SiteInfo()), link_words(":Category:Art", None, SiteInfo())
    ('Mercury', 'Category:Art')
    >>> link_words("Datei:Hund.jpg", "mini|Ein Hund", SiteInfo()), link_words("fr:Chien", None, SiteInfo())
    ('', '')
    """
    if ":" in title:
        prefix = title.partition(":")[0].strip().lower().replace("_", " ")
        if prefix in site.file_namespaces or prefix in site.category_namespaces or _FILE.fullmatch(title):
            return ""
        if sister := _SISTER.match(title):
            title = title[sister.end() :]
        elif _LANGUAGE.match(title):
            return ""
    if text:
        return text
    if text is None:
        return title.strip(":#")
    return _DISAMBIGUATION.sub("", title[:MAX_TITLE].rpartition(":")[2])

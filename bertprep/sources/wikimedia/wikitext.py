"""Cleans wikitext to prose: the sentences of an article without their presentation.

Dropped are templates (except those that carry words), tables, references, files, categories, headings, list items that are not
sentences, formulas and code; the words of links and of all other markup are kept. Templates are not expanded, so a sentence may
have gaps. All passes are linear in the length of the page, whatever its content, and nothing recurses: some 20 MB a CPU-second
(scripts/benchmark_wikitext).
"""

import re

from bertprep.sources.wikimedia.brackets import replace_brackets
from bertprep.sources.wikimedia.dump import SiteInfo
from bertprep.sources.wikimedia.paragraphs import make_paragraphs
from bertprep.sources.wikimedia.tags import decode_entities, remove_tags

_URL = r"(?:https?:|ftp:|mailto:|news:|irc:)?//[^][<>{}|\s\"]*|mailto:[^][<>{}|\s\"]*"
_EXTERNAL_LINK = re.compile(rf"\[(?:{_URL})(?:[^\S\n]([^][\n]*(?:\[[^][\n]*\][^][\n]*)*))?\]")
_BARE_URL = re.compile(r"https?://[^][<>{}|\s\"]*[^][<>{}|\s\".,;:)]")
_VARIANTS = re.compile(r"-\{([^{}]*)\}-")
_VARIANT_CODE = re.compile(r"[a-z]{2,3}(?:-[a-z]+)*")
_QUOTES = re.compile(r"'{2,}")
_FOUR_QUOTES = re.compile(r"''''(?<!'.{4})(?!')")  # an apostrophe and bold
_ELISION = re.compile(r"'''(?<=\w''')(?=\w)")
_SWITCH = re.compile(r"__(?:[A-Z]+|[^\W\d_a-zA-Z]+)__")
_INVISIBLE = re.compile(r"[\xad\u200b\u200e\u200f\u2060\ufeff]")

_RESIDUE = re.compile(r"\{\{|\}\}|\[\[|\]\]|\{\||\|\}|<ref|&nbsp;|__[A-Z]+__")
_BRACKETS = re.compile(r"[][{}|<>]")
_WORDS_OF_MARKUP = re.compile(r"&nbsp;|__[A-Z]+__")


def to_prose(wikitext: str, site: SiteInfo) -> str:
    r"""The prose of an article, one paragraph a line, without blank lines; '' when nothing is left.

    >>> to_prose("'''Bach''' ({{IPA-de|bax}}; 1685) was a [[composer]].<ref>x</ref>\n== Works ==\n{{Cantatas}}", SiteInfo())
    'Bach (1685) was a composer.'
    """
    text = replace_brackets(remove_tags(wikitext), site)
    if "-{" in text:
        text = _VARIANTS.sub(_choose_variant, text)
    if "//" in text or "mailto:" in text:
        text = _BARE_URL.sub("", _EXTERNAL_LINK.sub(r"\1", text))
    text = _remove_quotes(text)
    if "__" in text:
        text = _SWITCH.sub("", text)
    text = _INVISIBLE.sub("", decode_entities(text))
    paragraphs = make_paragraphs(text, site.language)
    if _RESIDUE.search("\n".join(paragraphs)):
        paragraphs = [_remove_residue(paragraph) for paragraph in paragraphs]
    return "\n".join(filter(None, paragraphs))


def _choose_variant(markup: re.Match[str]) -> str:
    """Chinese variants: -{zh-hans:A;zh-hant:B}- becomes A, -{text}- text, and hidden rules (flags H and T) nothing."""
    flags, bar, text = markup[1].rpartition("|")
    if bar and not {"A", "R", "N"}.issuperset(flags.upper().replace(";", "").strip()) and "zh" not in flags.lower():
        return ""
    first = text.partition(";")[0]
    code, colon, words = first.partition(":")
    return words if colon and _VARIANT_CODE.fullmatch(code.strip()) else text


def _remove_quotes(text: str) -> str:
    """Text without the marks of bold and italic; adjacent apostrophes stay, as in l'''Iliade''."""
    if _ELISION.search(text):
        text = "\n".join(_keep_apostrophe(line) if _ELISION.search(line) else line for line in text.split("\n"))
    if "''''" in text:
        text = _FOUR_QUOTES.sub("'", text)
    return _QUOTES.sub("", text)


def _keep_apostrophe(line: str) -> str:
    """MediaWiki's rule: if neither bold nor italic marks come in pairs, three quotes are an apostrophe and italics."""
    runs = list(_QUOTES.finditer(line))
    lengths = [len(run[0]) for run in runs]
    bold = sum(length != 2 for length in lengths)
    italic = sum(length == 2 or length > 4 for length in lengths)
    if bold % 2 == 0 or italic % 2 == 0:
        return line
    threes = [run.start() for run in runs if len(run[0]) == 3]
    after_letter = [
        start for start in threes if line[start - 1 : start].strip() and not line[max(start - 2, 0) : start - 1].strip()
    ]
    after_word = [start for start in threes if line[start - 1 : start].strip()]
    for start in (after_letter or after_word or threes)[:1]:
        line = f"{line[:start]}&#39;{line[start + 1 :]}"
    return line


def _remove_residue(paragraph: str) -> str:
    """The paragraph without any bracket, for the few in which unbalanced markup left double ones."""
    if _RESIDUE.search(paragraph):
        paragraph = _WORDS_OF_MARKUP.sub(" ", _BRACKETS.sub("", paragraph))
    return " ".join(paragraph.split())

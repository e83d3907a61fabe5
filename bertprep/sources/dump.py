"""Read the articles of a Wikimedia dump, `pages-articles.xml`, as a stream.

The XML may have 100 GB, but only one page of it is in memory at a time. An article is a page of namespace 0 in wikitext that
is neither a redirect nor a list of what a word or a name may mean.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO
from xml.etree.ElementTree import Element, ParseError, iterparse

from bertprep.config import is_language
from bertprep.errors import BertprepError, quoted
from bertprep.sources.wiki.pages import is_disambiguation, is_list_of_names
from bertprep.terminal import warn

_ADVICE = "give a pages-articles.xml, plain or compressed with bzip2, gzip or zstd"
_MEDIA, _FILE, _CATEGORY = "-2", "6", "14"  # namespaces, the same on every wiki
SKIPPED = REDIRECTS, NO_ARTICLES, WITHOUT_TEXT, DISAMBIGUATIONS, NAME_LISTS = (
    "skipped_redirects", "skipped_pages", "skipped_without_text", "skipped_disambiguations", "skipped_name_lists",
)  # fmt: skip
"""Why a page was skipped; manifests use these keys."""
_XML_LANG = "{http://www.w3.org/XML/1998/namespace}lang"
_WIKI = re.compile(r"([a-z]+(?:_[a-z]+)*)wiki(?:[-.].*)?")  # a dbname, or the name of a file of a Wikipedia's dump
_REDIRECT = re.compile(r"\s*#\s*[^\W\d_]+\s*:?\s*\[\[")  # the word is localized: #REDIRECT, #WEITERLEITUNG, #重定向


@dataclass(frozen=True)
class SiteInfo:
    """A wiki's names for the namespaces of files and categories, in lower case. Cleaning needs them."""

    file_namespaces: frozenset[str] = frozenset({"file", "image", "media"})  # valid on every wiki
    category_namespaces: frozenset[str] = frozenset({"category"})


@dataclass(frozen=True)
class Page:
    """An article as its authors wrote it."""

    title: str
    wikitext: str


@dataclass
class Articles:
    """The articles of a dump, which can be iterated once; `skipped` counts the other pages, by cause."""

    elements: Iterator[tuple[str, Element]]
    root: Element
    other_namespaces: set[str]
    skipped: Counter[str] = field(default_factory=Counter)

    def __iter__(self) -> Iterator[Page]:
        for event, element in self.elements:
            if event != "end" or _tag(element) != "page":
                continue
            title = element.findtext("{*}title") or ""
            revision = ([*element.iterfind("{*}revision")] or [element])[-1]  # the newest is last
            wikitext = revision.findtext("{*}text") or ""
            namespace = element.findtext("{*}ns")
            prefix, colon, _ = title.partition(":")
            # exports before version 0.6 give the namespace in the title only
            is_article = namespace == "0" if namespace else not (colon and prefix.lower() in self.other_namespaces)
            is_redirect = element.find("{*}redirect") is not None or _REDIRECT.match(wikitext)
            is_wikitext = revision.findtext("{*}model") in (None, "", "wikitext")
            self.root.clear()
            if is_redirect:
                self.skipped[REDIRECTS] += 1
            elif not (is_article and is_wikitext):
                self.skipped[NO_ARTICLES] += 1
            elif not wikitext:
                self.skipped[WITHOUT_TEXT] += 1
            elif is_disambiguation(title, wikitext):
                self.skipped[DISAMBIGUATIONS] += 1
            elif is_list_of_names(title, wikitext):
                self.skipped[NAME_LISTS] += 1
            else:
                yield Page(title, wikitext)


def read_dump(file: BinaryIO, name: str) -> tuple[SiteInfo, Articles]:
    """Return the namespaces and the articles of the export in `file`, which error messages call `name`.

    Raises `BertprepError` if it is not an export. A truncated one raises it while the articles are iterated.
    """
    elements = _parse(file, name)
    _, root = next(elements)
    if _tag(root) != "mediawiki":
        raise BertprepError(f"{name}: expected a MediaWiki export, <mediawiki>, found <{quoted(_tag(root))}>; {_ADVICE}")
    names: dict[str, str] = {}
    for event, element in elements:
        if event == "end" and _tag(element) == "siteinfo":
            names = {(each.text or "").lower(): each.get("key", "") for each in element.iterfind(".//{*}namespace")}
            break
        if _tag(element) == "page":
            break
    files = SiteInfo.file_namespaces | {each for each, key in names.items() if key in (_MEDIA, _FILE)}
    categories = SiteInfo.category_namespaces | {each for each, key in names.items() if key == _CATEGORY}
    return SiteInfo(files, categories), Articles(elements, root, {each for each, key in names.items() if key != "0"})


def read_languages(file: BinaryIO, name: str) -> list[str]:
    """Return the codes that a dump has for its language, its xml:lang before that in its dbname; [] if it has none.

    They may differ, such as en and simple, or gsw and als. Only the head of the file is read. Raises `BertprepError` if it is
    no export.
    """
    codes = []
    for event, element in _parse(file, name):
        if event == "start" and _tag(element) == "mediawiki":
            codes.append(element.get(_XML_LANG, "").lower())
        if event == "end" and _tag(element) == "dbname":
            codes.append(language_in_name(element.text or ""))
        if _tag(element) in ("siteinfo", "page") and event == ("end" if _tag(element) == "siteinfo" else "start"):
            break
    return list(dict.fromkeys(code for code in codes if is_language(code)))


def language_in_name(name: str) -> str:
    """Return the language in the name of a Wikipedia, or of a file of its dump, or "".

    >>> language_in_name("dewiki-20261101-pages-articles.xml.bz2"), language_in_name("commonswiki")
    ('de', '')
    """
    match = _WIKI.fullmatch(name)
    code = match[1].replace("_", "-") if match else ""
    return code if is_language(code) else ""  # commons and meta are none


def choose_language(given: str | None, found: Sequence[str], dump: str) -> str | None:
    """Return the language `given`, else the first of a dump's codes, else None; warn if `given` is none of these codes."""
    if given is not None and found and given not in found:
        warn(f"{dump}: names {found[0]} as its language, but {given} is used, from --language or the name of the corpus")
    return given or next(iter(found), None)


def _parse(file: BinaryIO, name: str) -> Iterator[tuple[str, Element]]:
    try:
        yield from iterparse(file, ("start", "end"))
    except ParseError as error:
        line, column = error.position
        raise BertprepError(
            f"{name}: line {line:,}, column {column:,}: is not the XML of a complete MediaWiki export ({error}); {_ADVICE}, or "
            "download it again"
        ) from error


def _tag(element: Element) -> str:
    return element.tag.rpartition("}")[2]

"""Read the articles of a Wikimedia dump, `pages-articles.xml`, as a stream.

The XML may have 100 GB, but only one page of it is in memory at a time. An article is a page of namespace 0 in wikitext that
is not a redirect.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import BinaryIO
from xml.etree.ElementTree import Element, ParseError, iterparse

from bertprep.errors import BertprepError, quoted

_ADVICE = "give a pages-articles.xml, plain or compressed with bzip2, gzip or zstd"
_MEDIA, _FILE, _CATEGORY = "-2", "6", "14"  # namespaces, the same on every wiki
SKIPPED = REDIRECTS, NO_ARTICLES, WITHOUT_TEXT = "skipped_redirects", "skipped_pages", "skipped_without_text"
"""Why a page was skipped; manifests use these keys."""
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

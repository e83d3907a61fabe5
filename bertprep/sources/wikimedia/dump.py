"""Streams the articles of a Wikimedia dump, `pages-articles.xml` in any compression.

A dump is one XML document of up to 100 GB. It goes through expat in blocks, without a tree, so memory is bounded by the largest
page. Parsing takes a CPU-second per 300 MB, decompressing bzip2 one per 40 MB, over all processors. Articles are the pages of
namespace 0 that are wikitext and no redirects. The export's version is ignored: dumps from version 0.3 (2006) on, which have
less information about each page, work too.
"""

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import BinaryIO
from xml.parsers import expat

from bertprep.errors import BertprepError
from bertprep.text.documents import MOST_DOCUMENT_BYTES

BLOCK_BYTES = 1 << 18
MOST_TAG_BYTES = 1 << 20
MOST_DEPTH = 64
MOST_NAMESPACES = 10_000
"""Limits on the parser's memory, far beyond those of any wiki, which has some 40 namespaces and elements at a depth of 5."""

_WIKITEXT = ("wikitext", "")
_MEDIA, _FILE, _CATEGORY = "-2", "6", "14"  # namespace numbers, the same on every wiki
_REDIRECT = re.compile(r"\s*#\s*[^\W\d_]+\s*:?\s*\[\[")  # the word is localized: #REDIRECT, #WEITERLEITUNG, #重定向

# the elements that are read, by depth: deeper parts of a page contain others of the same names
_READ = {"namespace": 4, "title": 3, "ns": 3, "model": 4, "text": 4}


@dataclass(frozen=True, slots=True)
class SiteInfo:
    """What cleaning needs to know about a wiki: its language, and its names for files and categories, in lower case."""

    language: str = "en"
    file_namespaces: frozenset[str] = frozenset({"file", "image", "media"})  # valid on every wiki
    category_namespaces: frozenset[str] = frozenset({"category"})


@dataclass(frozen=True, slots=True)
class Page:
    """An article as its authors wrote it."""

    title: str
    wikitext: str


class DumpReader:
    """The articles of the export in `file`, for a single iteration; errors call it `name`. `site` is available at once.

    Raises `BertprepError` if the file is not a MediaWiki export, or is damaged or truncated; the articles before that position
    have then been yielded.
    """

    def __init__(self, file: BinaryIO, name: str) -> None:
        self.site = SiteInfo()
        self._file, self._name = file, name
        self._pages: deque[Page] = deque()
        self._site_read = False
        self._other_namespaces: set[str] = set()
        self._namespaces = 0
        self._depth = 0
        self._given_bytes = 0  # to the parser
        self._number = ""  # of the namespace being read
        self._characters: list[str] = []  # of the element being read
        self._length = 0  # of those
        self._page: dict[str, str] = {}
        self._parser = expat.ParserCreate("UTF-8")  # the encoding of every export, whatever it declares
        self._parser.buffer_text = True
        self._parser.buffer_size = BLOCK_BYTES
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.StartDoctypeDeclHandler = self._refuse_doctype
        self._has_more = True
        while not self._site_read and self._has_more:
            self._has_more = self._parse_block()

    def __iter__(self) -> Iterator[Page]:
        while self._has_more or self._pages:
            while self._pages:
                yield self._pages.popleft()
            self._has_more = self._has_more and self._parse_block()

    def _parse_block(self) -> bool:
        """Parse the next block; returns False at the end."""
        parser = self._parser
        try:
            block = self._file.read(BLOCK_BYTES)
        except Exception as error:  # each decompression library has its own exceptions
            raise BertprepError(
                f"{self._name}: cannot be decompressed beyond byte {max(parser.CurrentByteIndex, 0):,} of its XML ({error}); "
                "it is damaged or cut off: fetch it again"
            ) from error
        self._given_bytes += len(block)
        try:
            parser.Parse(block, not block)
            if self._given_bytes - parser.CurrentByteIndex > MOST_TAG_BYTES:
                raise self._too_much(f"a tag or comment of more than {MOST_TAG_BYTES:,} bytes")
        except expat.ExpatError as error:
            place = f"{self._name}: line {error.lineno:,}, column {error.offset:,}"
            if self._depth:
                fault = (
                    f"the XML is damaged ({expat.ErrorString(error.code)})" if block else "the file is cut off, it ends here"
                )
                raise BertprepError(f"{place}: expected the rest of the export, but {fault}: fetch it again") from error
            raise BertprepError(
                f"{place}: expected the XML of a MediaWiki export, found other text ({expat.ErrorString(error.code)}); "
                "give a pages-articles.xml, as it is or packed with bzip2, gzip or zstd"
            ) from error
        return bool(block)

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if self._depth > MOST_DEPTH:
            raise self._too_much(f"elements within elements, {MOST_DEPTH} deep")
        if _READ.get(tag) == self._depth:
            self._number = attributes.get("key", "")
            self._parser.CharacterDataHandler = self._add_characters
        elif self._depth == 3 and tag == "redirect":
            self._page["redirect"] = ""
        elif self._depth == 2 and tag == "page":
            self._site_read = True
            self._page = {}
        elif self._depth == 1:
            if tag != "mediawiki":
                raise BertprepError(
                    f"{self._name}: expected a MediaWiki export, <mediawiki>, found <{tag}>; "
                    "give a pages-articles.xml, as it is or packed with bzip2, gzip or zstd"
                )
            self.site = replace(self.site, language=attributes.get("xml:lang", self.site.language))

    def _add_characters(self, characters: str) -> None:
        self._characters.append(characters)
        self._length += len(characters)
        if self._length > MOST_DOCUMENT_BYTES:
            raise self._too_much(f"a text of more than {MOST_DOCUMENT_BYTES:,} bytes")

    def _refuse_doctype(self, *_: object) -> None:
        raise self._too_much("a document type, whose entities may expand without end")

    def _too_much(self, found: str) -> BertprepError:
        return BertprepError(
            f"{self._name}: line {self._parser.CurrentLineNumber:,}: {found}, which no MediaWiki export has; "
            "give a pages-articles.xml, as it is or packed with bzip2, gzip or zstd"
        )

    def _end(self, tag: str) -> None:
        if _READ.get(tag) == self._depth:
            self._parser.CharacterDataHandler = None
            text = "".join(self._characters)
            self._characters.clear()
            self._length = 0
            if tag == "namespace":
                self._add_namespace(self._number, text.lower())
            else:
                self._page[tag] = text  # of several revisions, which come in the order of time, the last
        elif self._depth == 2 and tag == "page":
            self._add_page(self._page)
        elif self._depth == 2 and tag == "siteinfo":
            self._site_read = True
        self._depth -= 1

    def _add_namespace(self, number: str, name: str) -> None:
        self._namespaces += 1
        if self._namespaces > MOST_NAMESPACES:
            raise self._too_much(f"more than {MOST_NAMESPACES:,} namespaces")
        site = self.site
        if number in (_MEDIA, _FILE):
            self.site = replace(site, file_namespaces=site.file_namespaces | {name})
        elif number == _CATEGORY:
            self.site = replace(site, category_namespaces=site.category_namespaces | {name})
        if number != "0":
            self._other_namespaces.add(name)

    def _add_page(self, page: dict[str, str]) -> None:
        title, wikitext = page.get("title", ""), page.get("text", "")
        prefix, colon, _ = title.partition(":")
        # before version 0.6 of the export only the title gave the namespace
        is_article = page["ns"] == "0" if "ns" in page else not (colon and prefix.lower() in self._other_namespaces)
        is_redirect = "redirect" in page or _REDIRECT.match(wikitext)
        if is_article and wikitext and not is_redirect and page.get("model", "") in _WIKITEXT:
            self._pages.append(Page(title, wikitext))

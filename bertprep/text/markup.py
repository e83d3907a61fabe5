"""Say before a text is read that it has what a model should not learn: HTML, or the header and licence of Project Gutenberg.

The first documents of the first files are looked at. Nothing is removed, since a text may be about HTML.
"""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Sequence
from itertools import islice

from bertprep.errors import BertprepError
from bertprep.sources.documents import READERS, WIKIPEDIA, Source
from bertprep.sources.kinds import DUMP
from bertprep.terminal import warn

_FILES, _DOCUMENTS, _CHARACTERS = 10, 100, 1 << 20  # looked at, and of each file
_MIN_SHARE = 0.02
_MARKUP = re.compile(
    r"&(?:[a-zA-Z]{2,8}|#\d{2,5}|#x[\da-fA-F]{2,5});|</?(?:a|b|br|div|em|h[1-6]|hr|i|img|li|ol|p|span|strong|table|td|tr|ul)\b[^<>]*>"
)
_GUTENBERG = re.compile(r"^\*\*\* ?START OF (?:THE|THIS) PROJECT GUTENBERG EBOOK", re.MULTILINE)


def warn_of_markup(sources: Sequence[Source]) -> None:
    """Warn of HTML's entities and tags, with the share of documents that have them, and of Gutenberg's header and licence."""
    documents = of_gutenberg = 0
    found: list[str] = []
    with_licence = ""
    for source in [each for each in sources if each.reader not in (DUMP, WIKIPEDIA) and each.reader in READERS][:_FILES]:
        has_licence = False
        for text in _first_documents(source):
            documents += 1
            if match := _MARKUP.search(text):
                found.append(match[0])
            has_licence = has_licence or _GUTENBERG.search(text) is not None
        if has_licence:
            of_gutenberg += 1
            with_licence = with_licence or source.location
    if found and len(found) >= _MIN_SHARE * documents:
        examples = " and ".join(dict.fromkeys(sorted(set(found), key=found.count, reverse=True)[:2]))
        warn(
            f"{len(found) / documents:.0%} of the first {documents:,} documents have HTML, such as {examples}, which becomes "
            "text of the records; take it out first, for example with html.unescape of Python and a parser of HTML"
        )
    if of_gutenberg:
        cut = r"sed -n '/^\*\*\* *START OF/,/^\*\*\* *END OF/{//!p}'"
        warn(
            f"{with_licence}: has the header and licence of Project Gutenberg, like {of_gutenberg:,} of the files looked at; "
            f"{cut} {shlex.quote(with_licence)} prints the book alone"
        )


def _first_documents(source: Source) -> list[str]:
    """Return the beginnings of the first documents of a source; none if it cannot be read, which is an error later."""
    texts: list[str] = []
    characters = 0
    with contextlib.suppress(BertprepError, OSError, ValueError):
        for text in islice(READERS[source.reader](source), _DOCUMENTS):
            texts.append(text[:_CHARACTERS])
            characters += len(text)
            if characters > _CHARACTERS:
                break
    return texts

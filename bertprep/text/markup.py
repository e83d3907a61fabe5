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
from bertprep.sources.documents import MEMORY, READERS, WHOLE, Source
from bertprep.sources.kinds import TEXT
from bertprep.sources.readers import is_compressed, is_local
from bertprep.terminal import warn

_FILES, _DOCUMENTS, _CHARACTERS = 10, 100, 1 << 20  # looked at, and of each file
_MIN_SHARE = 0.02
_MARKUP = re.compile(
    r"&(?:[a-zA-Z]{2,8}|#\d{2,5}|#x[\da-fA-F]{2,5});|</?(?:a|b|br|div|em|h[1-6]|hr|i|img|li|ol|p|span|strong|table|td|tr|ul)\b[^<>]*>"
)
_GUTENBERG = re.compile(r"^(\*\*\* ?START OF (THE|THIS) PROJECT GUTENBERG|\*END.{,9}THE SMALL PRINT)", re.MULTILINE)
_CUT = r"sed -nE '/^\*\*\* ?START OF|^\*END.*SMALL PRINT/,/^\*\*\* ?END OF|^End of .*Project Gutenberg/{//!p}'"


def warn_of_markup(sources: Sequence[Source]) -> None:
    """Warn of HTML's entities and tags, with the share of documents that have them, and of Gutenberg's header and licence."""
    documents = 0
    found: list[str] = []
    of_gutenberg: list[Source] = []
    readable = [each for each in sources if each.reader in READERS or (each.reader == MEMORY and not each.is_read_once)]
    for source in readable[:_FILES]:
        texts = _first_documents(source)
        documents += len(texts)
        found += [match[0] for match in map(_MARKUP.search, texts) if match]
        if any(map(_GUTENBERG.search, texts)):
            of_gutenberg.append(source)
    if found and len(found) >= _MIN_SHARE * documents:
        examples = " and ".join(dict.fromkeys(sorted(set(found), key=found.count, reverse=True)[:2]))
        warn(
            f"{len(found) / documents:.0%} of the first {documents:,} documents have HTML, such as {examples}, which becomes "
            "text of the records; take it out first, for example with html.unescape of Python and a parser of HTML"
        )
    if of_gutenberg:
        first = of_gutenberg[0]
        cut = "leave out what is before '*** START OF' and after '*** END OF'"
        if first.reader in (TEXT, WHOLE) and is_local(first.location) and not is_compressed(first.location):
            cut = f"{_CUT} {shlex.quote(first.location)} prints the book alone"
        warn(
            f"{first.location}: has the header and licence of Project Gutenberg, like {len(of_gutenberg):,} of the files "
            f"looked at; {cut}"
        )


def _first_documents(source: Source) -> list[str]:
    """Return the beginnings of the first documents of a source; none if it cannot be read, which is an error later."""
    texts: list[str] = []
    characters = 0
    with contextlib.suppress(BertprepError, OSError, ValueError):
        read = source.texts() if source.reader == MEMORY else READERS[source.reader](source)
        for text in islice(read, _DOCUMENTS):
            texts.append(text[:_CHARACTERS])
            characters += len(text)
            if characters > _CHARACTERS:
                break
    return texts

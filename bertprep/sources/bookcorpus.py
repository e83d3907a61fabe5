"""BookCorpus from the Hub: one lower-cased, tokenized sentence a row, 74 million of them, joined back into documents.

The rows are in the order of the books, but book boundaries are not marked. A book can be recognized by its front matter, the
lines on copyright and editions with which nearly all of these books open. A book without them is appended to the one before,
and MOST_SENTENCES limits the length of a document; the mean book has 6,700.
"""

import re
from collections.abc import Iterable, Iterator

from bertprep.text.documents import MOST_DOCUMENT_BYTES

FEWEST_SENTENCES = 500  # front matter has many such lines, as may the end of a book
MOST_SENTENCES = 10_000

_FRONT_MATTER = re.compile(
    r"all rights reserved|smashwords edition|\bisbn\b|published (by|at) .*smashwords|copyright [\W\dc]{0,8}(19|20)\d\d"
)


def join_books(sentences: Iterable[str]) -> Iterator[str]:
    """Documents of one sentence a line, cut where front matter begins or after `MOST_SENTENCES`."""
    book: list[str] = []
    characters = 0
    for sentence in sentences:
        begins = len(book) >= FEWEST_SENTENCES and _FRONT_MATTER.search(sentence)
        if begins or len(book) >= MOST_SENTENCES or characters > MOST_DOCUMENT_BYTES // 2:
            yield "\n".join(book)
            book, characters = [], 0
        book.append(sentence)
        characters += len(sentence)
    if book:
        yield "\n".join(book)

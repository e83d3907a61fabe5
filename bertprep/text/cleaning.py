"""Writes documents as lines: one paragraph or sentence per line, with single spaces, and a blank line after each document.

Only white space changes. Control characters and Unicode normalization are left to BERT's tokenizer.
"""

from collections.abc import Callable, Iterable

from bertprep.sources.plain_text import has_word
from bertprep.text.sentences import split_document

BATCH_CHARACTERS = 500_000


def write_lines(documents: Iterable[str], splitter: str, language: str, write: Callable[[bytes], object]) -> int:
    """Write the lines of documents, in large batches; return the number of documents dropped for having no letter or digit.

    Half a surrogate pair, which JSON may contain, becomes a question mark.
    """
    empty = waiting = 0
    batch: list[str] = []
    for document in documents:
        text = document.encode(errors="replace").decode()
        if not has_word(text):
            empty += 1
            continue
        batch += split_document(text, splitter, language)
        batch.append("")
        waiting += len(text)
        if waiting >= BATCH_CHARACTERS:
            write("\n".join((*batch, "")).encode())
            batch, waiting = [], 0
    if batch:
        write("\n".join((*batch, "")).encode())
    return empty

"""Writes documents as lines: one paragraph or sentence per line, with single spaces, and a blank line after each document.

Beside white space, only what `Counts` counts is changed. Control characters and Unicode normalization are left to BERT's
tokenizer.
"""

from collections.abc import Callable, Iterable

from bertprep.sources.plain_text import has_word
from bertprep.text.sentences import split_documents
from bertprep.text.wrapping import Counts

BATCH_CHARACTERS = 500_000


def write_lines(
    documents: Iterable[str], splitter: str, language: str, counts: Counts, write: Callable[[bytes], object]
) -> int:
    """Write the lines of documents, in large batches; return the number of documents dropped for having no letter or digit.

    Half a surrogate pair, which JSON may contain, becomes a question mark. What else is changed is added to `counts`.
    """
    empty = waiting = 0
    batch: list[str] = []

    def write_batch() -> None:
        documents = split_documents(batch, splitter, language, counts)
        write("".join("\n".join((*lines, "", "")) for lines in documents).encode())
        batch.clear()

    for document in documents:
        text = document.encode(errors="replace").decode()
        if not has_word(text):
            empty += 1
            continue
        batch.append(text)
        waiting += len(text)
        if waiting >= BATCH_CHARACTERS:
            write_batch()
            waiting = 0
    if batch:
        write_batch()
    return empty

"""Normalizes documents before they are split: one paragraph per line, single spaces, no blank lines.

Characters are unchanged: BERT's tokenizer drops control characters and normalizes the rest. `clean_document` says what becomes
of a document; `Cleaner` does the same to many, as bytes.
"""

from collections.abc import Callable

import numpy as np

from bertprep.kernels.numbers import TEXT_SLACK
from bertprep.sources.plain_text import BATCH_BYTES, has_word
from bertprep.text.sentences import Splitter, split_lines


class Cleaner:
    """Cleans documents, many at a time; counts as `empty` those without a letter or digit, which are dropped.

    `write` copies the lines that it gets: each ends with a newline, and a blank one follows each document. With a `splitter`
    the lines are its sentences: it cleans before it splits.
    """

    def __init__(self, write: Callable[[bytes | memoryview], object], splitter: Splitter | None = None) -> None:
        self._write = write
        self._splitter = splitter or Splitter("lines", "")
        self._texts: list[bytes] = []
        self._size_bytes = 0
        self.empty = 0

    def add(self, text: str) -> None:
        """Add one document. Half a surrogate pair, possible in JSON, becomes a question mark."""
        encoded = text.encode(errors="replace")
        if not has_word(encoded):
            self.empty += 1
            return
        self._texts.append(encoded)
        self._size_bytes += len(encoded)
        if self._size_bytes >= BATCH_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write what is still held."""
        text = np.frombuffer(b"".join((*self._texts, bytes(TEXT_SLACK))), np.uint8)
        self._write(self._splitter.split(text, np.cumsum([len(each) for each in self._texts], dtype=np.int64)))
        self._texts.clear()
        self._size_bytes = 0


def clean_document(text: str) -> str:
    r"""Return the document without blank lines, or '' if it has no letter and no digit.

    >>> clean_document("One  line.\r\n\n \tAnother.\n")
    'One line.\nAnother.'
    >>> clean_document("* * *\n")
    ''
    """
    cleaned = "\n".join(split_lines(text))
    return cleaned if any(map(str.isalnum, cleaned)) else ""

"""Documents to lines: one paragraph or sentence a line, single spaces, a blank line after each document.

Characters are unchanged: BERT's tokenizer drops control characters and normalizes the rest.
"""

from collections.abc import Callable, Iterable

import numpy as np

from bertprep.kernels.numbers import TEXT_SLACK
from bertprep.sources.documents import in_batches
from bertprep.sources.plain_text import BATCH_BYTES, has_word
from bertprep.text.sentences import Splitter


def write_lines(documents: Iterable[str], splitter: Splitter, write: Callable[[bytes | memoryview], object]) -> int:
    """Write the lines of documents, which `write` copies; return how many have no letter or digit, and are dropped."""
    empty = 0
    for batch in in_batches(documents, BATCH_BYTES):
        kept = [text for text in batch if has_word(text)]
        empty += len(batch) - len(kept)
        text = np.frombuffer(b"".join((*kept, bytes(TEXT_SLACK))), np.uint8)
        write(splitter.split(text, np.cumsum([len(each) for each in kept], dtype=np.int64)))
    return empty

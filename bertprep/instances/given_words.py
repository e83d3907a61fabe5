"""Finds the tokens that begin a word, where the user supplies the words of a document.

The words come from a function of the user, such as a segmenter for Chinese, or from a column of the input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertprep.errors import BertprepError

GIVEN = "given"
"""The name of this rule in manifests."""
Segmenter = Callable[[str], Iterable[str]]
_SHOWN = 40


def find_starts(segment: Segmenter, text: str) -> NDArray[np.int64]:
    """Return where the words of a text start, in characters, counting the white space before a word as part of it.

    Many tokenizers put the white space there, too. Raises `BertprepError` unless the words, in this order, make up the text;
    they may leave out white space.

    >>> find_starts(str.split, "to be  or")
    array([0, 2, 5])
    """
    starts, end = [], 0
    words: Any = segment(text)
    if isinstance(words, str) or not isinstance(words, Iterable):
        raise BertprepError(f"words: expected a list of the words in a text, found {type(words).__name__} {words!r:.{_SHOWN}}")
    for word in words:
        if not isinstance(word, str) or not word:
            raise BertprepError(f"words: expected the words in a text, found {word!r:.{_SHOWN}} among them")
        start = text.find(word, end)
        if start < 0 or text[end:start].strip():
            raise BertprepError(
                f"words: found {word!r:.{_SHOWN}} where the text has {text[end : end + _SHOWN]!r}; expected its words in "
                "order, unchanged"
            )
        starts.append(end)
        end = start + len(word)
    if text[end:].strip():
        raise BertprepError(f"words: the end of the text is missing from them: {text[end : end + _SHOWN]!r}")
    return np.array(starts, np.int64)


def starts_of(words: object, text: str) -> NDArray[np.int64]:
    """Return where the words of a text start, as `find_starts` does, from the value of a column.

    The value is a list of words, a list of their starts in characters, or null for no words. Raises `BertprepError` as
    `find_starts` does, and for starts that are not ascending or are beyond the text.

    >>> starts_of([0, 3, 7], "to be  or"), starts_of(["to", "be", "or"], "to be  or")
    (array([0, 2, 5]), array([0, 2, 5]))
    """
    words = [] if words is None else words
    if not isinstance(words, list) or not all(type(word) is int for word in words) or (not words and text.strip()):
        return find_starts(lambda _: words, text)  # type: ignore[arg-type, return-value] # it refuses other types
    starts = np.array([min(max(word, -1), len(text)) for word in words], np.int64)  # no larger number fits
    if wrong := np.flatnonzero((starts < 0) | (starts >= len(text)) | (np.diff(starts, prepend=-1) <= 0)).tolist():
        raise BertprepError(
            f"words: word {wrong[0]:,} starts at {words[wrong[0]]:,}, expected ascending positions in a text of {len(text):,} "
            "characters"
        )
    for index, start in enumerate(words):
        while start > 0 and text[start - 1].isspace():
            start -= 1
        starts[index] = start
    return starts


def begin_words(starts: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which tokens contain the first character of one or more words: (tokens,).

    `starts` (words,) and `ends` (tokens,) are positions in characters: where words start, and where tokens end.

    >>> begin_words(np.array([0, 3, 7]), np.array([2, 5, 6, 9]))
    array([ True,  True, False,  True])
    """
    begins_word = np.zeros(len(ends), np.bool_)
    tokens = np.searchsorted(ends, starts, side="right")
    begins_word[tokens[tokens < len(ends)]] = True
    return begins_word

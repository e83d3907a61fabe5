"""Words of a document that the user gives, and which tokens begin them.

The user's own function finds them, such as a segmenter of Chinese, or a column of the input has them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertprep.errors import BertprepError

GIVEN = "given"
"""The rule of such words."""
Segmenter = Callable[[str], Iterable[str]]
_SHOWN = 40


def find_starts(segment: Segmenter, text: str) -> NDArray[np.int64]:
    """Return where the words of a text start, in characters, with the white space before them.

    That is theirs since many tokenizers put it there too. Raises `BertprepError` unless the words are the text, in its order;
    white space between them may be left out.

    >>> find_starts(str.split, "to be  or")
    array([0, 2, 5])
    """
    starts, end = [], 0
    words: Any = segment(text)
    if isinstance(words, str) or not isinstance(words, Iterable):
        raise BertprepError(f"words: expected a list of the words of a text, found {type(words).__name__} {words!r:.{_SHOWN}}")
    for word in words:
        if not isinstance(word, str) or not word:
            raise BertprepError(f"words: expected the words of a text, found {word!r:.{_SHOWN}} among them")
        start = text.find(word, end)
        if start < 0 or text[end:start].strip():
            raise BertprepError(
                f"words: found {word!r:.{_SHOWN}} where the text has {text[end : end + _SHOWN]!r}; expected its words in "
                "order, unchanged"
            )
        starts.append(end)
        end = start + len(word)
    if text[end:].strip():
        raise BertprepError(f"words: none was found for the end of the text, {text[end : end + _SHOWN]!r}")
    return np.array(starts, np.int64)


def starts_of(words: object, text: str) -> NDArray[np.int64]:
    """Return the same for the value of a column: a list of words, or of where they start in characters; null has none.

    Raises `BertprepError` as `find_starts` does, and for starts that are not those of the text in order.

    >>> starts_of([0, 3, 7], "to be  or"), starts_of(["to", "be", "or"], "to be  or")
    (array([0, 2, 5]), array([0, 2, 5]))
    """
    words = [] if words is None else words
    if not isinstance(words, list) or not all(type(word) is int for word in words) or (not words and text.strip()):
        return find_starts(lambda _: words, text)  # type: ignore[arg-type, return-value] # which refuses what is no list
    starts = np.array(words, np.int64)
    if wrong := np.flatnonzero((starts < 0) | (starts >= len(text)) | (np.diff(starts, prepend=-1) <= 0)).tolist():
        raise BertprepError(
            f"words: found {words[wrong[0]]:,} as the start of word {wrong[0]:,}, expected ascending characters of a text of "
            f"{len(text):,}"
        )
    for index, start in enumerate(words):
        while start > 0 and text[start - 1].isspace():
            start -= 1
        starts[index] = start
    return starts


def begin_words(starts: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which tokens have the first character of a word, of tokens that end at `ends`: (tokens,).

    A token that has those of several words begins a word.

    >>> begin_words(np.array([0, 3, 7]), np.array([2, 5, 6, 9]))
    array([ True,  True, False,  True])
    """
    begins_word = np.zeros(len(ends), np.bool_)
    tokens = np.searchsorted(ends, starts, side="right")
    begins_word[tokens[tokens < len(ends)]] = True
    return begins_word

"""Words of a document that the user's own function finds, such as a segmenter of Chinese, and which tokens begin them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertprep.errors import BertprepError

GIVEN = "given"
"""The rule of words that such a function has found."""
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

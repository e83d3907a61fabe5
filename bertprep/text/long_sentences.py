"""Divides sentences that are longer than a sentence should be, so that no part of them is cut off in a record of 128 tokens."""

import math
import re
from collections.abc import Iterator

from bertprep.text.scripts import HAN, HANGUL, KANA, OTHER_UNSPACED, THAI

MAX_CHARACTERS, MAX_WORDS = 540, 100
"""The length of the longest sentence. A character of some scripts counts for several: `_WEIGHTS`."""
_WEIGHTS = ((HAN, 4.8), (KANA, 2.7), (HANGUL, 2.3), (THAI + OTHER_UNSPACED, 1.8))
"""For how many Latin characters a character of another script counts, by the tokens that a vocabulary has for them."""
_WEIGHED = [(re.compile(f"[{characters}]"), weight - 1) for characters, weight in _WEIGHTS]
SHORT = int(MAX_CHARACTERS / _WEIGHTS[0][1])
SHORT_WITHOUT_HEAVY = 2 * MAX_WORDS
"""No sentence of so few characters is too long; the second is for text without characters of `HEAVY`."""
HEAVY = "\u0e00-\u1aff\u2e80-\uffff"  # a coarse set, which is fast; the last one stands for other planes
_HEAVY = re.compile(f"[{HEAVY}\U00020000-\U0003ffff]")
_THAI = re.compile(f"[{THAI}]")
_THAI_SPACE = re.compile(f"(?<=[{THAI}]) (?=[{THAI}])")
_THAI_CHARACTERS = 60
"""A sentence in Thai or Lao is divided at the first space after so many characters."""
_CLOSING = "[\"'\u2019\u201d\u00bb)\\]\u300d\u300f\uff09]*"
_INNER = (
    re.compile(f"[;\u061b\u0387]{_CLOSING} |\uff1b{_CLOSING}"),
    re.compile(f":{_CLOSING} |\uff1a{_CLOSING}| (?=[\u2013\u2014\\-]{{1,3}} )|(?:\u2014|\u2015|--)(?=[^ \u2014\u2015\\-])"),
    re.compile(f"[,\u060c\u055d\u1363]{_CLOSING} |[\uff0c\u3001]{_CLOSING}| (?=[(\\[])"),
    re.compile(" |\u0f0b"),
    re.compile(
        f"(?<=[{HAN}{KANA}{THAI}{OTHER_UNSPACED}])(?=[{HAN}\u3042-\u30fa\u0e01-\u0e2e\u0e40-\u0e44\u0e81-\u0eae\u0ec0-\u0ec4\u1000-\u1021\u1780-\u17a2])"
    ),
)
"""Where a sentence that is too long is divided: near the middle, at the first of these that it has there.

The last has no mark at all.
"""


def _has_heavy(text: str) -> bool:
    """Return whether a text may have characters that count for several."""
    return not text.isascii() and _HEAVY.search(text) is not None


def measure(sentence: str) -> float:
    """Return the length of a sentence in Latin characters that need as many tokens; more than `MAX_CHARACTERS` is too long.

    >>> round(measure("Who is it?"), 1), round(measure("您是谁？"), 1)
    (16.2, 16.8)
    """
    length: float = max(len(sentence), (sentence.count(" ") + 1) * MAX_CHARACTERS / MAX_WORDS)
    if not _has_heavy(sentence):
        return length
    return length + sum(len(pattern.findall(sentence)) * weight for pattern, weight in _WEIGHED)


def is_too_long(line: str) -> bool:
    """Return whether a line is longer than the sentences of `divide`."""
    return len(line) > SHORT and measure(line) > MAX_CHARACTERS


def divide(sentence: str) -> list[str]:
    """Return a sentence in parts, none of which is too long, divided at its best inner marks.

    A part is longer only if it is one word. Thai and Lao, where no mark ends a sentence, are divided at spaces.

    >>> [len(part) for part in divide("He came; " + "she saw him, and " * 60)]
    [344, 339, 343]
    """
    if _has_heavy(sentence) and _THAI.search(sentence):
        return [part for piece in _divide_thai(sentence) for part in _shorten(piece)]
    return [*_shorten(sentence)]


def _shorten(sentence: str) -> Iterator[str]:
    length = measure(sentence)
    if length <= MAX_CHARACTERS:
        yield sentence
        return
    most = max(1, int(len(sentence) * MAX_CHARACTERS / length))
    start = 0
    while (rest := len(sentence) - start) > most:
        middle = start + rest / math.ceil(rest / most)
        for marks in _INNER:
            if found := [match.end() for match in marks.finditer(sentence, start + most // 3, start + most)]:
                end = min(found, key=lambda each: abs(each - middle))
                break
        else:  # a word that is longer than a sentence may be
            end = sentence.find(" ", start + most) + 1 or len(sentence)
        yield from _shorten_part(sentence[start:end], sentence)
        start = end
    yield from _shorten_part(sentence[start:], sentence)


def _shorten_part(part: str, sentence: str) -> Iterator[str]:
    part = part.strip(" ")
    if is_too_long(part) and len(part) < len(sentence):  # characters that count for several are dense in it
        yield from _shorten(part)
    elif part:
        yield part


def _divide_thai(sentence: str) -> Iterator[str]:
    start = 0
    for match in _THAI_SPACE.finditer(sentence):
        if match.start() - start >= _THAI_CHARACTERS and len(sentence) - match.end() >= _THAI_CHARACTERS // 2:
            yield sentence[start : match.start()]
            start = match.end()
    yield sentence[start:]

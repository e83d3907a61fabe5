"""Guess the encoding of a text that is not UTF-8, to name it in an error: by its marks and by how often its bytes occur.

Nothing is converted by a guess, since a wrong one would damage a text in silence.
"""

from __future__ import annotations

import codecs
import re
import shlex
from collections import Counter
from collections.abc import Callable

_MARKS = (
    (codecs.BOM_UTF32_LE, "UTF-32"),
    (codecs.BOM_UTF32_BE, "UTF-32"),
    (codecs.BOM_UTF16_LE, "UTF-16"),
    (codecs.BOM_UTF16_BE, "UTF-16"),
)
_LAST_PLANE = 0x10  # of Unicode: the third byte of a character in UTF-32
_GREEK = frozenset("αβγδεζηθικλμνξοπρστυφχψωςάέήίόύώΑΒΓΔΕΗΘΙΚΛΜΝΟΠΡΣΤΥΦΧΩΆΈΌ«»–’")
_COMMON: tuple[tuple[str, str, float, Callable[[str], bool]], ...] = (
    ("SHIFT_JIS", "SHIFT_JIS (Japanese)", 0.3, lambda letter: "\u3000" <= letter <= "\u30ff"),
    ("EUC_JP", "EUC-JP (Japanese)", 0.3, lambda letter: "\u3000" <= letter <= "\u30ff"),
    ("EUC_KR", "EUC-KR (Korean)", 0.6, lambda letter: "\uac00" <= letter <= "\ud7a3"),
    ("BIG5", "BIG5 (Chinese)", 0.6, lambda letter: "\u4e00" <= letter <= "\u9fff"),
    ("GB18030", "GB18030 (Chinese, GBK)", 0.6, lambda letter: "\u4e00" <= letter <= "\u9fff"),
    ("KOI8_R", "KOI8-R (Russian)", 0.6, lambda letter: "\u0430" <= letter <= "\u044f"),
    ("CP1253", "CP1253 (Greek)", 0.9, lambda letter: letter in _GREEK),
    ("CP1251", "CP1251 (Cyrillic)", 0.6, lambda letter: "\u0430" <= letter <= "\u044f"),
)
"""Python's name of an encoding, iconv's with its language, and characters of which a text in it has at least this fraction.

The fraction is of the characters beyond ASCII. The first encoding that fits is taken: text in a later one is rarely that common
in an earlier one.
"""


def guess_encoding(data: bytes) -> str | None:
    """Return the probable encoding of a text, as iconv names it, and its language in brackets; None if its bytes do not tell.

    >>> guess_encoding("Ein Stück".encode("cp1252")), guess_encoding("Это русский текст".encode("koi8-r"))
    ('WINDOWS-1252 (Latin)', 'KOI8-R (Russian)')
    """
    for mark, name in _MARKS:
        if data.startswith(mark):
            return name
    if b"\0" in data:
        return guess_wide(data)
    high = len(re.findall(rb"[\x80-\xff]", data))
    alone = len(re.findall(rb"(?<![\x80-\xff])[\x80-\xff](?![\x80-\xff])", data))
    if 2 * alone > high:
        return "WINDOWS-1252 (Latin)"
    for encoding, name, least, is_common in _COMMON:
        if _share_of(data, encoding, is_common) >= least:
            return name
    return None


def advise(file: str, data: bytes) -> str:
    """Return what to do with a file that is not UTF-8, from some of its bytes: the command that converts it."""
    text = data.decode(errors="replace")
    valid = sum(letter > "\x7f" and letter != "\ufffd" for letter in text)
    if valid > 10 * text.count("\ufffd"):
        return f"nearly all of it is UTF-8, so single bytes are broken: iconv -c -t UTF-8 -f UTF-8 {_to(file)} leaves them out"
    guess = guess_encoding(data)
    if guess is None:
        return f"if it is text, convert it with the encoding that it has: iconv -f ENCODING -t UTF-8 {_to(file)}"
    return f"it looks like {guess}; convert the file: iconv -f {guess.partition(' ')[0]} -t UTF-8 {_to(file)}"


def _to(file: str) -> str:
    return f"{shlex.quote(file)} > {shlex.quote(file + '.utf8')}"


def guess_wide(data: bytes) -> str | None:
    """Return UTF-32 or UTF-16 with its order, if the zero bytes at the beginning of a file are those of its characters.

    In UTF-32 each character has one or two zero bytes at its end or start. In UTF-16 those of ASCII have one, and spaces and
    line ends are frequent. Bytes that could be UTF-8 are UTF-16 only if most characters are of two blocks, such as Cyrillic and
    ASCII.

    >>> [guess_wide("Да, это он. ".encode(name)) for name in ("utf-16-le", "utf-16-be", "utf-32-le", "utf-8")]
    ['UTF-16LE', 'UTF-16BE', 'UTF-32LE', None]
    """
    data = data[: len(data) // 4 * 4]
    if data.count(0) < max(2, len(data) / 100):  # one may be an accident
        return None
    if not any(data[3::4]) and max(data[2::4]) <= _LAST_PLANE:
        return "UTF-32LE"
    if not any(data[::4]) and max(data[1::4]) <= _LAST_PLANE:
        return "UTF-32BE"
    for name, first, last in (("UTF-16LE", data[1::2], data[::2]), ("UTF-16BE", data[::2], data[1::2])):
        if 0 in first and 0 not in last:
            blocks = Counter(first).most_common(2)
            if not is_utf8(data) or sum(count for _, count in blocks) > 0.75 * len(first):
                return name
    return None


def is_utf8(data: bytes) -> bool:
    """Return whether the first bytes of a file are UTF-8; their last character may be cut off."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(data)
    except UnicodeDecodeError:
        return False
    return True


def _share_of(data: bytes, encoding: str, is_common: Callable[[str], bool]) -> float:
    """Return the fraction of the characters beyond ASCII that are common; 0 if the text is not in this encoding."""
    letters = [letter for letter in data.decode(encoding, errors="replace") if letter > "\x7f"]
    if not letters or letters.count("\ufffd") > len(letters) / 50:
        return 0.0
    return sum(map(is_common, letters)) / len(letters)

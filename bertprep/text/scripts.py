"""Sets of characters, written as in a regular expression: marks that end, close and begin sentences, and scripts.

`table_of` makes tables of them, for the code points that `codes_of` returns.
"""

import contextlib
import re
import unicodedata
from typing import Any

import numpy as np
import numpy.typing as npt

SPACED_STOPS = ".!?\u2024\u2026\u203c\u203d\u2047-\u2049\u2e2e"
"""Marks that end a sentence only where a space follows: the ellipsis is no terminal by itself."""
OWN_STOPS = (
    "\u0589\u061d-\u061f\u06d4\u0700-\u0702\u07f9\u0837\u0839\u083d\u083e\u0964\u0965\u0f0d-\u0f12\u104a\u104b\u1362\u1367\u1368"
    "\u166e\u1735\u1736\u17d4\u17d5\u1803\u1809\u1944\u1945\u1aa8-\u1aab\u1b4e\u1b4f\u1b5a\u1b5b\u1b5e\u1b5f\u1b7d-\u1b7f\u1c3b\u1c3c"
    "\u1c7e\u1c7f\u2cf9-\u2cfb\u2e3c\u2e53\u2e54\u2e60\u2e61\u3002\ua4ff\ua60e\ua60f\ua6f3\ua6f7\ua876\ua877\ua8ce\ua8cf\ua92f\ua9c8"
    "\ua9c9\uaa5d-\uaa5f\uaaf0\uaaf1\uabeb\ufe12\ufe15\ufe16\ufe52\ufe56\ufe57\uff01\uff0e\uff1f\uff61"
)
"""The other marks of the property in the Basic Multilingual Plane, and the Tibetan shads."""
RARE_STOPS = (
    "\U00010a56\U00010a57"
    "\U00010f55-\U00010f59\U00010f86-\U00010f89\U00011047\U00011048\U000110be-\U000110c1\U00011141-\U00011143\U000111c5\U000111c6"
    "\U000111cd\U000111de\U000111df\U00011238\U00011239\U0001123b\U0001123c\U000112a9\U000113d4\U000113d5\U0001144b\U0001144c"
    "\U000115c2\U000115c3\U000115c9-\U000115d7\U00011641\U00011642\U0001173c-\U0001173e\U00011944\U00011946\U00011a42\U00011a43"
    "\U00011a9b\U00011a9c\U00011c41\U00011c42\U00011ef7\U00011ef8\U00011f43\U00011f44\U00016a6e\U00016a6f\U00016af5\U00016b37"
    "\U00016b38\U00016b44\U00016d6e\U00016d6f\U00016e98\U0001bc9f\U0001da88"
)
CLOSING = (
    "\"'\u2018\u2019\u201c\u201d\u00ab\u00bb\u2039\u203a)\\]}_*"
    "\u00b9\u00b2\u00b3\u2070\u2074-\u2079\u2020\u2021"
    "\u3009\u300b\u300d\u300f\u3011\u3015\u3017\u3019\u301b\u301e\u301f\uff02\uff07\uff09\uff3d\uff5d\uff60\uff63\ufe42\ufe44"
)
"""Marks that stay with the sentence before them where no space separates them. Some open a quotation elsewhere."""
OPENING = (
    "\"'\u2018\u2019\u201a\u201b\u201c\u201d\u201e\u201f\u00ab\u00bb\u2039\u203a(\\[{_*#\u00a1\u00bf\\-\u2010-\u2015\u2022\u00b7\u300a\u3008\u300c\u300e\u3010\u3014"
    "\uff08\uff3b\u200b-\u200f\u061c\ufeff"
)
"""Marks that may begin a sentence before its first letter."""
HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
KANA = "\u3040-\u30ff\u31f0-\u31ff\uff66-\uff9f"
HANGUL = "\uac00-\ud7a3"
THAI = "\u0e01-\u0e4e\u0e81-\u0ece"
"""Thai and Lao, which have no mark for the end of a sentence."""
VOWEL_SIGNS = "".join(chr(code) for code in range(0x0900, 0x0E00) if unicodedata.category(chr(code))[0] == "M")
"""What is written around a letter in the scripts of India and Sri Lanka, and belongs to it."""
OTHER_UNSPACED = "\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff\u1950-\u19ff\u1a20-\u1aaf\ua9e0-\ua9ff\uaa60-\uaadf"
"""The other scripts without spaces between words: Tibetan, Burmese, Khmer and those of the Tai languages."""
WIDE_MARKS = "\u2e80-\u303f\ufe30-\ufe6f\uff00-\uff65"
UNSPACED = HAN + KANA + THAI + OTHER_UNSPACED + WIDE_MARKS
"""Characters between which a line break is no space; Hangul is not among them."""

_ALL = "".join(map(chr, range(1 << 16)))


def codes_of(text: str, line_ends: int) -> npt.NDArray[Any]:
    """Return the code points of a text, and of some more line ends; those beyond the Basic Multilingual Plane are 0xFFFF."""
    text += "\n" * line_ends
    with contextlib.suppress(UnicodeEncodeError):
        return np.frombuffer(text.encode("latin-1"), np.uint8)
    encoded = text.encode("utf-16-le", "surrogatepass")
    if len(encoded) == 2 * len(text):
        return np.frombuffer(encoded, np.uint16)
    return np.minimum(np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32), 0xFFFF).astype(np.uint16)


def set_of(characters: str) -> frozenset[str]:
    """Return the characters of the Basic Multilingual Plane that are in a set."""
    return frozenset(re.findall(f"[{characters}]", _ALL))


def table_of(characters: str) -> npt.NDArray[np.bool_]:
    """Return which code points of the Basic Multilingual Plane are in a set."""
    table = np.zeros(len(_ALL), np.bool_)
    table[[*map(ord, re.findall(f"[{characters}]", _ALL))]] = True
    return table

"""Write bertprep/instances/unicode_table.npz: what Google's BasicTokenizer does with each code point.

    python tests/golden/make_unicode_table.py write

Run by hand, with the newest Python, to update the table to a newer Unicode; that changes output bytes for texts with
newly assigned characters, so it is a breaking change. Rules: tokenization.py of google-research/bert.
"""

import sys
import unicodedata
from pathlib import Path

import numpy as np

KEEP, DROP, SPACE, ALONE, BLANK = 0, 1, 2, 3, 4
CJK = [(0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F), (0x2B740, 0x2B81F), (0x2B820, 0x2CEAF),
       (0xF900, 0xFAFF), (0x2F800, 0x2FA1F)]  # fmt: skip


def is_punctuation(character: str) -> bool:
    point = ord(character)
    ascii_symbol = 33 <= point <= 47 or 58 <= point <= 64 or 91 <= point <= 96 or 123 <= point <= 126
    return ascii_symbol or unicodedata.category(character).startswith("P")


def rule(point: int, *, lower: bool) -> tuple[int, str]:
    """(kind, with BLANK where str.strip removes it; the characters that stand for this one)."""
    character = chr(point)
    category = unicodedata.category(character)
    blank = BLANK if character.isspace() else 0
    if character == "\r":  # the reader deletes every carriage return before the tokenizer sees the line
        return DROP | blank, ""
    if character in " \t\n" or category == "Zs":
        return SPACE | blank, ""
    if point in (0, 0xFFFD) or category in ("Cc", "Cf"):
        return DROP | blank, ""
    if character.isspace():  # what str.split cuts at and the cleaning has left: U+2028, U+2029
        return SPACE | blank, ""
    text = character
    if lower:
        text = "".join(c for c in unicodedata.normalize("NFD", character.lower()) if unicodedata.category(c) != "Mn")
    if not text:
        return DROP, ""
    is_cjk = any(first <= point <= last for first, last in CJK)
    if is_cjk or any(map(is_punctuation, text)):
        assert len(text) == 1, f"U+{point:04X} would be several tokens, which the kernel does not do"
        return ALONE, text
    return KEEP, text


def table(*, lower: bool) -> dict[str, np.ndarray]:
    kinds = np.zeros(sys.maxunicode + 1, np.uint8)
    points, sizes, counts, replacements = [], [], [], bytearray()
    for point in range(sys.maxunicode + 1):
        kinds[point], text = rule(point, lower=lower)
        if text and text != chr(point) and not 0xD800 <= point <= 0xDFFF:
            encoded = text.encode()
            points.append(point)
            sizes.append(len(encoded))
            counts.append(len(text))
            replacements += encoded
    starts = np.flatnonzero(np.r_[True, kinds[1:] != kinds[:-1]])
    name = "uncased" if lower else "cased"
    return {
        f"{name}_run_kinds": kinds[starts],
        f"{name}_run_lengths": np.diff(np.r_[starts, len(kinds)]).astype(np.int32),
        f"{name}_points": np.array(points, np.int32),
        f"{name}_sizes": np.array(sizes, np.uint8),
        f"{name}_counts": np.array(counts, np.uint8),
        f"{name}_replacements": np.frombuffer(bytes(replacements), np.uint8),
    }


if __name__ == "__main__":
    if sys.argv[1:] != ["write"]:
        sys.exit(__doc__)
    path = Path(__file__).resolve().parents[2] / "bertprep" / "instances" / "unicode_table.npz"
    version = np.array(unicodedata.unidata_version)
    np.savez_compressed(path, version=version, **table(lower=True), **table(lower=False))
    print(f"{path}: Unicode {version}, {path.stat().st_size:,} bytes")

"""Loads the table from which the tokenizer kernel knows how Google's `BasicTokenizer` treats each code point.

`tests/golden/make_unicode_table.py` made the table, so it does not depend on the running Python. It has 4.5 MB, and loads in
2 ms.
"""

from importlib.resources import as_file, files

import numpy as np
from numpy.typing import NDArray

from bertprep.kernels.numbers import CODE_POINT_KIND, REPLACEMENT_SHIFT

CODE_POINTS = 0x110000
"""The number of code points, from 0 to U+10FFFF."""


def load_unicode_table(*, lower: bool) -> tuple[NDArray[np.uint32], NDArray[np.uint8]]:
    """Return (entries, replacements): an entry for each code point, and the replacements that entries point to.

    bertprep.kernels.numbers describes their layout.
    """
    with as_file(files("bertprep.instances") / "unicode_table.npz") as path, np.load(path) as table:
        name = "uncased" if lower else "cased"
        entries = np.repeat(table[f"{name}_run_kinds"], table[f"{name}_run_lengths"]).astype(np.uint32)
        sizes, counts = table[f"{name}_sizes"], table[f"{name}_counts"]
        # Offset 0 in an entry means "no replacement", so the first replacement starts after two spare bytes.
        ends = 2 + np.cumsum(sizes.astype(np.int64) + 2)
        starts = ends - sizes - 2
        replacements = np.zeros((ends[-1] if len(ends) else 2) + 8, np.uint8)
        replacements[starts], replacements[starts + 1] = sizes, counts
        is_text = np.ones(len(replacements), bool)
        is_text[np.r_[0, 1, starts, starts + 1, len(replacements) - 8 : len(replacements)]] = False
        replacements[is_text] = table[f"{name}_replacements"]
        entries[table[f"{name}_points"]] |= starts.astype(np.uint32) << np.uint32(REPLACEMENT_SHIFT)
    return entries, replacements


def load_replacements(*, lower: bool) -> tuple[NDArray[np.uint8], NDArray[np.int64], list[str]]:
    """Return what the tokenizer does with each code point, for Python.

    That is (kinds, points, texts): the kind of each code point (1,114,112,), such as DROP, and the code points that are
    replaced, with the text that replaces each.
    """
    entries, replacements = load_unicode_table(lower=lower)
    points = np.flatnonzero(entries >> REPLACEMENT_SHIFT)
    memory = replacements.tobytes()
    texts = [read_replacement(entry, memory) for entry in entries[points].tolist()]
    return (entries & CODE_POINT_KIND).astype(np.uint8), points, texts


def read_replacement(entry: int, replacements: bytes) -> str:
    """Return the text that replaces a code point, given its entry; "" if there is none."""
    start = entry >> REPLACEMENT_SHIFT
    return replacements[start + 2 : start + 2 + replacements[start]].decode()


def encode_code_points(text: str) -> NDArray[np.uint32]:
    """Return the code points of a text: (characters,)."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")


def decode_code_points(points: NDArray[np.uint32]) -> str:
    return points.astype("<u4", copy=False).tobytes().decode("utf-32-le", "surrogatepass")

"""Loads the table from which the tokenizer kernel knows how Google's `BasicTokenizer` treats each code point.

`tests/golden/make_unicode_table.py` made the table, so it does not depend on the running Python. It has 4.5 MB, and loads in
2 ms.
"""

from importlib.resources import as_file, files

import numpy as np
from numpy.typing import NDArray

from bertprep.kernels.numbers import REPLACEMENT_SHIFT


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

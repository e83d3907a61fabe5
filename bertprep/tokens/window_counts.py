"""How many rows each window of a data set has: found once by making all of them, then kept in the user's cache.

An order needs all counts before its first row. To find those of a trillion tokens takes 10 CPU minutes, which otherwise each
process of each run would spend.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertprep.errors import BertprepError
from bertprep.files.kept_arrays import keep_array, kept_array
from bertprep.version import __version__

COUNTS = "counts"
"""The folder of the cache."""
MIN_WINDOWS = 8
"""Counts of fewer windows are not kept: these are few to make."""


def count_windows(windows: int, depends_on: dict[str, Any], count: Callable[[], NDArray[np.int64]]) -> NDArray[np.int64]:
    """Return the rows of each window (windows,), as an earlier run has kept them, or counted now."""
    if windows < MIN_WINDOWS:
        return count()
    key = json.dumps({"version": __version__, "windows": windows, **depends_on}, sort_keys=True)
    kept = kept_array(COUNTS, key)
    if kept is not None and len(kept) == windows and bool((kept >= 0).all()):
        return kept
    counts = count()
    keep_array(COUNTS, key, counts)
    return counts


def check_counts(where: str, windows: NDArray[np.int64], rows: Sequence[int], counts: NDArray[np.int64]) -> None:
    """Raise `BertprepError` if one of these windows has other rows than were counted, maybe by an earlier run."""
    for window, found, counted in zip(windows.tolist(), rows, counts[windows].tolist(), strict=True):
        if found != counted:
            raise BertprepError(
                f"{where}: window {window:,} has {found:,} rows, {counted:,} were counted before: its files were replaced by "
                f"others of the same size; remove the folder {COUNTS} of bertprep's cache ($BERTPREP_CACHE), and run this again"
            )

"""How many examples each shard gives: found once by making all of them, then kept in the user's cache.

An order needs all counts before its first example. To find them takes as long as an epoch, which otherwise each process of each
run would spend. Rows packed of documents are kept with their counts, in `kept_windows`.
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


def check_counts(
    where: str, windows: NDArray[np.int64], rows: Sequence[int], counts: NDArray[np.int64], *, kept_in: str = COUNTS
) -> None:
    """Raise `BertprepError` if one of these windows has other rows than were counted, maybe by an earlier run."""
    for window, found, counted in zip(windows.tolist(), rows, counts[windows].tolist(), strict=True):
        if found != counted:
            raise BertprepError(
                f"{where}: window {window:,} has {found:,} rows, {counted:,} were counted before: its files were replaced by "
                f"others of the same size; remove the folder {kept_in} of bertprep's cache ($BERTPREP_CACHE), and run it again"
            )

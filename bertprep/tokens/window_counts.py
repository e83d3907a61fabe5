"""Keep in the user's cache how many examples each shard yields.

An order needs all counts before its first example, and counting takes as long as an epoch, since all examples must be made.
Kept counts save each process of each run that time. The counts of packed rows are in `kept_windows`, with the rows.
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
"""The name of the folder in the cache."""
MIN_WINDOWS = 8
"""The counts of fewer windows are not kept, since counting these takes little time."""


def count_windows(windows: int, depends_on: dict[str, Any], count: Callable[[], NDArray[np.int64]]) -> NDArray[np.int64]:
    """Return the number of rows in each window, (windows,): the counts that an earlier run kept, or else those of `count`."""
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
    """Raise `BertprepError` if the number of rows in one of these windows differs from its count, which may be a kept one."""
    for window, found, counted in zip(windows.tolist(), rows, counts[windows].tolist(), strict=True):
        if found != counted:
            raise BertprepError(
                f"{where}: window {window:,} has {found:,} rows, and had {counted:,} when they were counted: its files were "
                f"replaced by others of the same size; remove the folder {kept_in} in bertprep's cache ($BERTPREP_CACHE), and "
                "run the command again"
            )

"""Keep the packed rows of all windows of a data set in the user's cache: packed once, then mapped into memory by every process.

    u32, per window        the arrays of `Window`: row_starts (rows + 1,), begins (sequences,), sizes (sequences,); for pairs
                           also is_swapped (rows,)
    u32 (windows, 4)       the table: each window's number of rows, of sequences and of u32 values, and their CRC-32C
    u32                    the CRC-32C of the table

An order needs the row counts of all windows before its first row, and reading a random row needs its window, which takes 2 to
3 ms to pack. The file has 8 bytes per sequence and 4 per row, some 1.4% of the token shards' size if documents have 400 tokens.
If the file would take more than a tenth of the free space, it has only the table, and windows are packed as they are needed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertprep import kernels
from bertprep.files.kept_arrays import forget_bytes, keep_bytes, kept_bytes, one_at_a_time
from bertprep.version import __version__

WINDOWS = "windows"
"""The name of the folder in the cache."""
_WIDTH = 4
_ROWS, _SEQUENCES, _NUMBERS, _CHECKSUM = range(_WIDTH)

Numbers = NDArray[np.uint32]


@dataclass(frozen=True)
class KeptNumbers:
    """A window's arrays in one, and its numbers of rows and sequences."""

    numbers: Numbers
    rows: int
    sequences: int

    def fit(self, tokens: int, longest_row: int, added: int) -> bool:
        """Return whether all sequences are within `tokens`, and no row has more than `longest_row` tokens.

        Each sequence has `added` special tokens. Compiled loops trust these numbers.
        """
        if self.rows + 1 + 2 * self.sequences > len(self.numbers):
            return False
        row_starts, begins, sizes = (each.astype(np.int64) for each in self.split()[:3])
        if row_starts[0] or row_starts[-1] != self.sequences or (np.diff(row_starts) < 0).any():
            return False
        if (sizes < 1).any() or (begins + sizes).max(initial=0) > tokens:
            return False
        ends = np.concatenate([[0], np.cumsum(sizes + added)])
        return bool(np.diff(ends[row_starts]).max(initial=0) <= longest_row)

    def split(self) -> tuple[Numbers, Numbers, Numbers, Numbers]:
        """Return the arrays (row_starts, begins, sizes, further numbers of the rows)."""
        begins = self.rows + 1
        sizes, more = begins + self.sequences, begins + 2 * self.sequences
        return self.numbers[:begins], self.numbers[begins:sizes], self.numbers[sizes:more], self.numbers[more:]


@dataclass
class KeptWindows:
    """The windows in a kept file: its table, and the concatenated `numbers` of all windows."""

    key: str
    table: Numbers
    numbers: Numbers
    _starts: NDArray[np.int64] = field(init=False)
    _is_checked: NDArray[np.bool_] = field(init=False)

    def __post_init__(self) -> None:
        self._starts = np.cumsum([0, *self.table[:, _NUMBERS].tolist()])
        self._is_checked = np.zeros(len(self.table), np.bool_)

    @property
    def rows(self) -> NDArray[np.int64]:
        """The number of rows in each window: (windows,)."""
        return self.table[:, _ROWS].astype(np.int64)

    def get(self, window: int, fit: Callable[[KeptNumbers], bool]) -> KeptNumbers | None:
        """Return a window, or None if it is not kept.

        If its checksum is wrong, or if it does not `fit` the shard, the file is removed, and made again later.
        """
        start, end = self._starts[window : window + 2].tolist()
        numbers = self.numbers[start:end]
        if not len(numbers):
            return None
        rows, sequences, _, checksum = self.table[window].tolist()
        kept = KeptNumbers(numbers, rows, sequences)
        if not self._is_checked[window]:
            if _checksum(numbers) != checksum or not fit(kept):
                forget_bytes(WINDOWS, self.key)
                return None
            self._is_checked[window] = True
        return kept


def key_of(windows: int, depends_on: dict[str, Any]) -> str:
    """Return the cache key of some windows: everything that their rows depend on, as JSON."""
    return json.dumps({"version": __version__, "windows": windows, **depends_on}, sort_keys=True)


def open_windows(key: str, windows: int, *, since: float) -> KeptWindows | None:
    """Return the windows that an earlier run kept, or None if there are none, or they are corrupt or not newer than `since`."""
    data = kept_bytes(WINDOWS, key, since=since)
    if data is None or data.size % 4 or data.size < 4 * (_WIDTH * windows + 1):
        return None
    numbers = data.view(np.uint32)
    table = numbers[-1 - _WIDTH * windows : -1].reshape(windows, _WIDTH)
    if _checksum(table) != numbers[-1] or len(numbers) != table[:, _NUMBERS].sum(dtype=np.int64) + table.size + 1:
        return None
    return KeptWindows(key, table, numbers[: -1 - table.size])


def keep_windows(key: str, windows: int, make: Callable[[], Iterable[KeptNumbers]], *, since: float) -> KeptWindows:
    """Make all windows in order, keep them and return them; if another process is doing so, wait and return those it kept."""
    with one_at_a_time(WINDOWS, key):
        if (kept := open_windows(key, windows, since=since)) is not None:
            return kept
        table = np.zeros((windows, _WIDTH), np.uint32)
        with keep_bytes(WINDOWS, key) as file:
            is_full = False
            for window, made in enumerate(make()):
                table[window] = made.rows, made.sequences, len(made.numbers), _checksum(made.numbers)
                is_full = is_full or not file.has_room(made.numbers.nbytes)
                if not is_full:
                    file.write(made.numbers)
            if is_full:
                file.clear()
                table[:, _NUMBERS] = 0
            file.write(table)
            file.write(np.array([_checksum(table)], np.uint32))
        kept = open_windows(key, windows, since=since)
        if kept is not None:
            return kept
    table[:, _NUMBERS] = 0
    return KeptWindows(key, table, np.empty(0, np.uint32))


def _checksum(numbers: Numbers) -> int:
    data = np.ascontiguousarray(numbers).view(np.uint8).ravel()
    return int(kernels.load().checksum(0, data, len(data)))

"""The packed rows of all windows of a data set, kept in the user's cache: made once, then mapped into memory by every process.

    u32 of each window     its row starts (rows + 1,), and the begins and sizes of its sequences (sequences,), as a `Window` has
                           them; of pairs also whether each is swapped (rows,)
    u32 (windows, 4)       of each window how many rows, sequences and numbers it has, and the CRC-32C of its numbers
    u32                    the CRC-32C of that table

An order needs the counts of all windows before its first row, and a row at random needs its window, which takes 2 to 3 ms to
pack. The file has 8 bytes a sequence and 4 a row, some 1.4% of the bytes of documents of 400 tokens. Where that is more than a
tenth of the free space, the numbers are left out, and windows are packed as they are needed.
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
"""The folder of the cache."""
_WIDTH = 4
_ROWS, _SEQUENCES, _NUMBERS, _CHECKSUM = range(_WIDTH)

Numbers = NDArray[np.uint32]


@dataclass(frozen=True)
class KeptNumbers:
    """The numbers of a window, and how many rows and sequences they are of."""

    numbers: Numbers
    rows: int
    sequences: int

    def split(self) -> tuple[Numbers, Numbers, Numbers, Numbers]:
        """Return the row starts, where the sequences begin, their sizes, and what else is known of the rows."""
        begins = self.rows + 1
        sizes, more = begins + self.sequences, begins + 2 * self.sequences
        return self.numbers[:begins], self.numbers[begins:sizes], self.numbers[sizes:more], self.numbers[more:]


@dataclass
class KeptWindows:
    """The windows of a file: `table` is its table, and `numbers` those of all windows, one after the other."""

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
        """How many rows each window has: (windows,)."""
        return self.table[:, _ROWS].astype(np.int64)

    def get(self, window: int) -> KeptNumbers | None:
        """Return a window; None if it is not kept. A file with a wrong checksum is removed, and made again by the next run."""
        start, end = self._starts[window : window + 2].tolist()
        numbers = self.numbers[start:end]
        if not len(numbers):
            return None
        rows, sequences, _, checksum = self.table[window].tolist()
        if not self._is_checked[window]:
            if _checksum(numbers) != checksum:
                forget_bytes(WINDOWS, self.key)
                return None
            self._is_checked[window] = True
        return KeptNumbers(numbers, rows, sequences)


def key_of(windows: int, depends_on: dict[str, Any]) -> str:
    """Return all that the rows of some windows depend on, as a text."""
    return json.dumps({"version": __version__, "windows": windows, **depends_on}, sort_keys=True)


def open_windows(key: str, windows: int, *, since: float) -> KeptWindows | None:
    """Return what an earlier run kept by this key; None if there is nothing, or it is corrupt or not younger than `since`."""
    data = kept_bytes(WINDOWS, key, since=since)
    if data is None or data.size % 4 or data.size < 4 * (_WIDTH * windows + 1):
        return None
    numbers = data.view(np.uint32)
    table = numbers[-1 - _WIDTH * windows : -1].reshape(windows, _WIDTH)
    if _checksum(table) != numbers[-1] or len(numbers) != table[:, _NUMBERS].sum(dtype=np.int64) + table.size + 1:
        return None
    return KeptWindows(key, table, numbers[: -1 - table.size])


def keep_windows(key: str, windows: int, make: Callable[[], Iterable[KeptNumbers]], *, since: float) -> KeptWindows:
    """Make all windows, in their order, and keep them; while another process does so, wait for it and take what it kept."""
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

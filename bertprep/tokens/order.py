"""Shuffle the rows of a training run: pure functions from a position to the row there. Nothing is shuffled in memory.

Here and wherever rows are read, a row has one of these names:

    position   the number of a row in a run, counted over all epochs without gaps, as batches, streams, checkpoints and logs do
    index      the number of a record among all records of its files: `records[index]`, `bertprep.RecordDataset(...)[index]`
    RowIds     for rows made from tokens: the epoch, the window, and the row in the window. A window is packed or generated as a
               whole: some 4 million tokens of documents, or a shard of sentences

    RecordOrder   position -> index, permutes all records of an epoch together
    FileOrder     position -> index, permutes the records of some files at a time
    WindowOrder   position -> RowIds, permutes the rows of some windows at a time
    LengthOrder   position -> RowIds, with rows of similar length next to each other

`permute` is a Feistel network on the two digits of a position, in bases whose product slightly exceeds the number of records;
a result outside goes through it again ("cycle walking"). A position takes 25 to 40 ns.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bertprep.errors import UsageError

_MULTIPLIERS = np.array([0xBF58476D1CE4E5B9, 0x94D049BB133111EB], np.uint64)  # splitmix64's constants, David Stafford's mix 13
_HALF = np.uint64(32)
_ROUNDS = 8
_FEW_RECORDS, _ROUNDS_FOR_FEW = 4096, 32  # small digits mix slowly: with 8 rounds some orders of 5 records are more frequent
_EPOCHS_HELD = 4
MAX_EPOCHS = 1 << 31

Digits = NDArray[np.uint64]


@dataclass(frozen=True)
class RowIds:
    """Rows made from tokens: row i is row rows[i] of window windows[i] in epoch epochs[i]; all arrays have one shape."""

    epochs: NDArray[np.int64]
    windows: NDArray[np.int64]
    rows: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Any) -> RowIds:
        return RowIds(self.epochs[index], self.windows[index], self.rows[index])


@dataclass(frozen=True)
class RecordOrder:
    """Permutes all `records` of an epoch together; `position` has record permute(position % records)."""

    records: int
    seed: int

    def indices(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the indices of the records at `positions`, an array of any shape."""
        epochs, offsets = np.divmod(positions, self.records)
        indices = np.empty_like(offsets)
        for epoch in np.unique(epochs).tolist():
            is_own = epochs == epoch
            indices[is_own] = permute(offsets[is_own], self.records, seed=self.seed, epoch=epoch)
        return indices


class _Epoch(NamedTuple):
    """The windows in the order of an epoch, and the offset in the epoch at which each window, and each group, ends."""

    windows: NDArray[np.int64]
    window_ends: NDArray[np.int64]
    group_ends: NDArray[np.int64]


class WindowOrder:
    """Permutes the windows of an epoch, and then the rows of each group of `group` windows together.

    Group g of an epoch has the windows permute(g * group), permute(g * group + 1) ..., and its rows are permuted by the key
    (seed, epoch, g). A reader therefore needs only one group of windows in memory.
    """

    def __init__(self, counts: NDArray[np.int64], *, seed: int, group: int) -> None:
        """Order windows with `counts` rows each, (windows,), the same in all epochs."""
        self.counts, self.seed, self.group = counts, seed, group
        self.rows_in_epoch = int(counts.sum())
        self._epoch = lru_cache(_EPOCHS_HELD)(self._order_windows)

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(WindowOrder, seed=self.seed, group=self.group), (self.counts,)

    def locate(self, positions: NDArray[np.int64]) -> RowIds:
        """Return the ids of the rows at positions, an array of any shape; raises `ValueError` from epoch `MAX_EPOCHS` on."""
        epochs, offsets = np.divmod(positions, self.rows_in_epoch)
        windows, rows = np.empty_like(positions), np.empty_like(positions)
        for epoch in np.unique(epochs).tolist():
            of_epoch = self._epoch(check_epoch(epoch, "positions"))
            is_own = epochs == epoch
            own = offsets[is_own]
            groups = np.searchsorted(of_epoch.group_ends, own, side="right")
            starts = np.where(groups > 0, of_epoch.group_ends[groups - 1], 0)
            sizes = of_epoch.group_ends[groups] - starts
            permuted = starts + self._permute(own - starts, sizes, epoch, groups)
            which = np.searchsorted(of_epoch.window_ends, permuted, side="right")
            windows[is_own] = of_epoch.windows[which]
            rows[is_own] = permuted - of_epoch.window_ends[which] + self.counts[of_epoch.windows[which]]
        return RowIds(epochs, windows, rows)

    def _permute(
        self, offsets: NDArray[np.int64], sizes: NDArray[np.int64], epoch: int, groups: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Return, for each offset in its group, the row of the group that comes there; `sizes` are the groups' rows."""
        return permute_in_groups(offsets, sizes, groups, seed=self.seed, epoch=epoch)

    def group_after(self, epoch: int, window: int) -> tuple[int, NDArray[np.int64]]:
        """Return the next group after that of a window: its epoch and its windows."""
        of_epoch = self._epoch(epoch)
        group = int(np.flatnonzero(of_epoch.windows == window)[0]) // self.group + 1
        if group == len(of_epoch.group_ends):
            epoch, group = epoch + 1, 0
        return epoch, self._windows_of(epoch, group)

    def _windows_of(self, epoch: int, group: int) -> NDArray[np.int64]:
        return self._epoch(epoch).windows[group * self.group : (group + 1) * self.group]

    def _order_windows(self, epoch: int) -> _Epoch:
        windows = permute(np.arange(len(self.counts), dtype=np.int64), len(self.counts), seed=self.seed, epoch=epoch)
        window_ends = np.cumsum(self.counts[windows])
        lasts = np.minimum(np.arange(self.group, len(windows) + self.group, self.group), len(windows)) - 1
        return _Epoch(windows, window_ends, window_ends[lasts])


class LengthOrder(WindowOrder):
    """Like `WindowOrder`, but sorts each group's rows by length and splits them into runs, which come in random order.

    Rows of the same length come in random order too. A run has `RUN` rows, or in a small group a smaller power of two, so that
    the group has at least `MIN_RUNS` runs; batches of the usual sizes then have rows of one run. Rows drawn at random, which do
    not fill a run, come last.
    """

    RUN, MIN_RUNS = 1024, 16

    def __init__(
        self, counts: NDArray[np.int64], *, seed: int, group: int, lengths: Callable[[int], NDArray[np.int32]]
    ) -> None:
        """Order windows as `WindowOrder` does; `lengths` returns the number of tokens in each row of a window."""
        super().__init__(counts, seed=seed, group=group)
        self._lengths = lengths
        self._rows_of = lru_cache(_EPOCHS_HELD)(self._sort_rows)

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(LengthOrder, seed=self.seed, group=self.group, lengths=self._lengths), (self.counts,)

    def _permute(
        self,
        offsets: NDArray[np.int64],
        sizes: NDArray[np.int64],  # noqa: ARG002
        epoch: int,
        groups: NDArray[np.int64],
    ) -> NDArray[np.int64]:
        indices = np.empty_like(offsets)
        for group in np.unique(groups).tolist():
            is_own = groups == group
            indices[is_own] = self._rows_of(epoch, group)[offsets[is_own]]
        return indices

    @classmethod
    def rows_in_run(cls, size: int) -> int:
        """Return the number of rows in a run of a group of `size` rows."""
        run = cls.RUN
        while run > max(1, size // cls.MIN_RUNS):
            run //= 2
        return run

    def _sort_rows(self, epoch: int, group: int) -> NDArray[np.int64]:
        """Return the indices of a group's rows in the order of an epoch."""
        lengths = np.concatenate([self._lengths(window) for window in self._windows_of(epoch, group).tolist()])
        size = len(lengths)
        shuffled = permute(np.arange(size), size, seed=self.seed, epoch=epoch, group=group)
        run = self.rows_in_run(size)
        runs, left = divmod(size, run)
        by_length = [_sort_by(lengths, shuffled[:left]), *np.split(_sort_by(lengths, shuffled[left:]), runs)]
        order = permute(np.arange(runs), runs, seed=self.seed, epoch=epoch, group=-1 - group) + 1
        return np.concatenate([*(by_length[each] for each in order.tolist()), by_length[0]])


def _sort_by(lengths: NDArray[np.int32], rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return rows in ascending order of length; rows of the same length keep their order."""
    return rows[np.argsort(lengths[rows], kind="stable")]


class FileOrder:
    """Orders the records of files by a `WindowOrder` whose windows are the files."""

    def __init__(self, records: NDArray[np.int64], *, seed: int, group: int) -> None:
        """Order files with `records` records each: (files,)."""
        self._starts = np.cumsum(records) - records
        self._order = WindowOrder(records, seed=seed, group=group)

    def indices(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the indices of the records at `positions`, an array of any shape."""
        found = self._order.locate(positions)
        indices: NDArray[np.int64] = self._starts[found.windows] + found.rows
        return indices


def checked_positions(given: ArrayLike, what: str) -> NDArray[np.int64]:
    """Return positions as an int64 array (n,); raise `TypeError` or `IndexError` unless they are whole numbers from 0 on.

    >>> checked_positions([3, 0], "rows")
    array([3, 0])
    """
    positions = np.asarray(given)
    if positions.ndim != 1:
        raise TypeError(f"{what}: positions have the shape {positions.shape}, expected one dimension")
    if positions.size and positions.dtype.kind not in "iu":
        raise TypeError(f"{what}: positions are {positions.dtype}, expected whole numbers")
    is_wrong = (positions < 0) | (positions > np.iinfo(np.int64).max)
    if is_wrong.any():
        raise IndexError(f"{what}: position {positions[is_wrong][0]:,}, expected 0 to 2**63 - 1")
    return positions.astype(np.int64, copy=False)


def check_epoch(epoch: int, data: object) -> int:
    """Return an epoch of `data` as an int; raise `ValueError` unless it is a whole number from 0 to `MAX_EPOCHS` - 1."""
    if not isinstance(epoch, int | np.integer) or not 0 <= epoch < MAX_EPOCHS:
        raise ValueError(f"{data}: epoch {epoch!r}; expected a whole number from 0 to {MAX_EPOCHS - 1:,}")
    return int(epoch)


def check_seed(seed: int) -> int:
    """Return a seed as an int; raise `UsageError` unless it is a whole number from 0 on."""
    if not isinstance(seed, Integral):
        raise UsageError(f"seed {seed!r:.80}: expected a whole number")
    if seed < 0:
        raise UsageError(f"seed {seed}: must be at least 0")
    return int(seed)


def permute(positions: NDArray[np.int64], size: int, *, seed: int, epoch: int, group: int | None = None) -> NDArray[np.int64]:
    """Permute the numbers below `size` by the key (seed, epoch[, group]), and return the number at each position.

    Raises `IndexError` for a position of `size` or more, whose cycle might never reach a number below `size`.

    >>> permute(np.arange(10), 10, seed=1, epoch=0)
    array([1, 5, 7, 3, 8, 0, 9, 4, 2, 6])
    """
    if positions.size and not 0 <= positions.min() <= positions.max() < size:
        raise IndexError(f"positions from {positions.min():,} to {positions.max():,}; expected 0 to {size - 1:,}")
    high_base, low_base = _bases(size)
    walked = _walk_until_below(
        positions.astype(np.uint64), np.uint64(size), high_base, low_base, _keys(size, seed, epoch, group)
    )
    return walked.astype(np.int64)


def permute_in_groups(
    positions: NDArray[np.int64], sizes: NDArray[np.int64], groups: NDArray[np.int64], *, seed: int, epoch: int
) -> NDArray[np.int64]:
    """Return permute(positions[i], sizes[i], seed=seed, epoch=epoch, group=groups[i]) for each i, computed together.

    >>> permute_in_groups(np.array([0, 0, 1]), np.array([10, 5, 10]), np.array([3, 4, 3]), seed=1, epoch=0)
    array([1, 3, 0])
    """
    found, firsts, which = np.unique(groups, return_index=True, return_inverse=True)
    size_of = sizes[firsts]
    if len(found) == 1:
        return permute(positions, int(size_of[0]), seed=seed, epoch=epoch, group=int(found[0]))
    permuted = np.empty_like(positions)
    for is_few in (False, True):  # small groups need more rounds
        chosen = np.flatnonzero((size_of <= _FEW_RECORDS) == is_few)
        if not chosen.size:
            continue
        is_own = np.isin(which, chosen)
        of_chosen = np.searchsorted(chosen, which[is_own])
        bases = np.array([_bases(size) for size in size_of[chosen].tolist()])[of_chosen]
        pairs = zip(size_of[chosen].tolist(), found[chosen].tolist(), strict=True)
        keys = np.array([_keys(size, seed, epoch, group) for size, group in pairs])[of_chosen]
        limits, high_bases, low_bases = sizes[is_own].astype(np.uint64), bases[:, 0], bases[:, 1]
        permuted[is_own] = _walk_until_below(positions[is_own].astype(np.uint64), limits, high_bases, low_bases, keys.T)
    return permuted


def _keys(size: int, seed: int, epoch: int, group: int | None) -> Digits:
    """Return a key for each round: (rounds,)."""
    rounds = _ROUNDS if size > _FEW_RECORDS else _ROUNDS_FOR_FEW
    key = f"{seed} {epoch}" if group is None else f"{seed} {epoch} {group}"
    return np.frombuffer(hashlib.shake_256(key.encode()).digest(8 * rounds), "<u8").astype(np.uint64)


def _bases(size: int) -> tuple[np.uint64, np.uint64]:
    """Return the bases of the two digits of a number below `size`, the high digit's first."""
    high_base = math.isqrt(max(size - 1, 0)) + 1
    return np.uint64(high_base), np.uint64(-(-size // high_base))


def _walk_until_below(
    positions: Digits, sizes: Digits | np.uint64, high_bases: Digits | np.uint64, low_bases: Digits | np.uint64, keys: Digits
) -> Digits:
    """Walk from each position until it is below its size; sizes, bases and keys are single values or one per position."""
    found = _walk(positions, high_bases, low_bases, keys)
    outside = np.flatnonzero(found >= sizes)
    while outside.size:
        if isinstance(sizes, np.ndarray):
            of_outside = high_bases[outside], low_bases[outside], keys[:, outside]  # type: ignore[index]
            sizes_outside: Digits | np.uint64 = sizes[outside]
        else:
            of_outside, sizes_outside = (high_bases, low_bases, keys), sizes
        found[outside] = _walk(found[outside], *of_outside)
        outside = outside[found[outside] >= sizes_outside]
    return found


def _walk(positions: Digits, high_base: Digits | np.uint64, low_base: Digits | np.uint64, keys: Digits) -> Digits:
    high = positions // low_base
    low = positions - high * low_base
    for key in range(0, len(keys), 2):
        _add_hash(high, low, high_base, keys[key])
        _add_hash(low, high, low_base, keys[key + 1])
    high *= low_base
    high += low
    return high


def _add_hash(digit: Digits, other: Digits, base: Digits | np.uint64, key: Digits | np.uint64) -> None:
    mixed = other ^ key
    mixed *= _MULTIPLIERS[0]
    mixed ^= mixed >> _HALF
    mixed *= _MULTIPLIERS[1]
    mixed >>= _HALF
    mixed *= base
    mixed >>= _HALF  # below base
    digit += mixed
    np.minimum(digit, digit - base, out=digit)  # digit % base: below base, the difference wraps around to a huge number

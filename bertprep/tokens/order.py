"""The order of rows in an epoch, as pure functions of the position, without an array or a buffer.

    RecordOrder    position -> permute(position) of all records
    ShardOrder     position -> a group of shards, which come in permuted order -> permute(position in the group) of its rows

Positions are counted over all epochs without gaps. `permute` is a Feistel network on a position's two digits, in bases whose
product slightly exceeds the number of records; results outside go through it again ("cycle walking"). Any position costs 25 to
40 ns.
"""

from __future__ import annotations

import hashlib
import math
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

_MULTIPLIERS = np.array([0xBF58476D1CE4E5B9, 0x94D049BB133111EB], np.uint64)  # splitmix64's constants, David Stafford's mix 13
_HALF = np.uint64(32)
_ROUNDS = 8
_FEW_RECORDS, _ROUNDS_FOR_FEW = 4096, 32  # few values of a digit mix slowly: 8 rounds favour some orders of 5 records
_POSITIONS_AT_ONCE = 4096
_EPOCHS_HELD = 4
MAX_EPOCHS = 1 << 31

Numbers = NDArray[np.uint64]


@dataclass(frozen=True)
class RowIds:
    """Rows by where they are: row rows[i] of shard shards[i] in epoch epochs[i], for arrays of one shape."""

    epochs: NDArray[np.int64]
    shards: NDArray[np.int64]
    rows: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Any) -> RowIds:
        return RowIds(self.epochs[index], self.shards[index], self.rows[index])

    def __iter__(self) -> Iterator[RowIds]:
        return (self[index] for index in range(len(self)))


Located = TypeVar("Located", RowIds, NDArray[np.int64])


class Order(Protocol):
    """Which record comes at a position, counted over all epochs without gaps."""

    def numbers(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the ids of the records at `positions`, an array of any shape."""


def locate_batches(
    locate: Callable[[NDArray[np.int64]], Located],
    size: int,
    *,
    first: int = 0,
    stop: int | None = None,
    step: int = 1,
    rows: range | None = None,
) -> Iterator[Located]:
    """Return what `locate` gives for the positions of batches first, first + step ... below `stop`, or endlessly.

    Batch n has the positions from n * size on, over all epochs; of each its `rows`, or all. Many are located at once.
    """
    if size < 1 or first < 0:
        raise ValueError(f"batches of {size:,} from step {first:,}; expected at least 1, and 0")
    most = sys.maxsize // size  # of batches whose positions are int64
    if first >= most:
        raise ValueError(f"batches of {size:,} from step {first:,}; expected a step below {most:,}")
    own = np.arange(size)[rows.start : rows.stop] if rows else np.arange(size)
    batches = range(first, most if stop is None else min(stop, most), step)
    at_once = max(1, _POSITIONS_AT_ONCE // size)
    blocks = (np.array(batches[block : block + at_once]) for block in range(0, len(batches), at_once))
    return (batch for block in blocks for batch in locate(block[:, None] * size + own))


def whole_numbers(given: ArrayLike, what: str) -> NDArray[np.int64]:
    """Return an array of whole numbers from 0 on as int64; raises `TypeError` or `IndexError` for anything else.

    >>> whole_numbers([3, 0], "rows")
    array([3, 0])
    """
    numbers = np.asarray(given)
    if numbers.dtype.kind not in "iu" and numbers.size:
        raise TypeError(f"{what} are named by whole numbers; found {numbers.dtype}")
    wrong = (numbers < 0) | (numbers > np.iinfo(np.int64).max)
    if wrong.any():
        raise IndexError(f"{what} are counted from 0 on; found {numbers[wrong][0]:,}")
    return numbers.astype(np.int64, copy=False)


@dataclass(frozen=True)
class RecordOrder:
    """All `records` of an epoch permuted together: record permute(position % records) in epoch position // records."""

    records: int
    seed: int

    def numbers(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        positions = whole_numbers(positions, "positions")
        if not positions.size:
            return np.empty_like(positions)
        epochs, offsets = np.divmod(positions, self.records)
        numbers = np.empty_like(offsets)
        for epoch in range(int(epochs.min()), int(epochs.max()) + 1):
            of_epoch = epochs == epoch
            numbers[of_epoch] = permute(offsets[of_epoch], self.records, seed=self.seed, epoch=epoch)
        return numbers


class ShardOrder:
    """Shards in permuted order, `group` at a time, and the rows of each group permuted together.

    Group g of an epoch has the shards permute(g * group), permute(g * group + 1) ...; its rows are permuted by the key
    (seed, epoch, g). A reader needs one group in memory. A shard has as many rows in every epoch, which `counts` returns for an
    array of shards; of epoch 0 it is asked for those groups alone that were needed so far.
    """

    def __init__(self, shards: int, counts: Callable[[NDArray[np.int64]], NDArray[np.int64]], *, seed: int, group: int) -> None:
        self.shards, self.counts, self.seed, self.group = shards, counts, seed, group
        self.groups = -(-shards // group)  # of an epoch
        self._first_ends = np.zeros(0, np.int64)  # the positions after the groups of epoch 0, as far as they are known
        self._ends_of_epoch = lru_cache(_EPOCHS_HELD)(self._find_ends)
        self._shards_in_order = lru_cache(_EPOCHS_HELD)(self._permute_shards)
        self._lock = threading.Lock()

    @property
    def rows_in_epoch(self) -> int:
        return int(self._ends_of_epoch(0)[-1])

    def shards_of(self, epoch: int, group: int) -> NDArray[np.int64]:
        """Return the shards of a group of an epoch, in their order."""
        return self._shards_in_order(epoch)[group * self.group : (group + 1) * self.group]

    def group_after(self, epoch: int, shard: int) -> tuple[int, NDArray[np.int64]]:
        """Return epoch and shards of the group that comes after that of a shard."""
        group = int(np.flatnonzero(self._shards_in_order(epoch) == shard)[0]) // self.group + 1
        return (epoch, self.shards_of(epoch, group)) if group < self.groups else (epoch + 1, self.shards_of(epoch + 1, 0))

    def locate(self, positions: NDArray[np.int64]) -> RowIds:
        """Return the rows at positions counted over all epochs, an array of any shape."""
        positions = whole_numbers(positions, "positions")
        flat = positions.ravel()
        if not flat.size:
            return RowIds(positions, positions, positions)
        if int(flat.max()) < self._know_first_epoch(int(flat.max())):
            epochs, offsets = np.zeros_like(flat), flat
        else:
            epochs, offsets = np.divmod(flat, self.rows_in_epoch)
            check_epoch(int(epochs.max()), "positions")
        found = RowIds(epochs, np.empty_like(flat), np.empty_like(flat))
        for epoch in np.unique(epochs).tolist():
            is_own = epochs == epoch
            of_epoch = self.locate_in_epoch(epoch, offsets[is_own])
            found.shards[is_own], found.rows[is_own] = of_epoch.shards, of_epoch.rows
        return RowIds(*(each.reshape(positions.shape) for each in (found.epochs, found.shards, found.rows)))

    def locate_in_epoch(self, epoch: int, offsets: NDArray[np.int64]) -> RowIds:
        """Return the rows at positions of one epoch, counted from its beginning: (n,)."""
        found = RowIds(np.full_like(offsets, epoch), np.empty_like(offsets), np.empty_like(offsets))
        if not offsets.size:
            return found
        last = int(offsets.max())
        ends = self._first_ends if epoch == 0 and last < self._know_first_epoch(last) else self._ends_of_epoch(epoch)
        groups = np.searchsorted(ends, offsets, side="right")
        for group in np.unique(groups).tolist():
            is_own, shards = groups == group, self.shards_of(epoch, group)
            counts = self.counts(shards)
            stops = np.cumsum(counts)
            within = offsets[is_own] - (ends[group] - stops[-1])
            permuted = permute(within, int(stops[-1]), seed=self.seed, epoch=epoch, group=group)
            which = np.searchsorted(stops, permuted, side="right")
            found.shards[is_own], found.rows[is_own] = shards[which], permuted - (stops - counts)[which]
        return found

    def _know_first_epoch(self, position: int) -> int:
        """Find the ends of the groups of epoch 0 up to that of a position, or all; return the last one that is known."""
        with self._lock:
            while (known := len(self._first_ends)) < self.groups and (not known or position >= self._first_ends[-1]):
                end = int(self._first_ends[-1]) if known else 0
                missing = max(1, (position - end) * known // end) if end else 1  # by the mean size of a group so far
                groups = [self.shards_of(0, group) for group in range(known, min(known + missing, self.groups))]
                self._first_ends = np.concatenate([self._first_ends, self._ends_after(groups)])
            return int(self._first_ends[-1])

    def _ends_after(self, groups: list[NDArray[np.int64]]) -> NDArray[np.int64]:
        """Return the ends of groups of epoch 0 that come after those that are known."""
        counts = self.counts(np.concatenate(groups))
        starts = np.cumsum([0, *map(len, groups)])[:-1]
        before = int(self._first_ends[-1]) if len(self._first_ends) else 0
        return before + np.cumsum(np.add.reduceat(counts, starts))

    def _find_ends(self, epoch: int) -> NDArray[np.int64]:
        """Return the positions after the groups of an epoch, counted from its beginning."""
        counts = self.counts(self._shards_in_order(epoch))
        return np.cumsum(np.add.reduceat(counts, np.arange(0, self.shards, self.group)))

    def _permute_shards(self, epoch: int) -> NDArray[np.int64]:
        return permute(np.arange(self.shards, dtype=np.int64), self.shards, seed=self.seed, epoch=epoch)


class FileOrder:
    """The records of files in the order of a `ShardOrder`; ids count the records of one file after another."""

    def __init__(self, records: NDArray[np.int64], *, seed: int, group: int) -> None:
        """`records` are the numbers of records of the files."""
        self._starts = np.cumsum(records) - records
        self._order = ShardOrder(len(records), lambda files: records[files], seed=seed, group=group)

    def numbers(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the ids of the records at `positions`, an array of any shape."""
        found = self._order.locate(positions)
        ids: NDArray[np.int64] = self._starts[found.shards] + found.rows
        return ids


def check_epoch(epoch: int, data: object) -> int:
    """Return an epoch of `data`; raise `ValueError` unless it is a whole number below `MAX_EPOCHS`."""
    if not isinstance(epoch, int | np.integer) or not 0 <= epoch < MAX_EPOCHS:
        raise ValueError(f"{data}: epoch {epoch!r}; expected a whole number from 0 to {MAX_EPOCHS - 1:,}")
    return int(epoch)


def permute(positions: NDArray[np.int64], size: int, *, seed: int, epoch: int, group: int | None = None) -> NDArray[np.int64]:
    """Return the record ids at `positions` of an epoch, all below `size`; one-to-one, by the key (seed, epoch[, group]).

    Raises `IndexError` for a position that is not below `size`: it might never lead to one that is.

    >>> permute(np.arange(10), 10, seed=1, epoch=0)
    array([1, 5, 7, 3, 8, 0, 9, 4, 2, 6])
    """
    if positions.size and not 0 <= positions.min() <= positions.max() < size:
        raise IndexError(f"positions from {positions.min():,} to {positions.max():,}; expected 0 to {size - 1:,}")
    rounds = _ROUNDS if size > _FEW_RECORDS else _ROUNDS_FOR_FEW
    key = f"{seed} {epoch}" if group is None else f"{seed} {epoch} {group}"
    digest = hashlib.shake_256(key.encode()).digest(8 * rounds)
    keys = np.frombuffer(digest, "<u8").astype(np.uint64)  # one for each round
    high_base = math.isqrt(max(size - 1, 0)) + 1
    low_base = -(-size // high_base)
    numbers = _walk(positions.astype(np.uint64), np.uint64(high_base), np.uint64(low_base), keys)
    while (outside := np.flatnonzero(numbers >= size)).size:
        numbers[outside] = _walk(numbers[outside], np.uint64(high_base), np.uint64(low_base), keys)
    return numbers.astype(np.int64)


def _walk(numbers: Numbers, high_base: np.uint64, low_base: np.uint64, keys: Numbers) -> Numbers:
    high = numbers // low_base
    low = numbers - high * low_base
    for key in range(0, len(keys), 2):
        _add_hash(high, low, high_base, keys[key])
        _add_hash(low, high, low_base, keys[key + 1])
    high *= low_base
    high += low
    return high


def _add_hash(digit: Numbers, other: Numbers, base: np.uint64, key: np.uint64) -> None:
    mixed = other ^ key
    mixed *= _MULTIPLIERS[0]
    mixed ^= mixed >> _HALF
    mixed *= _MULTIPLIERS[1]
    mixed >>= _HALF
    mixed *= base
    mixed >>= _HALF  # below base
    digit += mixed
    np.minimum(digit, digit - base, out=digit)  # the subtraction wraps around to a huge number if it does not apply

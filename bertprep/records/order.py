"""The order of records in an epoch, as pure functions of the position, without an array or a buffer.

    RecordOrder    position -> permute(position) of all records
    ShardOrder     position -> a group of shards, which come in permuted order -> permute(position in the group) of its records

`permute` is a Feistel network on a position's two digits, in bases whose product slightly exceeds the number of records;
results outside go through it again ("cycle walking"). Any position costs 25 to 40 ns.
"""

import hashlib
import math
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

_MULTIPLIERS = np.array([0xBF58476D1CE4E5B9, 0x94D049BB133111EB], np.uint64)  # splitmix64's constants, David Stafford's mix 13
_HALF = np.uint64(32)
_ROUNDS = 8
_FEW_RECORDS, _ROUNDS_FOR_FEW = 4096, 32  # few values of a digit mix slowly: 8 rounds favour some orders of 5 records
_POSITIONS_AT_ONCE = 4096

Numbers = NDArray[np.uint64]


class Order(Protocol):
    """Which record comes at a position, counted over all epochs without gaps."""

    def numbers(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the numbers of the records at `positions`, an array of any shape."""


def numbers_of_batches(
    order: Order, size: int, *, first: int = 0, stop: int | None = None, step: int = 1, rows: range | None = None
) -> Iterator[NDArray[np.int64]]:
    """Return the records of batches first, first + step ... below `stop`, or endlessly; of each its `rows`, or all.

    Batch n has the positions from n * size on, over all epochs.
    """
    if size < 1 or first < 0:
        raise ValueError(f"batches of {size:,} from step {first:,}; expected at least 1, and 0")
    own = np.arange(size)[rows.start : rows.stop] if rows else np.arange(size)
    batches = range(first, sys.maxsize if stop is None else stop, step)
    at_once = max(1, _POSITIONS_AT_ONCE // size)
    blocks = (np.array(batches[block : block + at_once]) for block in range(0, len(batches), at_once))
    return chain.from_iterable(order.numbers(block[:, None] * size + own) for block in blocks)


@dataclass(frozen=True)
class RecordOrder:
    """All `records` of an epoch permuted together: record permute(position % records) in epoch position // records."""

    records: int
    seed: int

    def numbers(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        epochs, offsets = np.divmod(positions, self.records)
        numbers = np.empty_like(offsets)
        for epoch in range(int(epochs.min()), int(epochs.max()) + 1):
            of_epoch = epochs == epoch
            numbers[of_epoch] = permute(offsets[of_epoch], self.records, seed=self.seed, epoch=epoch)
        return numbers


class Shards(Protocol):
    """Records in shards, which may have more or fewer of them in another epoch."""

    @property
    def shards(self) -> int:
        """How many shards there are."""

    def counts(self, epoch: int, shards: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return how many records each of some shards has in an epoch."""

    def numbers_of(self, epoch: int, shards: NDArray[np.int64], records: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the numbers of records of shards in an epoch."""


class FixedShards:
    """Shards whose records are numbered through, one shard after another, and are the same in each epoch."""

    def __init__(self, records: NDArray[np.int64]) -> None:
        self.shards, self._records = len(records), records
        self._starts = np.cumsum(records) - records

    def counts(self, epoch: int, shards: NDArray[np.int64]) -> NDArray[np.int64]:  # noqa: ARG002 - all have the same
        return self._records[shards]

    def numbers_of(self, epoch: int, shards: NDArray[np.int64], records: NDArray[np.int64]) -> NDArray[np.int64]:  # noqa: ARG002
        numbers: NDArray[np.int64] = self._starts[shards] + records
        return numbers


class ShardOrder:
    """Shards in permuted order, `group` at a time, and the records of each group permuted together.

    Group g of an epoch has the shards permute(g * group), permute(g * group + 1) ...; its records are permuted by the key
    (seed, epoch, g). A reader needs one group in memory. Positions and groups count from the beginning of `first_epoch`.
    """

    def __init__(self, data: Shards, *, seed: int, group: int, first_epoch: int = 0) -> None:
        self.data, self.seed, self.group, self.first_epoch = data, seed, group, first_epoch
        self.groups = -(-data.shards // group)  # of an epoch
        self._counts: list[NDArray[np.int64]] = []  # of the shards of each group, over all epochs
        self._ends: NDArray[np.int64] = np.zeros(0, np.int64)  # the positions after the known groups
        self._placed = -1, self._ends  # an epoch, and the positions of the shards in its order
        self._lock = threading.Lock()

    def shards_of(self, group: int) -> tuple[int, NDArray[np.int64]]:
        epoch, within = divmod(group, self.groups)
        epoch += self.first_epoch
        positions = np.arange(within * self.group, min((within + 1) * self.group, self.data.shards), dtype=np.int64)
        return epoch, permute(positions, self.data.shards, seed=self.seed, epoch=epoch)

    def groups_of(self, epoch: int, shards: NDArray[np.int64]) -> NDArray[np.int64]:
        of_epoch, placed = self._placed  # at once: other threads ask too
        if epoch != of_epoch:
            order = permute(np.arange(self.data.shards, dtype=np.int64), self.data.shards, seed=self.seed, epoch=epoch)
            placed = np.argsort(order)
            self._placed = epoch, placed
        groups: NDArray[np.int64] = (epoch - self.first_epoch) * self.groups + placed[shards] // self.group
        return groups

    def numbers(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        if not positions.size:
            return np.empty_like(positions)
        with self._lock:
            self._know(int(np.max(positions)))
            ends = self._ends
        groups = np.searchsorted(ends, positions, side="right")
        numbers = np.empty_like(positions)
        for group in np.unique(groups).tolist():
            is_of_group = groups == group
            (epoch, shards), counts = self.shards_of(group), self._counts[group]
            last = np.cumsum(counts)
            offsets = positions[is_of_group] - (ends[group] - last[-1])
            permuted = permute(offsets, int(last[-1]), seed=self.seed, epoch=epoch, group=group % self.groups)
            which = np.searchsorted(last, permuted, side="right")
            numbers[is_of_group] = self.data.numbers_of(epoch, shards[which], permuted - (last - counts)[which])
        return numbers

    def _know(self, position: int) -> None:
        while not len(self._ends) or position >= self._ends[-1]:
            known, end = len(self._counts), int(self._ends[-1]) if len(self._ends) else 0
            missing = max(1, (position - end) * known // end) if end else 1  # by their mean size so far
            asked = [self.shards_of(known + i) for i in range(min(missing, self.groups - known % self.groups))]
            counts = self.data.counts(asked[0][0], np.concatenate([shards for _, shards in asked]))
            of_groups = np.split(counts, np.cumsum([len(shards) for _, shards in asked])[:-1])
            self._counts += of_groups
            self._ends = np.concatenate([self._ends, end + np.cumsum([each.sum() for each in of_groups])])


def permute(positions: NDArray[np.int64], size: int, *, seed: int, epoch: int, group: int | None = None) -> NDArray[np.int64]:
    """Return the record ids at `positions` of an epoch, all below `size`; one-to-one, by the key (seed, epoch[, group]).

    >>> permute(np.arange(10), 10, seed=1, epoch=0)
    array([1, 5, 7, 3, 8, 0, 9, 4, 2, 6])
    """
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

"""Each epoch's order is a permutation of the records, as good as random, and never changes."""

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from numpy.typing import NDArray

from bertprep.tokens.order import ShardOrder, permute


def chi_square(counts: NDArray[np.int64]) -> float:
    """How far counts are from even, in standard deviations of what chance gives; within 5 unless something is wrong."""
    expected = counts.sum() / counts.size
    freedom = counts.size - 1
    return float((((counts - expected) ** 2).sum() / expected - freedom) / math.sqrt(2 * freedom))


@pytest.mark.parametrize("size", [1, 2, 3, 5, 16, 17, 100, 4096, 4097, 99_991])
def test_every_record_comes_once(size: int) -> None:
    numbers = permute(np.arange(size), size, seed=3, epoch=2)
    assert sorted(numbers.tolist()) == list(range(size))


def test_any_position_alone_is_as_within_all() -> None:
    all_of_them = permute(np.arange(1000), 1000, seed=5, epoch=7)
    places = np.array([999, 0, 512, 3])
    np.testing.assert_array_equal(permute(places, 1000, seed=5, epoch=7), all_of_them[places])


@pytest.mark.slow
def test_orders_of_few_records_are_equally_frequent() -> None:
    for size in (2, 3, 4):
        orders = Counter(tuple(permute(np.arange(size), size, seed=seed, epoch=0).tolist()) for seed in range(800))
        assert chi_square(np.array([orders[order] for order in itertools.permutations(range(size))])) < 5


@pytest.mark.parametrize("size", [10_007, 1_000_000])
def test_many_records_come_as_if_drawn(size: int) -> None:
    places = np.arange(size)
    numbers = permute(places, size, seed=1, epoch=0)
    cells = 16
    goes_to = np.histogram2d(places, numbers, bins=cells)[0]
    neighbours = np.histogram2d(numbers[:-1], numbers[1:], bins=cells)[0]
    distances = np.histogram((numbers[1:] - numbers[:-1]) % size, bins=cells * cells)[0]
    for counts in (goes_to, neighbours, distances):
        assert abs(chi_square(counts)) < 5
    assert np.count_nonzero(numbers == places) < 8  # one is expected
    assert len(set((numbers % 64)[:64].tolist())) < 60  # 64 draws of 64 repeat themselves


def test_epochs_and_seeds_are_unrelated() -> None:
    size = 10_000
    orders = [permute(np.arange(size), size, seed=seed, epoch=epoch) for seed, epoch in ((1, 0), (1, 1), (2, 0), (11, 0))]
    for one, other in itertools.combinations(orders, 2):
        assert np.count_nonzero(one == other) < 10
        assert abs(chi_square(np.histogram2d(one, other, bins=16)[0])) < 5


def test_the_order_is_pinned() -> None:
    """Runs resume where they were after an upgrade; a change of these numbers is Breaking."""
    assert permute(np.arange(6), 1_000_000, seed=12345, epoch=0).tolist() == [598533, 199743, 927955, 212845, 637755, 391997]
    assert permute(np.arange(3), 100_000_000_000, seed=12345, epoch=3).tolist() == [25735208528, 87120739585, 94823912258]


def test_shards_of_the_first_epoch_are_counted_when_their_group_is_needed() -> None:
    """Four groups of two shards, which have three rows each."""
    counted: set[int] = set()

    def count(shards: NDArray[np.int64]) -> NDArray[np.int64]:
        counted.update(shards.tolist())
        return np.full(len(shards), 3)

    order = ShardOrder(8, count, seed=1, group=2)
    for position, groups in ((0, 1), (5, 1), (6, 2), (11, 2), (12, 3), (23, 4), (24, 4)):
        order.locate(np.array([position]))
        assert len(counted) == 2 * groups

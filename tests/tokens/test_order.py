"""Each epoch's order is a permutation of the records, as good as random, and never changes."""

import itertools
import math
import pickle
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from bertprep.tokens.order import LengthOrder, WindowOrder, permute, permute_in_groups


def chi_square(counts: NDArray[np.int64]) -> float:
    """How far counts are from even, in standard deviations of what chance gives; within 5 unless something is wrong."""
    expected = counts.sum() / counts.size
    freedom = counts.size - 1
    return float((((counts - expected) ** 2).sum() / expected - freedom) / math.sqrt(2 * freedom))


@pytest.mark.parametrize("size", [1, 2, 3, 5, 16, 17, 100, 4096, 4097, 99_991])
def test_every_record_comes_once(size: int) -> None:
    indices = permute(np.arange(size), size, seed=3, epoch=2)
    assert sorted(indices.tolist()) == list(range(size))


def test_any_position_alone_is_as_within_all() -> None:
    all_of_them = permute(np.arange(1000), 1000, seed=5, epoch=7)
    positions = np.array([999, 0, 512, 3])
    np.testing.assert_array_equal(permute(positions, 1000, seed=5, epoch=7), all_of_them[positions])


@pytest.mark.slow
def test_orders_of_few_records_are_equally_frequent() -> None:
    for size in (2, 3, 4):
        orders = Counter(tuple(permute(np.arange(size), size, seed=seed, epoch=0).tolist()) for seed in range(800))
        assert chi_square(np.array([orders[order] for order in itertools.permutations(range(size))])) < 5


@pytest.mark.parametrize("size", [10_007, 1_000_000])
def test_many_records_come_as_if_drawn(size: int) -> None:
    positions = np.arange(size)
    indices = permute(positions, size, seed=1, epoch=0)
    cells = 16
    goes_to = np.histogram2d(positions, indices, bins=cells)[0]
    neighbours = np.histogram2d(indices[:-1], indices[1:], bins=cells)[0]
    distances = np.histogram((indices[1:] - indices[:-1]) % size, bins=cells * cells)[0]
    for counts in (goes_to, neighbours, distances):
        assert abs(chi_square(counts)) < 5
    assert np.count_nonzero(indices == positions) < 8  # one is expected
    assert len(set((indices % 64)[:64].tolist())) < 60  # 64 draws of 64 repeat themselves


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


@pytest.mark.parametrize("position", [-1, 6])
def test_a_position_outside_an_epoch_is_refused(position: int) -> None:
    with pytest.raises(IndexError, match=f"^positions from {position} to {position}; expected 0 to 5$"):
        permute(np.array([position]), 6, seed=1, epoch=0)


def test_a_group_of_windows_is_shuffled_together() -> None:
    """Seven windows of one to seven rows in groups of three: a group's rows come together, those of an epoch once."""
    order = WindowOrder(np.arange(1, 8), seed=1, group=3)
    every_row = [(window, row) for window in range(7) for row in range(window + 1)]
    groups = []
    for epoch in (0, 5):
        ids = order.locate(np.arange(28) + 28 * epoch)
        assert set(ids.epochs.tolist()) == {epoch}
        assert sorted(zip(ids.windows.tolist(), ids.rows.tolist(), strict=True)) == every_row
        of_group = [*dict.fromkeys(ids.windows.tolist())]
        groups.append([set(of_group[:3]), set(of_group[3:6]), set(of_group[6:])])
        last = [at for at in range(28) if ids.windows[at] in groups[-1][0]][-1]
        assert last == sum(window + 1 for window in groups[-1][0]) - 1
        assert set(order.group_after(epoch, of_group[0])[1].tolist()) == groups[-1][1]
        assert order.group_after(epoch, of_group[-1])[0] == epoch + 1
    assert groups[0] != groups[1]


def test_an_order_is_the_same_for_positions_of_any_shape_and_in_a_pickle() -> None:
    counts = np.array([4, 1, 0, 9])
    lengths = [np.arange(count, dtype=np.int32) for count in counts]
    check_shapes_and_pickle(WindowOrder(counts, seed=2, group=2))
    check_shapes_and_pickle(LengthOrder(counts, seed=2, group=2, lengths=lengths.__getitem__))


def check_shapes_and_pickle(order: WindowOrder) -> None:
    expected = order.locate(np.arange(30))
    block = pickle.loads(pickle.dumps(order)).locate(np.arange(30).reshape(5, 6))
    for found, flat in zip(vars(block).values(), vars(expected).values(), strict=True):
        np.testing.assert_array_equal(found, flat.reshape(5, 6))
    assert [len(block), len(block[2]), len(expected[3:7])] == [5, 6, 4]


def test_the_order_of_windows_is_pinned() -> None:
    """Runs resume where they were after an upgrade; a change of these numbers is Breaking."""
    ids = WindowOrder(np.arange(1, 8), seed=12345, group=3).locate(np.array([0, 1, 2, 27, 28, 2800]))
    assert ids.windows.tolist() == [3, 2, 3, 6, 2, 3]
    assert ids.rows.tolist() == [2, 1, 3, 6, 2, 1]


def test_a_group_has_at_least_sixteen_runs_of_like_lengths_and_its_rest_last() -> None:
    random = np.random.default_rng(1)
    lengths = random.integers(1, 10_000, (4, 102)).astype(np.int32)
    order = LengthOrder(np.full(4, 102), seed=1, group=2, lengths=lambda window: lengths[window])
    ids = order.locate(np.arange(408))
    found = lengths[ids.windows, ids.rows].reshape(2, 204)  # by group, of 25 times 8 rows and a rest of 4
    orders = []
    for of_group in found:
        runs, rest = of_group[:200].reshape(25, 8), of_group[200:]
        assert (np.diff(runs, axis=1) >= 0).all()
        assert (np.diff(rest) >= 0).all()
        assert rest[-1] - rest[0] > 1000  # of all lengths
        orders.append(np.argsort(runs[:, 0]).tolist())
        by_length = runs[orders[-1]]
        assert (by_length[1:, 0] >= by_length[:-1, -1]).all()
    assert orders[0] != orders[1]


@given(st.data(), st.integers(0, 2**40), st.integers(0, 9))
def test_rows_of_many_groups_are_permuted_as_those_of_each(data: st.DataObject, seed: int, epoch: int) -> None:
    """Small groups have other numbers of rounds than large ones, and each has bases of its own."""
    sizes = data.draw(st.lists(st.one_of(st.integers(1, 50), st.integers(4090, 100_000)), min_size=1, max_size=5))
    of_rows = data.draw(st.lists(st.tuples(st.integers(0, len(sizes) - 1), st.integers(0, 10**6)), min_size=1, max_size=40))
    positions = np.array([place % sizes[group] for group, place in of_rows])
    groups = np.array([group for group, _ in of_rows])
    found = permute_in_groups(positions, np.array(sizes)[groups], groups + 7, seed=seed, epoch=epoch)
    expected = [
        int(permute(np.array([position]), sizes[group], seed=seed, epoch=epoch, group=group + 7)[0])
        for position, group in zip(positions.tolist(), groups.tolist(), strict=True)
    ]
    assert found.tolist() == expected

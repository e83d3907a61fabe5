"""Documents to rows: the best-fit kernel against the same in plain Python, and how documents are split."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertprep.tokens.packing import pack_sequences, split_documents


def pack(sizes: list[int], capacity: int) -> list[list[int]]:
    """Best-fit decreasing: the sequences of each row."""
    rows: list[list[int]] = []
    with_space: list[list[int]] = [[] for _ in range(capacity + 1)]  # rows by the space left in them
    for sequence in sorted(range(len(sizes)), key=lambda each: -sizes[each]):
        space = next((space for space in range(sizes[sequence], capacity + 1) if with_space[space]), capacity)
        if not with_space[space]:
            with_space[space].append(len(rows))
            rows.append([])
        row = with_space[space].pop()
        rows[row].append(sequence)
        with_space[space - sizes[sequence]].append(row) if space > sizes[sequence] else None
    return [sorted(row) for row in rows]


@given(data=st.data(), capacity=st.integers(1, 300))
def test_sequences_are_packed_best_fit_decreasing(data: st.DataObject, capacity: int) -> None:
    sizes = data.draw(st.lists(st.integers(1, capacity), max_size=80))
    order, row_starts = pack_sequences(np.array(sizes, np.int32), capacity)
    found = [row.tolist() for row in np.split(order, row_starts[1:])[:-1]]
    assert found == pack(sizes, capacity)
    assert all(sum(sizes[sequence] for sequence in row) <= capacity for row in found)


@given(sizes=st.lists(st.integers(0, 30), max_size=20), longest=st.integers(1, 12))
def test_documents_are_split_into_runs(sizes: list[int], longest: int) -> None:
    starts = np.cumsum([0, *sizes])
    begins, found = split_documents(starts, longest)
    expected = [(at, min(longest, end - at)) for start, end in pairwise(starts) for at in range(start, end, longest)]
    assert list(zip(begins, found, strict=True)) == expected


@pytest.mark.parametrize(("seq", "most"), [(512, 0.005), (1024, 0.003)])
def test_little_padding_is_left(seq: int, most: float) -> None:
    lengths = np.random.default_rng(0).lognormal(np.log(400), 1.0, 10_000).astype(np.int64) + 1
    _, sizes = split_documents(np.cumsum([0, *lengths]), seq - 2)
    _, row_starts = pack_sequences(sizes + np.int32(2), seq)
    assert 1 - (sizes + 2).sum() / (seq * (len(row_starts) - 1)) <= most

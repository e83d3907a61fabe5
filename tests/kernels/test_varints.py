"""Packed numbers by vectors, by bits and by the definition; what is too many, too few, too large or cut off is a fault."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertprep import kernels
from bertprep.kernels import numbers as faults
from tests.records.handmade import varint

GUARD = -7
numbers = st.one_of(st.integers(0, 127), st.integers(0, 2**21), st.integers(0, 2**31 - 1))
runs = st.lists(st.tuples(numbers, st.integers(1, 40)), max_size=12)


def unpack(data: bytes, count: int, *, portable: bool, behind: int = 0) -> tuple[int, list[int]]:
    """(0 or a fault, the numbers); `behind` bytes of a file follow the data."""
    out = np.full(count + 16, GUARD, np.int32)
    file = np.frombuffer(data + b"\xff" * behind + b"\0", np.uint8)
    fault = kernels.load().unpack_numbers(file, len(data), len(data) + behind, out, count, int(portable))
    assert (out[count:] == GUARD).all()
    return fault, out[:count].tolist()


@pytest.mark.parametrize("portable", [False, True], ids=["vectors", "bits"])
@pytest.mark.parametrize("behind", [0, 100])
@given(runs=runs)
def test_round_trip(runs: list[tuple[int, int]], behind: int, portable: bool) -> None:
    values = [value for value, repeats in runs for _ in range(repeats)]
    data = b"".join(map(varint, values))
    assert unpack(data, len(values), portable=portable, behind=behind) == (0, values)
    assert unpack(data, len(values) + 1, portable=portable, behind=behind)[0] == faults.WRONG_COUNT
    if values:
        assert unpack(data, len(values) - 1, portable=portable, behind=behind)[0] == faults.WRONG_COUNT


@pytest.mark.parametrize("portable", [False, True], ids=["vectors", "bits"])
@pytest.mark.parametrize("behind", [0, 100])
@pytest.mark.parametrize("before", [0, 1, 15, 16, 63, 64, 200])
def test_faults(before: int, behind: int, portable: bool) -> None:
    start = varint(300) * before
    for number in (-1, -(2**31), 2**31, 2**63 - 1):
        assert unpack(start + varint(number), before + 1, portable=portable, behind=behind)[0] == faults.OUT_OF_RANGE
    for cut_off in (b"\x80", b"\x80" * 5, b"\x80" * 8):
        assert unpack(start + cut_off, before + 1, portable=portable, behind=behind)[0] == faults.MALFORMED


@pytest.mark.parametrize("portable", [False, True], ids=["vectors", "bits"])
@given(data=st.binary(max_size=300), count=st.integers(0, 300))
def test_any_bytes(data: bytes, count: int, portable: bool) -> None:
    """Never a number too many, and the same outcome both ways."""
    assert unpack(data, count, portable=portable)[0] == unpack(data, count, portable=not portable)[0]

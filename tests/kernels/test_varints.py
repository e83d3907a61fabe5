"""Packed numbers by the definition; too many, too few, too large or cut off is a fault. `test_portable` runs this too."""

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


def unpack(data: bytes, count: int, *, behind: int = 0) -> tuple[int, list[int]]:
    """(0 or a fault, the numbers); `behind` bytes of a file follow the data."""
    out = np.full(count + 16, GUARD, np.int32)
    file = np.frombuffer(data + b"\xff" * behind + b"\0", np.uint8)
    fault = kernels.load().unpack_numbers(file, len(data), len(data) + behind, out, count)
    assert (out[count:] == GUARD).all()
    return fault, out[:count].tolist()


@pytest.mark.parametrize("behind", [0, 100])
@given(runs=runs)
def test_round_trip(runs: list[tuple[int, int]], behind: int) -> None:
    values = [value for value, repeats in runs for _ in range(repeats)]
    data = b"".join(map(varint, values))
    assert unpack(data, len(values), behind=behind) == (0, values)
    assert unpack(data, len(values) + 1, behind=behind)[0] == faults.WRONG_COUNT
    if values:
        assert unpack(data, len(values) - 1, behind=behind)[0] == faults.WRONG_COUNT


@pytest.mark.parametrize("behind", [0, 100])
@pytest.mark.parametrize("before", [0, 1, 15, 16, 63, 64, 200])
def test_faults(before: int, behind: int) -> None:
    start = varint(300) * before
    for number in (-1, -(2**31), 2**31, 2**63 - 1):
        assert unpack(start + varint(number), before + 1, behind=behind)[0] == faults.OUT_OF_RANGE
    for cut_off in (b"\x80", b"\x80" * 5, b"\x80" * 8):
        assert unpack(start + cut_off, before + 1, behind=behind)[0] == faults.MALFORMED


@given(data=st.binary(max_size=300), count=st.integers(0, 300))
def test_any_bytes(data: bytes, count: int) -> None:
    """Never a number too many, and the outcome that taking them one by one has."""
    values, at = [], 0
    fault = 0
    while at < len(data) and not fault:
        size = next((k + 1 for k, byte in enumerate(data[at : at + 9]) if byte < 0x80), 0)
        value = sum((byte & 0x7F) << 7 * k for k, byte in enumerate(data[at : at + size]))
        if len(values) == count:
            fault = faults.WRONG_COUNT
        elif not size:
            fault = faults.OUT_OF_RANGE if len(data) - at >= 9 else faults.MALFORMED
        elif value >= 2**31:
            fault = faults.OUT_OF_RANGE
        values.append(value)
        at += size
    if not fault and len(values) != count:
        fault = faults.WRONG_COUNT
    found, numbers = unpack(data, count)
    assert (found < 0) == (fault < 0)
    if not fault:
        assert numbers == values

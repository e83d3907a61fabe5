"""The checksum: known values, and the same by instructions, by tables and by the definition."""

import numpy as np
import pytest

from bertprep import kernels
from tests.records.handmade import crc32c as crc32c_by_definition

KNOWN = {b"": 0, b"123456789": 0xE3069283, bytes(32): 0x8A9136AA, b"\xff" * 32: 0x62A8AB43, bytes(range(32)): 0x46DD794E}


def crc32c(data: bytes, *, portable: bool, previous: int = 0) -> int:
    return kernels.load().checksum(previous, np.frombuffer(data or b"\0", np.uint8), len(data), int(portable))


@pytest.mark.parametrize("portable", [False, True], ids=["instructions", "tables"])
@pytest.mark.parametrize("data", KNOWN, ids=[data[:9].hex() or "nothing" for data in KNOWN])
def test_known_values(data: bytes, portable: bool) -> None:
    assert crc32c(data, portable=portable) == KNOWN[data]


def test_instructions_and_tables_agree_on_all_sizes() -> None:
    data = np.random.default_rng(3).integers(0, 256, 13_000, np.uint8).tobytes()
    for size in [*range(5001), 12_287, 12_288, 12_289, 13_000]:  # three thirds of 4096 bytes are the longest step
        assert crc32c(data[:size], portable=False) == crc32c(data[:size], portable=True), size


def test_definition() -> None:
    data = np.random.default_rng(4).integers(0, 256, 1000, np.uint8).tobytes()
    for size in range(0, 1000, 37):
        assert crc32c(data[:size], portable=False) == crc32c_by_definition(data[:size])


@pytest.mark.parametrize("portable", [False, True], ids=["instructions", "tables"])
def test_a_checksum_goes_on_from_the_one_before(portable: bool) -> None:
    data = np.random.default_rng(5).integers(0, 256, 700, np.uint8).tobytes()
    for cut in (0, 1, 95, 96, 350, 700):
        previous = crc32c(data[:cut], portable=portable)
        assert crc32c(data[cut:], portable=portable, previous=previous) == crc32c(data, portable=portable)

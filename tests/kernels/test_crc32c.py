"""The checksum: known values, and the definition. `test_portable` runs this without the processor's instructions too."""

import numpy as np
import pytest

from bertprep import kernels
from tests.records.handmade import crc32c as crc32c_by_definition

KNOWN = {b"": 0, b"123456789": 0xE3069283, bytes(32): 0x8A9136AA, b"\xff" * 32: 0x62A8AB43, bytes(range(32)): 0x46DD794E}


def crc32c(data: bytes, previous: int = 0) -> int:
    return kernels.load().checksum(previous, np.frombuffer(data or b"\0", np.uint8), len(data))


@pytest.mark.parametrize("data", KNOWN, ids=[data[:9].hex() or "nothing" for data in KNOWN])
def test_known_values(data: bytes) -> None:
    assert crc32c(data) == KNOWN[data]


def test_definition() -> None:
    data = np.random.default_rng(4).integers(0, 256, 13_000, np.uint8).tobytes()
    for size in [
        *range(400),
        *range(400, 1000, 37),
        12_287,
        12_288,
        12_289,
        13_000,
    ]:  # three thirds of 4096 are the longest step
        assert crc32c(data[:size]) == crc32c_by_definition(data[:size]), size


def test_a_checksum_continues_from_the_previous_one() -> None:
    data = np.random.default_rng(5).integers(0, 256, 700, np.uint8).tobytes()
    for cut in (0, 1, 95, 96, 350, 700):
        previous = crc32c(data[:cut])
        assert crc32c(data[cut:], previous) == crc32c(data)

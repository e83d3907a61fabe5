"""The checksum: known values, and the definition."""

import numpy as np

from bertprep import kernels
from tests.records.handmade import crc32c as crc32c_by_definition

KNOWN = {b"": 0, b"123456789": 0xE3069283, bytes(32): 0x8A9136AA, b"\xff" * 32: 0x62A8AB43, bytes(range(32)): 0x46DD794E}
DATA = np.random.default_rng(4).integers(0, 256, 13_000, np.uint8).tobytes()


def crc32c(data: bytes, previous: int = 0) -> int:
    return kernels.load().checksum(previous, np.frombuffer(data or b"\0", np.uint8), len(data))


def test_known_values_and_the_definition() -> None:
    assert {data: crc32c(data) for data in KNOWN} == KNOWN
    for size in (*range(100), *range(400, 1000, 37), 13_000):
        assert crc32c(DATA[:size]) == crc32c_by_definition(DATA[:size]), size


def test_a_checksum_continues_from_the_previous_one() -> None:
    for cut in (0, 1, 95, 96, 350, 700):
        assert crc32c(DATA[cut:700], crc32c(DATA[:cut])) == crc32c(DATA[:700])

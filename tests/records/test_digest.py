"""Two streams hashed side by side have the sha256 that hashlib gives each of them."""

import hashlib

import numpy as np
import pytest

from bertprep.records.digest import BLOCK_BYTES, Sha256Pair, can_pair

pytestmark = pytest.mark.skipif(not can_pair(), reason="a processor without SHA instructions: hashlib is taken")


@pytest.mark.parametrize("size", [0, 1, 55, 56, 63, 64, 65, 119, 120, 128, 1000, 100_000])
def test_two_streams_in_unequal_chunks(size: int) -> None:
    random = np.random.default_rng(size)
    streams = [[random.bytes(BLOCK_BYTES * blocks) for blocks in random.integers(0, 80, 8)] for _ in range(2)]
    end, pair = random.bytes(size), Sha256Pair()
    for chunks in zip(*streams, strict=True):
        pair.update([np.frombuffer(chunk, np.uint8) for chunk in chunks])
    expected = [hashlib.sha256(b"".join(chunks) + end).hexdigest() for chunks in streams]
    assert pair.hexdigests([np.frombuffer(end, np.uint8)] * 2) == expected

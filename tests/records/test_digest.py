"""Two streams hashed side by side have the sums that hashlib gives each of them."""

import hashlib
from types import SimpleNamespace

import numpy as np
import pytest

from bertprep import kernels
from bertprep.records.digest import HEADROOM, Sha256Pair


def digests_of(*streams: list[bytes]) -> list[str]:
    pair = Sha256Pair(len(streams))
    for parts in zip(*streams, strict=True):
        blocks = [np.frombuffer(bytearray(HEADROOM) + part, np.uint8) for part in parts]
        pair.update(blocks, [len(part) for part in parts])
    return pair.hexdigests()


@pytest.mark.parametrize("size", [0, 1, 55, 56, 63, 64, 65, 119, 120, 128, 1000, 100_000])
def test_one_stream(size: int) -> None:
    data = np.random.default_rng(size).bytes(size)
    assert digests_of([data]) == [hashlib.sha256(data).hexdigest()]


@pytest.mark.parametrize("seed", range(20))
def test_two_streams_in_unequal_parts(seed: int) -> None:
    random = np.random.default_rng(seed)
    streams = [[random.bytes(size) for size in random.integers(0, 5000, 8)] for _ in range(2)]
    assert digests_of(*streams) == [hashlib.sha256(b"".join(parts)).hexdigest() for parts in streams]


def test_without_the_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "load", SimpleNamespace)  # kernels that lack it
    assert digests_of([b"a", b"bc"], [b"", b"abc"]) == [hashlib.sha256(b"abc").hexdigest()] * 2

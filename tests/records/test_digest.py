"""Two streams hashed side by side have the sums that hashlib gives each of them."""

import hashlib
from types import SimpleNamespace

import numpy as np
import pytest

from bertprep import kernels
from bertprep.records.digest import BLOCK_BYTES, Sha256Pair


def digests_of(*streams: list[bytes], end: bytes = b"") -> list[str]:
    pair = Sha256Pair(len(streams))
    for parts in zip(*streams, strict=True):
        pair.update([np.frombuffer(part, np.uint8) for part in parts])
    return pair.hexdigests([np.frombuffer(end, np.uint8)] * len(streams))


@pytest.mark.parametrize("size", [0, 1, 55, 56, 63, 64, 65, 119, 120, 128, 1000, 100_000])
def test_one_stream(size: int) -> None:
    data = np.random.default_rng(size).bytes(size)
    whole = size // BLOCK_BYTES * BLOCK_BYTES
    assert digests_of([data[:whole]], end=data[whole:]) == [hashlib.sha256(data).hexdigest()]
    assert digests_of([], end=data) == [hashlib.sha256(data).hexdigest()]


@pytest.mark.parametrize("seed", range(20))
def test_two_streams_in_unequal_parts(seed: int) -> None:
    random = np.random.default_rng(seed)
    streams = [[random.bytes(BLOCK_BYTES * size) for size in random.integers(0, 80, 8)] for _ in range(2)]
    expected = [hashlib.sha256(b"".join(parts) + b"the end").hexdigest() for parts in streams]
    assert digests_of(*streams, end=b"the end") == expected


def test_without_the_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "load", SimpleNamespace)  # kernels that lack it
    assert digests_of([b"a" * 64], [b"a" * 64], end=b"bc") == [hashlib.sha256(b"a" * 64 + b"bc").hexdigest()] * 2

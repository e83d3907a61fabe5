"""The sha256 of files while they are written: of two files at once, where the processor can do that.

Hashing is a third of the work of writing records: one stream runs at 1.35 GB/s on the machine of docs/benchmarks.md, in any
library, since each of its instructions waits for the last. Both formats of a shard are two streams, and hashed side by side
they cost little more than one. Without the processor's instructions, hashlib does it.
"""

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bertprep import kernels

HEADROOM = 64
"""Bytes before the data of a block, where what was left of the block before is put."""

_BLOCK_BYTES = 64
# the standard's first state, A to H, in the order the instructions want: D C B A's halves as F E B A and H G D C
_FIRST_STATE = [0x9B05688C, 0x510E527F, 0xBB67AE85, 0x6A09E667, 0x5BE0CD19, 0x1F83D9AB, 0xA54FF53A, 0x3C6EF372]
_STANDARD_ORDER = [3, 2, 7, 6, 1, 0, 5, 4]  # where A to H are in it


class Sha256Pair:
    """The sha256 of one or two streams that are fed together, block by block."""

    def __init__(self, streams: int) -> None:
        self._compiled = kernels.load() if hasattr(kernels.load(), "sha256") else None
        self._plain = [hashlib.sha256() for _ in range(streams)]
        self._states = [np.array(_FIRST_STATE, np.uint32) for _ in range(streams)]
        self._left = [np.empty(0, np.uint8) for _ in range(streams)]
        self._bytes = [0] * streams

    def update(self, blocks: Sequence[NDArray[np.uint8]], sizes: Sequence[int]) -> None:
        """Add blocks[i][HEADROOM : HEADROOM + sizes[i]] to stream i; the HEADROOM bytes before are overwritten."""
        if self._compiled is None:
            for digest, block, size in zip(self._plain, blocks, sizes, strict=True):
                digest.update(block[HEADROOM : HEADROOM + size])
            return
        starts = [HEADROOM - len(left) for left in self._left]
        counts = []
        for i, (block, size) in enumerate(zip(blocks, sizes, strict=True)):
            block[starts[i] : HEADROOM] = self._left[i]
            counts.append((HEADROOM - starts[i] + size) // _BLOCK_BYTES)
            self._left[i] = block[starts[i] + counts[i] * _BLOCK_BYTES : HEADROOM + size].copy()
            self._bytes[i] += size
        together = 0
        if len(blocks) == 2:
            together = min(counts)
            a, b = (block[start:] for block, start in zip(blocks, starts, strict=True))
            self._compiled.sha256_of_two(self._states[0], a, self._states[1], b, together)
        for state, block, start, count in zip(self._states, blocks, starts, counts, strict=True):
            self._compiled.sha256(state, block[start + together * _BLOCK_BYTES :], count - together)

    def hexdigests(self) -> list[str]:
        """The sha256 of each stream, in hexadecimal; the last thing to ask for."""
        if self._compiled is None:
            return [digest.hexdigest() for digest in self._plain]
        found = []
        for state, left, size in zip(self._states, self._left, self._bytes, strict=True):
            padding = b"\x80" + bytes((-len(left) - 9) % _BLOCK_BYTES) + (8 * size).to_bytes(8, "big")
            last = np.frombuffer(left.tobytes() + padding, np.uint8)
            self._compiled.sha256(state, last, len(last) // _BLOCK_BYTES)
            found.append(state[_STANDARD_ORDER].astype(">u4").tobytes().hex())
        return found

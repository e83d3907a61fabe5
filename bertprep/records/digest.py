"""The sha256 of both formats of a shard while they are written: two interleaved streams take half the time of two in turn."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bertprep import kernels

BLOCK_BYTES = 64
# the standard's first state, A to H, in the order the instructions want: D C B A's halves as F E B A and H G D C
_FIRST_STATE = [0x9B05688C, 0x510E527F, 0xBB67AE85, 0x6A09E667, 0x5BE0CD19, 0x1F83D9AB, 0xA54FF53A, 0x3C6EF372]
_STANDARD_ORDER = [3, 2, 7, 6, 1, 0, 5, 4]  # where A to H are in it


def can_pair() -> bool:
    """Return whether the processor has the instructions that `Sha256Pair` needs."""
    return hasattr(kernels.load(), "sha256_of_two")


class Sha256Pair:
    """The sha256 of two streams that are fed together."""

    def __init__(self) -> None:
        self._states = [np.array(_FIRST_STATE, np.uint32) for _ in range(2)]
        self._bytes = [0, 0]

    def update(self, chunks: Sequence[NDArray[np.uint8]]) -> None:
        """Add chunks[i] to stream i; its size is a multiple of BLOCK_BYTES."""
        compiled = kernels.load()
        together = min(map(len, chunks)) // BLOCK_BYTES
        compiled.sha256_of_two(self._states[0], chunks[0], self._states[1], chunks[1], together)
        for i, (state, chunk) in enumerate(zip(self._states, chunks, strict=True)):
            _update_one(state, chunk[together * BLOCK_BYTES :])
            self._bytes[i] += len(chunk)

    def hexdigests(self, ends: Sequence[NDArray[np.uint8]]) -> list[str]:
        """Return the sha256 of each stream with its end, of any size, added: the last call."""
        found = []
        for state, end, before in zip(self._states, ends, self._bytes, strict=True):
            padding = b"\x80" + bytes((-len(end) - 9) % BLOCK_BYTES) + (8 * (before + len(end))).to_bytes(8, "big")
            last = np.frombuffer(end.tobytes() + padding, np.uint8)
            _update_one(state, last)
            found.append(state[_STANDARD_ORDER].astype(">u4").tobytes().hex())
        return found


def _update_one(state: NDArray[np.uint32], data: NDArray[np.uint8]) -> None:
    kernels.load().sha256_of_two(state, data, state.copy(), data, len(data) // BLOCK_BYTES)

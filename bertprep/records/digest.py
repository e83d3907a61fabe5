"""The sha256 of files while they are written: of two files at once, where the processor can do that.

Hashing is a quarter of the work of writing records, and one stream is no faster in any library, since each of its
instructions waits for the last. Both formats of a shard are two streams: side by side they run at 2.4 GB/s together, one
after the other at 1.8. For one format, and without the processor's instructions, hashlib does it.
See docs/decisions/0003-sha256-of-every-file.md.
"""

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bertprep import kernels

BLOCK_BYTES = 64
# the standard's first state, A to H, in the order the instructions want: D C B A's halves as F E B A and H G D C
_FIRST_STATE = [0x9B05688C, 0x510E527F, 0xBB67AE85, 0x6A09E667, 0x5BE0CD19, 0x1F83D9AB, 0xA54FF53A, 0x3C6EF372]
_STANDARD_ORDER = [3, 2, 7, 6, 1, 0, 5, 4]  # where A to H are in it


class Sha256Pair:
    """The sha256 of one or two streams that are fed together."""

    def __init__(self, streams: int) -> None:
        self._compiled = kernels.load() if streams == 2 and hasattr(kernels.load(), "sha256_of_two") else None
        self._plain = [hashlib.sha256() for _ in range(streams)]
        self._states = [np.array(_FIRST_STATE, np.uint32) for _ in range(streams)]
        self._bytes = [0] * streams

    def update(self, parts: Sequence[NDArray[np.uint8]]) -> None:
        """Add parts[i] to stream i; its size is a multiple of BLOCK_BYTES."""
        if self._compiled is None:
            for digest, part in zip(self._plain, parts, strict=True):
                digest.update(part)
            return
        together = min(map(len, parts)) // BLOCK_BYTES
        self._compiled.sha256_of_two(self._states[0], parts[0], self._states[1], parts[1], together)
        for i, (state, part) in enumerate(zip(self._states, parts, strict=True)):
            self._compiled.sha256(state, part[together * BLOCK_BYTES :], len(part) // BLOCK_BYTES - together)
            self._bytes[i] += len(part)

    def hexdigests(self, ends: Sequence[NDArray[np.uint8]]) -> list[str]:
        """The sha256 of each stream with its end, of any size, added: the last thing to ask for."""
        if self._compiled is None:
            for digest, end in zip(self._plain, ends, strict=True):
                digest.update(end)
            return [digest.hexdigest() for digest in self._plain]
        found = []
        for state, end, before in zip(self._states, ends, self._bytes, strict=True):
            padding = b"\x80" + bytes((-len(end) - 9) % BLOCK_BYTES) + (8 * (before + len(end))).to_bytes(8, "big")
            last = np.frombuffer(end.tobytes() + padding, np.uint8)
            self._compiled.sha256(state, last, len(last) // BLOCK_BYTES)
            found.append(state[_STANDARD_ORDER].astype(">u4").tobytes().hex())
        return found

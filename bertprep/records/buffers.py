"""Records on their way to a file: memory that an encoder fills and that a file takes, as it is or compressed.

A buffer is emptied in whole pages, so that it can be written past the page cache, and gives its bytes to a digest before.
"""

from __future__ import annotations

import mmap
import zlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertprep import kernels
from bertprep.config import GZIP
from bertprep.files.atomic import AtomicFile
from bertprep.kernels.numbers import CODE_SIZE_SHIFT, DEFLATE_SLACK, DISTANCE_CODES, LENGTH_CODES, SEEN_BITS
from bertprep.records.digest import BLOCK_BYTES, Sha256Pair

BUFFER_BYTES = 1 << 20
_PAGE_BYTES = 4096  # what direct writing asks for, as far as is known
DEFLATED_BYTES = 1 << 18  # compressed at a time: a match looks back 32 KiB, so cutting here costs next to nothing
_GZIP_HEADER = bytes.fromhex("1f8b 08 00 00000000 00 ff")  # deflate, no name, no time, no system
_LONGEST_MATCH = 258


class RecordBuffer:
    """Records on their way to a file: page-aligned memory, emptied in whole pages, so that it can be written directly.

    What is in it before `filled_bytes` follows what was written; less than a page of that is left after `take_pages`.
    """

    def __init__(self) -> None:
        self.filled_bytes = 0
        self._hashed_bytes = 0
        self._memory = np.empty(0, np.uint8)

    def make_room(self, capacity: int) -> None:
        """Room for `capacity` bytes and what may be left in front of them."""
        self._memory = np.frombuffer(mmap.mmap(-1, capacity + _PAGE_BYTES), np.uint8)

    @property
    def room(self) -> NDArray[np.uint8]:
        return self._memory[self.filled_bytes :]

    @property
    def filled(self) -> NDArray[np.uint8]:
        return self._memory[: self.filled_bytes]

    def take_unhashed(self) -> NDArray[np.uint8]:
        """The whole blocks for the digest that came since the last call."""
        start, self._hashed_bytes = self._hashed_bytes, self.filled_bytes // BLOCK_BYTES * BLOCK_BYTES
        return self._memory[start : self._hashed_bytes]

    def take_pages(self, file: AtomicFile) -> None:
        """Write all whole pages, and move the rest to the front."""
        whole = self.filled_bytes // _PAGE_BYTES * _PAGE_BYTES
        file.write(self._memory[:whole].data)
        self._hashed_bytes -= whole
        self._drop(whole)

    def take_end(self, file: AtomicFile) -> NDArray[np.uint8]:
        """Write what is left; returns what of it was not hashed yet."""
        file.write(self._memory[: self.filled_bytes].data)
        return self._memory[self._hashed_bytes : self.filled_bytes]

    def append(self, data: bytes) -> None:
        """Add bytes that no encoder wrote; there must be capacity for them."""
        self.room[: len(data)] = np.frombuffer(data, np.uint8)
        self.filled_bytes += len(data)

    def _drop(self, size_bytes: int) -> None:
        """Move what follows the first `size_bytes` to the front."""
        self.filled_bytes -= size_bytes
        self._memory[: self.filled_bytes] = self._memory[size_bytes : size_bytes + self.filled_bytes]


class GzipBuffer(RecordBuffer):
    """The same for a gzip file: filled with records as they are, emptied of compressed ones.

    Bytes are compressed in runs of a fixed length from the file's first on, so the file depends on the records alone, not on
    how they came.
    """

    def __init__(self) -> None:
        super().__init__()
        self._packed = RecordBuffer()
        self._checksum = self._size_bytes = 0
        self._codes, self._seen = deflate_codes(), np.empty(1 << SEEN_BITS, np.int32)

    def make_room(self, capacity: int) -> None:
        """Room for `capacity` bytes, what may be left in front of them, and both compressed."""
        capacity += DEFLATED_BYTES
        super().make_room(capacity)
        runs = capacity // DEFLATED_BYTES + 1
        self._packed.make_room(capacity * 9 // 8 + runs * DEFLATE_SLACK + len(_GZIP_HEADER))
        self._packed.append(_GZIP_HEADER)

    def take_unhashed(self) -> NDArray[np.uint8]:
        """Compress what came since the last call, in whole runs; returns whole blocks for the digest."""
        done = 0
        while self.filled_bytes - done >= DEFLATED_BYTES:
            self._deflate(done, DEFLATED_BYTES, is_last=False)
            done += DEFLATED_BYTES
        if done:
            self._drop(done)
        return self._packed.take_unhashed()

    def take_pages(self, file: AtomicFile) -> None:
        """Write all whole pages."""
        self._packed.take_pages(file)

    def take_end(self, file: AtomicFile) -> NDArray[np.uint8]:
        """Compress and write what is left; returns what was not hashed yet."""
        self._deflate(0, self.filled_bytes, is_last=True)
        self._packed.append(self._checksum.to_bytes(4, "little") + (self._size_bytes % (1 << 32)).to_bytes(4, "little"))
        return self._packed.take_end(file)

    def _deflate(self, start: int, size_bytes: int, *, is_last: bool) -> None:
        run = self._memory[start : start + size_bytes]
        self._checksum = zlib.crc32(run, self._checksum)
        self._size_bytes += size_bytes
        self._packed.filled_bytes += kernels.load().deflate(
            run, size_bytes, int(is_last), self._codes, self._seen, self._packed.room
        )


def make_buffer(compress: str) -> RecordBuffer:
    """An empty buffer for a file that is compressed so."""
    return GzipBuffer() if compress == GZIP else RecordBuffer()


def write_buffers(filled: Iterable[Any], buffers: Sequence[RecordBuffer], files: Sequence[AtomicFile]) -> list[str]:
    """Write what comes to each buffer to its file, each time that `filled` yields; returns the files' sha256s."""
    digests = Sha256Pair(len(buffers))
    for _ in filled:
        digests.update([buffer.take_unhashed() for buffer in buffers])
        for buffer, file in zip(buffers, files, strict=True):
            buffer.take_pages(file)
    return digests.hexdigests([buffer.take_end(file) for buffer, file in zip(buffers, files, strict=True)])


def deflate_codes() -> NDArray[np.uint32]:
    """The fixed codes of RFC 1951 (3.2.6): for 256 literals, matches of 0 to 258 bytes and 30 distances.

    Each is the bits in the order of writing, those that tell a match's length exactly among them, and above bit 24 how many.
    """

    def code(number: int, bits: int) -> int:
        return int(f"{number:0{bits}b}"[::-1], 2) | bits << CODE_SIZE_SHIFT  # codes go with their highest bit first

    def symbol(number: int) -> int:
        return code(number - 256, 7) if number < 280 else code(0xC0 + number - 280, 8)

    codes = np.zeros(DISTANCE_CODES + 30, np.uint32)
    codes[:LENGTH_CODES] = [code(0x30 + byte, 8) if byte < 144 else code(0x190 + byte - 144, 9) for byte in range(256)]
    matches = [0] * 3
    for number in range(257, 285):
        bits, extra = symbol(number) >> CODE_SIZE_SHIFT, max(0, (number - 261) // 4)
        matches += [symbol(number) + (more << bits) + (extra << CODE_SIZE_SHIFT) for more in range(1 << extra)]
    matches[_LONGEST_MATCH:] = [symbol(285)]
    codes[LENGTH_CODES:DISTANCE_CODES] = matches
    codes[DISTANCE_CODES:] = [code(number, 5) for number in range(30)]
    return codes

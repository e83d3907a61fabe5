"""Hashes a file while it is written, so that its checksum costs no second reading. Kernels fill its buffer in place."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertprep.config import GZIP
from bertprep.files.atomic import AtomicFile
from bertprep.files.checksums import new_hash

FLUSHED_BYTES = 1 << 20


class HashedFile(io.RawIOBase):
    """A file that is being written from a buffer: `flush` compresses the filled bytes if wanted, hashes and writes them.

    Callers fill `memory` from byte `filled` on, and move `filled` forward. The checksum is that of the bytes in the file.
    """

    def __init__(self, file: AtomicFile, compress: str = "") -> None:
        self._file, self._hash = file, new_hash()
        self._gzip = None
        if compress == GZIP:
            from isal import isal_zlib  # takes 10 ms, which uncompressed files need not pay

            self._gzip = isal_zlib.compressobj(1, wbits=31)
        self.memory = np.empty(0, np.uint8)
        self.filled = 0

    def make_room(self, capacity: int) -> bool:
        """Make sure that `capacity` more bytes fit after `filled`; return whether `memory` is a new array."""
        size = 2 * FLUSHED_BYTES + capacity
        if size <= len(self.memory):
            return False
        memory = np.empty(size, np.uint8)
        memory[: self.filled] = self.memory[: self.filled]
        self.memory = memory
        return True

    def flush(self) -> None:
        """Write the filled bytes; with compression only whole chunks, since the chunk bounds decide the compressed bytes."""
        written = self.filled // FLUSHED_BYTES * FLUSHED_BYTES if self._gzip else self.filled
        self._put(self.memory[:written])
        self.filled -= written
        self.memory[: self.filled] = self.memory[written : written + self.filled]

    def write(self, data: Any) -> int:
        self.make_room(FLUSHED_BYTES)
        view = memoryview(data).cast("B")
        for start in range(0, len(view), FLUSHED_BYTES):
            chunk = view[start : start + FLUSHED_BYTES]
            self.memory[self.filled : self.filled + len(chunk)] = chunk
            self.filled += len(chunk)
            if self.filled >= FLUSHED_BYTES:
                self.flush()
        return len(view)

    def finish(self) -> str:
        """Write the remaining bytes, and return the BLAKE3 of the file."""
        self._put(self.memory[: self.filled])
        self.filled = 0  # io.RawIOBase calls `flush` once more when the object is destroyed
        if self._gzip:
            self._write(self._gzip.flush())
        return str(self._hash.hexdigest())

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._file.size_bytes + self.filled

    def _put(self, data: NDArray[np.uint8]) -> None:
        if not self._gzip:
            self._write(data.data)
            return
        for start in range(0, len(data), FLUSHED_BYTES):
            self._write(self._gzip.compress(data[start : start + FLUSHED_BYTES]))

    def _write(self, data: bytes | memoryview) -> None:
        self._hash.update(data)
        self._file.write(data)

"""Writes a text file document by document, with a blank line after each: cleaned text and text shards."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from bertprep import kernels
from bertprep.files.atomic import AtomicFile, atomic_file

WRITE_BYTES = 200_000


class TextWriter:
    """Collects documents and writes them, many small ones at once."""

    def __init__(self, file: AtomicFile) -> None:
        self._file = file
        self._digest = hashlib.sha256()
        self._crc32c = 0
        self._lines = bytearray()

    def add(self, lines: bytes | memoryview) -> None:
        """Add documents: lines that end with newlines, a blank one after each document."""
        if len(lines) >= WRITE_BYTES:
            self.flush()
            self._write(lines)
            return
        self._lines += lines
        if len(self._lines) >= WRITE_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write the rest of the buffer."""
        self._write(self._lines)
        self._lines.clear()

    def _write(self, lines: bytes | bytearray | memoryview) -> None:
        self._digest.update(lines)
        self._crc32c = kernels.load().checksum(self._crc32c, np.frombuffer(lines, np.uint8), len(lines))
        self._file.write(lines)

    def facts(self) -> dict[str, Any]:
        """The size and the checksums of the file, for a manifest: CRC-32C is what readers compare, which costs them nothing."""
        return {"bytes": self._file.size_bytes, "sha256": self._digest.hexdigest(), "crc32c": f"{self._crc32c:08x}"}


@contextmanager
def text_file(path: Path) -> Iterator[TextWriter]:
    """Write `path` atomically, as `atomic_file` does; a file with the same bytes stays. The journal removes leftovers."""
    with atomic_file(path, tidies=False) as file:
        writer = TextWriter(file)
        yield writer
        writer.flush()

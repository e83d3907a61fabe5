"""Computes checksums: the BLAKE3 of the files and texts that bertprep writes and reads, and sha256 where others chose it.

BLAKE3 is several times as fast as sha256, which names vocabularies, tokenizers and questions, and verifies downloads from the
Hub, which publishes it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from blake3 import blake3

BLAKE3, SHA256 = "blake3", "sha256"
_ALGORITHMS: dict[str, Callable[[], Any]] = {BLAKE3: blake3, SHA256: hashlib.sha256}


def new_hash(algorithm: str = BLAKE3) -> Any:
    """Return a hash object with `update` and `hexdigest`, like those of hashlib."""
    return _ALGORITHMS[algorithm]()


def digest(data: Any) -> str:
    """Return the BLAKE3 of a buffer in hexadecimal."""
    return str(blake3(data).hexdigest())


def show_checksum(digits: str, algorithm: str = BLAKE3) -> str:
    """Return a checksum for a message.

    >>> show_checksum("90f6a8" * 8)
    'blake3 90f6a890f6a890f6...'
    """
    return f"{algorithm} {digits[:16]}..."

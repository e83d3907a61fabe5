"""Checksums of files: BLAKE3, several times as fast as sha256, and sha256 where others or earlier versions have taken it.

What bertprep writes and the text that it reads have BLAKE3 in manifests. Manifests of earlier versions have sha256, and are
verified by it; so are downloads, whose sha256 the Hub publishes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from blake3 import blake3

BLAKE3, SHA256 = "blake3", "sha256"
ALGORITHMS: dict[str, Callable[[], Any]] = {BLAKE3: blake3, SHA256: hashlib.sha256}
"""The algorithms, and what makes a hash object of each; the first is that of new manifests."""


class Checksum(NamedTuple):
    """A checksum in hexadecimal, and its algorithm."""

    algorithm: str
    digits: str

    def __str__(self) -> str:
        return f"{self.algorithm} {self.digits[:16]}..."

    def of(self, data: Any) -> Checksum:
        """Return the checksum of a buffer by the same algorithm."""
        return Checksum(self.algorithm, digest(data, self.algorithm))


def new_hash(algorithm: str = BLAKE3) -> Any:
    """Return a hash object as hashlib's, with `update` and `hexdigest`."""
    return ALGORITHMS[algorithm]()


def digest(data: Any, algorithm: str = BLAKE3) -> str:
    """Return the checksum of a buffer in hexadecimal."""
    hashed = new_hash(algorithm)
    hashed.update(data)
    return str(hashed.hexdigest())


def find_checksum(entry: Mapping[str, Any]) -> Checksum | None:
    """Return the checksum in the entry of a file, if there is one."""
    return next((Checksum(name, entry[name]) for name in ALGORITHMS if name in entry), None)


def listed_checksum(entry: Mapping[str, Any]) -> Checksum:
    """Return the checksum in a manifest's entry of a file, which was found to have one when the manifest was read."""
    return Checksum(BLAKE3, entry[BLAKE3]) if BLAKE3 in entry else Checksum(SHA256, entry[SHA256])


def has_checksum(entry: Mapping[str, Any]) -> bool:
    """Return whether a manifest's entry of a file has a checksum."""
    return BLAKE3 in entry or SHA256 in entry

"""Computes checksums of files: BLAKE3 for new manifests, and sha256 where others or earlier versions chose it.

BLAKE3 is several times as fast as sha256. New manifests list the BLAKE3 of the text that was read and of the files that were
written. sha256 still verifies manifests of earlier versions, and downloads from the Hub, which publishes it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from blake3 import blake3

BLAKE3, SHA256 = "blake3", "sha256"
ALGORITHMS: dict[str, Callable[[], Any]] = {BLAKE3: blake3, SHA256: hashlib.sha256}
"""Name of an algorithm -> function that makes its hash object. New manifests use the first."""


class Checksum(NamedTuple):
    """The hexadecimal digits of a checksum, and its algorithm."""

    algorithm: str
    digits: str

    def __str__(self) -> str:
        return f"{self.algorithm} {self.digits[:16]}..."

    def of(self, data: Any) -> Checksum:
        """Return the checksum of a buffer by the same algorithm."""
        return Checksum(self.algorithm, digest(data, self.algorithm))


def new_hash(algorithm: str = BLAKE3) -> Any:
    """Return a hash object with `update` and `hexdigest`, like those of hashlib."""
    return ALGORITHMS[algorithm]()


def digest(data: Any, algorithm: str = BLAKE3) -> str:
    """Return the checksum of a buffer in hexadecimal."""
    hashed = new_hash(algorithm)
    hashed.update(data)
    return str(hashed.hexdigest())


def find_checksum(entry: Mapping[str, Any]) -> Checksum | None:
    """Return the checksum in a file's entry, or None if it has none."""
    return next((Checksum(name, entry[name]) for name in ALGORITHMS if name in entry), None)


def listed_checksum(entry: Mapping[str, Any]) -> Checksum:
    """Return the checksum in a file's entry of a manifest that has been read; reading checks that every entry has one."""
    return Checksum(BLAKE3, entry[BLAKE3]) if BLAKE3 in entry else Checksum(SHA256, entry[SHA256])


def has_checksum(entry: Mapping[str, Any]) -> bool:
    """Return whether a file's entry in a manifest has a checksum."""
    return BLAKE3 in entry or SHA256 in entry

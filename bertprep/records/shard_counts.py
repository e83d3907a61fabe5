"""How many examples each shard gives in each epoch: known only when they have been made, and kept from then on.

    CORPUS/.example-counts.KEY     in the folder of the token shards, or where that cannot be written in this user's cache

    a line of JSON: the version, the sha256 of what follows, the key of what was counted, the numbers of the epochs
    int32 little-endian: (epochs, shards), -1 where it is not known

The key is a sha256 of all that the counts depend on: settings, vocabulary, and the shards by their sha256. A table with another
key, another checksum or numbers that cannot be is as good as none. What it says of a shard is held against what the shard then
gives; a table that was wrong is removed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bertprep.errors import BertprepError
from bertprep.files.atomic import atomic_file
from bertprep.files.object_cache import kept_about
from bertprep.files.places import ObjectPath
from bertprep.untrusted import parse_json, read_bounded

COUNTS = ".example-counts"
_VERSION = 2
_UNKNOWN = -1


class ShardCounts:
    """The counts of the shards of one split under one key; any thread may ask and tell."""

    def __init__(self, folder: Path, key: str, shards: int) -> None:
        self._path, self._key, self._shards = folder / f"{COUNTS}.{key[:16]}", key, shards
        self._lock = threading.Lock()
        self._counts: dict[int, NDArray[np.int32]] = {}  # of the shards, by epoch
        self._is_kept = True
        for path in self._places():
            if (kept := self._read(path)) is not None:
                self._counts = kept
                break

    def of(self, epoch: int, shards: NDArray[np.int64]) -> NDArray[np.int64]:
        """The counts of some shards in an epoch, -1 where they are not known."""
        with self._lock:
            if (counts := self._counts.get(epoch)) is None:
                return np.full(len(shards), _UNKNOWN, np.int64)
            return counts[shards].astype(np.int64)

    def learn(self, epoch: int, shard: int, count: int) -> None:
        """Record a count; raises `BertprepError` where it was thought to be another."""
        with self._lock:
            counts = self._counts.setdefault(epoch, np.full(self._shards, _UNKNOWN, np.int32))
            known = int(counts[shard])
            if known == count:
                return
            if known != _UNKNOWN:
                for path in self._places():
                    with contextlib.suppress(OSError):
                        path.unlink(missing_ok=True)
                raise BertprepError(
                    f"{self._path}: says that shard {shard} gives {known:,} examples in epoch {epoch}, it gives "
                    f"{count:,}; the table is removed, run the same command again"
                )
            counts[shard] = count
            self._is_kept = False

    def keep(self) -> None:
        """Write what was learnt, in the first place where that can be done; several processes may do so at once."""
        with self._lock:
            if self._is_kept:
                return
            for path in self._places():
                for epoch, there in (self._read(path) or {}).items():  # what another process has learnt meanwhile
                    own = self._counts.setdefault(epoch, there)
                    np.copyto(own, there, where=own == _UNKNOWN)
                epochs = sorted(self._counts)
                content = b"".join(self._counts[epoch].astype("<i4").tobytes() for epoch in epochs)
                sha256 = hashlib.sha256(content).hexdigest()
                header = {"version": _VERSION, "sha256": sha256, "key": self._key, "epochs": epochs}
                with contextlib.suppress(BertprepError, OSError):
                    with atomic_file(path) as file:
                        file.write(json.dumps(header).encode() + b"\n" + content)
                    self._is_kept = True
                    return

    def _places(self) -> Iterator[Path]:
        """Where a table can be: beside the shards, or in this user's cache, where there is a place for one."""
        if not isinstance(self._path, ObjectPath):
            yield self._path
        with contextlib.suppress(BertprepError):
            yield kept_about(self._path.absolute())

    def _read(self, path: Path) -> dict[int, NDArray[np.int32]] | None:
        """The counts of a table, None where there is none that is of any use."""
        try:
            line, _, content = read_bounded(path).partition(b"\n")
            header = parse_json(line)
            is_ours = (header["version"], header["key"]) == (_VERSION, self._key)
            if not is_ours or header["sha256"] != hashlib.sha256(content).hexdigest():
                return None
            counts = np.frombuffer(content, "<i4").reshape(-1, self._shards).astype(np.int32)
            epochs = header["epochs"]
            if not all(type(epoch) is int for epoch in epochs) or not ((counts == _UNKNOWN) | (counts > 0)).all():
                return None  # a shard has a document, which gives an example
            return dict(zip(epochs, counts, strict=True))
        except (OSError, ValueError, KeyError, TypeError):
            return None

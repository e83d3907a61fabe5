"""Generate the instances of token shards for each epoch when they are needed, and one group ahead in a thread.

A reader that needs instances makes them itself while it holds a lock of that shard. No reader therefore depends on the thread,
which only saves time.
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from bertprep.config import InstanceSettings
from bertprep.errors import BertprepError
from bertprep.instances import Instances, Vocabulary, generate_instances
from bertprep.pool import map_in_threads
from bertprep.progress import Reporter
from bertprep.tokens.shard import TokenShard

Key = tuple[int, int]
"""An epoch and the index of a shard."""


def epoch_seed(settings: InstanceSettings, *, epoch: int, shard: int) -> int:
    """Return the generator's seed for a shard: that of `create` in epoch 0, later 64 bits of a sha256 of (seed, epoch, shard).

    With `one_seed` all shards have the seed of shard 0.

    >>> [epoch_seed(InstanceSettings(seed=7), epoch=epoch, shard=2) for epoch in range(3)]
    [9, 17431285801109309153, 2575845772511272052]
    """
    if epoch == 0:
        return settings.shard_seed(shard)
    key = f"{settings.seed} {epoch} {0 if settings.one_seed else shard}"
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big")


@dataclass
class _Made:
    """The instances of a shard in an epoch, or None before they are made."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    instances: Instances | None = None


class ShardInstances:
    """The instances of some shards; those of the `held` shards that were last used or made ahead stay in memory.

    Any thread may call it. Raises `BertprepError` for a shard that cannot be read or yields no example.
    """

    def __init__(
        self,
        shards: Sequence[TokenShard],
        seed_numbers: Sequence[int],
        vocabulary: Vocabulary,
        settings: InstanceSettings,
        *,
        held: int,
        reporter: Reporter,
    ) -> None:
        """Prepare the shards; `seed_numbers` has each shard's number in its folder, which its seeds depend on."""
        self._shards, self._seed_numbers, self._vocabulary, self._settings = shards, seed_numbers, vocabulary, settings
        self._held, self._reporter = held, reporter
        self._lock = threading.Lock()  # guards the next three attributes
        self._made: dict[Key, _Made] = {}
        self._ahead: deque[Key] = deque()
        self._thread: threading.Thread | None = None

    def get(self, key: Key) -> Instances:
        """Return the instances of a shard in an epoch."""
        made = self._hold(key)
        with made.lock:
            if made.instances is None:
                made.instances = self._make(key)
            return made.instances

    def make_ahead(self, keys: Sequence[Key]) -> None:
        """Make the missing ones of these instances in a thread; a reader that is faster makes its own."""
        with self._lock:
            self._ahead = deque(key for key in keys if key not in self._made)
            if not self._ahead or (self._thread is not None and self._thread.is_alive()):
                return
            self._thread = threading.Thread(target=self._make_ahead, name="examples-ahead", daemon=True)
            with contextlib.suppress(RuntimeError, MemoryError):
                self._thread.start()

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """The number of instances of each shard in epoch 0: (shards,). The first use makes all of them on all cores."""
        shown = self._reporter.progress("count the examples of epoch 0", len(self._shards))
        lock = threading.Lock()

        def count(shard: int) -> int:
            found = len(self.get((0, shard)))
            with lock:
                shown.advance(1, examples=found)
            return found

        with shown:
            return np.array(map_in_threads(count, range(len(self._shards)), most=self._held), np.int64)

    def close(self) -> None:
        """Free the memory, and wait for the thread to finish its current shard; instances needed later are made again."""
        with self._lock:
            self._made.clear()
            self._ahead.clear()
            thread, self._thread = self._thread, None
        if thread is not None and thread.ident is not None:  # None if the thread could not be started
            thread.join()

    def _hold(self, key: Key) -> _Made:
        """Return the entry of some instances, now the most recently used one, and drop the least recently used ones."""
        with self._lock:
            made = self._made.pop(key, None) or _Made()
            self._made[key] = made
            while len(self._made) > self._held:
                del self._made[next(iter(self._made))]
            return made

    def _make_ahead(self) -> None:
        with contextlib.suppress(Exception):  # the reader that needs the instances makes them again and gets the error
            while self._ahead:
                self.get(self._ahead.popleft())

    def _make(self, key: Key) -> Instances:
        epoch, index = key
        shard = self._shards[index]
        tokens = shard.read(self._vocabulary, pairs=self._settings.has_pairs)
        seed = epoch_seed(self._settings, epoch=epoch, shard=self._seed_numbers[index])
        instances = generate_instances(tokens, self._vocabulary, self._settings, seed=seed)
        if not len(instances):
            raise BertprepError(f"{shard.path}: yields no example; expected at least one from each document")
        return instances

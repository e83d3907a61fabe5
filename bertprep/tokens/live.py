"""Examples made on the fly from token shards: pairs and masks as `create` makes them, without records on disk.

Epoch 0 has `create`'s records. In a later epoch each shard has another seed (`epoch_seed`), unless `repeat_epochs`, and as many
examples as in epoch 0: row r is example r mod n of the n that this seed gives, which are hardly more or fewer. The id of an
example is epoch * len(live) + i, where i counts in `create`'s order. Batches come in the order of `ShardOrder`: a group of
shards is in memory, about 125 bytes an example and 4 a token, and a thread makes the next.

    live = LiveExamples("data/tokens/.../wikipedia", settings=InstanceSettings(seq=128))
    for examples in live.batches(256, first=1000):  # the batches of steps 1000, 1001, ... of a run, over all epochs
        examples.input_ids  # (256, 128), valid until the next

    DataLoader(live, batch_size=256, collate_fn=bertprep.RecordDataset.collate)  # epoch 0; live.set_epoch(1) takes the next
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertprep import pool
from bertprep.config import InstanceSettings
from bertprep.errors import BertprepError, UsageError
from bertprep.files.object_cache import fetch
from bertprep.files.paths import as_path
from bertprep.instances import Instances, generate_instances
from bertprep.instances.vocabulary import load_vocabulary_of
from bertprep.progress import SILENT, Reporter
from bertprep.records.columns import Columns, to_columns
from bertprep.records.examples import Examples, Shape, kind_made_with
from bertprep.records.record_dataset import ColumnDataset
from bertprep.records.records import BadRecordError, check_room
from bertprep.records.rows import RowMaker, addresses
from bertprep.tokens.order import RowIds, ShardOrder, check_epoch, locate_batches, whole_numbers
from bertprep.tokens.shard import TokenShard
from bertprep.work.choose import find_token_shards
from bertprep.work.data_set import DataSet
from bertprep.work.layout import TOKENS, TRAINING

DEFAULT_GROUP = 8
"""Shards whose examples are shuffled together."""


def epoch_seed(settings: InstanceSettings, *, epoch: int, shard: int) -> int:
    """The generator's seed of a shard in an epoch: `create`'s in epoch 0, then 64 bits of a sha256 of (seed, epoch, shard).

    With `one_seed` all shards have that of shard 0.

    >>> [epoch_seed(InstanceSettings(seed=7), epoch=epoch, shard=2) for epoch in range(3)]
    [9, 17431285801109309153, 2575845772511272052]
    """
    if epoch == 0:
        return settings.shard_seed(shard)
    key = f"{settings.seed} {epoch} {0 if settings.one_seed else shard}"
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big")


class LiveExamples(ColumnDataset):
    """The examples of the token shards of a split; any thread may read, one at a time. Use as a context manager, or `close`.

    `live[position]` is an example of an epoch, the first or that of `set_epoch`, which `len` counts. Raises `BertprepError` for
    a shard that cannot be read or does not fit the vocabulary.
    """

    def __init__(
        self,
        data: Path | str | Sequence[Path | str],
        split: str = TRAINING,
        *,
        settings: InstanceSettings | None = None,
        vocab: Path | str | None = None,
        seed: int = 12345,
        shuffle_shards: int = DEFAULT_GROUP,
        repeat_epochs: bool = False,
        reporter: Reporter = SILENT,
    ) -> None:
        """Open folders of token shards; `vocab` if none is next to them. `cased` of the `settings` is the shards' own."""
        folders = [data] if isinstance(data, Path | str) else list(data)
        if not folders:
            raise UsageError("no data; name at least one folder of token shards")
        sets = [find_token_shards([as_path(folder)]) for folder in folders]
        self.vocabulary = load_vocabulary_of(sets[0], as_path(vocab) if vocab is not None else None)
        for other in sets[1:]:
            load_vocabulary_of(other, self.vocabulary.path)
        self.settings = replace(settings or InstanceSettings(), cased=is_cased(sets[0]))
        self.folder, self.split = sets[0].folder, split
        of_sets = [shards_of(each, split) for each in sets]
        self.token_shards = tuple(shard for of_set in of_sets for shard in of_set)
        self._shard_numbers = [number for of_set in of_sets for number in range(len(of_set))]  # which their seeds depend on
        fetch({path: sha256 for shard in self.token_shards for path, sha256 in shard.checksums.items()})
        self._tokens_sha256 = [_sha256_of(shards) for shards in of_sets]
        if shuffle_shards < 1:
            raise UsageError(f"shuffle_shards {shuffle_shards}: must be at least 1")
        self.seed, self.shuffle_shards, self.repeat_epochs = seed, shuffle_shards, repeat_epochs
        self.shape = Shape(kind_made_with(self.settings), self.settings.seq, self.settings.pred)
        self.kind, self.seq, self.pred = self.shape
        self.shards = len(self.token_shards)
        self.epoch = 0
        self._reporter = reporter
        self._known = np.full(self.shards, -1, np.int64)  # how many examples each shard gives, -1 where it was not made yet
        self._open()

    def _open(self) -> None:
        self._process = os.getpid()
        self._rows = RowMaker(self.vocabulary, self.shape)
        self._windows = _Windows(self._make, 3 * self.shuffle_shards)  # of the group before, this one, and the next
        self.order = ShardOrder(self.shards, self._count, seed=self.seed, group=self.shuffle_shards)

    def close(self) -> None:
        """Give the memory back and end the thread; what is asked for later is made again."""
        if self._process == os.getpid():  # the threads of a fork are its parent's
            self._windows.close()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_rows", "_windows", "order")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._open()

    def __repr__(self) -> str:
        return f"LiveExamples({self.folder}: {self.shards:,} shards, examples of {self.seq} tokens)"

    @property
    def _where(self) -> str:
        return repr(self)

    def set_epoch(self, epoch: int) -> None:
        """Let `live[position]` be of another epoch; raises `ValueError` for one that there cannot be."""
        self.epoch = check_epoch(epoch, self)

    def __len__(self) -> int:
        """How many examples an epoch has; the first call makes all of epoch 0, to count them."""
        return int(self.counts.sum())

    @property
    def counts(self) -> NDArray[np.int64]:
        """How many examples each shard gives in every epoch: (shards,)."""
        return self._count(np.arange(self.shards))

    def _read(self, numbers: NDArray[np.int64]) -> Columns:
        examples = self.kind.empty(len(numbers), seq=self.seq, pred=self.pred)
        self._fill(examples, self.order.locate_in_epoch(self.epoch, numbers))
        return to_columns(examples)

    def batches(self, size: int, *, first: int = 0, stop: int | None = None, rows: range | None = None) -> Iterator[Examples]:
        """Yield the batches of steps `first` to stop - 1, or endlessly, over all epochs; of each its `rows`, or all.

        Step n has the positions from n * size on. The arrays of a batch are overwritten by the next.
        """
        batches = locate_batches(self.order.locate, size, first=first, stop=stop, rows=rows)
        own = len(range(size)[rows.start : rows.stop]) if rows else size
        examples = self.kind.empty(own, seq=self.seq, pred=self.pred)
        for ids in batches:
            self._read_ahead(ids)
            self._fill(examples, ids)
            yield examples

    # --- what the trainer reads, as it reads `Records`

    @cached_property
    def sha256(self) -> str:
        """Of all that examples depend on, their order apart; a generator that draws otherwise has another number here."""
        version = 1 if self.repeat_epochs else 2  # in which all epochs have the counts of epoch 0
        made_of = {"settings": asdict(self.settings), "vocabulary": self.vocabulary.sha256, "shards": self._tokens_sha256}
        return hashlib.sha256(json.dumps({"generator": version, **made_of}, sort_keys=True).encode()).hexdigest()

    @property
    def formats(self) -> list[str]:
        return [TOKENS]

    def numbers(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the ids of the examples at positions of the order, counted over all epochs; begin to make the next ones."""
        ids = self.order.locate(positions)
        if ids.rows.size:
            self._read_ahead(ids)
        counts = self.counts
        numbers: NDArray[np.int64] = ids.epochs * counts.sum() + (np.cumsum(counts) - counts)[ids.shards] + ids.rows
        return numbers

    def origin_of(self, number: int) -> tuple[Path, int]:
        """Return the token shard that an example is made of, and its number among the shard's: what an error or a log names."""
        [found] = self._locate(np.array([number], np.int64))
        return self.token_shards[int(found.shards)].path, int(found.rows)

    def gather_good(self, examples: Examples, numbers: NDArray[np.int64]) -> list[BadRecordError]:
        """As `gather_into`; no example is bad by itself."""
        self.gather_into(examples, numbers)
        return []

    def gather_into(self, examples: Examples, numbers: NDArray[np.int64]) -> None:
        """Write the examples of an array of ids, in its order, to the first rows."""
        numbers = whole_numbers(numbers, f"{self}: examples")
        check_room(examples, self.shape, 0, len(numbers), str(self))
        self._fill(examples, self._locate(numbers))

    def _locate(self, numbers: NDArray[np.int64]) -> RowIds:
        ends = np.cumsum(self.counts)
        epochs, indices = np.divmod(numbers, ends[-1])
        shards = np.searchsorted(ends, indices, side="right")
        return RowIds(epochs, shards, indices - (ends - self.counts)[shards])

    # --- examples of shards

    def _fill(self, examples: Examples, ids: RowIds) -> None:
        """Write examples to the first rows, shard after shard, as many at once as are shuffled together."""
        self._check_process()
        epochs = np.zeros_like(ids.epochs) if self.repeat_epochs else ids.epochs
        windows = epochs * self.shards + ids.shards
        found = np.unique(windows)
        indices = np.searchsorted(found, windows)
        for start in range(0, len(found), self.shuffle_shards):
            some = found[start : start + self.shuffle_shards].tolist()
            made = [self._windows.get(divmod(window, self.shards)) for window in some]
            is_own = (start <= indices) & (indices < start + len(made))
            which, counts = indices[is_own] - start, np.array([len(each) for each in made])
            table = np.array([addresses(each) for each in made], np.int64)
            block = self._rows.take(table, which, ids.rows[is_own] % counts[which])
            examples[: len(ids)][is_own] = block

    def _read_ahead(self, ids: RowIds) -> None:
        """Begin to make the group of shards after the last of these rows."""
        self._check_process()
        epoch, shards = self.order.group_after(int(ids.epochs.flat[-1]), int(ids.shards.flat[-1]))
        self._windows.begin((0 if self.repeat_epochs else epoch, shard) for shard in shards.tolist())

    def _count(self, shards: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return how many examples some shards give; those not made yet are made, many by all cores."""
        self._check_process()
        missing = shards[self._known[shards] < 0]
        if len(missing) <= self.shuffle_shards:  # which are read next
            for shard in missing.tolist():
                self._windows.get((0, shard))
        else:
            with (
                self._reporter.progress("count the examples of epoch 0", len(missing)) as shown,
                ThreadPoolExecutor(min(pool.default_workers(), 2 * self.shuffle_shards)) as threads,
            ):
                for count in threads.map(lambda shard: len(self._make((0, shard))), missing.tolist()):
                    shown.advance(1, examples=count)
        return self._known[shards]

    def _make(self, key: tuple[int, int]) -> Instances:
        """Return the instances of a shard in an epoch."""
        epoch, shard = key
        tokens = self.token_shards[shard].read(self.vocabulary, pairs=self.settings.has_pairs)
        seed = epoch_seed(self.settings, epoch=epoch, shard=self._shard_numbers[shard])
        instances = generate_instances(tokens, self.vocabulary, self.settings, seed=seed)
        if not len(instances):
            raise BertprepError(f"{self.token_shards[shard].path}: gives no example; expected one for each document")
        if epoch == 0:
            self._known[shard] = len(instances)
        return instances

    def _check_process(self) -> None:
        if self._process != os.getpid():
            self._open()


def shards_of(data_set: DataSet, split: str) -> tuple[TokenShard, ...]:
    """Return the token shards of a split, in the order of their numbers."""
    found = data_set.paths(split)
    if not found:
        raise UsageError(f"{data_set.folder}: has no {split} split of token shards; name a folder that has it")
    folder, manifest = data_set.folder, data_set.manifest
    return tuple(TokenShard.of(folder, path.relative_to(folder).as_posix(), manifest) for path in found)


def is_cased(data_set: DataSet) -> bool:
    """Return whether token shards are of text as it was written; they are not where nothing tells."""
    return bool(data_set.manifest.made_with["cased"]) if data_set.manifest else False


def _sha256_of(shards: Sequence[TokenShard]) -> str:
    return hashlib.sha256("".join(shard.fingerprint() for shard in shards).encode()).hexdigest()


class _Windows:
    """The instances of shards in epochs, made by a thread ahead of their use; those used last, or asked for, are held."""

    def __init__(self, make: Callable[[tuple[int, int]], Instances], held: int) -> None:
        self._make, self._held, self._lock = make, held, threading.Lock()
        self._futures: dict[tuple[int, int], Future[Instances]] = {}
        self._thread: ThreadPoolExecutor | None = None

    def begin(self, keys: Iterable[tuple[int, int]]) -> None:
        """Begin to make some (epoch, shard), unless they are there."""
        for key in keys:
            self._begin(key)

    def get(self, key: tuple[int, int]) -> Instances:
        """Return the instances of (epoch, shard), made now if that was not begun."""
        try:
            return self._begin(key).result()
        except BaseException:
            self._futures.pop(key, None)
            raise

    def _begin(self, key: tuple[int, int]) -> Future[Instances]:
        with self._lock:
            self._thread = self._thread or ThreadPoolExecutor(1, "on-the-fly-examples")
            future = self._futures.pop(key, None) or self._thread.submit(self._make, key)
            self._futures[key] = future  # as the last
            while len(self._futures) > self._held:
                self._futures.pop(next(iter(self._futures))).cancel()
            return future

    def close(self) -> None:
        """End the thread; what it is making is finished first."""
        with self._lock:
            self._futures.clear()
            if self._thread is not None:
                self._thread.shutdown(cancel_futures=True)
                self._thread = None

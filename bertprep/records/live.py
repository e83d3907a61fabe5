"""Examples made on the fly from token shards: pairs and masks as `create` makes them, without records on disk.

In epoch 0 examples are `create`'s records, in their order; in later epochs shards have other seeds (`epoch_seed`), unless
`repeat_epochs`. The order is that of `ShardOrder`: a group of shards is in memory, about 125 bytes an example and 4 a token,
and a thread makes the next.

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
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertprep import pool
from bertprep.config import InstanceSettings
from bertprep.errors import UsageError
from bertprep.files.object_cache import fetch
from bertprep.files.paths import as_path
from bertprep.instances import Instances, generate_instances
from bertprep.progress import SILENT, Reporter
from bertprep.records.columns import Columns, to_columns
from bertprep.records.data_sets import DataSet, find_token_shards, load_vocabulary_of
from bertprep.records.examples import Examples, Shape, kind_made_with
from bertprep.records.order import ShardOrder, numbers_of_batches
from bertprep.records.reader import check_room
from bertprep.records.record_dataset import ColumnDataset
from bertprep.records.record_set import BadRecordError
from bertprep.records.rows import RowMaker, addresses
from bertprep.records.token_shards import TokenShard
from bertprep.work.layout import TOKENS, TRAINING

DEFAULT_GROUP = 8
"""Shards whose examples are shuffled together."""
_RECORD_BITS = 32


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
        fetch({path: sha256 for shard in self.token_shards for path, sha256 in shard.files.items()})
        self._tokens_sha256 = [_sha256_of(shards) for shards in of_sets]
        if shuffle_shards < 1:
            raise UsageError(f"shuffle_shards {shuffle_shards}: must be at least 1")
        self.seed, self.shuffle_shards, self.repeat_epochs = seed, shuffle_shards, repeat_epochs
        self.shape = Shape(kind_made_with(self.settings), self.settings.seq, self.settings.pred)
        self.kind, self.seq, self.pred = self.shape
        self.shards = len(self.token_shards)
        self.epoch = 0
        self._reporter = reporter
        self._shard_bits = self.shards.bit_length()
        self._counts: dict[int, NDArray[np.int64]] = {}  # of the shards, by epoch; -1 where a shard was not made yet
        self._open()

    def _open(self) -> None:
        self._process = os.getpid()
        self._rows = RowMaker(self.vocabulary, self.shape)
        self.order = ShardOrder(self, seed=self.seed, group=self.shuffle_shards)
        self.set_epoch(self.epoch)
        self._groups, self._single = _Groups(self._make_group), _Groups(lambda key: _Group({key: self._make(key)}))

    def close(self) -> None:
        """Give the memory back and end the thread; what is asked for later is made again."""
        if self._process == os.getpid():  # the threads of a fork are its parent's
            self._groups.close()
            self._single.close()

    def __getstate__(self) -> dict[str, Any]:
        own = "_rows", "order", "_of_epoch", "_groups", "_single"
        return {name: value for name, value in self.__dict__.items() if name not in own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._open()

    def __repr__(self) -> str:
        return f"LiveExamples({self.folder}: {self.shards:,} shards, examples of {self.seq} tokens)"

    _where = property(__repr__)

    def set_epoch(self, epoch: int) -> None:
        """Let `live[position]` and `len` be of another epoch; raises `ValueError` for one that there cannot be."""
        self._check_epoch(epoch)
        self.epoch = epoch
        self._of_epoch = ShardOrder(self, seed=self.seed, group=self.shuffle_shards, first_epoch=epoch)

    def __len__(self) -> int:
        return int(self.counts(self.epoch, np.arange(self.shards)).sum())

    def _read(self, numbers: NDArray[np.int64]) -> Columns:
        self._check_process()
        examples = self.kind.empty(len(numbers), seq=self.seq, pred=self.pred)
        self.gather_into(examples, self._of_epoch.numbers(numbers))
        return to_columns(examples)

    def batches(self, size: int, *, first: int = 0, stop: int | None = None, rows: range | None = None) -> Iterator[Examples]:
        """Yield the batches of steps `first` to stop - 1, or endlessly, over all epochs; of each its `rows`, or all.

        Step n has the positions from n * size on. The arrays of a batch are overwritten by the next.
        """
        batches = numbers_of_batches(self.order, size, first=first, stop=stop, rows=rows)
        own = len(range(size)[rows.start : rows.stop]) if rows else size
        examples = self.kind.empty(own, seq=self.seq, pred=self.pred)
        for numbers in batches:
            self.gather_into(examples, numbers)
            yield examples

    # --- what the trainer reads, as it reads a `RecordSet`: numbers below len(live) are `create`'s records in their order

    @cached_property
    def sha256(self) -> str:
        """Of all that examples depend on, their order apart; a generator that draws otherwise has another number here."""
        made_of = {"settings": asdict(self.settings), "vocabulary": self.vocabulary.sha256, "shards": self._tokens_sha256}
        return hashlib.sha256(json.dumps({"generator": 1, **made_of}, sort_keys=True).encode()).hexdigest()

    @property
    def formats(self) -> list[str]:
        return [TOKENS]

    def numbers_of(self, epoch: int, shards: NDArray[np.int64], records: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return numbers with epoch, shard and record in their bits, above those of `create`'s records."""
        numbers: NDArray[np.int64] = (self._key_of(epoch, shards) << _RECORD_BITS) + records
        return numbers

    def counts(self, epoch: int, shards: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return how many examples each of some shards gives in an epoch; unknown ones are made, many shards by all cores."""
        self._check_process()
        seeded = self._seeded(epoch)
        counts = self._counts.setdefault(seeded, np.full(self.shards, -1))
        missing = shards[counts[shards] < 0]
        groups = np.unique(self.order.groups_of(epoch, missing))
        if len(groups) == 1:
            self._groups.get(int(groups[0]))
        elif len(groups):
            with (
                self._reporter.progress(f"count the examples of epoch {seeded}", len(missing)) as shown,
                ThreadPoolExecutor(min(pool.default_workers(), 2 * self.shuffle_shards)) as threads,
            ):
                for count in threads.map(lambda key: len(self._make(key)), self._key_of(epoch, missing).tolist()):
                    shown.advance(1, examples=count)
        return counts[shards]

    def origin_of(self, number: int) -> tuple[Path, int]:
        """Return the token shard that an example is made of, and its number among the shard's: what an error or a log names."""
        keys, records = self._located(np.array([number], np.int64))
        return self.token_shards[self._of_key(int(keys[0]))[1]].bin, int(records[0])

    def gather_good(self, examples: Examples, numbers: NDArray[np.int64]) -> list[BadRecordError]:
        """As `gather_into`; no example is bad by itself."""
        self.gather_into(examples, numbers)
        return []

    def gather_into(self, examples: Examples, numbers: NDArray[np.int64]) -> None:
        """Write the examples of an array of numbers, in its order, to the first rows."""
        check_room(examples, self.shape, 0, len(numbers), str(self))
        if not len(numbers):
            return
        self._check_process()
        keys, records = self._located(numbers)
        is_ordered = self._is_ordered(numbers)
        groups, held = (self._groups_of(keys), self._groups) if is_ordered else (keys, self._single)
        for number in np.unique(groups).tolist():  # which follow each other, and none of which comes again
            some = np.flatnonzero(groups == number)
            group = held.get(number)
            if is_ordered:
                held.begin(number + 1)
            shards = np.searchsorted(group.keys, keys[some])
            if (records[some] >= group.counts[shards]).any():
                raise IndexError(f"{self}: an example beyond those of its shard")
            block = self._rows.take(group.table, shards, records[some])
            for into, values in zip(examples.arrays, block.arrays, strict=True):
                into[some] = values

    def _key_of(self, epoch: int, shards: NDArray[np.int64]) -> NDArray[np.int64]:
        """An epoch and some shards as one number each; the lowest is above all numbers of shards."""
        self._check_epoch(epoch)
        return (epoch + 1 << self._shard_bits) + shards

    def _check_epoch(self, epoch: int) -> None:
        most = (1 << 63 - _RECORD_BITS - self._shard_bits) - 2  # in the bits that are left
        if not 0 <= epoch <= most:
            raise ValueError(f"{self}: epoch {epoch:,}; expected 0 to {most:,}")

    def _of_key(self, key: int) -> tuple[int, int]:
        return (key >> self._shard_bits) - 1, key & (1 << self._shard_bits) - 1

    def _is_ordered(self, numbers: NDArray[np.int64]) -> bool:
        return int(numbers[0]) >> _RECORD_BITS + self._shard_bits > 0

    def _located(self, numbers: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        if self._is_ordered(numbers):
            return numbers >> _RECORD_BITS, numbers & (1 << _RECORD_BITS) - 1
        ends = np.cumsum(self.counts(0, np.arange(self.shards)))
        shards = np.searchsorted(ends, numbers, side="right")
        if int(np.min(numbers)) < 0 or int(np.max(shards)) == self.shards:
            raise IndexError(f"{self}: a number that is not of the {int(ends[-1]):,} examples of epoch 0")
        return self._key_of(0, shards), numbers - np.concatenate([[0], ends])[shards]

    def _groups_of(self, keys: NDArray[np.int64]) -> NDArray[np.int64]:
        groups = np.empty_like(keys)
        epochs = (keys >> self._shard_bits) - 1
        for epoch in np.unique(epochs).tolist():
            of_epoch = epochs == epoch
            groups[of_epoch] = self.order.groups_of(epoch, keys[of_epoch] & (1 << self._shard_bits) - 1)
        return groups

    def _seeded(self, epoch: int) -> int:
        return 0 if self.repeat_epochs else epoch

    def _make_group(self, number: int) -> _Group:
        epoch, shards = self.order.shards_of(number)
        return _Group({key: self._make(key) for key in self._key_of(epoch, np.sort(shards)).tolist()})

    def _make(self, key: int) -> Instances:
        epoch, shard = self._of_key(key)
        tokens = self.token_shards[shard].read(self.vocabulary, pairs=self.settings.has_pairs)
        seed = epoch_seed(self.settings, epoch=self._seeded(epoch), shard=self._shard_numbers[shard])
        instances = generate_instances(tokens, self.vocabulary, self.settings, seed=seed)
        self._counts.setdefault(self._seeded(epoch), np.full(self.shards, -1))[shard] = len(instances)
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


class _Group:
    """The instances of some shards by their keys, and a table of them for kernels."""

    def __init__(self, shards: dict[int, Instances]) -> None:
        """Hold shards whose keys ascend."""
        self._instances = list(shards.values())  # to whose memory the table points
        self.keys = np.array(list(shards), np.int64)
        self.counts = np.array([len(each) for each in self._instances], np.int64)
        self.table = np.array([addresses(each) for each in self._instances], np.int64)


class _Groups:
    def __init__(self, make: Callable[[int], _Group]) -> None:
        self._make, self._lock = make, threading.Lock()
        self._futures: dict[int, Future[_Group]] = {}
        self._thread: ThreadPoolExecutor | None = None

    def begin(self, number: int) -> Future[_Group]:
        """Begin to make a group; one that is not next to it is no longer wanted."""
        with self._lock:
            for other in [each for each in self._futures if abs(each - number) > 1]:
                self._futures.pop(other).cancel()
            if number not in self._futures:
                self._thread = self._thread or ThreadPoolExecutor(1, "on-the-fly-examples")
                self._futures[number] = self._thread.submit(self._make, number)
            return self._futures[number]

    def get(self, number: int) -> _Group:
        """Return a group, made now if it was not begun."""
        try:
            return self.begin(number).result()
        except BaseException:
            self._futures.pop(number, None)
            raise

    def close(self) -> None:
        """End the thread; what it is making is finished first."""
        with self._lock:
            self._futures.clear()
            if self._thread is not None:
                self._thread.shutdown(cancel_futures=True)
                self._thread = None

"""Examples made of token shards while they are read: pairs and masks as `create` draws them, without records on disk.

Epoch 0 of shard i has the generator's seed that `create` gives it, so its examples are `create`'s records, in their order. In
epoch e > 0 it has `epoch_seed`, a hash of (seed, e, i); with `repeat_epochs` every epoch is epoch 0. The order is that of
`ShardOrder`: a group of shards is in memory, about 125 bytes an example and 4 a token, and the next group is made by a thread.
The compiled loops hold no lock of Python. An example costs about a microsecond of one core (`benchmarks data live`).

    live = LiveExamples("data/tokens/.../wikipedia", settings=InstanceSettings(seq=128))
    for examples in live.batches(256, first=1000):  # the batches of steps 1000, 1001, ... of a run, over all epochs
        examples.input_ids  # (256, 128), valid until the next

    DataLoader(live, batch_size=256, collate_fn=bertprep.RecordDataset.collate)  # epoch 0; live.set_epoch(1) takes the next
"""

from __future__ import annotations

import hashlib
import itertools
import json
import operator
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from bertprep import pool
from bertprep.config import InstanceSettings
from bertprep.errors import UsageError
from bertprep.files.object_cache import fetch
from bertprep.files.places import place
from bertprep.instances import Instances, generate_instances
from bertprep.kernels.numbers import SHARD_WIDTH
from bertprep.progress import SILENT, Reporter
from bertprep.records.columns import Columns, to_columns
from bertprep.records.data_sets import DataSet, find_token_shards, load_vocabulary_of
from bertprep.records.examples import Examples, Shape, kind_made_with
from bertprep.records.order import ShardOrder
from bertprep.records.record_dataset import RecordBatch, Row, count_row, count_rows
from bertprep.records.record_set import BadRecordError
from bertprep.records.rows import RowMaker, addresses
from bertprep.records.shard_counts import ShardCounts
from bertprep.records.token_shards import TokenShard
from bertprep.workspace.layout import TOKENS, TRAINING

DEFAULT_GROUP = 8
"""Shards whose examples are shuffled together."""
_RECORD_BITS = 32
_POSITIONS_AT_ONCE = 4096


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


class LiveExamples:
    """The examples of the token shards of a split; any thread may read, one at a time. Use as a context manager, or `close`.

    `live[position]` is the example at that position of the order of an epoch, the first or that of `set_epoch`, and `len`
    counts that epoch; positions that follow each other cost least. Raises `BertprepError` where a shard cannot be read or does
    not fit the vocabulary.
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
        """`data` are folders of token shards, whose shards come one folder after another; `vocab` if there is none beside them.

        `settings` are those of `create`, of which `cased` is the token shards' own; `seed` is that of the order.
        """
        folders = [data] if isinstance(data, Path | str) else list(data)
        if not folders:
            raise UsageError("no data; name at least one folder of token shards")
        sets = [find_token_shards([place(folder)]) for folder in folders]
        self.vocabulary = load_vocabulary_of(sets[0], place(vocab) if vocab is not None else None)
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
        self._rows = RowMaker(self.vocabulary, self.shape)
        self.shards = len(self.token_shards)
        self.epoch = 0
        self.order = self._of_epoch = ShardOrder(self, seed=seed, group=shuffle_shards)
        self._reporter = reporter
        self._shard_bits = self.shards.bit_length()
        self._open()

    def _open(self) -> None:
        """What a process has for itself: a fork has neither its parent's threads nor a use for its memory."""
        self._process, self._lock = os.getpid(), threading.Lock()
        self._counts = ShardCounts(self.folder, self.sha256, self.shards)
        self._ordered, self._first, self._prefetch = _Memory(), _Memory(), _Prefetch(self._make_group)

    def __enter__(self) -> LiveExamples:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Give the memory back and end the thread; what is asked for later is made again."""
        if self._process != os.getpid():  # the thread, and perhaps a held lock, are the parent's
            return
        with self._lock:
            self._prefetch.close()
            self._ordered, self._first, self._prefetch = _Memory(), _Memory(), _Prefetch(self._make_group)

    def __getstate__(self) -> dict[str, Any]:
        own = ("_process", "_lock", "_counts", "_ordered", "_first", "_prefetch")
        return {name: value for name, value in self.__dict__.items() if name not in own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._open()

    def __repr__(self) -> str:
        return f"LiveExamples({self.folder}: {self.shards:,} shards, examples of {self.seq} tokens)"

    def set_epoch(self, epoch: int) -> None:
        """Let `live[position]` and `len` be of another epoch; raises `ValueError` for one that there cannot be."""
        self._check_epoch(epoch)
        self.epoch = epoch
        self._of_epoch = ShardOrder(self, seed=self.seed, group=self.shuffle_shards, first_epoch=epoch)

    def __len__(self) -> int:
        return int(self._count(self.epoch, np.arange(self.shards)).sum())

    @overload
    def __getitem__(self, positions: int) -> Row: ...
    @overload
    def __getitem__(self, positions: slice | Sequence[int] | NDArray[Any]) -> Columns: ...
    def __getitem__(self, positions: int | slice | Sequence[int] | NDArray[Any]) -> Row | Columns:
        if isinstance(positions, slice):
            return self._columns(np.arange(len(self))[positions])
        if isinstance(positions, bool | np.bool_):
            raise TypeError(f"{self}: {positions}: expected a whole number, a slice, or a list of numbers")
        if hasattr(positions, "__index__") and not getattr(positions, "shape", ()):
            return RecordBatch(self._columns([count_row(operator.index(positions), len(self), str(self))]))[0]
        return self._columns(positions)  # type: ignore[arg-type]

    def __getitems__(self, positions: Sequence[int] | NDArray[np.int64]) -> RecordBatch:
        """The examples at some positions, in their order: what `DataLoader` gives to its `collate_fn`."""
        return RecordBatch(self._columns(positions))

    def _columns(self, positions: Sequence[int] | NDArray[Any]) -> Columns:
        counted = count_rows(positions, len(self), str(self))
        examples = self.kind.empty(len(counted), seq=self.seq, pred=self.pred)
        self.gather_into(examples, self._of_epoch.numbers(counted))
        return to_columns(examples)

    def batches(self, size: int, *, first: int = 0, stop: int | None = None, rows: range | None = None) -> Iterator[Examples]:
        """The batches of steps `first` to stop - 1, or endlessly, over all epochs; of each its `rows`, or all.

        Step n has the positions from n * size on. The arrays of a batch are overwritten by the next.
        """
        if size < 1 or first < 0:
            raise ValueError(f"batches of {size:,} from step {first:,}; expected at least 1, and 0")
        own = np.arange(size)[rows.start : rows.stop] if rows else np.arange(size)
        examples = self.kind.empty(len(own), seq=self.seq, pred=self.pred)
        at_once = max(1, _POSITIONS_AT_ONCE // size)
        steps = itertools.count(first, at_once) if stop is None else iter(range(first, stop, at_once))
        for step in steps:
            count = at_once if stop is None else min(at_once, stop - step)
            for numbers in self.order.numbers(np.arange(step, step + count)[:, None] * size + own):
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
        """What `RecordSet.formats` says."""
        return [TOKENS]

    def numbers_of(self, epoch: int, shards: NDArray[np.int64], records: NDArray[np.int64]) -> NDArray[np.int64]:
        """Numbers with epoch, shard and record in their bits, above those of `create`'s records."""
        numbers: NDArray[np.int64] = (self._key_of(epoch, shards) << _RECORD_BITS) + records
        return numbers

    def known_counts(self, epoch: int, shards: NDArray[np.int64]) -> NDArray[np.int64]:
        """How many examples each of some shards gives in an epoch, -1 where that is not known."""
        self._check_process()
        return self._counts.of(self._seeded(epoch), shards)

    def counts(self, epoch: int, shards: NDArray[np.int64]) -> NDArray[np.int64]:
        """The same, where all of a group that is not known is made to be read."""
        return self._count(epoch, shards, is_to_be_read=True)

    def place_of(self, number: int) -> tuple[Path, int]:
        """The token shard that an example is made of, and its number among the shard's: what an error or a log names."""
        keys, records = self._located(np.array([number], np.int64))
        return self.token_shards[self._of_key(int(keys[0]))[1]].bin, int(records[0])

    def gather_good(self, examples: Examples, numbers: NDArray[np.int64], *, row: int = 0) -> list[BadRecordError]:
        """As `gather_into`; no example is bad by itself."""
        self.gather_into(examples, numbers, row=row)
        return []

    def gather_into(self, examples: Examples, numbers: NDArray[np.int64], *, row: int = 0) -> None:
        """Write the examples of an array of numbers, in its order, to the rows from `row` on."""
        if examples.shape != self.shape or row < 0 or row + len(numbers) > len(examples):
            raise ValueError(f"{len(numbers)} examples of {self.seq}/{self.pred} do not fit {len(examples)} rows from {row} on")
        if not len(numbers):
            return
        self._check_process()
        keys, records = self._located(numbers)
        rows = np.arange(row, row + len(numbers))
        is_ordered = self._is_ordered(numbers)
        with self._lock:
            memory = self._ordered if is_ordered else self._first
            if (places := memory.rows_of(keys)) is not None:
                self._fill(examples, memory, places, records, rows)
                return
            units = self._groups_of(keys) if is_ordered else keys
            for unit in np.unique(units).tolist():  # which follow each other, and none of which comes again
                some = np.flatnonzero(units == unit)
                places = memory.rows_of(keys[some])
                if places is None:
                    memory.hold(self._prefetch.take(unit) if is_ordered else {unit: self._make(unit)})
                    if is_ordered:
                        self._prefetch.begin(unit + 1)
                    places = memory.rows_of(keys[some])
                if places is None:
                    raise IndexError(f"{self}: an example of a shard that its group does not have")
                self._fill(examples, memory, places, records[some], rows[some])

    def _fill(
        self,
        examples: Examples,
        memory: _Memory,
        places: NDArray[np.int64],
        records: NDArray[np.int64],
        rows: NDArray[np.int64],
    ) -> None:
        if (records >= memory.counts[places]).any():
            raise IndexError(f"{self}: an example beyond those of its shard")
        block = self._rows.take(memory.table, places, records)
        for into, values in zip(examples.arrays, block.arrays, strict=True):
            into[rows] = values

    def _key_of(self, epoch: int, shards: NDArray[np.int64]) -> NDArray[np.int64]:
        """An epoch and some shards as one number each; the lowest is above all numbers of shards."""
        self._check_epoch(epoch)
        return (epoch + 1 << self._shard_bits) + shards

    def _check_epoch(self, epoch: int) -> None:
        most = (1 << 63 - _RECORD_BITS - self._shard_bits) - 2  # in the bits that are left
        if not 0 <= epoch <= most:
            raise ValueError(f"{self}: epoch {epoch:,}; expected 0 to {most:,}")

    def _of_key(self, key: int) -> tuple[int, int]:
        """(epoch, shard) of a key."""
        return (key >> self._shard_bits) - 1, key & (1 << self._shard_bits) - 1

    def _is_ordered(self, numbers: NDArray[np.int64]) -> bool:
        return int(numbers[0]) >> _RECORD_BITS + self._shard_bits > 0

    def _located(self, numbers: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The key of the shard that each example is of, and its number there."""
        if self._is_ordered(numbers):
            return numbers >> _RECORD_BITS, numbers & (1 << _RECORD_BITS) - 1
        ends = np.cumsum(self._count(0, np.arange(self.shards)))
        shards = np.searchsorted(ends, numbers, side="right")
        if int(np.min(numbers)) < 0 or int(np.max(shards)) == self.shards:
            raise IndexError(f"{self}: a number that is not of the {int(ends[-1]):,} examples of epoch 0")
        return self._key_of(0, shards), numbers - np.concatenate([[0], ends])[shards]

    def _groups_of(self, keys: NDArray[np.int64]) -> NDArray[np.int64]:
        """The group that each key is of."""
        groups = np.empty_like(keys)
        epochs = (keys >> self._shard_bits) - 1
        for epoch in np.unique(epochs).tolist():
            of_epoch = epochs == epoch
            groups[of_epoch] = self.order.groups_of(epoch, keys[of_epoch] & (1 << self._shard_bits) - 1)
        return groups

    # --- making examples

    def _count(self, epoch: int, shards: NDArray[np.int64], *, is_to_be_read: bool = False) -> NDArray[np.int64]:
        """The counts of some shards in an epoch; what is not known is made, by all cores, of two groups at most at a time."""
        seeded = self._seeded(epoch)
        counts = self.known_counts(epoch, shards)
        missing = shards[counts < 0]
        if not missing.size:
            return counts
        groups = set(self.order.groups_of(epoch, missing).tolist())
        if is_to_be_read and len(groups) == 1:
            self._prefetch.wait(groups.pop())
        else:
            with (
                self._reporter.progress(
                    f"count the examples of epoch {seeded}", len(missing), enabled=len(missing) > self.shuffle_shards
                ) as shown,
                ThreadPoolExecutor(min(pool.default_workers(), 2 * self.shuffle_shards)) as threads,
            ):
                for count in threads.map(lambda key: len(self._make(key)), self._key_of(epoch, missing).tolist()):
                    shown.advance(1, examples=count)
        self._counts.keep()
        return self._counts.of(seeded, shards)

    def _seeded(self, epoch: int) -> int:
        """The epoch whose seeds are taken."""
        return 0 if self.repeat_epochs else epoch

    def _make_group(self, group: int) -> dict[int, Instances]:
        epoch, shards = self.order.shards_of(group)
        made = {key: self._make(key) for key in self._key_of(epoch, shards).tolist()}
        self._counts.keep()
        return made

    def _make(self, key: int) -> Instances:
        """The instances of a shard in an epoch."""
        epoch, shard = self._of_key(key)
        of_shard, words = self.token_shards[shard], self.vocabulary
        tokens = of_shard.read(words, pairs=self.settings.has_pairs)
        seed = epoch_seed(self.settings, epoch=self._seeded(epoch), shard=self._shard_numbers[shard])
        instances = generate_instances(tokens, words, self.settings, seed=seed)
        self._counts.learn(self._seeded(epoch), shard, len(instances))
        return instances

    def _check_process(self) -> None:
        if self._process != os.getpid():
            self._open()


def shards_of(data_set: DataSet, split: str) -> tuple[TokenShard, ...]:
    """The token shards of a split, in the order of their numbers."""
    found = data_set.paths(split)
    if not found:
        raise UsageError(f"{data_set.folder}: has no {split} split of token shards; name a folder that has it")
    folder, manifest = data_set.folder, data_set.manifest
    return tuple(TokenShard.of(folder, path.relative_to(folder).as_posix(), manifest) for path in found)


def is_cased(data_set: DataSet) -> bool:
    """Whether token shards are of text as it was written; they are not where nothing tells."""
    return bool(data_set.manifest.made_with["cased"]) if data_set.manifest else False


def _sha256_of(shards: Sequence[TokenShard]) -> str:
    """What stands for some shards: a sha256 of their files' own, or without a manifest of all lengths and some tokens."""
    return hashlib.sha256("".join(shard.fingerprint() for shard in shards).encode()).hexdigest()


class _Memory:
    """The instances of some shards by their keys, and the table in which a kernel finds them."""

    def __init__(self) -> None:
        self.hold({})

    def hold(self, shards: dict[int, Instances]) -> None:
        """These shards, and no others."""
        held = dict(sorted(shards.items()))
        self._instances = list(held.values())
        self._keys = np.array(list(held), np.int64)
        self.counts = np.array([len(each) for each in self._instances], np.int64)
        self.table = np.array([addresses(each) for each in self._instances], np.int64).reshape(len(held), SHARD_WIDTH)

    def rows_of(self, keys: NDArray[np.int64]) -> NDArray[np.int64] | None:
        """The rows of the table that have these keys; None where one is missing."""
        places = np.searchsorted(self._keys, keys)
        if not len(self._keys) or int(np.max(places)) == len(self._keys) or (self._keys[places] != keys).any():
            return None
        return places


class _Prefetch:
    """Groups that are made by a thread before they are asked for: the next one, and the one whose size is asked for."""

    def __init__(self, make: Callable[[int], dict[int, Instances]]) -> None:
        self._make, self._lock = make, threading.Lock()
        self._futures: dict[int, Future[dict[int, Instances]]] = {}
        self._thread: ThreadPoolExecutor | None = None

    def begin(self, group: int) -> Future[dict[int, Instances]]:
        """Begin to make a group; one that is not next to it is no longer wanted."""
        with self._lock:
            for other in [each for each in self._futures if abs(each - group) > 1]:
                self._futures.pop(other).cancel()
            if group not in self._futures:
                self._thread = self._thread or ThreadPoolExecutor(1, "live-examples")
                self._futures[group] = self._thread.submit(self._make, group)
            return self._futures[group]

    def wait(self, group: int) -> None:
        """Return when a group has been made, which is kept until it is taken."""
        try:
            self.begin(group).result()
        except BaseException:
            self._futures.pop(group, None)
            raise

    def take(self, group: int) -> dict[int, Instances]:
        """A group, which then is the caller's."""
        try:
            return self.begin(group).result()
        finally:
            self._futures.pop(group, None)

    def close(self) -> None:
        """End the thread; what it is making is finished first."""
        with self._lock:
            self._futures.clear()
            if self._thread is not None:
                self._thread.shutdown(cancel_futures=True)
                self._thread = None

"""Make pretraining examples on the fly from token shards, with the pairs and masks of `create` but without records on disk.

Epoch 0 has the records of `create`. In later epochs each shard has another seed (`epoch_seed`), unless `repeat_epochs` is set,
but as many examples as in epoch 0: row r is example r mod n of the n examples that the seed yields. Each shard is therefore
generated once before the first batch, to count its examples. Examples come in the order of `WindowOrder`, and a shard is a
window. One group of shards is in memory, with about 125 bytes per example and 4 per token, and a thread makes the next group.

    live = LiveExamples("data/tokens/.../wikipedia", settings=InstanceSettings(seq=128))
    for examples in live.batches(256, first=1000):  # the batches of steps 1000, 1001, ... of a run, over all epochs
        examples.input_ids  # (256, 128), valid until the next batch

    DataLoader(live, batch_size=256, collate_fn=bertprep.RecordDataset.collate)  # epoch 0; live.set_epoch(1) selects the next
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bertprep.config import InstanceSettings
from bertprep.errors import BertprepError, UsageError
from bertprep.files.object_cache import fetch
from bertprep.files.paths import as_path
from bertprep.instances.lower_case import LetterChanges
from bertprep.instances.vocabulary import load_vocabulary_of
from bertprep.progress import SILENT, Reporter
from bertprep.records.columns import Columns, to_columns
from bertprep.records.examples import Examples, Shape, kind_made_with
from bertprep.records.record_dataset import ColumnDataset
from bertprep.records.records import BadRecordError, Selection, check_room, select_records
from bertprep.records.rows import RowMaker
from bertprep.terminal import warn
from bertprep.tokens.epoch import Epoch
from bertprep.tokens.next_sentences import describe_lone, describe_random, largest_shares_of_tokens, sample_tokens
from bertprep.tokens.order import RowIds, WindowOrder, check_epoch, checked_positions
from bertprep.tokens.shard import TokenShard
from bertprep.tokens.shard_instances import ShardInstances
from bertprep.tokens.token_rows import batch_positions
from bertprep.tokens.window_counts import check_counts, count_windows
from bertprep.work.choose import find_token_shards
from bertprep.work.data_set import DataSet
from bertprep.work.layout import TOKENS, TRAINING

DEFAULT_GROUP = 8
"""The number of shards whose examples are shuffled together."""


class LiveExamples(ColumnDataset):
    """The examples of the token shards of one split; threads may share it. Use it as a context manager, or call `close`.

    `live[i]` is example i in the order of the current epoch, which `set_epoch` changes; `len` is the size of an epoch. Raises
    `BertprepError` for a shard that cannot be read or does not fit the vocabulary.
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
        """Open one or more folders of token shards of sentences.

        `vocab` is needed if there is no vocabulary file next to the shards. The shards decide whether text is cased, whatever
        the `settings` have. `shuffle_shards` is the number of shards whose examples are shuffled together.
        """
        _check_arguments(data, settings, {"seed": (seed, 0), "shuffle_shards": (shuffle_shards, 1)})
        if not isinstance(repeat_epochs, bool) or not isinstance(reporter, Reporter):
            raise UsageError(f"repeat_epochs {repeat_epochs!r:.80}, reporter {reporter!r:.80}: expected a bool and a Reporter")
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
        self._seed_numbers = [number for of_set in of_sets for number in range(len(of_set))]
        fetch({path: checksum for shard in self.token_shards for path, checksum in shard.checksums.items()})
        self._tokens_sha256 = [_sha256_of(shards) for shards in of_sets]
        self.seed, self.shuffle_shards, self.repeat_epochs = int(seed), int(shuffle_shards), repeat_epochs
        self.shape = Shape(kind_made_with(self.settings), self.settings.seq, self.settings.pred)
        self.kind, self.seq, self.pred = self.shape
        self.shards = len(self.token_shards)
        self._epoch = Epoch()
        self._reporter = reporter
        self._open()
        self._warn(sets[0])

    def _warn(self, first: DataSet) -> None:
        """Warn about text that gives poor pairs, or that lost letters when it was lower-cased."""
        letters = LetterChanges.from_counts(first.manifest.counts if first.manifest else {})
        if letters.are_many and not self.settings.cased:
            warn(f"{letters.warning}; tokenize it again with --cased and a cased vocabulary to keep the letters")
        if not self.settings.has_pairs:
            return
        first_shard = self.token_shards[0]
        try:
            fault = describe_lone(largest_shares_of_tokens(self.token_shards), "token shards", "the text")
            line = describe_random(sample_tokens(first_shard), self.vocabulary, self.settings, first_shard.path.name)
        except BertprepError:  # whoever reads a whole shard gets the error
            return
        if fault:
            warn(f"{fault}; make fewer text shards, of more documents, or give settings with pairs='none'")
        if line:
            warn(line)

    def _open(self) -> None:
        self._process = os.getpid()
        self._rows = RowMaker(self.vocabulary, self.shape)
        self._instances = ShardInstances(
            self.token_shards, self._seed_numbers, self.vocabulary, self.settings,
            held=3 * self.shuffle_shards,  # the previous, the current and the next group
            reporter=self._reporter,
        )  # fmt: skip

    def _check_process(self) -> None:
        """Open again in a forked process, which has no copy of its parent's thread but may have copies of its held locks."""
        if self._process != os.getpid():
            self._open()

    def close(self) -> None:
        """Free the memory and end the thread; examples that are read later are made again."""
        if self._process == os.getpid():
            self._instances.close()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_rows", "_instances")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._open()

    def __repr__(self) -> str:
        return f"LiveExamples({self.folder}: {self.shards:,} shards, examples of {self.seq} tokens)"

    def set_epoch(self, epoch: int) -> None:
        """Make `live[i]` read this epoch; raises `ValueError` for a negative or too large number."""
        self._epoch.choose(check_epoch(epoch, self))

    @property
    def epoch(self) -> int:
        """The current epoch; copies and the workers of a DataLoader share it."""
        return self._epoch.number

    # --- properties of the examples

    def __len__(self) -> int:
        """Return the number of examples in an epoch; to count them, a user's first run makes all of epoch 0."""
        return self._order.rows_in_epoch

    @property
    def counts(self) -> NDArray[np.int64]:
        """The number of examples from each shard, the same in every epoch: (shards,)."""
        return self._order.counts

    @cached_property
    def _order(self) -> WindowOrder:
        """The order of all examples. It is pickled with the data set, so workers need not count examples again."""
        self._check_process()
        counts = count_windows(self.shards, {"examples": self.sha256}, lambda: self._instances.counts)
        return WindowOrder(counts, seed=self.seed, group=self.shuffle_shards)

    @cached_property
    def sha256(self) -> str:
        """The sha256 of everything that the examples depend on, except their order."""
        made_of = {
            "settings": asdict(self.settings), "vocabulary": self.vocabulary.sha256, "shards": self._tokens_sha256,
            "repeat_epochs": self.repeat_epochs,
        }  # fmt: skip
        return hashlib.sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()

    @property
    def formats(self) -> list[str]:
        return [TOKENS]

    def row_ids(self, positions: ArrayLike) -> RowIds:
        """Return the ids of the examples at `positions`, which count over all epochs; windows are indices of `token_shards`."""
        return self._order.locate(checked_positions(positions, f"{self}: examples"))

    def origin_of(self, position: int) -> tuple[Path, int]:
        """Return the token shard that yields the example at a position, and the example's index in it, for log messages."""
        found = self.row_ids([position])
        return self.token_shards[int(found.windows[0])].path, int(found.rows[0])

    # --- reading

    def _columns(self, rows: Selection) -> Columns:
        positions = select_records(rows, len(self), repr(self)) + self.epoch * len(self)
        examples = self.kind.empty(len(positions), seq=self.seq, pred=self.pred)
        self._fill(examples, self._order.locate(positions))
        return to_columns(examples)

    def batches(self, size: int, *, first: int = 0, stop: int | None = None, rows: range | None = None) -> Iterator[Examples]:
        """Yield the batches of steps `first` to stop - 1, or endlessly without `stop`, over all epochs.

        The batch of step n begins at position n * size. With `rows`, each batch has only these of its rows. The next batch
        overwrites the arrays of the last one.
        """
        for positions in batch_positions(size, first=first, stop=stop, rows=rows):  # (batches, rows)
            ids = self._order.locate(positions)
            examples = self.kind.empty(positions.shape[1], seq=self.seq, pred=self.pred)
            for batch in range(len(ids)):
                self._make_ahead(ids[batch])
                self._fill(examples, ids[batch])
                yield examples

    def gather_into(self, examples: Examples, positions: ArrayLike) -> None:
        """Write the examples at `positions`, which count over all epochs, to the first rows; start to make the next group."""
        ids = self.row_ids(positions)
        check_room(examples, self.shape, 0, len(ids), str(self))
        self._make_ahead(ids)
        self._fill(examples, ids)

    def gather_good(self, examples: Examples, positions: ArrayLike) -> list[BadRecordError]:
        """Call `gather_into` and return no errors: a generated example is never invalid by itself."""
        self.gather_into(examples, positions)
        return []

    def _fill(self, examples: Examples, ids: RowIds) -> None:
        """Write the examples with these ids to the first rows, reading at most `shuffle_shards` shards at a time."""
        self._check_process()
        epochs = np.zeros_like(ids.epochs) if self.repeat_epochs else ids.epochs
        of_epochs, indices = np.unique(epochs * self.shards + ids.windows, return_inverse=True)
        for start in range(0, len(of_epochs), self.shuffle_shards):
            some = of_epochs[start : start + self.shuffle_shards].tolist()
            made = [self._instances.get(divmod(each, self.shards)) for each in some]
            is_own = (start <= indices) & (indices < start + len(made))
            of_first_epoch = {each: len(found) for each, found in zip(some, made, strict=True) if each < self.shards}
            check_counts(str(self.folder), np.array([*of_first_epoch], np.int64), [*of_first_epoch.values()], self.counts)
            which, counts = indices[is_own] - start, np.array([len(each) for each in made])
            examples[: len(ids)][is_own] = self._rows.take(made, which, ids.rows[is_own] % counts[which])

    def _make_ahead(self, ids: RowIds) -> None:
        """Start to make the group of shards that follows the last of these rows."""
        if not len(ids):
            return
        self._check_process()
        epoch, shards = self._order.group_after(int(ids.epochs[-1]), int(ids.windows[-1]))
        of_epoch = 0 if self.repeat_epochs else epoch
        self._instances.make_ahead([(of_epoch, shard) for shard in shards.tolist()])


def _check_arguments(data: Any, settings: Any, numbers: Mapping[str, tuple[Any, int]]) -> None:
    """Raise `UsageError` for an argument of another type, or a number below its smallest value."""
    if not isinstance(data, Path | str | Iterable):
        raise UsageError(f"data {data!r:.80}: expected a path, or a list of paths")
    if settings is not None and not isinstance(settings, InstanceSettings):
        raise UsageError(f"settings {settings!r:.80}: expected InstanceSettings")
    for name, (value, least) in numbers.items():
        if isinstance(value, bool) or not isinstance(value, Integral):
            raise UsageError(f"{name} {value!r:.80}: expected a whole number")
        if value < least:
            raise UsageError(f"{name} {value}: must be at least {least}")


def shards_of(data_set: DataSet, split: str) -> tuple[TokenShard, ...]:
    """Return the token shards of a split by number; raise `UsageError` if there are none."""
    found = data_set.paths(split)
    if not found:
        raise UsageError(f"{data_set.folder}: has no {split} split of token shards; name a folder that has it")
    folder, manifest = data_set.folder, data_set.manifest
    return tuple(TokenShard.of(folder, path.relative_to(folder).as_posix(), manifest) for path in found)


def is_cased(data_set: DataSet) -> bool:
    """Return whether the manifest says that the shards' text kept its case; without a manifest, return False."""
    return bool(data_set.manifest.made_with["cased"]) if data_set.manifest else False


def _sha256_of(shards: Sequence[TokenShard]) -> str:
    return hashlib.sha256("".join(shard.fingerprint() for shard in shards).encode()).hexdigest()

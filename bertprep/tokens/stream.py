"""Endless batches for PyTorch's DataLoader, which can resume from a single number.

    loader = StatefulDataLoader(dataset.stream(64, rank=rank, world=world), batch_size=None, num_workers=4)

Worker w of W makes batches w, w + W ..., and a DataLoader reads its workers in turn, so the number of workers does not change
the batches or their order. The resume number counts the batches of all ranks together. Loaded into the stream before the
DataLoader is made, it fits any number of workers; StatefulDataLoader's own state fits only the number that it was saved with.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import numpy as np

from bertprep.errors import UsageError
from bertprep.tokens.order import MAX_EPOCHS
from bertprep.tokens.row_state import check_rows, check_state, state_of_rows
from bertprep.tokens.sampler import processes_of_accelerate
from bertprep.work.format import FORMAT

try:
    from torch.utils.data import IterableDataset, get_worker_info
except ModuleNotFoundError:  # documentation and doctests import all modules
    IterableDataset = object


class Batches(Protocol):
    """The source of a stream: a `TokenDataset` or a `Mixture`."""

    def __len__(self) -> int:
        """Return the number of rows; the first call counts them."""

    @property
    def made_of(self) -> dict[str, Any]:
        """Everything that the rows depend on, as plain data."""

    @property
    def rows_in_epoch(self) -> int:
        """The number of rows in an epoch."""

    @property
    def epoch(self) -> int:
        """The current epoch."""

    def set_epoch(self, epoch: int) -> None:
        """Set the current epoch."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Set the epoch to that of a state."""

    def batches(
        self, size: int, *, first: int, stop: int | None, step: int, rows: range, start: int
    ) -> Iterator[dict[str, Any]]:
        """Return these `rows` of batches first, first + step ... below `stop`, or endlessly without `stop`."""

    def batches_of_tokens(self, tokens: int, *, first: int, step: int, start: int, end: int | None) -> Iterator[dict[str, Any]]:
        """Return batches first, first + step ... of at most `tokens` tokens each."""

    def _plan_batches(self, tokens: int, start: int, end: int | None) -> Iterator[tuple[int, int]]:
        """Return the positions at which each batch of at most `tokens` tokens begins and stops."""

    def to_tensors(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Return a batch with tensors in place of its arrays."""


class TokenStream(IterableDataset):
    """The batches of one rank, starting with batch number `batch`.

    An endless stream goes through all epochs by itself, and each `iter` continues where the previous one stopped. A stream with
    `epochs` begins at each `iter` with the first batch after the data set's `set_epoch`, or once with that of a loaded state.

    A DataLoader with workers reads copies of the stream, so each `iter` of the loader starts at `batch` again: keep one
    iterator for a whole run of an endless stream.
    """

    def __init__(
        self, dataset: Batches, batch_size: int | None, *, rank: int, world: int, tokens: int | None, epochs: int | None
    ) -> None:
        """Open a stream; `TokenDataset.stream` explains the arguments."""
        if (batch_size is None) == (tokens is None):
            raise UsageError("a stream has a batch size either in rows or in tokens; give one of batch_size and tokens")
        if not 0 <= rank < world or (batch_size is not None and batch_size < 1):
            raise UsageError(f"batch_size {batch_size}, rank {rank} of {world}: expected at least 1, and a rank below world")
        if epochs is not None and epochs < 1:
            raise UsageError(f"epochs {epochs}: expected at least 1")
        len(dataset)  # count the rows once here, and not in each worker
        self.dataset, self.rank, self.world, self.tokens, self.epochs = dataset, rank, world, tokens, epochs
        self.batch = 0
        self.rows = range(rank * (batch_size or 0), (rank + 1) * (batch_size or 0))
        self.global_batch_size = world * (batch_size or 0)
        self._resumes = False
        self._made_of = state_of_rows(dataset.made_of)
        if tokens is not None:
            dataset.batches_of_tokens(tokens, first=0, step=1, start=0, end=None)  # raises if the value is impossible
        self._counted: dict[int, int] = {}
        if self.batches == 0:
            size = f"{self.global_batch_size:,} rows" if tokens is None else f"{tokens:,} tokens in each of {world} ranks"
            raise UsageError(
                f"{dataset}: {epochs} of its epochs have {(epochs or 1) * dataset.rows_in_epoch:,} rows, too few for a batch "
                f"of {size}; use smaller batches, or read all rows by DataLoader(dataset, batch_size=...)"
            )

    @property
    def batches(self) -> int | None:
        """The number of each rank's batches in a pass, None if the stream is endless; by tokens it differs between epochs."""
        return self._batches_in(self.dataset.epoch)

    def _batches_in(self, epoch: int) -> int | None:
        if self.epochs is None:
            return None
        rows = self.epochs * self.dataset.rows_in_epoch
        if self.tokens is None:
            return rows // self.global_batch_size
        if epoch not in self._counted:
            planned = self.dataset._plan_batches(self.tokens, rows * epoch, rows * (epoch + 1))
            self._counted = {epoch: sum(1 for _ in planned) // self.world}
        return self._counted[epoch]

    def __len__(self) -> int:
        """Return the number of batches in the given `epochs`; raises `TypeError` for an endless stream."""
        if (batches := self.batches) is None:
            raise TypeError("a stream without epochs is endless and has no length; give stream(..., epochs=3)")
        return batches

    def set_epoch(self, epoch: int) -> None:
        """Set the data set's epoch, from which a stream with `epochs` starts; called by loaders of accelerate.

        Raises `UsageError` if such a loader would divide the batches among processes: a stream does that itself.
        """
        if self.world > 1 or processes_of_accelerate() > 1:
            raise UsageError(
                "a stream gives each rank its own rows: do not prepare() its DataLoader, which would divide them again; give "
                "stream(rank=..., world=...), and call the data set's own set_epoch"
            )
        if self.batches is not None:
            self.dataset.set_epoch(epoch)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        # A DataLoader does not tell a stream its batch size, and its collator would stack whole batches without an error. Only
        # the fetcher that calls this method knows.
        if getattr(sys._getframe(1).f_locals.get("self"), "auto_collation", False):
            raise UsageError("a stream has whole batches, which this DataLoader would batch again; give it batch_size=None")
        return self._iterate()

    def _iterate(self) -> Iterator[dict[str, Any]]:
        worker = get_worker_info()
        index, workers = (worker.id, worker.num_workers) if worker else (0, 1)
        if self.batches is not None and (not self._resumes or self.batch >= self.batches):
            self.batch = 0
        self._resumes = False
        for batch in self._read(self.batch + index, workers):
            self.batch += workers  # before the yield, so that a state saved after a batch counts it
            yield self.dataset.to_tensors(batch)

    def _read(self, first: int, step: int) -> Iterator[dict[str, Any]]:
        """Return this rank's rows of batches first, first + step ..."""
        rows = self.dataset.rows_in_epoch * (self.epochs or 0)
        start = rows * self.dataset.epoch
        if self.tokens is None:
            return self.dataset.batches(
                self.global_batch_size, first=first, stop=self.batches, step=step, rows=self.rows, start=start
            )
        end = start + rows if self.epochs else None
        first, step = first * self.world + self.rank, step * self.world
        batches = self.dataset.batches_of_tokens(self.tokens, first=first, step=step, start=start, end=end)
        if self.batches is None:
            return batches
        return itertools.islice(batches, len(range(first, self.batches * self.world, step)))

    def state_dict(self) -> dict[str, Any]:
        """Return the format, the next batch's number, the size of batches, and what rows depend on: documents, masks, seed."""
        epoch = {} if self.batches is None else {"epoch": self.dataset.epoch}
        return {"format": FORMAT, "batch": self.batch, **epoch, **self._sizes, "rows": self._made_of}

    @property
    def _sizes(self) -> dict[str, Any]:
        """The size of a batch of all ranks in rows, or in tokens per rank."""
        if self.tokens is None:
            return {"global_batch_size": self.global_batch_size}
        return {"tokens": self.tokens, "world": self.world}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a state; {"batch": n} alone is enough.

        Raises `UsageError` for the state of another batch size or of other rows and for a value that is not a state, and
        `FormatError` for a state of another format.
        """
        check_state(state, "batch")
        batch = state.get("batch") if isinstance(state, Mapping) else None
        epoch = state.get("epoch") if isinstance(state, Mapping) else None
        if not isinstance(epoch, int) or not 0 <= epoch < MAX_EPOCHS:
            epoch = self.dataset.epoch
        batches = self._batches_in(epoch)
        last = sys.maxsize // (self.global_batch_size or self.world) - 1 if batches is None else batches
        if not isinstance(batch, int | np.integer) or not 0 <= batch <= last:
            limit = "" if batches is None else f"; this stream has {batches:,}"
            raise UsageError(
                f"state {state!r:.200}: expected the number of batches of all ranks that were read, such as {{'batch': 1000}}"
                f"{limit}"
            )
        sizes = {name: value for name, value in state.items() if name in ("global_batch_size", "tokens", "world")}
        if sizes and sizes != self._sizes:
            raise UsageError(
                f"the state has batches of {_in_words(sizes)}, these have {_in_words(self._sizes)}; use the size of the state"
            )
        check_rows(state, self._made_of)
        if "epoch" in state and batches is not None:
            self.dataset.load_state_dict(state)
        self.batch, self._resumes = int(batch), True


def _in_words(sizes: Mapping[str, Any]) -> str:
    """Return the size of a batch of all ranks in words.

    >>> _in_words({"global_batch_size": 64}), _in_words({"tokens": 65536, "world": 2})
    ('64 rows', '65536 tokens in each of 2 ranks')
    """
    if "tokens" in sizes:
        return f"{sizes['tokens']} tokens in each of {sizes.get('world')} ranks"
    return f"{sizes.get('global_batch_size')} rows"


def make_epoch_callback(dataset: Any) -> Any:
    """Return a callback for transformers' Trainer that calls `dataset.set_epoch` at the start of each epoch."""
    from transformers import TrainerCallback

    class SetEpoch(TrainerCallback):
        def on_epoch_begin(self, _arguments: Any, state: Any, _control: Any, **_others: Any) -> None:
            dataset.set_epoch(int(state.epoch or 0))

    return SetEpoch()

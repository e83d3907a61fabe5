"""Batches without an end for PyTorch's DataLoader, and their position: one number, which resumes them.

    loader = StatefulDataLoader(dataset.stream(64, rank=rank, world=world), batch_size=None, num_workers=4)

Worker w of W makes batches w, w + W ..., which a DataLoader takes in turns: batches and their order are the same for any number
of workers. The number counts batches of all ranks together. Loaded before the DataLoader is made, it holds for any number of
workers; StatefulDataLoader's own state holds for as many as it was saved with.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import numpy as np

from bertprep.errors import UsageError

try:
    from torch.utils.data import IterableDataset, get_worker_info
except ModuleNotFoundError:  # documentation and doctests import all modules
    IterableDataset = object


class Batches(Protocol):
    """What a stream reads: a `TokenDataset` or a `Mixture`."""

    def __len__(self) -> int:
        """Return how many rows there are; the first call counts them."""

    @property
    def made_of(self) -> dict[str, Any]:
        """All that rows depend on."""

    def batches(self, size: int, *, first: int, step: int, rows: range) -> Iterator[dict[str, Any]]:
        """Return batches first, first + step ... without an end, of each its `rows`."""

    def to_tensors(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Return a batch with tensors in place of arrays."""


class TokenStream(IterableDataset):  # type: ignore[misc] # torch may be missing
    """The batches of one rank, from batch `batch` on; each `iter` continues where the one before stopped.

    A DataLoader with workers has copies, so each `iter` of it begins at `batch` again: keep one iterator for a whole run.
    """

    def __init__(self, dataset: Batches, batch_size: int, *, rank: int, world: int) -> None:
        """Stream batch_size rows of each batch of all ranks, as `TokenDataset.stream` says."""
        if batch_size < 1 or not 0 <= rank < world:
            raise UsageError(f"batch_size {batch_size}, rank {rank} of {world}: expected at least 1, and a rank below world")
        len(dataset)  # rows are counted here, once, and not by each worker
        self.dataset, self.rank = dataset, rank
        self.batch = 0
        self.rows = range(rank * batch_size, (rank + 1) * batch_size)
        self.global_batch_size = batch_size * world
        made_of = json.loads(json.dumps(dataset.made_of))  # as a state is that went through JSON
        settings = made_of.pop("settings", {})
        self._made_of = {**made_of, **settings}

    def __iter__(self) -> Iterator[dict[str, Any]]:
        worker = get_worker_info()
        index, workers = (worker.id, worker.num_workers) if worker else (0, 1)
        batches = self.dataset.batches(self.global_batch_size, first=self.batch + index, step=workers, rows=self.rows)
        for batch in batches:
            self.batch += workers  # before it is handed over: the state after a batch counts it
            yield self.dataset.to_tensors(batch)

    def state_dict(self) -> dict[str, Any]:
        """Return which batch is next, of how many rows batches are, and what rows are made of: documents, masks, seed."""
        return {"batch": self.batch, "global_batch_size": self.global_batch_size, "rows": self._made_of}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue at a state; {"batch": n} alone is enough.

        Raises `UsageError` for that of batches of another size, or of other rows, and for what is no state.
        """
        batch = state.get("batch") if isinstance(state, Mapping) else None
        if not isinstance(batch, int | np.integer) or not 0 <= batch < sys.maxsize // self.global_batch_size:
            raise UsageError(
                f"state {state!r:.200}: expected how many batches of all ranks were taken, such as {{'batch': 1000}}"
            )
        if (size := state.get("global_batch_size", self.global_batch_size)) != self.global_batch_size:
            raise UsageError(f"the state is of batches of {size} rows, these have {self.global_batch_size:,}; take that size")
        if (made_of := state.get("rows", self._made_of)) != self._made_of:
            raise UsageError(f"the state is of other rows: {_difference(made_of, self._made_of)}; take what it was saved with")
        self.batch = int(batch)


def _difference(of_state: Any, here: Mapping[str, Any]) -> str:
    """Return the settings that differ, in words."""
    if not isinstance(of_state, Mapping):
        return f"{of_state!r:.80}"
    names = [name for name in sorted({*of_state, *here}) if of_state.get(name) != here.get(name)]
    return ", ".join(f"{name} {of_state.get(name)!s:.80}, here {here.get(name)!s:.80}" for name in names)

"""Batches without an end for PyTorch's DataLoader, and their position: one number, which resumes them.

    loader = StatefulDataLoader(dataset.stream(64, rank=rank, world=world), batch_size=None, num_workers=4)

Worker w of W makes batches w, w + W ..., which a DataLoader takes in turns: batches and their order are the same for any number
of workers. The number counts batches of all ranks together. Loaded before the DataLoader is made, it holds for any number of
workers; StatefulDataLoader's own state holds for as many as it was saved with.
"""

from __future__ import annotations

from collections.abc import Iterator
from numbers import Integral
from typing import TYPE_CHECKING, Any

from bertprep.errors import UsageError

try:
    from torch.utils.data import IterableDataset, get_worker_info
except ModuleNotFoundError:  # documentation and doctests import all modules
    IterableDataset = object

if TYPE_CHECKING:
    from bertprep.records.token_rows import Batch, TokenRows


class TokenStream(IterableDataset):  # type: ignore[misc] # torch may be missing
    """The batches of one rank, from batch `batch` on; each `iter` continues where the one before stopped.

    A DataLoader with workers has copies, so each `iter` of it begins at `batch` again: keep one iterator for a whole run.
    """

    def __init__(self, dataset: TokenRows, batch_size: int, *, rank: int, world: int) -> None:
        """As `TokenRows.stream`."""
        if batch_size < 1 or not 0 <= rank < world:
            raise UsageError(f"batch_size {batch_size}, rank {rank} of {world}: expected at least 1, and a rank below world")
        self.dataset, self.rank = dataset, rank
        self.batch = 0
        self.rows = range(rank * batch_size, (rank + 1) * batch_size)
        self.global_batch_size = batch_size * world

    def __iter__(self) -> Iterator[Batch]:
        worker = get_worker_info()
        index, workers = (worker.id, worker.num_workers) if worker else (0, 1)
        batches = self.dataset.batches(self.global_batch_size, first=self.batch + index, step=workers, rows=self.rows)
        for batch in batches:
            self.batch += workers  # before it is handed over: the state after a batch counts it
            yield self.dataset.to_tensors(batch)

    def state_dict(self) -> dict[str, Any]:
        """Return which batch is next, and of how many rows batches are."""
        return {"batch": self.batch, "global_batch_size": self.global_batch_size}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue at a state; {"batch": n} alone is enough. Raises `UsageError` for that of batches of another size."""
        batch = state.get("batch")
        if not isinstance(batch, Integral) or batch < 0:
            raise UsageError(f"state {state}: expected how many batches of all ranks were taken, such as {{'batch': 1000}}")
        if (size := state.get("global_batch_size", self.global_batch_size)) != self.global_batch_size:
            raise UsageError(f"the state is of batches of {size:,} rows, these have {self.global_batch_size:,}; take that size")
        self.batch = int(batch)

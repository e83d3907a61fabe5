"""The order of a data set's rows for a DataLoader: each epoch has its own, and an index knows its epoch.

    loader = DataLoader(dataset, batch_size=64, sampler=dataset.sampler(), collate_fn=dataset.collate)
    for epoch in range(3):
        dataset.set_epoch(epoch)
        for batch in loader: ...

`dataset[i]` has the same documents in every epoch, so that parts of a data set (torch's Subset, random_split) stay apart. What
belongs to an epoch's order needs a `Position` instead: a schedule of the masked share, and rows of similar length together. A
framework may batch, split and skip the positions as it does with other indices.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Protocol

from bertprep.errors import UsageError
from bertprep.tokens.row_state import check_rows, check_state, state_of_rows
from bertprep.work.format import FORMAT


class EpochRows(Protocol):
    """What a sampler orders: a `TokenDataset` or a `Mixture`."""

    def __len__(self) -> int:
        """Return the number of rows of a pass."""

    @property
    def epoch(self) -> int:
        """The current epoch, which counts passes."""

    @property
    def made_of(self) -> dict[str, Any]:
        """Everything that the rows depend on, as plain data."""

    def set_epoch(self, epoch: int) -> None:
        """Set the current epoch."""


class Position(NamedTuple):
    """An index of a row by its position in the run, counted over all epochs; no whole number, which would be a plain index."""

    in_run: int


class TokenSampler:
    """The positions of an epoch's rows in order; with several ranks, each has every `world`-th of them, and all equally many.

    accelerate and Lightning divide a sampler's rows among their processes themselves, and need no `rank` and `world`.
    """

    def __init__(self, dataset: EpochRows, *, rank: int = 0, world: int = 1) -> None:
        """Order the rows of a data set; `TokenDataset.sampler` explains the arguments."""
        if not isinstance(rank, int) or not isinstance(world, int) or not 0 <= rank < world:
            raise UsageError(f"rank {rank} of {world}: expected whole numbers, and a rank from 0 to below the number of ranks")
        self.dataset, self.rank, self.world = dataset, rank, world
        self.made_of = state_of_rows(dataset.made_of)
        if not len(self):
            raise UsageError(f"{dataset}: has {len(dataset):,} rows, too few for {world:,} ranks")

    def __len__(self) -> int:
        """Return the number of positions of this rank; a remainder that not all ranks can have is left out."""
        return len(self.dataset) // self.world

    def __iter__(self) -> Iterator[Position]:
        return _Positions(self)

    def set_epoch(self, epoch: int) -> None:
        """Set the data set's epoch, whose rows the next `iter` gives."""
        self.dataset.set_epoch(epoch)


class _Positions(Iterator[Position]):
    """The positions of one epoch, from any of them on; the state is what StatefulDataLoader keeps."""

    def __init__(self, sampler: TokenSampler) -> None:
        self._sampler = sampler
        self._epoch, self._given = sampler.dataset.epoch, 0

    def __next__(self) -> Position:
        sampler = self._sampler
        if self._given == len(sampler):
            raise StopIteration
        row = self._given * sampler.world + sampler.rank
        self._given += 1
        return Position(self._epoch * len(sampler.dataset) + row)

    def state_dict(self) -> dict[str, Any]:
        sampler = self._sampler
        return {"format": FORMAT, "epoch": self._epoch, "given": self._given, "world": sampler.world, "rows": sampler.made_of}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        check_state(state, "epoch")
        sampler = self._sampler
        epoch, given, world = (state.get(name) for name in ("epoch", "given", "world"))
        if not isinstance(epoch, int) or not isinstance(given, int) or world != sampler.world or not 0 <= given <= len(sampler):
            raise UsageError(
                f"state {state!r:.200}: expected the state of a sampler of {len(sampler):,} positions for {sampler.world} ranks"
            )
        check_rows(state, sampler.made_of)
        self._epoch, self._given = epoch, given

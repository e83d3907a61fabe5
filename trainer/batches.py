"""Choose and read the batch of a step: a pure function of the data, the seed, the step and the global batch.

    position   step * global batch + row: the number of records before this one, over all epochs
    index      the record at that position, in an order that changes with each epoch (bertprep.tokens.order).
               On-the-fly examples of token shards have their own order, and are identified by their position

Each data rank reads an equal, contiguous share of the rows of a global batch. A bad record becomes a row of weight 0. To pack
rows, each rank reads all records of the global batch, and takes its share of the rows that they make (trainer.packed_rows). A
thread reads ahead.

    with TrainingBatches(records, GlobalBatch(256, data_world_size=8, data_rank=3), seed=1).from_step(1000) as batches:
        for batch in batches:  # 32 rows; batch.bad are the bad records among them
            engine.train(batch.arrays, ...)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bertprep.errors import BertprepError
from bertprep.progress import SILENT, Reporter
from bertprep.records import Examples
from bertprep.records.records import BadRecordError, Records
from bertprep.tokens.live import LiveExamples
from bertprep.tokens.order import FileOrder, RecordOrder
from trainer.packed_rows import pack
from trainer.settings import MAX_STEPS
from trainer.token_records import TokenRecords

AnyRecords: TypeAlias = Records | LiveExamples | TokenRecords
"""The source of batches: records on disk, or examples made on the fly."""
READ_AHEAD = 2
"""The number of batches that are prefetched while a step runs."""


@dataclass(frozen=True)
class GlobalBatch:
    """The `size` records of a step, of which each data rank reads a contiguous share.

    >>> GlobalBatch(256, data_world_size=64, data_rank=3).positions(step=1)
    array([268, 269, 270, 271])
    """

    size: int
    data_world_size: int = 1
    data_rank: int = 0

    @property
    def rank_size(self) -> int:
        return self.size // self.data_world_size

    def positions(self, step: int) -> NDArray[np.int64]:
        """Return the positions of this rank's rows of a step: how many records come before each, over all epochs."""
        return np.arange(self.rank_size, dtype=np.int64) + step * self.size + self.data_rank * self.rank_size


class RankBatch(NamedTuple):
    """This rank's rows of a global batch: its features by name, with row_weights, and the bad records among the rows."""

    arrays: dict[str, NDArray[Any]]
    bad: Sequence[BadRecordError]


class TrainingBatches:
    """Reads this rank's rows of the global batch of any step, counted from 0, in an order that changes with each epoch.

    The records of `shuffle_shards` files are permuted together, or all records if it is 0. On-the-fly examples have an order of
    their own. With `packed_into`, examples are packed into rows that divide evenly into that many micro-batches.
    """

    def __init__(
        self, records: AnyRecords, batch: GlobalBatch, *, seed: int, shuffle_shards: int = 0, packed_into: int = 0
    ) -> None:
        self.records, self.batch, self._packed_into = records, batch, packed_into
        self._order: FileOrder | RecordOrder | None = None
        if isinstance(records, Records) and shuffle_shards:
            self._order = FileOrder(records.file_records, seed=seed, group=shuffle_shards)
        elif isinstance(records, Records):
            self._order = RecordOrder(len(records), seed)

    def indices(self, step: int) -> NDArray[np.int64]:
        """Return the (rows,) indices of this rank's records at `step`, or the positions of on-the-fly examples."""
        return self._indices_at(self.batch.positions(step))

    def _indices_at(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        return positions if self._order is None else self._order.indices(positions)

    def locations(self, step: int) -> list[tuple[Path, int]]:
        """Return the file of each of this rank's records at `step`, and the index of the record in the file."""
        return [self.records.origin_of(index) for index in self.indices(step).tolist()]

    def read(self, step: int) -> RankBatch:
        if not self._packed_into:
            return _read(self.records, self.indices(step), self.batch.rank_size)
        of_all = GlobalBatch(self.batch.size)
        arrays, bad = _read(self.records, self._indices_at(of_all.positions(step)), of_all.size)
        packed = pack(arrays, micro_batches=self._packed_into)
        rows = len(packed["input_ids"]) // self.batch.data_world_size
        own = {name: array[self.batch.data_rank * rows :][:rows] for name, array in packed.items()}
        return RankBatch(own, [error for error in bad if error.row // self.batch.rank_size == self.batch.data_rank])

    def from_step(self, first: int, stop: int = MAX_STEPS) -> AbstractContextManager[Iterator[RankBatch]]:
        """Prefetch the batches of steps `first` to stop - 1; a read error is raised when its step is due."""
        return _read_ahead(self.read, range(first, stop))


class EvaluationBatches:
    """Reads the first `most` records (0: all) once, in order, in the same number of batches on every rank.

    Filler rows, bad records, and all rows after a `fault` in reading have weight 0. No error is raised.
    """

    def __init__(self, records: AnyRecords, batch: GlobalBatch, *, most: int = 0, reporter: Reporter = SILENT) -> None:
        self.records, self.batch, self.reporter = records, batch, reporter
        self.sequences = min(most or len(records), len(records))
        self.bad: list[BadRecordError] = []
        self.fault: BertprepError | None = None

    def __iter__(self) -> Iterator[dict[str, NDArray[Any]]]:
        self.bad, self.fault = [], None
        steps = -(-self.sequences // self.batch.size)
        # Not used as a context manager, so it prints lines and no bar: the terminal already shows the training bar
        progress = self.reporter.progress("evaluation", steps, "batches")
        with _read_ahead(self._read, range(steps)) as batches:
            for batch in batches:
                self.bad += batch.bad
                yield batch.arrays
                progress.advance(sequences=self.batch.size)

    def _read(self, step: int) -> RankBatch:
        indices = self.batch.positions(step)
        try:
            if self.fault is None:
                return _read(self.records, indices[indices < self.sequences], self.batch.rank_size)
        except BertprepError as error:
            self.fault = error
        return _read(self.records, indices[:0], self.batch.rank_size)


def _read(records: AnyRecords, indices: NDArray[np.int64], rows: int) -> RankBatch:
    examples = records.kind.empty(rows, seq=records.seq, pred=records.pred)
    bad = records.gather_good(examples, indices) if len(indices) else []
    examples[len(indices) :] = 0
    weights = (np.arange(rows) < len(indices)).astype(np.float32)
    weights[[each.row for each in bad]] = 0
    return RankBatch(features(examples, weights), bad)


def features(examples: Examples, row_weights: NDArray[np.float32] | None = None) -> dict[str, NDArray[Any]]:
    """Return the features of examples by Google's names, as int32 and float32, and row_weights, which are 0 for filler rows."""
    arrays = {}
    for feature, array in zip(examples.features, examples.arrays, strict=True):
        arrays[feature.name] = np.array(array, np.float32 if array.dtype == np.float32 else np.int32)
    weights = np.ones(len(examples), np.float32) if row_weights is None else row_weights
    is_real = arrays.pop("is_real_example", None)
    return {**arrays, "row_weights": weights if is_real is None else weights * is_real.astype(np.float32)}


@contextmanager
def _read_ahead(read: Callable[[int], RankBatch], steps: range) -> Iterator[Iterator[RankBatch]]:
    """Yield the batches of `steps`. While the caller uses one, a thread reads the `READ_AHEAD` batches after it."""
    thread = ThreadPoolExecutor(1, "batches")

    def batches() -> Iterator[RankBatch]:
        pending: deque[Future[RankBatch]] = deque()
        for step in steps:
            pending.append(thread.submit(read, step))
            if len(pending) > READ_AHEAD:  # the batch that is due, and those ahead of it
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()

    try:
        yield batches()
    finally:
        thread.shutdown(cancel_futures=True)

"""Records to the batch of step n, for any engine: a pure function of the data, the seed, the step and the global batch.

    position   step * global batch + row: how many records came before, over all epochs
    number     of the record at that position, by an order that is another in each epoch (bertprep.records.order)

So every record comes once in each epoch, and an epoch that does not end with a batch is continued by the next one, in the same
batch: nothing is dropped, and the step is all that a checkpoint need hold of the position in the data. The rows of a global
batch are cut into equal runs, one for each data rank; however it is cut, a global batch has the same records. Where bad records
may be skipped, each is replaced by the next good one of the data, whichever rank, step or epoch meets it. Two phases of
training are two such sequences: each begins at step 0.

    with RecordSet(["data/ofrecord/.../sample"]) as records:
        batches = TrainingBatches(records, GlobalBatch(256, data_world_size=8, data_rank=3), seed=1)
        with batches.from_step(1000) as ready:
            for examples in ready:  # 32 records, valid until the next
                ...

Examples that are made of token shards (`LiveExamples`) are read as records are; theirs is the order of groups of shards.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertprep.errors import BertprepError
from bertprep.records import Examples
from bertprep.records.live import LiveExamples
from bertprep.records.order import FixedShards, Order, RecordOrder, ShardOrder
from bertprep.records.record_set import BadRecordError, Records, RecordSet, blank
from bertprep.workspace.layout import TEST, TRAINING
from trainer.engines import Engine
from trainer.prefetch import ReadyBatches
from trainer.settings import Phase, RunSettings

_EXPECTED_POSITIONS = 1 << 18  # in which files of a store are looked for in the order of steps: most of 20,000 come
_POSITIONS_AT_ONCE = 4096  # one by one, steps of few records would cost more for their numbers than for their bytes


@dataclass(frozen=True)
class GlobalBatch:
    """The `size` records of a step, and the run of rows that a data rank has of them.

    >>> GlobalBatch(256, data_world_size=8, data_rank=3).rows
    range(96, 128)
    """

    size: int
    data_world_size: int = 1
    data_rank: int = 0

    def __post_init__(self) -> None:
        if self.size < 1 or not 0 <= self.data_rank < self.data_world_size or self.size % self.data_world_size:
            raise ValueError(f"a global batch of {self.size} cannot be cut for rank {self.data_rank} of {self.data_world_size}")

    @property
    def rank_size(self) -> int:
        return self.size // self.data_world_size

    @property
    def rows(self) -> range:
        """The rows of the global batch that are this rank's."""
        return range(self.data_rank * self.rank_size, (self.data_rank + 1) * self.rank_size)


class TrainingBatches:
    """The records of a set, in a new order for each epoch: this rank's rows of the global batch of any step.

    Up to `skip_bad` bad records of a step's rows are replaced, and listed by `take_bad`; one more is raised.
    """

    def __init__(
        self, records: Records, batch: GlobalBatch, *, seed: int, skip_bad: int = 0, order: Order | None = None
    ) -> None:
        """The order is that of all records permuted together with `seed`, unless another is given."""
        self.records, self.batch, self.skip_bad = records, batch, skip_bad
        self.order: Order = order or RecordOrder(len(records), seed)
        self._bad: dict[int, list[BadRecordError]] = {}  # by the step that met them
        self._latest = (-1, np.empty((0, 0), np.int64))  # a first step, and the numbers of the steps from it on

    def numbers(self, step: int) -> NDArray[np.int64]:
        """The numbers of this rank's records at `step`, in the order of their rows."""
        steps = max(1, min(_POSITIONS_AT_ONCE // self.batch.rank_size, len(self.records) // self.batch.size))
        first = step - step % steps
        known, numbers = self._latest
        if known != first:
            numbers = self._numbers_from(first, steps)
            self._latest = first, numbers
        of_step: NDArray[np.int64] = numbers[step - first]
        return of_step

    def _numbers_from(self, first: int, steps: int) -> NDArray[np.int64]:
        """(steps, rows of this rank): the numbers of the records of consecutive steps."""
        positions = np.arange(first, first + steps)[:, None] * self.batch.size + _array(self.batch.rows)
        return self.order.numbers(positions)

    def places(self, step: int) -> list[tuple[Path, int]]:
        """The file of each of this rank's records at `step`, and its number in it: what to look at where a loss goes wrong."""
        return [self.records.place_of(number) for number in self.numbers(step).tolist()]

    def read_into(self, examples: Examples, step: int) -> None:
        """Read this rank's records at `step` to the first rows of existing arrays."""
        numbers = self.numbers(step)
        if self.skip_bad == 0:
            self.records.gather_into(examples, numbers)
        elif bad := self.records.gather_good(examples, numbers):
            self._bad[step] = self._replace(examples, bad)

    def _replace(self, examples: Examples, bad: list[BadRecordError]) -> list[BadRecordError]:
        """Read the next good record of the data to the row of each bad one; returns these, and all that were passed over."""
        met = list(bad)
        for each in bad:
            for distance in range(1, len(self.records)):
                if len({one.number for one in met}) > self.skip_bad:
                    text = f"{met[-1]}; it is one bad record more than --skip-bad-records {self.skip_bad}"
                    raise BadRecordError(text, number=met[-1].number, row=each.row)
                following = np.array([(each.number + distance) % len(self.records)])
                worse = self.records.gather_good(examples, following, row=each.row)
                if not worse:
                    break
                met += worse
            else:
                raise BertprepError(f"{each}; none of the {len(self.records):,} records is good")
        return met

    def take_bad(self, last: int) -> list[tuple[int, BadRecordError]]:
        """The bad records met up to step `last`, and their steps, of what was read since the previous call."""
        steps = sorted(step for step in list(self._bad) if step <= last)
        return [(step, bad) for step in steps for bad in self._bad.pop(step)]

    def from_step(self, first: int, stop: int | None = None, *, held: int = 1) -> ReadyBatches:
        """The batches of the steps from `first` on, read ahead by a thread into reused arrays; see `ReadyBatches`."""
        last = first + max(1, _EXPECTED_POSITIONS // self.batch.size)
        self.records.expect(self.numbers(step) for step in range(first, last if stop is None else min(stop, last)))
        make_arrays = partial(empty_for, self.records, self.batch.rank_size)
        return ReadyBatches(self.read_into, make_arrays, first, stop, held=held, giving_up=self.records.giving_up)


class EvaluationBatches:
    """The first `most` records of a set (with 0 all) once, in order, for all ranks in equally many batches.

    Iterate for (examples, weights of rows), which hold until the next. What is missing in the last global batch is filled with
    rows of zeros and of weight 0: no sum over weights sees them, and every batch has the same shape. So are bad records, which
    are listed in `bad`, and all rows from a `fault` in reading on. Neither is raised: the other ranks are in the middle of the
    same evaluation.
    """

    def __init__(self, records: Records, batch: GlobalBatch, *, most: int = 0) -> None:
        self.records, self.batch = records, batch
        self.sequences = min(most or len(records), len(records))
        self.bad: list[BadRecordError] = []
        self.fault: BertprepError | None = None
        self._weights: dict[int, NDArray[np.float32]] = {}  # of the rows of a step

    def __len__(self) -> int:
        return -(-self.sequences // self.batch.size)

    def __iter__(self) -> Iterator[tuple[Examples, NDArray[np.float32]]]:
        self.records.expect([np.arange(self.sequences)])
        make_arrays = partial(empty_for, self.records, self.batch.rank_size)
        with ReadyBatches(self._read_into, make_arrays, 0, len(self), giving_up=self.records.giving_up) as ready:
            for step, examples in enumerate(ready):
                yield examples, self._weights.pop(step)

    def _read_into(self, examples: Examples, step: int) -> None:
        positions = _array(self.batch.rows) + step * self.batch.size
        weights = (positions < self.sequences).astype(np.float32)
        count = int(weights.sum())
        try:
            if self.fault is None:
                bad = self.records.gather_good(examples, positions[:count])
                weights[[each.row for each in bad]] = 0
                self.bad += bad
        except BertprepError as error:
            self.fault = error
        if self.fault is not None:
            count = 0
            weights[:] = 0
        blank(examples[count:])
        self._weights[step] = weights


class PhaseData:
    """The data of a phase; `batch` is its global batch and this rank's rows of it."""

    def __init__(self, settings: RunSettings, phase: Phase, engine: Engine, records: Records, test: Records | None) -> None:
        self.phase, self.records, self.test = phase, records, test
        self._settings, self._engine = settings, engine
        size = phase.batch_size * engine.devices * phase.accumulation
        self.batch = GlobalBatch(size, engine.data_world_size, engine.data_rank)
        self.order = order_of(records, phase, seed=settings.seed)
        self.batches = self.batches_of(self.batch)
        task = settings.task
        # At the start, which reads the labels or questions: a run must not end at its first evaluation for them
        self.scorer = task.scorer(phase.data[0], test) if isinstance(test, RecordSet) and task.is_scored else None
        self.flops = size * settings.task.flops(settings.model, seq=records.seq, pred=records.pred)  # of a step

    def batches_of(self, batch: GlobalBatch) -> TrainingBatches:
        """The batches of the phase for some ranks."""
        return TrainingBatches(
            self.records, batch, seed=self._settings.seed, skip_bad=self._settings.skip_bad_records, order=self.order
        )

    @property
    def evaluation_batches(self) -> EvaluationBatches:
        """Those of the test split, or of its first sequences."""
        if self.test is None:
            raise ValueError("there is no test split")
        engine = self._engine
        batch = GlobalBatch(self.phase.batch_size * engine.devices, engine.data_world_size, engine.data_rank)
        return EvaluationBatches(self.test, batch, most=self._settings.eval_sequences)

    @cached_property
    def baseline(self) -> dict[str, float | None]:
        """What the task compares an evaluation with, computed once."""
        if self.test is None:
            raise ValueError("there is no test split")
        settings = self._settings
        return settings.task.baseline(self.records, self.test, settings.model, test_sequences=settings.eval_sequences)

    def explain(self, split: str, number: int) -> tuple[str, int, str]:
        """(file, record in it, what is wrong) of a bad record, which another rank may have met."""
        records = self.test if split == TEST and self.test is not None else self.records
        path, record = records.place_of(number)
        try:
            records.gather_into(empty_for(records, 1), np.array([number]))
        except BertprepError as error:
            return str(path), record, str(error).removeprefix(f"{path}: record {record}: ")
        return str(path), record, "another process found it bad, here it is good"


@contextmanager
def open_phase(settings: RunSettings, phase: Phase, engine: Engine) -> Iterator[PhaseData]:
    """The records of a phase, open while the block lasts."""
    with ExitStack() as opened:
        records = opened.enter_context(open_split(settings, phase, TRAINING))
        test = opened.enter_context(open_split(settings, phase, TEST)) if phase.has_test else None
        yield PhaseData(settings, phase, engine, records, test)


def open_split(settings: RunSettings, phase: Phase, split: str) -> Records:
    """The records of a split, or the examples that are made of its token shards."""
    if phase.live is None:
        return settings.task.open_records(phase.data, split, settings.model)
    return phase.live.open(phase.data, split, seed=settings.seed, shuffle_shards=phase.shuffle_shards)


def order_of(records: Records, phase: Phase, *, seed: int) -> Order | None:
    """The order of a phase's records, where it is not that of all permuted together."""
    if isinstance(records, LiveExamples):
        return records.order
    if phase.shuffle_shards and isinstance(records, RecordSet):
        return ShardOrder(FixedShards(records.file_records), seed=seed, group=phase.shuffle_shards)
    return None


def empty_for(records: Records, count: int) -> Examples:
    """Arrays for `count` records of a set, to be read into."""
    return records.kind.empty(count, seq=records.seq, pred=records.pred)


def features(examples: Examples) -> dict[str, NDArray[Any]]:
    """The arrays of examples by their names, as engines take them."""
    return {feature.name: array for feature, array in zip(examples.features, examples.arrays, strict=True)}


def _array(rows: range) -> NDArray[np.int64]:
    return np.arange(rows.start, rows.stop, dtype=np.int64)

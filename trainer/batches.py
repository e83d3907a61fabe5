"""Records to the batch of step n, for any engine: a pure function of the data, the seed, the step and the global batch.

    place    step * global batch + row: how many records came before, over all epochs
    epoch    place // records
    number   permute(place % records), the order of that epoch (trainer.permutation)

So every record comes once in each epoch, and an epoch that does not end with a batch is carried on by the next one, in the
same batch: nothing is dropped, and the step is all that a checkpoint need hold of the position in the data. The rows of a
global batch are cut into equal runs, one for each rank, and these into equal micro-batches; however it is cut, a global batch
has the same records. In place of a bad record, where some may be skipped, stands the next good one of the data, whichever
rank, step or epoch meets it. (Two phases of training are two such sequences: each begins at step 0.)

    with RecordSet(["data/ofrecord/.../sample"]) as records:
        batches = TrainingBatches(records, GlobalBatch(256, data_world_size=8, data_rank=3, accumulation=4), seed=1)
        with batches.from_step(1000) as ready:
            for examples in ready:  # 32 records, valid until the next
                for micro_batch in batches.micro_batches(examples):  # 8 records each
                    ...
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertprep.errors import BertprepError, UsageError
from bertprep.records import Examples
from bertprep.records.record_set import BadRecordError, RecordSet, blank
from trainer.permutation import permute
from trainer.prefetch import ReadyBatches

READY = 2
"""How many batches lie ready while the trainer works on one."""
_PLACES_AT_ONCE = 4096  # one by one, steps of few records would cost more for their numbers than for their bytes


@dataclass(frozen=True)
class GlobalBatch:
    """The `size` records of a step, and what of them falls to a rank: its run of rows, in `accumulation` micro-batches.

    >>> GlobalBatch(256, data_world_size=8, data_rank=3, accumulation=4).rows
    range(96, 128)
    """

    size: int
    data_world_size: int = 1
    data_rank: int = 0
    accumulation: int = 1

    def __post_init__(self) -> None:
        if min(self.size, self.data_world_size, self.accumulation) < 1 or not 0 <= self.data_rank < self.data_world_size:
            raise UsageError(
                f"global batch {self.size}, rank {self.data_rank} of {self.data_world_size}, accumulation {self.accumulation}: "
                "expected 1 or more of each, and ranks counted from 0"
            )
        if self.size % (self.data_world_size * self.accumulation):
            raise UsageError(
                f"a global batch of {self.size:,} cannot be cut into {self.data_world_size:,} ranks x {self.accumulation:,} "
                f"micro-batches; choose a multiple of {self.data_world_size * self.accumulation:,}"
            )

    @property
    def rank_size(self) -> int:
        return self.size // self.data_world_size

    @property
    def micro_batch(self) -> int:
        return self.rank_size // self.accumulation

    @property
    def rows(self) -> range:
        """The rows of the global batch that are this rank's."""
        return range(self.data_rank * self.rank_size, (self.data_rank + 1) * self.rank_size)


class TrainingBatches:
    """The records of a set, shuffled anew for each epoch: this rank's share of the global batch of any step.

    Up to `skip_bad` bad records of a step's share are replaced, and listed by `take_bad`; one more is raised.
    """

    def __init__(self, records: RecordSet, batch: GlobalBatch, *, seed: int, skip_bad: int = 0) -> None:
        self.records, self.batch, self.seed, self.skip_bad = records, batch, seed, skip_bad
        self._bad: dict[int, list[BadRecordError]] = {}  # by the step that met them
        self._latest = (-1, np.empty((0, 0), np.int64))  # a first step, and the numbers of the steps from it on

    def epoch(self, step: int) -> int:
        """The epoch in which the global batch of `step` begins, from 0."""
        return step * self.batch.size // len(self.records)

    def numbers(self, step: int) -> NDArray[np.int64]:
        """The numbers of this rank's records at `step`, in the order of their rows."""
        steps = max(1, min(_PLACES_AT_ONCE // self.batch.rank_size, len(self.records) // self.batch.size))
        first = step - step % steps
        known, numbers = self._latest
        if known != first:
            numbers = self._numbers_from(first, steps)
            self._latest = first, numbers
        of_step: NDArray[np.int64] = numbers[step - first]
        return of_step

    def _numbers_from(self, first: int, steps: int) -> NDArray[np.int64]:
        """(steps, rows of this rank): the numbers of the records at so many steps."""
        rows = np.arange(self.batch.rows.start, self.batch.rows.stop, dtype=np.int64)
        epochs, places = np.divmod(np.arange(first, first + steps)[:, None] * self.batch.size + rows, len(self.records))
        numbers = np.empty_like(places)
        for epoch in range(int(epochs[0, 0]), int(epochs[-1, -1]) + 1):
            of_epoch = epochs == epoch
            numbers[of_epoch] = permute(places[of_epoch], len(self.records), seed=self.seed, epoch=epoch)
        return numbers

    def places(self, step: int) -> list[tuple[Path, int]]:
        """The file of each of this rank's records at `step`, and its number in it: what to look at where a loss goes wrong."""
        return [self.records.place_of(number) for number in self.numbers(step).tolist()]

    def batch_of(self, step: int) -> Examples:
        """This rank's records at `step`, in new arrays."""
        examples = self.make_room()
        self.read_into(examples, step)
        return examples

    def read_into(self, examples: Examples, step: int) -> None:
        """This rank's records at `step`, to the first rows of arrays that are there."""
        numbers = self.numbers(step)
        if self.skip_bad == 0:
            self.records.gather_into(examples, numbers)
        elif bad := self.records.gather_good(examples, numbers):
            self._bad[step] = self._replace(examples, bad)

    def _replace(self, examples: Examples, bad: list[BadRecordError]) -> list[BadRecordError]:
        """Read the next good record of the data in the place of each bad one; returns these, and all that were passed over."""
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
        """The bad records met up to step `last`, and their steps, of what was read since the call before."""
        steps = sorted(step for step in list(self._bad) if step <= last)
        return [(step, bad) for step in steps for bad in self._bad.pop(step)]

    def make_room(self) -> Examples:
        return Examples.empty(self.batch.rank_size, seq=self.records.seq, pred=self.records.pred)

    def micro_batches(self, examples: Examples) -> list[Examples]:
        """The micro-batches of a batch, in its memory."""
        size = self.batch.micro_batch
        return [examples[start : start + size] for start in range(0, len(examples), size)]

    def from_step(self, first: int, stop: int | None = None, *, ready: int = READY, held: int = 1) -> ReadyBatches:
        """The batches of the steps from `first` on, read ahead by a thread into reused arrays; see `ReadyBatches`."""
        return ReadyBatches(self.read_into, self.make_room, first, stop, ready=ready, held=held)


class EvaluationBatches:
    """The records of a set once, in order, for all ranks in equally many batches: iterate for (examples, weights of rows).

    What is missing in the last global batch is filled with its last record, whose predictions and row have weight 0 there: no
    sum over weights sees it, and every batch has the same shape. As with `ReadyBatches`, arrays hold until the next batch.
    Bad records have weight 0 too and are listed in `bad`; from a `fault` in reading on all rows have. Neither is raised: the
    other ranks are in the middle of the same evaluation.
    """

    def __init__(self, records: RecordSet, batch: GlobalBatch, *, most: int = 0) -> None:
        """Of the first `most` records, or with 0 of all."""
        self.records, self.batch = records, batch
        self.sequences = min(most or len(records), len(records))
        self.bad: list[BadRecordError] = []
        self.fault: BertprepError | None = None
        self._lost_rows: dict[int, list[int]] = {}  # of a step

    def __len__(self) -> int:
        return -(-self.sequences // self.batch.size)

    def __iter__(self) -> Iterator[tuple[Examples, NDArray[np.float32]]]:
        with ReadyBatches(self.read_into, self.make_room, 0, len(self), ready=READY, held=1) as ready:
            for step, examples in enumerate(ready):
                yield examples, self.row_weights(step)

    def row_weights(self, step: int) -> NDArray[np.float32]:
        """(rows of this rank,): 1 for a record, 0 for what fills the last batch."""
        weights = (self._places(step) < self.sequences).astype(np.float32)
        weights[self._lost_rows.get(step, [])] = 0
        return weights

    def read_into(self, examples: Examples, step: int) -> None:
        """This rank's records of global batch `step`, to the first rows of arrays that are there."""
        places = self._places(step)
        try:
            if self.fault is None:
                bad = self.records.gather_good(examples, np.minimum(places, self.sequences - 1))
                self._lost_rows[step] = [each.row for each in bad]
                self.bad += bad
        except BertprepError as error:
            self.fault = error
        if self.fault is not None:
            blank(examples)
            self._lost_rows[step] = list(range(len(places)))
        examples.masked_lm_weights[: len(places)][places >= self.sequences] = 0

    def make_room(self) -> Examples:
        return Examples.empty(self.batch.rank_size, seq=self.records.seq, pred=self.records.pred)

    def _places(self, step: int) -> NDArray[np.int64]:
        rows = self.batch.rows
        return np.arange(rows.start, rows.stop, dtype=np.int64) + step * self.batch.size


def features(examples: Examples) -> dict[str, NDArray[Any]]:
    """The arrays of examples by their names, as engines take them."""
    return {field.name: getattr(examples, field.name) for field in fields(examples)}

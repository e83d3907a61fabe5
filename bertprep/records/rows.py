"""Lays out instances as blocks of examples, for record files and for training on the fly.

Blocks are small enough to stay in the processor's cache until they are encoded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from bertprep import kernels
from bertprep.instances import Instances, Vocabulary
from bertprep.records.columns import rows_in_batch
from bertprep.records.examples import Examples, Shape


class RowMaker:
    """Lays out instances as blocks of records; it keeps the constant arrays that all blocks of a shape use."""

    def __init__(self, vocabulary: Vocabulary, shape: Shape) -> None:
        self.shape = shape
        self._special = vocabulary.cls, vocabulary.sep, vocabulary.pad
        self._ones = np.repeat(np.array([1, 0, 1], np.uint8), shape.seq)
        self._weights = np.repeat(np.array([1, 0], np.float32), shape.pred)

    def blocks(self, instances: Instances) -> Iterator[Examples]:
        """Yield the records of a shard in order, in blocks of `rows_in_batch`; each block is overwritten by the next one."""
        count = min(len(instances), rows_in_batch(self.shape))
        block = self.shape.kind.empty(count, seq=self.shape.seq, pred=self.shape.pred)
        indices, records = np.zeros(count, np.int64), np.empty(count, np.int64)
        shards = tabulate([instances])
        fixed = *self._special, self._ones, self._weights, block, shards, indices, records
        lay_out = kernels.load().lay_out.bind(*fixed)
        for first in range(0, len(instances), count):
            filled = min(count, len(instances) - first)
            records[:filled] = np.arange(first, first + filled)
            lay_out(filled)
            yield block if filled == count else block[:filled]

    def take(self, shards: Sequence[Instances], indices: NDArray[np.int64], records: NDArray[np.int64]) -> Examples:
        """Return a block whose row i is record records[i] of shards[indices[i]]."""
        block = self.shape.kind.empty(len(records), seq=self.shape.seq, pred=self.shape.pred)
        fixed = *self._special, self._ones, self._weights, block, tabulate(shards)
        kernels.load().lay_out(*fixed, indices, records, len(records))
        return block


def tabulate(shards: Sequence[Instances]) -> kernels.Table:
    """Return the instances of some shards as an argument for the kernel `lay_out`."""
    return kernels.load().lay_out.table("shards", [vars(instances) for instances in shards])

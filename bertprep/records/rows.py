"""Instances to blocks of examples that stay in the processor's cache: for files, and for training on the fly."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from bertprep import kernels
from bertprep.instances import Instances, Vocabulary
from bertprep.records.columns import rows_in_batch
from bertprep.records.examples import Examples, MaskedExamples, Shape


class RowMaker:
    """Lays out the records of instances in arrays; holds what all blocks of a shape have in common."""

    def __init__(self, vocabulary: Vocabulary, shape: Shape) -> None:
        self.shape = shape
        self._special = vocabulary.cls, vocabulary.sep, vocabulary.pad
        self._ones = np.repeat(np.array([1, 0, 1], np.uint8), shape.seq)
        self._weights = np.repeat(np.array([1, 0], np.float32), shape.pred)
        first = self._ones.ctypes.data
        self._patterns = np.array([first, first + shape.seq, self._weights.ctypes.data], np.int64)

    def blocks(self, instances: Instances) -> Iterator[Examples]:
        """Yield the records of a shard in their order, `rows_in_batch` at a time, in arrays that the next block overwrites."""
        count = min(len(instances), rows_in_batch(self.shape))
        block = self._new_block(count)
        indices, records = np.zeros(count, np.int64), np.empty(count, np.int64)
        fixed = *self._special, self._patterns, block.table(), addresses(instances), indices, records
        lay_out = kernels.load().lay_out.bind(*fixed)
        for first in range(0, len(instances), count):
            filled = min(count, len(instances) - first)
            records[:filled] = np.arange(first, first + filled)
            lay_out(filled)
            yield block if filled == count else block[:filled]

    def take(self, shards: NDArray[np.int64], indices: NDArray[np.int64], records: NDArray[np.int64]) -> Examples:
        """Return record records[i] of shard indices[i] as row i; `shards` has a row of `addresses` for each."""
        block = self._new_block(len(records))
        kernels.load().lay_out(*self._special, self._patterns, block.table(), shards, indices, records, len(records))
        return block

    def _new_block(self, count: int) -> MaskedExamples:
        kind, seq, pred = self.shape
        # masks, segments and labels are bytes in both protobufs and in Arrow's columns, so they are only copied
        dtypes = [np.uint8 if each.values in ("flag", "segment") else each.dtype for each in kind.features]
        block = kind.empty_as(count, dtypes, seq=seq, pred=pred)
        assert isinstance(block, MaskedExamples)
        return block


def addresses(instances: Instances) -> NDArray[np.int64]:
    """Return what a kernel is told of a shard: where its arrays are, in the order of SHARD_WIDTH in `kernels.numbers`."""
    arrays = (
        instances.tokens, instances.slices, instances.is_random_next, instances.mask_ends, instances.mask_positions,
        instances.mask_replacements, instances.order,
    )  # fmt: skip
    return np.array([array.ctypes.data for array in arrays], np.int64)

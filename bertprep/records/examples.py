"""`Examples`: the seven features of many records as arrays, as found in the file, right or wrong.

What a reader gives, and what the validator, the trainer's batches and the converter take. Room for them can be made once
and read into again and again, which is a third faster than new arrays: those cost the system's zeroing of their memory.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertprep.kernels.numbers import FEATURES

__all__ = ["FEATURES", "Examples", "rows_in_block"]

_TYPES = (np.int32, np.int32, np.int32, np.int32, np.int32, np.float32, np.int32)
MOST_VALUES = 65_535
"""Of a feature in one record: the longest sequence that `create` makes. What claims more is no record of BERT's."""
BLOCK_BYTES = 4 << 20
"""Of records that are read, looked at and read over again; at 128 tokens their number is limited by the processor's cache."""


def rows_in_block(most: int, *, seq: int, pred: int) -> int:
    """How many records of that shape to read at a time: `most`, or as many as `BLOCK_BYTES` hold, but one at the least.

    >>> rows_in_block(256, seq=512, pred=80), rows_in_block(256, seq=65_535, pred=9_830)
    (256, 4)
    """
    return max(1, min(most, BLOCK_BYTES // (12 * (seq + pred) + 4)))


@dataclass(frozen=True)
class Examples:
    """n records of seq tokens with room for pred masked ones; 12 * (seq + pred) + 4 bytes a record.

    >>> examples = Examples.empty(1000, seq=128, pred=20)
    >>> len(examples), examples[:10].input_ids.shape
    (1000, (10, 128))
    """

    input_ids: NDArray[np.int32]  # (n, seq)
    input_mask: NDArray[np.int32]  # (n, seq)
    segment_ids: NDArray[np.int32]  # (n, seq)
    masked_lm_positions: NDArray[np.int32]  # (n, pred)
    masked_lm_ids: NDArray[np.int32]  # (n, pred)
    masked_lm_weights: NDArray[np.float32]  # (n, pred)
    next_sentence_labels: NDArray[np.int32]  # (n,)

    @classmethod
    def empty(cls, count: int, *, seq: int, pred: int) -> Examples:
        """Room for `count` records, to be read into."""
        return cls(
            input_ids=np.empty((count, seq), np.int32),
            input_mask=np.empty((count, seq), np.int32),
            segment_ids=np.empty((count, seq), np.int32),
            masked_lm_positions=np.empty((count, pred), np.int32),
            masked_lm_ids=np.empty((count, pred), np.int32),
            masked_lm_weights=np.empty((count, pred), np.float32),
            next_sentence_labels=np.empty(count, np.int32),
        )

    @property
    def seq(self) -> int:
        return int(self.input_ids.shape[1])

    @property
    def pred(self) -> int:
        return int(self.masked_lm_positions.shape[1])

    @property
    def arrays(self) -> tuple[NDArray[np.int32] | NDArray[np.float32], ...]:
        """The seven arrays, in the order of their names above."""
        return (
            self.input_ids,
            self.input_mask,
            self.segment_ids,
            self.masked_lm_positions,
            self.masked_lm_ids,
            self.masked_lm_weights,
            self.next_sentence_labels,
        )

    @cached_property
    def room(self) -> NDArray[np.int64]:
        """Where kernels are to write: the addresses of the arrays, and how many values a record has in each."""
        for array, kind in zip(self.arrays, _TYPES, strict=True):
            if array.dtype != kind or not array.flags.c_contiguous or not array.flags.writeable or len(array) != len(self):
                raise TypeError(f"records are read into contiguous arrays of {kind.__name__}, all as long as the first")
        return np.array([*(a.ctypes.data for a in self.arrays), *(math.prod(a.shape[1:]) for a in self.arrays)], np.int64)

    def __reduce__(self) -> tuple[type[Examples], tuple[NDArray[Any], ...]]:
        return Examples, self.arrays  # the addresses hold in this process only

    def __len__(self) -> int:
        return len(self.input_ids)

    def __getitem__(self, rows: slice) -> Examples:
        """Some of the records, in the same memory."""
        return Examples(*(array[rows] for array in self.arrays))  # type: ignore[arg-type]

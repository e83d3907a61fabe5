"""`Examples`: the seven features of many records as arrays, as found in the file, right or wrong.

What a reader gives, and what the validator, the trainer's batches and the converter take. Room for them can be made once
and read into again and again, which is a third faster than new arrays: those cost the system's zeroing of their memory.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


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

    def __len__(self) -> int:
        return len(self.input_ids)

    def __getitem__(self, rows: slice) -> Examples:
        """Some of the records, in the same memory."""
        return Examples(*(array[rows] for array in self.arrays))  # type: ignore[arg-type]

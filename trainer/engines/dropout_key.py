"""Of what dropout is drawn: a seed, a step and a part of its batch, so that a run that is killed goes on with its masks.

There is no state to keep. Each replica and each micro-batch of a step is a part with a number of its own.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def dropout_key(seed: int, step: int, part: int = 0) -> NDArray[np.int32]:
    """The key, shape (2,), for part number `part` of a step's batch."""
    return (np.random.SeedSequence([seed, step, part]).generate_state(2) >> 2).astype(np.int32)  # 30 bits: room to count up

"""Loss scaling for float16: the loss is multiplied so that small gradients do not vanish, and the product taken out again.

The factor is looked for all the time: gradients that are not finite cost one update, and halve it; so many finite ones in a
row double it, as in NVIDIA's automatic mixed precision. It is never below 1.

The scale is that of a micro-batch's mean loss. A micro-batch has a part of the global batch's loss, and the more parts there
are the smaller are its gradients; so each part's loss is multiplied by their number too, and one scale suits all ways to cut.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

GROWTH_STEPS = 1000
"""Finite updates in a row after which the scale doubles."""


class LossScale(NamedTuple):
    """The scale of the next update, and how many finite updates in a row led to it; numbers, or a framework's tensors."""

    scale: Any
    good_steps: Any


def parts_factor(parts: int) -> float:
    """The number of parts of a global batch as a power of two, with which nothing is rounded.

    >>> parts_factor(1), parts_factor(6)
    (1.0, 8.0)
    """
    return float(2 ** math.ceil(math.log2(parts)))

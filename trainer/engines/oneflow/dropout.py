"""Dropout whose masks are functions of numbers that NumPy draws, so that a run that is resumed has the same.

The random operations of a graph of OneFlow have states of their own, which nothing can set or read: masks after a restart would
differ. So a few random numbers of each token come with the batch, and masks are computed from them: that of unit j of a
token follows from a polynomial with the token's numbers as coefficients,

    (a + b j + c j**2 + d j**3) mod 2039  <  dropout_rate * 2039   ->   dropped

of which any four values are independent; those of other tokens are anyway. It is one product of matrices, and exact: 2039 is
the largest prime for which all of it fits float32.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import oneflow as flow
from numpy.typing import NDArray

Tensor: TypeAlias = Any
PRIME = 2039
COEFFICIENTS = 4


def coefficients_of(width: int) -> int:
    """How many numbers the mask of a row of this width takes: a polynomial has no more than `PRIME` different values."""
    return COEFFICIENTS * _runs(width)


def draw(key: NDArray[np.int32], shape: Sequence[int]) -> NDArray[np.float32]:
    """The numbers that a key gives: as many for each token, in the last axis, as all of its masks take."""
    return np.random.default_rng(key).integers(0, PRIME, shape, np.uint16).astype(np.float32)


def powers() -> NDArray[np.float32]:
    """(4, 2039): what the coefficients of a row are multiplied by, for each unit."""
    units = np.arange(PRIME)
    return np.stack([units**power % PRIME for power in range(COEFFICIENTS)]).astype(np.float32)


def drop(values: Tensor, coefficients: Tensor, powers: Tensor, dropout_rate: float) -> Tensor:
    """The values (..., width), each 0 with probability `dropout_rate` and divided by `1 - dropout_rate` otherwise.

    `coefficients` has the same axes but the last, which is `coefficients_of(width)`.
    """
    width = values.shape[-1]
    limit = math.ceil(dropout_rate * PRIME)  # of the values of a polynomial, those below it drop
    units = flow.narrow(powers, 1, 0, width // _runs(width))
    rest = flow.fmod(flow.matmul(flow.reshape(coefficients, (-1, COEFFICIENTS)), units), float(PRIME))
    kept = flow.trunc(rest * (1 / PRIME) + (1 - (limit - 0.5) / PRIME))  # 0 or 1; to compare takes a CPU 50 times as long
    kept = flow.reshape(kept, tuple(values.shape)) * (PRIME / (PRIME - limit))
    return values * kept.to(values.dtype)


def _runs(width: int) -> int:
    """Into how many equal runs a row is cut, each with a polynomial of its own."""
    return next(runs for runs in range(1, width + 1) if width % runs == 0 and width // runs <= PRIME)

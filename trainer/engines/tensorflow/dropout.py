"""Dropout that depends on a seed and a step alone, so that a run that is killed goes on with the masks it would have had.

There is no state to keep: `trainer.engines.dropout_key` makes a key of two integers, and each place of the model that drops
draws from the key and its own number. Masks are drawn in float32 in every precision: a uniform number of 7 or 10 bits, as
bfloat16 and float16 have, falls below 0.1 in 13 of 128 or 103 of 1024 cases.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import keras
from keras import ops

Tensor: TypeAlias = Any  # of whatever framework Keras runs on


class Dropout:
    """All of the dropout in one forward pass, drawn from one key; without a key nothing is dropped."""

    def __init__(self, key: Tensor | None) -> None:
        self._draws = None if key is None else _Draws(key)

    def __call__(self, values: Tensor, rate: float) -> Tensor:
        """The values, each 0 with probability `rate` and divided by `1 - rate` otherwise."""
        if self._draws is None or rate == 0:
            return values
        kept = keras.random.uniform(ops.shape(values), dtype="float32", seed=self._draws) >= rate
        return values * (ops.cast(kept, values.dtype) * (1 / (1 - rate)))


class _Draws(keras.random.SeedGenerator):  # type: ignore[misc]
    """The seed of draw 1, 2, 3 of a key, where Keras' own generator would keep a variable and count on in it."""

    def __init__(self, key: Tensor) -> None:  # and not that of Keras' generator, which makes the variable
        self._key = key
        self._count = 0

    def next(self, ordered: bool = True) -> Tensor:  # noqa: ARG002 - Keras' signature
        self._count += 1
        return ops.add(self._key, ops.convert_to_tensor([0, self._count], dtype="int32"))

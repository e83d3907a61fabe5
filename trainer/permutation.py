"""The order of an epoch as a pure function of the position in it, without an array of the set's size or a shuffle buffer.

A position is written as two digits, in bases whose product slightly exceeds the number of records. Each round adds to one digit
a hash of the other: a Feistel network, which is one-to-one whatever the hash. The few results outside the set go through the
network again until they fall inside ("cycle walking"), so the result is a permutation of the set.

Any position of any epoch costs the same, 25 to 40 nanoseconds in calls for thousands, so resuming and splitting a batch over
ranks are free. An array of 100 million numbers takes seconds and 800 MB per epoch and process (scripts/benchmark_batches).
"""

import hashlib
import math

import numpy as np
from numpy.typing import NDArray

_MULTIPLIERS = np.array([0xBF58476D1CE4E5B9, 0x94D049BB133111EB], np.uint64)  # splitmix64's constants, David Stafford's mix 13
_HALF = np.uint64(32)
_ROUNDS = 8
_FEW_RECORDS, _ROUNDS_FOR_FEW = 4096, 32  # few values of a digit mix slowly: 8 rounds favour some orders of 5 records

Numbers = NDArray[np.uint64]


def permute(positions: NDArray[np.int64], size: int, *, seed: int, epoch: int) -> NDArray[np.int64]:
    """The record numbers at `positions` of an epoch, all below `size`; a one-to-one function for each seed and epoch.

    It depends only on these numbers, not on the machine or any version.

    >>> permute(np.arange(10), 10, seed=1, epoch=0)
    array([1, 5, 7, 3, 8, 0, 9, 4, 2, 6])
    """
    rounds = _ROUNDS if size > _FEW_RECORDS else _ROUNDS_FOR_FEW
    digest = hashlib.shake_256(f"{seed} {epoch}".encode()).digest(8 * rounds)
    keys = np.frombuffer(digest, "<u8").astype(np.uint64)  # one for each round
    high_base = math.isqrt(max(size - 1, 0)) + 1
    low_base = -(-size // high_base)
    numbers = _walk(positions.astype(np.uint64), np.uint64(high_base), np.uint64(low_base), keys)
    while (outside := np.flatnonzero(numbers >= size)).size:
        numbers[outside] = _walk(numbers[outside], np.uint64(high_base), np.uint64(low_base), keys)
    return numbers.astype(np.int64)


def _walk(numbers: Numbers, high_base: np.uint64, low_base: np.uint64, keys: Numbers) -> Numbers:
    """One application of the network to numbers below high_base * low_base."""
    high = numbers // low_base
    low = numbers - high * low_base
    for key in range(0, len(keys), 2):
        _add_hash(high, low, high_base, keys[key])
        _add_hash(low, high, low_base, keys[key + 1])
    high *= low_base
    high += low
    return high


def _add_hash(digit: Numbers, other: Numbers, base: np.uint64, key: np.uint64) -> None:
    """Add a hash of the other digit to one, modulo its base, in place."""
    mixed = other ^ key
    mixed *= _MULTIPLIERS[0]
    mixed ^= mixed >> _HALF
    mixed *= _MULTIPLIERS[1]
    mixed >>= _HALF
    mixed *= base
    mixed >>= _HALF  # below base
    digit += mixed
    np.minimum(digit, digit - base, out=digit)  # the subtraction wraps around to a huge number if it does not apply

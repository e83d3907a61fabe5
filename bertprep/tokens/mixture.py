"""Several token data sets as one, by weights: of each `PERIOD` rows every set has its whole number, in an order of the seed.

The pattern of a period is the same in all, so which set row n is of, and which of its rows, are pure functions of n; `counts`
are exact, for any batch size and any number of readers. A set whose rows are used up goes on with its next epoch, on its own.

    mixture = Mixture([(wikipedia, 0.7), (code, 0.3)])
    StatefulDataLoader(mixture.stream(64), batch_size=None)
    mixture.describe(rows=1_000_000)  # what was read of each set, for a manifest
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from bertprep.errors import UsageError
from bertprep.records.columns import Columns
from bertprep.terminal import warn
from bertprep.tokens.dataset import TokenDataset
from bertprep.tokens.order import permute
from bertprep.tokens.token_rows import SEQUENTIAL, TokenRows

PERIOD = 1 << 16
"""Rows after which the pattern of sets repeats; a weight is rounded to a multiple of its inverse."""
_ALIKE = "seq", "packed", "objective", "first_position"


class Mixture(TokenRows):
    """Rows of several data sets, whose lengths and tokenizer are alike; each row is of one of them.

    It is used as a `TokenDataset` is. An epoch has as many rows as all sets together, but not each of them once: how often a
    set is read follows from its weight.
    """

    def __init__(
        self,
        sets: Iterable[tuple[TokenDataset, float]] | Iterable[TokenDataset],
        *,
        temperature: float | None = None,
        max_epochs: float | None = None,
        rows: int | None = None,
        seed: int = 12345,
    ) -> None:
        """`sets` are pairs of a data set and its weight; or data sets alone, whose weights are their tokens.

        A `temperature` raises the tokens to that power: 1 is in proportion to sizes, and 0 makes all alike. With
        `max_epochs` no set is read more often than that in the first `rows` rows, and what it would have is shared out among
        the others.
        """
        separated, weights = _separate(sets, temperature)
        self.sets = tuple(separated)
        weights /= weights.sum()
        if max_epochs is not None or rows is not None:
            weights = _cap(self.sets, weights, max_epochs, rows)
        self.weights = weights.tolist()
        first = self.sets[0]
        self.folder, self.seq, self.packed, self.first_position = first.folder, first.seq, first.packed, first.first_position
        self.objective = first.objective
        for other in self.sets[1:]:
            for name in _ALIKE:
                if getattr(other, name) != getattr(first, name):
                    raise UsageError(f"{other}: has {name} {getattr(other, name)}, {first} has {getattr(first, name)}")
            if other.documents.tokenizer.sha256 != first.documents.tokenizer.sha256:
                raise UsageError(f"{other.folder}: is of another tokenizer than {first.folder}; a model has one")
        self.seed, self.epoch = seed, 0
        self._in_period = apportion(self.weights, PERIOD)
        if min(self._in_period) < 1:
            raise UsageError(f"weights {weights.tolist()}: each must be at least 1 / {PERIOD:,} of their sum")
        by_set = np.repeat(np.arange(len(self.sets)), self._in_period)
        positions = permute(np.arange(PERIOD, dtype=np.int64), PERIOD, seed=seed, epoch=0)
        self._pattern = by_set[positions]
        self._earlier = np.empty(PERIOD, np.int64)  # rows of the same set before, in a period
        for index, count in enumerate(self._in_period):
            self._earlier[self._pattern == index] = np.arange(count)
        self._has_warned = False
        self._fix("sets", "weights", "folder", "seed", *_ALIKE)

    def __repr__(self) -> str:
        shares = " + ".join(f"{weight:.3g} {dataset.folder}" for dataset, weight in zip(self.sets, self.weights, strict=True))
        return f"Mixture({shares}: rows of {self.seq} tokens)"

    def close(self) -> None:
        """Give the memory of all sets back."""
        for dataset in self.sets:
            dataset.close()

    def __len__(self) -> int:
        return sum(map(len, self.sets))

    @property
    def rows_in_epoch(self) -> int:
        return len(self)

    @property
    def made_of(self) -> dict[str, Any]:
        """All that rows depend on."""
        return {"sets": [each.sha256 for each in self.sets], "rows": self._in_period, "seed": self.seed}

    @property
    def sha256(self) -> str:
        """Of all that rows depend on."""
        return hashlib.sha256(json.dumps(self.made_of).encode()).hexdigest()

    def locate(self, positions: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the set of each row, and its position there, counted over all epochs of the set."""
        periods, offsets = np.divmod(positions, PERIOD)
        of_set = self._pattern[offsets]
        return of_set, periods * np.array(self._in_period)[of_set] + self._earlier[offsets]

    def counts(self, rows: int) -> list[int]:
        """Return how many of the first `rows` rows are of each set."""
        periods, left = divmod(rows, PERIOD)
        of_rest = np.bincount(self._pattern[:left], minlength=len(self.sets)).tolist()
        return [periods * count + more for count, more in zip(self._in_period, of_rest, strict=True)]

    def describe(self, rows: int) -> list[dict[str, Any]]:
        """Return what the first `rows` rows are made of, as a manifest has it."""
        return [
            {
                "folder": str(dataset.folder), "sha256": dataset.sha256, "weight": weight, "rows": count,
                "epochs": round(count * dataset.epochs / len(dataset), 6), "documents": dataset.documents.documents,
                "tokens": dataset.documents.tokens,
            }
            for dataset, weight, count in zip(self.sets, self.weights, self.counts(rows), strict=True)
        ]  # fmt: skip

    def _read(self, positions: NDArray[np.int64]) -> Columns:
        of_sets, in_sets = self.locate(positions)
        columns: Columns = {}
        for index in np.unique(of_sets).tolist() or [0]:
            is_own = of_sets == index
            for name, values in self.sets[index]._read(in_sets[is_own]).items():
                if name not in columns:
                    columns[name] = np.empty((len(positions), *values.shape[1:]), values.dtype)
                columns[name][is_own] = values
        return columns

    def _lengths(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        of_sets, in_sets = self.locate(positions)
        lengths = np.empty(len(positions), np.int64)
        for index in np.unique(of_sets).tolist():
            is_own = of_sets == index
            lengths[is_own] = self.sets[index]._lengths(in_sets[is_own])
        return lengths

    def _check_random_order(self, positions: NDArray[np.int64]) -> None:  # noqa: ARG002 - the order alone matters
        if not self._has_warned:
            self._has_warned = True
            warn(f"{self}: the sets are mixed in its own order, which a batch in random order undoes; {SEQUENTIAL}")


def _separate(given: Iterable[object], temperature: float | None) -> tuple[list[TokenDataset], NDArray[np.float64]]:
    """Return the data sets and their weights, whose sum is finite."""
    items = [*given] if isinstance(given, Iterable) and not isinstance(given, Mapping) else []
    alone = [item for item in items if isinstance(item, TokenDataset)]
    if alone and len(alone) == len(items):
        return alone, _weights_by_size(alone, 1.0 if temperature is None else temperature)
    sets, weights = [], []
    for item in items:
        match item:
            case (TokenDataset() as dataset, Real() as weight) if 0 < cast(float, weight) <= sys.float_info.max:
                sets.append(dataset)
                weights.append(float(weight))
    if not sets or len(sets) < len(items):
        raise UsageError("a mixture is of one or more (data set, weight), with finite weights above 0, or of data sets alone")
    if temperature is not None:
        raise UsageError(f"temperature {temperature}: makes weights of sizes; give it or weights, not both")
    found = np.array(weights)
    return sets, found if math.isfinite(sum(weights)) else found / max(weights)


def _weights_by_size(sets: Sequence[TokenDataset], temperature: float) -> NDArray[np.float64]:
    """Return the tokens of data sets to the power of a temperature, the largest as 1."""
    if not isinstance(temperature, Real) or not 0 <= temperature <= 1:
        raise UsageError(f"temperature {temperature!r}: expected a number from 0, all sets alike, to 1, in proportion to sizes")
    tokens = np.array([each.documents.tokens for each in sets], np.float64)
    weights: NDArray[np.float64] = (tokens / tokens.max()) ** float(temperature)
    return weights


def _cap(
    sets: Sequence[TokenDataset], weights: NDArray[np.float64], max_epochs: float | None, rows: int | None
) -> NDArray[np.float64]:
    """Return weights by which no set is read more than `max_epochs` times in `rows` rows.

    What is taken from a set is shared out among the others by their weights, again until none has too many.
    """
    if not isinstance(max_epochs, Real) or not isinstance(rows, int | np.integer) or max_epochs <= 0 or rows < 1:
        raise UsageError(f"max_epochs {max_epochs!r}, rows {rows!r}: give both, the epochs and the rows of the run, above 0")
    most = np.array([each.rows_in_epoch for each in sets]) * float(max_epochs) / int(rows)
    if most.sum() < 1:
        raise UsageError(
            f"max_epochs {max_epochs:g}: all sets together have {round(most.sum() * rows):,} rows in that many epochs, fewer "
            f"than rows {rows:,}; give more epochs, or fewer rows"
        )
    is_full = np.zeros(len(sets), np.bool_)
    while True:
        left = 1 - most[is_full].sum()
        shares = np.where(is_full, most, weights * left / max(weights[~is_full].sum(), sys.float_info.min))
        is_over = ~is_full & (shares > most)
        if not is_over.any():
            return shares
        is_full |= is_over


def apportion(fractions: Sequence[float], total: int) -> list[int]:
    """Return whole numbers that add up to `total`, as near to its fractions as can be: the largest remainders are rounded up.

    >>> apportion([0.5, 0.3, 0.2], 8)
    [4, 2, 2]
    """
    exact = np.array(fractions) * total
    counts = np.floor(exact).astype(np.int64)
    most_left = np.argsort(counts - exact, kind="stable")
    counts[most_left[: total - int(counts.sum())]] += 1
    return [int(count) for count in counts]

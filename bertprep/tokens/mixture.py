"""Mix several token data sets by weight: the rows of each set are spread evenly over every `PERIOD` rows.

All periods have the same pattern, so the set of row n, and the row's position in it, are pure functions of n. The first n rows
have each set's share of n to within a row or two, for any batch size and any number of readers. Where rows of similar length
follow each other (`by_length`), the pattern has runs of rows in place of rows. A set whose rows are used up starts its next
epoch independently of the others.

    mixture = Mixture([(wikipedia, 0.7), (code, 0.3)])
    StatefulDataLoader(mixture.stream(64), batch_size=None)
    mixture.describe(rows=1_000_000)  # how much was read of each set, for a manifest
"""

from __future__ import annotations

import hashlib
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from bertprep.errors import UsageError
from bertprep.records.columns import Columns
from bertprep.tokens.dataset import TokenDataset
from bertprep.tokens.epoch import Epoch
from bertprep.tokens.order import LengthOrder, check_seed
from bertprep.tokens.token_rows import TokenRows

PERIOD = 1 << 16
"""The pattern of sets repeats after this many rows, and weights are rounded to multiples of 1 / PERIOD."""
_ALIKE = "seq", "packed", "objective", "first_position"


class Mixture(TokenRows):
    """Rows of several data sets with the same row length and tokenizer, with the methods of `TokenDataset`.

    Each row comes from one of the sets. An epoch has as many rows as all sets together, but does not read each row once: the
    weight of a set decides how often it is read.
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
        """Mix `sets`, which are pairs of a data set and its weight, or data sets alone, weighted by their numbers of tokens.

        `temperature` is the exponent of the numbers of tokens: with 1 the weights are in proportion to the sizes, and with 0
        they are equal. With `max_epochs`, no set is read more often than that in the first `rows` rows, and the excess is
        distributed over the other sets.
        """
        separated, weights = _separate(sets, temperature)
        self.sets = tuple(separated)
        first = self.sets[0]
        self.folder, self.seq, self.packed, self.first_position = first.folder, first.seq, first.packed, first.first_position
        self.objective = first.objective
        for other in self.sets[1:]:
            for name in _ALIKE:
                if getattr(other, name) != getattr(first, name):
                    raise UsageError(
                        f"{other}: has {name} {getattr(other, name)}, {first} has {getattr(first, name)}; use one {name}"
                    )
            if other.column_names != first.column_names:
                raise UsageError(
                    f"{other}: has the columns {', '.join(other.column_names)}, {first} has "
                    f"{', '.join(first.column_names)}; mix only data sets with the same columns"
                )
            if other.documents.tokenizer.sha256 != first.documents.tokenizer.sha256:
                raise UsageError(
                    f"{other.folder}: has another tokenizer than {first.folder}; mix only data sets of the same tokenizer"
                )
        _check_no_set_twice(self.sets)
        self.seed = check_seed(seed)
        self._epoch = Epoch()
        self._run = min([LengthOrder.rows_in_run(each.rows_in_epoch) for each in self.sets if each.by_length], default=1)
        self._use(weights / weights.sum())
        if max_epochs is not None or rows is not None:
            self._cap(max_epochs, rows)
        self._fix("sets", "weights", "folder", "seed", *_ALIKE)

    def _use(self, weights: NDArray[np.float64]) -> None:
        """Make the pattern of the sets with these weights, whose sum is 1."""
        in_period = apportion(weights.tolist(), PERIOD)
        if min(in_period) < 1:
            raise UsageError(f"weights {weights.tolist()}: each must be at least 1 / {PERIOD:,} of their sum")
        self.weights, self._in_period = weights.tolist(), in_period
        digest = hashlib.shake_256(f"{self.seed} mixture".encode()).digest(8 * len(self.sets))
        phases = np.frombuffer(digest, "<u8") / 2.0**64
        times = [(np.arange(count) + phase) / count for count, phase in zip(in_period, phases.tolist(), strict=True)]
        self._pattern = np.repeat(np.arange(len(self.sets)), in_period)[np.argsort(np.concatenate(times), kind="stable")]
        self._earlier = np.empty(PERIOD, np.int64)  # the number of earlier runs of the same set in the period
        for index, count in enumerate(in_period):
            self._earlier[self._pattern == index] = np.arange(count)

    def _cap(self, max_epochs: float | None, rows: int | None) -> None:
        """Change the weights so that the first `rows` rows have at most `max_epochs` epochs of each set.

        Counts are whole runs, and weights are whole units of the period, so a set at the limit may need to stay some of these
        below it. Where all sets are at the limit, it is exceeded by as little.
        """
        if not isinstance(max_epochs, Real) or not isinstance(rows, int | np.integer) or max_epochs <= 0 or rows < 1:
            raise UsageError(
                f"max_epochs {max_epochs!r}, rows {rows!r}: expected both, above 0; rows is the total of the whole run"
            )
        weights = np.array(self.weights)
        most = np.array([each.rows_in_epoch for each in self.sets]) * float(max_epochs)
        if most.sum() < rows:
            raise UsageError(
                f"max_epochs {max_epochs:g}: in that many epochs all sets together have {round(most.sum()):,} rows, fewer than "
                f"rows {rows:,}; increase max_epochs, or reduce rows"
            )
        step = self._run + int(rows) / PERIOD
        for spare in (0, step, 2 * step, 4 * step):
            if most.sum() - spare * len(most) < rows or (most <= spare).any():
                break
            self._use(_cap_weights(weights, (most - spare) / int(rows)))
            if (np.array(self.counts(int(rows))) <= most).all():
                break

    def __repr__(self) -> str:
        shares = " + ".join(f"{weight:.3g} {dataset.folder}" for dataset, weight in zip(self.sets, self.weights, strict=True))
        return f"Mixture({shares}: rows of {self.seq} tokens)"

    def close(self) -> None:
        """Free the memory of all sets; rows that are read later are made again."""
        for dataset in self.sets:
            dataset.close()

    def __len__(self) -> int:
        return sum(map(len, self.sets))

    @property
    def rows_in_epoch(self) -> int:
        return len(self)

    @property
    def _tokenizer_width(self) -> int:
        return self.sets[0].documents.tokenizer.width

    @property
    def made_of(self) -> dict[str, Any]:
        """Everything that the rows depend on, as plain data."""
        rows = {"rows": self._in_period, "run": self._run}
        return {"sets": [each.sha256 for each in self.sets], **rows, "seed": self.seed}

    def locate(self, positions: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the index of each row's set, and the row's position in the set, which counts over all epochs of the set."""
        runs, offsets = np.divmod(positions, self._run)
        periods, runs = np.divmod(runs, PERIOD)
        of_set = self._pattern[runs]
        earlier = periods * np.array(self._in_period)[of_set] + self._earlier[runs]
        return of_set, earlier * self._run + offsets

    def counts(self, rows: int) -> list[int]:
        """Return how many of the first `rows` rows come from each set."""
        runs, left = divmod(rows, self._run)
        periods, runs = divmod(runs, PERIOD)
        of_sets = periods * np.array(self._in_period) + np.bincount(self._pattern[:runs], minlength=len(self.sets))
        of_sets *= self._run
        of_sets[self._pattern[runs]] += left
        return [int(count) for count in of_sets]

    def describe(self, rows: int) -> list[dict[str, Any]]:
        """Return a manifest entry for each set, which tells how many of its rows and epochs are in the first `rows` rows."""
        return [
            {
                "folder": str(dataset.folder), "sha256": dataset.sha256, "weight": weight, "rows": count,
                "epochs": round(count * dataset.epochs / len(dataset), 6), "documents": dataset.selected[0],
                "tokens": dataset.selected[1],
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

    @property
    def _use_of_order(self) -> str:
        return "its sets mixed by weight"


def _separate(given: Iterable[object], temperature: float | None) -> tuple[list[TokenDataset], NDArray[np.float64]]:
    """Return the data sets and their weights, scaled if necessary so that their sum is finite."""
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
        raise UsageError(
            "Mixture: expected a list of (data set, weight) with finite weights above 0, or a list of data sets alone"
        )
    if temperature is not None:
        raise UsageError(f"temperature {temperature}: computes weights from sizes; give a temperature or weights, not both")
    found = np.array(weights)
    return sets, found if math.isfinite(sum(weights)) else found / max(weights)


def _weights_by_size(sets: Sequence[TokenDataset], temperature: float) -> NDArray[np.float64]:
    """Return each data set's number of tokens to the power of the temperature, relative to the largest."""
    if not isinstance(temperature, Real) or not 0 <= temperature <= 1:
        raise UsageError(f"temperature {temperature!r}: expected a number from 0 (equal weights) to 1 (weights by size)")
    tokens = np.array([each.selected[1] for each in sets], np.float64)
    weights: NDArray[np.float64] = (tokens / tokens.max()) ** float(temperature)
    return weights


def _check_no_set_twice(sets: Sequence[TokenDataset]) -> None:
    """Raise `UsageError` if two sets have the same rows, each of which would come twice with the same masks."""
    known: dict[str, TokenDataset] = {}
    for each in sets:
        if each.sha256 in known:
            raise UsageError(
                f"{each}: is given twice, so that each of its rows would come twice with the same masks; give it once, with "
                "the sum of the weights, or with another seed"
            )
        known[each.sha256] = each


def _cap_weights(weights: NDArray[np.float64], most: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return weights that are nowhere above `most`, whose sum is at least 1.

    The excess of a set is distributed over the others by their weights, and this repeats until no set exceeds the limit.
    """
    is_full = np.zeros(len(weights), np.bool_)
    while True:
        left = 1 - most[is_full].sum()
        shares = np.where(is_full, most, weights * left / max(weights[~is_full].sum(), sys.float_info.min))
        is_over = ~is_full & (shares > most)
        if not is_over.any():
            return shares
        is_full |= is_over


def apportion(fractions: Sequence[float], total: int) -> list[int]:
    """Split `total` into whole numbers in proportion to `fractions`, by the method of largest remainders.

    >>> apportion([0.5, 0.3, 0.2], 8)
    [4, 2, 2]
    """
    exact = np.array(fractions) * total
    counts = np.floor(exact).astype(np.int64)
    most_left = np.argsort(counts - exact, kind="stable")
    counts[most_left[: total - int(counts.sum())]] += 1
    return [int(count) for count in counts]

"""Compute the counts that are expected of a split's random draws, and how unlikely other counts are.

Given the text, the masks of each record are independent draws. Counts of k predictions at n positions are hypergeometric, and
their sums are no wider than a binomial with the same mean (Hoeffding 1963), so Chernoff's bound holds:

    P(N draws give a fraction as far from p as s) <= exp(-N * KL(s, p)),  KL(s, p) = s ln(s/p) + (1-s) ln((1-s)/(1-p))

The false-alarm probability, one in a million data sets, is divided among the fractions that are tested.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bertprep.check.counts import Ints, RecordCounts
from bertprep.check.rules import RecordRules
from bertprep.kernels import numbers as kernel

FALSE_ALARMS = 1e-6
SHOWN = ("[MASK]", "the token itself", "another token")
_NAMES = ("predictions shown as [MASK]", "left as they were", "as another token")
MAX_RANDOM_NEXT = 0.8  # of records that could draw: half, more if documents often end in one sentence; 0.59 in English
LEAST_NEXT = 0.25  # of the records that drew whether B follows A: half, less if documents are cut short on purpose
_UNKNOWN_VOCABULARY_SLACK = 0.001
_MAX_SHORT, _SHORT_MARGIN, _RECORDS_FOR_LENGTHS = 0.9, 0.1, 1000
_FEW_USES = 100  # of documents: with fewer, one use with a very short target length may give most of the records

Numbers = NDArray[np.float64]
Range = tuple[float, float]
"""The lowest and the highest value that is correct."""


class Fraction(NamedTuple):
    """A fraction of a split, its expected range, and the confidence interval of the true fraction."""

    name: str
    hits: int
    draws: int
    expected: Range
    interval: Range

    def as_json(self) -> dict[str, Any]:
        return {"count": self.hits, "of": self.draws, "expected": self.expected, "interval": self.interval}


@dataclass(frozen=True)
class Expected:
    """The counts and fractions that H0 predicts for the records of a split.

    With whole words the predictions are not known (`is_known`), since they depend on word boundaries.
    """

    fractions: list[Fraction]
    streams: int  # the number of files whose draws may be correlated; the bounds of tests are multiplied by it
    predictions: Ints  # (pred + 1,) records by number of predictions
    positions: NDArray[np.float64]  # (seq,) predictions by position
    is_known: bool


def minus_log_p(found: ArrayLike, draws: float, expected: ArrayLike, *, slack: float = 0.0) -> Numbers:
    """Return -ln of Chernoff's bound on the p-value of `found` hits in `draws`, given the `expected` number, elementwise.

    With `slack`, the expected fraction first moves towards the found one, by at most that fraction of itself.

    >>> round(float(minus_log_p(790, 1000, 800)), 3)
    0.309
    """
    fraction = np.asarray(found, np.float64) / draws
    under_h0 = np.asarray(expected, np.float64) / draws
    under_h0 = np.clip(np.clip(fraction, under_h0 * (1 - slack), under_h0 * (1 + slack)), 0.0, 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        hits = np.where(fraction > 0, fraction * np.log(fraction / under_h0), 0.0)
        misses = np.where(fraction < 1, (1 - fraction) * np.log((1 - fraction) / (1 - under_h0)), 0.0)
    bound: Numbers = draws * np.maximum(hits + misses, 0.0)
    return bound


def minus_log_limit(tests: int, streams: int = 1) -> float:
    """Return the bound that any of `tests` two-sided tests exceeds by chance at most once in a million times.

    For sums over `streams` files, correlated by a shared seed, the limit is `streams` times larger (Hoelder's inequality).
    """
    return math.log(2 * tests / FALSE_ALARMS) * streams


def fraction_interval(found: int, draws: int, *, tests: int = 1, streams: int = 1) -> Range:
    """Return the interval that contains the true fraction, given `found` hits in `draws`, except once in a million times.

    >>> low, high = fraction_interval(800, 1000)
    >>> round(low, 3), round(high, 3)
    (0.726, 0.862)
    """
    if draws == 0:
        return 0.0, 1.0
    limit = minus_log_limit(tests, streams)

    def edge(outer: float) -> float:
        inner = found / draws
        for _ in range(50):
            middle = (inner + outer) / 2
            if minus_log_p(found, draws, middle * draws) > limit:
                outer = middle
            else:
                inner = middle
        return inner

    return edge(0.0), edge(1.0)


def expect(
    counts: RecordCounts, rules: RecordRules, *, streams: int = 1, uses: int | None = None, short_seq_prob: float | None = None
) -> Expected:
    """Return the expected counts of a split.

    `streams` is the number of files with correlated draws, `uses` the number of uses of documents, and `short_seq_prob` the
    probability of a short target length. None means unknown.
    """
    draws, slack = int(counts.shown.sum()), slack_of(rules)

    def fraction(name: str, hits: int, draws: int, expected: Range, tests: int = 1) -> Fraction:
        return Fraction(name, hits, draws, expected, fraction_interval(hits, draws, tests=tests, streams=streams))

    fractions = [
        fraction(name, hits, draws, (share * (1 - slack), share * (1 + slack)), len(SHOWN))
        for name, hits, share in zip(_NAMES, counts.shown.tolist(), expected_shares(rules.tokens), strict=True)
    ]
    short, ranges = counts.records - int(counts.lengths[-1]), (0.0, 1.0)
    if rules.has_pairs:
        ranges = _short_range(counts, short_seq_prob, uses)
        follows, random = map(int, counts.next_sentence)
        fractions.append(fraction("B is random", random, follows + random, _random_next_range(counts, uses)))
    fractions.append(fraction("shorter than seq", short, counts.records, ranges))
    by_length = rules.predictions_by_length()
    return Expected(
        fractions=fractions,
        streams=streams,
        predictions=np.bincount(by_length, weights=counts.lengths, minlength=rules.pred + 1).astype(np.int64),
        positions=counts.expected_positions,
        is_known=not rules.whole_word,
    )


def slack_of(rules: RecordRules) -> float:
    """Return the slack of expected replacements; without a vocabulary, how often a random token is the original is unknown."""
    return 0.0 if rules.tokens else _UNKNOWN_VOCABULARY_SLACK


def expected_shares(tokens: int) -> tuple[float, float, float]:
    """Return the fractions of predictions that show [MASK], the token itself, and another token.

    They are 80%, 10% and 10%, adjusted for random tokens that happen to be [MASK] or the token itself.
    """
    hit = 0.1 / tokens if tokens else 0.0
    return 0.8 + hit, 0.1 + hit, 0.1 - 2 * hit


def fitting_probability(counts: RecordCounts, rules: RecordRules) -> float | None:
    """Return the masked_lm_prob with the fewest decimals, up to three, that explains all predictions, or None."""
    lengths = np.flatnonzero(counts.lengths)
    means = counts.predicted[lengths] / counts.lengths[lengths]
    for steps in (10, 100, 1000) if len(lengths) and not rules.whole_word else ():
        for probability in np.arange(1, steps + 1) / steps:
            tried = replace(rules, masked_lm_prob=float(probability))
            tables = tried.predictions_by_length(), tried.predictions_by_length(halves_up=True)
            if any(np.array_equal(means, table[lengths]) for table in tables):
                return float(probability)
    return None


def next_draws(counts: RecordCounts, uses: int | None) -> int:
    """Return the least number of records that drew whether B follows A.

    A chunk of two or more sentences draws it. A single sentence gets a random B; it is the last of its document, or as long as
    the target length.
    """
    if uses is not None and uses < _FEW_USES:
        return 0
    return max(int(counts.signs[[kernel.OPEN_FOLLOWS, kernel.OPEN_RANDOM]].sum()) - (uses or 0), 0)


def _random_next_range(counts: RecordCounts, uses: int | None) -> Range:
    """Return the range for the fraction of random Bs: at least half, and at most all but the Bs that must follow."""
    follows, random = map(int, counts.next_sentence)
    least = 1 - MAX_RANDOM_NEXT if uses is None else LEAST_NEXT
    must_follow = follows - int(counts.signs[kernel.OPEN_FOLLOWS]) + least * next_draws(counts, uses)
    return 0.5, 1 - must_follow / max(follows + random, 1)


def _short_range(counts: RecordCounts, short_seq_prob: float | None, uses: int | None) -> Range:
    """Return the range for the fraction of records shorter than seq.

    About two records per use of a document are short because the document ends; short target lengths add more.
    """
    if counts.records < _RECORDS_FOR_LENGTHS or (uses is not None and uses < _FEW_USES):
        return 0.0, 1.0
    cut_short = (0.01 if short_seq_prob is None else short_seq_prob) * (counts.records if uses is None else uses)
    # A short target length gives a short record only if A and B are short. An A below half of the text was not truncated, so
    # its frequency tells how often that happens; it is rare if sentences are longer than `seq`.
    of_half = counts.lengths_of_a[: (len(counts.lengths) - 4) // 2].sum() / counts.records
    cut_short *= of_half**2
    least = 1 / counts.records if cut_short > minus_log_limit(1) else 0.0  # Chernoff's bound for zero hits
    if not uses or short_seq_prob is None:
        return least, _MAX_SHORT
    weight = short_seq_prob * math.log((len(counts.lengths) - 4) / 2)  # mean number of records of a randomly short document
    return least, min(weight / (1 - short_seq_prob + weight) + 2 * uses / counts.records + _SHORT_MARGIN, 1.0)

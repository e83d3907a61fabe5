"""What settings and text let expect of a data set, and how far chance may deviate from it: for `validate` and its page.

Given the text, the masks of each record are independent draws, whatever the rounds, documents and files. So the tests condition
on the text and judge only what was drawn. In a record with k predictions at n positions, the number that hit a given token, or
the first positions, is hypergeometric, and each replacement is a separate draw. With whole words the same holds for words of
one size. Sums of such counts are no wider than a binomial of the same mean (Hoeffding 1963), so Chernoff's bound holds for
them:

    P(N draws give a fraction as far from p as s) <= exp(-N * KL(s, p)),  KL(s, p) = s ln(s/p) + (1-s) ln((1-s)/(1-p))

It needs no table and no approximation, and holds for small numbers. A test of many fractions divides the false-alarm
probability, one in a million data sets, among them.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bertprep.check.outcome import Expected, Range, RecordCounts
from bertprep.check.records import RecordRules
from bertprep.kernels import numbers as kernel

FALSE_ALARMS = 1e-6
SHOWN = ("[MASK]", "the token itself", "another token")
MOST_LABELS = 1000
"""The number of most expected tokens whose frequencies as labels are compared."""
MAX_RANDOM_NEXT = 0.8
"""Fraction of open records with a random B: at least half, more if documents often end in one sentence; 0.59 in English."""
LEAST_NEXT = 0.25
"""Fraction of the records that drew it whose B follows A: half, but for documents that are cut short on purpose."""
_UNKNOWN_VOCABULARY_SLACK = 0.001
_MAX_SHORT, _SHORT_MARGIN = 0.9, 0.1
_RECORDS_FOR_LENGTHS = 1000

Numbers = NDArray[np.float64]


def minus_log_p(found: ArrayLike, draws: float, expected: ArrayLike, *, slack: float = 0.0) -> Numbers:
    """Return -ln of Chernoff's bound on the p-value of `found` among `draws` if `expected` are expected, elementwise.

    With `slack`, the expected fraction is first moved towards the found one, by at most that fraction of itself.

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
    """Return the bound that one of `tests` two-sided tests exceeds once in a million times at most.

    If counts are sums over `streams` files whose draws may be correlated because they share a seed, the bound holds with the
    mean draws of a file instead of all draws, by Hoelder's inequality: the limit is `streams` times larger.
    """
    return math.log(2 * tests / FALSE_ALARMS) * streams


def fraction_interval(found: int, draws: int, *, tests: int = 1, streams: int = 1) -> Range:
    """Return the fractions that could have given `found` of `draws`: the true one is outside once in a million times.

    An expected fraction is inside exactly if that many `tests` over that many `streams` would accept the count.

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
    """Return what the counts of a split should be.

    `streams` is the number of files whose draws may be correlated, `uses` how often documents are used, counting each use, and
    `short_seq_prob` the probability of a short target length; None if unknown.
    """
    slack = slack_of(rules)
    shown = [(fraction * (1 - slack), fraction * (1 + slack)) for fraction in expected_fractions(rules.tokens)]
    rounds_up = counts.signs[kernel.ROUNDED_UP] > counts.signs[kernel.ROUNDED_EVEN]
    by_length = rules.rounded_up_by_length() if rounds_up else rules.predictions_by_length()
    predictions = np.bincount(by_length, weights=counts.lengths, minlength=rules.pred + 1).astype(np.int64)
    return Expected(
        shown=(shown[0], shown[1], shown[2]),
        random_next=_random_next_range(counts, uses),
        short=_short_range(counts, short_seq_prob, uses) if rules.has_pairs else (0.0, 1.0),
        streams=streams,
        predictions=None if rules.whole_word else predictions,
        positions=None if rules.whole_word else counts.expected_positions,
        labels=None if rules.whole_word else counts.expected_labels / kernel.SCALE,
    )


def slack_of(rules: RecordRules) -> float:
    """Return the slack of expected replacements: how often a random token is the original is unknown without a vocabulary."""
    return 0.0 if rules.tokens else _UNKNOWN_VOCABULARY_SLACK


def expected_fractions(tokens: int) -> tuple[float, float, float]:
    """Return the fractions that show [MASK], the token, another: 80/10/10, but a random token may be one of the first two."""
    hit = 0.1 / tokens if tokens else 0.0
    return 0.8 + hit, 0.1 + hit, 0.1 - 2 * hit


def fitting_probability(counts: RecordCounts, rules: RecordRules) -> float | None:
    """Return the masked_lm_prob with the fewest decimals, up to three, that explains all predictions, or None.

    Each length must have the number of predictions that the rule gives, with halves rounded to even or up.
    """
    lengths = np.flatnonzero(counts.lengths)
    means = counts.predicted[lengths] / counts.lengths[lengths]
    for steps in (10, 100, 1000) if len(lengths) and not rules.whole_word else ():
        for probability in np.arange(1, steps + 1) / steps:
            tried = replace(rules, masked_lm_prob=float(probability), may_round_up=True)
            tables = tried.predictions_by_length(), tried.rounded_up_by_length()
            if any(np.array_equal(means, table[lengths]) for table in tables):
                return float(probability)
    return None


def next_draws(counts: RecordCounts, uses: int | None) -> int:
    """Return the least number of records that drew whether B follows A.

    Two or more sentences draw it; a single one always gets a random B. A single sentence is the last of its document, at most
    one per use, or reaches the target length; then A is no shorter than B in a record that had to be truncated. The other
    records (`open`), minus the uses, drew it.
    """
    return max(int(counts.signs[[kernel.OPEN_FOLLOWS, kernel.OPEN_RANDOM]].sum()) - (uses or 0), 0)


def _random_next_range(counts: RecordCounts, uses: int | None) -> Range:
    """Return the range for the fraction of random Bs: at least half, and few enough to leave the Bs that must follow."""
    follows, random = map(int, counts.next_sentence)
    least = 1 - MAX_RANDOM_NEXT if uses is None else LEAST_NEXT
    must_follow = follows - int(counts.signs[kernel.OPEN_FOLLOWS]) + least * next_draws(counts, uses)
    return 0.5, 1 - must_follow / max(follows + random, 1)


def _short_range(counts: RecordCounts, short_seq_prob: float | None, uses: int | None) -> Range:
    """Return the range for the fraction of records shorter than seq; any if records are few.

    About two records per use end with a document, one of them in its random B; documents cut short on purpose yield more
    records the shorter they are.
    """
    if counts.records < _RECORDS_FOR_LENGTHS:
        return 0.0, 1.0
    cut_short = (0.01 if short_seq_prob is None else short_seq_prob) * (counts.records if uses is None else uses)
    least = 1 / counts.records if cut_short > minus_log_limit(1) else 0.0  # Chernoff's bound for zero hits
    if not uses or short_seq_prob is None:
        return least, _MAX_SHORT
    weight = short_seq_prob * math.log((len(counts.lengths) - 4) / 2)  # mean number of records of a randomly short document
    return least, min(weight / (1 - short_seq_prob + weight) + 2 * uses / counts.records + _SHORT_MARGIN, 1.0)

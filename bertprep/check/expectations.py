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
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bertprep.check.outcome import Expected, Range, Tally
from bertprep.check.records import RecordRules
from bertprep.kernels import numbers as faults

FALSE_ALARMS = 1e-6
SHOWN = ("[MASK]", "the token itself", "another token")
MOST_LABELS = 1000
"""The number of most expected tokens whose frequencies as labels are compared."""
MANY = 200
"""This many records all have a random B with a probability below 1e-6 if fewer than 93 % should."""
MAX_RANDOM_NEXT = 0.8
"""Fraction of open records with a random B: at least half, more if documents often end in one sentence; 0.59 in English."""
UNKNOWN_VOCABULARY_SLACK = 0.001
_MASKED_SLACK = 0.01
_MANY_SHORT = 0.9
_RECORDS_FOR_LENGTHS = 1000
_MARGIN_OF_SHORT = 0.1

Numbers = NDArray[np.float64]


def minus_log_p(found: ArrayLike, draws: float, expected: ArrayLike, *, slack: float = 0.0) -> Numbers:
    """-ln of Chernoff's bound on the p-value of `found` among `draws` if `expected` are expected; elementwise for arrays.

    With `slack`, the expected fraction is first moved towards the found one, by at most that fraction of itself.

    >>> round(float(minus_log_p(790, 1000, 800)), 3)
    0.309
    """
    fraction = np.asarray(found, np.float64) / draws
    under_h0 = np.asarray(expected, np.float64) / draws
    under_h0 = np.clip(np.clip(fraction, under_h0 * (1 - slack), under_h0 * (1 + slack)), 0.0, 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        there = np.where(fraction > 0, fraction * np.log(fraction / under_h0), 0.0)
        not_there = np.where(fraction < 1, (1 - fraction) * np.log((1 - fraction) / (1 - under_h0)), 0.0)
    bound: Numbers = draws * np.maximum(there + not_there, 0.0)
    return bound


def minus_log_limit(tests: int, streams: int = 1) -> float:
    """The bound that one of `tests` two-sided tests exceeds once in a million times at most.

    If counts are sums over `streams` files whose draws may be correlated because they share a seed, the bound holds with the
    mean draws of a file instead of all draws, by Hoelder's inequality: the limit is `streams` times larger.
    """
    return math.log(2 * tests / FALSE_ALARMS) * streams


def fraction_interval(found: int, draws: int, *, tests: int = 1, streams: int = 1) -> Range:
    """The fractions that could have given `found` of `draws`: the true one is outside once in a million times.

    An expected fraction is inside exactly if that many `tests` over that many `streams` would accept the count.

    >>> low, high = fraction_interval(800, 1000)
    >>> round(low, 3), round(high, 3)
    (0.726, 0.862)
    """
    if draws == 0:
        return 0.0, 1.0
    fraction, limit = found / draws, minus_log_limit(tests, streams)

    def edge(outer: float) -> float:
        inner = fraction
        for _ in range(50):
            middle = (inner + outer) / 2
            if minus_log_p(found, draws, middle * draws) > limit:
                outer = middle
            else:
                inner = middle
        return inner

    return edge(0.0), edge(1.0)


def expect(
    tally: Tally, rules: RecordRules, *, streams: int = 1, uses: int | None = None, short_seq_prob: float | None = None
) -> Expected:
    """What the counts of a split should be.

    `streams` is the number of files whose draws may be correlated, `uses` how often documents are used, counting each use, and
    `short_seq_prob` the probability of a short target length; None if unknown.
    """
    slack = slack_of(rules)
    shown = [(fraction * (1 - slack), fraction * (1 + slack)) for fraction in expected_fractions(rules.tokens)]
    rounds_up = tally.signs[faults.ROUNDED_UP] > tally.signs[faults.ROUNDED_EVEN]
    by_length = rules.rounded_up_by_length() if rounds_up else rules.predictions_by_length()
    predictions = np.bincount(by_length, weights=tally.lengths, minlength=rules.pred + 1).astype(np.int64)
    return Expected(
        shown=(shown[0], shown[1], shown[2]),
        masked=masked_range(tally, rules),
        random_next=random_next_range(tally, uses),
        short=short_range(tally, short_seq_prob, uses) if rules.has_pairs else (0.0, 1.0),
        streams=streams,
        predictions=None if rules.whole_word else predictions,
        positions=None if rules.whole_word else tally.expected_positions,
        labels=None if rules.whole_word else tally.expected_labels / faults.SCALE,
    )


def slack_of(rules: RecordRules) -> float:
    """The slack of expected replacements: how often a random token is the original is unknown without a vocabulary."""
    return 0.0 if rules.tokens else UNKNOWN_VOCABULARY_SLACK


def expected_fractions(tokens: int) -> tuple[float, float, float]:
    """Fractions that show [MASK], the token itself, another: 80/10/10, but a random token may be one of the first two."""
    hit = 0.1 / tokens if tokens else 0.0
    return 0.8 + hit, 0.1 + hit, 0.1 - 2 * hit


def predictions_wanted(tally: Tally, rules: RecordRules) -> int:
    """The number of predictions that follows from the lengths of the records."""
    by_length = int(tally.lengths @ rules.predictions_by_length())
    return by_length + int(tally.signs[faults.ROUNDED_UP]) - int(tally.signs[faults.UNAVAILABLE])


def fitting_probability(tallies: Sequence[Tally], rules: RecordRules) -> float | None:
    """The masked_lm_prob with the fewest decimals that explains the predictions of all records; None if there is none.

    Each length must have the number of predictions that the rule gives, with halves rounded to even or up.
    """
    if rules.whole_word or not tallies:
        return None
    records = np.sum([tally.lengths for tally in tallies], axis=0)
    lengths = np.flatnonzero(records)
    means = np.sum([tally.predicted for tally in tallies], axis=0)[lengths] / records[lengths]
    most = np.minimum(rules.pred, lengths - rules.special)
    # n tokens with k predictions need a probability from (k - 0.5) / n to (k + 0.5) / n, with the least or the most either side
    low = float(np.max((means - 0.5) / lengths, where=means > 1, initial=0.0))
    high = float(np.min((means + 0.5) / lengths, where=means < most, initial=1.0))
    for decimals in (1, 2, 3, 4):
        probability = math.ceil(low * 10**decimals) / 10**decimals
        tried = replace(rules, masked_lm_prob=probability, may_round_up=True)
        ways = (tried.predictions_by_length()[lengths], tried.rounded_up_by_length()[lengths])
        if 0 < probability <= high and any(np.array_equal(means, way) for way in ways):
            return probability
    return None


def masked_range(tally: Tally, rules: RecordRules) -> Range:
    """The fraction of text tokens that are predictions; it is not random, except with whole words.

    With whole words it is an upper bound; whether fewer are right is judged record by record.
    """
    fraction = predictions_wanted(tally, rules) / max(tally.text_tokens, 1)
    return 0.0 if rules.whole_word else fraction * (1 - _MASKED_SLACK), fraction * (1 + _MASKED_SLACK)


def next_draws(tally: Tally, uses: int | None) -> int:
    """The least number of records that drew whether B follows A.

    Two or more sentences draw it; a single one always gets a random B. A single sentence is the last of its document, at most
    one per use, or reaches the target length; then A is no shorter than B in a record that had to be truncated. The other
    records (`open`), minus the uses, drew it.
    """
    return max(int(tally.signs[[faults.OPEN_FOLLOWS, faults.OPEN_RANDOM]].sum()) - (uses or 0), 0)


def random_next_range(tally: Tally, uses: int | None) -> Range:
    """The range for the fraction of random Bs: at least half, and few enough to leave the Bs that must follow.

    Documents cut short on purpose are allowed for by half of the draws.
    """
    follows, random = map(int, tally.next_sentence)
    records = follows + random
    elsewhere = follows - int(tally.signs[faults.OPEN_FOLLOWS])
    least = elsewhere + next_draws(tally, uses) * ((1 - MAX_RANDOM_NEXT) if uses is None else 0.25)
    if records - (uses or 0) >= MANY:
        least = max(least, 1)
    return 0.5, 1 - least / max(records, 1)


def short_range(tally: Tally, short_seq_prob: float | None, uses: int | None) -> Range:
    """The range for the fraction of records shorter than seq, from documents and `short_seq_prob`; any if records are few.

    About two records per use end with a document, one of them in its random B; documents cut short on purpose yield more
    records the shorter they are.
    """
    if tally.records < _RECORDS_FOR_LENGTHS:
        return 0.0, 1.0
    cut_short = (0.01 if short_seq_prob is None else short_seq_prob) * (tally.records if uses is None else uses)
    least = 1 / tally.records if cut_short > minus_log_limit(1) else 0.0  # Chernoff's bound for zero hits
    most = _MANY_SHORT
    if uses and short_seq_prob is not None:
        times = math.log((len(tally.lengths) - 4) / 2)  # mean number of records of a document that is cut to a random length
        on_purpose = short_seq_prob * times / (1 - short_seq_prob + short_seq_prob * times)
        most = on_purpose + 2 * uses / tally.records + _MARGIN_OF_SHORT
    return least, min(most, 1.0)

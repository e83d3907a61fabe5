"""What fair draws give, and how far chance may deviate from it: the basis of `validate`'s verdicts and the report's intervals.

Given the text, the masks of each record are independent draws, whatever the rounds, documents and files. So the tests condition
on the text and judge only what was drawn. In a record with k predictions at n positions, the number that hit a given token, or
the first positions, is hypergeometric, and each replacement is a separate draw. With whole words the same holds for words of
one size. Sums of such counts are no wider than a binomial of the same mean (Hoeffding 1963), so Chernoff's bound holds for
them:

    P(N draws give a fraction as far from p as s) <= exp(-N * KL(s, p)),  KL(s, p) = s ln(s/p) + (1-s) ln((1-s)/(1-p))

It needs no table and no approximation, and holds for small numbers. A test of many fractions divides the false-alarm
probability, one in a million, among them.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bertprep.check.outcome import Expected, Range, Tally
from bertprep.check.record_checks import Counted, RecordRules
from bertprep.kernels import numbers as faults

FALSE_ALARMS = 1e-6
SHOWN = ("[MASK]", "the token itself", "another token")
MOST_LABELS = 1000
"""The number of most expected tokens whose frequencies as labels are compared."""
MANY = 200
"""This many records all have a random B with a probability below 1e-6 if fewer than 93 % should."""
MOST_RANDOM_NEXT = 0.8
"""Fraction of open records with a random B: at least half, more if documents often end in one sentence; 0.59 in English."""
UNKNOWN_VOCABULARY_SLACK = 0.001
_MASKED_SLACK = 0.01
_MANY_SHORT = 0.9
_RECORDS_FOR_LENGTHS = 1000
_MARGIN_OF_SHORT = 0.1

Numbers = NDArray[np.float64]


def surprise(found: ArrayLike, draws: float, expected: ArrayLike, *, slack: float = 0.0) -> Numbers:
    """-ln of Chernoff's bound on the probability of `found` among `draws` if `expected` are expected; elementwise for arrays.

    With `slack`, the expected fraction is first moved towards the found one, by at most that fraction of itself.

    >>> round(float(surprise(790, 1000, 800)), 3)
    0.309
    """
    fraction = np.asarray(found, np.float64) / draws
    fair = np.asarray(expected, np.float64) / draws
    fair = np.clip(np.clip(fraction, fair * (1 - slack), fair * (1 + slack)), 0.0, 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        there = np.where(fraction > 0, fraction * np.log(fraction / fair), 0.0)
        not_there = np.where(fraction < 1, (1 - fraction) * np.log((1 - fraction) / (1 - fair)), 0.0)
    bound: Numbers = draws * np.maximum(there + not_there, 0.0)
    return bound


def limit_of_surprise(tests: int, streams: int = 1) -> float:
    """The bound that one of `tests` two-sided tests exceeds once in a million times at most.

    If counts are sums over `streams` files whose draws may be correlated because they share a seed, the bound holds with the
    mean draws of a file instead of all draws, by Hoelder's inequality: the limit is `streams` times larger.
    """
    return math.log(2 * tests / FALSE_ALARMS) * streams


def fraction_interval(found: int, draws: int, *, tests: int = 1, streams: int = 1) -> Range:
    """The fractions that could have given `found` of `draws`: the true one is outside once in a million times.

    An expected fraction is inside exactly if that many `tests` over that many `streams` would not find the count surprising.

    >>> low, high = fraction_interval(800, 1000)
    >>> round(low, 3), round(high, 3)
    (0.726, 0.862)
    """
    if draws == 0:
        return 0.0, 1.0
    fraction, limit = found / draws, limit_of_surprise(tests, streams)

    def edge(outer: float) -> float:
        inner = fraction
        for _ in range(50):
            middle = (inner + outer) / 2
            if surprise(found, draws, middle * draws) > limit:
                outer = middle
            else:
                inner = middle
        return inner

    return edge(0.0), edge(1.0)


def expect(
    counted: Counted, rules: RecordRules, *, streams: int = 1, uses: int | None = None, short_seq_prob: float | None = None
) -> Expected:
    """What the counts of a split should be.

    `streams` is the number of files whose draws may be correlated, `uses` how often documents are used, counting each use, and
    `short_seq_prob` the probability of a short target length; None if unknown.
    """
    tally = counted.tally
    slack = 0.0 if rules.tokens else UNKNOWN_VOCABULARY_SLACK
    shown = tuple((fraction * (1 - slack), fraction * (1 + slack)) for fraction in fair_fractions(rules.tokens))
    rounds_up = counted.signs[faults.ROUNDED_UP] > counted.signs[faults.ROUNDED_EVEN]
    by_length = rules.rounded_up_by_length() if rounds_up else rules.predictions_by_length()
    predictions = np.bincount(by_length, weights=tally.lengths, minlength=rules.pred + 1).astype(np.int64)
    return Expected(
        shown=(shown[0], shown[1], shown[2]),
        masked=masked_range(counted, rules),
        random_next=random_next_range(counted, uses),
        short=short_range(tally, short_seq_prob, uses) if rules.has_pairs else (0.0, 1.0),
        streams=streams,
        predictions=None if rules.whole_word else predictions,
        positions=None if rules.whole_word else counted.expected_positions,
        labels=None if rules.whole_word else counted.expected_labels / faults.SCALE,
    )


def fair_fractions(tokens: int) -> tuple[float, float, float]:
    """Fractions that show [MASK], the token itself, another: 80/10/10, but a random token may be one of the first two."""
    hit = 0.1 / tokens if tokens else 0.0
    return 0.8 + hit, 0.1 + hit, 0.1 - 2 * hit


def predictions_wanted(counted: Counted, rules: RecordRules) -> int:
    """The number of predictions that follows from the lengths of the records."""
    by_length = int(counted.tally.lengths @ rules.predictions_by_length())
    return by_length + int(counted.signs[faults.ROUNDED_UP]) - int(counted.signs[faults.UNAVAILABLE])


def masked_range(counted: Counted, rules: RecordRules) -> Range:
    """The fraction of text tokens that are predictions; it is not random, except with whole words.

    With whole words it is an upper bound; whether fewer are right is judged record by record.
    """
    fraction = predictions_wanted(counted, rules) / max(counted.tally.text_tokens, 1)
    return 0.0 if rules.whole_word else fraction * (1 - _MASKED_SLACK), fraction * (1 + _MASKED_SLACK)


def tossed(counted: Counted, uses: int | None) -> int:
    """The least number of records that tossed a coin for whether B follows A.

    Two or more sentences toss it; a single one always gets a random B. A single sentence is the last of its document, at most
    one per use, or reaches the target length; then A is no shorter than B in a record that had to be truncated. The other
    records (`open`), minus the uses, tossed the coin.
    """
    return max(int(counted.signs[[faults.OPEN_FOLLOWS, faults.OPEN_RANDOM]].sum()) - (uses or 0), 0)


def random_next_range(counted: Counted, uses: int | None) -> Range:
    """The range for the fraction of random Bs: at least half, and few enough to leave the Bs that must follow.

    Documents cut short on purpose are allowed for by half of what a fair coin gives.
    """
    follows, random = map(int, counted.tally.next_sentence)
    records = follows + random
    elsewhere = follows - int(counted.signs[faults.OPEN_FOLLOWS])
    least = elsewhere + tossed(counted, uses) * ((1 - MOST_RANDOM_NEXT) if uses is None else 0.25)
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
    least = 1 / tally.records if cut_short > limit_of_surprise(1) else 0.0  # Chernoff's bound for zero hits
    most = _MANY_SHORT
    if uses and short_seq_prob is not None:
        times = math.log((len(tally.lengths) - 4) / 2)  # mean number of records of a document that is cut to a random length
        on_purpose = short_seq_prob * times / (1 - short_seq_prob + short_seq_prob * times)
        most = on_purpose + 2 * uses / tally.records + _MARGIN_OF_SHORT
    return least, min(most, 1.0)

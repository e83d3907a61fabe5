"""What fair draws give, and how far from it chance may lead: what `validate` judges by, and what the report draws.

Given the text of the records, the generator draws the masks of each record by itself, whatever the rounds, documents and
files: so the text is taken as it is, and only what was drawn is asked about. In a record of k predictions at n positions, how
many hit a given token, or the first positions, is hypergeometric, and what replaces each is a draw of its own. With whole words
the same holds of the words of one size. Sums of such counts over records are no wider than a binomial of the same mean
(Hoeffding 1963), so that Chernoff's bound holds for them:

    P(a share of N draws as far from p as s, on its side) <= exp(-N * KL(s, p)),  KL(s, p) = s ln(s/p) + (1-s) ln((1-s)/(1-p))

It needs no table and no approximation, and holds for small numbers. A test of many shares divides the false-alarm probability,
one in a million, among them.
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
"""Tokens, those expected most, whose frequency as labels is compared."""
MANY = 200
"""Records, all of which have a random B with a probability below 1e-6 where fewer than 93 % should."""
MOST_RANDOM_NEXT = 0.8
"""Of open records. At least half, and more the more often a document's end leaves one sentence; 0.59 in English prose."""
UNKNOWN_VOCABULARY_SLACK = 0.001
_MASKED_SLACK = 0.01
_MANY_SHORT = 0.9
_RECORDS_FOR_LENGTHS = 1000
_MARGIN_OF_SHORT = 0.1

Numbers = NDArray[np.float64]


def surprise(found: ArrayLike, draws: float, expected: ArrayLike, *, slack: float = 0.0) -> Numbers:
    """-ln of Chernoff's bound on the probability of `found` among `draws`, where `expected` are; of each, for arrays.

    With `slack`, the nearest share is taken that differs from the expected one by no more than that fraction of it.

    >>> round(float(surprise(790, 1000, 800)), 3)
    0.309
    """
    share = np.asarray(found, np.float64) / draws
    fair = np.asarray(expected, np.float64) / draws
    fair = np.clip(np.clip(share, fair * (1 - slack), fair * (1 + slack)), 0.0, 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        there = np.where(share > 0, share * np.log(share / fair), 0.0)
        not_there = np.where(share < 1, (1 - share) * np.log((1 - share) / (1 - fair)), 0.0)
    bound: Numbers = draws * np.maximum(there + not_there, 0.0)
    return bound


def limit_of_surprise(tests: int, streams: int = 1) -> float:
    """The bound that one of `tests` two-sided tests exceeds once in a million times at most.

    Where counts are sums over `streams` files whose draws may run in step, since they were made with one seed, the bound holds
    with the mean draws of a file in place of all draws, by Hoelder's inequality: the limit is that many times larger.
    """
    return math.log(2 * tests / FALSE_ALARMS) * streams


def share_interval(found: int, draws: int, *, tests: int = 1, streams: int = 1) -> Range:
    """The shares that could have given `found` of `draws`: the true one is outside once in a million times.

    An expected share is inside just where as many `tests` over as many `streams` would not find the count surprising.

    >>> low, high = share_interval(800, 1000)
    >>> round(low, 3), round(high, 3)
    (0.726, 0.862)
    """
    if draws == 0:
        return 0.0, 1.0
    share, limit = found / draws, limit_of_surprise(tests, streams)

    def edge(outer: float) -> float:
        inner = share
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

    `streams` are the files whose draws may run in step, `uses` how often documents are used, each counted as often, and
    `short_seq_prob` the probability of a short target length; None where that is unknown.
    """
    tally = counted.tally
    slack = 0.0 if rules.tokens else UNKNOWN_VOCABULARY_SLACK
    shown = tuple((share * (1 - slack), share * (1 + slack)) for share in fair_shares(rules.tokens))
    rounds_up = counted.signs[faults.ROUNDED_UP] > counted.signs[faults.ROUNDED_EVEN]
    by_length = rules.rounded_up_by_length() if rounds_up else rules.predictions_by_length()
    predictions = np.bincount(by_length, weights=tally.lengths, minlength=rules.pred + 1).astype(np.int64)
    return Expected(
        shown=(shown[0], shown[1], shown[2]),
        masked=masked_range(counted, rules),
        random_next=random_next_range(counted, uses),
        short=short_range(tally, short_seq_prob, uses),
        streams=streams,
        predictions=None if rules.whole_word else predictions,
        positions=None if rules.whole_word else counted.expected_positions,
        labels=None if rules.whole_word else counted.expected_labels / faults.SCALE,
    )


def fair_shares(tokens: int) -> tuple[float, float, float]:
    """Of predictions that show [MASK], the token itself, another: 80/10/10, but a random token may be one of the first two."""
    hit = 0.1 / tokens if tokens else 0.0
    return 0.8 + hit, 0.1 + hit, 0.1 - 2 * hit


def predictions_wanted(counted: Counted, rules: RecordRules) -> int:
    """The number of predictions that the lengths of the records ask for."""
    return int(counted.tally.lengths @ rules.predictions_by_length()) + int(counted.signs[faults.ROUNDED_UP])


def masked_range(counted: Counted, rules: RecordRules) -> Range:
    """The fraction of the tokens of text that are predictions; no draw decides that, except for whole words.

    With whole words it is a bound; whether fewer is right is known of each record by itself.
    """
    share = predictions_wanted(counted, rules) / max(counted.tally.text_tokens, 1)
    return 0.0 if rules.whole_word else share * (1 - _MASKED_SLACK), share * (1 + _MASKED_SLACK)


def tossed(counted: Counted, uses: int | None) -> int:
    """The records that tossed a coin whether B follows A, at the least.

    Two or more sentences toss it; one alone always takes a random B. One alone is the last of its document, of which each use
    has one at most, or reaches the target length: then A is no shorter than B in a record that had to be cut. The other
    records, which are `open` and more than the uses, have tossed the coin.
    """
    return max(int(counted.signs[[faults.OPEN_FOLLOWS, faults.OPEN_RANDOM]].sum()) - (uses or 0), 0)


def random_next_range(counted: Counted, uses: int | None) -> Range:
    """The fraction of records with a random B: at least half, and no more than leaves a B that follows where one must.

    Of the records that tossed a coin, half of what a fair one gives is granted to documents cut short on purpose.
    """
    follows, random = map(int, counted.tally.next_sentence)
    records = follows + random
    elsewhere = follows - int(counted.signs[faults.OPEN_FOLLOWS])
    least = elsewhere + tossed(counted, uses) * ((1 - MOST_RANDOM_NEXT) if uses is None else 0.25)
    if records - (uses or 0) >= MANY:
        least = max(least, 1)
    return 0.5, 1 - least / max(records, 1)


def short_range(tally: Tally, short_seq_prob: float | None, uses: int | None) -> Range:
    """The fraction of records shorter than seq that documents and `short_seq_prob` make; any, for few records.

    About two records a use end with a document, one of them in its random B; of the documents that are cut short on purpose
    there are the more records the shorter they are.
    """
    if tally.records < _RECORDS_FOR_LENGTHS:
        return 0.0, 1.0
    cut_short = (0.01 if short_seq_prob is None else short_seq_prob) * (tally.records if uses is None else uses)
    least = 1 / tally.records if cut_short > limit_of_surprise(1) else 0.0  # Chernoff's bound for none at all
    most = _MANY_SHORT
    if uses and short_seq_prob is not None:
        times = math.log((len(tally.lengths) - 4) / 2)  # the mean records of a document that is cut to a random length
        on_purpose = short_seq_prob * times / (1 - short_seq_prob + short_seq_prob * times)
        most = on_purpose + 2 * uses / tally.records + _MARGIN_OF_SHORT
    return least, min(most, 1.0)

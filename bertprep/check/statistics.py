"""Does a data set as a whole look as fair draws make it? Each test has a false-alarm rate of at most one in a million.

Given the text of the records, the generator draws the masks of each record by itself, whatever the rounds, documents and
files: so the tests take the text as it is, and ask only of what was drawn. In a record of k predictions at n places, how many
hit a given token, or the first places, is hypergeometric, and what replaces each is a draw of its own. Sums of such counts
over records are no wider than a binomial of the same mean (Hoeffding 1963), so that Chernoff's bound holds for them:

    P(a share of N draws as far from p as s, on its side) <= exp(-N * KL(s, p)),  KL(s, p) = s ln(s/p) + (1-s) ln((1-s)/(1-p))

It needs no table and no approximation, and holds for small numbers. A test of many shares divides the rate among them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bertprep.check.findings import ERROR, WARNING, Finding
from bertprep.check.outcome import FileFacts
from bertprep.check.record_checks import Counted, RecordRules
from bertprep.check.tally import Tally
from bertprep.kernels.record_faults import SCALE

FALSE_ALARMS = 1e-6
SHOWN = ("[MASK]", "the token itself", "another token")
_NEXT_SENTENCE_SHARE = (0.4, 0.8)
"""Of random B. At least half, and more the more often a document's end leaves one sentence; 0.59 in English prose."""
_FEW = 20  # records of which none has a random B with a chance of 2**-20
_MANY = 200  # records, all of which have a random B with a chance below 1e-6 where fewer than 93 % should
_MOST_TOKENS = 1000  # whose frequency as labels is compared
_WHOLE_WORD_SLACK = 0.3
"""By how much whole-word masking may favour or neglect a place: it skips words that do not fit any more."""
_UNKNOWN_VOCABULARY_SLACK = 0.001
_MANY_SHORT = 0.9
_RECORDS_FOR_LENGTHS = 1000
_MARGIN_OF_SHORT = 0.1
_FILES_FOR_SIZES = 4
_SIZE_FACTOR = 2.0

Numbers = NDArray[np.float64]


def surprise(found: ArrayLike, draws: float, expected: ArrayLike, *, slack: float = 0.0) -> Numbers:
    """-ln of Chernoff's bound on the chance of `found` among `draws`, where `expected` are; of each, where they are arrays.

    With `slack`, the nearest share is taken that differs from the expected one by no more than that part of it.

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


def limit_of_surprise(tests: int) -> float:
    """What none of so many two-sided tests exceeds, but once in a million times."""
    return math.log(2 * tests / FALSE_ALARMS)


def share_interval(found: int, draws: int) -> tuple[float, float]:
    """The shares that could have given `found` of `draws`: outside lies the true one once in a million times.

    >>> low, high = share_interval(800, 1000)
    >>> round(low, 3), round(high, 3)
    (0.726, 0.862)
    """
    if draws == 0:
        return 0.0, 1.0
    share, limit = found / draws, limit_of_surprise(1)

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


def fair_shares(tokens: int) -> tuple[float, float, float]:
    """Of predictions that show [MASK], the token itself, another: 80/10/10, but a random token may be one of the first two."""
    hit = 0.1 / tokens if tokens else 0.0
    return 0.8 + hit, 0.1 + hit, 0.1 - 2 * hit


def judge(counted: Counted, rules: RecordRules, place: str) -> list[Finding]:
    """What is wrong with the records of a split as a whole; `place` is what findings name."""
    if not counted.tally.records:
        return []
    return [
        *judge_masks(counted, rules, place),
        *judge_labels(counted, rules, place),
        *judge_masked_share(counted.tally, rules, place),
        *judge_next_sentence(counted.tally, place),
    ]


def judge_masks(counted: Counted, rules: RecordRules, place: str, *, files: int = 1) -> list[Finding]:
    """The 80/10/10 shares and the places of the masks: also of a single file, as one of so many."""
    return [*judge_replacements(counted.tally, rules, place, files=files), *judge_positions(counted, rules, place, files=files)]


def judge_replacements(tally: Tally, rules: RecordRules, place: str, *, files: int = 1) -> list[Finding]:
    """Whether 80 % of predictions show [MASK], 10 % the token itself, 10 % a random one."""
    draws = int(tally.shown.sum())
    if draws == 0:
        return []
    fair = np.array(fair_shares(rules.tokens))
    slack = 0.0 if rules.tokens else _UNKNOWN_VOCABULARY_SLACK
    surprises = surprise(tally.shown, draws, fair * draws, slack=slack)
    worst = int(np.argmax(surprises))
    if surprises[worst] <= limit_of_surprise(len(SHOWN) * files):
        return []
    low, high = share_interval(int(tally.shown[worst]), draws)
    expected = f"{SHOWN[worst]} at {fair[worst]:.1%} of {draws:,} predictions"
    found = f"{tally.shown[worst] / draws:.2%} (a true share of {low:.2%} to {high:.2%})"
    return [Finding(ERROR, "replacement-shares", place, None, expected, found)]


def judge_positions(counted: Counted, rules: RecordRules, place: str, *, files: int = 1) -> list[Finding]:
    """Whether masks take all places of the text alike: each place, and all before each place, as the lengths let expect."""
    draws = int(counted.tally.positions.sum())
    if draws == 0:
        return []
    seen, fair = counted.tally.positions, counted.expected_positions
    fair = fair * (draws / fair.sum())  # the sums are equal but for the rounding of shares
    slack = _WHOLE_WORD_SLACK if rules.whole_word else 0.0
    limit = limit_of_surprise(2 * len(seen) * files)
    each = surprise(seen, draws, fair, slack=slack)
    if np.max(each) > limit:
        worst = int(np.argmax(each))
        expected = f"{fair[worst]:,.0f} of {draws:,} predictions at place {worst}, as at others"
        return [Finding(ERROR, "position-shares", place, None, expected, f"{seen[worst]:,}")]
    # a last place before which all predictions lie tells nothing, and rounding must not make it impossible
    before = surprise(np.cumsum(seen)[:-3], draws, np.minimum(np.cumsum(fair)[:-3], draws), slack=slack)
    if before.size and np.max(before) > limit:
        worst = int(np.argmax(before))
        expected = f"{np.cumsum(fair)[worst]:,.0f} of {draws:,} predictions at places 0 to {worst}"
        return [Finding(ERROR, "position-shares", place, None, expected, f"{np.cumsum(seen)[worst]:,}")]
    return []


def judge_labels(counted: Counted, rules: RecordRules, place: str) -> list[Finding]:
    """Whether the most frequent tokens of the text are predicted as often as their places in it let expect.

    Not with whole words: one of more pieces than a record has predictions is never masked, however frequent it is.
    """
    draws = int(counted.tally.labels.sum())
    if draws == 0 or not rules.tokens or rules.whole_word:
        return []
    most = np.argsort(counted.tally.tokens)[::-1][:_MOST_TOKENS]
    seen, fair = counted.tally.labels[most], counted.expected_labels[most] / SCALE
    surprises = surprise(seen, draws, fair)
    worst = int(np.argmax(surprises))
    if surprises[worst] <= limit_of_surprise(len(most)):
        return []
    expected = f"token {most[worst]} as the label of {fair[worst]:,.0f} of {draws:,} predictions, by its share of the text"
    return [Finding(ERROR, "label-frequencies", place, None, expected, f"{seen[worst]:,}")]


def judge_masked_share(tally: Tally, rules: RecordRules, place: str) -> list[Finding]:
    """Whether as many tokens are masked as the lengths let expect; no draw decides that, but with whole words."""
    wanted = int(tally.lengths @ rules.predictions_by_length())
    predictions = int(tally.predictions @ np.arange(len(tally.predictions)))
    ratio = predictions / wanted
    least, fine = (0.5, 0.9) if rules.whole_word else (0.99, 0.99)
    if fine <= ratio <= 1.01:
        return []
    expected = f"{wanted:,} predictions of {tally.text_tokens:,} tokens, {wanted / tally.text_tokens:.1%}"
    found = f"{predictions:,}, {predictions / tally.text_tokens:.1%}"
    return [Finding(WARNING if least <= ratio <= 1 else ERROR, "masked-share", place, None, expected, found)]


def judge_next_sentence(tally: Tally, place: str) -> list[Finding]:
    """Whether B is random in a sound part of the records."""
    follows, random = map(int, tally.next_sentence)
    draws = follows + random
    low, high = share_interval(random, draws)
    least, most = _NEXT_SENTENCE_SHARE
    expected, found = "B random in about half of the records or somewhat more", f"{random / draws:.1%} of {draws:,}"
    if (random == 0 and draws >= _FEW) or (follows == 0 and draws >= _MANY):
        return [Finding(ERROR, "next-sentence-share", place, None, expected, found)]
    if high < least or low > most:
        return [Finding(WARNING, "next-sentence-share", place, None, expected, found)]
    return []


def judge_lengths(tally: Tally, place: str, *, short_seq_prob: float | None, documents: int | None) -> list[Finding]:
    """Whether the share of records shorter than seq is one that documents and `short_seq_prob` make; warnings only.

    `documents` counts each as often as it is used. About two records a use end with a document, one of them in its random B; of
    those cut short on purpose there are the more the shorter they are.
    """
    if tally.records < _RECORDS_FOR_LENGTHS:
        return []
    seq = len(tally.lengths) - 1
    short = tally.records - int(tally.lengths[seq])
    low, _ = share_interval(short, tally.records)
    found = f"{short / tally.records:.1%} of {tally.records:,}"
    if short == 0 and (short_seq_prob is None or short_seq_prob >= 0.01):
        expected = f"some records shorter than {seq} tokens, from the ends of documents"
        return [Finding(WARNING, "short-share", place, None, expected, found)]
    most = _MANY_SHORT
    if documents and short_seq_prob is not None:
        times = math.log((seq - 3) / 2)  # as many records of a document that is cut to a random length, on average
        on_purpose = short_seq_prob * times / (1 - short_seq_prob + short_seq_prob * times)
        most = on_purpose + 2 * documents / tally.records + _MARGIN_OF_SHORT
    if low <= min(most, 1.0):
        return []
    expected = f"at most about {most:.0%} of records shorter than {seq} tokens; much of the rest is padding"
    return [Finding(WARNING, "short-share", place, None, expected, found)]


def judge_file_sizes(files: Iterable[FileFacts]) -> list[Finding]:
    """Whether each file has about as many records as the others of its split; a warning for the one that differs most."""
    findings = []
    by_split: dict[str, list[FileFacts]] = {}
    for facts in files:
        by_split.setdefault(facts.split, []).append(facts)
    for of_split in by_split.values():
        median = float(np.median([facts.records for facts in of_split]))
        uneven = [f for f in of_split if not median / _SIZE_FACTOR <= f.records <= median * _SIZE_FACTOR]
        if uneven and len(of_split) >= _FILES_FOR_SIZES:
            worst = max(uneven, key=lambda facts: abs(math.log(max(facts.records, 1) / max(median, 1))))
            expected = f"{median / _SIZE_FACTOR:,.0f} to {median * _SIZE_FACTOR:,.0f} records, about as the other files have"
            more = f"; {len(uneven):,} of {len(of_split):,} files are outside" if len(uneven) > 1 else ""
            findings.append(Finding(WARNING, "file-sizes", worst.name, None, expected, f"{worst.records:,}{more}"))
    return findings

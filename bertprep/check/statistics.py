"""Tests of the draws of a split or a file: a table of counts with their expectations.

Given the text, the masks of each record are independent draws. Counts of k predictions at n positions are hypergeometric, and
sums of them no wider than a binomial of the same mean (Hoeffding 1963), so Chernoff's bound holds:

    P(N draws give a fraction as far from p as s) <= exp(-N * KL(s, p)),  KL(s, p) = s ln(s/p) + (1-s) ln((1-s)/(1-p))

A test of many fractions divides the false-alarm probability, one in a million data sets, among them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bertprep.check.counts import Ints, RecordCounts, distinct
from bertprep.check.finding import ERROR, WARNING, Finding
from bertprep.check.rules import RecordRules
from bertprep.kernels import numbers as kernel

FALSE_ALARMS = 1e-6
SHOWN = ("[MASK]", "the token itself", "another token")
MAX_LABELS = 1000
"""The number of most expected tokens whose frequencies as labels are compared."""
_NAMES = ("predictions shown as [MASK]", "left as they were", "as another token")
_MAX_RANDOM_NEXT = 0.8  # of open records: at least half, more if documents often end in one sentence; 0.59 in English
_LEAST_NEXT = 0.25  # of the records that drew it, B follows A: half, but for documents that are cut short on purpose
_NEARLY_ALL_RANDOM_NEXT = 0.96  # of all records: above it, sentences hardly ever follow each other; 0.94 with 8 tokens a record
_ALL_RANDOM_NEXT = 0.93  # where B never follows A, which is then found in 200 records
_UNKNOWN_VOCABULARY_SLACK = 0.001
_MAX_SHORT, _SHORT_MARGIN, _RECORDS_FOR_LENGTHS = 0.9, 0.1, 1000
_FEW_USES = 100  # of documents: one that draws a very short target length may give most of the records
_RANGES = 64  # of the vocabulary, in which the random tokens of a file are counted

Numbers = NDArray[np.float64]
Range = tuple[float, float]
"""The lowest and the highest correct value."""


class Fraction(NamedTuple):
    """A fraction of a split, its expected range, and the interval of the true one."""

    name: str
    hits: int
    draws: int
    expected: Range
    interval: Range

    def as_json(self) -> dict[str, Any]:
        return {"count": self.hits, "of": self.draws, "expected": self.expected, "interval": self.interval}


@dataclass(frozen=True)
class Expected:
    """What is expected under H0 of the records of a split; with whole words not the predictions, which depend on word
    boundaries.
    """

    fractions: list[Fraction]
    streams: int  # files whose draws may be correlated, which widens intervals that many times
    predictions: Ints  # (pred + 1,) records by number of predictions
    positions: NDArray[np.float64]  # (seq,) predictions by position
    is_known: bool


def minus_log_p(found: ArrayLike, draws: float, expected: ArrayLike, *, slack: float = 0.0) -> Numbers:
    """Return -ln of Chernoff's bound on the p-value of `found` among `draws` if `expected` are expected, elementwise.

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
    """Return the bound that one of `tests` two-sided tests exceeds once in a million times at most.

    For sums over `streams` files, correlated by a shared seed, the limit is `streams` times larger (Hoelder's inequality).
    """
    return math.log(2 * tests / FALSE_ALARMS) * streams


def fraction_interval(found: int, draws: int, *, tests: int = 1, streams: int = 1) -> Range:
    """Return the interval of the true fraction that gives `found` of `draws`, except once in a million times.

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

    `streams` is the number of files with correlated draws, `uses` the uses of documents, `short_seq_prob` the probability of a
    short target length; None if unknown.
    """
    draws, slack = int(counts.shown.sum()), _slack(rules)

    def fraction(name: str, hits: int, draws: int, expected: Range, tests: int = 1) -> Fraction:
        return Fraction(name, hits, draws, expected, fraction_interval(hits, draws, tests=tests, streams=streams))

    fractions = [
        fraction(name, hits, draws, (share * (1 - slack), share * (1 + slack)), len(SHOWN))
        for name, hits, share in zip(_NAMES, counts.shown.tolist(), _expected_shares(rules.tokens), strict=True)
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


def _slack(rules: RecordRules) -> float:
    """Return the slack of expected replacements: without a vocabulary, how often a random token is the original is unknown."""
    return 0.0 if rules.tokens else _UNKNOWN_VOCABULARY_SLACK


def _expected_shares(tokens: int) -> tuple[float, float, float]:
    """Return the fractions that show [MASK], the token, another: 80/10/10, adjusted for random tokens that are one of the first
    two.
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


def _next_draws(counts: RecordCounts, uses: int | None) -> int:
    """Return the least number of records that drew whether B follows A.

    Two or more sentences draw it; a single one gets a random B: the last of its document, or one as long as the target.
    """
    if uses is not None and uses < _FEW_USES:
        return 0
    return max(int(counts.signs[[kernel.OPEN_FOLLOWS, kernel.OPEN_RANDOM]].sum()) - (uses or 0), 0)


def _random_next_range(counts: RecordCounts, uses: int | None) -> Range:
    """Return the range for the fraction of random Bs: at least half, but leaving the Bs that must follow."""
    follows, random = map(int, counts.next_sentence)
    least = 1 - _MAX_RANDOM_NEXT if uses is None else _LEAST_NEXT
    must_follow = follows - int(counts.signs[kernel.OPEN_FOLLOWS]) + least * _next_draws(counts, uses)
    return 0.5, 1 - must_follow / max(follows + random, 1)


def _short_range(counts: RecordCounts, short_seq_prob: float | None, uses: int | None) -> Range:
    """Return the range for the fraction of records shorter than seq: about two per use end with a document, more if targets are
    short.
    """
    if counts.records < _RECORDS_FOR_LENGTHS or (uses is not None and uses < _FEW_USES):
        return 0.0, 1.0
    cut_short = (0.01 if short_seq_prob is None else short_seq_prob) * (counts.records if uses is None else uses)
    # A short target length gives a short record where A and B are short. An A below half of the text was not truncated, so it
    # tells how often that is; next to sentences longer than `seq` it is rare.
    of_half = counts.lengths_of_a[: (len(counts.lengths) - 4) // 2].sum() / counts.records
    cut_short *= of_half**2
    least = 1 / counts.records if cut_short > minus_log_limit(1) else 0.0  # Chernoff's bound for zero hits
    if not uses or short_seq_prob is None:
        return least, _MAX_SHORT
    weight = short_seq_prob * math.log((len(counts.lengths) - 4) / 2)  # mean number of records of a randomly short document
    return least, min(weight / (1 - short_seq_prob + weight) + 2 * uses / counts.records + _SHORT_MARGIN, 1.0)


@dataclass(frozen=True)
class _Test:
    """Counts `seen` and `expected` among `draws`; the least likely one is reported, in words formatted with its values."""

    code: str
    right: str
    found: str
    seen: ArrayLike
    expected: ArrayLike
    draws: int
    tests: int = 1  # that divide the false-alarm probability among them
    names: Sequence[object] | Ints = ()
    level: str = ERROR
    is_upper: bool = False  # less than expected is right
    slack: float = 0.0

    def judge(self, where: str, files: int, streams: int) -> Finding | None:
        """Return the finding, if the least likely count is beyond the limit; `files` are judged by the same test."""
        seen = np.atleast_1d(self.seen)
        expected = np.minimum(np.atleast_1d(self.expected), seen if self.is_upper else self.draws)  # rounding may exceed it
        unlikely = minus_log_p(seen, self.draws, expected, slack=self.slack)
        if not unlikely.size or np.max(unlikely) <= minus_log_limit(self.tests * files, streams):
            return None
        worst = int(np.argmax(unlikely))
        low, high = fraction_interval(int(seen[worst]), self.draws, tests=self.tests, streams=streams)
        values = {
            "seen": int(seen[worst]),
            "share": seen[worst] / self.draws,
            "expected": expected[worst],
            "expected_share": expected[worst] / self.draws,
            "draws": self.draws,
            "name": self.names[worst] if len(self.names) else worst,
            "low": low,
            "high": high,
        }
        return Finding(self.code, where, self.right.format(**values), self.found.format(**values), level=self.level)


def judge_split(
    counts: RecordCounts, rules: RecordRules, where: str, expected: Expected, *, uses: int | None = None
) -> list[Finding]:
    """Return the findings about the records of a split, called `where`, of documents with so many `uses`."""
    tests = [*_label_tests(counts, rules), *_next_sentence_tests(counts, uses), *_order_tests(counts, rules)]
    random_tokens = _random_token_tests(counts, rules, np.arange(1, rules.tokens), is_file=False, streams=expected.streams)
    tests += [*_length_tests(counts, expected), _continuation_test(counts, rules)]
    return _judge(_mask_tests(counts, rules), random_tokens, tests, where, streams=expected.streams)


def judge_file(counts: RecordCounts, rules: RecordRules, where: str, *, files: int, uses: int | None = None) -> list[Finding]:
    """Return the findings about one of `files` files, each judged by itself."""
    ends = distinct(np.linspace(0, rules.tokens, _RANGES + 1).astype(np.int64))[1:-1]
    random_tokens = _random_token_tests(counts, rules, ends, is_file=True, streams=1)
    tests = [*_next_sentence_tests(counts, uses), *_order_tests(counts, rules)]
    return _judge(_mask_tests(counts, rules), random_tokens, tests, where, files=files)


def _judge(
    masks: Iterable[_Test], random_tokens: Iterable[_Test], others: Iterable[_Test], where: str, *,
    files: int = 1, streams: int = 1,
) -> list[Finding]:  # fmt: skip
    findings: dict[str, Finding] = {}

    def judge(tests: Iterable[_Test]) -> None:
        for test in tests:
            if test.draws and test.code not in findings and (finding := test.judge(where, files, streams)):
                findings[test.code] = finding

    judge(masks)
    if not findings:  # wrong labels make the wrong tokens look random
        judge(random_tokens)
    judge(others)
    return list(findings.values())


def _mask_tests(counts: RecordCounts, rules: RecordRules) -> Iterator[_Test]:
    draws = int(counts.shown.sum())
    expected: Numbers = np.array(_expected_shares(rules.tokens)) * draws
    right = "{name} at {expected_share:.1%} of {draws:,} predictions"
    found, slack = "{share:.2%} (a true fraction of {low:.2%} to {high:.2%})", _slack(rules)
    yield _Test("replacement-shares", right, found, counts.shown, expected, draws, len(SHOWN), SHOWN, slack=slack)
    seen, what = (counts.word_positions, "words drawn") if rules.whole_word else (counts.positions, "predictions")
    draws = int(seen.sum())
    if not draws:  # with whole words, also if it is unknown what a word is
        return
    expected = counts.expected_positions * (draws / counts.expected_positions.sum())  # the sums are equal except for rounding
    right = f"{{expected:,.0f}} of {{draws:,}} {what} at position {{name}}, as at others"
    yield _Test("position-shares", right, "{seen:,}", seen, expected, draws, 2 * len(seen))
    # the last positions show nothing, since all predictions come before them
    sums = np.cumsum(seen)[:-3], np.cumsum(expected)[:-3]
    right = f"{{expected:,.0f}} of {{draws:,}} {what} at positions 0 to {{name}}"
    yield _Test("position-shares", right, "{seen:,}", *sums, draws, 2 * len(seen))
    seen = counts.signs[[kernel.RIGHT, kernel.LEFT]]
    expected = counts.signs[[kernel.EXPECTED_RIGHT, kernel.EXPECTED_LEFT]] / kernel.SCALE
    right = "{expected:,.0f} of {draws:,} labels equal to the token {name} them, as often as tokens repeat in the text"
    found, sides = "{seen:,}: labels or positions are off by one", ("after", "before")
    yield _Test("label-beside-mask", right, found, seen, expected, draws, 2, sides, is_upper=True)


def _random_token_tests(
    counts: RecordCounts, rules: RecordRules, ends: Ints, *, is_file: bool, streams: int
) -> Iterator[_Test]:
    """Test whether random tokens are uniform, by those before each of the `ends` of the vocabulary and the number of distinct
    ones.
    """
    replaced = counts.replaced
    draws = int(replaced.sum())
    if not draws:
        return
    # (v,) of the predictions that show neither [MASK] nor their label
    expected: Numbers = 1 - counts.labels / max(int(counts.labels.sum()), 1)
    expected[rules.mask] = 0.0
    expected *= draws / expected.sum()
    tests, orders = len(ends) + 1, {"first": np.arange(rules.tokens)}
    if not is_file:
        tests, orders["rarest in the text"] = 3 * rules.tokens + 1, np.argsort(counts.tokens, kind="stable")
        each = "token {name} as {expected:,.1f} of {draws:,} random tokens, as often as any other"
        yield _Test("random-tokens", each, "{seen:,}", replaced, expected, draws, tests)
    for what, order in orders.items():
        right = f"{{expected:,.0f}} of {{draws:,}} random tokens among the {{name:,}} {what} of the vocabulary"
        seen_first, expected_first = np.cumsum(replaced[order])[ends - 1], np.cumsum(expected[order])[ends - 1]
        yield _Test("random-tokens", right, "{seen:,}", seen_first, expected_first, draws, tests, ends)
    if streams == 1:  # correlated draws give fewer distinct tokens; independent ones negatively correlated counts, a safe bound
        distinct = float(np.sum(1 - np.exp(draws * np.log1p(-np.minimum(expected / draws, 1 - 1e-12)))))
        right = f"about {{expected:,.0f}} different tokens of the {{draws:,}} of the vocabulary in {draws:,} random ones"
        yield _Test("random-tokens", right, "{seen:,}", [np.count_nonzero(replaced)], [distinct], len(replaced), tests)


def _label_tests(counts: RecordCounts, rules: RecordRules) -> Iterator[_Test]:
    labels, what = (counts.word_labels, "first label of words") if rules.whole_word else (counts.labels, "label")
    if not len(labels):  # with whole words, if it is unknown what a word is
        return
    most = np.argsort(counts.expected_labels)[::-1][:MAX_LABELS]
    seen, expected = labels[most], counts.expected_labels[most] / kernel.SCALE
    right = f"token {{name}} as the {what} of {{expected:,.0f}} of {{draws:,}} draws, by its frequency in the text"
    yield _Test("label-frequencies", right, "{seen:,}", seen, expected, int(labels.sum()), len(most), most)


def _next_sentence_tests(counts: RecordCounts, uses: int | None) -> Iterator[_Test]:
    """Test whether B follows A in at most half of the records, but in as many as it must (`_next_draws`)."""
    follows, random = map(int, counts.next_sentence)
    records, drawn = follows + random, _next_draws(counts, uses)
    code, found = "next-sentence-share", f"{random / max(records, 1):.1%} of {records:,}"
    right = "B random in half of the records or more"
    yield _Test(code, right, found, follows, records / 2, records, is_upper=True)
    open_follows, open_random = map(int, counts.signs[[kernel.OPEN_FOLLOWS, kernel.OPEN_RANDOM]])
    right = "B random in half of the records or somewhat more, unless documents or records have one sentence"
    if uses is None:
        limit = _MAX_RANDOM_NEXT * drawn
        yield _Test(code, right, found, open_random, limit, drawn, level=WARNING, is_upper=True)
    else:
        ends = f"{open_follows + open_random:,} and {uses:,} ends of documents"
        too_few = f"B after A in about {drawn / 2:,.0f} records or more, of {ends}"
        limit = (1 - _LEAST_NEXT) * drawn
        yield _Test(code, too_few, f"{open_follows:,}", max(drawn - open_follows, 0), limit, drawn, is_upper=True)
    limit = (_NEARLY_ALL_RANDOM_NEXT if follows else _ALL_RANDOM_NEXT) * records
    yield _Test(code, right, found, random, limit, records, level=WARNING, is_upper=True)


def _order_tests(counts: RecordCounts, rules: RecordRules) -> Iterator[_Test]:
    """Test whether a random B is of another document than its A, and neighbours are no more alike than distant records.

    Two records are compared with their four segments, or neighbours, paired the other way.
    """
    own, draws = int(counts.signs[kernel.OWN_B]), int(counts.signs[[kernel.OWN_B, kernel.OTHER_B]].sum())
    right = "random B with as many tokens of their own A as of another, in at most half of {draws:,} cases"
    found = "more of their own in {share:.1%}: labels are wrong, or B is no text of another document"
    yield _Test("next-sentence-text", right, found, own, draws / 2, draws, level=rules.level_of_text, is_upper=True)
    likenesses = ("tokens in common", "the same length", "the same first token")
    for what, wins in zip(likenesses, counts.wins.reshape(-1, 2), strict=True):
        draws = int(wins.sum())
        right = f"records in random order: neighbours with {what} as often as others, in half of {{draws:,}} cases"
        yield _Test("record-order", right, "{share:.1%}", wins[0], draws / 2, draws, 3, level=WARNING, is_upper=True)


def _continuation_test(counts: RecordCounts, rules: RecordRules) -> _Test:
    """Test whether Bs that are labelled random continue their As elsewhere in the text, more often than exchanged ones do."""
    own, draws = int(counts.continued[0]), int(counts.continued.sum())
    right = "random B that continues its own A in other records as rarely as another's, in at most half of {draws:,} cases"
    found = "its own in {share:.1%}: some labels are wrong"
    return _Test("next-sentence-text", right, found, own, draws / 2, draws, level=rules.level_of_text, is_upper=True)


def _length_tests(counts: RecordCounts, expected: Expected) -> Iterator[_Test]:
    seq, shorter = len(counts.lengths) - 1, expected.fractions[-1]
    short, records, (least, most) = shorter.hits, shorter.draws, shorter.expected
    if short < least * records:  # none, which `least` has judged
        right = f"some records shorter than {seq} tokens, from the ends of documents"
        yield _Test("short-share", right, "{share:.1%} of {draws:,}", short, records, records, level=WARNING)
    right = f"at most about {most:.0%} of records shorter than {seq} tokens; much of the rest is padding"
    yield _Test("short-share", right, "{share:.1%} of {draws:,}", short, most * records, records, level=WARNING, is_upper=True)

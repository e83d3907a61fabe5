"""Test the random draws of a split or a file, by comparing tables of counts with expected counts.

The least likely count of a test is reported if chance gives such an unlikely count only once in a million data sets.
`check.expected` has the bound on that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from bertprep.check.counts import Ints, RecordCounts, distinct
from bertprep.check.expected import (
    LEAST_NEXT,
    MAX_RANDOM_NEXT,
    SHOWN,
    Expected,
    Numbers,
    expected_shares,
    fraction_interval,
    minus_log_limit,
    minus_log_p,
    next_draws,
    slack_of,
)
from bertprep.check.finding import ERROR, WARNING, Finding
from bertprep.check.rules import RecordRules
from bertprep.kernels import numbers as kernel

MAX_LABELS = 1000
"""The number of tokens whose frequencies as labels are compared, those that are expected most often."""
_NEARLY_ALL_RANDOM_NEXT = 0.96  # of all records: above it, sentences hardly ever follow each other; 0.94 with 8 tokens a record
_ALL_RANDOM_NEXT = 0.93  # above it B never follows A; 200 records suffice to find that
_RANGES = 64  # ranges of the vocabulary, in which the random tokens of a file are counted


@dataclass(frozen=True)
class _Test:
    """A test of the counts `seen` among `draws` against those `expected`; the least likely one is reported.

    `right` and `found` are the words of the finding, formatted with the values of that count.
    """

    code: str
    right: str
    found: str
    seen: ArrayLike
    expected: ArrayLike
    draws: int
    tests: int = 1  # the number of tests among which the false-alarm probability is divided
    names: Sequence[object] | Ints = ()
    level: str = ERROR
    is_upper: bool = False  # whether fewer than expected are fine
    slack: float = 0.0

    def judge(self, where: str, files: int, streams: int) -> Finding | None:
        """Return a finding if the least likely count is beyond the limit, when `files` files are judged by the same test."""
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
    """Return the findings about the split named `where`; `uses` is how many times its documents were used, if known."""
    tests = [*_label_tests(counts, rules), *_next_sentence_tests(counts, uses), *_order_tests(counts, rules)]
    random_tokens = _random_token_tests(counts, rules, np.arange(1, rules.tokens), is_file=False, streams=expected.streams)
    tests += [*_length_tests(counts, expected), _continuation_test(counts, rules)]
    return _judge(_mask_tests(counts, rules), random_tokens, tests, where, streams=expected.streams)


def judge_file(counts: RecordCounts, rules: RecordRules, where: str, *, files: int, uses: int | None = None) -> list[Finding]:
    """Return the findings about one of `files` files, each of which is judged by itself."""
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
    expected: Numbers = np.array(expected_shares(rules.tokens)) * draws
    right = "{name} at {expected_share:.1%} of {draws:,} predictions"
    found, slack = "{share:.2%} (the true fraction is {low:.2%} to {high:.2%})", slack_of(rules)
    yield _Test("replacement-shares", right, found, counts.shown, expected, draws, len(SHOWN), SHOWN, slack=slack)
    seen, what = (counts.word_positions, "words drawn") if rules.whole_word else (counts.positions, "predictions")
    draws = int(seen.sum())
    if not draws:  # with whole words, also if it is unknown what a word is
        return
    expected = counts.expected_positions * (draws / counts.expected_positions.sum())  # the sums are equal except for rounding
    right = f"{{expected:,.0f}} of {{draws:,}} {what} at position {{name}}, as at other positions"
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
    """Test whether random tokens are uniform, by how many are below each of the `ends`, and by how many are distinct."""
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
        each = "token {name} {expected:,.1f} times among {draws:,} random tokens, as often as any other"
        yield _Test("random-tokens", each, "{seen:,}", replaced, expected, draws, tests)
    for what, order in orders.items():
        right = f"{{expected:,.0f}} of {{draws:,}} random tokens among the {{name:,}} {what} of the vocabulary"
        seen_first, expected_first = np.cumsum(replaced[order])[ends - 1], np.cumsum(expected[order])[ends - 1]
        yield _Test("random-tokens", right, "{seen:,}", seen_first, expected_first, draws, tests, ends)
    if streams == 1:  # correlated draws give fewer distinct tokens; independent ones negatively correlated counts, a safe bound
        distinct = float(np.sum(1 - np.exp(draws * np.log1p(-np.minimum(expected / draws, 1 - 1e-12)))))
        right = f"about {{expected:,.0f}} of the vocabulary's {{draws:,}} tokens among {draws:,} random ones"
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
    """Test whether B follows A in at most half of all records, and in at least half of those that drew it (`next_draws`)."""
    follows, random = map(int, counts.next_sentence)
    records, drawn = follows + random, next_draws(counts, uses)
    code, found = "next-sentence-share", f"{random / max(records, 1):.1%} of {records:,}"
    right = "B random in half of the records or more"
    yield _Test(code, right, found, follows, records / 2, records, is_upper=True)
    open_follows, open_random = map(int, counts.signs[[kernel.OPEN_FOLLOWS, kernel.OPEN_RANDOM]])
    right = "B random in half of the records or somewhat more, unless documents or records have one sentence"
    if uses is None:
        limit = MAX_RANDOM_NEXT * drawn
        yield _Test(code, right, found, open_random, limit, drawn, level=WARNING, is_upper=True)
    else:
        choices = f"{open_follows + open_random:,} records with a choice and {uses:,} ends of documents"
        too_few = f"B after A in about {drawn / 2:,.0f} records or more, given {choices}"
        limit = (1 - LEAST_NEXT) * drawn
        yield _Test(code, too_few, f"{open_follows:,}", max(drawn - open_follows, 0), limit, drawn, is_upper=True)
    limit = (_NEARLY_ALL_RANDOM_NEXT if follows else _ALL_RANDOM_NEXT) * records
    yield _Test(code, right, found, random, limit, records, level=WARNING, is_upper=True)


def _order_tests(counts: RecordCounts, rules: RecordRules) -> Iterator[_Test]:
    """Test whether random Bs come from other documents than their As, and whether neighbours are no more similar than others.

    For that, two records are compared with their segments exchanged, and pairs of neighbours with their members exchanged.
    """
    own, draws = int(counts.signs[kernel.OWN_B]), int(counts.signs[[kernel.OWN_B, kernel.OTHER_B]].sum())
    right = "random Bs that share more tokens with their own A than with another in at most half of {draws:,} cases"
    found = "{share:.1%}: labels are wrong, or Bs are not from other documents"
    yield _Test("next-sentence-text", right, found, own, draws / 2, draws, level=rules.level_of_text, is_upper=True)
    likenesses = ("more tokens in common", "more similar lengths", "more similar first tokens")
    for what, wins in zip(likenesses, counts.wins.reshape(-1, 2), strict=True):
        draws = int(wins.sum())
        right = f"records in random order, in which neighbours have {what} than others in half of {{draws:,}} cases"
        yield _Test("record-order", right, "{share:.1%}", wins[0], draws / 2, draws, 3, level=WARNING, is_upper=True)


def _continuation_test(counts: RecordCounts, rules: RecordRules) -> _Test:
    """Test whether Bs labelled random continue their As elsewhere in the text more often than exchanged Bs do."""
    own, draws = int(counts.continued[0]), int(counts.continued.sum())
    right = "random Bs that continue their own A in other records more often than another's in at most half of {draws:,} cases"
    found = "{share:.1%}: some labels are wrong"
    return _Test("next-sentence-text", right, found, own, draws / 2, draws, level=rules.level_of_text, is_upper=True)


def _length_tests(counts: RecordCounts, expected: Expected) -> Iterator[_Test]:
    seq, shorter = len(counts.lengths) - 1, expected.fractions[-1]
    short, records, (least, most) = shorter.hits, shorter.draws, shorter.expected
    if short < least * records:  # none, which `least` has judged
        right = f"some records shorter than {seq} tokens, since documents end"
        yield _Test("short-share", right, "{share:.1%} of {draws:,}", short, records, records, level=WARNING)
    right = f"at most about {most:.0%} of records shorter than {seq} tokens; much of the rest is padding"
    yield _Test("short-share", right, "{share:.1%} of {draws:,}", short, most * records, records, level=WARNING, is_upper=True)

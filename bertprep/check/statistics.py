"""Tests of a data set as a whole: one table of counts with what is expected of them; each fails by chance once in a million.

A row of the table is a `_Test`, with the words of its finding; all are judged by the bound of `expectations`. What no bound
decides, such as the sizes of files, is compared below the table.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from bertprep.check.expectations import (
    MANY,
    MAX_RANDOM_NEXT,
    MOST_LABELS,
    SHOWN,
    Numbers,
    expected_fractions,
    fraction_interval,
    minus_log_limit,
    minus_log_p,
    next_draws,
    predictions_wanted,
    random_next_range,
    slack_of,
)
from bertprep.check.outcome import ERROR, WARNING, Counts, Expected, FileFacts, Finding, Tally
from bertprep.check.records import RecordRules
from bertprep.kernels import numbers as faults
from bertprep.workspace.layout import TEST, TRAINING

_NEARLY_ALL_RANDOM_NEXT = 0.96  # of all records: above it, sentences hardly ever follow each other; 0.94 with 8 tokens a record
_FOLLOWS_ELSEWHERE = 0.2  # fraction in the other files above which a file without any is conspicuous
_RANGES = 64  # ranges of the vocabulary in which the random tokens of a file are counted
_FILES_FOR_SIZES = 4
_SIZE_FACTOR = 2.0
_MAX_TEST = 1 / 3
_TEST_FACTOR = 1.5  # more than whole documents and their lengths explain


@dataclass(frozen=True)
class _Test:
    """Some of `draws` that were `seen`, one count or several, against those `expected`; the least likely one is reported.

    Its words are formatted with `seen` and `expected`, their fractions `share` and `expected_share` of the `draws`, `name` from
    `names`, and the interval from `low` to `high` of the true fraction.
    """

    code: str
    right: str
    found: str
    seen: ArrayLike
    expected: ArrayLike
    draws: int
    tests: int = 1  # that divide the false-alarm probability among them
    names: Sequence[object] | Counts = ()
    level: str = ERROR
    is_upper: bool = False  # less than expected is right
    slack: float = 0.0

    def judge(self, where: str, files: int, streams: int) -> Finding | None:
        """The finding, if the least likely count is beyond the limit; `files` are judged by the same test."""
        seen = np.atleast_1d(self.seen)
        expected = np.minimum(self.expected, seen if self.is_upper else self.draws)  # rounding may exceed the draws
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
        return Finding(self.level, self.code, where, None, self.right.format(**values), self.found.format(**values))


def _judge(tests: Iterable[_Test], where: str, *, files: int = 1, streams: int = 1) -> list[Finding]:
    """The findings of these tests; of those of one code the first that fails."""
    findings: dict[str, Finding] = {}
    for test in tests:
        if test.draws and test.code not in findings and (finding := test.judge(where, files, streams)):
            findings[test.code] = finding
    return list(findings.values())


def judge(tally: Tally, rules: RecordRules, where: str, expected: Expected, *, uses: int | None = None) -> list[Finding]:
    """Findings about the records of a split as a whole, which is called `where` in them; `uses` as in `expect`."""
    if not tally.records:
        return []
    streams = expected.streams
    masks = _judge(_mask_tests(tally, rules), where, streams=streams)
    # wrong labels make the wrong tokens look random
    random_tokens = [] if masks else _judge(_random_token_tests(tally, rules, streams), where, streams=streams)
    return [
        *masks,
        *random_tokens,
        *_judge(_label_tests(tally, rules), where, streams=streams),
        *_judge_masked_fraction(tally, rules, where, expected),
        *judge_next_sentence(tally, where, streams=streams, uses=uses),
        *_judge(_order_tests(tally, rules), where, streams=streams),
        *_judge_lengths(tally, where, expected),
    ]


def judge_file(tally: Tally, rules: RecordRules, where: str, *, files: int, uses: int | None = None) -> list[Finding]:
    """Findings about one of `files` files, judged separately."""
    masks = _judge(_mask_tests(tally, rules), where, files=files)
    return [
        *masks,
        *([] if masks else _judge(_random_range_tests(tally, rules), where, files=files)),
        *judge_next_sentence(tally, where, files=files, uses=uses),
        *_judge(_order_tests(tally, rules), where, files=files),
    ]


def _mask_tests(tally: Tally, rules: RecordRules) -> Iterator[_Test]:
    """The 80/10/10 replacements, the positions of the masks, and whether labels belong to their positions."""
    draws = int(tally.shown.sum())
    expected: Numbers = np.array(expected_fractions(rules.tokens)) * draws
    right = "{name} at {expected_share:.1%} of {draws:,} predictions"
    found, slack = "{share:.2%} (a true fraction of {low:.2%} to {high:.2%})", slack_of(rules)
    yield _Test("replacement-shares", right, found, tally.shown, expected, draws, len(SHOWN), SHOWN, slack=slack)
    seen, what = (tally.word_positions, "words drawn") if rules.whole_word else (tally.positions, "predictions")
    draws = int(seen.sum())
    if not draws:  # with whole words, also if it is unknown what a word is
        return
    expected = tally.expected_positions * (draws / tally.expected_positions.sum())  # the sums are equal except for rounding
    right = f"{{expected:,.0f}} of {{draws:,}} {what} at position {{name}}, as at others"
    yield _Test("position-shares", right, "{seen:,}", seen, expected, draws, 2 * len(seen))
    # the last positions show nothing, since all predictions come before them
    sums = np.cumsum(seen)[:-3], np.cumsum(expected)[:-3]
    right = f"{{expected:,.0f}} of {{draws:,}} {what} at positions 0 to {{name}}"
    yield _Test("position-shares", right, "{seen:,}", *sums, draws, 2 * len(seen))
    seen = tally.signs[[faults.RIGHT, faults.LEFT]]
    expected = tally.signs[[faults.EXPECTED_RIGHT, faults.EXPECTED_LEFT]] / faults.SCALE
    right = "{expected:,.0f} of {draws:,} labels equal to the token {name} them, as often as tokens repeat in the text"
    found, sides = "{seen:,}: labels or positions are off by one", ("after", "before")
    yield _Test("label-beside-mask", right, found, seen, expected, draws, 2, sides, is_upper=True)


def _random_token_tests(tally: Tally, rules: RecordRules, streams: int) -> Iterator[_Test]:
    """Whether random tokens are uniform: each token, the first ones, the rarest in the text, the number of distinct ones."""
    replaced, expected = tally.replaced, _expected_random_tokens(tally, rules)
    draws, tests = int(replaced.sum()), 3 * rules.tokens + 1
    each = "token {name} as {expected:,.1f} of {draws:,} random tokens, as often as any other"
    yield _Test("random-tokens", each, "{seen:,}", replaced, expected, draws, tests)
    rarest_first = np.argsort(tally.tokens, kind="stable")
    for order, what in ((np.arange(rules.tokens), "first"), (rarest_first, "rarest in the text")):
        yield _among_first(np.cumsum(replaced[order]), np.cumsum(expected[order]), np.arange(1, rules.tokens), what, tests)
    if streams == 1:  # correlated draws give fewer distinct tokens
        yield _distinct(replaced, expected, tests)


def _random_range_tests(tally: Tally, rules: RecordRules) -> Iterator[_Test]:
    """The same for one file, over a few ranges of the vocabulary."""
    expected = _expected_random_tokens(tally, rules)
    ends = np.unique(np.linspace(0, rules.tokens, _RANGES + 1).astype(np.int64))[1:-1]
    yield _among_first(np.cumsum(tally.replaced), np.cumsum(expected), ends, "first", len(ends) + 1)
    yield _distinct(tally.replaced, expected, len(ends) + 1)


def _expected_random_tokens(tally: Tally, rules: RecordRules) -> Numbers:
    """(v,) the expected number of predictions that show each token, of those that show neither [MASK] nor their label."""
    expected: Numbers = 1 - tally.labels / max(int(tally.labels.sum()), 1)
    if rules.tokens:
        expected[rules.mask] = 0.0
        expected *= int(tally.replaced.sum()) / expected.sum()
    return expected


def _among_first(seen: Counts, expected: Numbers, ends: Counts, what: str, tests: int) -> _Test:
    """The random tokens before each of the `ends` of an order of the vocabulary, of running sums."""
    right = f"{{expected:,.0f}} of {{draws:,}} random tokens among the {{name:,}} {what} of the vocabulary"
    draws = int(seen[-1]) if len(seen) else 0
    return _Test("random-tokens", right, "{seen:,}", seen[ends - 1], expected[ends - 1], draws, tests, ends)


def _distinct(replaced: Counts, expected: Numbers, tests: int) -> _Test:
    """The number of distinct random tokens; they are negatively correlated, so the bound still holds."""
    draws, tokens = int(replaced.sum()), len(replaced) if replaced.any() else 0
    distinct = float(np.sum(1 - np.exp(draws * np.log1p(-np.minimum(expected / max(draws, 1), 1 - 1e-12)))))
    right = f"about {{expected:,.0f}} different tokens of the {{draws:,}} of the vocabulary in {draws:,} random ones"
    return _Test("random-tokens", right, "{seen:,}", [np.count_nonzero(replaced)], [distinct], tokens, tests)


def _label_tests(tally: Tally, rules: RecordRules) -> Iterator[_Test]:
    """Whether the most expected labels occur as often as their frequency in the text implies."""
    labels, what = (tally.word_labels, "first label of words") if rules.whole_word else (tally.labels, "label")
    if not len(labels):  # with whole words, if it is unknown what a word is
        return
    most = np.argsort(tally.expected_labels)[::-1][:MOST_LABELS]
    seen, expected = labels[most], tally.expected_labels[most] / faults.SCALE
    right = f"token {{name}} as the {what} of {{expected:,.0f}} of {{draws:,}} draws, by its frequency in the text"
    yield _Test("label-frequencies", right, "{seen:,}", seen, expected, int(labels.sum()), len(most), most)


def _order_tests(tally: Tally, rules: RecordRules) -> Iterator[_Test]:
    """Whether a random B is of another document than its A, and neighbours are no more alike than distant records.

    Two records are compared with the same four segments paired the other way, and two pairs of neighbours with the same four
    records paired the other way. A random B, of another document and of a length that its A leaves, has more tokens in common
    with its A in at most half of the pairs; in a shuffled file either pair is more alike with equal probability.
    """
    own, draws = int(tally.signs[faults.OWN_B]), int(tally.signs[[faults.OWN_B, faults.OTHER_B]].sum())
    right = "random B with as many tokens of their own A as of another, in at most half of {draws:,} cases"
    found = "more of their own in {share:.1%}: labels are wrong, or B is no text of another document"
    level = rules.level_of_text
    yield _Test("next-sentence-text", right, found, [own], [draws / 2], draws, level=level, is_upper=True)
    likenesses = ("tokens in common", "the same length", "the same first token")
    for what, wins in zip(likenesses, tally.wins.reshape(-1, 2), strict=True):
        draws = int(wins.sum())
        right = f"records in random order: neighbours with {what} as often as others, in half of {{draws:,}} cases"
        yield _Test("record-order", right, "{share:.1%}", wins[:1], [draws / 2], draws, 3, level=WARNING, is_upper=True)


# --- what several conditions decide


def _judge_masked_fraction(tally: Tally, rules: RecordRules, where: str, expected: Expected) -> list[Finding]:
    """Check that the lengths explain the number of masked tokens; with whole words, an upper bound."""
    low, high = expected.masked
    predictions = int(tally.predictions @ np.arange(len(tally.predictions)))
    if low <= predictions / tally.text_tokens <= high:
        return []
    wanted = predictions_wanted(tally, rules)
    right = f"{wanted:,} predictions of {tally.text_tokens:,} tokens, {wanted / tally.text_tokens:.1%}"
    found = f"{predictions:,}, {predictions / tally.text_tokens:.1%}"
    return [Finding(ERROR, "masked-share", where, None, right, found)]


def judge_next_sentence(
    tally: Tally, where: str, *, files: int = 1, streams: int = 1, uses: int | None = None
) -> list[Finding]:
    """Check that B follows A in at most half of the records, but in as many as it must: see `random_next_range`."""
    follows, random = map(int, tally.next_sentence)
    draws, limit = follows + random, minus_log_limit(files, streams)
    if not draws:
        return []
    low, high = random_next_range(tally, uses)
    found = f"{random / draws:.1%} of {draws:,}"
    if random / draws < low:
        if minus_log_p(follows, draws, draws / 2) <= limit:
            return []
        return [Finding(ERROR, "next-sentence-share", where, None, "B random in half of the records or more", found)]
    open_follows, open_random = map(int, tally.signs[[faults.OPEN_FOLLOWS, faults.OPEN_RANDOM]])
    is_open, drawn, is_above = open_follows + open_random, next_draws(tally, uses), random / draws > high
    if is_above and uses is not None and drawn > 0 and minus_log_p(open_follows, drawn, drawn / 2) > limit:
        expected = f"B after A in about {drawn / 2:,.0f} records or more, of {is_open:,} and {uses:,} ends of documents"
        return [Finding(ERROR, "next-sentence-share", where, None, expected, f"{open_follows:,}")]
    if files > 1:
        return []
    is_too_high = is_above and uses is None and _is_above(open_random, is_open, MAX_RANDOM_NEXT)
    if is_too_high or _is_above(random, draws, _NEARLY_ALL_RANDOM_NEXT) or (follows == 0 and draws >= MANY):
        expected = "B random in half of the records or somewhat more, unless documents or records have one sentence"
        return [Finding(WARNING, "next-sentence-share", where, None, expected, found)]
    return []


def _is_above(found: int, draws: int, fraction: float) -> bool:
    """Whether more than a fraction of the draws were found, which chance does not explain."""
    return found > fraction * draws and bool(minus_log_p(found, draws, fraction * draws) > minus_log_limit(1))


def judge_labels_of_files(files: Sequence[tuple[FileFacts, Counts]]) -> list[Finding]:
    """Findings about files in which no B follows its A although others have some; given with their counts of labels 0 and 1."""
    findings = []
    of_split: dict[str, Counts] = {}
    for facts, labels in files:
        of_split[facts.split] = of_split.get(facts.split, 0) + labels
    for facts, labels in files:
        follows, random = map(int, labels)
        others = of_split[facts.split] - labels
        if follows == 0 and random >= MANY and int(others[0]) > _FOLLOWS_ELSEWHERE * int(others.sum()):
            expected = f"B after A in some records, as in {others[0] / others.sum():.1%} of the other files' records"
            findings.append(Finding(WARNING, "next-sentence-share", facts.name, None, expected, f"none of {random:,}"))
    return findings


def _judge_lengths(tally: Tally, where: str, expected: Expected) -> list[Finding]:
    """Check that documents explain the number of records shorter than seq; warnings only."""
    seq, (least, most) = len(tally.lengths) - 1, expected.short
    short = tally.records - int(tally.lengths[seq])
    if short / tally.records < least:
        right = f"some records shorter than {seq} tokens, from the ends of documents"
    elif _is_above(short, tally.records, most):
        right = f"at most about {most:.0%} of records shorter than {seq} tokens; much of the rest is padding"
    else:
        return []
    return [Finding(WARNING, "short-share", where, None, right, f"{short / tally.records:.1%} of {tally.records:,}")]


def judge_file_sizes(files: Iterable[FileFacts]) -> list[Finding]:
    """A warning if files of a split differ much in their number of records, for the one that differs most."""
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


def judge_split_sizes(files: Iterable[FileFacts], test_fraction: float | None = None) -> list[Finding]:
    """A warning if the test split is far larger than `test_fraction` of all records, or without one than a third."""
    sizes: dict[str, int] = {}
    for facts in files:
        sizes[facts.split] = sizes.get(facts.split, 0) + facts.records
    test, total = sizes.get(TEST, 0), sum(sizes.get(split, 0) for split in (TRAINING, TEST))
    most = max(_MAX_TEST, _TEST_FACTOR * (test_fraction or 0.0)) * total
    if TRAINING not in sizes or test <= (sizes[TRAINING] if test < MANY else min(most, sizes[TRAINING])):
        return []
    why = "a test split is the smaller one" if test_fraction is None else f"--test-fraction {test_fraction:g} gives"
    expected = f"at most about {most:,.0f} of the {total:,} records, as {why}"
    return [Finding(WARNING, "split-sizes", TEST, None, expected, f"{test:,}")]

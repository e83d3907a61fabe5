"""Tests of a data set as a whole against fair draws; each raises a false alarm at most once in a million data sets.

The expected values, and the bound used by all tests, are in `expectations`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from bertprep.check.expectations import (
    MANY,
    MOST_LABELS,
    MOST_RANDOM_NEXT,
    SHOWN,
    UNKNOWN_VOCABULARY_SLACK,
    Numbers,
    fair_fractions,
    fraction_interval,
    limit_of_surprise,
    predictions_wanted,
    random_next_range,
    surprise,
    tossed,
)
from bertprep.check.findings import ERROR, WARNING, Finding
from bertprep.check.outcome import Counts, Expected, FileFacts, Tally
from bertprep.check.record_checks import Counted, RecordRules
from bertprep.kernels import numbers as faults
from bertprep.workspace.layout import TEST, TRAINING

_FOLLOWS_ELSEWHERE = 0.2  # fraction in the other files above which a file without any is conspicuous
_RANGES = 64  # ranges of the vocabulary in which the random tokens of a file are counted
_FILES_FOR_SIZES = 4
_SIZE_FACTOR = 2.0


def judge(counted: Counted, rules: RecordRules, where: str, expected: Expected, *, uses: int | None = None) -> list[Finding]:
    """Findings about the records of a split as a whole, which is called `where` in them; `uses` as in `expect`."""
    if not counted.tally.records:
        return []
    streams = expected.streams
    masks = judge_masks(counted, rules, where, streams=streams)
    return [
        *masks,
        # wrong labels make the wrong tokens look random
        *(judge_random_tokens(counted, rules, where, streams=streams) if not masks else []),
        *judge_labels(counted, rules, where, streams=streams),
        *judge_masked_fraction(counted, rules, where, expected),
        *judge_next_sentence(counted, where, streams=streams, uses=uses),
        *judge_order(counted, where, streams=streams),
        *judge_lengths(counted.tally, where, expected),
    ]


def judge_file(counted: Counted, rules: RecordRules, where: str, *, files: int, uses: int | None = None) -> list[Finding]:
    """Findings about one of `files` files, judged separately."""
    masks = judge_masks(counted, rules, where, files=files)
    return [
        *masks,
        *(judge_ranges(counted, rules, where, files=files) if not masks else []),
        *judge_next_sentence(counted, where, files=files, uses=uses),
        *judge_order(counted, where, files=files),
    ]


def judge_masks(counted: Counted, rules: RecordRules, where: str, *, files: int = 1, streams: int = 1) -> list[Finding]:
    """Check the 80/10/10 replacements, the positions of the masks, and that labels belong to their positions."""
    return [
        *judge_replacements(counted.tally, rules, where, files=files, streams=streams),
        *judge_positions(counted, rules, where, files=files, streams=streams),
        *judge_neighbours(counted, rules, where, files=files, streams=streams),
    ]


def _find_worst(found: ArrayLike, draws: int, expected: Numbers, limit: float, *, slack: float = 0.0) -> int | None:
    """The index of the most surprising count, if it exceeds `limit`."""
    surprises = surprise(found, draws, np.minimum(expected, draws), slack=slack)  # rounding may exceed the number of draws
    return int(np.argmax(surprises)) if surprises.size and np.max(surprises) > limit else None


def judge_replacements(tally: Tally, rules: RecordRules, where: str, *, files: int = 1, streams: int = 1) -> list[Finding]:
    """Check that 80 % of predictions show [MASK], 10 % the token itself, 10 % a random one."""
    draws = int(tally.shown.sum())
    if draws == 0:
        return []
    fair = np.array(fair_fractions(rules.tokens))
    slack = 0.0 if rules.tokens else UNKNOWN_VOCABULARY_SLACK
    worst = _find_worst(tally.shown, draws, fair * draws, limit_of_surprise(len(SHOWN) * files, streams), slack=slack)
    if worst is None:
        return []
    low, high = fraction_interval(int(tally.shown[worst]), draws, tests=len(SHOWN), streams=streams)
    expected = f"{SHOWN[worst]} at {fair[worst]:.1%} of {draws:,} predictions"
    found = f"{tally.shown[worst] / draws:.2%} (a true fraction of {low:.2%} to {high:.2%})"
    return [Finding(ERROR, "replacement-shares", where, None, expected, found)]


def judge_positions(counted: Counted, rules: RecordRules, where: str, *, files: int = 1, streams: int = 1) -> list[Finding]:
    """Check that masks prefer no position: each position, and all up to each, against the lengths of the records."""
    seen, fair = counted.word_positions if rules.whole_word else counted.tally.positions, counted.expected_positions
    draws, what = int(seen.sum()), "words drawn" if rules.whole_word else "predictions"
    if draws == 0:  # with whole words, also if it is unknown what a word is
        return []
    fair = fair * (draws / fair.sum())  # the sums are equal except for rounding
    limit = limit_of_surprise(2 * len(seen) * files, streams)
    if (worst := _find_worst(seen, draws, fair, limit)) is not None:
        expected = f"{fair[worst]:,.0f} of {draws:,} {what} at position {worst}, as at others"
        return [Finding(ERROR, "position-shares", where, None, expected, f"{seen[worst]:,}")]
    # the last positions show nothing, since all predictions come before them
    seen, fair = np.cumsum(seen)[:-3], np.cumsum(fair)[:-3]
    if (worst := _find_worst(seen, draws, fair, limit)) is not None:
        expected = f"{fair[worst]:,.0f} of {draws:,} {what} at positions 0 to {worst}"
        return [Finding(ERROR, "position-shares", where, None, expected, f"{seen[worst]:,}")]
    return []


def judge_neighbours(counted: Counted, rules: RecordRules, where: str, *, files: int = 1, streams: int = 1) -> list[Finding]:
    """Check that labels are not off by one: they equal a neighbour no more often than other tokens do."""
    signs = counted.signs
    draws = int((counted.word_positions if rules.whole_word else counted.tally.positions).sum())
    if draws == 0:
        return []
    seen = signs[[faults.RIGHT, faults.LEFT]]
    fair = signs[[faults.EXPECTED_RIGHT, faults.EXPECTED_LEFT]] / faults.SCALE
    worst = _find_worst(seen, draws, np.minimum(fair, seen), limit_of_surprise(2 * files, streams))  # fewer is fine
    if worst is None:
        return []
    side = ("after", "before")[worst]
    expected = f"{fair[worst]:,.0f} of {draws:,} labels equal to the token {side} them, as often as tokens repeat in the text"
    found = f"{seen[worst]:,}: labels or positions are off by one"
    return [Finding(ERROR, "label-beside-mask", where, None, expected, found)]


def judge_random_tokens(counted: Counted, rules: RecordRules, where: str, *, streams: int = 1) -> list[Finding]:
    """Check that random tokens are uniform: each token, the first ones, the rarest in the text, the number of distinct ones."""
    replaced, draws = counted.replaced, int(counted.replaced.sum())
    if draws == 0:
        return []
    fair = _fair_random_tokens(counted, rules)
    limit = limit_of_surprise(3 * rules.tokens + 1, streams)
    if (worst := _find_worst(replaced, draws, fair, limit)) is not None:
        expected = f"token {worst} as {fair[worst]:,.1f} of {draws:,} random tokens, as often as any other"
        return [Finding(ERROR, "random-tokens", where, None, expected, f"{replaced[worst]:,}")]
    rarest_first = np.argsort(counted.tally.tokens, kind="stable")
    for order, what in ((np.arange(rules.tokens), "first"), (rarest_first, "rarest in the text")):
        seen, before = np.cumsum(replaced[order])[:-1], np.cumsum(fair[order])[:-1]
        if (worst := _find_worst(seen, draws, before, limit)) is not None:
            expected = f"{before[worst]:,.0f} of {draws:,} random tokens among the {worst + 1:,} {what} of the vocabulary"
            return [Finding(ERROR, "random-tokens", where, None, expected, f"{seen[worst]:,}")]
    return _judge_different(replaced, fair, where, limit) if streams == 1 else []  # correlated draws give fewer distinct tokens


def judge_ranges(counted: Counted, rules: RecordRules, where: str, *, files: int) -> list[Finding]:
    """The same for one file, over a few ranges of the vocabulary."""
    draws = int(counted.replaced.sum())
    if draws == 0:
        return []
    fair = _fair_random_tokens(counted, rules)
    ends = np.unique(np.linspace(0, rules.tokens, _RANGES + 1).astype(np.int64))[1:-1]
    seen, before = np.cumsum(counted.replaced)[ends - 1], np.cumsum(fair)[ends - 1]
    limit = limit_of_surprise((len(ends) + 1) * files)
    if (worst := _find_worst(seen, draws, before, limit)) is not None:
        expected = f"{before[worst]:,.0f} of {draws:,} random tokens among the {ends[worst]:,} first of the vocabulary"
        return [Finding(ERROR, "random-tokens", where, None, expected, f"{seen[worst]:,}")]
    return _judge_different(counted.replaced, fair, where, limit)


def _fair_random_tokens(counted: Counted, rules: RecordRules) -> Numbers:
    """(v,) the expected number of predictions that show each token, of those that show neither [MASK] nor their label."""
    labels = counted.tally.labels
    fair: Numbers = 1 - labels / max(int(labels.sum()), 1)
    fair[rules.mask] = 0.0
    fair *= int(counted.replaced.sum()) / fair.sum()
    return fair


def _judge_different(replaced: Counts, fair: Numbers, where: str, limit: float) -> list[Finding]:
    """Check the number of distinct random tokens; they are negatively correlated, so the bound still holds."""
    draws, tokens = int(replaced.sum()), len(replaced)
    different = int(np.count_nonzero(replaced))
    expected = float(np.sum(1 - np.exp(draws * np.log1p(-np.minimum(fair / draws, 1 - 1e-12)))))
    if surprise(different, tokens, expected) <= limit:
        return []
    wanted = f"about {expected:,.0f} different tokens of the {tokens:,} of the vocabulary in {draws:,} random ones"
    return [Finding(ERROR, "random-tokens", where, None, wanted, f"{different:,}")]


def judge_labels(counted: Counted, rules: RecordRules, where: str, *, streams: int = 1) -> list[Finding]:
    """Check that the most expected labels occur as often as their frequency in the text implies."""
    labels = counted.word_labels if rules.whole_word else counted.tally.labels
    draws, what = int(labels.sum()), "first label of words" if rules.whole_word else "label"
    if draws == 0:
        return []
    most = np.argsort(counted.expected_labels)[::-1][:MOST_LABELS]
    seen, fair = labels[most], counted.expected_labels[most] / faults.SCALE
    worst = _find_worst(seen, draws, fair, limit_of_surprise(len(most), streams))
    if worst is None:
        return []
    expected = f"token {most[worst]} as the {what} of {fair[worst]:,.0f} of {draws:,} draws, by its frequency in the text"
    return [Finding(ERROR, "label-frequencies", where, None, expected, f"{seen[worst]:,}")]


def judge_masked_fraction(counted: Counted, rules: RecordRules, where: str, expected: Expected) -> list[Finding]:
    """Check that the lengths explain the number of masked tokens; with whole words, an upper bound."""
    tally, (low, high) = counted.tally, expected.masked
    predictions = int(tally.predictions @ np.arange(len(tally.predictions)))
    if low <= predictions / tally.text_tokens <= high:
        return []
    wanted = predictions_wanted(counted, rules)
    right = f"{wanted:,} predictions of {tally.text_tokens:,} tokens, {wanted / tally.text_tokens:.1%}"
    found = f"{predictions:,}, {predictions / tally.text_tokens:.1%}"
    return [Finding(ERROR, "masked-share", where, None, right, found)]


def judge_next_sentence(
    counted: Counted, where: str, *, files: int = 1, streams: int = 1, uses: int | None = None
) -> list[Finding]:
    """Check that B follows A in at most half of the records, but in as many as it must: see `random_next_range`."""
    follows, random = map(int, counted.tally.next_sentence)
    draws, limit = follows + random, limit_of_surprise(files, streams)
    low, high = random_next_range(counted, uses)
    found = f"{random / max(draws, 1):.1%} of {draws:,}"
    if not draws or low <= random / draws <= high:
        return []
    if random / draws < low:
        if surprise(follows, draws, draws / 2) <= limit:
            return []
        return [Finding(ERROR, "next-sentence-share", where, None, "B random in half of the records or more", found)]
    open_follows, open_random = map(int, counted.signs[[faults.OPEN_FOLLOWS, faults.OPEN_RANDOM]])
    is_open, coins = open_follows + open_random, tossed(counted, uses)
    if uses is not None and coins > 0 and surprise(open_follows, coins, coins / 2) > limit:
        expected = f"B after A in about {coins / 2:,.0f} records or more, of {is_open:,} and {uses:,} ends of documents"
        return [Finding(ERROR, "next-sentence-share", where, None, expected, f"{open_follows:,}")]
    if files > 1:
        return []
    most = MOST_RANDOM_NEXT * is_open
    is_too_high = uses is None and open_random > most and surprise(open_random, is_open, most) > limit_of_surprise(1)
    if is_too_high or (follows == 0 and draws - (uses or 0) >= MANY):
        expected = "B random in about half of the records or somewhat more, unless documents have one sentence"
        return [Finding(WARNING, "next-sentence-share", where, None, expected, found)]
    return []


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


def judge_order(counted: Counted, where: str, *, files: int = 1, streams: int = 1) -> list[Finding]:
    """Check that records are shuffled: neighbours then have no more tokens in common, and no closer lengths, than others.

    Two pairs of neighbours are compared with the same four records paired the other way: in a shuffled file either is more
    alike with equal probability, whatever the records are.
    """
    for closer, less, what in ((0, 1, "tokens in common"), (2, 3, "the same length")):
        wins, draws = int(counted.wins[closer]), int(counted.wins[closer] + counted.wins[less])
        if 2 * wins > draws and surprise(wins, draws, draws / 2) > limit_of_surprise(2 * files, streams):
            expected = f"records in random order: neighbours with {what} as often as others, in half of {draws:,} cases"
            return [Finding(WARNING, "record-order", where, None, expected, f"{wins / draws:.1%}")]
    return []


def judge_lengths(tally: Tally, where: str, expected: Expected) -> list[Finding]:
    """Check that documents explain the number of records shorter than seq; warnings only."""
    seq, (least, most) = len(tally.lengths) - 1, expected.short
    short = tally.records - int(tally.lengths[seq])
    found = f"{short / tally.records:.1%} of {tally.records:,}"
    if short / tally.records < least:
        right = f"some records shorter than {seq} tokens, from the ends of documents"
        return [Finding(WARNING, "short-share", where, None, right, found)]
    if short / tally.records <= most or surprise(short, tally.records, most * tally.records) <= limit_of_surprise(1):
        return []
    right = f"at most about {most:.0%} of records shorter than {seq} tokens; much of the rest is padding"
    return [Finding(WARNING, "short-share", where, None, right, found)]


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


def judge_split_sizes(files: Iterable[FileFacts]) -> list[Finding]:
    """A warning if the test split has more records than training: the folders may have been swapped."""
    sizes: dict[str, int] = {}
    for facts in files:
        sizes[facts.split] = sizes.get(facts.split, 0) + facts.records
    if TRAINING not in sizes or sizes.get(TEST, 0) <= sizes[TRAINING]:
        return []
    expected = f"fewer records than the {sizes[TRAINING]:,} of training"
    return [Finding(WARNING, "split-sizes", TEST, None, expected, f"{sizes[TEST]:,}")]

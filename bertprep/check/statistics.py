"""Does a data set as a whole look as fair draws make it? Each test has a false-alarm rate of at most one in a million.

Given the text of the records, the generator draws the masks of each record by itself, whatever the rounds, documents and
files: so the tests take the text as it is, and ask only of what was drawn. In a record of k predictions at n places, how many
hit a given token, or the first places, is hypergeometric, and what replaces each is a draw of its own. With whole words the
same holds of the words of one size. Sums of such counts over records are no wider than a binomial of the same mean (Hoeffding
1963), so that Chernoff's bound holds for them:

    P(a share of N draws as far from p as s, on its side) <= exp(-N * KL(s, p)),  KL(s, p) = s ln(s/p) + (1-s) ln((1-s)/(1-p))

It needs no table and no approximation, and holds for small numbers. A test of many shares divides the rate among them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bertprep.check.findings import ERROR, WARNING, Finding
from bertprep.check.outcome import FileFacts
from bertprep.check.record_checks import Counted, RecordRules
from bertprep.check.tally import Counts, Tally
from bertprep.kernels import numbers as faults
from bertprep.workspace.layout import TEST, TRAINING

FALSE_ALARMS = 1e-6
SHOWN = ("[MASK]", "the token itself", "another token")
_MOST_RANDOM_NEXT = 0.8
"""Of open records. At least half, and more the more often a document's end leaves one sentence; 0.59 in English prose."""
_MANY = 200  # records, all of which have a random B with a chance below 1e-6 where fewer than 93 % should
_FOLLOWS_ELSEWHERE = 0.2  # of the records of other files, from which a file without any differs
_MOST_TOKENS = 1000  # whose frequency as labels is compared
_RANGES = 64  # of the vocabulary, in which the random tokens of a file are counted
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


def limit_of_surprise(tests: int, streams: int = 1) -> float:
    """What none of so many two-sided tests exceeds, but once in a million times.

    Where counts are sums over so many files whose draws may run in step, since they were made with one seed, the bound holds
    with the draws of a file on average for all draws, by Hoelder's inequality: so much larger is the limit.
    """
    return math.log(2 * tests / FALSE_ALARMS) * streams


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


def judge(counted: Counted, rules: RecordRules, place: str, *, streams: int = 1, uses: int | None = None) -> list[Finding]:
    """What is wrong with the records of a split as a whole; findings name `place`.

    `streams` are the files whose draws may run in step, `uses` how often documents are used, where that is known.
    """
    if not counted.tally.records:
        return []
    masks = judge_masks(counted, rules, place, streams=streams)
    return [
        *masks,
        # with other labels, other tokens seem random
        *(judge_random_tokens(counted, rules, place, streams=streams) if not masks else []),
        *judge_labels(counted, rules, place, streams=streams),
        *judge_masked_share(counted, rules, place),
        *judge_next_sentence(counted, place, streams=streams, uses=uses),
        *judge_order(counted, place, streams=streams),
    ]


def judge_file(counted: Counted, rules: RecordRules, place: str, *, files: int, uses: int | None = None) -> list[Finding]:
    """What can be told of one file, of so many, without the others."""
    masks = judge_masks(counted, rules, place, files=files)
    return [
        *masks,
        *(judge_ranges(counted, rules, place, files=files) if not masks else []),
        *judge_next_sentence(counted, place, files=files, uses=uses),
        *judge_order(counted, place, files=files),
    ]


def judge_masks(counted: Counted, rules: RecordRules, place: str, *, files: int = 1, streams: int = 1) -> list[Finding]:
    """The 80/10/10 shares, the places of the masks, and whether the labels are those of their places."""
    return [
        *judge_replacements(counted.tally, rules, place, files=files, streams=streams),
        *judge_positions(counted, rules, place, files=files, streams=streams),
        *judge_neighbours(counted, rules, place, files=files, streams=streams),
    ]


def judge_replacements(tally: Tally, rules: RecordRules, place: str, *, files: int = 1, streams: int = 1) -> list[Finding]:
    """Whether 80 % of predictions show [MASK], 10 % the token itself, 10 % a random one."""
    draws = int(tally.shown.sum())
    if draws == 0:
        return []
    fair = np.array(fair_shares(rules.tokens))
    slack = 0.0 if rules.tokens else _UNKNOWN_VOCABULARY_SLACK
    surprises = surprise(tally.shown, draws, fair * draws, slack=slack)
    worst = int(np.argmax(surprises))
    if surprises[worst] <= limit_of_surprise(len(SHOWN) * files, streams):
        return []
    low, high = share_interval(int(tally.shown[worst]), draws)
    expected = f"{SHOWN[worst]} at {fair[worst]:.1%} of {draws:,} predictions"
    found = f"{tally.shown[worst] / draws:.2%} (a true share of {low:.2%} to {high:.2%})"
    return [Finding(ERROR, "replacement-shares", place, None, expected, found)]


def judge_positions(counted: Counted, rules: RecordRules, place: str, *, files: int = 1, streams: int = 1) -> list[Finding]:
    """Whether masks take all places of the text alike: each place, and all before each place, as the lengths let expect."""
    seen, fair = counted.word_positions if rules.whole_word else counted.tally.positions, counted.expected_positions
    draws, what = int(seen.sum()), "words drawn" if rules.whole_word else "predictions"
    if draws == 0:  # of whole words, also where it is unknown what a word is
        return []
    fair = fair * (draws / fair.sum())  # the sums are equal but for the rounding of shares
    limit = limit_of_surprise(2 * len(seen) * files, streams)
    each = surprise(seen, draws, fair)
    if np.max(each) > limit:
        worst = int(np.argmax(each))
        expected = f"{fair[worst]:,.0f} of {draws:,} {what} at place {worst}, as at others"
        return [Finding(ERROR, "position-shares", place, None, expected, f"{seen[worst]:,}")]
    # a last place before which all predictions lie tells nothing, and rounding must not make it impossible
    before = surprise(np.cumsum(seen)[:-3], draws, np.minimum(np.cumsum(fair)[:-3], draws))
    if before.size and np.max(before) > limit:
        worst = int(np.argmax(before))
        expected = f"{np.cumsum(fair)[worst]:,.0f} of {draws:,} {what} at places 0 to {worst}"
        return [Finding(ERROR, "position-shares", place, None, expected, f"{np.cumsum(seen)[worst]:,}")]
    return []


def judge_neighbours(counted: Counted, rules: RecordRules, place: str, *, files: int = 1, streams: int = 1) -> list[Finding]:
    """Whether labels are those of their places, and not of the next: in the text, tokens repeat there as often as elsewhere."""
    signs = counted.signs
    draws = int((counted.word_positions if rules.whole_word else counted.tally.positions).sum())
    if draws == 0:
        return []
    seen = signs[[faults.RIGHT, faults.LEFT]]
    fair = np.minimum(signs[[faults.EXPECTED_RIGHT, faults.EXPECTED_LEFT]] / faults.SCALE, draws)
    surprises = np.where(seen > fair, surprise(seen, draws, fair), 0.0)
    worst = int(np.argmax(surprises))
    if surprises[worst] <= limit_of_surprise(2 * files, streams):
        return []
    side = ("after", "before")[worst]
    expected = (
        f"{fair[worst]:,.0f} of {draws:,} labels that are the token {side} them too, as often as tokens repeat in the text"
    )
    found = f"{seen[worst]:,}: labels or positions are off by one"
    return [Finding(ERROR, "label-beside-mask", place, None, expected, found)]


def judge_random_tokens(counted: Counted, rules: RecordRules, place: str, *, streams: int = 1) -> list[Finding]:
    """Whether random tokens come from the whole vocabulary: each, its first, the rarest in the text, how many differ."""
    replaced, draws = counted.replaced, int(counted.replaced.sum())
    if draws == 0:
        return []
    fair = _fair_random_tokens(counted, rules)
    rarest_first = np.argsort(counted.tally.tokens, kind="stable")
    limit = limit_of_surprise(3 * rules.tokens + 1, streams)
    each = surprise(replaced, draws, fair)
    if np.max(each) > limit:
        worst = int(np.argmax(each))
        expected = f"token {worst} as {fair[worst]:,.1f} of {draws:,} random tokens, as any other"
        return [Finding(ERROR, "random-tokens", place, None, expected, f"{replaced[worst]:,}")]
    for order, what in ((np.arange(rules.tokens), "first"), (rarest_first, "rarest in the text")):
        seen, expected_before = np.cumsum(replaced[order])[:-1], np.cumsum(fair[order])[:-1]
        before = surprise(seen, draws, np.minimum(expected_before, draws))
        if np.max(before) > limit:
            worst = int(np.argmax(before))
            expected = (
                f"{expected_before[worst]:,.0f} of {draws:,} random tokens among the {worst + 1:,} {what} of the vocabulary"
            )
            return [Finding(ERROR, "random-tokens", place, None, expected, f"{seen[worst]:,}")]
    return _judge_different(replaced, fair, place, limit) if streams == 1 else []  # tokens drawn in step are fewer


def judge_ranges(counted: Counted, rules: RecordRules, place: str, *, files: int) -> list[Finding]:
    """The same of a file, in a few ranges of the vocabulary."""
    draws = int(counted.replaced.sum())
    if draws == 0:
        return []
    fair = _fair_random_tokens(counted, rules)
    ends = np.unique(np.linspace(0, rules.tokens, _RANGES + 1).astype(np.int64))[1:-1]
    seen, expected_before = np.cumsum(counted.replaced)[ends - 1], np.cumsum(fair)[ends - 1]
    limit = limit_of_surprise((len(ends) + 1) * files)
    before = surprise(seen, draws, np.minimum(expected_before, draws))
    if before.size and np.max(before) > limit:
        worst = int(np.argmax(before))
        expected = f"{expected_before[worst]:,.0f} of {draws:,} random tokens among the {ends[worst]:,} first of the vocabulary"
        return [Finding(ERROR, "random-tokens", place, None, expected, f"{seen[worst]:,}")]
    return _judge_different(counted.replaced, fair, place, limit)


def _fair_random_tokens(counted: Counted, rules: RecordRules) -> Numbers:
    """(v,) predictions that should show each token, of those that show neither [MASK] nor their label."""
    labels = counted.tally.labels
    fair: Numbers = 1 - labels / max(int(labels.sum()), 1)
    fair[rules.mask] = 0.0
    fair *= int(counted.replaced.sum()) / fair.sum()
    return fair


def _judge_different(replaced: Counts, fair: Numbers, place: str, limit: float) -> list[Finding]:
    """Whether as many different tokens came as so many draws give; as one excludes another, the bound holds all the more."""
    draws, tokens = int(replaced.sum()), len(replaced)
    different = int(np.count_nonzero(replaced))
    expected = float(np.sum(1 - np.exp(draws * np.log1p(-np.minimum(fair / draws, 1 - 1e-12)))))
    if surprise(different, tokens, expected) <= limit:
        return []
    wanted = f"about {expected:,.0f} different tokens of the {tokens:,} of the vocabulary in {draws:,} random ones"
    return [Finding(ERROR, "random-tokens", place, None, wanted, f"{different:,}")]


def judge_labels(counted: Counted, rules: RecordRules, place: str, *, streams: int = 1) -> list[Finding]:
    """Whether the tokens most to be expected as labels are, as often as their places in the text let expect."""
    labels = counted.word_labels if rules.whole_word else counted.tally.labels
    draws, what = int(labels.sum()), "first label of words" if rules.whole_word else "label"
    if draws == 0:
        return []
    most = np.argsort(counted.expected_labels)[::-1][:_MOST_TOKENS]
    seen, fair = labels[most], np.minimum(counted.expected_labels[most] / faults.SCALE, draws)
    surprises = surprise(seen, draws, fair)
    worst = int(np.argmax(surprises))
    if surprises[worst] <= limit_of_surprise(len(most), streams):
        return []
    expected = f"token {most[worst]} as the {what} of {fair[worst]:,.0f} of {draws:,} draws, by its share of the text"
    return [Finding(ERROR, "label-frequencies", place, None, expected, f"{seen[worst]:,}")]


def judge_masked_share(counted: Counted, rules: RecordRules, place: str) -> list[Finding]:
    """Whether as many tokens are masked as the lengths let expect; no draw decides that.

    With whole words not more than that; whether fewer is right is known of each record by itself.
    """
    tally = counted.tally
    wanted = int(tally.lengths @ rules.predictions_by_length()) + int(counted.signs[faults.ROUNDED_UP])
    predictions = int(tally.predictions @ np.arange(len(tally.predictions)))
    if (0 if rules.whole_word else 0.99) <= predictions / wanted <= 1.01:
        return []
    expected = f"{wanted:,} predictions of {tally.text_tokens:,} tokens, {wanted / tally.text_tokens:.1%}"
    found = f"{predictions:,}, {predictions / tally.text_tokens:.1%}"
    return [Finding(ERROR, "masked-share", place, None, expected, found)]


def judge_next_sentence(
    counted: Counted, place: str, *, files: int = 1, streams: int = 1, uses: int | None = None
) -> list[Finding]:
    """Whether B follows A in no more than half of the records, and in as many as must.

    Two or more sentences toss a fair coin for it; one alone always takes a random B. So the records whose B follows are no
    more than tosses of a fair coin for every record give. One sentence alone is the last of its document, of which each use
    has one at most, or reaches the target length: then A is no shorter than B in a record that had to be cut. The other
    records, which are `open` and more than the uses, have tossed the coin, but for documents that were cut short on purpose:
    half as many as a fair coin gives are granted to these.
    """
    follows, random = map(int, counted.tally.next_sentence)
    draws, limit = follows + random, limit_of_surprise(files, streams)
    open_follows, open_random = map(int, counted.signs[[faults.OPEN_FOLLOWS, faults.OPEN_RANDOM]])
    is_open = open_follows + open_random
    found = f"{random / max(draws, 1):.1%} of {draws:,}"
    if 2 * follows > draws and surprise(follows, draws, draws / 2) > limit:
        return [Finding(ERROR, "next-sentence-share", place, None, "B random in half of the records or more", found)]
    tossed = is_open - (uses or 0)
    if uses is not None and tossed > 0 and 4 * open_follows < tossed and surprise(open_follows, tossed, tossed / 2) > limit:
        expected = f"B after A in about {tossed / 2:,.0f} records or more, of {is_open:,} and {uses:,} ends of documents"
        return [Finding(ERROR, "next-sentence-share", place, None, expected, f"{open_follows:,}")]
    if files > 1:
        return []
    low, _ = share_interval(open_random, is_open)
    if (uses is None and low > _MOST_RANDOM_NEXT) or (follows == 0 and draws - (uses or 0) >= _MANY):
        expected = "B random in about half of the records or somewhat more, unless documents have one sentence"
        return [Finding(WARNING, "next-sentence-share", place, None, expected, found)]
    return []


def judge_labels_of_files(files: Sequence[tuple[FileFacts, Counts]]) -> list[Finding]:
    """Files in whose records no B follows its A, though it does in others; given with their counts of labels 0 and 1."""
    findings = []
    of_split: dict[str, Counts] = {}
    for facts, labels in files:
        of_split[facts.split] = of_split.get(facts.split, 0) + labels
    for facts, labels in files:
        follows, random = map(int, labels)
        others = of_split[facts.split] - labels
        if follows == 0 and random >= _MANY and int(others[0]) > _FOLLOWS_ELSEWHERE * int(others.sum()):
            expected = f"B after A in some records, as in {others[0] / others.sum():.1%} of those of other files"
            findings.append(Finding(WARNING, "next-sentence-share", facts.name, None, expected, f"none of {random:,}"))
    return findings


def judge_order(counted: Counted, place: str, *, files: int = 1, streams: int = 1) -> list[Finding]:
    """Whether records are shuffled: neighbours are then no more alike than others, in their tokens and in their lengths.

    Of two pairs of neighbours and the same four records paired the other way, either may be more alike: a fair coin, of a
    shuffled file, whatever the records are.
    """
    for closer, less, what in ((0, 1, "tokens in common"), (2, 3, "the same length")):
        wins, draws = int(counted.wins[closer]), int(counted.wins[closer] + counted.wins[less])
        if 2 * wins > draws and surprise(wins, draws, draws / 2) > limit_of_surprise(2 * files, streams):
            expected = f"records in random order: neighbours with {what} as often as others, in half of {draws:,} cases"
            return [Finding(WARNING, "record-order", place, None, expected, f"{wins / draws:.1%}")]
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
    cut_short = (0.01 if short_seq_prob is None else short_seq_prob) * (tally.records if documents is None else documents)
    if short == 0 and cut_short > limit_of_surprise(1):  # the bound for none where so many are expected
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


def judge_split_sizes(files: Iterable[FileFacts]) -> list[Finding]:
    """Whether the test split has no more records than training; a warning where the folders may have been exchanged."""
    sizes: dict[str, int] = {}
    for facts in files:
        sizes[facts.split] = sizes.get(facts.split, 0) + facts.records
    if TRAINING not in sizes or sizes.get(TEST, 0) <= sizes[TRAINING]:
        return []
    expected = f"fewer records than the {sizes[TRAINING]:,} of training"
    return [Finding(WARNING, "split-sizes", TEST, None, expected, f"{sizes[TEST]:,}")]

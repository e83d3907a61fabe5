"""The reference implementation of masks and pairs in plain Python, for readers and as the oracle for the kernels' tests.

The kernels `mask_rows` and `pairs` do the same for many rows at once. `mask_row` masks a fraction of the tokens in a row's
words. Draw i of a row is number i of splitmix64, seeded with a hash of the row's key, so a row has the same masks wherever it
is made.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

NOT_PREDICTED = -100
ONE = 1 << 32
"""A probability of 1: probabilities are integers in units of 2**-32."""


class Draws:
    """The random 64-bit numbers of a row."""

    def __init__(self, key: int) -> None:
        self.state = key
        self.state = self.bits()

    def bits(self) -> int:
        self.state = (self.state + 0x9E3779B97F4A7C15) % 2**64
        mixed = (self.state ^ self.state >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB % 2**64
        return mixed ^ mixed >> 31

    def high(self) -> int:
        """Return a random number below `ONE`."""
        return self.bits() >> 32

    def below(self, most: int) -> int:
        return self.high() * most >> 32


@dataclass(frozen=True, kw_only=True)
class MaskLaw:
    """The rules for masking a row; `up_to` has the cumulative probabilities of spans of 1, 2, ... words and ends with `ONE`."""

    share: float
    mask_below: int
    random_below: int
    up_to: Sequence[int] = (ONE,)
    rounds_up: bool = False
    is_spanbert: bool = False  # spans begin at random tokens; one draw decides whether all of a span become [MASK] or random
    keeps_spans: bool = False  # ALBERT: a span that meets a masked word is skipped, and not shortened
    mask: int
    special: frozenset[int]
    width: int


def mask_row(ids: list[int], sequences: Sequence[int], words: Sequence[Sequence[int]], law: MaskLaw, key: int) -> list[int]:
    """Replace the masked ids of a row in place, and return its labels.

    `words` has the positions of each word's tokens, in order. `sequences` has the number of the sequence at each position; no
    span crosses from one sequence into another.
    """
    draws, labels = Draws(key), [NOT_PREDICTED] * len(ids)
    tokens = sum(map(len, words))
    rounded = math.ceil(law.share * tokens) if law.rounds_up else round(law.share * tokens)  # halves to even, like the kernel
    wanted = min(tokens, max(1, rounded))

    def mask(position: int, kind: int, bits: int) -> None:
        labels[position] = ids[position]
        if kind < law.mask_below:
            ids[position] = law.mask
        elif kind < law.random_below:
            while (token := bits % ONE * law.width >> 32) in law.special:
                bits = draws.bits()
            ids[position] = token

    order, masked = [word for word, size in enumerate(map(len, words)) for _ in range(size if law.is_spanbert else 1)], 0
    for i in range(len(order)):
        if masked >= wanted:
            break
        other = i + draws.below(len(order) - i)
        order[i], order[other] = order[other], order[i]
        reach = _reach(words, order[i], sequences)
        span = words[order[i] : order[i] + _draw_length(draws, law)][: len(reach)]
        chosen: list[int] = []
        for word in span:
            if masked + len(chosen) + len(word) > wanted:
                break
            if labels[word[0]] != NOT_PREDICTED:
                chosen = [] if law.keeps_spans else chosen
                break
            chosen += word
        kind = draws.high() if chosen and law.is_spanbert else None
        for position in chosen:
            bits = draws.bits()
            mask(position, bits >> 32 if kind is None else kind, bits)
        masked += len(chosen)
    left = [position for word in words if labels[word[0]] == NOT_PREDICTED for position in word]
    for i in range(wanted - masked):  # no further word fits, so the rest is masked token by token
        other = i + draws.below(len(left) - i)
        left[i], left[other] = left[other], left[i]
        bits = draws.bits()
        mask(left[i], bits >> 32, bits)
    return labels


def _reach(words: Sequence[Sequence[int]], first: int, sequences: Sequence[int]) -> Sequence[Sequence[int]]:
    """Return the words from `first` on that follow each other without a gap in the same sequence."""
    end = first + 1
    while end < len(words):
        before, start = words[end - 1][-1], words[end][0]
        if start != before + 1 or sequences[start] != sequences[before]:
            break
        end += 1
    return words[first:end]


def _draw_length(draws: Draws, law: MaskLaw) -> int:
    """Draw the length of a span in words."""
    if len(law.up_to) == 1:
        return 1
    length = draws.high()
    return 1 + sum(length >= below for below in law.up_to[:-1])


Segment = tuple[int, int]
"""A segment's first token and its size in tokens."""


def order_pairs(
    documents: Sequence[Sequence[int]], longest: int, short_below: int, draws: Draws
) -> list[tuple[Segment, Segment, bool]]:
    """Return ALBERT's pairs of segments, and whether the two are swapped.

    A document is a list of the first token of each sentence, and the end of the last.
    """
    pairs = []
    for number, starts in enumerate(documents):
        target = 2 + draws.below(longest - 1) if draws.high() < short_below else longest
        for first, end in _chunks(starts, target):
            if end - first == 1:  # a single sentence is paired with a segment of another document
                size = starts[end] - starts[first]
                pair, is_swapped = [[starts[first], size], _other_segment(documents, number, target - size, draws)], True
            else:
                middle = first + 1 + draws.below(end - first - 1)
                parts = [[starts[first], starts[middle] - starts[first]], [starts[middle], starts[end] - starts[middle]]]
                is_swapped = bool(draws.below(2))
                pair = parts[::-1] if is_swapped else parts
            while pair[0][1] + pair[1][1] > longest:  # shorten the longer one at a random end
                longer = pair[0] if pair[0][1] > pair[1][1] else pair[1]
                longer[0] += draws.below(2)
                longer[1] -= 1
            pairs.append(((pair[0][0], pair[0][1]), (pair[1][0], pair[1][1]), is_swapped))
    return pairs


def _other_segment(documents: Sequence[Sequence[int]], number: int, wanted: int, draws: Draws) -> list[int]:
    for _ in range(10):
        other = draws.below(len(documents))
        if other != number:
            break
    starts = documents[other]
    first = draws.below(len(starts) - 1)
    end = first + 1
    while end < len(starts) - 1 and starts[end] - starts[first] < wanted:
        end += 1
    return [starts[first], starts[end] - starts[first]]


def segment_pairs(
    documents: Sequence[Sequence[int]], longest: int, short_below: int, alone_below: int, draws: Draws
) -> list[tuple[Segment, Segment]]:
    """Return ELECTRA's pairs of segments; the second segment may be empty."""
    pairs, target = [], longest + 3
    for starts in documents:
        first = 0
        while first < len(starts) - 1:
            end = first + 1
            while end < len(starts) - 1 and starts[end] - starts[first] < target:
                end += 1
            half = 1 << 40 if draws.high() < alone_below else (target - 3) // 2
            middle = first + 1
            while middle < end:
                size, longer = starts[middle] - starts[first], starts[middle + 1] - starts[first]
                if longer >= half and (size >= half or draws.below(2) == 0):
                    break
                middle += 1
            size = min(starts[middle] - starts[first], longest + 1)
            rest = min(starts[end] - starts[middle], max(0, longest - size))
            pairs.append(((starts[first], size), (starts[middle], rest)))
            target = 5 + draws.below(longest - 1) if draws.high() < short_below else longest + 3
            first = end
    return pairs


def _chunks(starts: Sequence[int], target: int) -> Iterator[tuple[int, int]]:
    """Yield (first, end) for runs of sentences; a run ends when it has `target` tokens, or with the document."""
    first = 0
    for end in range(1, len(starts)):
        if end == len(starts) - 1 or starts[end] - starts[first] >= target:
            yield first, end
            first = end

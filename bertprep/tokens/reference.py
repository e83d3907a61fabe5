"""The masks of one row in plain Python: what the kernel `mask_rows` does for all rows of a batch, to be read and compared.

`mask_row` takes the words of a row and masks a share of their tokens. Draw i of a row is number i of splitmix64, which begins
at a hash of the row's key, so a row has the same masks wherever it is made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

NOT_PREDICTED = -100
ONE = 1 << 32
"""Probabilities are whole numbers of 2**-32."""


class Draws:
    """The random numbers of a row, of 64 bits each."""

    def __init__(self, key: int) -> None:
        self.state = key
        self.state = self.bits()

    def bits(self) -> int:
        self.state = (self.state + 0x9E3779B97F4A7C15) % 2**64
        mixed = (self.state ^ self.state >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB % 2**64
        return mixed ^ mixed >> 31

    def high(self) -> int:
        """Return a number below `ONE`."""
        return self.bits() >> 32

    def below(self, most: int) -> int:
        return self.high() * most >> 32


@dataclass(frozen=True, kw_only=True)
class MaskLaw:
    """How a row is masked: `up_to` are the probabilities of spans of up to 1, 2, ... words, the last of which is 1."""

    share: float
    mask_below: int
    random_below: int
    up_to: Sequence[int] = (ONE,)
    replaces_spans: bool = False  # SpanBERT: one draw says what replaces all tokens of a span
    keeps_spans: bool = False  # ALBERT: a span that meets a masked word is left out, and not cut off
    mask: int
    special: frozenset[int]
    width: int


def mask_row(ids: list[int], sequences: Sequence[int], words: Sequence[Sequence[int]], law: MaskLaw, key: int) -> list[int]:
    """Replace the masked ids of a row in place, and return its labels.

    `words` are the positions of each word's tokens, in order. `sequences` say of each position in which sequence it is: no span
    crosses from one to another.
    """
    draws, labels = Draws(key), [NOT_PREDICTED] * len(ids)
    tokens = sum(map(len, words))
    wanted = min(tokens, max(1, round(law.share * tokens)))  # Python rounds halves to the even number, as the kernel does

    def mask(position: int, kind: int, bits: int) -> None:
        labels[position] = ids[position]
        if kind < law.mask_below:
            ids[position] = law.mask
        elif kind < law.random_below:
            while (token := bits % ONE * law.width >> 32) in law.special:
                bits = draws.bits()
            ids[position] = token

    order, masked = list(range(len(words))), 0
    for i in range(len(words)):
        if masked >= wanted:
            break
        other = i + draws.below(len(words) - i)
        order[i], order[other] = order[other], order[i]
        reach = _reach(words, order[i], sequences)
        span = words[order[i] : order[i] + _draw_length(draws, law, len(reach))][: len(reach)]
        chosen: list[int] = []
        for word in span:
            if masked + len(chosen) + len(word) > wanted:
                break
            if labels[word[0]] != NOT_PREDICTED:
                chosen = [] if law.keeps_spans else chosen
                break
            chosen += word
        kind = draws.high() if chosen and law.replaces_spans else None
        for position in chosen:
            bits = draws.bits()
            mask(position, bits >> 32 if kind is None else kind, bits)
        masked += len(chosen)
    left = [position for word in words if labels[word[0]] == NOT_PREDICTED for position in word]
    for i in range(wanted - masked):  # no other word fits, so tokens are masked one by one
        other = i + draws.below(len(left) - i)
        left[i], left[other] = left[other], left[i]
        bits = draws.bits()
        mask(left[i], bits >> 32, bits)
    return labels


def _reach(words: Sequence[Sequence[int]], first: int, sequences: Sequence[int]) -> Sequence[Sequence[int]]:
    """Return the words from `first` on that follow each other in one sequence."""
    end = first + 1
    while end < len(words):
        before, start = words[end - 1][-1], words[end][0]
        if start != before + 1 or sequences[start] != sequences[before]:
            break
        end += 1
    return words[first:end]


def _draw_length(draws: Draws, law: MaskLaw, reach: int) -> int:
    """Return a random number of words; where spans are kept whole, of those that can be reached."""
    if len(law.up_to) == 1:
        return 1
    length = draws.high()
    if law.keeps_spans:
        length = length * law.up_to[min(reach, len(law.up_to)) - 1] >> 32
    return 1 + sum(length >= below for below in law.up_to[:-1])

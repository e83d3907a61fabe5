"""Merges the most frequent pair of adjacent pieces again and again: byte-pair encoding, with the same result on every run.

The trainer of `tokenizers` depends on hash order; here, of equally frequent pairs, the one that sorts first is merged. All
words stand in one array of symbols, linked to their neighbours, and each pair knows where it occurs. So a merge costs time only
where the pair occurs, some 2 microseconds each. Time and memory grow with the letters of the distinct words.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import partial
from heapq import heapify, heappop, heappush
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertprep.instances.unicode_table import encode_code_points

CONTINUES = "##"
_RIGHT_BITS = 32
_RIGHT = (1 << _RIGHT_BITS) - 1
"""A pair of symbols is one integer: left << 32 | right."""
_TYPE = "q"
"""The type of arrays, 64-bit integers. Unlike lists, they are compact, and the garbage collector passes them by."""
_NONE = -1
"""The position before and after a word. The symbol there, the last of the list, equals no other."""


def merge_pairs(words: Mapping[str, int], least: int = 2) -> Iterator[tuple[str, int]]:
    """Merge the most frequent pair of adjacent pieces until none occurs `least` times; yield each new token and its count.

    `words` are words with their counts; at first, each character is a piece. Two merges may yield the same token.

    >>> list(merge_pairs({"abc": 3, "bc": 2, "ab": 1}))
    [('ab', 4), ('abc', 3), ('bc', 2)]
    """
    merges = _Merges(words, max(least, 1))
    while merges.pending:
        count = -heappop(merges.pending)
        ready = merges.pairs_with(count)
        while ready:
            left_name, right_name, pair = heappop(ready)
            if merges.counts[pair] != count:  # another merge of this count has made it rarer
                merges.wait(merges.counts[pair], pair)
                continue
            token = left_name + right_name.removeprefix(CONTINUES)
            yield token, count
            added = merges.merge(pair, token)
            for other in added:
                if merges.counts[other] == count:
                    heappush(ready, merges.named(other))
            if merges.pending and -merges.pending[0] > count:  # the token had been made before, by another merge
                for *_, other in ready:
                    merges.wait(count, other)
                break


class _Merges:
    """The pieces of all words, the counts of their pairs, and the pairs that wait for their turn.

    `symbols[at]` is the number of the piece that begins at a character of the joined words, and `names[symbol]` its text.
    `counts` and `places` have the count of each pair, and where it may occur.
    """

    def __init__(self, words: Mapping[str, int], least: int) -> None:
        ordered = sorted(words)
        lengths = np.fromiter(map(len, ordered), np.int64, len(ordered))
        points = encode_code_points("".join(ordered)).astype(np.int64)
        ends = np.cumsum(lengths)
        begins, finishes = np.zeros(len(points), np.bool_), np.zeros(len(points), np.bool_)
        begins[ends - lengths] = finishes[ends - 1] = True
        forms, symbols = np.unique(2 * points + ~begins, return_inverse=True)
        positions = np.arange(len(points))
        weights = np.repeat(np.fromiter((words[word] for word in ordered), np.int64, len(ordered)), lengths)

        self.names = [CONTINUES * (form & 1) + chr(form >> 1) for form in forms.tolist()]
        self._symbol = {name: symbol for symbol, name in enumerate(self.names)}
        self._symbols = _array(symbols)
        self._weights = _array(weights)
        self._before = _array(np.where(begins, _NONE, positions - 1))
        self._after = _array(np.where(finishes, _NONE, positions + 1))
        self._least = least
        self.counts: defaultdict[int, int] = defaultdict(int)
        self._places: defaultdict[int, array[int]] = defaultdict(partial(array, _TYPE))
        self.pending: list[int] = []  # a heap of negative counts: the keys of `_waiting`
        self._waiting: dict[int, list[int]] = {}
        self._count_pairs(symbols, weights, positions[~finishes])

    def _count_pairs(self, symbols: NDArray[Any], weights: NDArray[Any], lefts: NDArray[Any]) -> None:
        """Count the pairs whose left pieces are at `lefts`."""
        pairs = symbols[lefts] << _RIGHT_BITS | symbols[lefts + 1]
        order = np.argsort(pairs, kind="stable")
        pairs, lefts = pairs[order], lefts[order]
        starts = np.flatnonzero(np.diff(pairs, prepend=-1))
        counts = np.add.reduceat(weights[lefts], starts).tolist() if len(starts) else []
        places, bounds = array(_TYPE, lefts.tobytes()), [*starts.tolist(), len(lefts)]
        for group, pair in enumerate(pairs[starts].tolist()):
            self.counts[pair] = counts[group]
            self._places[pair] = places[bounds[group] : bounds[group + 1]]
            self.wait(counts[group], pair)

    def named(self, pair: int) -> tuple[str, str, int]:
        """Return the names of a pair's pieces, by which equally frequent pairs are ordered, and the pair."""
        return self.names[pair >> _RIGHT_BITS], self.names[pair & _RIGHT], pair

    def wait(self, count: int, pair: int) -> None:
        """Keep a pair with this count, or with a smaller one by the time it is its turn, unless it is too rare."""
        if count < self._least:
            return
        if (waiting := self._waiting.get(count)) is not None:
            waiting.append(pair)
        else:
            heappush(self.pending, -count)
            self._waiting[count] = [pair]

    def pairs_with(self, count: int) -> list[tuple[str, str, int]]:
        """Return a heap of the waiting pairs that have this count; those that have become rarer wait for their turn."""
        ready = []
        for pair in set(self._waiting.pop(count)):
            if self.counts[pair] == count:
                ready.append(self.named(pair))
            elif self.counts[pair] < count:
                self.wait(self.counts[pair], pair)
        heapify(ready)
        return ready

    def merge(self, pair: int, token: str) -> list[int]:
        """Replace a pair by a token wherever it occurs, and return the frequent pairs that occur now with the token."""
        symbols, before, after, weights, counts, places = (
            self._symbols, self._before, self._after, self._weights, self.counts, self._places,
        )  # fmt: skip
        left, right = pair >> _RIGHT_BITS, pair & _RIGHT
        merged = self._symbol.setdefault(token, len(self.names))
        if merged == len(self.names):
            self.names.append(token)
        added: defaultdict[int, int] = defaultdict(int)
        occurrences = places.pop(pair)
        for at in sorted(occurrences) if left == right else occurrences:  # of three in a row, the first two are merged
            second = after[at]
            if symbols[at] != left or symbols[second] != right:
                continue
            weight, previous, following = weights[at], before[at], after[second]
            if (neighbour := symbols[previous]) >= 0:
                counts[neighbour << _RIGHT_BITS | left] -= weight
                made = neighbour << _RIGHT_BITS | merged
                added[made] += weight
                places[made].append(previous)
            if (neighbour := symbols[following]) >= 0:
                counts[right << _RIGHT_BITS | neighbour] -= weight
                made = merged << _RIGHT_BITS | neighbour
                added[made] += weight
                places[made].append(at)
                before[following] = at
            symbols[at], symbols[second], after[at] = merged, _NONE, following
        frequent = []
        for made, weight in added.items():
            counts[made] += weight
            if counts[made] >= self._least:
                frequent.append(made)
                self.wait(counts[made], made)
        counts[pair] = 0
        return frequent


def _array(numbers: NDArray[Any]) -> array[int]:
    """Return the numbers as an array, with `_NONE` at the end."""
    made = array(_TYPE, numbers.astype(np.int64).tobytes())
    made.append(_NONE)
    return made

"""Find records that are labelled random although B continues A, by the text of the other records of their file.

In another round of `dupe` the same sentences are split elsewhere, so that the end of A and the start of B occur next to each
other within one segment. A truly random B follows the end of its own A no more often than the end of another record's A. So
the Bs of two records are exchanged, and both cases are counted. A file of 2,048 records takes 8 ms. With `dupe` 1 nothing is
found.

Time and memory are bounded for any text, to at most 60 MB: at most `_MAX_TOKENS` are compared, and an end of A that occurs more
than `_MAX_OCCURRENCES` times, such as four [UNK], is not searched for.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bertprep.check.counts import Ints
from bertprep.records import PretrainingExamples

_MOST, _LEAST, _OF_A_SPLIT = 2048, 512, 16_384
_GRAM = 4  # tokens, which identify a place in the text; two sentences seldom share as many
_MAX_GAP = 32  # tokens that may be missing between the end of A and the start of B, since they were truncated: up to a sentence
_MAX_TOKENS = 1 << 20  # of the records that are compared, padding included
_MAX_OCCURRENCES = 64  # of a gram; one that occurs more often does not identify a place in the text
_OCCURRENCES_AT_ONCE = 1 << 13  # of which each has `_MAX_GAP` positions where B may start
_KEYS = np.random.Generator(np.random.PCG64(20181011)).integers(0, 2**32, _GRAM, np.uint32) | np.uint32(1)
_TABLE_BITS = 18


def records_compared(files: int) -> int:
    """Return how many records of each file are compared if a data set has `files` files."""
    return min(_MOST, max(_LEAST, _OF_A_SPLIT // max(files, 1)))


class Continuations:
    """The text of the first valid records of a file, up to `capacity` records or `_MAX_TOKENS`; `count` compares them."""

    def __init__(self, capacity: int, seq: int, sep: int) -> None:
        capacity = min(capacity, _MAX_TOKENS // seq)
        self._sep, self._size = sep, 0
        self._text = np.zeros((capacity, seq), np.int32)
        self._ends = np.zeros((capacity, 2), np.int64)  # the positions of both [SEP]
        self._is_random = np.zeros(capacity, np.bool_)

    def add(self, examples: PretrainingExamples) -> None:
        """Add records whose segments end with [SEP], with their labels restored."""
        room, seq = len(self._text) - self._size, self._text.shape[1]
        if not room:
            return
        ends = examples.input_mask.sum(1, dtype=np.int64) - 1
        middles = ends - examples.segment_ids.sum(1, dtype=np.int64)
        rows = np.flatnonzero((middles > _GRAM) & (ends - middles > _GRAM) & (ends < seq))
        rows = rows[
            (examples.input_ids[rows, ends[rows]] == self._sep) & (examples.input_ids[rows, middles[rows]] == self._sep)
        ]
        rows = rows[:room]
        chosen = slice(self._size, self._size + len(rows))
        text = examples.input_ids[rows]
        at, columns = np.nonzero((examples.masked_lm_weights[rows] > 0) & (examples.masked_lm_positions[rows] < seq))
        text[at, examples.masked_lm_positions[rows[at], columns]] = examples.masked_lm_ids[rows[at], columns]
        self._text[chosen] = text
        self._ends[chosen] = np.stack([middles[rows], ends[rows]], 1)
        self._is_random[chosen] = examples.next_sentence_labels[rows].ravel() == 1
        self._size += len(rows)

    def count(self) -> tuple[int, int]:
        """Return the numbers of pairs of records labelled random in which Bs continue their own As more, and less, often."""
        labelled = np.flatnonzero(self._is_random[: self._size])
        labelled = labelled[: len(labelled) // 2 * 2]
        if not len(labelled):
            return 0, 0
        middles, ends = self._ends[: self._size].T
        grams = self._grams()
        ends_of_a, starts_of_b = grams[labelled, middles[labelled] - _GRAM], grams[labelled, middles[labelled] + 1]
        exchanged = starts_of_b.reshape(-1, 2)[:, ::-1].ravel()
        continues_own, continues_other = np.zeros((2, len(labelled)), np.bool_)
        found = _occurrences(grams, ends_of_a)
        for start in range(0, len(found[0]), _OCCURRENCES_AT_ONCE):
            record, rows, columns = (indices[start : start + _OCCURRENCES_AT_ONCE] for indices in found)
            is_elsewhere = (labelled[record] != rows) & (columns != middles[rows] - _GRAM)
            record, rows, columns = record[is_elsewhere], rows[is_elsewhere], columns[is_elsewhere]
            # (n, gap): the positions at which B may start in the same segment
            follows = columns[:, None] + np.arange(_GRAM, _GRAM + _MAX_GAP)
            is_inside = follows + _GRAM <= np.where(columns < middles[rows], middles[rows], ends[rows])[:, None]
            after = grams[rows[:, None], np.minimum(follows, grams.shape[1] - 1)]
            for wanted, continues in ((starts_of_b, continues_own), (exchanged, continues_other)):
                is_after = ((after == wanted[record, None]) & is_inside).any(1)
                continues[record[is_after]] = True
        of_pairs = (continues_own.astype(np.int64) - continues_other).reshape(-1, 2).sum(1)
        return int((of_pairs > 0).sum()), int((of_pairs < 0).sum())

    def _grams(self) -> NDArray[np.uint32]:
        """Return a hash of the four tokens that begin at each position, (records, seq - 3)."""
        text = self._text[: self._size].view(np.uint32)
        width = text.shape[1] - _GRAM + 1
        hashes: NDArray[np.uint32] = text[:, :width] * _KEYS[0]
        for offset in range(1, _GRAM):
            hashes += text[:, offset : offset + width] * _KEYS[offset]
        return hashes


def _occurrences(grams: NDArray[np.uint32], wanted: NDArray[np.uint32]) -> tuple[Ints, Ints, Ints]:
    """Return the occurrences of wanted grams that occur at most `_MAX_OCCURRENCES` times: index in `wanted`, row, column."""
    shift = np.uint32(32 - _TABLE_BITS)
    may_be_wanted = np.zeros(1 << _TABLE_BITS, np.bool_)  # a filter, so that few other grams are searched for
    may_be_wanted[wanted >> shift] = True
    rows, columns = np.nonzero(may_be_wanted[grams >> shift])
    distinct, times_wanted = np.unique(wanted, return_counts=True)
    candidates = grams[rows, columns]
    gram = np.minimum(np.searchsorted(distinct, candidates), len(distinct) - 1)
    is_wanted = distinct[gram] == candidates
    occurrences = np.bincount(gram[is_wanted], minlength=len(distinct))
    is_wanted &= occurrences[gram] <= _MAX_OCCURRENCES
    rows, columns, gram = rows[is_wanted], columns[is_wanted], gram[is_wanted]
    order = np.argsort(wanted, kind="stable")
    times = times_wanted[gram]
    first = (np.cumsum(times_wanted) - times_wanted)[gram]
    offsets = np.arange(times.sum()) - np.repeat(np.cumsum(times) - times, times)
    return order[np.repeat(first, times) + offsets], np.repeat(rows, times), np.repeat(columns, times)

"""The rows of a batch against the same in plain Python: one to read next to the kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertprep import kernels
from bertprep.tokens import reference
from bertprep.tokens.packing import Window, pack_sequences, split_documents

CLS, SEP, PAD, MASK, UNK = range(5)
WIDTH = 40
SHARES = 0.0, 0.05, 0.15, 0.3, 0.5, 0.9, 1.0


@dataclass
class Settings:
    """The fields of `RowSettings` that tests choose."""

    seq: int
    before: tuple[int, ...] = (CLS,)
    after: tuple[int, ...] = (SEP,)
    first_position: int = 0
    is_causal: int = 0
    whole_words: int = 0
    mask_as: tuple[float, float] = (0.8, 0.9)
    """The share that becomes [MASK], and that with those that become random tokens."""
    span_below: tuple[float, ...] = (1.0,)
    is_spanbert: int = 0
    rounds_up: int = 0
    keeps_spans: int = 0
    longest_word: int = 16

    @property
    def special_tokens(self) -> int:
        return len(self.before) + len(self.after)

    def law(self, share: float) -> reference.MaskLaw:
        masked, or_random = (round(share * 2**32) for share in self.mask_as)
        return reference.MaskLaw(
            share=share, mask_below=masked, random_below=or_random,
            up_to=np.rint(np.array(self.span_below) * 2**32).astype(int).tolist(),
            is_spanbert=bool(self.is_spanbert), rounds_up=bool(self.rounds_up), keeps_spans=bool(self.keeps_spans),
            mask=MASK, special=frozenset(range(5)), width=WIDTH,
        )  # fmt: skip

    def for_kernel(self, begins_word: np.ndarray[Any, Any]) -> dict[str, Any]:
        chosen = {
            name: getattr(self, name)
            for name in (
                "seq", "first_position", "is_causal", "whole_words", "longest_word", "is_spanbert", "rounds_up", "keeps_spans",
            )
        }  # fmt: skip
        is_special = np.zeros(WIDTH, np.uint8)
        is_special[:5] = 1
        return {
            **chosen, "is_pair": 0,
            "before": np.array(self.before, np.int64), "before_size": len(self.before),
            "after": np.array(self.after, np.int64), "after_size": len(self.after),
            "pad": PAD, "mask": MASK, "width": WIDTH, "is_special": is_special, "begins_word": begins_word,
            "mask_below": round(self.mask_as[0] * 2**32), "random_below": round(self.mask_as[1] * 2**32),
            "longest_span": len(self.span_below), "span_below": np.rint(np.array(self.span_below) * 2**32).astype(np.int64),
            "words": np.empty((3, self.seq + 1), np.int32), "state": np.empty(1, np.uint64),
        }  # fmt: skip


def row_of(sequences: list[list[int]], begins: list[list[bool]], s: Settings, made: Row) -> tuple[list[int], ...]:
    """Return input_ids, labels, position_ids and sequence_ids of a row; begins[i][j] is whether a token begins a word."""
    ids: list[int] = []
    labels: list[int] = []
    positions: list[int] = []
    numbers: list[int] = []
    words: list[list[int]] = []  # the positions of each
    for number, (tokens, first_of_word) in enumerate(zip(sequences, begins, strict=True)):
        text = [*s.before, *tokens, *s.after]
        start = len(ids) + len(s.before)
        before = len(words)
        for i, token in enumerate(tokens):
            if token < 5:
                continue  # special tokens are of no word
            if not s.whole_words or first_of_word[i] or i == 0 or tokens[i - 1] < 5:
                words.append([])
            words[-1].append(start + i)
        of_sequence = words[before:]
        del words[before:]
        for word in of_sequence:
            words += [word] if len(word) <= s.longest_word else [[position] for position in word]
        ids += text
        labels += [-100, *text[1:]] if s.is_causal else [-100] * len(text)
        positions += [s.first_position + i for i in range(len(text))]
        numbers += [number] * len(text)
    padding = s.seq - len(ids)
    ids += [PAD] * padding
    labels += [-100] * padding
    positions += [s.first_position + i for i in range(padding)]
    numbers += [len(sequences)] * padding
    if s.is_causal:
        return ids, labels, positions, numbers

    return ids, reference.mask_row(ids, numbers, words, s.law(made.share), made.key), positions, numbers


@dataclass
class Row:
    """A row of a window: the key of its masks, and its share of masked tokens."""

    window: int
    row: int
    key: int
    share: float = 0.3


def window_of(tokens: Any, bits: Any, begins: Any, sizes: Any, row_starts: Any) -> Window:
    return Window(tokens, bits, 0, begins.astype(np.uint32), sizes, row_starts.astype(np.int32))


def fill(windows: list[Window], rows: list[Row], given: dict[str, Any]) -> tuple[int, Any]:
    """Call the kernel; return its answer, and the arrays by rows."""
    seq = given["seq"]
    arrays = np.full((4, len(rows), seq), -7, np.int64)
    table = np.array([window.addresses for window in windows], np.int64)
    answer = kernels.load().fill_rows(
        given, table, np.array([each.window for each in rows]), np.array([each.row for each in rows]),
        np.array([each.key for each in rows], np.uint64), np.array([each.share for each in rows]), len(rows), *arrays,
    )  # fmt: skip
    return answer, arrays.transpose(1, 0, 2)


@st.composite
def row_settings(draw: st.DrawFn) -> Settings:
    longest_span = draw(st.integers(1, 4))
    return Settings(
        seq=draw(st.integers(5, 70)),
        before=draw(st.sampled_from([(CLS,), (), (CLS, UNK)])), after=draw(st.sampled_from([(SEP,), (), (SEP, UNK)])),
        first_position=draw(st.sampled_from([0, 2])), is_causal=draw(st.integers(0, 4)) == 0,
        whole_words=longest_span > 1 or draw(st.booleans()),
        is_spanbert=int(draw(st.booleans())), rounds_up=int(draw(st.booleans())), keeps_spans=int(draw(st.booleans())),
        mask_as=draw(st.sampled_from([(0.8, 0.9), (1.0, 1.0), (0.0, 1.0), (0.2, 0.5)])),
        span_below=tuple((i + 1) / longest_span for i in range(longest_span)), longest_word=draw(st.sampled_from([1, 3, 16])),
    )  # fmt: skip


@given(data=st.data(), s=row_settings(), seed=st.integers(0, 2**32), has_bits=st.booleans(), narrow=st.booleans())
def test_rows_equal_those_of_plain_python(data: st.DataObject, s: Settings, seed: int, has_bits: bool, narrow: bool) -> None:
    random = np.random.default_rng(seed)
    begins_word = (random.random(WIDTH) < 0.6).astype(np.uint8)
    windows, expected, made = [], [], []
    for index in range(data.draw(st.integers(1, 2))):
        lengths = random.integers(1, 30, data.draw(st.integers(1, 12)))
        starts = np.cumsum([0, *lengths])
        tokens = random.integers(2, WIDTH, starts[-1]).astype(np.uint16 if narrow else np.int32)
        bits = random.random(starts[-1]) < 0.6
        begins, sizes = split_documents(starts, s.seq - s.special_tokens)
        order, row_starts = pack_sequences(sizes + np.int32(s.special_tokens), s.seq)
        packed_bits = np.packbits(bits, bitorder="little") if has_bits else None
        windows.append(window_of(tokens, packed_bits, begins[order], sizes[order], row_starts))
        for row in range(len(row_starts) - 1):
            slices = [slice(begins[each], begins[each] + sizes[each]) for each in order[row_starts[row] : row_starts[row + 1]]]
            of_words = bits if has_bits else begins_word[tokens] > 0
            this = Row(index, row, int(random.integers(2**63)) * 2 + row % 2, share=float(random.choice(SHARES)))
            made.append(this)
            expected.append(
                row_of([tokens[each].tolist() for each in slices], [of_words[each].tolist() for each in slices], s, this)
            )
    chosen = random.permutation(len(made)).tolist()
    answer, found = fill(windows, [made[each] for each in chosen], s.for_kernel(begins_word))
    assert answer == len(made)
    assert [tuple(map(list, row)) for row in found.tolist()] == [expected[each] for each in chosen]


@pytest.mark.parametrize("wrong", [WIDTH, -1])
def test_an_id_out_of_range_is_found_before_it_is_used(wrong: int) -> None:
    tokens = np.array([5, 6, 7, wrong], np.int32)
    window = window_of(tokens, None, np.array([0, 2]), np.array([2, 2], np.int32), np.array([0, 1, 2]))
    answer, _ = fill([window], [Row(0, 0, 1), Row(0, 1, 2)], Settings(seq=8).for_kernel(np.ones(WIDTH, np.uint8)))
    assert answer == 1

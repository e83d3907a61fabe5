"""Check what a BERT record must be: each rule has a code, words, and the flags of the records that break it.

The text of a record is its tokens with the labels restored. A record that breaks a rule is left out of the statistics, unless
the rule says otherwise. The records of a block are checked together, which takes 2 us per record of 128 tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bertprep.check.counts import Ints
from bertprep.check.finding import ERROR, WARNING, Finding
from bertprep.check.rules import RecordRules
from bertprep.kernels import numbers as kernel
from bertprep.records import Examples

Flags = NDArray[np.bool_]


class Rule(NamedTuple):
    """A rule, and the flags of the records in a block that break it.

    In its words, `{at}` is the position of a record's first wrong value, `{value}` is this value, and `{other}` is a value that
    belongs to it; `Texts.facts` has more names.
    """

    code: str
    expected: str
    found: str
    wrong: Flags  # (n,) records, or (n, width) their values
    values: NDArray[Any] | None = None  # of the same shape
    others: NDArray[Any] | None = None
    level: str = ERROR
    leaves_out: bool = True  # of the statistics

    def describe(self, row: int, facts: dict[str, NDArray[np.integer[Any]]], record: int) -> Finding:
        """Return a finding about `row` of the block, record `record` of a file, whose name is left empty."""
        at = int(np.argmax(self.wrong[row])) if self.wrong.ndim == 2 else ()
        words = {fact: int(values[row]) for fact, values in facts.items()}
        words["at"] = at or 0
        words["value"] = 0 if self.values is None else int(self.values[row][at])
        words["other"] = 0 if self.others is None else int(self.others[row][at])
        expected, found = self.expected.format(**words), self.found.format(**words)
        return Finding(self.code, "", expected, found, record, count=0, level=self.level)


class Texts:
    """The texts of a block: their tokens and lengths, the predicted positions, and the positions of [SEP].

    Fields are copied, since comparing a field of a record array in place takes twice as long.
    """

    def __init__(self, block: Examples, rules: RecordRules) -> None:
        fields, count, seq = block.view(np.ndarray), len(block), rules.seq
        self.rules, self.rows, self.columns = rules, np.arange(count), np.arange(seq, dtype=np.int32)
        self.ids, self.mask, self.segments = (fields[name].copy() for name in ("input_ids", "input_mask", "segment_ids"))
        self.lengths = _leading(self.mask == 1)
        self.is_text: Flags = self.columns < self.lengths[:, None]
        self.is_padding: Flags = ~self.is_text
        self.is_b: Flags = self.segments != 0  # according to the record's segment_ids
        self.tokens = self.ids  # (n, seq) with the labels restored
        self.predictions = np.zeros(count, np.int32)
        if rules.is_pretraining:
            self._restore(fields)
        self.is_sep: Flags = (self.tokens == rules.sep) & self.is_text
        rows, columns = divmod(np.flatnonzero(self.is_sep), seq)
        self.separators: Ints = np.bincount(rows, minlength=count)
        self.last = np.maximum(self.lengths - 1, 0)
        self.ends_with_sep: Flags = self.is_sep[self.rows, self.last]
        self.first_sep = self.last.copy()  # the last position of the text if there is no [SEP]
        has_sep = self.separators > 0
        self.first_sep[has_sep] = columns[(np.cumsum(self.separators) - self.separators)[has_sep]]

    def _restore(self, fields: NDArray[Any]) -> None:
        self.positions, self.labels = fields["masked_lm_positions"].copy(), fields["masked_lm_ids"].copy()
        self.weights = fields["masked_lm_weights"].copy()
        self.predictions = _leading(self.weights == 1.0)
        self.is_prediction: Flags = np.arange(self.rules.pred, dtype=np.int32) < self.predictions[:, None]
        is_within = (self.positions >= 0) & (self.positions < self.lengths[:, None])
        self.is_inside: Flags = self.is_prediction & is_within
        nowhere = self.ids.size  # an index after all texts, for labels that belong to no text
        self.at: Ints = np.where(self.is_inside, self.positions + len(self.columns) * self.rows[:, None], nowhere)
        tokens = np.append(self.ids, self.ids[:1, 0])
        tokens[self.at] = self.labels
        self.tokens = tokens[:nowhere].reshape(self.ids.shape)

    @property
    def facts(self) -> dict[str, NDArray[np.integer[Any]]]:
        """The values that the words of rules may name."""
        return {
            "length": self.lengths,
            "last": self.last,
            "separators": self.separators,
            "predictions": self.predictions,
            "wanted": self.rules.by_length[self.lengths],
        }

    def is_predicted(self) -> Flags:
        """Return whether each position is predicted, (n, seq)."""
        is_predicted = np.zeros(self.tokens.shape, np.bool_)
        rows, columns = np.nonzero(self.is_inside)
        is_predicted[rows, self.positions[rows, columns]] = True
        return is_predicted


def _leading(flags: Flags) -> NDArray[np.int32]:
    """Return the number of flags that are set in each row before the first one that is not."""
    first_other: NDArray[np.int32] = flags.argmin(1).astype(np.int32)
    first_other[(first_other == 0) & flags[:, 0]] = flags.shape[1]  # all are set
    return first_other


def _rows(flags: Flags) -> Flags:
    """Return whether each row has a flag set. Usually none has, which a test of all flags finds ten times as fast."""
    return np.logical_or.reduce(flags, axis=1) if flags.any() else np.zeros(len(flags), np.bool_)


def find_broken(texts: Texts, next_sentence_labels: NDArray[np.uint8] | None = None) -> Iterator[Rule]:
    """Yield the rules for single records, in the order in which findings are listed."""
    yield from _padding(texts)
    yield from _special_tokens(texts)
    yield from _full_sentences(texts) if texts.rules.segments == kernel.FULL_SENTENCES else _segments(texts)
    if texts.rules.tokens:
        yield from _range(texts)
    if texts.rules.is_pretraining:
        yield from _predictions(texts)
        yield _number_of_predictions(texts)
    if next_sentence_labels is not None:
        is_other = (next_sentence_labels != 0) & (next_sentence_labels != 1)
        yield Rule("next-sentence-label", "0 or 1", "{value}", is_other, next_sentence_labels)


def _padding(texts: Texts) -> Iterator[Rule]:
    pad, found = texts.rules.pad, "{value} at position {at}"
    is_uneven = (texts.mask != 0) != texts.is_text
    is_uneven[:, -1] |= texts.lengths == 0
    yield Rule("padding", "input_mask 1 for the text, then 0 to the end", found, is_uneven, texts.mask)
    expected = f"input_ids {f'{pad}, the id of [PAD],' if pad else 0} after the {{length}} tokens of text"
    yield Rule("padding", expected, found, (texts.ids != pad) & texts.is_padding, texts.ids)
    expected = "segment_ids 0 after the {length} tokens of text"
    yield Rule("padding", expected, found, texts.is_b & texts.is_padding, texts.segments)
    is_pad = (texts.tokens == pad) & texts.is_text
    yield Rule("padding", "no [PAD] within the {length} tokens of text", "one at position {at}", is_pad)


def _special_tokens(texts: Texts) -> Iterator[Rule]:
    """Yield the rules for [CLS], which must be at position 0 and nowhere else."""
    cls = texts.rules.cls
    is_cls = (texts.tokens == cls) & texts.is_text
    no_cls = ~is_cls[:, 0]
    first = texts.tokens[:, 0] * texts.is_text[:, 0]  # 0 where there is no text
    yield Rule("no-cls", f"[CLS], token {cls}, at position 0", "token {value}", no_cls, first)
    is_cls[:, 0] = False
    is_cls[no_cls] = False
    yield Rule("no-cls", "[CLS] at position 0 only", "another at position {at}", is_cls)


def _last_sep(texts: Texts, is_wrong: Flags) -> Rule:
    expected = f"[SEP], token {texts.rules.sep}, at the last position of text, {{last}}"
    last = texts.tokens[texts.rows, texts.last] * texts.is_text[:, 0]
    return Rule("separators", expected, "token {value}", is_wrong, last)


def _full_sentences(texts: Texts) -> Iterator[Rule]:
    """Yield the rules for [CLS] sentences [SEP], with a [SEP] between documents, and segment ids of 0."""
    no_end = ~texts.ends_with_sep
    yield _last_sep(texts, no_end)
    is_empty = np.zeros_like(texts.is_sep)
    is_empty[:, 1:] = texts.is_sep[:, 1:] & texts.is_sep[:, :-1]
    is_empty[:, 1:2] |= texts.is_sep[:, 1:2]
    is_empty[no_end] = False
    yield Rule("separators", "tokens before each [SEP]", "none before the one at position {at}", is_empty)
    yield Rule("segments", "segment_ids 0", "{value} at position {at}", texts.is_b & texts.is_text, texts.segments)


def _segments(texts: Texts) -> Iterator[Rule]:
    """Yield the rules for [CLS] A [SEP] B [SEP], or [CLS] A [SEP] if that is allowed; segment 1 is after the first [SEP]."""
    rules, first_sep = texts.rules, texts.first_sep
    has_other_count, expected = texts.separators != 2, "two [SEP]"
    if rules.segments == kernel.ONE_OR_TWO_SEGMENTS:
        has_other_count, expected = has_other_count & (texts.separators != 1), "one [SEP] or two"
    yield Rule("separators", expected, "{separators}", has_other_count)
    yield _last_sep(texts, ~has_other_count & ~texts.ends_with_sep)
    has_segments = ~has_other_count & texts.ends_with_sep
    if rules.is_pretraining:
        is_empty = has_segments & ((first_sep < 2) | (first_sep == texts.lengths - 2))
        yield Rule("separators", "[CLS] A [SEP] B [SEP] with tokens in A and B", "none in one of them", is_empty)
    is_wrong = texts.is_b != (texts.columns > first_sep[:, None])
    is_wrong |= texts.segments > 1
    is_wrong &= texts.is_text
    is_wrong[~has_segments] = False
    found = "{value} at position {at}"
    yield Rule("segments", "segment_ids 0 to the first [SEP], then 1", found, is_wrong, texts.segments)


def _range(texts: Texts) -> Iterator[Rule]:
    tokens, found = texts.rules.tokens, "{value} at position {at}"
    expected = f"tokens below {tokens}, the size of the vocabulary"
    is_beyond = texts.ids.view(np.uint32) >= tokens  # as are those below 0
    yield Rule("id-range", expected, found, is_beyond, texts.ids)
    if texts.rules.is_pretraining:
        is_label_beyond = (texts.labels.view(np.uint32) >= tokens) & ~_rows(is_beyond)[:, None]
        yield Rule("id-range", expected, found, is_label_beyond, texts.labels)


def _predictions(texts: Texts) -> Iterator[Rule]:
    positions, labels, is_inside = texts.positions, texts.labels, texts.is_inside
    is_outside = texts.is_prediction & ~is_inside
    before = np.maximum.accumulate(np.where(is_inside, positions, -1), axis=1) if is_outside.any() else positions
    is_descending = is_inside[:, 1:] & (positions[:, 1:] <= before[:, :-1])
    found = "{value} after {other}"
    yield Rule("mask-order", "ascending masked_lm_positions", found, is_descending, positions[:, 1:], before)
    yield Rule("mask-outside", "masked_lm_positions within the {length} tokens of text", "{value}", is_outside, positions)

    is_last_of_a = np.zeros(texts.ids.size + 1, np.bool_)
    is_last_of_a[:-2] = (texts.segments.ravel()[1:] == 1) & ~texts.is_b.ravel()[:-1]
    is_special = is_last_of_a[texts.at] | (positions == 0) | (positions == texts.last[:, None])
    is_special |= (labels == texts.rules.cls) | (labels == texts.rules.sep)
    expected, found = "no prediction on [CLS] or [SEP]", "position {value} with label {other}"
    yield Rule("mask-on-special", expected, found, is_special & is_inside, positions, labels)

    is_left = ~texts.is_prediction
    is_uneven = (texts.weights != 0.0) & is_left
    found = "another value at index {at}, after {predictions} ones"
    yield Rule("weights", "masked_lm_weights 1, then 0 to the end", found, is_uneven)
    left = np.where(positions != 0, positions, labels)
    expected = "positions and labels 0 after the {predictions} predictions with weight 1"
    is_left &= (left != 0) & ~_rows(is_uneven)[:, None]
    yield Rule("weights", expected, "{value} at index {at}", is_left, left)


def _number_of_predictions(texts: Texts) -> Rule:
    rules, drawn = texts.rules, texts.predictions
    wanted, rounded_up = rules.by_length[texts.lengths], rules.half_up[texts.lengths]
    if rules.segments == kernel.FULL_SENTENCES:  # which may have fewer tokens that are no [SEP]
        candidates = (texts.is_text[:, 2:] & ~texts.is_sep[:, 1:-1]).sum(1)
        candidates[drawn >= wanted] = rules.seq
        wanted, rounded_up = np.minimum(wanted, candidates), np.minimum(rounded_up, candidates)
    is_other = drawn > np.maximum(wanted, rounded_up)
    if rules.count_rule == kernel.EXACT_COUNT:
        is_other = (drawn != wanted) & (drawn != rounded_up)
    bound = "at most " if rules.whole_word else ""
    expected = f"{bound}{{value}} predictions of {{length}} tokens"
    return Rule("prediction-count", expected, "{predictions}", is_other, wanted, leaves_out=False)


def find_broken_words(texts: Texts, is_valid: Flags) -> Iterator[Rule]:
    """Yield the rules of whole words for valid records: mask all pieces of a word or none, and as many words as fit."""
    is_piece = np.zeros_like(texts.is_text)
    is_piece[:, 1:-1] = texts.is_text[:, 2:] & ~texts.is_sep[:, 1:-1] & is_valid[:, None]
    rows, columns = np.nonzero(is_piece)
    is_masked = texts.is_predicted()[rows, columns]
    is_head = texts.rules.kinds[texts.tokens[rows, columns]] != kernel.CONTINUES
    is_head |= np.diff(rows, prepend=-1) != 0
    heads = np.flatnonzero(is_head)
    is_unlike = is_masked != is_masked[heads][np.cumsum(is_head) - 1]
    unlike = np.bincount(rows[is_unlike], minlength=len(is_valid))
    found = "{value} pieces masked unlike the first of their word"
    yield Rule("whole-words", "words masked as a whole", found, unlike > 0, unlike)

    is_left = ~is_masked[heads]
    smallest = texts.lengths.astype(np.int64)  # the pieces of the smallest word that is not masked
    np.minimum.at(smallest, rows[heads[is_left]], np.diff(heads, append=len(rows))[is_left])
    room = texts.rules.by_length[texts.lengths] - texts.predictions
    is_left_out, expected = is_valid & (unlike == 0) & (smallest <= room), "{wanted} predictions, or as many as fit"
    found = "{predictions}, with a word of {value} pieces left out"
    yield Rule("prediction-count", expected, found, is_left_out, smallest, leaves_out=False)


def find_unlikely(texts: Texts, is_valid: Flags) -> Iterator[Rule]:
    """Yield the rules that valid records may break on purpose; such records are counted all the same."""
    is_mask = (texts.tokens == texts.rules.mask) & texts.is_text
    if is_mask.any():  # a label may be [MASK]
        is_mask &= ~texts.is_predicted() & is_valid[:, None]
    expected, found = "[MASK] at predicted positions only", "one at position {at}"
    yield Rule("mask-without-label", expected, found, is_mask, level=WARNING, leaves_out=False)
    if texts.rules.tokens:
        kinds = texts.rules.kinds.take(texts.tokens, mode="clip").ravel()
        is_misplaced = np.zeros(texts.tokens.shape, np.bool_)
        is_misplaced.ravel()[1:] = (kinds[1:] == kernel.CONTINUES) & (kinds[:-1] == kernel.ALONE_IN_WORD)
        is_misplaced[:, 0] = False
        if is_misplaced.any():
            is_misplaced &= texts.is_text & is_valid[:, None]
        expected = "## tokens only after another part of their word"
        found, level = "token {value} at position {at}, after punctuation or [UNK]", texts.rules.level_of_text
        yield Rule("word-pieces", expected, found, is_misplaced, texts.tokens, level=level, leaves_out=False)

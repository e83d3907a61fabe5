"""Checks one record file against the rules: its findings, its counts, and hashes of its records.

A worker runs this for each file. The loops are in `bertprep.kernels.record_checks`; this module prepares their rules and words
their findings. Nothing raises: a file that cannot be read is a finding like any other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertprep import kernels
from bertprep.check.findings import ERROR, WARNING, Finding
from bertprep.check.outcome import Counts, FileFacts, Tally
from bertprep.check.record_scan import RecordScan
from bertprep.errors import BertprepError
from bertprep.instances.generator import predictions_by_length
from bertprep.kernels import numbers as faults
from bertprep.records.examples import Examples, MaskedExamples, PretrainingExamples

_HASH_SEED = 20181011  # arbitrary; changing it changes no result
_MOST_PAIRS = 1024  # pairs of neighbours compared per file


@dataclass(frozen=True)
class RecordRules:
    """The rules for the records of a data set; `tokens` is 0 and `continues` empty if the vocabulary is unknown.

    `pad` is what input_ids have after the text: the number of [PAD].

    `continues` has a byte for each token, 1 if it continues a word. With `may_round_up` half a prediction may be rounded up, as
    Google's script does under Python 2.
    """

    seq: int
    pred: int
    tokens: int
    cls: int
    sep: int
    mask: int
    masked_lm_prob: float
    whole_word: bool = False
    continues: bytes = b""
    may_round_up: bool = False
    pad: int = 0
    kind: type[MaskedExamples] = PretrainingExamples
    kind_said_by: str = "as the first file has"

    @property
    def has_pairs(self) -> bool:
        return self.kind is PretrainingExamples

    @property
    def special(self) -> int:
        """[CLS] and the [SEP] that each record has."""
        return 3 if self.has_pairs else 2

    @property
    def count_rule(self) -> int:
        """The rule for the number of predictions, one of the three in `kernels.numbers`."""
        if not self.whole_word:
            return faults.EXACT_COUNT
        return faults.WHOLE_WORDS if self.continues else faults.AT_MOST

    def predictions_by_length(self) -> Counts:
        """The number of predictions of a record of n tokens, for n = 0 to seq."""
        return predictions_by_length(self.seq, self.pred, self.masked_lm_prob, self.special)

    def rounded_up_by_length(self) -> Counts:
        """The same with halves rounded up, if they may be."""
        table = self.predictions_by_length()
        if self.may_round_up:
            halves = [n for n in range(self.seq + 1) if (n * self.masked_lm_prob) % 1 == 0.5]
            up = [min(self.pred, math.ceil(n * self.masked_lm_prob), max(n - self.special, 1)) for n in halves]
            table[halves] = up
        return table

    def logarithms_of_factorials(self) -> Counts:
        """log2(n!) for n = 0 to seq, in units of 1 / CHOICE."""
        logarithms = [math.lgamma(n + 1) / math.log(2) * faults.CHOICE for n in range(self.seq + 1)]
        return np.array(np.round(logarithms), np.int64)


@dataclass
class Counted:
    """The counts of some records, and what fair draws would give, in units of 1 / SCALE.

    A draw is a token, or with whole words a word, counted at the position of its first token.
    """

    tally: Tally
    position_steps: Counts  # (seq + 1,) expected draws by position, as differences between adjacent positions
    expected_labels: Counts  # (v,) expected draws by original token
    word_positions: Counts  # (seq,) words drawn by position; empty if tokens are drawn
    word_labels: Counts  # (v,) and by their first token
    replaced: Counts  # (v,) predictions that show another token, by that token
    signs: Counts  # (SIGNS,) small counts: see kernels.numbers
    wins: Counts  # (4,) neighbours against distant records: more and fewer tokens in common, closer and less close lengths

    @classmethod
    def empty(cls, rules: RecordRules) -> Counted:
        """Nothing counted yet."""
        tally = Tally.empty(seq=rules.seq, pred=rules.pred, vocabulary=rules.tokens)
        words = (rules.seq, rules.tokens) if rules.count_rule == faults.WHOLE_WORDS else (0, 0)
        sizes = (rules.seq + 1, rules.tokens, *words, rules.tokens, faults.SIGNS, 4)
        return cls(tally, *(np.zeros(size, np.int64) for size in sizes))

    def add(self, other: Counted) -> None:
        """Add the counts of other records."""
        for field_ in fields(self):
            mine, more = getattr(self, field_.name), getattr(other, field_.name)
            if isinstance(mine, Tally):
                mine.add(more)
            else:
                mine += more

    @property
    def expected_positions(self) -> NDArray[np.float64]:
        """(seq,) the draws expected at each position."""
        return np.cumsum(self.position_steps)[:-1] / faults.SCALE


@dataclass(frozen=True)
class FileReport:
    """The result for a file.

    `hashes`, (records, 2), are those of the readable records, none for a sample. `rounding` holds faults only if the records of
    a data set were not all rounded alike.
    """

    facts: FileFacts
    format: str
    findings: list[Finding] = field(default_factory=list)
    counted: Counted | None = None
    hashes: NDArray[np.uint64] = field(default_factory=lambda: np.empty((0, 2), np.uint64))
    read: int = 0
    rounding: dict[str, Finding] = field(default_factory=dict)


class RecordChecker:
    """Checks blocks of `Examples` and accumulates findings and counts; for a file of `records`, also their order."""

    def __init__(self, rules: RecordRules, records: int = 0) -> None:
        self.rules = rules
        self.counted = Counted.empty(rules)
        self._faults = np.zeros((faults.VALUE_FAULTS, faults.VALUE_FAULT_WIDTH), np.int64)
        step = 1 << max(1, math.ceil(math.log2(max(records, 1) / _MOST_PAIRS))) if records else 0
        self._pairs = records // step if records else 0
        self._sketches = np.zeros((2 * self._pairs + 2, faults.SKETCH_WORDS), np.uint64)
        self._sketched_lengths = np.zeros(2 * self._pairs + 2, np.int64)
        sizes = [rules.seq, rules.pred, rules.tokens, rules.cls, rules.sep, rules.mask, rules.count_rule, step, rules.pad]
        sizes.append(int(rules.has_pairs))
        keys = rules.seq + 3 * rules.seq + 3 * rules.pred + 1  # hashes of the text and of all values
        tally, counted = self.counted.tally, self.counted
        self._tables = (
            np.array(sizes, np.int64),
            rules.predictions_by_length(), rules.rounded_up_by_length(), rules.logarithms_of_factorials(),
            np.random.Generator(np.random.PCG64(_HASH_SEED)).integers(0, 2**64, keys, np.uint64) | np.uint64(1),
            np.zeros(rules.seq + 1, np.int32), np.frombuffer(rules.continues or b"\0", np.uint8),
            np.zeros((faults.WORD_ROWS, rules.seq + 1), np.int64), self._faults,
            tally.lengths, tally.lengths_of_a, tally.predictions, tally.positions, tally.labels, tally.tokens,
            tally.shown, tally.next_sentence, counted.position_steps, counted.expected_labels,
            counted.word_positions, counted.word_labels, counted.replaced, counted.signs,
            self._sketches, self._sketched_lengths,
        )  # fmt: skip
        self._addresses = np.array([table.ctypes.data for table in self._tables], np.int64)

    def check(self, examples: MaskedExamples, numbers: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Check the records `numbers` of the file; returns two hashes of each, of its text and of all values, (n, 2)."""
        hashes = np.empty((len(examples), 2), np.uint64)
        numbers = np.ascontiguousarray(numbers, np.int64)
        kernels.load().check_records(examples.addresses, len(examples), numbers, self._addresses, hashes)
        return hashes

    def compare_order(self) -> None:
        """Count how often neighbours are more alike than other records; called after the last record."""
        kernels.load().compare_neighbours(self._sketches, self._sketched_lengths, self._pairs, self.counted.wins)

    def rounding(self, name: str) -> dict[str, Finding]:
        """A finding each for halves that were rounded "up" and to "even"."""
        ways = {"even": faults.HALF_TO_EVEN, "up": faults.HALF_UP}
        return {way: self._finding(fault, name) for way, fault in ways.items() if self._faults[fault, faults.FAULT_COUNT]}

    def findings(self, name: str) -> list[Finding]:
        """One finding for each kind of fault so far, in file `name`."""
        return [self._finding(fault, name) for fault in range(faults.HALF_TO_EVEN) if self._faults[fault, faults.FAULT_COUNT]]

    def _finding(self, fault: int, name: str) -> Finding:
        code, expected, found = (_WORDS if self.rules.has_pairs else _WORDS | _UNPAIRED_WORDS)[fault]
        count, record, at, wanted, there = map(int, self._faults[fault])
        bound = "at most " if self.rules.whole_word else ""
        noted = {"at": at, "expected": wanted, "found": there, "bound": bound, "pad": name_pad(self.rules.pad)}
        level = WARNING if fault == faults.MASK_WITHOUT_LABEL else ERROR
        return Finding(level, code, name, record, expected.format(**noted), found.format(**noted), count)


def check_file(path: Path, name: str, split: str, rules: RecordRules, sample: int | None = None) -> FileReport:
    """Check one file."""
    size_bytes = path.stat().st_size if path.is_file() else 0
    try:
        scan = RecordScan(path, name, rules.pred or None)
    except BertprepError as error:
        return FileReport(FileFacts(name, split, 0, size_bytes), "", [unreadable(path, name, size_bytes, error)])
    try:
        facts = FileFacts(name, split, scan.records, size_bytes)
        if scan.seq == 0 or not scan.records:
            return FileReport(facts, scan.format, scan.findings)
        if scan.kind is not rules.kind:
            expected, found = f"{rules.kind.title} records, {rules.kind_said_by}", f"{scan.kind.title} records"
            return FileReport(facts, scan.format, [*scan.findings, Finding(ERROR, "mixed-shape", name, 0, expected, found)])
        if (scan.seq, scan.pred) != (rules.seq, rules.pred):
            found = f"{scan.seq} tokens and {scan.pred} predictions"
            expected = f"records of {rules.seq} tokens and {rules.pred} predictions, as most have"
            return FileReport(facts, scan.format, [*scan.findings, Finding(ERROR, "mixed-shape", name, 0, expected, found)])
        checker = RecordChecker(rules, scan.records if sample is None else 0)
        hashes = [
            (checker.check(examples, numbers), len(numbers))
            for examples, numbers in scan.blocks(sample)
            if isinstance(examples, MaskedExamples)
        ]
        checker.compare_order()
        read = sum(count for _, count in hashes)
        kept = np.concatenate([hashed for hashed, _ in hashes]) if hashes and sample is None else np.empty((0, 2), np.uint64)
        findings = [*scan.findings, *checker.findings(name)]
        return FileReport(facts, scan.format, findings, checker.counted, kept, read, checker.rounding(name))
    except BertprepError as error:  # truncated while it was read
        return FileReport(facts, scan.format, [unreadable(path, name, size_bytes, error)])
    finally:
        scan.close()


def unreadable(path: Path, name: str, size_bytes: int, error: BertprepError) -> Finding:
    """The finding on a file that is no record file, or was cut short."""
    if path.is_file() and size_bytes == 0:
        return Finding(ERROR, "empty-file", name, None, "records", "a file of 0 bytes")
    if isinstance(error.__cause__, EOFError):
        return Finding(ERROR, "truncated", name, None, "a complete gzip file", "a truncated one")
    return Finding(ERROR, "unreadable", name, None, "a record file", str(error).removeprefix(f"{path}: "))


# fault -> code, what was expected, what was found; `at`, `expected` and `found` are reported by the kernel
_WORDS = {
    faults.UNEVEN_MASK: ("padding", "input_mask 1 for the text, then 0 to the end", "{found} at position {at}"),
    faults.PADDING_IDS: ("padding", "input_ids {pad} after the {expected} tokens of text", "{found} at position {at}"),
    faults.PADDING_SEGMENTS: ("padding", "segment_ids 0 after the {expected} tokens of text", "{found} at position {at}"),
    faults.PAD_IN_TEXT: ("padding", "no [PAD] within the {expected} tokens of text", "one at position {at}"),
    faults.NO_CLS: ("no-cls", "[CLS], token {expected}, at position 0", "token {found}"),
    faults.CLS_IN_TEXT: ("no-cls", "[CLS] at position 0 only", "{found} of them, one at position {at}"),
    faults.SEP_COUNT: ("separators", "two [SEP]", "{found}"),
    faults.SEP_LAST: ("separators", "[SEP], token {expected}, at the last position of text, {at}", "token {found}"),
    faults.EMPTY_SEGMENT: ("separators", "[CLS] A [SEP] B [SEP] with tokens in A and B", "none in one of them"),
    faults.WRONG_SEGMENTS: (
        "segments",
        "segment_ids 0 to the first [SEP], then 1",
        "{found} at position {at}",
    ),
    faults.ID_RANGE: ("id-range", "tokens below {expected}, the size of the vocabulary", "{found} at position {at}"),
    faults.MASK_ORDER: ("mask-order", "ascending masked_lm_positions", "{found} after {expected}"),
    faults.MASK_OUTSIDE: ("mask-outside", "masked_lm_positions within the {expected} tokens of text", "{at}"),
    faults.MASK_ON_SPECIAL: ("mask-on-special", "no prediction on [CLS] or [SEP]", "position {at} with label {found}"),
    faults.UNEVEN_WEIGHTS: (
        "weights",
        "masked_lm_weights 1, then 0 to the end",
        "another at index {at} after {found} ones",
    ),
    faults.AFTER_PREDICTIONS: (
        "weights",
        "positions and labels 0 after the {expected} predictions with weight 1",
        "{found} at index {at}",
    ),
    faults.PREDICTION_COUNT: ("prediction-count", "{bound}{expected} predictions of {at} tokens", "{found}"),
    faults.WORD_LEFT_OUT: (
        "prediction-count",
        "{expected} predictions, or as many as fit",
        "{found}, and a word of {at} left out",
    ),
    faults.WORD_IN_PART: (
        "whole-words",
        "words masked as a whole",
        "{found} pieces masked unlike the first of their word",
    ),
    faults.HALF_TO_EVEN: ("prediction-count", "{expected} predictions of {at} tokens, a half rounded up", "{found}"),
    faults.HALF_UP: ("prediction-count", "{expected} predictions of {at} tokens, a half rounded to even", "{found}"),
    faults.WRONG_NEXT_SENTENCE: ("next-sentence-label", "0 or 1", "{found}"),
    faults.MASK_WITHOUT_LABEL: ("mask-without-label", "[MASK] at predicted positions only", "one at position {at}"),
}

_UNPAIRED_WORDS = {
    faults.EMPTY_SEGMENT: ("separators", "tokens before each [SEP]", "{found} of them at or after another special token"),
    faults.WRONG_SEGMENTS: ("segments", "segment_ids 0", "{found} at position {at}"),
}


def name_pad(pad: int) -> str:
    """What a message calls the token of padding: its number, and what it is where that is not the usual one.

    >>> name_pad(0), name_pad(4)
    ('0', '4, the number of [PAD],')
    """
    return f"{pad}, the number of [PAD]," if pad else "0"


def guess_pad(examples: Examples) -> int | None:
    """The most frequent token after the text; None where no record has padding."""
    return _most_frequent(examples.input_ids[examples.input_mask == 0])


def guess_special_tokens(examples: MaskedExamples) -> dict[str, Any]:
    """{"cls", "sep", "mask"}: the most frequent tokens at the first, the last and the predicted positions.

    For records without a vocabulary; pass a few hundred records, since a replacement may hide a token.
    """
    rows = np.arange(len(examples))
    lengths = np.clip(examples.input_mask.sum(axis=1), 1, examples.seq)
    positions = np.clip(examples.masked_lm_positions, 0, examples.seq - 1)
    shown = np.take_along_axis(examples.input_ids, positions.astype(np.int64), axis=1)[examples.masked_lm_weights > 0]
    of_each = {"cls": examples.input_ids[:, 0], "sep": examples.input_ids[rows, lengths - 1], "mask": shown}
    found = {name: _most_frequent(tokens) for name, tokens in of_each.items()}
    return {name: -1 if token is None else token for name, token in found.items()}


def _most_frequent(tokens: NDArray[np.int32]) -> int | None:
    values, counts = np.unique(tokens, return_counts=True)
    return int(values[np.argmax(counts)]) if len(values) else None

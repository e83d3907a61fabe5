"""Checks the records of one file of pretraining against the rules: findings, counts, and hashes of the records.

A worker runs `check_file` for each file. The loops are in `bertprep.kernels.record_checks`; this module prepares their rules
and words their findings.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from unicodedata import category

import numpy as np
from numpy.typing import NDArray

from bertprep import kernels
from bertprep.check.outcome import ERROR, WARNING, Counts, FileReport, FileTask, Finding, Tally
from bertprep.check.record_scan import RecordScan, name_pad, scan_file
from bertprep.instances import Vocabulary
from bertprep.instances.generator import predictions_by_length
from bertprep.kernels import numbers as faults
from bertprep.records.examples import Examples, MaskedExamples, PretrainingExamples

_HASH_SEED = 20181011  # arbitrary; changing it changes no result
_MAX_PAIRS = 1024  # pairs of neighbours compared per file


@dataclass(frozen=True)
class RecordRules:
    """The rules for the records of a data set; `tokens` is 0 and `continues` empty if the vocabulary is unknown.

    `pad` is what input_ids have after the text: the number of [PAD].

    `continues` has a byte for each token, as `kinds_of_tokens` gives them. With `may_round_up` half a prediction may be rounded
    up, as Google's script does under Python 2. With `by_manifest` bertprep made the records, so the generator's rules hold.
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
    by_manifest: bool = False

    @property
    def has_pairs(self) -> bool:
        return self.kind is PretrainingExamples

    @property
    def level_of_text(self) -> str:
        """The level of findings about text that bertprep's generator never makes, but another tool may have meant."""
        return ERROR if self.by_manifest else WARNING

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

    def empty_tally(self) -> Tally:
        """Nothing counted yet."""
        whole_words = self.count_rule == faults.WHOLE_WORDS
        return Tally.empty(seq=self.seq, pred=self.pred, vocabulary=self.tokens, whole_words=whole_words)

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


class RecordChecker:
    """Checks blocks of `Examples` and accumulates findings and counts; for a file of `records`, also their order."""

    def __init__(self, rules: RecordRules, records: int = 0) -> None:
        self.rules = rules
        self.tally = rules.empty_tally()
        self._faults = np.zeros((faults.VALUE_FAULTS, faults.VALUE_FAULT_WIDTH), np.int64)
        step = 1 << max(1, math.ceil(math.log2(max(records, 1) / _MAX_PAIRS))) if records else 0
        self._pairs = records // step if records else 0
        self._sketches = np.zeros((2 * self._pairs + 2, faults.SKETCH_WORDS), np.uint64)
        self._sketched_lengths = np.zeros((2 * self._pairs + 2, 2), np.int64)
        sizes = [rules.seq, rules.pred, rules.tokens, rules.cls, rules.sep, rules.mask, rules.count_rule, step, rules.pad]
        sizes.append(int(rules.has_pairs))
        keys = rules.seq + 3 * rules.seq + 3 * rules.pred + 1  # hashes of the text and of all values
        tally = self.tally
        self._tables = (
            np.array(sizes, np.int64),
            rules.predictions_by_length(), rules.rounded_up_by_length(), rules.logarithms_of_factorials(),
            np.random.Generator(np.random.PCG64(_HASH_SEED)).integers(0, 2**64, keys, np.uint64) | np.uint64(1),
            np.zeros(rules.seq + 1, np.int32), np.frombuffer(rules.continues or bytes(rules.tokens + 1), np.uint8),
            np.zeros((faults.WORD_ROWS, rules.seq + 1), np.int64), self._faults,
            tally.lengths, tally.lengths_of_a, tally.predictions, tally.positions, tally.labels, tally.tokens,
            tally.shown, tally.next_sentence, tally.position_steps, tally.expected_labels,
            tally.word_positions, tally.word_labels, tally.replaced, tally.signs,
            self._sketches, self._sketched_lengths, tally.predicted, np.zeros(4 * faults.SKETCH_WORDS + 1, np.uint64),
        )  # fmt: skip
        self._addresses = np.array([table.ctypes.data for table in self._tables], np.int64)

    def check(self, examples: Examples, numbers: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Check the records `numbers` of the file; returns two hashes of each, of its text and of all values, (n, 2)."""
        hashes = np.empty((len(examples), 2), np.uint64)
        numbers = np.ascontiguousarray(numbers, np.int64)
        kernels.load().check_records(examples.addresses, len(examples), numbers, self._addresses, hashes)
        return hashes

    def compare_order(self) -> None:
        """Count how often neighbours are more alike than other records; called after the last record."""
        kernels.load().compare_neighbours(self._sketches, self._sketched_lengths, self._pairs, self.tally.wins)

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
        levels = {faults.MASK_WITHOUT_LABEL: WARNING, faults.PIECE_OF_NONE: self.rules.level_of_text}
        level = levels.get(fault, ERROR)
        return Finding(level, code, name, record, expected.format(**noted), found.format(**noted), count)


@dataclass
class RecordReport(FileReport):
    """With what is judged over all files; `rounding` holds faults only if the records were not all rounded alike."""

    tally: Tally | None = None
    hashes: NDArray[np.uint64] = field(default_factory=lambda: np.empty((0, 2), np.uint64))  # none for a sample
    rounding: dict[str, Finding] = field(default_factory=dict)


def check_file(rules: RecordRules, sample: int | None, task: FileTask) -> RecordReport:
    """Check one file."""
    return scan_file(RecordReport, task, lambda report, scan: _check_scan(report, scan, rules, sample), rules.pred or None)


def _check_scan(report: RecordReport, scan: RecordScan, rules: RecordRules, sample: int | None) -> None:
    name = report.facts.name
    if scan.kind is not rules.kind:
        why = "by the manifest" if rules.by_manifest else "as the first file has"
        expected, found = f"{rules.kind.title} records, {why}", f"{scan.kind.title} records"
        report.findings.append(Finding(ERROR, "mixed-shape", name, 0, expected, found))
        return
    if (scan.seq, scan.pred) != (rules.seq, rules.pred):
        expected = f"records of {rules.seq} tokens and {rules.pred} predictions, as most have"
        found = f"{scan.seq} tokens and {scan.pred} predictions"
        report.findings.append(Finding(ERROR, "mixed-shape", name, 0, expected, found))
        return
    checker = RecordChecker(rules, scan.records if sample is None else 0)
    hashes = []
    for examples, numbers in scan.blocks(sample):
        hashes.append(checker.check(examples, numbers))
        report.read += len(numbers)
    checker.compare_order()
    if hashes and sample is None:
        report.hashes = np.concatenate(hashes)
    report.tally, report.rounding = checker.tally, checker.rounding(name)
    report.findings += checker.findings(name)


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
    faults.WRONG_SEGMENTS: ("segments", "segment_ids 0 to the first [SEP], then 1", "{found} at position {at}"),
    faults.ID_RANGE: ("id-range", "tokens below {expected}, the size of the vocabulary", "{found} at position {at}"),
    faults.MASK_ORDER: ("mask-order", "ascending masked_lm_positions", "{found} after {expected}"),
    faults.MASK_OUTSIDE: ("mask-outside", "masked_lm_positions within the {expected} tokens of text", "{at}"),
    faults.MASK_ON_SPECIAL: ("mask-on-special", "no prediction on [CLS] or [SEP]", "position {at} with label {found}"),
    faults.UNEVEN_WEIGHTS: ("weights", "masked_lm_weights 1, then 0 to the end", "another at index {at} after {found} ones"),
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
    faults.WORD_IN_PART: ("whole-words", "words masked as a whole", "{found} pieces masked unlike the first of their word"),
    faults.PIECE_OF_NONE: (
        "word-pieces",
        "## tokens after a part of their word only",
        "token {found} at position {at}, after punctuation or [UNK]",
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


def kinds_of_tokens(vocabulary: Vocabulary) -> bytes:
    """A byte for each token: 1 if it continues a word, 2 if nothing continues it, which is [UNK] and punctuation; else 0."""
    is_alone = (
        len(token) == 1 and (category(token)[0] == "P" or (token.isascii() and not token.isalnum()))
        for token in vocabulary.tokens
    )
    kinds = bytearray(faults.ALONE_IN_WORD * alone for alone in is_alone)
    kinds[vocabulary.unk] = faults.ALONE_IN_WORD
    return bytes(kind | continues for kind, continues in zip(kinds, vocabulary.continues, strict=True))

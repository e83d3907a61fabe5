"""Checks the records of one file of pretraining against the rules: findings, counts, and hashes of the records.

A worker runs `check_file` for each file. The loops are in `bertprep.kernels.record_checks`, for which this module prepares the
tables.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from unicodedata import category

import numpy as np
from numpy.typing import NDArray

from bertprep import kernels
from bertprep.check.faults import describe, name_pad
from bertprep.check.outcome import ERROR, WARNING, FileReport, FileTask, Finding, Ints, RecordCounts
from bertprep.check.record_scan import RecordScan, scan_file
from bertprep.instances import Vocabulary
from bertprep.instances.generator import predictions_by_length
from bertprep.kernels import numbers as kernel
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
            return kernel.EXACT_COUNT
        return kernel.WHOLE_WORDS if self.continues else kernel.AT_MOST

    def empty_counts(self) -> RecordCounts:
        """Return zeros."""
        whole_words = self.count_rule == kernel.WHOLE_WORDS
        return RecordCounts.empty(seq=self.seq, pred=self.pred, vocabulary=self.tokens, whole_words=whole_words)

    def predictions_by_length(self) -> Ints:
        """Return the number of predictions of a record of n tokens, for n = 0 to seq."""
        return predictions_by_length(self.seq, self.pred, self.masked_lm_prob, self.special)

    def rounded_up_by_length(self) -> Ints:
        """Return the same with halves rounded up, if they may be."""
        table = self.predictions_by_length()
        for n in range(self.seq + 1) if self.may_round_up else ():
            if (n * self.masked_lm_prob) % 1 == 0.5:
                table[n] = min(self.pred, math.ceil(n * self.masked_lm_prob), max(n - self.special, 1))
        return table


class RecordChecker:
    """Checks blocks of `Examples` and accumulates findings and counts; for a file of `records`, also their order."""

    def __init__(self, rules: RecordRules, records: int = 0) -> None:
        self.rules = rules
        self.counts = counts = rules.empty_counts()
        self._faults = np.zeros((kernel.VALUE_FAULTS, kernel.VALUE_FAULT_WIDTH), np.int64)
        step = 1 << max(1, math.ceil(math.log2(max(records, 1) / _MAX_PAIRS))) if records else 0
        self._pairs = records // step if records else 0
        self._sketches = np.zeros((2 * self._pairs + 2, kernel.SKETCH_WORDS), np.uint64)
        self._sketched_lengths = np.zeros((2 * self._pairs + 2, 2), np.int64)
        sizes = [rules.seq, rules.pred, rules.tokens, rules.cls, rules.sep, rules.mask, rules.count_rule, step, rules.pad]
        keys = rules.seq + 3 * rules.seq + 3 * rules.pred + 1  # hashes of the text and of all values
        log2_of_factorials = [math.lgamma(n + 1) / math.log(2) * kernel.CHOICE for n in range(rules.seq + 1)]
        self._tables = (
            np.array([*sizes, rules.has_pairs], np.int64),
            rules.predictions_by_length(), rules.rounded_up_by_length(), np.array(np.round(log2_of_factorials), np.int64),
            np.random.Generator(np.random.PCG64(_HASH_SEED)).integers(0, 2**64, keys, np.uint64) | np.uint64(1),
            np.zeros(rules.seq + 1, np.int32), np.frombuffer(rules.continues or bytes(rules.tokens + 1), np.uint8),
            np.zeros((kernel.WORD_ROWS, rules.seq + 1), np.int64), self._faults,
            counts.lengths, counts.lengths_of_a, counts.predictions, counts.positions, counts.labels, counts.tokens,
            counts.shown, counts.next_sentence, counts.position_steps, counts.expected_labels,
            counts.word_positions, counts.word_labels, counts.replaced, counts.signs,
            self._sketches, self._sketched_lengths, counts.predicted, np.zeros(4 * kernel.SKETCH_WORDS + 1, np.uint64),
        )  # fmt: skip
        self._addresses = np.array([table.ctypes.data for table in self._tables], np.int64)

    def check(self, examples: Examples, numbers: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Check the records `numbers` of the file; return two hashes of each, of its text and of all values, (n, 2)."""
        hashes = np.empty((len(examples), 2), np.uint64)
        numbers = np.ascontiguousarray(numbers, np.int64)
        kernels.load().check_records(examples.addresses, len(examples), numbers, self._addresses, hashes)
        return hashes

    def compare_order(self) -> None:
        """Count how often neighbours are more alike than other records; called after the last record."""
        kernels.load().compare_neighbours(self._sketches, self._sketched_lengths, self._pairs, self.counts.wins)

    def rounding(self, name: str) -> dict[str, Finding]:
        """Return a finding each for halves that were rounded "up" and to "even"."""
        ways = {"even": kernel.HALF_TO_EVEN, "up": kernel.HALF_UP}
        return {way: self._finding(fault, name) for way, fault in ways.items() if self._faults[fault, kernel.FAULT_COUNT]}

    def findings(self, name: str) -> list[Finding]:
        """Return one finding for each kind of fault so far, in file `name`."""
        return [self._finding(fault, name) for fault in range(kernel.HALF_TO_EVEN) if self._faults[fault, kernel.FAULT_COUNT]]

    def _finding(self, fault: int, name: str) -> Finding:
        count, record, at, expected, found = map(int, self._faults[fault])
        levels = {kernel.MASK_WITHOUT_LABEL: WARNING, kernel.PIECE_OF_NONE: self.rules.level_of_text}
        return describe(
            fault, name, record, count=count, level=levels.get(fault, ERROR), pairs=self.rules.has_pairs,
            at=at, expected=expected, found=found, bound="at most " * self.rules.whole_word, pad=name_pad(self.rules.pad),
        )  # fmt: skip


@dataclass
class RecordReport(FileReport):
    """With what is judged over all files; `rounding` holds faults only if the records were not all rounded alike."""

    counts: RecordCounts | None = None
    hashes: NDArray[np.uint64] = field(default_factory=lambda: np.empty((0, 2), np.uint64))  # none for a sample
    rounding: dict[str, Finding] = field(default_factory=dict)


def check_file(rules: RecordRules, sample: int | None, task: FileTask) -> RecordReport:
    """Check one file."""

    def check(report: RecordReport, scan: RecordScan) -> None:
        if scan.shape != (rules.kind, rules.seq, rules.pred):
            expected, found = f"{rules.kind.title} records", f"{scan.kind.title} records"
            if scan.kind is rules.kind:
                expected = f"records of {rules.seq} tokens and {rules.pred} predictions, as most have"
                found = f"{scan.seq} tokens and {scan.pred} predictions"
            else:
                expected += ", by the manifest" if rules.by_manifest else ", as the first file has"
            report.findings.append(Finding("mixed-shape", task.name, expected, found, 0))
            return
        checker = RecordChecker(rules, scan.records if sample is None else 0)
        hashes = []
        for examples, numbers in scan.blocks(sample):
            hashes.append(checker.check(examples, numbers))
            report.read += len(numbers)
        checker.compare_order()
        if hashes and sample is None:
            report.hashes = np.concatenate(hashes)
        report.counts, report.rounding = checker.counts, checker.rounding(task.name)
        report.findings += checker.findings(task.name)

    return scan_file(RecordReport, task, check, rules.pred or None)


def kinds_of_tokens(vocabulary: Vocabulary) -> bytes:
    """Return a byte a token: 1 if it continues a word, 2 if nothing continues it, which is [UNK] and punctuation; else 0."""
    is_alone = (
        len(token) == 1 and (category(token)[0] == "P" or (token.isascii() and not token.isalnum()))
        for token in vocabulary.tokens
    )
    kinds = bytearray(kernel.ALONE_IN_WORD * alone for alone in is_alone)
    kinds[vocabulary.unk] = kernel.ALONE_IN_WORD
    return bytes(kind | continues for kind, continues in zip(kinds, vocabulary.continues, strict=True))

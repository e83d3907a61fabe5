"""Checks the records of one file against the rules: findings, counts, and hashes of the records.

The loops are in `bertprep.kernels.record_checks`; `bertprep.check.tasks` checks what only fine-tuning records have.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from unicodedata import category

import numpy as np
from numpy.typing import NDArray

from bertprep import kernels
from bertprep.check import tasks
from bertprep.check.outcome import ERROR, WARNING, CheckedFile, FileReport, FileTask, Finding, Ints, RecordCounts, file_that
from bertprep.check.record_scan import RecordScan, describe_fault
from bertprep.errors import BertprepError
from bertprep.instances import Vocabulary
from bertprep.instances.generator import predictions_by_length
from bertprep.kernels import numbers as kernel
from bertprep.records import Examples, MaskedExamples, PretrainingExamples, SquadEvalExamples, SquadExamples
from bertprep.records.examples import Shape

_HASH_SEED = 20181011  # arbitrary; changing it changes no result
_MAX_PAIRS = 1024  # pairs of neighbours compared per file


@dataclass(frozen=True)
class RecordRules:
    """The rules for the records of a split; `tokens` is 0 and `continues` empty without a vocabulary.

    `pad` is the id of [PAD]. `continues` has a byte for each token (`kinds_of_tokens`). With `may_round_up` half a prediction
    may be rounded up, as under Python 2. With `by_manifest` bertprep made the records. The last two are for fine-tuning.
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
    kind: type[Examples] = PretrainingExamples
    by_manifest: bool = False
    labels: int | None = None  # classes, where they are known
    may_be_impossible: bool = True  # SQuAD 2.0 has questions without an answer

    @property
    def shape(self) -> Shape:
        return Shape(self.kind, self.seq, self.pred)

    @property
    def is_pretraining(self) -> bool:
        return issubclass(self.kind, MaskedExamples)

    @property
    def has_pairs(self) -> bool:
        return self.kind is PretrainingExamples

    @property
    def segments(self) -> int:
        """Which segments a record has, by the names of `kernels.numbers`."""
        if self.is_pretraining and not self.has_pairs:
            return kernel.FULL_SENTENCES
        has_two = issubclass(self.kind, (PretrainingExamples, SquadExamples, SquadEvalExamples))
        return kernel.TWO_SEGMENTS if has_two else kernel.ONE_OR_TWO_SEGMENTS

    @property
    def level_of_text(self) -> str:
        """The level of findings that bertprep's generator never causes, but another tool may intend."""
        return ERROR if self.by_manifest else WARNING

    @property
    def count_rule(self) -> int:
        """The rule for the number of predictions, one of the three in `kernels.numbers`."""
        if not self.whole_word:
            return kernel.EXACT_COUNT
        return kernel.WHOLE_WORDS if self.continues else kernel.AT_MOST

    def predictions_by_length(self, *, halves_up: bool = False) -> Ints:
        """Return the number of predictions for n = 0 to seq tokens, halves rounded to even, or up."""
        special = 3 if self.has_pairs else 2
        table = predictions_by_length(self.seq, self.pred, self.masked_lm_prob, special)
        for n in range(self.seq + 1) if halves_up else ():
            if (n * self.masked_lm_prob) % 1 == 0.5:
                table[n] = min(self.pred, math.ceil(n * self.masked_lm_prob), max(n - special, 1))
        return table


class RecordChecker:
    """Checks blocks of `Examples` and accumulates findings and counts."""

    def __init__(self, rules: RecordRules, records: int = 0) -> None:
        seq, pred, tokens = rules.seq, rules.pred, rules.tokens
        self.rules = rules
        whole_words = rules.count_rule == kernel.WHOLE_WORDS
        self.counts = counts = RecordCounts.empty(seq=seq, pred=pred, vocabulary=tokens, whole_words=whole_words)
        self._faults = np.zeros((kernel.VALUE_FAULTS, kernel.VALUE_FAULT_WIDTH), np.int64)
        step = 1 << max(1, math.ceil(math.log2(max(records, 1) / _MAX_PAIRS))) if records else 0
        self._pairs = records // step if records else 0
        self._sketches = np.zeros((2 * self._pairs + 2, kernel.SKETCH_WORDS), np.uint64)
        self._sketched = np.zeros((2 * self._pairs + 2, 2), np.int64)  # the length, 0 for none, and the first token
        log2_of_factorials = [math.lgamma(n + 1) / math.log(2) * kernel.CHOICE for n in range(seq + 1)]
        keys = seq + sum(rules.shape.counts)  # hashes of the text and of all values
        fields = vars(counts) | {
            "seq": seq, "pred": pred, "vocabulary": tokens, "cls": rules.cls, "sep": rules.sep, "mask": rules.mask,
            "pad": rules.pad, "segments": rules.segments, "count_rule": rules.count_rule, "step": step,
            "by_length": rules.predictions_by_length(),
            "half_up": rules.predictions_by_length(halves_up=rules.may_round_up),
            "kinds": np.frombuffer(rules.continues or bytes(tokens + 1), np.uint8),
            "log2_factorials": np.array(np.round(log2_of_factorials), np.int64),
            "keys": np.random.Generator(np.random.PCG64(_HASH_SEED)).integers(0, 2**64, keys, np.uint64) | np.uint64(1),
            "text": np.zeros(seq + 1, np.int32),
            "words": np.zeros((kernel.WORD_ROWS, seq + 1), np.int64),
            "unpaired": np.zeros(seq + 2, np.int32),
            "segments_in_bits": np.zeros((4, kernel.SKETCH_WORDS), np.uint64),
            "faults": self._faults, "sketches": self._sketches, "sketched": self._sketched,
        }  # fmt: skip
        self._check = kernels.load().check_records.bind(fields)

    def check(self, examples: Examples, indices: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Check the records `indices` of the file; return two hashes of each, (n, 2)."""
        hashes = np.empty((len(examples), 2), np.uint64)
        arrays = examples.addresses.copy()
        rows = arrays[kernel.ARRAY_FEATURE :].reshape(-1, kernel.ARRAY_WIDTH)
        rows[:] = rows[np.argsort(rows[:, 0])]  # by the ids of features, the kernel has tokens first
        self._check(arrays, len(examples), np.ascontiguousarray(indices, np.int64), hashes)
        return hashes

    def compare_order(self) -> None:
        """Count how often neighbours are more alike than other records, by common tokens, lengths and first tokens."""
        half = self._pairs // 2
        a = 2 * np.arange(half)
        a = a[(self._sketched[[a, a + 1, a + 2 * half, a + 2 * half + 1], 0] != 0).all(0)]
        b, c, d = a + 1, a + 2 * half, a + 2 * half + 1
        bits, wins = np.unpackbits(self._sketches.view(np.uint8), axis=1), self.counts.wins

        def in_common(one: Ints, other: Ints) -> Ints:
            common: Ints = (bits[one] & bits[other]).sum(1, dtype=np.int64)
            return common

        near, far = in_common(a, b) + in_common(c, d), in_common(a, c) + in_common(b, d)
        wins[:2] += (near > far).sum(), (near < far).sum()
        values = self._sketched
        near = abs(values[a] - values[b]) + abs(values[c] - values[d])
        far = abs(values[a] - values[c]) + abs(values[b] - values[d])
        wins[2:] += np.stack([(near < far).sum(0), (near > far).sum(0)], 1).ravel()

    def findings(self, name: str) -> list[Finding]:
        """Return one finding for each kind of fault so far, in file `name`."""
        levels = {kernel.MASK_WITHOUT_LABEL: WARNING, kernel.PIECE_OF_NONE: self.rules.level_of_text}
        bound, pad = "at most " * self.rules.whole_word, self.rules.pad
        pad_in_words = f"{pad}, the number of [PAD]," if pad else "0"
        findings = []
        for fault, row in enumerate(self._faults):
            count, record, at, expected, found = map(int, row)
            if count:
                notes = {"at": at, "expected": expected, "found": found, "bound": bound, "pad": pad_in_words}
                level = levels.get(fault, ERROR)
                findings.append(
                    describe_fault(fault, name, record, notes, count=count, level=level, segments=self.rules.segments)
                )
        return findings


def check_file(rules_of: dict[str, RecordRules], sample: int | None, task: FileTask) -> FileReport:
    """Check one file by the rules of its split; an unreadable one is a finding."""
    path, rules = task.folder / task.name, rules_of[task.split]
    size_bytes = path.stat().st_size if path.is_file() else 0
    report = FileReport(CheckedFile(task.name, task.split, 0, size_bytes), totals={"examples": 0} if path.is_file() else {})
    try:
        with RecordScan(path, task.name, rules.pred or None) as scan:
            report.file = CheckedFile(task.name, task.split, len(scan), size_bytes)
            report.format, report.totals = scan.format, {"examples": len(scan)}
            if scan.seq and len(scan):
                _check_records(report, scan, rules, sample)
            report.findings[:0] = scan.findings
    except BertprepError as error:  # also a file that was cut short while it was read
        finding = Finding("unreadable", task.name, "a record file", file_that(error, path))
        if path.is_file() and size_bytes == 0:
            finding = Finding("empty-file", task.name, "records", "a file of 0 bytes")
        elif isinstance(error.__cause__, EOFError):
            finding = Finding("truncated", task.name, "a complete gzip file", "a truncated one")
        report = FileReport(report.file, [finding], report.format, totals=report.totals)
    return report


def _check_records(report: FileReport, scan: RecordScan, rules: RecordRules, sample: int | None) -> None:
    name = report.file.name
    if scan.shape != rules.shape:
        why = "by the manifest" if rules.by_manifest else "as most have"
        report.findings.append(Finding("mixed-shape", name, f"{_title(rules.shape)}, {why}", _title(scan.shape), 0))
        return
    checker = RecordChecker(rules, len(scan) if sample is None and rules.is_pretraining else 0)
    hashes, unique_ids = [], []
    of_task: dict[str, Finding] = {}
    for examples, numbers in scan.intact_blocks(sample):
        report.read += len(numbers)
        hashes.append(checker.check(examples, numbers))
        for new in tasks.find_faults(examples, numbers, name, labels=rules.labels, squad_2=rules.may_be_impossible):
            first = of_task.get(new.expected)
            of_task[new.expected] = replace(first, count=first.count + new.count) if first else new
        if isinstance(examples, (SquadExamples, SquadEvalExamples)):
            unique_ids.append(examples.unique_ids.astype(np.int64))
    report.findings += [*checker.findings(name), *of_task.values()]
    if unique_ids and sample is None:
        report.first_unique_id, wrong = tasks.check_order(name, np.concatenate(unique_ids))
        report.findings += wrong
    if rules.is_pretraining:
        checker.compare_order()
        report.counts = checker.counts
        if hashes and sample is None:
            report.hashes = np.concatenate(hashes)


def _title(shape: Shape) -> str:
    predictions = f" and {shape.pred} predictions" if shape.pred else ""
    return f"{shape.kind.title} records of {shape.seq} tokens{predictions}"


def kinds_of_tokens(vocabulary: Vocabulary) -> bytes:
    """Return a byte a token: 1 if it continues a word, 2 if nothing continues it ([UNK], punctuation), else 0."""
    is_alone = (
        len(token) == 1 and (category(token)[0] == "P" or (token.isascii() and not token.isalnum()))
        for token in vocabulary.tokens
    )
    kinds = bytearray(kernel.ALONE_IN_WORD * alone for alone in is_alone)
    kinds[vocabulary.unk] = kernel.ALONE_IN_WORD
    return bytes(kind | continues for kind, continues in zip(kinds, vocabulary.continues, strict=True))

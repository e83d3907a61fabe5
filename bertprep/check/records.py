"""Check the records of one file against the rules: find faults, count and hash the records.

`bertprep.check.values` has the rules for all records, and `bertprep.check.tasks` those for features of fine-tuning records.
`bertprep.kernels.record_counts` counts the valid records of pretraining.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from bertprep import kernels
from bertprep.check import tasks
from bertprep.check.continuations import Continuations
from bertprep.check.counts import Ints, RecordCounts, TokenCounts
from bertprep.check.finding import Finding, file_that
from bertprep.check.outcome import CheckedFile
from bertprep.check.record_scan import RecordScan
from bertprep.check.rules import RecordRules
from bertprep.check.values import Rule, Texts, find_broken, find_broken_words, find_unlikely
from bertprep.errors import BertprepError
from bertprep.kernels import numbers as kernel
from bertprep.records import Examples, PretrainingExamples, SquadEvalExamples, SquadExamples
from bertprep.records.examples import Shape
from bertprep.tasks.segments import text_tokens

_HASH_SEED = 20181011  # arbitrary: another value gives the same results
_MAX_PAIRS = 1024  # pairs of neighbours compared per file


class RecordChecker:
    """Checks blocks of `Examples` and accumulates findings and counts.

    `records` is the number of records in the file, whose neighbours are compared. `compared` is the number of its first records
    with sentence pairs whose text is compared.
    """

    def __init__(self, rules: RecordRules, records: int = 0, compared: int = 0) -> None:
        seq, pred, tokens = rules.seq, rules.pred, rules.tokens
        self.rules = rules
        whole_words = rules.count_rule == kernel.WHOLE_WORDS
        self.counts = counts = RecordCounts.empty(seq=seq, pred=pred, vocabulary=tokens, whole_words=whole_words)
        self._findings: dict[tuple[str, str, str], Finding | None] = {}  # by rule, in their order; None while none breaks it
        step = 1 << max(1, math.ceil(math.log2(max(records, 1) / _MAX_PAIRS))) if records else 0
        self._pairs = records // step if records else 0
        self._sketches = np.zeros((2 * self._pairs + 2, kernel.SKETCH_WORDS), np.uint64)
        self._sketched = np.zeros((2 * self._pairs + 2, 2), np.int64)  # the length, 0 for none, and the first token
        log2_of_factorials = [math.lgamma(n + 1) / math.log(2) * kernel.CHOICE for n in range(seq + 1)]
        keys = seq + rules.shape.itemsize  # for hashes of the text and of all values
        fields = vars(counts) | {
            "seq": seq, "vocabulary": tokens, "sep": rules.sep, "mask": rules.mask, "has_pairs": rules.has_pairs,
            "count_rule": rules.count_rule, "step": step, "kinds": rules.kinds,
            "log2_factorials": np.array(np.round(log2_of_factorials), np.int64),
            "keys": np.random.Generator(np.random.PCG64(_HASH_SEED)).integers(0, 2**64, keys, np.uint64) | np.uint64(1),
            "words": np.zeros((kernel.WORD_ROWS, seq + 1), np.int64),
            "unpaired": np.zeros(seq + 2, np.int32),
            "segments_in_bits": np.zeros((4, kernel.SKETCH_WORDS), np.uint64),
            "sketches": self._sketches, "sketched": self._sketched,
        }  # fmt: skip
        self._count = kernels.load().count_records.bind(fields)
        self._continuations = Continuations(min(compared, records), seq, rules.sep) if compared and rules.has_pairs else None

    def check(self, examples: Examples, indices: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Check the records with these indices in the file; return two hashes of each, (n, 2), 0 for fine-tuning records."""
        texts = Texts(examples, self.rules)
        is_valid = np.ones(len(examples), np.bool_)
        next_sentence_labels = examples.next_sentence_labels if isinstance(examples, PretrainingExamples) else None
        self._note(find_broken(texts, next_sentence_labels), texts, indices, is_valid)
        hashes = np.zeros((len(examples), 2), np.uint64)
        if not self.rules.is_pretraining:
            return hashes
        if self.rules.count_rule == kernel.WHOLE_WORDS:
            self._note(find_broken_words(texts, is_valid.copy()), texts, indices, is_valid)
        self._note(find_unlikely(texts, is_valid), texts, indices, is_valid)
        about = np.stack([is_valid, texts.lengths, texts.predictions, texts.first_sep, texts.separators - 1], axis=1)
        names = sorted(examples.dtype.names or (), key=kernel.KNOWN_FEATURES.index)  # the kernel has tokens first
        self._count(examples[names], len(examples), texts.tokens, about, np.ascontiguousarray(indices, np.int64), hashes)
        if self._continuations and isinstance(examples, PretrainingExamples):
            self._continuations.add(examples)
        return hashes

    def _note(self, rules: Iterable[Rule], texts: Texts, indices: NDArray[np.int64], is_valid: NDArray[np.bool_]) -> None:
        for rule in rules:
            words = rule.code, rule.expected, rule.found
            known = self._findings.setdefault(words, None)
            if not rule.wrong.any():
                continue
            is_wrong = rule.wrong.any(1) if rule.wrong.ndim == 2 else rule.wrong
            if rule.leaves_out:
                is_valid &= ~is_wrong
            row, count = int(np.argmax(is_wrong)), int(np.count_nonzero(is_wrong))
            first = rule.describe(row, texts.facts, int(indices[row]))
            if known and (known.record or 0) < (first.record or 0):
                first = known
            self._findings[words] = replace(first, count=count + (known.count if known else 0))

    def compare(self) -> None:
        """Compare the records with each other, and count what their order and the random Bs that continue their As show."""
        self._compare_order()
        if self._continuations:
            self.counts.continued += self._continuations.count()

    def _compare_order(self) -> None:
        """Count how often neighbours are more similar than distant records, by common tokens, lengths and first tokens."""
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
        """Return a finding about file `name` for each rule that was broken so far."""
        return [replace(finding, file=name) for finding in self._findings.values() if finding]


def check_file(rules_of: dict[str, RecordRules], sample: int | None, compared: int, file: CheckedFile) -> None:
    """Check one file by the rules of its split. An unreadable file gives a finding.

    `compared` is the number of records whose texts are compared with each other.
    """
    rules = rules_of[file.split]
    is_there = file.path.is_file()
    if is_there:
        file.size_bytes, file.totals = file.path.stat().st_size, {"examples": 0}
    try:
        with RecordScan(file.path, file.name, rules.pred or None) as scan:
            file.records, file.format = len(scan), scan.format
            file.totals = {"examples": len(scan)}
            if scan.seq and len(scan):
                _check_records(file, scan, rules, sample, compared)
            file.findings[:0] = scan.findings
    except BertprepError as error:  # also a file that was cut short while it was read
        file.forget()
        file.findings.clear()
        if is_there and file.size_bytes == 0:
            file.add("empty-file", "records", "a file of 0 bytes")
        elif isinstance(error.__cause__, EOFError):
            file.add("truncated", "a complete gzip file", "a truncated one")
        else:
            file.add("unreadable", "a record file", file_that(error, file.path))


def _check_records(file: CheckedFile, scan: RecordScan, rules: RecordRules, sample: int | None, compared: int) -> None:
    if scan.shape != rules.shape:
        why = "by the manifest" if rules.by_manifest else "as most have"
        file.add("mixed-shape", f"{_title(rules.shape)}, {why}", _title(scan.shape), 0)
        return
    checker = RecordChecker(rules, len(scan) if sample is None and rules.is_pretraining else 0, compared)
    hashes, unique_ids, counts = [], [], TokenCounts()
    of_task: dict[str, Finding] = {}
    for examples, ids in scan.intact_blocks(sample):
        file.read += len(ids)
        hashes.append(checker.check(examples, ids))
        for new in tasks.find_faults(examples, ids, file.name, labels=rules.labels, squad_2=rules.may_be_impossible):
            first = of_task.get(new.expected)
            of_task[new.expected] = replace(first, count=first.count + new.count) if first else new
        if not rules.is_pretraining:
            tokens = text_tokens(examples, (rules.cls, rules.sep))
            counts += TokenCounts(tokens=len(tokens), unknown=int(np.count_nonzero(tokens == rules.unk)))
        if isinstance(examples, (SquadExamples, SquadEvalExamples)):
            unique_ids.append(examples.unique_ids.astype(np.int64))
    file.findings += [*checker.findings(file.name), *of_task.values()]
    if unique_ids and sample is None:
        tasks.check_order(np.concatenate(unique_ids), file)
    file.counts = counts
    if rules.is_pretraining:
        checker.compare()
        file.counts = checker.counts
        if hashes and sample is None:
            file.hashes = np.concatenate(hashes)


def _title(shape: Shape) -> str:
    predictions = f" and {shape.pred} predictions" if shape.pred else ""
    return f"{shape.kind.title} records of {shape.seq} tokens{predictions}"

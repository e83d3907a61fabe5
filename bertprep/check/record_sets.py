"""Judges the records of a data set together: counts by split, hashes of all, files against the others.

Counts of a file are added to its split's and dropped; 16 bytes a record are kept to find repeats.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from operator import add

import numpy as np

from bertprep.check.continuations import records_compared
from bertprep.check.duplicates import HashedFile, find_duplicates, find_identical_files
from bertprep.check.fit import Origin, judge_padding, judge_predictions
from bertprep.check.outcome import Checks, FileReport, Finding, Outcome, RecordCounts
from bertprep.check.record_scan import FirstRecords, find_pad, most_frequent
from bertprep.check.records import check_file
from bertprep.check.rules import RecordRules, kinds_of_tokens
from bertprep.check.statistics import expect, fitting_probability, judge_file, judge_file_sizes, judge_split, judge_split_sizes
from bertprep.check.tasks import check_first_ids
from bertprep.config import SQUAD_VERSIONS, UNPAIRED
from bertprep.instances import Vocabulary
from bertprep.records.examples import Examples, MaskedExamples, PretrainingExamples, Shape
from bertprep.work.data_set import DataSet

DEFAULT_MASKED_LM_PROB = 0.15


@dataclass(frozen=True)
class RecordOptions:
    """How records are checked: the masking of those without a manifest, and how many records of each file."""

    masked_lm_prob: float = DEFAULT_MASKED_LM_PROB
    whole_word: bool = False
    sample: int | None = None


class Records(Checks):
    """The checks of one data set of records; `check_file` runs in workers."""

    def __init__(
        self, data_set: DataSet, vocabulary: Vocabulary | None, firsts: Sequence[FirstRecords], how: RecordOptions
    ) -> None:
        self._made_with = data_set.manifest.made_with if data_set.manifest else {}
        splits = data_set.splits or [""]
        self._rules = {split: _rules_for(data_set, split, vocabulary, firsts, how) for split in splits}
        super().__init__(data_set.files, partial(check_file, self._rules, how.sample, records_compared(len(data_set.files))))
        self._manifest = data_set.manifest
        self._counts: dict[str, RecordCounts] = {}

    def take(self, report: FileReport) -> None:
        name, split, counts, records = report.file.name, report.file.split, report.counts, report.file.records
        uses, rules = self._origin([name]).uses, self._rules[split]
        if rules.has_pairs and 0 < records < (uses or 0):
            expected = f"{uses:,} records or more, one for each use of a document"
            report.findings.append(Finding("manifest", name, expected, f"{records:,}"))
        if not isinstance(counts, RecordCounts):
            return
        self._counts[split] = self._counts[split] + counts if split in self._counts else counts
        report.counts = None
        if len(self.files) > 1:
            report.findings += judge_file(counts, rules, name, files=len(self.files), uses=uses)

    def judge(self, reports: Sequence[FileReport], outcome: Outcome) -> None:
        rules = next(iter(self._rules.values()))
        outcome.seq, outcome.pred = rules.seq, rules.pred
        outcome.counts = {split: self._counts[split] for split in self._rules if split in self._counts}
        findings = self._judge_splits(outcome)
        findings += _without_repeats(reports, {finding.code for finding in findings})
        for split in self._rules:
            of_split = [(of.first_unique_id, of) for of in reports if of.file.split == split and of.first_unique_id >= 0]
            findings += check_first_ids(of_split)
        if self._manifest and rules.by_manifest:
            findings += judge_predictions(rules.seq, rules.pred, rules.masked_lm_prob)
        if self._manifest is None and outcome.counts:
            findings = self._with_fitting_probability(findings)
        if rules.is_pretraining:
            findings += judge_file_sizes(outcome.files)
            documents = self._origin(self.files).documents
            findings += judge_split_sizes(outcome.files, self._made_with.get("test_fraction"), documents)
        if rules.is_pretraining and not outcome.sampled:
            hashed = [HashedFile(report.file.name, report.file.split, report.hashes) for report in reports]
            repeated, outcome.duplicates = find_duplicates(hashed)
            findings += find_identical_files(hashed) + repeated
        outcome.findings += findings

    def _judge_splits(self, outcome: Outcome) -> list[Finding]:
        # NVIDIA's tool gives every shard the same seed; for bertprep's the manifest says
        has_own_seeds = self._manifest is not None and not self._made_with.get("one_seed")
        findings: list[Finding] = []
        for split, counts in outcome.counts.items():
            names, rules = [name for name, of in self.files.items() if of == split], self._rules[split]
            origin, streams = self._origin(names), 1 if has_own_seeds else len(names)
            expected = expect(counts, rules, streams=streams, uses=origin.uses, short_seq_prob=origin.short_seq_prob)
            outcome.expected[split] = expected
            of_draws = judge_split(counts, rules, split or ".", expected, uses=origin.uses)
            records = sum(file.records for file in outcome.files if file.split == split)
            padding = list(judge_padding(counts, split or ".", origin, records))
            # short records are why there is padding, whose finding says more
            findings += [finding for finding in of_draws if not (padding and finding.code == "short-share")] + padding
        return findings

    def _with_fitting_probability(self, findings: list[Finding]) -> list[Finding]:
        wrong = [finding for finding in findings if finding.code == "prediction-count"]
        rules = next(iter(self._rules.values()))
        fitting = fitting_probability(reduce(add, self._counts.values()), rules) if wrong else None
        if fitting is None:
            return findings
        advice = f"--masked-lm-prob {fitting:g} would fit all records"
        return [replace(each, advice=advice) if each in wrong else each for each in findings]

    def _origin(self, names: Iterable[str]) -> Origin:
        if self._manifest is None:
            return Origin()
        return Origin.of_entries(self._made_with, [self._manifest.files.get(name, {}) for name in names])


def _without_repeats(reports: Sequence[FileReport], known: set[str]) -> list[Finding]:
    files_with = Counter(each.code for report in reports for each in report.findings if each.record is None)
    known = {code for code in known if 2 * files_with[code] > len(reports)}
    of_files = (finding for report in reports for finding in report.findings)
    return [finding for finding in of_files if finding.record is not None or finding.code not in known]


def _rules_for(
    data_set: DataSet, split: str, vocabulary: Vocabulary | None, firsts: Sequence[FirstRecords], how: RecordOptions
) -> RecordRules:
    """Return the rules by manifest and vocabulary, else by the first records of a file with the most common shape."""
    made_with = data_set.manifest.made_with if data_set.manifest else {}
    if firsts and not isinstance(firsts[0].examples, MaskedExamples):
        firsts = [first for first in firsts if first.split == split] or firsts
    shapes = Counter(first.examples.sizes for first in firsts)
    shape = max(shapes, key=shapes.__getitem__, default=Shape(PretrainingExamples, 0, 0))
    first = next((first.examples for first in firsts if first.examples.sizes == shape), None)
    kind, seq, pred = shape
    pred = max([pred, *(first.examples.pred for first in firsts if not first.knows_pred)])
    is_pretraining, labels = issubclass(kind, MaskedExamples), made_with.get("labels")
    if "generator" in made_with and is_pretraining:
        kind = MaskedExamples if made_with.get("pairs") == UNPAIRED else PretrainingExamples
    special = {"cls": -1, "sep": -1, "mask": -1}
    if vocabulary:
        special = {"cls": vocabulary.cls, "sep": vocabulary.sep, "mask": vocabulary.mask}
    elif first is not None:
        special = _guess_special_tokens(first)
    return RecordRules(
        seq=made_with.get("seq", seq),
        pred=made_with.get("pred", pred) if is_pretraining else 0,
        tokens=len(vocabulary) if vocabulary else 0,
        masked_lm_prob=made_with.get("masked_lm_prob", how.masked_lm_prob),
        whole_word=made_with.get("whole_word", how.whole_word and data_set.manifest is None),
        continues=kinds_of_tokens(vocabulary) if vocabulary else b"",
        may_round_up=data_set.manifest is None,
        pad=find_pad(data_set, vocabulary, first),
        kind=kind,
        by_manifest="generator" in made_with and is_pretraining,
        labels=len(labels) if isinstance(labels, list) and labels else None,
        may_be_impossible=made_with.get("version") != SQUAD_VERSIONS[0],
        **special,
    )


def _guess_special_tokens(examples: Examples) -> dict[str, int]:
    lengths = np.clip(examples.input_mask.sum(axis=1), 1, examples.seq)
    found = {"cls": examples.input_ids[:, 0], "sep": examples.input_ids[np.arange(len(examples)), lengths - 1]}
    if isinstance(examples, MaskedExamples):
        positions = np.clip(examples.masked_lm_positions, 0, examples.seq - 1).astype(np.int64)
        shown = np.take_along_axis(examples.input_ids, positions, axis=1)
        found["mask"] = shown[examples.masked_lm_weights > 0]
    common = {name: most_frequent(tokens) for name, tokens in found.items()}
    return {"mask": -1, **{name: -1 if token is None else token for name, token in common.items()}}

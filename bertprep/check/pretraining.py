"""Judges the records of a data set of pretraining together: counts by split, hashes of all, files against the others.

The counts of a file are added to those of its split as they arrive and then dropped, so a thousand files need the memory of one
per worker; 16 bytes a record are kept to find repeats.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from bertprep.check.duplicates import HashedFile, find_duplicates, find_identical_files
from bertprep.check.expectations import expect, fitting_probability
from bertprep.check.outcome import Checks, FileReport, Finding, Outcome, RecordCounts
from bertprep.check.record_scan import FirstRecords, find_pad, most_frequent
from bertprep.check.records import RecordReport, RecordRules, check_file, kinds_of_tokens
from bertprep.check.statistics import judge_file, judge_file_sizes, judge_split, judge_split_sizes
from bertprep.config import UNPAIRED
from bertprep.instances import Vocabulary
from bertprep.records.data_sets import DataSet
from bertprep.records.examples import MaskedExamples, PretrainingExamples

DEFAULT_MASKED_LM_PROB = 0.15


class PretrainingRecords(Checks[RecordReport]):
    """The checks of one data set; `check_file` runs in workers, the rest where their reports arrive."""

    def __init__(
        self, data_set: DataSet, vocabulary: Vocabulary | None, firsts: Sequence[FirstRecords], *,
        masked_lm_prob: float | None, sample: int | None,
    ) -> None:  # fmt: skip
        self.rules = _rules_for(data_set, vocabulary, firsts, masked_lm_prob)
        super().__init__(data_set.files, partial(check_file, self.rules, sample))
        self._data_set = data_set
        self._made_with = data_set.manifest.made_with if data_set.manifest else {}
        self._counts: dict[str, RecordCounts] = {}

    def take(self, report: RecordReport) -> None:
        name, split, counts, records = report.facts.name, report.facts.split, report.counts, report.facts.records
        uses = self._uses_of_documents([name])
        if self.rules.has_pairs and 0 < records < (uses or 0):
            expected = f"{uses:,} records or more, one for each use of a document"
            report.findings.append(Finding("manifest", name, expected, f"{records:,}"))
        if counts is None:
            return
        self._counts[split] = self._counts[split] + counts if split in self._counts else counts
        report.counts = None
        if len(self.files) > 1:
            report.findings += judge_file(counts, self.rules, name, files=len(self.files), uses=uses)

    def judge(self, reports: Sequence[RecordReport], outcome: Outcome) -> list[Finding]:
        outcome.seq, outcome.pred = self.rules.seq, self.rules.pred
        outcome.counts = {split: self._counts[split] for split in self._data_set.splits if split in self._counts}
        findings = self._judge_splits(outcome)
        findings += _without_repeats(reports, {finding.code for finding in findings})
        if self._data_set.manifest is None:
            findings = self._with_fitting_probability(findings)
        findings += judge_file_sizes(outcome.files)
        findings += judge_split_sizes(outcome.files, self._made_with.get("test_fraction"))
        findings += _judge_rounding(reports)
        if not outcome.sampled:
            hashed = [HashedFile(report.facts.name, report.facts.split, report.hashes) for report in reports]
            repeated, outcome.duplicates = find_duplicates(hashed)
            findings += find_identical_files(hashed) + repeated
        return findings

    def _judge_splits(self, outcome: Outcome) -> list[Finding]:
        """Return the findings about each split as a whole; its expectations are kept in the outcome."""
        # NVIDIA's tool gives every shard the same seed; for bertprep's the manifest says
        has_own_seeds = self._data_set.manifest is not None and not self._made_with.get("one_seed")
        short_seq_prob = self._made_with.get("short_seq_prob")
        findings: list[Finding] = []
        for split, counts in outcome.counts.items():
            if not counts.records:
                continue
            names = [name for name, of in self.files.items() if of == split]
            uses = self._uses_of_documents(names)
            streams = 1 if has_own_seeds else len(names)
            expected = expect(counts, self.rules, streams=streams, uses=uses, short_seq_prob=short_seq_prob)
            outcome.expected[split] = expected
            findings += judge_split(counts, self.rules, split or ".", expected, uses=uses)
        return findings

    def _with_fitting_probability(self, findings: list[Finding]) -> list[Finding]:
        """Add the fraction that explains all records to findings about too many or too few predictions."""
        wrong = [finding for finding in findings if finding.code == "prediction-count"]
        all_counts = [*self._counts.values()]
        fitting = fitting_probability(sum(all_counts[1:], all_counts[0]), self.rules) if wrong else None
        if fitting is None:
            return findings
        hint = f"; --masked-lm-prob {fitting:g} would fit all records"
        return [replace(each, found=each.found + hint) if each in wrong else each for each in findings]

    def _uses_of_documents(self, names: Iterable[str]) -> int | None:
        """Return the documents of some files times their uses; None if the manifest does not say."""
        if self._data_set.manifest is None:
            return None
        documents = [self._data_set.manifest.files.get(name, {}).get("documents") for name in names]
        known = [count for count in documents if isinstance(count, int) and count > 0]
        return sum(known) * int(self._made_with.get("dupe", 1)) if len(known) == len(documents) else None


def _without_repeats(reports: Sequence[FileReport], known: set[str]) -> list[Finding]:
    """Return the findings of files, but for `known` faults of a whole split that most files have."""
    files_with = Counter(each.code for report in reports for each in report.findings if each.record is None)
    known = {code for code in known if 2 * files_with[code] > len(reports)}
    of_files = (finding for report in reports for finding in report.findings)
    return [finding for finding in of_files if finding.record is not None or finding.code not in known]


def _judge_rounding(reports: Sequence[RecordReport]) -> list[Finding]:
    """Return findings about halves that were not rounded as in most of the set; either way is right if it is consistent."""
    counts: Counter[str] = Counter()
    for report in reports:
        counts.update({way: finding.count for way, finding in report.rounding.items()})
    usual = max(counts, key=counts.__getitem__, default="")
    return [finding for report in reports for way, finding in report.rounding.items() if way != usual]


def _rules_for(
    data_set: DataSet, vocabulary: Vocabulary | None, firsts: Sequence[FirstRecords], masked_lm_prob: float | None
) -> RecordRules:
    """Return the rules for records from the manifest, the vocabulary and the request, else inferred from the first records.

    These are of a file with the most common shape; where files do not say `pred`, it is the highest that a record of one has.
    """
    made_with = data_set.manifest.made_with if data_set.manifest else {}
    masked = [of_file.examples for of_file in firsts if isinstance(of_file.examples, MaskedExamples)]
    shapes = Counter((examples.seq, examples.pred) for examples in masked)
    first = max(masked, key=lambda examples: shapes[examples.seq, examples.pred], default=None)
    pred = max([first.pred if first else 0, *(of.examples.pred for of in firsts if not of.knows_pred)])
    kind = type(first) if first else PretrainingExamples
    if "generator" in made_with:
        kind = MaskedExamples if made_with.get("pairs") == UNPAIRED else PretrainingExamples
    special = {"cls": -1, "sep": -1, "mask": -1}
    if vocabulary:
        special = {"cls": vocabulary.cls, "sep": vocabulary.sep, "mask": vocabulary.mask}
    elif first:
        special = _guess_special_tokens(first)
    return RecordRules(
        seq=made_with.get("seq", first.seq if first else 0),
        pred=made_with.get("pred", pred),
        tokens=len(vocabulary) if vocabulary else 0,
        masked_lm_prob=made_with.get("masked_lm_prob", masked_lm_prob or DEFAULT_MASKED_LM_PROB),
        whole_word=made_with.get("whole_word", False),
        continues=kinds_of_tokens(vocabulary) if vocabulary else b"",
        may_round_up=data_set.manifest is None,
        pad=find_pad(data_set, vocabulary, first),
        kind=kind,
        by_manifest="generator" in made_with,
        **special,
    )


def _guess_special_tokens(examples: MaskedExamples) -> dict[str, int]:
    """Return the most frequent tokens at the first, last and predicted positions: a replacement may hide one of them."""
    rows = np.arange(len(examples))
    lengths = np.clip(examples.input_mask.sum(axis=1), 1, examples.seq)
    positions = np.clip(examples.masked_lm_positions, 0, examples.seq - 1)
    shown = np.take_along_axis(examples.input_ids, positions.astype(np.int64), axis=1)[examples.masked_lm_weights > 0]
    of_each = {"cls": examples.input_ids[:, 0], "sep": examples.input_ids[rows, lengths - 1], "mask": shown}
    found = {name: most_frequent(tokens) for name, tokens in of_each.items()}
    return {name: -1 if token is None else token for name, token in found.items()}

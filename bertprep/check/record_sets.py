"""Judge the records of a data set together: counts of each split, hashes of all records, and each file against the others.

The counts of a file are added to those of its split, and dropped. 16 bytes per record are kept to find repeats.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from functools import partial, reduce
from operator import add

from bertprep.check.continuations import records_compared
from bertprep.check.counts import RecordCounts
from bertprep.check.duplicates import find_duplicates, find_identical_files
from bertprep.check.expected import expect, fitting_probability
from bertprep.check.finding import ERROR, Finding
from bertprep.check.fit import Origin, judge_lone_documents, judge_padding, judge_predictions, judge_truncation
from bertprep.check.infer import RecordOptions, rules_by_split
from bertprep.check.outcome import CheckedFile, Checks, Outcome
from bertprep.check.records import check_file
from bertprep.check.sizes import judge_file_sizes, judge_split_sizes
from bertprep.check.statistics import judge_file, judge_split
from bertprep.check.tasks import check_first_ids
from bertprep.instances import Vocabulary
from bertprep.work.data_set import DataSet
from bertprep.work.layout import TEST

_OF_LONG_SENTENCES = (
    "most sentences are longer than a record, so none follows another: make longer records with --seq, or records with "
    "--pairs none, or divide the sentences with bertprep shard"
)
"""The advice on random next sentences, if the manifest tells that sentences are long."""


class Records(Checks):
    """The checks of one data set of records."""

    def __init__(self, data_set: DataSet, vocabulary: Vocabulary | None, options: RecordOptions) -> None:
        self._rules = rules_by_split(data_set, vocabulary, options)
        compared = records_compared(len(data_set.files))
        super().__init__(data_set.files, partial(check_file, self._rules, options.sample, compared))
        self._manifest = data_set.manifest
        self._made_with = data_set.manifest.made_with if data_set.manifest else {}
        self._counts: dict[str, RecordCounts] = {}

    def take(self, file: CheckedFile) -> None:
        rules, uses = self._rules[file.split], self._origin([file.name]).uses
        if rules.has_pairs and 0 < file.records < (uses or 0):
            expected = f"{uses:,} records or more, one for each use of a document"
            file.add("manifest", expected, f"{file.records:,}")
        if isinstance(counts := file.counts, RecordCounts):
            file.counts = None
            known = self._counts.get(file.split)
            self._counts[file.split] = known + counts if known else counts
            if len(self.files) > 1:
                file.findings += judge_file(counts, rules, file.name, files=len(self.files), uses=uses)

    def judge(self, outcome: Outcome) -> None:
        rules = next(iter(self._rules.values()))
        outcome.seq, outcome.pred = rules.seq, rules.pred
        outcome.count_tokens()
        outcome.counts = {split: self._counts[split] for split in self._rules if split in self._counts}
        findings = self._judge_splits(outcome)
        findings += _without_repeats(outcome.files, {finding.code for finding in findings})
        for split in self._rules:
            numbered = [file for file in outcome.files if file.split == split and file.first_unique_id >= 0]
            findings += check_first_ids(numbered)
        if self._manifest and rules.by_manifest:
            findings += judge_predictions(rules.seq, rules.pred, rules.masked_lm_prob)
        if self._manifest:
            advice = "the settings are those of manifest.json; run the command that made the records again"
            findings = _advise(findings, "prediction-count", advice)
        elif outcome.counts:
            findings = self._with_fitting_probability(findings)
        if rules.is_pretraining:
            # a file with an error has its own finding, which explains its size
            findings += judge_file_sizes(file for file in outcome.files if all(each.level != ERROR for each in file.findings))
            documents = self._origin(self.files).documents
            findings += judge_split_sizes(outcome.files, self._made_with, documents)
        if rules.is_pretraining and not outcome.sampled:
            repeated, outcome.duplicates = find_duplicates(outcome.files)
            identical = find_identical_files(outcome.files)
            if any(self.files[finding.file] == TEST for finding in identical):
                repeated = _advise(repeated, "test-in-training", "a file of both splits explains it: see identical-files")
            findings += identical + repeated
        outcome.findings += findings

    def _judge_splits(self, outcome: Outcome) -> list[Finding]:
        # NVIDIA's tool gives every shard the same seed; the manifest tells whether bertprep did
        has_own_seeds = self._manifest is not None and not self._made_with.get("one_seed")
        findings: list[Finding] = []
        for split, counts in outcome.counts.items():
            names = [name for name, split_of_file in self.files.items() if split_of_file == split]
            rules, origin, where = self._rules[split], self._origin(names), split or "."
            streams = 1 if has_own_seeds else len(names)
            expected = expect(counts, rules, streams=streams, uses=origin.uses, short_seq_prob=origin.short_seq_prob)
            outcome.expected[split] = expected
            of_draws = judge_split(counts, rules, where, expected, uses=origin.uses)
            records = sum(file.records for file in outcome.files if file.split == split)
            padding = list(judge_padding(counts, where, origin, records))
            if padding:  # short records cause the padding, and its finding says more
                of_draws = [finding for finding in of_draws if finding.code != "short-share"]
            truncation = outcome.truncation(split)
            if truncation and 2 * truncation.long_sentences > sum(truncation.sentences):
                of_draws = _advise(of_draws, "next-sentence-share", _OF_LONG_SENTENCES)
            findings += of_draws + padding
            findings += judge_truncation(truncation, where)
            if self._manifest and rules.has_pairs:
                findings += judge_lone_documents((self._manifest.files.get(name, {}) for name in names), where)
        return findings

    def _with_fitting_probability(self, findings: list[Finding]) -> list[Finding]:
        """Return the findings. Those on prediction counts advise the --masked-lm-prob that fits all records, if any."""
        if all(finding.code != "prediction-count" for finding in findings):
            return findings
        rules = next(iter(self._rules.values()))
        fitting = fitting_probability(reduce(add, self._counts.values()), rules)
        return (
            findings
            if fitting is None
            else _advise(findings, "prediction-count", f"--masked-lm-prob {fitting:g} would fit all records")
        )

    def _origin(self, names: Iterable[str]) -> Origin:
        if self._manifest is None:
            return Origin()
        return Origin.of_entries(self._made_with, [self._manifest.files.get(name, {}) for name in names])


def _advise(findings: Iterable[Finding], code: str, advice: str) -> list[Finding]:
    """Return the findings, with this advice in those that have the code."""
    return [replace(finding, advice=advice) if finding.code == code else finding for finding in findings]


def _without_repeats(files: Iterable[CheckedFile], known: set[str]) -> list[Finding]:
    """Return the files' findings, but not those with a code that most files have and that is `known` from the split."""
    files = list(files)
    files_with = Counter(finding.code for file in files for finding in file.findings if finding.record is None)
    known = {code for code in known if 2 * files_with[code] > len(files)}
    of_files = (finding for file in files for finding in file.findings)
    return [finding for finding in of_files if finding.record is not None or finding.code not in known]

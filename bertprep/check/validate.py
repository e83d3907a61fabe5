"""Is this data right? Every file, every record, and the whole, for each data set that lies under some paths.

Files are checked by workers; what they find, count and hash comes together here, where the data set as a whole is judged:
its shares and histograms (`statistics`), records that came before (`duplicates`), the manifest. docs/validation.md says of each
finding what it means and how it is judged. One bad file or record never stops the others.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bertprep import kernels, pool
from bertprep.check.data_sets import TEXT_SHARDS, DataSet, find_data_sets
from bertprep.check.duplicates import HashedFile, find_duplicates, find_identical_files
from bertprep.check.findings import ERROR, WARNING, Finding
from bertprep.check.manifest_checks import check_content, check_names, check_records_number, check_vocabulary
from bertprep.check.outcome import FileFacts, Outcome
from bertprep.check.record_checks import Counted, FileReport, RecordRules, check_file, guess_special_tokens
from bertprep.check.record_scan import RecordScan
from bertprep.check.statistics import judge, judge_file_sizes, judge_lengths, judge_masks
from bertprep.errors import BertprepError
from bertprep.instances import Vocabulary, load_vocabulary
from bertprep.manifest import Manifest
from bertprep.progress import Progress

DEFAULT_MASKED_LM_PROB = 0.15
_FILES_TO_MEASURE = 10  # of which one that can be read tells the sizes of a set without a manifest


@dataclass(frozen=True)
class _FileTask:
    """What a worker is to do with one file; `facts` is what the manifest says of it."""

    path: Path
    name: str
    split: str
    rules: RecordRules
    sample: int | None
    facts: dict[str, Any] | None


def validate(
    paths: Iterable[Path | str],
    *,
    vocab: Path | str | None = None,
    masked_lm_prob: float | None = None,
    sample: int | None = None,
    workers: int | None = None,
    progress: bool = False,
) -> list[Outcome]:
    """Check all data sets that lie under `paths`: workspaces, folders of records, or record files.

    `vocab` is for records without a vocab.txt beside them, `masked_lm_prob` for those without a manifest (default 0.15). With
    `sample`, only that many records of each file are looked at, and what needs all of them is left out. Findings, also of files
    that cannot be read, are in the outcomes; raises `UsageError` where a path holds no data, and `BertprepError` where `vocab`
    is no vocabulary.

        errors = sum(outcome.errors for outcome in bertprep.validate(["data"]))
    """
    data_sets = find_data_sets(paths)
    given = load_vocabulary(Path(vocab)) if vocab else None
    workers = workers or pool.default_workers()
    kernels.load()  # before workers are forked, so that they share it
    with Progress("validate", sum(len(s.files) for s in data_sets), "files", enabled=progress) as shown:
        return [
            _validate_text(data_set, workers, sample, shown)
            if data_set.kind == TEXT_SHARDS
            else _validate_records(data_set, given, masked_lm_prob, sample, workers, shown)
            for data_set in data_sets
        ]


def _validate_records(
    data_set: DataSet,
    vocabulary: Vocabulary | None,
    masked_lm_prob: float | None,
    sample: int | None,
    workers: int,
    shown: Progress,
) -> Outcome:
    manifest, findings = data_set.manifest, list(data_set.findings)
    if vocabulary is None and data_set.vocabulary:
        try:
            vocabulary = load_vocabulary(data_set.vocabulary)
        except BertprepError as error:
            findings.append(Finding(ERROR, "manifest", data_set.vocabulary.name, None, "a vocabulary of BERT's", str(error)))
    if manifest:
        findings += check_names(manifest, data_set.files) if data_set.is_whole else []
        findings += check_vocabulary(manifest, vocabulary.sha256) if vocabulary else []
    if vocabulary is None:
        expected, found = "a vocab.txt beside the records, or --vocab", "none; what needs it is not checked"
        findings.append(Finding(WARNING, "vocabulary", str(data_set.folder), None, expected, found))
    outcome = Outcome(data_set.folder, "", manifest, vocabulary.path if vocabulary else None, sampled=sample is not None)
    rules = _rules_for(data_set, vocabulary, masked_lm_prob)
    outcome.seq, outcome.pred = rules.seq, rules.pred
    facts_of = manifest.files if manifest else {}
    made_with = manifest.made_with if manifest else {}
    tasks = [
        (str(data_set.folder / name), _FileTask(data_set.folder / name, name, split, rules, sample, facts_of.get(name)))
        for name, split in data_set.files.items()
    ]
    counted: dict[str, Counted] = {}
    reports: dict[str, FileReport] = {}
    with contextlib.closing(pool.run(_check, tasks, workers=workers)) as results:
        for _, report in results:
            shown.advance(records=report.read, MB=report.facts.size_bytes / 1e6)
            if report.counted:
                counted.setdefault(report.facts.split, Counted.empty(rules)).add(report.counted)
                report = _judge_file(report, rules, len(tasks))
            reports[report.facts.name] = report
    in_order = [reports[name] for name in data_set.files]
    outcome.kind = next((report.format for report in in_order if report.format), "records")
    outcome.files = [report.facts for report in in_order]
    outcome.tallies = {split: counted[split].tally for split in data_set.splits if split in counted}
    for split in outcome.tallies:
        findings += judge(counted[split], rules, split or "all files")
        findings += judge_lengths(
            counted[split].tally,
            split or "all files",
            short_seq_prob=made_with.get("short_seq_prob"),
            documents=_uses_of_documents(manifest, split, data_set),
        )
    of_whole = {finding.code for finding in findings}
    for report in in_order:
        findings += [finding for finding in report.findings if finding.code not in of_whole or finding.record is not None]
        if report.format not in ("", outcome.kind):
            expected = f"{outcome.kind}, as the others are"
            findings.append(Finding(ERROR, "mixed-shape", report.facts.name, None, expected, report.format))
    if sample is None:
        hashed = [HashedFile(report.facts.name, report.facts.split, report.hashes) for report in in_order]
        repeated, outcome.duplicates = find_duplicates(hashed)
        findings += find_identical_files(hashed) + repeated
    findings += judge_file_sizes(outcome.files)
    outcome.findings = sorted(findings, key=lambda finding: finding.level != ERROR)
    return outcome


def _judge_file(report: FileReport, rules: RecordRules, files: int) -> FileReport:
    """With what is wrong with the file's own shares, as one of so many, and without its counts, which are added up by now."""
    of_one = judge_masks(report.counted, rules, report.facts.name, files=files) if report.counted and files > 1 else []
    return replace(report, counted=None, findings=[*report.findings, *of_one])


def _uses_of_documents(manifest: Manifest | None, split: str, data_set: DataSet) -> int | None:
    """The documents of a split, each counted as often as it is used; None where no manifest tells."""
    if manifest is None:
        return None
    documents = [facts.get("documents", 0) for name, facts in manifest.files.items() if data_set.files.get(name) == split]
    return sum(documents) * int(manifest.made_with.get("dupe", 1)) or None


def _check(task: _FileTask) -> FileReport:
    """One file, by itself and against its entry in the manifest."""
    report = check_file(task.path, task.name, task.split, task.rules, task.sample)
    if task.facts is None or not task.path.is_file():
        return report
    findings = check_records_number(task.name, report.facts.records, task.facts)
    if task.sample is None:
        findings += check_content(task.path, task.name, task.facts)
    return replace(report, findings=[*report.findings, *findings])


def _rules_for(data_set: DataSet, vocabulary: Vocabulary | None, masked_lm_prob: float | None) -> RecordRules:
    """What the manifest, the vocabulary, the request, and else the first records say that records must be."""
    made_with = data_set.manifest.made_with if data_set.manifest else {}
    first = _first_examples(data_set)
    special = {"cls": -1, "sep": -1, "mask": -1}
    if vocabulary:
        special = {"cls": vocabulary.cls, "sep": vocabulary.sep, "mask": vocabulary.mask}
    elif first is not None:
        special = guess_special_tokens(first)
    return RecordRules(
        seq=made_with.get("seq", first.seq if first is not None else 0),
        pred=made_with.get("pred", first.pred if first is not None else 0),
        tokens=len(vocabulary) if vocabulary else 0,
        masked_lm_prob=masked_lm_prob or made_with.get("masked_lm_prob", DEFAULT_MASKED_LM_PROB),
        whole_word=made_with.get("whole_word", False),
        **special,
    )


def _first_examples(data_set: DataSet) -> Any:
    """The first records of the first file that has some."""
    for name in list(data_set.files)[:_FILES_TO_MEASURE]:
        with contextlib.suppress(BertprepError), contextlib.closing(RecordScan(data_set.folder / name, name)) as scan:
            if scan.seq:
                for examples, _ in scan.blocks(None):
                    return examples
    return None


def _validate_text(data_set: DataSet, workers: int, sample: int | None, shown: Progress) -> Outcome:
    """Text shards: against their manifest, and as text."""
    manifest = data_set.manifest
    outcome = Outcome(data_set.folder, TEXT_SHARDS, manifest, None, sampled=sample is not None)
    outcome.findings = list(data_set.findings)
    there = [name for name in data_set.files if (data_set.folder / name).is_file()]
    if manifest:
        outcome.findings += check_names(manifest, there)
        outcome.files = [
            FileFacts(name, data_set.files[name], manifest.files[name]["documents"], (data_set.folder / name).stat().st_size)
            for name in there
        ]
        if sample is None:
            tasks = [(name, (data_set.folder / name, name, manifest.files[name])) for name in there]
            for _, found in pool.run(lambda task: check_content(*task), tasks, workers=workers):
                outcome.findings += found
    with contextlib.suppress(ImportError):
        from bertprep.check.text_checks import check_text_shards

        outcome.findings += check_text_shards(data_set.folder, manifest, workers)
    shown.advance(len(data_set.files), MB=sum(facts.size_bytes for facts in outcome.files) / 1e6)
    return outcome

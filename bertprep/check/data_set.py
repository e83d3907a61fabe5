"""Checks any data set: the folder against its manifest and vocabulary, then its files in parallel, then all together.

`record_sets` and `shards` have the checks of each kind. One bad file or record never stops the others.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from bertprep import pool
from bertprep.check.documents import Documents
from bertprep.check.fit import count_unknown, judge_words
from bertprep.check.outcome import ERROR, WARNING, Checks, FileReport, FileTask, Finding, Outcome, file_that
from bertprep.check.record_scan import read_first_records
from bertprep.check.record_sets import DEFAULT_MASKED_LM_PROB, RecordOptions, Records
from bertprep.check.shards import TextShards, TokenShards
from bertprep.config import SQUAD
from bertprep.errors import BertprepError
from bertprep.files.checksums import SHA256, Checksum, listed_checksum
from bertprep.files.paths import checksum_like, checksum_of
from bertprep.instances import Vocabulary, load_vocabulary
from bertprep.progress import Progress
from bertprep.terminal import counted
from bertprep.work.data_set import DataSet
from bertprep.work.layout import DEV, LEDGER, MANIFEST, QUESTIONS, TEST, TOKENIZER, VOCABULARY
from bertprep.work.ledger import resuming_command
from bertprep.work.manifest import (
    TASK_RECORDS,
    TEXT_SHARDS,
    TOKEN_SHARDS,
    Manifest,
    sha256_of_questions,
    sha256_of_vocabulary,
)

_NUMBERED = re.compile(r"(.*?)(\d+)(-of-\d+\D*|\D*)")  # the last number in a name, but not the total number of files
_TASKS = 1000  # of which each takes some neighbouring files where there are more, as a pipe costs more than a tiny one


def check_data_set(
    data_set: DataSet, vocabulary: Vocabulary | None, *,
    masked_lm_prob: float | None = None, whole_word: bool = False, sample: int | None = None, checksums: bool = True,
    workers: int, shown: Progress,
) -> Outcome:  # fmt: skip
    """Check one data set; `vocabulary` replaces the one next to it, `sample` limits the records of each file.

    `masked_lm_prob` and `whole_word` are for records without a manifest. Without `checksums` files are not compared with the
    manifest.
    """
    findings = _check_manifest(data_set)
    findings += find_gaps(data_set)
    if data_set.has_documents:
        vocabulary = None
        findings += _check_tokenizer(data_set)
    elif data_set.kind == TEXT_SHARDS:
        vocabulary = None
    else:
        vocabulary, about_vocabulary = _check_vocabulary(data_set, vocabulary)
        findings += about_vocabulary
    how = RecordOptions(masked_lm_prob or DEFAULT_MASKED_LM_PROB, whole_word, sample)
    checks = _choose_checks(data_set, vocabulary, how)
    if data_set.manifest and data_set.is_whole:
        findings += _check_names(data_set, data_set.manifest, set(checks.names))
    missing = {finding.file for finding in findings if finding.code == "file-missing"}
    files = [] if sample and not checksums and data_set.kind == TEXT_SHARDS else list(_files(data_set, checks, missing))
    together = 1 + len(files) // _TASKS
    tasks = [(str(data_set.folder / files[at].name), files[at : at + together]) for at in range(0, len(files), together)]
    reports: dict[str, FileReport] = {}
    with closing(pool.run(partial(_check_files, checks.check_file, checksums), tasks, workers=workers)) as results:
        for report in (report for _, of_task in results for report in of_task):
            checks.take(report)
            reports[report.file.name] = report
            read = {"records": report.read} if report.read else {}
            shown.advance(report.file.name in data_set.files, **read, MB=report.file.size_bytes / 1e6)
    shown.advance(len(data_set.files.keys() - reports.keys()))
    in_order = [reports[name] for name in checks.files if name in reports]
    is_of_task = data_set.manifest is not None and data_set.manifest.kind == TASK_RECORDS
    outcome = Outcome(
        folder=data_set.folder,
        kind=next((report.format for report in in_order if report.format), data_set.kind),
        manifest=data_set.manifest,
        vocabulary=vocabulary.path if vocabulary else None,
        sampled=sample is not None,
        files=[replace(of.file, split=DEV) if is_of_task and of.file.split == TEST else of.file for of in in_order],
        findings=findings,
    )
    checks.judge(in_order, outcome)
    if vocabulary:
        count_unknown(outcome, vocabulary)
        findings += judge_words(outcome, vocabulary, data_set.manifest.made_with.get("cased") if data_set.manifest else None)
    outcome.findings = sorted(findings + _check_formats(in_order), key=lambda finding: finding.level != ERROR)
    return outcome


def _choose_checks(data_set: DataSet, vocabulary: Vocabulary | None, how: RecordOptions) -> Checks:
    if data_set.kind == TEXT_SHARDS:
        return TextShards(data_set)
    if data_set.kind == TOKEN_SHARDS:
        return Documents(data_set) if data_set.has_documents else TokenShards(data_set, vocabulary)
    return Records(data_set, vocabulary, list(read_first_records(data_set)), how)


def _files(data_set: DataSet, checks: Checks, missing: set[str]) -> Iterator[FileTask]:
    entries = data_set.manifest.files if data_set.manifest else {}
    for name, split in checks.files.items():
        parts = checks.parts(name)
        if not missing.intersection(parts):
            yield FileTask(data_set.folder, name, split, {part: entries[part] for part in parts if part in entries})


def _check_files(
    check_file: Callable[[FileTask], FileReport], compares_checksums: bool, tasks: Sequence[FileTask]
) -> list[FileReport]:
    reports = [check_file(task) for task in tasks]
    for task, report in zip(tasks, reports, strict=True):
        entry = task.entries.get(task.name, {})
        for what, found in report.totals.items():
            if found != entry.get(what, found):
                expected = counted(entry[what], "record" if what == "examples" else what.removesuffix("s"))
                report.findings.append(Finding("manifest", task.name, f"{expected}, as {MANIFEST} says", f"{found:,}"))
        for name, entry in task.entries.items() if compares_checksums else ():
            report.findings += _check_content(task.folder / name, name, entry, report.checksum)
    return reports


def _check_formats(reports: Sequence[FileReport]) -> list[Finding]:
    counts = Counter(report.format for report in reports if report.format)
    usual = max(counts, key=counts.__getitem__, default="")
    expected = f"{usual}, as {counted(counts[usual], 'file')} {'are' if counts[usual] > 1 else 'is'}"
    others = [report for report in reports if report.format not in ("", usual)]
    return [Finding("mixed-shape", report.file.name, expected, report.format) for report in others]


def _check_vocabulary(data_set: DataSet, vocabulary: Vocabulary | None) -> tuple[Vocabulary | None, list[Finding]]:
    if vocabulary is None and data_set.vocabulary is None:
        expected, found = f"a {VOCABULARY} next to the records, or --vocab FILE", "none, so what needs it is not checked"
        return None, [Finding("vocabulary", VOCABULARY, expected, found, level=WARNING)]
    if vocabulary is None and data_set.vocabulary:
        try:
            vocabulary = load_vocabulary(data_set.vocabulary)
        except BertprepError as error:
            found = file_that(error, data_set.vocabulary)
            return None, [Finding("vocabulary", data_set.vocabulary.name, "a BERT vocabulary", found)]
    made_with = sha256_of_vocabulary(data_set.manifest)
    if vocabulary is None or made_with in (None, vocabulary.sha256):
        return vocabulary, []
    path, root = vocabulary.path.absolute(), data_set.folder.absolute()
    name = path.relative_to(root) if path.is_relative_to(root) else path
    expected = f"the vocabulary the records were made with, sha256 {made_with[:16]}..., as {MANIFEST} says"
    advice = "name that one with --vocab, or leave --vocab out where it is next to the records"
    return vocabulary, [Finding("manifest", str(name), expected, f"{vocabulary.sha256[:16]}...", advice=advice)]


def _check_tokenizer(data_set: DataSet) -> list[Finding]:
    made_with = data_set.manifest.tokenizer if data_set.manifest else None
    if made_with is None:
        return []
    for name in (TOKENIZER, VOCABULARY):
        if (path := data_set.folder / name).is_file():
            expected = f"the tokenizer that it was made with, sha256 {made_with['sha256'][:16]}..., as {MANIFEST} says"
            found = checksum_of(path, SHA256)
            return [] if found == made_with["sha256"] else [Finding("manifest", name, expected, f"{found[:16]}...")]
    return [Finding("vocabulary", TOKENIZER, f"a {TOKENIZER} next to the files", "none", level=WARNING)]


def _check_manifest(data_set: DataSet) -> list[Finding]:
    folder = data_set.folder
    if data_set.problem:
        return [Finding("manifest", MANIFEST, "a manifest of bertprep", file_that(data_set.problem, folder / MANIFEST))]
    if data_set.is_unfinished:
        found = f"one that is still working or was stopped; run {resuming_command(folder)} again, which resumes it"
        return [Finding("manifest", LEDGER, "a finished run", found, level=WARNING)]
    return []


def _check_names(data_set: DataSet, manifest: Manifest, names: set[str]) -> list[Finding]:
    findings = [
        Finding("file-missing", name, f"a file of {entry['bytes']:,} bytes, as {MANIFEST} says", "none")
        for name, entry in manifest.files.items()
        if name not in names
    ]
    for name in sorted(names - set(manifest.files)):
        expected, found = f"only files that {MANIFEST} names", "another one, which trainers would read too"
        findings.append(Finding("file-extra", name, expected, found, level=WARNING))
    made_with, path = sha256_of_questions(manifest), data_set.folder / QUESTIONS
    if manifest.made_with.get("task") != SQUAD or made_with is None:
        return findings
    if not path.is_file():
        return [*findings, Finding("file-missing", QUESTIONS, "the questions of the dev split", "none")]
    return findings + _check_content(path, QUESTIONS, {SHA256: made_with})


def _check_content(path: Path, name: str, entry: dict[str, Any], known: Checksum | None = None) -> list[Finding]:
    listed = listed_checksum(entry)
    try:
        size_bytes = path.stat().st_size
        is_as_long = size_bytes == entry.get("bytes", size_bytes)
        found = known if known and known.algorithm == listed.algorithm else None
        if found is None and is_as_long:
            found = checksum_like(listed, path)
    except (OSError, BertprepError):  # an unreadable file is a separate finding
        return []
    if not is_as_long:
        return [Finding("file-changed", name, f"{entry['bytes']:,} bytes, as {MANIFEST} says", f"{size_bytes:,}")]
    return [] if found == listed else [Finding("file-changed", name, f"{listed}, as {MANIFEST} says", str(found))]


def find_gaps(data_set: DataSet) -> list[Finding]:
    """Return findings about gaps in numbered file names, such as part-0, part-2 or x-00003-of-00010, for data without a
    manifest.

    A sequence starts at 0 or 1 and has at least half of its numbers; with a total it must be complete.
    """
    sequences: dict[tuple[str, str], dict[int, str]] = {}
    for name in data_set.files if data_set.manifest is None and not data_set.is_unfinished else ():
        if numbered := _NUMBERED.fullmatch(name):
            before, number, after = numbered.groups()
            sequences.setdefault((before, after), {})[int(number)] = number
    findings = []
    for (before, after), numbers in sequences.items():
        total = re.match(r"-of-(\d+)", after)
        first, end = (0, int(total[1])) if total else (min(numbers), max(numbers) + 1)
        if first > 1 or (not total and end - first > 2 * len(numbers)):
            continue
        width = max((len(number) for number in numbers.values() if number.startswith("0")), default=0)
        names = (f"{before}{number:0{width}}{after}" for number in range(first, end) if number not in numbers)
        if missing := next((name for name in names if not os.path.lexists(data_set.folder / name)), None):
            found = f"{sum(first <= number < end for number in numbers):,} of them"
            findings.append(Finding("file-missing", missing, f"the files {first} to {end - 1}", found))
    return findings

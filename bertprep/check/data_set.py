"""Validate one data set: first its folder against the manifest, then each file, in parallel, then all files together.

The checks of each kind of data are in `record_sets`, `text_shards` and `token_shards`. A bad file or record never stops the
check of the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial

from bertprep import pool
from bertprep.check import folder
from bertprep.check.advice import EXPLAINED
from bertprep.check.finding import ERROR, Finding
from bertprep.check.fit import count_unknown, judge_letters, judge_task_files, judge_words
from bertprep.check.infer import DEFAULT_MASKED_LM_PROB, RecordOptions
from bertprep.check.outcome import CheckedFile, Checks, Outcome
from bertprep.check.record_sets import Records
from bertprep.check.text_shards import TextShards
from bertprep.check.token_shards import TokenShards
from bertprep.instances import Vocabulary
from bertprep.progress import Progress
from bertprep.terminal import counted
from bertprep.work.data_set import DataSet
from bertprep.work.layout import DEV, MANIFEST, TEST
from bertprep.work.manifest import TASK_RECORDS, TEXT_SHARDS, TOKEN_SHARDS

_TASKS = 1000  # more files are checked several per task, since sending a task costs more than checking a tiny file


def check_data_set(
    data_set: DataSet, vocabulary: Vocabulary | None, *,
    masked_lm_prob: float | None = None, whole_word: bool = False, pred: int | None = None, sample: int | None = None,
    checksums: bool = True, workers: int, shown: Progress,
) -> Outcome:  # fmt: skip
    """Check one data set; `vocabulary` replaces the one next to it, `sample` limits the records of each file.

    `masked_lm_prob` and `whole_word` describe records without a manifest. Without `checksums`, the bytes of files are not
    compared with the manifest.
    """
    if data_set.is_empty:
        return Outcome(data_set.folder, data_set.content, None, None, findings=folder.check_manifest(data_set))
    manifest = data_set.manifest
    findings = folder.check_manifest(data_set) + folder.find_gaps(data_set)
    if data_set.has_documents:
        vocabulary = None
        findings += folder.check_tokenizer(data_set)
    elif data_set.content == TEXT_SHARDS:
        vocabulary = None
    else:
        vocabulary, about_vocabulary = folder.check_vocabulary(data_set, vocabulary)
        findings += about_vocabulary
    options = RecordOptions(masked_lm_prob or DEFAULT_MASKED_LM_PROB, whole_word, sample, pred)
    checks = _choose_checks(data_set, vocabulary, options)
    if manifest and data_set.is_whole:
        findings += folder.check_names(data_set, manifest, set(checks.names))
    outcome = Outcome(data_set.folder, data_set.content, manifest, vocabulary.path if vocabulary else None)
    outcome.sampled = sample is not None
    if data_set.content != TEXT_SHARDS or checksums:
        missing = {finding.file for finding in findings if finding.code == "file-missing"}
        outcome.files = _check_files(data_set, checks, missing, checksums=checksums, workers=workers, shown=shown)
    outcome.kind = next((file.format for file in outcome.files if file.format), data_set.content)
    outcome.findings = findings
    checks.judge(outcome)
    if manifest and manifest.kind == TASK_RECORDS:
        outcome.rename_split(TEST, DEV)
    if vocabulary:
        count_unknown(outcome, vocabulary)
        outcome.findings += judge_words(outcome, vocabulary, manifest.made_with.get("cased") if manifest else None)
    if manifest:
        outcome.findings += judge_letters(manifest)
        outcome.findings += judge_task_files(manifest)
    outcome.findings += _check_formats(outcome.files)
    outcome.findings = _explain_changed_files(outcome, checks)
    outcome.findings.sort(key=lambda finding: (finding.level != ERROR, finding.code != "file-changed"))
    for file in outcome.files:
        file.forget()
    return outcome


def _choose_checks(data_set: DataSet, vocabulary: Vocabulary | None, options: RecordOptions) -> Checks:
    if data_set.content == TEXT_SHARDS:
        return TextShards(data_set)
    if data_set.content == TOKEN_SHARDS:
        return TokenShards(data_set, vocabulary)
    return Records(data_set, vocabulary, options)


def _check_files(
    data_set: DataSet, checks: Checks, missing: set[str], *, checksums: bool, workers: int, shown: Progress
) -> list[CheckedFile]:
    """Check all files except the missing ones in workers, and return them in order."""
    entries = data_set.manifest.files if data_set.manifest else {}
    files = []
    for name, split in checks.files.items():
        names = checks.names_of(name)
        if not missing.intersection(names):
            listed = {each: entries[each] for each in names if each in entries}
            files.append(CheckedFile(name, split, data_set.folder, listed))
    together = 1 + len(files) // _TASKS
    tasks = [(str(files[at].path), files[at : at + together]) for at in range(0, len(files), together)]
    checked: dict[str, CheckedFile] = {}
    with closing(pool.run(partial(_check_some, checks.check_file, checksums), tasks, workers=workers)) as results:
        for _, some in results:
            for file in some:
                checks.take(file)
                checked[file.name] = file
                counts = {"records": file.read} if file.read else {}
                shown.advance(file.name in data_set.files, **counts, MB=file.size_bytes / 1e6)
    shown.advance(len(data_set.files.keys() - checked.keys()))
    return [checked[file.name] for file in files]


def _check_some(
    check_file: Callable[[CheckedFile], None], checksums: bool, files: Sequence[CheckedFile]
) -> Sequence[CheckedFile]:
    """Check some files, and compare each with its entries in the manifest."""
    for file in files:
        check_file(file)
        entry = file.entries.get(file.name, {})
        for what, found in file.totals.items():
            if found != entry.get(what, found):
                expected = counted(entry[what], "record" if what == "examples" else what.removesuffix("s"))
                file.add(
                    "manifest",
                    f"{expected}, as {MANIFEST} lists",
                    f"{found:,}",
                    advice="run the command that made the file again, or copy it again",
                )
        if checksums:
            for name, listed in file.entries.items():
                file.findings += folder.check_content(file.folder / name, name, listed, file.blake3)
    return files


def _explain_changed_files(outcome: Outcome, checks: Checks) -> list[Finding]:
    """Return the findings; those about a changed file name the change as their cause, and give no other advice."""
    changed = {finding.file for finding in outcome.findings if finding.code == "file-changed"}
    for file in outcome.files:
        names = {file.name, *checks.names_of(file.name)}
        changed |= names if names & changed else set()
    return [
        replace(finding, advice=EXPLAINED) if finding.file in changed and finding.code != "file-changed" else finding
        for finding in outcome.findings
    ]


def _check_formats(files: Sequence[CheckedFile]) -> list[Finding]:
    """Return a finding for each file whose format is not that of most files."""
    counts = Counter(file.format for file in files if file.format)
    usual = max(counts, key=counts.__getitem__, default="")
    expected = f"{usual}, as {counted(counts[usual], 'file')} {'are' if counts[usual] > 1 else 'is'}"
    others = [file for file in files if file.format not in ("", usual)]
    return [Finding("mixed-shape", file.name, expected, file.format) for file in others]

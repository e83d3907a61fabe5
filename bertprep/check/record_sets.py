"""Checks one data set of records: workers check its files, then their counts and hashes are judged together.

The counts of a file are added to those of its split as they arrive and then dropped, so a thousand files need the memory of one
per worker; 16 bytes a record are kept to find repeats.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from bertprep import pool
from bertprep.check.duplicates import HashedFile, find_duplicates, find_identical_files
from bertprep.check.expectations import expect
from bertprep.check.findings import ERROR, WARNING, Finding
from bertprep.check.manifest_checks import (
    check_content,
    check_manifest,
    check_names,
    check_records_number,
    check_vocabulary,
    find_gaps,
)
from bertprep.check.outcome import Counts, Expected, Outcome
from bertprep.check.record_checks import (
    Counted,
    FileReport,
    RecordRules,
    check_file,
    guess_pad,
    guess_special_tokens,
)
from bertprep.check.record_scan import RecordScan
from bertprep.check.statistics import (
    judge,
    judge_file,
    judge_file_sizes,
    judge_labels_of_files,
    judge_split_sizes,
)
from bertprep.config import UNPAIRED
from bertprep.errors import BertprepError
from bertprep.instances import Vocabulary, load_vocabulary
from bertprep.progress import Progress
from bertprep.records.data_sets import DataSet
from bertprep.records.examples import MaskedExamples, PretrainingExamples
from bertprep.workspace.layout import VOCABULARY
from bertprep.workspace.manifest import pad_of_vocabulary

DEFAULT_MASKED_LM_PROB = 0.15
_FILES_TO_MEASURE = 10  # files that give the sizes of a set without a manifest
_RECORDS_TO_MEASURE = 1_000  # records of each that give the special tokens if there is no vocabulary


@dataclass(frozen=True)
class _FileTask:
    """A worker's task, one file; `facts` is its entry in the manifest."""

    path: Path
    name: str
    split: str
    rules: RecordRules
    sample: int | None
    facts: dict[str, Any] | None


def validate_records(
    data_set: DataSet,
    vocabulary: Vocabulary | None,
    *,
    masked_lm_prob: float | None,
    sample: int | None,
    workers: int,
    shown: Progress,
) -> Outcome:
    """Check the records of one data set; `vocabulary` replaces the one beside them."""
    vocabulary, findings = check_surroundings(data_set, vocabulary)
    rules = _rules_for(data_set, vocabulary, masked_lm_prob)
    reports, counted, of_files = _check_files(data_set, rules, sample, workers, shown)

    expected, of_whole = _judge_splits(data_set, counted, rules)
    known = {finding.code for finding in of_whole}
    findings += of_whole
    # faults of the split and of most files are not repeated for each file
    files_with = Counter(finding.code for report in reports for finding in report.findings if finding.record is None)
    known = {code for code in known if 2 * files_with[code] > len(reports)}
    for report in reports:
        findings += [finding for finding in report.findings if finding.record is not None or finding.code not in known]
    findings += of_files
    findings += check_formats(reports)
    findings += judge_file_sizes([report.facts for report in reports])
    findings += judge_split_sizes([report.facts for report in reports])
    findings += _judge_rounding(reports)
    duplicates: dict[str, int] = {}
    if sample is None:
        hashed = [HashedFile(report.facts.name, report.facts.split, report.hashes) for report in reports]
        repeated, duplicates = find_duplicates(hashed)
        findings += find_identical_files(hashed) + repeated
    return Outcome(
        folder=data_set.folder,
        kind=next((report.format for report in reports if report.format), data_set.kind),
        manifest=data_set.manifest,
        vocabulary=vocabulary.path if vocabulary else None,
        seq=rules.seq,
        pred=rules.pred,
        sampled=sample is not None,
        files=[report.facts for report in reports],
        tallies={split: counts.tally for split, counts in counted.items()},
        expected=expected,
        findings=sorted(findings, key=lambda finding: finding.level != ERROR),
        duplicates=duplicates,
    )


def check_surroundings(data_set: DataSet, vocabulary: Vocabulary | None) -> tuple[Vocabulary | None, list[Finding]]:
    """The vocabulary, read from beside the records if none is given, and what is wrong with it, the manifest and the names."""
    findings = [*check_manifest(data_set), *find_gaps(data_set)]
    if vocabulary is None:
        vocabulary, about_vocabulary = _read_vocabulary(data_set)
        findings += about_vocabulary
    if data_set.manifest:
        findings += check_names(data_set.manifest, data_set.files) if data_set.is_whole else []
        if vocabulary:
            findings += check_vocabulary(data_set.manifest, _name_of(vocabulary.path, data_set.folder), vocabulary.sha256)
    return vocabulary, findings


def known_pad(data_set: DataSet, vocabulary: Vocabulary | None) -> int | None:
    """The token of padding by the vocabulary, or by the manifest; None where neither tells."""
    if vocabulary:
        return vocabulary.pad
    return pad_of_vocabulary(data_set.manifest) if data_set.manifest else None


def check_against_manifest(path: Path, name: str, records: int, facts: dict[str, Any], sample: int | None) -> list[Finding]:
    """Whether a file has the number of records, the size and the checksum of its entry; with `sample` only the number."""
    findings = check_records_number(name, records, facts)
    return findings if sample is not None else findings + check_content(path, name, facts)


def _name_of(path: Path, folder: Path) -> Path:
    """A file's name in findings: relative to the data set if it is inside."""
    absolute, root = path.absolute(), folder.absolute()
    return absolute.relative_to(root) if absolute.is_relative_to(root) else absolute


def _read_vocabulary(data_set: DataSet) -> tuple[Vocabulary | None, list[Finding]]:
    """The vocabulary beside the records, and a finding if it is missing or wrong."""
    if data_set.vocabulary is None:
        expected, found = f"a {VOCABULARY} beside the records, or --vocab FILE", "none, so what needs it is not checked"
        return None, [Finding(WARNING, "vocabulary", VOCABULARY, None, expected, found)]
    try:
        return load_vocabulary(data_set.vocabulary), []
    except BertprepError as error:
        found = str(error).removeprefix(f"{data_set.vocabulary}: ")
        return None, [Finding(ERROR, "vocabulary", data_set.vocabulary.name, None, "a BERT vocabulary", found)]


def _rules_for(data_set: DataSet, vocabulary: Vocabulary | None, masked_lm_prob: float | None) -> RecordRules:
    """The rules for records from the manifest, the vocabulary and the request, else inferred from the first records."""
    made_with = data_set.manifest.made_with if data_set.manifest else {}
    first, pred = _first_examples(data_set)
    seq = first.seq if first is not None else 0
    special = {"cls": -1, "sep": -1, "mask": -1}
    if vocabulary:
        special = {"cls": vocabulary.cls, "sep": vocabulary.sep, "mask": vocabulary.mask}
    elif first is not None:
        special = guess_special_tokens(first)
    pad = known_pad(data_set, vocabulary)
    if pad is None and first is not None:
        pad = guess_pad(first)
    kind, said_by = type(first) if first is not None else PretrainingExamples, "as the first file has"
    if "generator" in made_with:
        kind, said_by = MaskedExamples if made_with.get("pairs") == UNPAIRED else PretrainingExamples, "by the manifest"
    return RecordRules(
        seq=made_with.get("seq", seq),
        pred=made_with.get("pred", pred),
        tokens=len(vocabulary) if vocabulary else 0,
        masked_lm_prob=made_with.get("masked_lm_prob", masked_lm_prob or DEFAULT_MASKED_LM_PROB),
        whole_word=made_with.get("whole_word", False),
        continues=vocabulary.continues if vocabulary else b"",
        may_round_up=data_set.manifest is None,
        pad=pad or 0,
        kind=kind,
        kind_said_by=said_by,
        **special,
    )


def _first_examples(data_set: DataSet) -> tuple[MaskedExamples | None, int]:
    """The first records of a file that has the most common shape among the first files, and their `pred`.

    Where files do not say theirs, it is the highest that a record of one has.
    """
    found: list[MaskedExamples] = []
    most = 0
    for name in list(data_set.files)[:_FILES_TO_MEASURE]:
        with contextlib.suppress(BertprepError), contextlib.closing(RecordScan(data_set.folder / name, name)) as scan:
            if scan.seq:
                most = most if scan.knows_pred else max(most, scan.pred)
                blocks = (examples for examples, _ in islice(scan.blocks(_RECORDS_TO_MEASURE), 1))
                found.extend(examples for examples in blocks if isinstance(examples, MaskedExamples))
    shapes = Counter((examples.seq, examples.pred) for examples in found)
    first = max(found, key=lambda examples: shapes[examples.seq, examples.pred], default=None)
    return first, max(most, first.pred if first is not None else 0)


def _check_files(
    data_set: DataSet, rules: RecordRules, sample: int | None, workers: int, shown: Progress
) -> tuple[list[FileReport], dict[str, Counted], list[Finding]]:
    """A report on each file, in order and without counts; the counts of each split; findings about files unlike the others."""
    facts = data_set.manifest.files if data_set.manifest else {}
    tasks = [
        (str(data_set.folder / name), _FileTask(data_set.folder / name, name, split, rules, sample, facts.get(name)))
        for name, split in data_set.files.items()
    ]
    counted: dict[str, Counted] = {}
    reports: dict[str, FileReport] = {}
    labels: dict[str, Counts] = {}
    with contextlib.closing(pool.run(_check, tasks, workers=workers)) as results:
        for _, report in results:
            shown.advance(records=report.read, MB=report.facts.size_bytes / 1e6)
            name, split, found = report.facts.name, report.facts.split, report.findings
            if report.counted:
                counted.setdefault(split, Counted.empty(rules)).add(report.counted)
                labels[name] = report.counted.tally.next_sentence
                if len(tasks) > 1:
                    uses = _uses_of_documents(data_set, [name])
                    found = [*found, *judge_file(report.counted, rules, name, files=len(tasks), uses=uses)]
            reports[name] = replace(report, counted=None, findings=found)
    in_order = [reports[name] for name in data_set.files]
    of_files = judge_labels_of_files(
        [(report.facts, labels[report.facts.name]) for report in in_order if report.facts.name in labels]
    )
    of_splits = {split: counted[split] for split in data_set.splits if split in counted}
    return in_order, of_splits, of_files


def _check(task: _FileTask) -> FileReport:
    """Check one file, also against its entry in the manifest."""
    report = check_file(task.path, task.name, task.split, task.rules, task.sample)
    if task.facts is None or not task.path.is_file():
        return report
    findings = check_against_manifest(task.path, task.name, report.facts.records, task.facts, task.sample)
    return replace(report, findings=[*report.findings, *findings])


def _judge_splits(
    data_set: DataSet, counted: dict[str, Counted], rules: RecordRules
) -> tuple[dict[str, Expected], list[Finding]]:
    """The expectations of each split, and findings about it as a whole."""
    made_with = data_set.manifest.made_with if data_set.manifest else {}
    # NVIDIA's tool gives every shard the same seed; for bertprep's the manifest says
    has_own_seeds = data_set.manifest is not None and not made_with.get("one_seed")
    expected: dict[str, Expected] = {}
    findings: list[Finding] = []
    for split, counts in counted.items():
        names = [name for name, of in data_set.files.items() if of == split]
        uses = _uses_of_documents(data_set, names)
        streams = 1 if has_own_seeds else len(names)
        expected[split] = expect(counts, rules, streams=streams, uses=uses, short_seq_prob=made_with.get("short_seq_prob"))
        findings += judge(counts, rules, split or ".", expected[split], uses=uses)
    return expected, findings


def _uses_of_documents(data_set: DataSet, names: Iterable[str]) -> int | None:
    """The documents of some files times their uses; None if the manifest does not say."""
    if data_set.manifest is None:
        return None
    documents = [data_set.manifest.files.get(name, {}).get("documents") for name in names]
    known = [count for count in documents if isinstance(count, int) and count > 0]
    return sum(known) * int(data_set.manifest.made_with.get("dupe", 1)) if len(known) == len(documents) else None


def _judge_rounding(reports: list[FileReport]) -> list[Finding]:
    """Findings about halves that were not rounded as in most of the set; either way is right if it is consistent."""
    found = [(way, finding) for report in reports for way, finding in report.rounding.items()]
    counts: Counter[str] = Counter()
    for way, finding in found:
        counts[way] += finding.count
    usual = max(counts, key=counts.__getitem__, default="")
    return [finding for way, finding in found if way != usual]


def _files_are(count: int) -> str:
    return f"{count:,} files are" if count > 1 else "1 file is"


def check_formats(reports: Sequence[FileReport]) -> list[Finding]:
    """Findings about files that do not have the format of most."""
    formats = [(report.facts.name, report.format) for report in reports if report.format]
    counts = Counter(record_format for _, record_format in formats)
    usual = max(counts, key=counts.__getitem__, default="")
    return [
        Finding(ERROR, "mixed-shape", name, None, f"{usual}, as {_files_are(counts[usual])}", record_format)
        for name, record_format in formats
        if record_format != usual
    ]

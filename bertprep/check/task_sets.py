"""One data set of records of a fine-tuning task: its files against the manifest, against each other and record by record."""

from __future__ import annotations

import contextlib
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bertprep import pool
from bertprep.check.findings import ERROR
from bertprep.check.manifest_checks import check_questions
from bertprep.check.outcome import Outcome
from bertprep.check.record_checks import guess_pad
from bertprep.check.record_scan import RecordScan
from bertprep.check.record_sets import check_against_manifest, check_formats, check_surroundings, known_pad
from bertprep.check.task_checks import TaskReport, TaskRules, check_task_file, check_unique_ids
from bertprep.config import SQUAD_VERSIONS
from bertprep.errors import BertprepError
from bertprep.instances import Vocabulary
from bertprep.progress import Progress
from bertprep.records.data_sets import DataSet
from bertprep.records.examples import Examples, PretrainingExamples, Shape
from bertprep.records.reader import RecordFile

_FILES_TO_MEASURE = 10  # that give the shape of a split
_RECORDS_TO_MEASURE = 256  # of a file, that give the token of padding where nothing else tells it


@dataclass(frozen=True)
class _FileTask:
    """What a worker does with one file; `facts` is its entry in the manifest."""

    path: Path
    name: str
    split: str
    rules: TaskRules
    sample: int | None
    facts: dict[str, Any] | None


def kind_of_data_set(data_set: DataSet) -> type[Examples]:
    """The kind of the first file's records that can be read: pretraining where none can."""
    for name in data_set.files:
        with contextlib.suppress(BertprepError), RecordFile(data_set.folder / name) as file:
            return file.kind
    return PretrainingExamples


def validate_task_records(
    data_set: DataSet, vocabulary: Vocabulary | None, *, sample: int | None, workers: int, shown: Progress
) -> Outcome:
    """Check the records of one data set; `vocabulary` is used instead of the one beside them."""
    vocabulary, findings = check_surroundings(data_set, vocabulary)
    if data_set.manifest and data_set.is_whole:
        findings += check_questions(data_set.manifest, data_set.home.folder)
    rules = _rules_by_split(data_set, vocabulary)
    facts = data_set.manifest.files if data_set.manifest else {}
    tasks = [
        (str(data_set.folder / name), _FileTask(data_set.folder / name, name, split, rules[split], sample, facts.get(name)))
        for name, split in data_set.files.items()
    ]
    reports: dict[str, TaskReport] = {}
    with contextlib.closing(pool.run(_check, tasks, workers=workers)) as results:
        for _, report in results:
            shown.advance(records=report.read, MB=report.facts.size_bytes / 1e6)
            reports[report.facts.name] = report
    in_order = [reports[name] for name in data_set.files]
    for report in in_order:
        findings += report.findings
    for split in data_set.splits if sample is None else ():
        findings += check_unique_ids([report for report in in_order if report.facts.split == split])
    findings += check_formats(in_order)
    first = next(iter(rules.values())).shape
    return Outcome(
        folder=data_set.folder,
        kind=next((report.format for report in in_order if report.format), data_set.kind),
        manifest=data_set.manifest,
        vocabulary=vocabulary.path if vocabulary else None,
        seq=first.seq,
        pred=first.pred,
        sampled=sample is not None,
        files=[report.facts for report in in_order],
        findings=sorted(findings, key=lambda finding: finding.level != ERROR),
    )


def _check(task: _FileTask) -> TaskReport:
    """Check one file by itself and against its entry in the manifest."""
    report = check_task_file(task.path, task.name, task.split, task.rules, task.sample)
    if task.facts is None or not task.path.is_file():
        return report
    findings = check_against_manifest(task.path, task.name, report.facts.records, task.facts, task.sample)
    return replace(report, findings=[*report.findings, *findings])


def _rules_by_split(data_set: DataSet, vocabulary: Vocabulary | None) -> dict[str, TaskRules]:
    """What the records of each split must be by the manifest and the vocabulary, or else like most of the first files."""
    made_with = data_set.manifest.made_with if data_set.manifest else {}
    labels = made_with.get("labels")
    shapes: dict[str, Counter[Shape]] = {split: Counter() for split in data_set.splits}
    pad = known_pad(data_set, vocabulary)
    for name, split in data_set.files.items():
        if shapes[split].total() < _FILES_TO_MEASURE:
            with contextlib.suppress(BertprepError), contextlib.closing(RecordScan(data_set.folder / name, name)) as scan:
                if scan.seq:
                    shapes[split][scan.shape] += 1
                    if pad is None:
                        pad = next((guess_pad(examples) for examples, _ in scan.blocks(_RECORDS_TO_MEASURE)), None)
    every = Counter(shape for counted in shapes.values() for shape in counted)
    default = max(every, key=every.__getitem__, default=Shape(PretrainingExamples, 0, 0))
    rules = {}
    for split, counted in shapes.items():
        shape = max(counted, key=counted.__getitem__, default=default)
        rules[split] = TaskRules(
            shape=shape._replace(seq=made_with["seq"]) if isinstance(made_with.get("seq"), int) else shape,
            tokens=len(vocabulary) if vocabulary else None,
            cls=vocabulary.cls if vocabulary else -1,
            sep=vocabulary.sep if vocabulary else -1,
            pad=pad or 0,
            labels=len(labels) if isinstance(labels, list) and labels else None,
            may_be_impossible=made_with.get("version") != SQUAD_VERSIONS[0],
        )
    return rules

"""What `bertprep report` does: find the data set, check it, draw examples from its files, write the page."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

import numpy as np

from bertprep import records
from bertprep.check.outcome import FileFacts, Outcome
from bertprep.commands.validate import validate
from bertprep.errors import BertprepError, UsageError
from bertprep.files.atomic import atomic_file
from bertprep.instances import load_vocabulary
from bertprep.progress import Reporter, say
from bertprep.records.data_sets import DataSet, find_data_sets
from bertprep.reporting.excerpts import Excerpt, choose
from bertprep.reporting.page import page
from bertprep.workspace.manifest_schema import TEXT_SHARDS
from bertprep.workspace.targets import check_target

REPORT = "report.html"
EXAMPLES = 20


def report(
    path: Path | str | None = None,
    *,
    output: Path | str | None = None,
    vocab: Path | str | None = None,
    sample: int | None = None,
    workdir: Path | str = "data",
    workers: int | None = None,
    progress: bool = False,
) -> Path:
    """Write a report on the records in a folder, or on the newest of a workspace; returns where it lies.

    Where a folder holds several data sets it is the newest of them. The page goes beside the manifest as report.html, or to
    `output`. With `sample` only so many records of each file are looked at, and duplicates are not looked for. Findings do
    not make it fail; `validate` does that.

    Raises `UsageError` where there are no records, `BertprepError` where the page cannot be written.
    """
    reporter = Reporter(enabled=progress)
    sets = _record_sets(Path(workdir if path is None else path), is_default=path is None)
    data_set = max(sets, key=lambda data_set: (data_set.modified_ns, str(data_set.folder)))
    target = Path(output) if output is not None else data_set.home.folder / REPORT
    check_target("--output", target, ".html")
    named = [path] if path is not None and Path(path).is_file() else [data_set.folder]
    outcome = _of_folder(validate(named, vocab=vocab, sample=sample, workers=workers, progress=progress), data_set.folder)
    place = Path(vocab) if vocab is not None else outcome.vocabulary
    vocabulary = load_vocabulary(place) if place is not None else None
    if reporter.enabled:
        others = f" (of {len(sets):,} data sets, the newest)" if len(sets) > 1 else ""
        errors = f"{outcome.errors:,} errors, the page shows them" if outcome.errors else "no error was found"
        say(f"report: {outcome.folder}{others}: {errors}")
    text = page(outcome, draw_excerpts(outcome.folder, outcome.files, EXAMPLES), vocabulary)
    with atomic_file(target) as file:
        file.write(text.encode())
    return target


def draw_excerpts(folder: Path, files: list[FileFacts], number: int) -> list[Excerpt]:
    """Records that stand evenly over all files; what cannot be read is left out, since a finding tells of it."""
    excerpts: list[Excerpt] = []
    for name, places in groupby(choose(files, number), key=lambda place: place[0]):
        try:
            with records.open(folder / name) as file:
                for _, record in places:
                    if record < len(file):
                        excerpts.append(Excerpt(name, record, file[np.array([record], np.int64)]))
        except BertprepError:
            continue
    return excerpts


def _record_sets(path: Path, *, is_default: bool) -> list[DataSet]:
    if is_default and not path.is_dir():
        found = "is a file, expected a folder" if path.exists() else "does not exist"
        raise UsageError(f"--workdir {path}: {found}; name a folder of records, or make some with bertprep create")
    sets = [data_set for data_set in find_data_sets([path]) if data_set.kind != TEXT_SHARDS]
    if not sets:
        raise UsageError(f"{path}: holds no records; make some with bertprep create, or name a folder of them")
    return sets


def _of_folder(outcomes: list[Outcome], folder: Path) -> Outcome:
    """The outcome on the records of a folder; data sets may lie below it too."""
    alike = [outcome for outcome in outcomes if outcome.folder.resolve() == folder.resolve()]
    return (alike or outcomes)[0]

"""`bertprep report`: find the data set, check it, draw examples from its files, write the page."""

from __future__ import annotations

import argparse
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from bertprep.commands import add_vocab, add_workdir, add_workers
from bertprep.commands.validate import validate
from bertprep.errors import BertprepError, UsageError
from bertprep.files.atomic import atomic_file
from bertprep.options import how_many
from bertprep.progress import Reporter, say
from bertprep.terminal import tell
from bertprep.workspace.manifest import TEXT_SHARDS
from bertprep.workspace.targets import check_target

if TYPE_CHECKING:
    from bertprep.check.outcome import FileFacts, Outcome
    from bertprep.records.data_sets import DataSet
    from bertprep.reporting.excerpts import Excerpt

REPORT = "report.html"
EXAMPLES = 20


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", nargs="?", type=Path, metavar="PATH", help="records (default: the newest of the workspace)")
    parser.add_argument("--output", type=Path, metavar="FILE", help="page to write (default: report.html beside the manifest)")
    add_vocab(parser)
    parser.add_argument(
        "--sample", type=how_many, metavar="INT", help="check only this many records of each file, and not for duplicates"
    )
    add_workdir(parser)
    add_workers(parser)


def run(options: argparse.Namespace) -> None:
    """Write the page, and print its path."""
    page_path = report(
        options.path,
        output=options.output,
        vocab=options.vocab,
        sample=options.sample,
        workdir=options.workdir,
        workers=options.workers,
        progress=True,
    )
    tell(str(page_path))


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
    from bertprep.instances import load_vocabulary
    from bertprep.reporting.page import page

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
    import numpy as np

    from bertprep import records
    from bertprep.reporting.excerpts import Excerpt, choose

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
    from bertprep.records.data_sets import find_data_sets

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

"""`bertprep report`: finds the data set, checks it, samples examples from its files and writes the page."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from bertprep.commands import add_engine, add_vocab, add_workdir, add_workers
from bertprep.commands.validate import validate
from bertprep.errors import UsageError
from bertprep.files.atomic import atomic_file
from bertprep.files.places import place
from bertprep.options import how_many, path_or_url
from bertprep.pool import LOCAL
from bertprep.progress import Reporter, say
from bertprep.terminal import tell
from bertprep.workspace.manifest import TEXT_SHARDS, TOKEN_SHARDS
from bertprep.workspace.targets import check_target

if TYPE_CHECKING:
    from bertprep.check.outcome import Outcome
    from bertprep.records.data_sets import DataSet

REPORT = "report.html"
EXAMPLES = 20


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "path", nargs="?", type=path_or_url, metavar="PATH",
        help="records or token shards (default: the newest records of the workspace)",
    )  # fmt: skip
    parser.add_argument(
        "--output", type=path_or_url, metavar="FILE", help="page to write (default: report.html beside the manifest)"
    )
    add_vocab(parser)
    parser.add_argument(
        "--sample", type=how_many, metavar="INT", help="check only this many records of each file, and skip duplicates"
    )
    add_workdir(parser)
    add_workers(parser)
    add_engine(parser)


def run(options: argparse.Namespace) -> None:
    """Write the page, and print its path."""
    page_path = report(
        options.path,
        output=options.output,
        vocab=options.vocab,
        sample=options.sample,
        workdir=options.workdir,
        workers=options.workers,
        engine=options.engine,
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
    engine: str = LOCAL,
    progress: bool = False,
) -> Path:
    """Write a report on the records or token shards in a folder, or on the newest of a workspace; returns its path.

    Of several data sets in a folder it takes the newest, and records rather than token shards. The page is written as
    report.html beside the manifest, or to `output`. With `sample`, only that many records of each file are checked, and
    duplicates are not. Findings do not make it fail; use `validate` for that.

    Raises `UsageError` if there are no records, `BertprepError` if the page cannot be written.
    """
    from bertprep.check.task_sets import kind_of_data_set
    from bertprep.instances import load_vocabulary
    from bertprep.records.examples import MaskedExamples
    from bertprep.reporting.excerpts import draw_excerpts
    from bertprep.reporting.page import page

    reporter = Reporter(enabled=progress)
    sets = _record_sets(place(workdir if path is None else path), is_default=path is None)
    data_set = max(sets, key=lambda data_set: (data_set.modified_ns, str(data_set.folder)))
    is_tokens = data_set.kind == TOKEN_SHARDS
    if not is_tokens and not issubclass(kind := kind_of_data_set(data_set), MaskedExamples):
        advice = "a report is of pretraining records; run bertprep validate"
        raise UsageError(f"{data_set.folder}: has {kind.title} records, {advice}")
    target = place(output) if output is not None else data_set.home.folder / REPORT
    check_target("--output", target, ".html")
    named = [path] if path is not None and place(path).is_file() else [data_set.folder]
    checked = validate(named, vocab=vocab, sample=sample, workers=workers, engine=engine, progress=progress)
    outcome = _of_folder(checked, data_set.folder)
    vocabulary_path = place(vocab) if vocab is not None else outcome.vocabulary
    vocabulary = load_vocabulary(vocabulary_path) if vocabulary_path is not None else None
    if reporter.enabled:
        others = f" (of {len(sets):,} data sets, the newest)" if len(sets) > 1 else ""
        errors = f"{outcome.errors:,} errors, the page shows them" if outcome.errors else "no error was found"
        say(f"report: {outcome.folder}{others}: {errors}")
    excerpts = [] if is_tokens else draw_excerpts(outcome.folder, outcome.files, EXAMPLES)
    text = page(outcome, excerpts, vocabulary)
    with atomic_file(target, replace=True) as file:
        file.write(text.encode())
    return target


def _record_sets(path: Path, *, is_default: bool) -> list[DataSet]:
    from bertprep.records.data_sets import find_data_sets

    if is_default and not path.is_dir():
        found = "is a file, expected a folder" if path.exists() else "does not exist"
        raise UsageError(f"--workdir {path}: {found}; name a folder of records, or make some with bertprep create")
    sets = [data_set for data_set in find_data_sets([path]) if data_set.kind != TEXT_SHARDS]
    sets = [data_set for data_set in sets if data_set.kind != TOKEN_SHARDS] or sets
    if not sets:
        raise UsageError(f"{path}: holds no records; make some with bertprep create, or name a folder of them")
    return sets


def _of_folder(outcomes: list[Outcome], folder: Path) -> Outcome:
    """The outcome for the records of a folder, which may contain other data sets below it."""
    alike = [outcome for outcome in outcomes if outcome.folder.resolve() == folder.resolve()]
    return (alike or outcomes)[0]

"""What each command does: build a configuration of its options, call one function, print what came of it.

Modules are imported by the command that needs them.
"""

import argparse
from typing import Any

from bertprep.config import Dialect, InstanceSettings, ShardSettings
from bertprep.errors import BertprepError, UsageError
from bertprep.options import read_options
from bertprep.terminal import tell, tell_table
from bertprep.workspace.layout import TEST
from bertprep.workspace.targets import check_target

_WHY_DROPPED = {
    "dropped_empty": "without a letter or a digit",
    "dropped_duplicates": "the same as one before (--keep-duplicates keeps them)",
}


def download_command(options: argparse.Namespace) -> None:
    """`bertprep download`."""
    from bertprep.commands.download import download, next_commands, plan_rows, result_rows, room_lines

    downloads = download(
        options.names,
        workdir=options.workdir,
        language=options.language,
        date=options.date,
        from_dump=options.from_dump,
        from_files=options.from_files,
        models=options.models,
        connections=options.connections,
        dry_run=options.dry_run,
        progress=True,
    )
    if options.dry_run:
        tell_table(plan_rows(downloads))
        tell(*room_lines(downloads))
        return
    tell_table(result_rows(downloads))
    tell(*(f"next: {command}" for command in next_commands(downloads, options.workdir)))


def shard_command(options: argparse.Namespace) -> None:
    """`bertprep shard`."""
    from bertprep.commands.shard import shard

    manifest = shard(
        options.input,
        read_options(ShardSettings, options),
        field=options.field,
        one_document=options.one_document_per_file,
        workdir=options.workdir,
        corpus=options.corpus,
        workers=options.workers,
        verify=options.verify,
        progress=True,
    )
    tell_table([("split", "shards", "documents", "sentences", "words", "MB"), *_rows_of_text(manifest.files)])
    for cause, why in _WHY_DROPPED.items():
        if count := manifest.counts.get(cause):
            tell(f"{count:,} documents were dropped: {why}")


def train_command(options: argparse.Namespace) -> None:
    """`bertprep vocab train`."""
    from bertprep.commands.create import train_vocabulary_of

    path = train_vocabulary_of(
        options.input,
        output=options.output,
        size=options.size,
        cased=options.cased,
        workdir=options.workdir,
        corpus=options.corpus,
        progress=True,
    )
    tell(str(path))


def create_command(options: argparse.Namespace) -> None:
    """`bertprep create`."""
    from bertprep.commands.create import create

    created = create(
        settings=read_options(InstanceSettings, options),
        dialect=read_options(Dialect, options),
        formats=options.format,
        vocab=options.vocab,
        vocab_size=options.vocab_size,
        inputs=options.input,
        output=options.output,
        workdir=options.workdir,
        corpus=options.corpus,
        workers=options.workers,
        verify=options.verify,
        progress=True,
    )
    rows: list[tuple[str, ...]] = [("format", "split", "files", "documents", "records", "MB")]
    for name, manifest in created.manifests.items():
        for split, files in _by_split(manifest.files).items():
            rows.append((name, split, *_sums(files, "documents", "examples")))
    tell_table(rows)
    tell(f"made in {created.seconds:.1f} s in", *(f"  {folder}" for folder in created.folders.values()))


def convert_command(options: argparse.Namespace) -> None:
    """`bertprep convert`."""
    from bertprep.commands.convert import convert

    converted = convert(
        options.source,
        options.target,
        to=options.to,
        dialect=read_options(Dialect, options),
        shards=options.shards,
        workers=options.workers,
        progress=True,
    )
    rows: list[tuple[str, ...]] = [("format", "split", "files", "records", "MB")]
    for split, files in _by_split(converted.files).items():
        rows.append((converted.format, split, *_sums(files, "examples")))
    tell_table(rows)
    tell(f"made in {converted.seconds:.1f} s: {converted.target}")


def plan_command(options: argparse.Namespace) -> None:
    """`bertprep plan`."""
    from bertprep.planning.command import make_plans, plan_existing

    check_target("--json", options.json, ".json")
    if options.records:
        shown = plan_existing(options.records, options.steps, options.global_batch, phases=options.phases)
    else:
        shown = make_plans(
            options.steps,
            options.global_batch,
            phases=options.phases,
            settings=read_options(InstanceSettings, options),
            dialect=read_options(Dialect, options),
            formats=options.format,
            vocab=options.vocab,
            vocab_size=options.vocab_size,
            inputs=options.input,
            output=options.output,
            workdir=options.workdir,
            corpus=options.corpus,
            workers=options.workers,
            progress=True,
        )
    for table in shown.tables:
        tell_table(table)
    tell(*shown.lines)
    if options.json:
        shown.write_json(options.json)


def validate_command(options: argparse.Namespace) -> None:
    """`bertprep validate`."""
    from bertprep.commands.validate import validate
    from bertprep.commands.validate_command import finding_lines, folder_lines, table_rows, write_json

    check_target("--json", options.json, ".json")
    outcomes = validate(
        options.paths,
        vocab=options.vocab,
        masked_lm_prob=options.masked_lm_prob,
        sample=options.sample,
        workers=options.workers,
        progress=True,
    )
    tell(*finding_lines(outcomes))
    tell_table(table_rows(outcomes))
    tell(*folder_lines(outcomes))
    if options.sample:
        tell(f"{options.sample:,} records of each file were looked at; duplicates, sums and text shards were not")
    if options.json:
        write_json(outcomes, options.json)
    if errors := sum(outcome.errors for outcome in outcomes):
        raise BertprepError(f"{count_of(errors, 'error')} found; docs/validation.md says what each means and what to do")


def inspect_command(options: argparse.Namespace) -> None:
    """`bertprep inspect`."""
    from bertprep.commands.inspect import show_examples

    if not options.file.exists():
        raise UsageError(f"{options.file}: does not exist; name a record file")
    show_examples(
        options.file,
        first=options.record,
        count=options.records,
        search=options.search,
        vocab=options.vocab,
        pieces=options.pieces,
    )


def report_command(options: argparse.Namespace) -> None:
    """`bertprep report`."""
    from bertprep.commands.report import report

    page = report(
        options.path,
        output=options.output,
        vocab=options.vocab,
        sample=options.sample,
        workdir=options.workdir,
        workers=options.workers,
        progress=True,
    )
    tell(str(page))


def count_of(count: int, thing: str) -> str:
    """A number of things in words.

    >>> count_of(1, "error"), count_of(2_000, "error")
    ('1 error was', '2,000 errors were')
    """
    return f"{count:,} {thing} was" if count == 1 else f"{count:,} {thing}s were"


def _by_split(files: dict[str, dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Manifest entries by the folder their files are in; '' where there is none."""
    splits: dict[str, list[dict[str, Any]]] = {}
    for name, facts in sorted(files.items(), key=lambda item: item[0].startswith(TEST)):  # training first
        splits.setdefault(name.rpartition("/")[0], []).append(facts)
    return splits


def _sums(files: list[dict[str, Any]], *names: str) -> list[str]:
    """The number of files, the sums of what `names` count, and the megabytes."""
    megabytes = sum(facts["bytes"] for facts in files) / 1e6
    return [f"{len(files):,}", *(f"{sum(facts.get(name, 0) for facts in files):,}" for name in names), f"{megabytes:,.1f}"]


def _rows_of_text(files: dict[str, dict[str, Any]]) -> list[tuple[str, ...]]:
    return [(split, *_sums(entries, "documents", "sentences", "words")) for split, entries in _by_split(files).items()]

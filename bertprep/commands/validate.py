"""`bertprep validate`: checks every file, every record and the statistics of each data set under some paths.

Records are checked by `record_sets`, text by `text_checks`; docs/validation.md explains each finding and how it is judged. One
bad file or record never stops the others.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertprep import pool
from bertprep.check.findings import ERROR, SHOWN_OF_A_CODE, Finding
from bertprep.commands import add_engine, add_vocab, add_workers
from bertprep.errors import BertprepError, UsageError
from bertprep.files.atomic import atomic_file
from bertprep.files.places import place, sizes_of
from bertprep.options import how_many, number, path_or_url
from bertprep.progress import Progress, Reporter
from bertprep.terminal import tell, tell_table
from bertprep.workspace.layout import split_order
from bertprep.workspace.manifest import TEXT_SHARDS, TOKEN_SHARDS
from bertprep.workspace.targets import check_target

if TYPE_CHECKING:
    from bertprep.check.outcome import Outcome, Tally, TokenTally
    from bertprep.check.text_scan import ScannedShard
    from bertprep.records.data_sets import DataSet

_HEADER = (
    "data set", "split", "files", "records", "tokens", "padding", "[MASK]", "kept", "random", "random next",
    "errors", "warnings",
)  # fmt: skip


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "paths", nargs="*", type=path_or_url, default=[Path("data")], metavar="PATH",
        help="a workspace, a folder of records or token shards, or such files, written by any tool (default: data)",
    )  # fmt: skip
    add_vocab(parser)
    parser.add_argument(
        "--masked-lm-prob", type=number, metavar="FLOAT",
        help="fraction of masked tokens in records without a manifest (default: 0.15)",
    )  # fmt: skip
    parser.add_argument("--sample", type=how_many, metavar="INT", help="check only this many records of each file")
    parser.add_argument("--json", type=path_or_url, metavar="FILE", help="also write the full result to FILE")
    add_workers(parser)
    add_engine(parser)


def run(options: argparse.Namespace) -> None:
    """Print the findings, errors first, and a table of what was checked; with --json also write all of it to a file."""
    check_target("--json", options.json, ".json")
    outcomes = validate(
        options.paths,
        vocab=options.vocab,
        masked_lm_prob=options.masked_lm_prob,
        sample=options.sample,
        workers=options.workers,
        engine=options.engine,
        progress=True,
    )
    tell(*finding_lines(outcomes))
    tell_table(table_rows(outcomes))
    tell(*folder_lines(outcomes))
    if options.sample:
        tell(f"{options.sample:,} records of each file were checked; duplicates, checksums and text shards were not")
    if options.json:
        write_json(outcomes, options.json)
    if errors := sum(outcome.errors for outcome in outcomes):
        found = "1 error was" if errors == 1 else f"{errors:,} errors were"
        raise BertprepError(f"{found} found; docs/validation.md says what each means and what to do")


def validate(
    paths: Iterable[Path | str],
    *,
    vocab: Path | str | None = None,
    masked_lm_prob: float | None = None,
    sample: int | None = None,
    workers: int | None = None,
    engine: str = pool.LOCAL,
    progress: bool = False,
) -> list[Outcome]:
    """Check all data sets under `paths`: workspaces, folders of records, or record files.

    `vocab` is used instead of the vocab.txt beside the records, `masked_lm_prob` for records without a manifest (default 0.15).
    With `sample`, only that many records of each file are read, and checks that need all of them are skipped. The outcomes hold
    all findings, also those about unreadable files; raises `UsageError` if a path holds no data, and `BertprepError` if `vocab`
    is not a vocabulary.

        errors = sum(outcome.errors for outcome in bertprep.validate(["data"]))
    """
    from bertprep import kernels
    from bertprep.check.record_sets import validate_records
    from bertprep.check.task_sets import kind_of_data_set, validate_task_records
    from bertprep.check.token_sets import validate_tokens
    from bertprep.instances import load_vocabulary
    from bertprep.records.data_sets import find_data_sets
    from bertprep.records.examples import MaskedExamples

    reporter = Reporter(enabled=progress)
    if masked_lm_prob is not None and not 0 < masked_lm_prob <= 1:
        raise UsageError(f"--masked-lm-prob {masked_lm_prob}: must be above 0 and at most 1")
    if sample is not None and sample < 1:
        raise UsageError(f"--sample {sample}: must be at least 1")
    data_sets = find_data_sets(paths)
    for note in (note for data_set in data_sets for note in data_set.notes):
        reporter.say(note)
    vocabulary = load_vocabulary(place(vocab)) if vocab is not None else None
    workers = pool.choose_workers(workers, engine, read=[data_set.folder for data_set in data_sets])
    kernels.load()  # before workers are forked, so that they share it
    with reporter.progress("validate", sum(len(s.files) for s in data_sets), "files") as shown:
        return [
            _validate_text(data_set, workers=workers, sample=sample, shown=shown)
            if data_set.kind == TEXT_SHARDS
            else validate_tokens(data_set, vocabulary, sample=sample, workers=workers, shown=shown)
            if data_set.kind == TOKEN_SHARDS
            else validate_task_records(data_set, vocabulary, sample=sample, workers=workers, shown=shown)
            if not issubclass(kind_of_data_set(data_set), MaskedExamples)
            else validate_records(
                data_set, vocabulary, masked_lm_prob=masked_lm_prob, sample=sample, workers=workers, shown=shown
            )
            for data_set in data_sets
        ]


def _validate_text(data_set: DataSet, *, workers: int, sample: int | None, shown: Progress) -> Outcome:
    """Check text shards, against their manifest and as text; with `sample` only that they exist."""
    from bertprep.check.manifest_checks import check_manifest
    from bertprep.check.outcome import FileFacts, Outcome
    from bertprep.check.text_checks import check_text_shards

    folder, manifest = data_set.folder, data_set.manifest
    findings = check_manifest(data_set)
    facts = manifest.files if manifest else {}
    there = sizes_of(folder, data_set.files)
    left = dict(there)

    def scanned(shards: list[ScannedShard]) -> None:
        sizes = [left.pop(shard.name) for shard in shards if shard.name in left]
        if sizes:
            shown.advance(len(sizes), MB=sum(sizes) / 1e6)

    if sample is None:
        findings += check_text_shards(folder, manifest, workers, scanned)
    files = [
        FileFacts(name, split, facts.get(name, {}).get("documents", 0), there[name])
        for name, split in data_set.files.items()
        if name in there
    ]
    shown.advance(len(data_set.files) - len(there) + len(left), MB=sum(left.values()) / 1e6)
    return Outcome(
        folder=folder,
        kind=TEXT_SHARDS,
        manifest=manifest,
        vocabulary=None,
        sampled=sample is not None,
        files=files,
        findings=sorted(findings, key=lambda finding: finding.level != ERROR),
    )


def finding_lines(outcomes: Sequence[Outcome]) -> list[str]:
    """The findings of all data sets, errors first, each with the folder of its file."""
    lines = []
    found = [(outcome, finding) for outcome in outcomes for finding in outcome.findings]
    shown: dict[tuple[Path, str], int] = {}
    for outcome, finding in sorted(found, key=lambda pair: pair[1].level != ERROR):
        key = (outcome.folder, finding.code)
        shown[key] = shown.get(key, 0) + 1
        if shown[key] <= SHOWN_OF_A_CODE:
            lines.append(str(Finding(**{**finding.as_json(), "file": str(outcome.folder / finding.file)})))
    lines += [
        f"{folder}: {count - SHOWN_OF_A_CODE:,} more findings {code}, which --json FILE has"
        for (folder, code), count in shown.items()
        if count > SHOWN_OF_A_CODE
    ]
    return lines


def table_rows(outcomes: Sequence[Outcome]) -> list[tuple[str, ...]]:
    """A row for each split; the first row of a data set has its findings."""
    rows: list[tuple[str, ...]] = [_HEADER]
    names = name_outcomes(outcomes)
    for outcome, name in zip(outcomes, names, strict=True):
        splits = sorted({facts.split for facts in outcome.files}, key=split_order) or [""]
        for at, split in enumerate(splits):
            counts = _count_levels(outcome.findings) if at == 0 else ("", "")
            files = [facts for facts in outcome.files if facts.split == split]
            is_of_records = outcome.kind not in (TEXT_SHARDS, TOKEN_SHARDS)
            records = f"{sum(facts.records for facts in files):,}" if is_of_records else ""
            fractions = _fractions_in_words(outcome.tallies[split]) if split in outcome.tallies else ("",) * 6
            if split in outcome.token_tallies:
                fractions = (f"{outcome.token_tallies[split].tokens:,}", *fractions[1:])
            rows.append((name, split, f"{len(files):,}", records, *fractions, *counts))
    return rows


def name_outcomes(outcomes: Sequence[Outcome]) -> list[str]:
    """A short name for each data set, numbered if several would be equal."""
    plain = [f"{outcome.folder.absolute().name}, {outcome.kind}{_sizes_in_words(outcome)}" for outcome in outcomes]
    return [name if plain.count(name) == 1 else f"{name} ({plain[:at].count(name) + 1})" for at, name in enumerate(plain)]


def _sizes_in_words(outcome: Outcome) -> str:
    return f" {outcome.seq}/{outcome.pred}" if outcome.pred else f" {outcome.seq}" if outcome.seq else ""


def folder_lines(outcomes: Sequence[Outcome]) -> list[str]:
    """The paths of the data sets whose names had to be numbered."""
    names = name_outcomes(outcomes)
    return [f"{name}: {of.folder}" for name, of in zip(names, outcomes, strict=True) if name.endswith(")")]


def write_json(outcomes: Sequence[Outcome], path: Path) -> None:
    """Write all outcomes as one JSON file."""
    content = {"data_sets": [outcome_as_json(outcome) for outcome in outcomes]}
    with atomic_file(path, replace=True) as file:
        file.write((json.dumps(content, indent=1) + "\n").encode())


def outcome_as_json(outcome: Outcome) -> dict[str, Any]:
    """An outcome as plain values."""
    return {
        "folder": str(outcome.folder),
        "kind": outcome.kind,
        "seq": outcome.seq,
        "pred": outcome.pred,
        "vocabulary": str(outcome.vocabulary) if outcome.vocabulary else None,
        "sampled": outcome.sampled,
        "errors": outcome.errors,
        "findings": [finding.as_json() for finding in outcome.findings],
        "splits": {
            **{split: _tally_as_json(tally) for split, tally in outcome.tallies.items()},
            **{split: _tokens_as_json(tally) for split, tally in outcome.token_tallies.items()},
        },
        "duplicates": outcome.duplicates,
        "files": [vars(facts) for facts in outcome.files],
    }


def _tokens_as_json(tally: TokenTally) -> dict[str, Any]:
    return {**vars(tally), "lengths": tally.lengths.tolist()}


def _tally_as_json(tally: Tally) -> dict[str, Any]:
    import numpy as np

    from bertprep.check.expectations import SHOWN

    shown, predictions = tally.shown.tolist(), int(tally.shown.sum())
    seq = len(tally.lengths) - 1
    return {
        "records": tally.records,
        "tokens": tally.text_tokens,
        "padding_share": tally.padding_share,
        "predictions": predictions,
        "shown": {name: _fraction(count, predictions) for name, count in zip(SHOWN, shown, strict=True)},
        **({"random_next": _fraction(int(tally.next_sentence[1]), tally.records)} if tally.has_pairs else {}),
        "short": _fraction(tally.records - int(tally.lengths[seq]), tally.records),
        "masked": predictions / max(tally.text_tokens, 1),
        "lengths": np.trim_zeros(tally.lengths, "b").tolist(),
        "predictions_per_record": tally.predictions.tolist(),
        "positions": tally.positions.tolist(),
    }


def _fraction(count: int, of: int) -> dict[str, Any]:
    """With the interval that misses the true fraction once in a million times."""
    from bertprep.check.expectations import fraction_interval

    return {"count": count, "share": count / max(of, 1), "interval": fraction_interval(count, of)}


def _fractions_in_words(tally: Tally) -> tuple[str, ...]:
    predictions, records = max(int(tally.shown.sum()), 1), max(tally.records, 1)
    return (
        f"{tally.text_tokens:,}",
        f"{tally.padding_share:.1%}",
        *(f"{count / predictions:.2%}" for count in tally.shown.tolist()),
        f"{int(tally.next_sentence[1]) / records:.1%}" if tally.has_pairs or not tally.records else "",
    )


def _count_levels(findings: Sequence[Finding]) -> tuple[str, str]:
    errors = sum(finding.level == ERROR for finding in findings)
    return f"{errors:,}", f"{len(findings) - errors:,}"

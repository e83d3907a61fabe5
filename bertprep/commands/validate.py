"""`bertprep validate`: checks every file, every record and the statistics of data sets; docs/validation.md has the findings."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from bertprep.commands.request import OnExecutor, WithVocabulary, check_target, function_of
from bertprep.errors import BertprepError
from bertprep.files.atomic import atomic_file, explain_write_error
from bertprep.files.paths import as_path, is_object, path_arg
from bertprep.options import MAX_NUMBER, OPTIONS, described, option
from bertprep.terminal import counted, print_message, print_results, print_table
from bertprep.work.layout import MANIFEST

if TYPE_CHECKING:
    from bertprep.check.outcome import Outcome


@dataclass(frozen=True, kw_only=True)
class Validate(WithVocabulary, OnExecutor):
    """What is checked, and how much of it."""

    group: ClassVar[str] = OPTIONS
    paths: Sequence[Path | str] = field(
        default=(Path("data"),),
        kw_only=False,
        metadata=described(
            "a workspace, a folder of records or token shards, or such files, written by any tool (default: data)",
            metavar="PATH",
            check=path_arg,
            positional=True,
        ),
    )
    masked_lm_prob: float | None = option(
        None, "fraction of masked tokens in records without a manifest (default: 0.15)", above=0, most=1
    )
    sample: int | None = option(None, "check only this many records of each file", least=1, most=MAX_NUMBER)
    remove_damaged: bool = option(
        False,
        "remove files whose size or checksum differs from their manifest, so that the command that made them makes them again",
    )

    def validate(self) -> list[Outcome]:
        """Check all data sets under `paths`: workspaces, folders of records, or record files.

        `vocab` replaces the vocab.txt next to the records, `masked_lm_prob` is for records without a manifest. With `sample`,
        only that many records of each file are read. With `remove_damaged` files of another size or checksum than listed are
        removed.

            errors = sum(outcome.errors for outcome in bertprep.validate(["data"]))
        """
        from bertprep import kernels
        from bertprep.check.data_set import check_data_set
        from bertprep.instances import load_vocabulary
        from bertprep.records.data_sets import find_data_sets

        reporter = self.reporter
        data_sets = find_data_sets(self.paths)
        for note in (note for data_set in data_sets for note in data_set.notes):
            reporter.message(note)
        vocabulary = load_vocabulary(as_path(self.vocab)) if self.vocab is not None else None
        workers = self.start_workers(read=[data_set.folder for data_set in data_sets])
        kernels.load()  # before workers are forked, so that they share it
        with reporter.progress("validate", sum(len(s.files) for s in data_sets), "files") as shown:
            how: dict[str, Any] = {"masked_lm_prob": self.masked_lm_prob, "sample": self.sample, "workers": workers}
            how["checksums"] = self.sample is None or self.remove_damaged
            outcomes = [check_data_set(each, vocabulary, shown=shown, **how) for each in data_sets]
        _compare_texts(outcomes)
        if self.remove_damaged and (removed := sum(map(_remove_damaged, outcomes))):
            print_message(f"{counted(removed, 'file')} {'was' if removed == 1 else 'were'} removed")
        return outcomes


@dataclass(frozen=True, kw_only=True)
class ValidateAndShow(Validate):
    """And where the result is written."""

    json: Path | str | None = option(None, "also write the full result to FILE", metavar="FILE", check=path_arg)
    html: Path | str | None = option(
        None, "also write the result with charts and examples to PAGE", metavar="PAGE", check=path_arg
    )


REQUEST = ValidateAndShow
validate = function_of(Validate, Validate.validate)


def run(request: ValidateAndShow) -> None:
    """Print the findings, errors first, and a table; with --json also write all of it to a file."""
    vocab, to_json, to_html = (None if each is None else as_path(each) for each in (request.vocab, request.json, request.html))
    check_target("--json", to_json, ".json")
    check_target("--html", to_html, ".html")
    if to_html:
        from bertprep.check.page import check_installed, write_page

        check_installed()
    outcomes = request.validate()
    names = _name_outcomes(outcomes)
    print_results(*_finding_lines(outcomes))
    print_table(_table_rows(outcomes, names))
    print_results(*(f"{name}: {of.folder}" for name, of in zip(names, outcomes, strict=True) if name.endswith(")")))
    if request.sample:
        checked, unchecked = f"{counted(request.sample, 'record')} of each file", "duplicates, checksums and text shards"
        if request.remove_damaged:
            checked, unchecked = f"{checked}, all checksums and text shards", "duplicates of records"
        print_results(f"checked: {checked}; not checked: {unchecked}")
    if to_json:
        write_json(outcomes, to_json)
    if to_html:
        write_page(outcomes, vocab, to_html)
    if errors := sum(outcome.errors for outcome in outcomes):
        found = "1 error was" if errors == 1 else f"{errors:,} errors were"
        raise BertprepError(f"{found} found; docs/validation.md says what each means and what to do")


def _remove_damaged(outcome: Outcome) -> int:
    removed = 0
    listed = outcome.manifest.files if outcome.manifest else {}
    for finding in outcome.findings:
        if finding.code != "file-changed" or finding.file not in listed:
            continue
        path, folder = outcome.folder / finding.file, outcome.folder
        if not is_object(path) and path.parent.resolve() != folder.resolve() / Path(finding.file).parent:
            raise BertprepError(f"{path.parent}: is a link, and nothing is removed there; remove {path.name} there yourself")
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise explain_write_error(path, error) from error
        print_message(f"{path}: has {finding.found}, expected {finding.expected}; removed; run the command that made it again")
        removed += 1
    return removed


def _compare_texts(outcomes: Sequence[Outcome]) -> None:
    from bertprep.check.outcome import Finding
    from bertprep.commands.record_job import digest_of_shards

    texts = {digest_of_shards(each.manifest): each.texts for each in outcomes if each.manifest and each.texts}
    for outcome in outcomes:
        manifest = outcome.manifest
        crc32c_of = texts.get(manifest.made_with.get("text_sha256", ""), {}) if manifest else {}
        for name, entry in manifest.files.items() if manifest and crc32c_of else ():
            text = entry.get("text", {})
            expected, found = crc32c_of.get(str(text.get("name"))), text.get("crc32c")
            if expected not in (None, found):
                right = f"to be made of {text['name']} as it is now, crc32c {expected}"
                wrong = f"crc32c {found[:16]}, as {MANIFEST} says"
                outcome.findings.insert(0, Finding("text-changed", name, right, wrong))


def _finding_lines(outcomes: Sequence[Outcome]) -> list[str]:
    from bertprep.check.outcome import ERROR, SHOWN_OF_A_CODE

    found: dict[tuple[str, Path, str], list[str]] = {}
    for outcome in outcomes:
        for each in outcome.findings:
            line = str(replace(each, file=str(outcome.folder / each.file)))
            found.setdefault((each.level, outcome.folder, each.code), []).append(line)
    lines, more = [], []
    for (_, folder, code), alike in sorted(found.items(), key=lambda item: item[0][0] != ERROR):
        lines += alike[:SHOWN_OF_A_CODE]
        if len(alike) > SHOWN_OF_A_CODE:
            more.append(f"{folder}: {len(alike) - SHOWN_OF_A_CODE:,} more findings {code}, which --json FILE has")
    return [*lines, *more]


def _table_rows(outcomes: Sequence[Outcome], names: Sequence[str]) -> list[tuple[str, ...]]:
    from bertprep.check.outcome import SPLIT_HEADER

    rows: list[tuple[str, ...]] = [("data set", *SPLIT_HEADER, "errors", "warnings")]
    for outcome, name in zip(outcomes, names, strict=True):
        found = (f"{outcome.errors:,}", f"{len(outcome.findings) - outcome.errors:,}")
        for row in outcome.split_rows():
            rows.append((name, *row, *found))
            found = ("", "")
    return rows


def _name_outcomes(outcomes: Sequence[Outcome]) -> list[str]:
    sizes = [f" {of.seq}/{of.pred}" if of.pred else f" {of.seq or ''}".rstrip() for of in outcomes]
    plain = [f"{of.folder.absolute().name}, {of.kind}{size}" for of, size in zip(outcomes, sizes, strict=True)]
    return [name if plain.count(name) == 1 else f"{name} ({plain[:at].count(name) + 1})" for at, name in enumerate(plain)]


def write_json(outcomes: Sequence[Outcome], path: Path) -> None:
    """Write all outcomes as one JSON file."""
    content = []
    for of in outcomes:
        splits: dict[str, dict[str, Any]] = {
            split: {
                "records": counts.records,
                "tokens": counts.text_tokens,
                "padding_share": counts.padding_share,
                "fractions": {each.name: each.as_json() for each in of.expected[split].fractions},
                "lengths": counts.lengths.tolist(),
                "predictions_per_record": counts.predictions.tolist(),
                "positions": counts.positions.tolist(),
            }
            for split, counts in of.counts.items()
        }
        splits |= {split: {**vars(counts), "lengths": counts.lengths.tolist()} for split, counts in of.token_counts.items()}
        plain = ("kind", "seq", "pred", "sampled", "errors", "duplicates")
        content.append(
            {
                "folder": str(of.folder),
                **{name: getattr(of, name) for name in plain},
                "vocabulary": str(of.vocabulary) if of.vocabulary else None,
                "findings": [vars(finding) for finding in of.findings],
                "splits": splits,
                "files": [vars(file) for file in of.files],
            }
        )
    with atomic_file(path, replace=True) as file:
        file.write((json.dumps({"data_sets": content}, indent=1) + "\n").encode())

"""`bertprep validate`: checks every file, every record and the statistics of data sets; docs/validation.md has the findings."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from bertprep.commands.function import function_of
from bertprep.commands.request import OnExecutor, WithVocabulary, check_target
from bertprep.errors import BertprepError, UsageError
from bertprep.files.atomic import explain_write_error
from bertprep.files.outputs import begins_with, write_output
from bertprep.files.paths import as_path, is_object, path_arg, real_path
from bertprep.options import MAX_NUMBER, OPTIONS, described, option
from bertprep.terminal import counted, print_message, print_results, print_table, warn
from bertprep.work.layout import MANIFEST, TOKENIZER
from bertprep.work.manifest import MDS, sha256_of_text

if TYPE_CHECKING:
    from bertprep.check.outcome import Outcome
    from bertprep.work.data_set import DataSet

_IS_RESULT = begins_with(b'{\n "data_sets": [')


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
    whole_word: bool = option(False, "records without a manifest mask whole words")
    sample: int | None = option(None, "check only this many records of each file", least=1, most=MAX_NUMBER)
    remove_damaged: bool = option(
        False,
        "remove files whose size or checksum differs from their manifest, so that the command that made them makes them again",
    )

    json: Path | str | None = option(None, "also write the full result to FILE", metavar="FILE", check=path_arg, shell=True)
    html: Path | str | None = option(
        None, "also write the result with charts and examples to PAGE", metavar="PAGE", check=path_arg, shell=True
    )

    def validate(self) -> list[Outcome]:
        """Check all data sets under `paths`: workspaces, folders of records, or record files.

        `vocab` replaces the vocab.txt of the records; `masked_lm_prob` and `whole_word` are for records without a manifest.
        With `sample`, only that many records of each file are read. With `remove_damaged` files are removed whose size or
        checksum is not the listed one.

            for outcome in bertprep.validate(["data"]):
                print(outcome)  # a table; outcome.ok, outcome.findings
        """
        from bertprep import kernels
        from bertprep.check.data_set import check_data_set
        from bertprep.instances import load_vocabulary
        from bertprep.work.find import find_data_sets

        if not self.paths:
            raise UsageError("no data; name at least one folder or file")
        reporter = self.reporter
        data_sets = _without_mds(find_data_sets(self.paths))
        for note in (note for data_set in data_sets for note in data_set.notes):
            warn(note)
        if self.vocab is not None and all(data_set.has_documents for data_set in data_sets):
            raise UsageError(
                f"--vocab {self.vocab}: is not for documents of any tokenizer, whose {TOKENIZER} is next to them; leave it out"
            )
        vocabulary = load_vocabulary(as_path(self.vocab)) if self.vocab is not None else None
        workers = self.start_workers(read=[data_set.folder for data_set in data_sets])
        kernels.load()  # before workers are forked, so that they share it
        with reporter.progress("validate", sum(len(s.files) for s in data_sets), "files") as shown:
            how: dict[str, Any] = {
                "masked_lm_prob": self.masked_lm_prob,
                "whole_word": self.whole_word,
                "sample": self.sample,
                "workers": workers,
            }
            how["checksums"] = self.sample is None or self.remove_damaged
            outcomes = [check_data_set(each, vocabulary, shown=shown, **how) for each in data_sets]
        _compare_texts(outcomes)
        if self.remove_damaged and (removed := sum(map(_remove_damaged, outcomes))):
            print_message(f"{counted(removed, 'file')} {'was' if removed == 1 else 'were'} removed")
        return outcomes


REQUEST = Validate
validate = function_of(Validate, Validate.validate)


def run(request: Validate) -> None:
    """Print the findings, errors first, a table and a verdict; with --json also write all of it to a file."""
    from bertprep.check.outcome import verdict

    vocab, to_json, to_html = (None if each is None else as_path(each) for each in (request.vocab, request.json, request.html))
    check_target("--json", to_json, ".json", _IS_RESULT)
    if to_html:
        from bertprep.check.page import IS_PAGE, check_installed, write_page

        check_target("--html", to_html, ".html", IS_PAGE)
        if to_json and real_path(to_json) == real_path(to_html):
            raise UsageError(f"--html {to_html}: is the file of --json too; name another")
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
    print_results(verdict(outcomes))
    if errors := sum(outcome.errors for outcome in outcomes):
        raise BertprepError(f"{counted(errors, 'error')} found; each line above says what to do")


def _without_mds(data_sets: Sequence[DataSet]) -> list[DataSet]:
    """Return the data sets that are checked here, and remark on MDS; raises `UsageError` where there is nothing else."""
    from bertprep.tokens.mds import tell_who_reads

    others = [each for each in data_sets if each.content != MDS]
    of_mds = [each for each in data_sets if each.content == MDS]
    lines = [tell_who_reads(each.folder, (each.folder / next(iter(each.files), "index.json")).parent) for each in of_mds]
    if not others:
        raise UsageError(lines[0])
    for line in lines:
        warn(line)
    return others


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
    from bertprep.check.finding import Finding

    texts = {sha256_of_text(each.manifest): each.texts for each in outcomes if each.manifest and each.texts}
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
    """Return a line for each finding, errors first; the advice follows the first of those that share it."""
    from bertprep.check.finding import ERROR
    from bertprep.check.outcome import SHOWN_OF_A_CODE

    found: dict[tuple[str, Path, str], list[str]] = {}
    advised: set[tuple[Path, str, str]] = set()
    for outcome in outcomes:
        for each in outcome.findings:
            named = replace(each, file=str(outcome.folder / each.file))
            is_new = (outcome.folder, each.code, each.advice) not in advised
            advised.add((outcome.folder, each.code, each.advice))
            found.setdefault((each.level, outcome.folder, each.code), []).append(str(named) if is_new else named.fault)
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
        found = (f"{outcome.errors:,}", f"{outcome.warnings:,}")
        for row in outcome.split_rows():
            rows.append((name, *row, *found))
            found = ("", "")
    return rows


def _name_outcomes(outcomes: Sequence[Outcome]) -> list[str]:
    """Return the title of each data set, numbered where several have the same."""
    titles = [outcome.title for outcome in outcomes]
    names = []
    for at, title in enumerate(titles):
        number = titles[:at].count(title) + 1
        names.append(f"{title} ({number})" if titles.count(title) > 1 else title)
    return names


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
        for split, shards in of.token_counts.items():
            by_sentences = {"documents_by_sentences": shards.documents_by_sentences.tolist()}
            splits[split] = {**vars(shards), "lengths": shards.lengths.tolist(), **by_sentences}
        for split, (tokens, labels) in of.unknown.items():
            splits[split] |= {"unknown_share": tokens, "unknown_share_of_labels": labels}
        plain = ("kind", "seq", "pred", "sampled", "ok", "errors", "warnings", "duplicates")
        content.append(
            {
                "folder": str(of.folder),
                **{name: getattr(of, name) for name in plain},
                "vocabulary": str(of.vocabulary) if of.vocabulary else None,
                "findings": [vars(finding) for finding in of.findings],
                "splits": splits,
                "files": [
                    {name: getattr(file, name) for name in ("name", "split", "records", "size_bytes")} for file in of.files
                ],
            }
        )
    write_output(path, (json.dumps({"data_sets": content}, indent=1) + "\n").encode(), _IS_RESULT, "--json")

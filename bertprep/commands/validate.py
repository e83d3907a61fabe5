"""`bertprep validate`: check every file, record and statistic of data sets. docs/reference/findings.md lists the findings."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from bertprep.commands.function import function_of
from bertprep.commands.request import OnExecutor, WithVocabulary, check_target
from bertprep.errors import BertprepError, UsageError
from bertprep.files.outputs import begins_with, write_output
from bertprep.files.paths import as_path, path_arg, real_path
from bertprep.options import MAX_NUMBER, OPTIONS, described, option
from bertprep.terminal import counted, print_message, print_results, warn
from bertprep.work.layout import MANIFEST, TOKENIZER
from bertprep.work.manifest import MDS, RECORDS, TEXT_SHARDS

if TYPE_CHECKING:
    from bertprep.check.outcome import Outcome
    from bertprep.work.data_set import DataSet

_IS_RESULT = begins_with(b'{\n "data_sets": [')


@dataclass(frozen=True, kw_only=True)
class Validate(WithVocabulary, OnExecutor):
    """The request of `validate`: data sets, and settings for those without a manifest."""

    group: ClassVar[str] = OPTIONS
    paths: Sequence[Path | str] = field(
        default=(Path("data"),),
        kw_only=False,
        metadata=described(
            "a workspace, or a folder or files of records or token shards, written by any tool (default: data)",
            metavar="PATH",
            check=path_arg,
            positional=True,
        ),
    )
    masked_lm_prob: float | None = option(
        None, "fraction of masked tokens in records without a manifest (default: 0.15)", above=0, most=1
    )
    whole_word: bool = option(False, "expect whole-word masks in records without a manifest")
    pred: int | None = option(
        None, "maximum number of predictions in a record, for Arrow and Parquet files that do not state it (default: the "
        "largest number found)", metavar="N", least=1, rare=True,
    )  # fmt: skip
    sample: int | None = option(None, "check only this many records of each file", least=1, most=MAX_NUMBER)
    remove_damaged: bool = option(
        False,
        "remove files whose size or checksum differs from the manifest, so that the command that made them can make them again",
    )

    json: Path | str | None = option(None, "also write the full result to FILE", metavar="FILE", check=path_arg, shell=True)
    html: Path | str | None = option(
        None,
        "also write the result, with charts and examples, as a web page to PAGE",
        metavar="PAGE",
        check=path_arg,
        shell=True,
    )

    def validate(self) -> list[Outcome]:
        """Check all data sets under `paths`: workspaces, folders of records, or record files.

        `vocab` replaces the vocab.txt of the records; `masked_lm_prob` and `whole_word` apply to records without a manifest.
        With `sample`, only that many records of each file are read. `remove_damaged` removes the files whose size or checksum
        differs from their manifest.

            for outcome in bertprep.validate(["data"]):
                print(outcome)  # as the command prints it; outcome.ok, outcome.findings
        """
        from bertprep import kernels
        from bertprep.check.data_set import check_data_set
        from bertprep.check.folder import remove_damaged
        from bertprep.check.text_shards import compare_texts
        from bertprep.instances import load_vocabulary
        from bertprep.work.find import find_data_sets

        if not self.paths:
            raise UsageError("no data; name at least one folder or file")
        reporter = self.reporter
        data_sets = _without_mds(find_data_sets(self.paths, with_empty=True))
        for data_set in data_sets:
            for note in data_set.notes:
                warn(note)
        self._refuse_unused(data_sets)
        vocabulary = load_vocabulary(as_path(self.vocab)) if self.vocab is not None else None
        workers = self.start_workers(read=[data_set.folder for data_set in data_sets])
        kernels.load()  # before workers fork, so that they share the compiled code
        files = sum(len(data_set.files) for data_set in data_sets)
        with reporter.progress("validate", files, "files") as shown:
            how: dict[str, Any] = {
                "masked_lm_prob": self.masked_lm_prob,
                "whole_word": self.whole_word,
                "pred": self.pred,
                "sample": self.sample,
                "checksums": self.sample is None or self.remove_damaged,
                "workers": workers,
            }
            outcomes = [check_data_set(data_set, vocabulary, shown=shown, **how) for data_set in data_sets]
        compare_texts(outcomes)
        if self.remove_damaged:
            removed = [outcome.folder / name for outcome in outcomes for name in remove_damaged(outcome)]
            for path in removed:
                print_message(f"{path}: removed, since its bytes are not those that its manifest lists")
            if removed:
                print_message(f"{counted(len(removed), 'file')} {'was' if len(removed) == 1 else 'were'} removed")
        return outcomes

    def _refuse_unused(self, data_sets: Sequence[DataSet]) -> None:
        """Raise `UsageError` for an option that is about none of the data sets."""
        if self.vocab is not None and all(each.has_documents or each.content == TEXT_SHARDS for each in data_sets):
            what = f"whole documents, which have their {TOKENIZER} next to them"
            what = what if any(each.has_documents for each in data_sets) else "text shards, which need none"
            raise UsageError(f"--vocab {self.vocab}: is not for {what}; leave it out")
        of_records = {
            f"--masked-lm-prob {self.masked_lm_prob}": self.masked_lm_prob is not None,
            "--whole-word": self.whole_word,
            f"--pred {self.pred}": self.pred is not None,
        }
        if any(each.content == RECORDS and each.manifest is None for each in data_sets):
            return
        for name, is_given in of_records.items():
            if is_given:
                raise UsageError(
                    f"{name}: is for records without a {MANIFEST}, and there are none; leave it out, since a manifest has all "
                    "settings"
                )


REQUEST = Validate
validate = function_of(Validate, Validate.validate)


def run(request: Validate) -> None:
    """Print the findings (errors first), the tables of each data set and a verdict; write the files of --json and --html."""
    from bertprep.check.outcome import verdict

    to_json = None if request.json is None else as_path(request.json)
    to_html = None if request.html is None else as_path(request.html)
    check_target("--json", to_json, ".json", _IS_RESULT)
    if to_html:
        from bertprep.check.page import IS_PAGE, write_page

        check_target("--html", to_html, ".html", IS_PAGE)
        if to_json and real_path(to_json) == real_path(to_html):
            raise UsageError(f"--html {to_html}: is also the file of --json; name two different files")
    outcomes = request.validate()
    print_results(*_finding_lines(outcomes))
    titles = [outcome.title for outcome in outcomes]
    for outcome in outcomes:
        is_unique = titles.count(outcome.title) == 1
        print_results(*outcome.summary(outcome.title if is_unique else f"{outcome.title} in {outcome.folder}"))
    if request.sample:
        checked, unchecked = f"{counted(request.sample, 'record')} of each file", "duplicates, checksums and text shards"
        if request.remove_damaged:
            checked, unchecked = f"{checked}, all checksums and text shards", "duplicates of records"
        print_results(f"checked: {checked}; not checked: {unchecked}")
    if to_json:
        write_json(outcomes, to_json)
    if to_html:
        write_page(outcomes, None if request.vocab is None else as_path(request.vocab), to_html)
    print_results(verdict(outcomes))
    if errors := sum(outcome.errors for outcome in outcomes):
        raise BertprepError(f"{counted(errors, 'error')} found; each line above says what to do")


def _without_mds(data_sets: Sequence[DataSet]) -> list[DataSet]:
    """Return the data sets other than MDS, which is not checked, and warn about it; raise `UsageError` if there is only MDS."""
    from bertprep.tokens.mds import tell_who_reads

    others, lines = [], []
    for data_set in data_sets:
        if data_set.content == MDS and data_set.is_unfinished:
            others.append(replace(data_set, files={}, manifest=None))  # to report that alone
        elif data_set.content == MDS:
            first = data_set.folder / next(iter(data_set.files), "index.json")
            lines.append(tell_who_reads(data_set.folder, first.parent))
        else:
            others.append(data_set)
    if not others:
        raise UsageError(lines[0])
    for line in lines:
        warn(line)
    return others


def _finding_lines(outcomes: Sequence[Outcome]) -> list[str]:
    """Return a line for each finding, errors first; of findings with the same advice, only the first line has it."""
    from bertprep.check.finding import ERROR
    from bertprep.check.outcome import SHOWN_OF_A_CODE

    alike: dict[tuple[str, Path, str], list[str]] = {}
    advised: set[tuple[Path, str, str]] = set()
    for outcome in outcomes:
        for finding in outcome.findings:
            named = replace(finding, file=str(outcome.folder / finding.file))
            advice = outcome.folder, finding.code, finding.advice
            line = named.fault if advice in advised else str(named)
            advised.add(advice)
            alike.setdefault((finding.level, outcome.folder, finding.code), []).append(line)
    lines, more = [], []
    for (_, folder, code), lines_of_code in sorted(alike.items(), key=lambda item: item[0][0] != ERROR):
        lines += lines_of_code[:SHOWN_OF_A_CODE]
        if len(lines_of_code) > SHOWN_OF_A_CODE:
            more.append(f"{folder}: {len(lines_of_code) - SHOWN_OF_A_CODE:,} more findings {code}; --json FILE writes all")
    return [*lines, *more]


def write_json(outcomes: Sequence[Outcome], path: Path) -> None:
    """Write all outcomes as one JSON file."""
    content = {"data_sets": [outcome.as_json() for outcome in outcomes]}
    write_output(path, (json.dumps(content, indent=1) + "\n").encode(), _IS_RESULT, "--json")

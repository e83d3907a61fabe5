"""`bertprep validate`: checks every file, every record and the statistics of each data set under some paths.

The checks are in `bertprep.check`; docs/validation.md explains each finding and how it is judged. One bad file or record never
stops the others.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from bertprep.commands.request import OnExecutor, WithVocabulary, function_of
from bertprep.errors import BertprepError
from bertprep.files.atomic import atomic_file
from bertprep.files.places import as_path, place
from bertprep.options import MOST, OPTIONS, described, option
from bertprep.terminal import tell, tell_table
from bertprep.workspace.layout import MANIFEST, split_order
from bertprep.workspace.manifest import TEXT_SHARDS, TOKEN_SHARDS
from bertprep.workspace.targets import check_target

if TYPE_CHECKING:
    from bertprep.check.outcome import Outcome, RecordCounts

_HEADER = (
    "data set", "split", "files", "records", "tokens", "padding", "[MASK]", "kept", "random", "random next",
    "errors", "warnings",
)  # fmt: skip


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
            check=as_path,
            positional=True,
        ),
    )
    masked_lm_prob: float | None = option(
        None, "fraction of masked tokens in records without a manifest (default: 0.15)", above=0, most=1
    )
    sample: int | None = option(None, "check only this many records of each file", least=1, most=MOST)

    def validate(self) -> list[Outcome]:
        """Check all data sets under `paths`: workspaces, folders of records, or record files.

        `vocab` is used instead of the vocab.txt next to the records, `masked_lm_prob` for records without a manifest. With
        `sample`, only that many records of each file are read, and checks that need all of them are skipped. The outcomes hold
        all findings, also those about unreadable files; raises `UsageError` if a path holds no data, and `BertprepError` if
        `vocab` is not a vocabulary.

            errors = sum(outcome.errors for outcome in bertprep.validate(["data"]))
        """
        from bertprep import kernels
        from bertprep.check.data_set import check_data_set
        from bertprep.instances import load_vocabulary
        from bertprep.records.data_sets import find_data_sets

        reporter = self.reporter
        data_sets = find_data_sets(self.paths)
        for note in (note for data_set in data_sets for note in data_set.notes):
            reporter.say(note)
        vocabulary = load_vocabulary(place(self.vocab)) if self.vocab is not None else None
        workers = self.start_workers(read=[data_set.folder for data_set in data_sets])
        kernels.load()  # before workers are forked, so that they share it
        with reporter.progress("validate", sum(len(s.files) for s in data_sets), "files") as shown:
            how: dict[str, Any] = {"sample": self.sample, "workers": workers, "shown": shown}
            outcomes = [check_data_set(each, vocabulary, masked_lm_prob=self.masked_lm_prob, **how) for each in data_sets]
        _compare_texts(outcomes)
        return outcomes


@dataclass(frozen=True, kw_only=True)
class ValidateAndShow(Validate):
    """And where the result is written."""

    json: Path | str | None = option(None, "also write the full result to FILE", metavar="FILE", check=as_path)
    html: Path | str | None = option(
        None, "also write the result with charts and examples to PAGE", metavar="PAGE", check=as_path
    )


REQUEST = ValidateAndShow
validate = function_of(Validate, Validate.validate)


def run(request: ValidateAndShow) -> None:
    """Print the findings, errors first, and a table of what was checked; with --json also write all of it to a file."""
    vocab, to_json, to_html = (None if each is None else place(each) for each in (request.vocab, request.json, request.html))
    check_target("--json", to_json, ".json")
    check_target("--html", to_html, ".html")
    if to_html:
        from bertprep.check.page import check_installed, write_page

        check_installed()
    outcomes = request.validate()
    names = _name_outcomes(outcomes)
    tell(*_finding_lines(outcomes))
    tell_table(_table_rows(outcomes, names))
    tell(*(f"{name}: {of.folder}" for name, of in zip(names, outcomes, strict=True) if name.endswith(")")))
    if request.sample:
        tell(f"{request.sample:,} records of each file were checked; duplicates, checksums and text shards were not")
    if to_json:
        write_json(outcomes, to_json)
    if to_html:
        write_page(outcomes, vocab, to_html)
    if errors := sum(outcome.errors for outcome in outcomes):
        found = "1 error was" if errors == 1 else f"{errors:,} errors were"
        raise BertprepError(f"{found} found; docs/validation.md says what each means and what to do")


def _compare_texts(outcomes: Sequence[Outcome]) -> None:
    """Add findings about records and token shards whose text was not that of the text shards of which they are."""
    from bertprep.check.outcome import Finding
    from bertprep.commands.record_job import digest_of_shards

    texts = {digest_of_shards(each.manifest): each.texts for each in outcomes if each.manifest and each.texts}
    for outcome in outcomes:
        crc32c_of = texts.get(outcome.manifest.made_with.get("text_sha256", ""), {}) if outcome.manifest else {}
        for name, facts in outcome.manifest.files.items() if outcome.manifest and crc32c_of else ():
            text = facts.get("text", {})
            expected, found = crc32c_of.get(str(text.get("name"))), text.get("crc32c")
            if expected not in (None, found):
                right = f"to be made of {text['name']} as it is now, crc32c {expected}"
                wrong = f"crc32c {found[:16]}, as {MANIFEST} says"
                outcome.findings.insert(0, Finding("text-changed", name, right, wrong))


def _finding_lines(outcomes: Sequence[Outcome]) -> list[str]:
    """The findings of all data sets, errors first, each with the folder of its file."""
    from bertprep.check.outcome import ERROR, SHOWN_OF_A_CODE

    lines = []
    found = [(outcome, finding) for outcome in outcomes for finding in outcome.findings]
    counts: Counter[tuple[Path, str]] = Counter()
    for outcome, finding in sorted(found, key=lambda pair: pair[1].level != ERROR):
        counts[outcome.folder, finding.code] += 1
        if counts[outcome.folder, finding.code] <= SHOWN_OF_A_CODE:
            lines.append(str(replace(finding, file=str(outcome.folder / finding.file))))
    for (folder, code), count in counts.items():
        if count > SHOWN_OF_A_CODE:
            lines.append(f"{folder}: {count - SHOWN_OF_A_CODE:,} more findings {code}, which --json FILE has")
    return lines


def _table_rows(outcomes: Sequence[Outcome], names: Sequence[str]) -> list[tuple[str, ...]]:
    """A row for each split; the first row of a data set has its findings."""
    rows: list[tuple[str, ...]] = [_HEADER]
    for outcome, name in zip(outcomes, names, strict=True):
        counts = (f"{outcome.errors:,}", f"{len(outcome.findings) - outcome.errors:,}")
        for split in sorted({facts.split for facts in outcome.files}, key=split_order) or [""]:
            files = [facts for facts in outcome.files if facts.split == split]
            is_of_records = outcome.kind not in (TEXT_SHARDS, TOKEN_SHARDS)
            records = f"{sum(facts.records for facts in files):,}" if is_of_records else ""
            fractions: tuple[str, ...] = ("",) * 6
            if split in outcome.counts:
                fractions = _fractions(outcome.counts[split])
            elif split in outcome.token_counts:
                fractions = (f"{outcome.token_counts[split].tokens:,}", *fractions[1:])
            rows.append((name, split, f"{len(files):,}", records, *fractions, *counts))
            counts = ("", "")
    return rows


def _fractions(tally: RecordCounts) -> tuple[str, ...]:
    predictions, records = max(int(tally.shown.sum()), 1), max(tally.records, 1)
    return (
        f"{tally.text_tokens:,}",
        f"{tally.padding_share:.1%}",
        *(f"{count / predictions:.2%}" for count in tally.shown.tolist()),
        f"{int(tally.next_sentence[1]) / records:.1%}" if tally.has_pairs or not tally.records else "",
    )


def _name_outcomes(outcomes: Sequence[Outcome]) -> list[str]:
    """A short name for each data set, numbered if several would be equal."""
    sizes = [f" {of.seq}/{of.pred}" if of.pred else f" {of.seq or ''}".rstrip() for of in outcomes]
    plain = [f"{of.folder.absolute().name}, {of.kind}{size}" for of, size in zip(outcomes, sizes, strict=True)]
    return [name if plain.count(name) == 1 else f"{name} ({plain[:at].count(name) + 1})" for at, name in enumerate(plain)]


def write_json(outcomes: Sequence[Outcome], path: Path) -> None:
    """Write all outcomes as one JSON file."""
    content = {"data_sets": [_outcome_as_json(outcome) for outcome in outcomes]}
    with atomic_file(path, replace=True) as file:
        file.write((json.dumps(content, indent=1) + "\n").encode())


def _outcome_as_json(outcome: Outcome) -> dict[str, Any]:
    splits = {split: _tally_as_json(tally) for split, tally in outcome.counts.items()}
    for split, tokens in outcome.token_counts.items():
        splits[split] = {**vars(tokens), "lengths": tokens.lengths.tolist()}
    return {
        "folder": str(outcome.folder),
        "kind": outcome.kind,
        "seq": outcome.seq,
        "pred": outcome.pred,
        "vocabulary": str(outcome.vocabulary) if outcome.vocabulary else None,
        "sampled": outcome.sampled,
        "errors": outcome.errors,
        "findings": [vars(finding) for finding in outcome.findings],
        "splits": splits,
        "duplicates": outcome.duplicates,
        "files": [vars(facts) for facts in outcome.files],
    }


def _tally_as_json(tally: RecordCounts) -> dict[str, Any]:
    """The counts of a split; a share with the interval that misses the true one once in a million times."""
    import numpy as np

    from bertprep.check.statistics import SHOWN, fraction_interval

    def fraction(count: int, of: int) -> dict[str, Any]:
        return {"count": count, "share": count / max(of, 1), "interval": fraction_interval(count, of)}

    predictions = int(tally.shown.sum())
    return {
        "records": tally.records,
        "tokens": tally.text_tokens,
        "padding_share": tally.padding_share,
        "predictions": predictions,
        "shown": {name: fraction(count, predictions) for name, count in zip(SHOWN, tally.shown.tolist(), strict=True)},
        **({"random_next": fraction(int(tally.next_sentence[1]), tally.records)} if tally.has_pairs else {}),
        "short": fraction(tally.records - int(tally.lengths[-1]), tally.records),
        "masked": predictions / max(tally.text_tokens, 1),
        "lengths": np.trim_zeros(tally.lengths, "b").tolist(),
        "predictions_per_record": tally.predictions.tolist(),
        "positions": tally.positions.tolist(),
    }

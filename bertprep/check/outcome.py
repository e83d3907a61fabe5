"""Define the result of `validate`: a `CheckedFile` for each file, and an `Outcome` for each data set, filled in by `Checks`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertprep.check.counts import Ints, RecordCounts, TokenCounts
from bertprep.check.expected import Expected
from bertprep.check.finding import ERROR, Finding
from bertprep.terminal import Printable, counted, printable, table_lines
from bertprep.work.layout import split_order
from bertprep.work.manifest import TEXT_SHARDS, TOKEN_SHARDS, Manifest
from bertprep.work.truncation import FITTING, Truncation

_TABLES = (
    ("split", "files", "documents", "records", "tokens", "padding", "[UNK]"),
    ("split", "[MASK]", "kept", "random token", "next: random", "cut off", "truncated"),
    ("split", "sentences", *(f"over {longest} tokens" for longest in FITTING)),
)
"""The columns of a data set's tables: sizes, random draws, and lengths of sentences. One table would not fit on a screen."""
SHOWN_OF_A_CODE = 20
"""The maximum number of findings of a code that `validate` prints for a data set; its JSON has all."""
_PRINTED = 5
"""The number of findings, of about three lines each, that fit on a screen together with the tables of a data set."""
_NO_HASHES: NDArray[np.uint64] = np.empty((0, 2), np.uint64)
_NO_LINES: Ints = np.empty(0, np.int64)


@dataclass
class CheckedFile:
    """A file of records or text, or the .bin of a token shard, with the results of its check.

    A worker gets it with the first four fields, and fills in the others.
    """

    name: str  # relative to the folder
    split: str  # "training", "test", or "" if the folder has no splits
    folder: Path = Path()
    entries: Mapping[str, dict[str, Any]] = field(
        default_factory=dict, repr=False
    )  # of the manifest: a token shard has several
    records: int = 0  # their number; documents, if it is text or tokens
    size_bytes: int = 0
    format: str = ""  # of a record file that could be read
    read: int = 0  # the number of records that were read; with `sample` not all
    findings: list[Finding] = field(default_factory=list)
    totals: dict[str, int] = field(default_factory=dict)  # by their names in the manifest: examples, documents, ...
    counts: RecordCounts | TokenCounts | None = field(default=None, repr=False)  # of pretraining records, or of other data
    hashes: NDArray[np.uint64] = field(default_factory=lambda: _NO_HASHES, repr=False)  # (n, 2) of each record or document
    lines: Ints = field(default_factory=lambda: _NO_LINES, repr=False)  # (n,) where each document begins: its line, or its id
    first_unique_id: int = -1  # of SQuAD's windows
    blake3: str = ""  # of text, as its CRC-32C, since it is read as a whole
    crc32c: str = ""

    @property
    def path(self) -> Path:
        return self.folder / self.name

    def add(self, code: str, expected: str, found: str, record: int | None = None, count: int = 1, **rest: str) -> None:
        """Add a finding about this file; `rest` may have a level and an advice."""
        self.findings.append(Finding(code, self.name, expected, found, record, count, **rest))

    def forget(self) -> None:
        """Drop the data that were needed to compare files with each other: 16 bytes per record."""
        self.counts, self.hashes, self.lines = None, _NO_HASHES, _NO_LINES


@dataclass(repr=False)
class Outcome:
    """One data set: records of one format and settings in one folder, text shards or token shards.

    `counts` and `expected` have an entry for each split of pretraining records. If `sampled`, only some records were read, and
    neither duplicates nor checksums were checked. Printed, it looks like the output of `validate`: the first findings, the
    tables of the splits, and a verdict.
    """

    folder: Path
    kind: str  # a record format, "text shards" or "token shards"
    manifest: Manifest | None
    vocabulary: Path | None
    seq: int = 0
    pred: int = 0
    sampled: bool = False
    files: list[CheckedFile] = field(default_factory=list)
    counts: dict[str, RecordCounts] = field(default_factory=dict)
    token_counts: dict[str, TokenCounts] = field(default_factory=dict)  # of text, token shards and fine-tuning, by split
    expected: dict[str, Expected] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    unknown: dict[str, tuple[float, float | None]] = field(default_factory=dict)
    """By split: the fractions of tokens and of labels that are [UNK], if the vocabulary is known."""
    duplicates: dict[str, int] = field(default_factory=dict)  # records that repeat an earlier one: by split, and "across"
    texts: dict[str, str] = field(default_factory=dict)  # CRC-32C of the text shards that match their manifest, by name

    def __repr__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> list[str]:
        """Return lines that fit on a screen: the first findings, errors first, the tables of the splits, and the verdict."""
        first = sorted(self.findings, key=lambda finding: finding.level != ERROR)[:_PRINTED]
        more = len(self.findings) - len(first)
        return [
            *(printable(str(finding)) for finding in first),
            *([f"... and {counted(more, 'more finding')}: .findings has all"] if more else []),
            *self.summary(self.title),
            verdict([self]),
        ]

    def summary(self, name: str) -> list[str]:
        """Return a line with the name and the number of findings, and the tables of the splits below it."""
        lines = [f"{name}: {_count_findings([self])}"]
        rows = self.split_rows()
        for columns in _TABLES:
            shown = [column for column in columns if any(row.get(column) for row in rows)]
            if shown and shown != ["split"]:
                table = [shown, *([row.get(column, "") for column in shown] for row in rows)]
                lines += [Printable(f"  {line}") for line in table_lines(table)]
        return lines

    def truncation(self, split: str) -> Truncation | None:
        """Return what the records of a split lack of their text, according to the manifest; None if it does not tell."""
        if self.manifest is None:
            return None
        return Truncation.of_entries(self.manifest.files.get(file.name, {}) for file in self.files if file.split == split)

    @property
    def errors(self) -> int:
        return sum(finding.level == ERROR for finding in self.findings)

    @property
    def warnings(self) -> int:
        return len(self.findings) - self.errors

    @property
    def ok(self) -> bool:
        """Whether there is no error; warnings may be intended."""
        return not self.errors

    @property
    def unit(self) -> str:
        """The unit in which files are counted: record, or document for text and tokens."""
        return "document" if self.kind in (TEXT_SHARDS, TOKEN_SHARDS) else "record"

    @property
    def is_of_task(self) -> bool:
        """Whether the files have records of fine-tuning, whose tokens were counted."""
        return self.unit == "record" and bool(self.token_counts)

    @property
    def title(self) -> str:
        """The folder's name with the kind and sizes of its files, such as "wiki, tfrecord 128/20"."""
        title = f"{self.folder.absolute().name}, {self.kind}"
        if self.pred:
            return f"{title} {self.seq}/{self.pred}"
        return f"{title} {self.seq}" if self.seq else title

    def count_tokens(self) -> None:
        """Add the counts of each file's tokens to those of its split."""
        for file in self.files:
            if isinstance(file.counts, TokenCounts):
                known = self.token_counts.get(file.split, TokenCounts())
                self.token_counts[file.split] = known + file.counts

    def rename_split(self, name: str, new: str) -> None:
        """Change the name of a split in all files and counts."""
        for file in self.files:
            if file.split == name:
                file.split = new
        self.token_counts = {new if split == name else split: counts for split, counts in self.token_counts.items()}

    def as_json(self) -> dict[str, Any]:
        """Return the result as `validate --json` writes it, without data that were only needed to judge."""
        splits: dict[str, dict[str, Any]] = {
            split: {
                "records": counts.records,
                "tokens": counts.text_tokens,
                "padding_share": counts.padding_share,
                "fractions": {fraction.name: fraction.as_json() for fraction in self.expected[split].fractions},
                "lengths": counts.lengths.tolist(),
                "predictions_per_record": counts.predictions.tolist(),
                "positions": counts.positions.tolist(),
            }
            for split, counts in self.counts.items()
        }
        for split, tokens in self.token_counts.items():
            lists = {
                name: getattr(tokens, name).tolist() for name in ("lengths", "documents_by_sentences", "documents_by_tokens")
            }
            splits[split] = {"tokens": tokens.tokens} if self.is_of_task else {**vars(tokens), **lists}
        for split, (of_tokens, of_labels) in self.unknown.items():
            splits[split] |= {"unknown_share": of_tokens, "unknown_share_of_labels": of_labels}
        plain = ("kind", "seq", "pred", "sampled", "ok", "errors", "warnings", "duplicates")
        of_file = ("name", "split", "records", "size_bytes")
        return {
            "folder": str(self.folder),
            **{name: getattr(self, name) for name in plain},
            "vocabulary": str(self.vocabulary) if self.vocabulary else None,
            "findings": [vars(finding) for finding in self.findings],
            "splits": splits,
            "files": [{name: getattr(file, name) for name in of_file} for file in self.files],
        }

    def split_rows(self) -> list[dict[str, str]]:
        """Return the table cells of each split by column; values that were not counted have no cell."""
        splits = sorted({file.split for file in self.files}, key=split_order) or [""]
        return [self._cells(split) for split in splits]

    def _cells(self, split: str) -> dict[str, str]:
        files = [file for file in self.files if file.split == split]
        cells = {"split": split, "files": f"{len(files):,}", f"{self.unit}s": f"{sum(file.records for file in files):,}"}
        if counts := self.counts.get(split):
            cells |= {"tokens": f"{counts.text_tokens:,}", "padding": f"{counts.padding_share:.1%}"}
            predictions = max(int(counts.shown.sum()), 1)
            for column, count in zip(("[MASK]", "kept", "random token"), counts.shown.tolist(), strict=True):
                cells[column] = f"{count / predictions:.2%}"
            if counts.has_pairs or not counts.records:
                cells["next: random"] = f"{int(counts.next_sentence[1]) / max(counts.records, 1):.1%}"
            if truncation := self.truncation(split):
                cells |= {"cut off": f"{truncation.cut_off:.1%}", "truncated": f"{truncation.truncated:.1%}"}
        elif split in self.token_counts and self.kind != TEXT_SHARDS:
            of_tokens = self.token_counts[split]
            cells["tokens"] = f"{of_tokens.tokens:,}"
            if of_tokens.sentences > of_tokens.documents:
                cells["sentences"] = f"{of_tokens.sentences:,}"
                cells |= {f"over {longest} tokens": f"{of_tokens.share_over(longest):.1%}" for longest in FITTING}
        if split in self.unknown:
            cells["[UNK]"] = f"{self.unknown[split][0]:.2%}"
        return cells


def verdict(outcomes: Sequence[Outcome]) -> str:
    """Return one sentence on all data sets, such as "no errors, 1 warning: 124,310 records in 10 files".

    With a sample it says how many of the records were checked: "no errors, no warnings: 50 of 124,310 records in 5 files".
    """
    checked = []
    for unit in ("record", "document"):
        files = [file for outcome in outcomes if outcome.unit == unit for file in outcome.files]
        amount, read = sum(file.records for file in files), sum(file.read for file in files)
        if amount:
            is_sample = read < amount and any(outcome.sampled for outcome in outcomes if outcome.unit == unit)
            checked.append(f"{read:,} of {counted(amount, unit)}" if is_sample else counted(amount, unit))
    total = sum(len(outcome.files) for outcome in outcomes)
    return f"{_count_findings(outcomes)}: {' and '.join(checked) or 'nothing'} in {counted(total, 'file')}"


def _count_findings(outcomes: Sequence[Outcome]) -> str:
    """Return the numbers of errors and warnings in words, such as "no errors, 1 warning"."""
    errors = sum(outcome.errors for outcome in outcomes)
    warnings = sum(outcome.warnings for outcome in outcomes)
    return (
        f"{counted(errors, 'error') if errors else 'no errors'}, {counted(warnings, 'warning') if warnings else 'no warnings'}"
    )


class Checks:
    """The checks of a kind of data: `check_file` runs in workers, `take` gets each checked file, and `judge` compares them all.

    `check_file` reads a file and fills in its results; it never raises. `files` are the files to check, with their splits;
    `names` are all files that a manifest may list.
    """

    def __init__(
        self, files: Mapping[str, str], check_file: Callable[[CheckedFile], None], names: Collection[str] | None = None
    ) -> None:
        self.files, self.check_file = files, check_file
        self.names = files if names is None else names

    def names_of(self, name: str) -> list[str]:
        """Return the files, by their names in the manifest, that are checked together as the one with this name."""
        return [name]

    def take(self, file: CheckedFile) -> None:
        """Add the counts of a checked file; files arrive in any order."""

    def judge(self, outcome: Outcome) -> None:
        """Add the findings and counts of all files, which are in order now, to the outcome."""
        outcome.findings += [finding for file in outcome.files for finding in file.findings]

"""What a check takes and finds: files; faults, counts and expectations of one data set. Counts of files are additive."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from bertprep.check.advice import ADVICE
from bertprep.errors import BertprepError
from bertprep.files.checksums import Checksum
from bertprep.kernels import numbers as kernel
from bertprep.terminal import counted
from bertprep.work.layout import split_order
from bertprep.work.manifest import TEXT_SHARDS, TOKEN_SHARDS, Manifest

ERROR, WARNING = LEVELS = ("error", "warning")
SPLIT_HEADER = ("split", "files", "records", "tokens", "[UNK]", "padding", "[MASK]", "kept", "random", "random next")
SHOWN_OF_A_CODE = 20
"""Most findings of one code in one data set that `validate` prints; JSON has all."""

Ints = NDArray[np.int64]
Range = tuple[float, float]
"""The lowest and the highest correct value."""


@dataclass(frozen=True)
class Finding:
    """One fault: where it first occurs, what was expected and what was found.

    `code` is its name, such as "mask-on-special" (docs/validation.md). `record` counts from 0, lines of text from 1; None for a
    fault of a file or data set. `count` is the number of such records. `advice` says what to do: that of its code, unless the
    finding knows its cause.
    """

    code: str
    file: str
    expected: str
    found: str
    record: int | None = None
    count: int = 1
    level: str = ERROR
    advice: str = ""

    def __post_init__(self) -> None:
        if not self.advice:
            object.__setattr__(self, "advice", ADVICE[self.code])

    @property
    def unit(self) -> str:
        return "line" if self.file.endswith(".txt") else "record"

    @property
    def fault(self) -> str:
        """The finding without its advice."""
        where = self.file if self.record is None else f"{self.file}, {self.unit} {self.record:,}"
        more = f" ({self.count:,} {self.unit}s)" if self.count > 1 else ""
        return f"{self.level}: {self.code}: {where}: expected {self.expected}, found {self.found}{more}"

    def __str__(self) -> str:
        return f"{self.fault}; {self.advice}"


def file_that(error: BertprepError, path: Path) -> str:
    """Return an error's fault of a file, in words that follow "found".

    >>> file_that(BertprepError("a/vocab.txt: line 7 is empty"), Path("a/vocab.txt"))
    'a file whose line 7 is empty'
    """
    wrong = str(error).removeprefix(f"{path}: ")
    if wrong.startswith(("is ", "has ", "holds ", "lacks ", "begins ", "cannot ")):
        return f"a file that {wrong}"
    return f"a file whose {wrong}" if wrong.startswith(("line ", "byte ", "column ")) else wrong


def verdict(outcomes: Sequence[Outcome]) -> str:
    """Return one sentence on all data sets, such as "no errors, 1 warning: 124,310 records in 10 files"."""
    errors, warnings = sum(of.errors for of in outcomes), sum(of.warnings for of in outcomes)
    found = ", ".join(
        counted(count, what) if count else f"no {what}s" for count, what in ((errors, "error"), (warnings, "warning"))
    )
    amounts = {"record": 0, "document": 0}
    for of in outcomes:
        amounts[of.unit] += sum(file.records for file in of.files)
    checked = " and ".join(counted(amount, what) for what, amount in amounts.items() if amount) or "nothing"
    return f"{found}: {checked} in {counted(sum(len(of.files) for of in outcomes), 'file')}"


Addend = TypeVar("Addend", bound="Counts")


@dataclass
class Counts:
    """Numbers, or arrays of them, that add up over files and splits."""

    def __add__(self: Addend, other: Addend) -> Addend:
        return type(self)(*(getattr(self, counted.name) + getattr(other, counted.name) for counted in fields(self)))


@dataclass
class TokenCounts(Counts):
    """Counts over text shards, whose tokens are unknown, or token shards.

    The last bins are of sentences of `LONGEST` tokens or more, and of documents of `MANY` sentences or more.
    """

    LONGEST: ClassVar[int] = 256
    MANY: ClassVar[int] = 64

    documents: int = 0
    sentences: int = 0
    tokens: int = 0
    lengths: Ints = field(default_factory=lambda: np.zeros(TokenCounts.LONGEST + 1, np.int64))  # sentences by tokens
    unknown: int = 0  # [UNK]
    documents_by_sentences: Ints = field(default_factory=lambda: np.zeros(TokenCounts.MANY + 1, np.int64))

    @classmethod
    def by_sentences(cls, sentences: Ints) -> Ints:
        """Return the number of documents for each number of sentences, given that of each document."""
        return np.bincount(np.minimum(sentences, cls.MANY), minlength=cls.MANY + 1)


@dataclass
class RecordCounts(Counts):
    """Counts over records of seq tokens with up to pred predictions, and of a vocabulary of v tokens.

    A draw is a token, or with whole words a word, counted at its first position. Arrays are int64; expectations are in units of
    1 / SCALE of `kernels.numbers`.
    """

    lengths: Ints  # (seq + 1,) records by tokens of text, [CLS] and each [SEP] included
    lengths_of_a: Ints  # (seq + 1,) records by tokens of segment A, without [CLS] and [SEP]; zeros for full sentences
    predictions: Ints  # (pred + 1,) records by number of predictions
    positions: Ints  # (seq,) predictions by position
    labels: Ints  # (v,) predictions by their label
    tokens: Ints  # (v,) tokens of text, without [CLS] and each [SEP], by token
    shown: Ints  # (3,) predictions by what the record shows: [MASK], the label itself, another token
    next_sentence: Ints  # (2,) records by next-sentence label: B follows A, B is random; zeros for full sentences
    position_steps: Ints  # (seq + 1,) expected draws by position, as differences between adjacent positions
    expected_labels: Ints  # (v,) expected draws by original token
    word_positions: Ints  # (seq,) words drawn by position; empty if tokens are drawn
    word_labels: Ints  # (v,) and by their first token
    replaced: Ints  # (v,) predictions that show another token, by that token
    signs: Ints  # (SIGNS,) small counts: see kernels.numbers
    predicted: Ints  # (seq + 1,) predictions by tokens of text
    wins: Ints  # (6,) neighbours against distant records: more, fewer tokens in common; closer, other lengths; first tokens
    continued: (
        Ints  # (2,) pairs of records labelled random whose own Bs continue their As more often than exchanged, less often
    )

    @classmethod
    def empty(cls, *, seq: int, pred: int, vocabulary: int, whole_words: bool = False) -> RecordCounts:
        of_records = (seq + 1, seq + 1, pred + 1, seq, vocabulary, vocabulary, 3, 2, seq + 1, vocabulary)
        of_words = (seq, vocabulary) if whole_words else (0, 0)
        return cls(*(np.zeros(size, np.int64) for size in (*of_records, *of_words, vocabulary, kernel.SIGNS, seq + 1, 6, 2)))

    @property
    def records(self) -> int:
        return int(self.lengths.sum())

    @property
    def has_pairs(self) -> bool:
        """Whether the records are of two segments; each such has a next-sentence label."""
        return bool(self.next_sentence.any())

    @property
    def text_tokens(self) -> int:
        return int(self.lengths @ np.arange(len(self.lengths)))

    @property
    def padding_share(self) -> float:
        tokens = self.records * (len(self.lengths) - 1)
        return 1 - self.text_tokens / tokens if tokens else 0.0

    @property
    def expected_positions(self) -> NDArray[np.float64]:
        """(seq,) the draws expected at each position."""
        return np.cumsum(self.position_steps)[:-1] / kernel.SCALE


class Fraction(NamedTuple):
    """A fraction of a split, its expected range, and the interval of the true one."""

    name: str
    hits: int
    draws: int
    expected: Range
    interval: Range

    def as_json(self) -> dict[str, Any]:
        return {"count": self.hits, "of": self.draws, "expected": self.expected, "interval": self.interval}


@dataclass(frozen=True)
class Expected:
    """What is expected under H0 of the records of a split; with whole words not the predictions, which depend on word
    boundaries.
    """

    fractions: list[Fraction]
    streams: int  # files whose draws may be correlated, which widens intervals that many times
    predictions: Ints  # (pred + 1,) records by number of predictions
    positions: NDArray[np.float64]  # (seq,) predictions by position
    is_known: bool


@dataclass(frozen=True)
class FileTask:
    """A file to check (or the .bin of a token shard), with its manifest entries."""

    folder: Path
    name: str
    split: str
    entries: Mapping[str, dict[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class CheckedFile:
    """One record file, text shard or token shard as found; `records` counts documents if it is text or tokens."""

    name: str  # relative to the data set's folder
    split: str  # "training", "test", or "" if the folder has no splits
    records: int
    size_bytes: int


@dataclass
class FileReport:
    """The result for one file, with what is judged over all files."""

    file: CheckedFile
    findings: list[Finding] = field(default_factory=list)
    format: str = ""  # of a record file that could be read
    read: int = 0  # records
    totals: dict[str, int] = field(default_factory=dict)  # as the manifest's entry has them: examples, documents, ...
    counts: Counts | None = None  # of records of pretraining, or of tokens
    hashes: NDArray[np.uint64] = field(default_factory=lambda: np.empty((0, 2), np.uint64))  # of each record or document
    first_unique_id: int = -1  # of SQuAD's windows
    checksum: Checksum | None = None  # where it was computed, as all below, of text
    crc32c: str = ""
    lines: Ints = field(default_factory=lambda: np.empty(0, np.int64))  # where each document begins, from 1
    largest_document: int = 0  # bytes


@dataclass
class Outcome:
    """One data set: records of one format and settings in one folder, text shards or token shards.

    `counts` and `expected` are of pretraining records, by split. `sampled`: only some records were read, duplicates and
    checksums not checked.
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
    token_counts: dict[str, TokenCounts] = field(default_factory=dict)  # of text and token shards, by split
    expected: dict[str, Expected] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    unknown: dict[str, tuple[float, float | None]] = field(default_factory=dict)
    """By split: the fraction of the tokens that are [UNK], and of the labels, where the vocabulary is known."""
    duplicates: dict[str, int] = field(default_factory=dict)  # records that repeat an earlier one: by split, and "across"
    texts: dict[str, str] = field(default_factory=dict)  # CRC-32C of the text shards that are as their manifest says, by name

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
        """What the files have: records, or documents of text or tokens."""
        return "document" if self.kind in (TEXT_SHARDS, TOKEN_SHARDS) else "record"

    def split_rows(self) -> list[tuple[str, ...]]:
        """Return a row for each split, as `SPLIT_HEADER` says; what was not counted is empty."""
        rows = []
        for split in sorted({file.split for file in self.files}, key=split_order) or [""]:
            files = [file for file in self.files if file.split == split]
            records = f"{sum(file.records for file in files):,}" if self.unit == "record" else ""
            found = [""] * 7
            if counts := self.counts.get(split):
                shown = [f"{count / max(int(counts.shown.sum()), 1):.2%}" for count in counts.shown.tolist()]
                found = [f"{counts.text_tokens:,}", "", f"{counts.padding_share:.1%}", *shown, ""]
                if counts.has_pairs or not counts.records:
                    found[-1] = f"{int(counts.next_sentence[1]) / max(counts.records, 1):.1%}"
            elif split in self.token_counts and self.kind != TEXT_SHARDS:
                found[0] = f"{self.token_counts[split].tokens:,}"
            if split in self.unknown:
                found[1] = f"{self.unknown[split][0]:.2%}"
            rows.append((split, f"{len(files):,}", records, *found))
        return rows


class Checks:
    """The checks of a kind of data: of each file, in workers, and of all together.

    `files` are to be checked, with their splits; `names` are all that a manifest may list.
    """

    def __init__(
        self, files: Mapping[str, str], check_file: Callable[[FileTask], FileReport], names: Collection[str] | None = None
    ) -> None:
        self.files, self.check_file = files, check_file
        self.names = files if names is None else names

    def parts(self, name: str) -> list[str]:
        """Return the names in the manifest of what is checked as one file."""
        return [name]

    def take(self, report: FileReport) -> None:
        """Add what is counted of a file; reports arrive in any order."""

    def judge(self, reports: Sequence[FileReport], outcome: Outcome) -> None:
        """Add the findings and counts of all files, whose reports are in order, to the outcome."""
        outcome.findings += [finding for report in reports for finding in report.findings]

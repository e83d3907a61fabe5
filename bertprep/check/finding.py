"""Describe a fault of data: where it is, what was expected, what was found, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bertprep.check.advice import ADVICE
from bertprep.errors import BertprepError

ERROR, WARNING = LEVELS = ("error", "warning")


@dataclass(frozen=True)
class Finding:
    """A fault: where it first occurs, what was expected and what was found.

    `code` is its name, such as "mask-on-special" (docs/reference/findings.md). `record` is the index of the record, from 0, or
    the line of a text, from 1; it is None for a fault of a file or data set. `count` is the number of records with this fault.
    `advice` says what to do; by default it is the advice for the code.
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
    """Return the text of an error about a file, in words that can follow "found".

    >>> file_that(BertprepError("a/vocab.txt: line 7 is empty"), Path("a/vocab.txt"))
    'a file whose line 7 is empty'
    """
    wrong = str(error).removeprefix(f"{path}: ")
    if wrong.startswith(("is ", "has ", "holds ", "lacks ", "begins ", "cannot ")):
        return f"a file that {wrong}"
    if wrong.startswith(("line ", "byte ", "column ")):
        return f"a file whose {wrong}"
    return wrong

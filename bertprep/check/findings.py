"""Faults in data: one `Finding` for each fault and file, however many records have it."""

from dataclasses import asdict, dataclass
from typing import Any

ERROR, WARNING = LEVELS = ("error", "warning")
SHOWN_OF_A_CODE = 20
"""Most lines that `validate` prints for one code in one data set; JSON has all."""


@dataclass(frozen=True)
class Finding:
    """One fault: where it first occurs, what was expected and what was found.

    `code` is its machine-readable name, such as "mask-on-special"; docs/validation.md lists them. `record` counts from 0 in the
    file, lines of text from 1; None for a fault of a file or of the data set, and for repeated text beyond the first files.
    `count` is the number of records that have it.
    """

    level: str
    code: str
    file: str
    record: int | None
    expected: str
    found: str
    count: int = 1

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        unit = "line" if self.file.endswith(".txt") else "record"
        where = self.file if self.record is None else f"{self.file}, {unit} {self.record:,}"
        more = f" ({self.count:,} {unit}s)" if self.count > 1 else ""
        return f"{self.level}: {self.code}: {where}: expected {self.expected}, found {self.found}{more}"

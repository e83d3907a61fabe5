"""Input and output of all task data conversions: rows of the Hub's Parquet files in, one finished file out.

Each row is checked when it is read, so a conversion sees only values of the right type, and knows its file and number, for
errors. Files are read some rows at a time in the calling thread. A finished file is rewritten only if it is wrong, so a
repeated run repairs.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from bertprep.errors import BertprepError
from bertprep.files.atomic import atomic_file
from bertprep.sources.fields import show_names
from bertprep.sources.readers import MAX_ROWS, open_parquet
from bertprep.untrusted import parse_json
from bertprep.workspace.manifest import sha256_of

NUMBERED = re.compile(r"-(\d{5})-of-(\d{5})\.parquet$")


class Row(NamedTuple):
    """A row of a Parquet file; `number` counts from 0 in its file."""

    path: Path
    number: int
    values: tuple[Any, ...]

    def fault(self, text: str) -> BertprepError:
        """An error that names the file and row."""
        return BertprepError(f"{self.path}: row {self.number} (from 0): {text}")


def split_files(folder: Path, split: str) -> list[Path]:
    """The files SPLIT-00000-of-00002.parquet, ... in `folder` or below, in order; raises if one is missing."""
    paths = sorted(folder.rglob(f"{split}-*.parquet"), key=lambda path: path.name)
    if not paths:
        raise BertprepError(f"{folder}: has no file {split}-*.parquet, in it or below; download it again")
    numbered = NUMBERED.search(paths[0].name)
    wanted = int(numbered[2]) if numbered else len(paths)
    numbers = {match[1] for path in paths if (match := NUMBERED.search(path.name))} if numbered else paths
    if not len(numbers) == len(paths) == wanted:
        raise BertprepError(
            f"{folder}: has {len(paths)} files {split}-*.parquet, expected the {wanted} of one download; "
            "remove the folder and download it again"
        )
    return paths


def read_rows(path: Path, columns: Mapping[str, type]) -> Iterator[Row]:
    """Yield the rows of a file with the values of `columns`, in that order and of the types given there."""
    with open_parquet(str(path)) as file:
        names = file.schema_arrow.names
        if missing := [name for name in columns if name not in names]:
            raise BertprepError(
                f"{path}: has no column {', '.join(missing)}, found {show_names(names)}; "
                "is it a file of this task? If so, download it again"
            )
        batches = file.iter_batches(MAX_ROWS, columns=list(columns), use_threads=False)
        values = (each for batch in batches for each in zip(*(batch.column(name).to_pylist() for name in columns), strict=True))
        for number, found in enumerate(values):
            row = Row(path, number, found)
            for value, (name, kind) in zip(found, columns.items(), strict=True):
                if not isinstance(value, kind):
                    raise row.fault(
                        f"column {name} is {type(value).__name__}, expected {kind.__name__}; download the file again"
                    )
            yield row


def class_names(path: Path, column: str) -> list[str] | None:
    """The meaning of the integers 0, 1, ... of `column` by the Hub's metadata in the file; None without it."""
    with open_parquet(str(path)) as file:
        description = (file.schema_arrow.metadata or {}).get(b"huggingface")
    try:
        names = parse_json(description or b"null")["info"]["features"][column]["names"]
    except (KeyError, TypeError, ValueError):
        return None
    return [str(name) for name in names] if isinstance(names, list) else None


def write_if_different(path: Path, content: bytes | bytearray) -> None:
    """Write `content` to `path` unless it already has it."""
    try:
        if path.stat().st_size == len(content) and sha256_of(path) == hashlib.sha256(content).hexdigest():
            return
    except OSError:  # missing or unreadable
        pass
    with atomic_file(path) as file:
        file.write(content)

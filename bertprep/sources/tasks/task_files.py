"""The two ends of every conversion of task data: rows of the Hub's Parquet files in, one finished file out.

Each row is checked when it is read, so that a conversion deals with values of the right type only, and knows its file and
number, for errors. Files are read batch by batch in the calling thread: no more of them is in memory than one row group.
A finished file is rewritten only where it differs from what it should be, which is how a repeated run repairs it.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from bertprep.atomic import atomic_file
from bertprep.errors import BertprepError
from bertprep.manifest import sha256_of

ROWS_A_BATCH = 1024
NUMBERED = re.compile(r"-(\d{5})-of-(\d{5})\.parquet$")


class Row(NamedTuple):
    """A row of a Parquet file; `number` counts from 0 in its file."""

    path: Path
    number: int
    values: tuple[Any, ...]

    def fault(self, text: str) -> BertprepError:
        """The error that says where it is."""
        return BertprepError(f"{self.path}: row {self.number} (from 0): {text}")


def split_files(folder: Path, split: str) -> list[Path]:
    """The files SPLIT-00000-of-00002.parquet, ... in `folder` or below, in order; all of them, or an error."""
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


@contextmanager
def _parquet(path: Path) -> Iterator[Any]:
    import pyarrow  # 0.1 s that commands without a download are spared
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            yield file
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        why = (str(error).splitlines() or [type(error).__name__])[0]
        raise BertprepError(f"{path}: cannot be read as Parquet ({why}); remove it and download it again") from error


def read_rows(path: Path, columns: Mapping[str, type]) -> Iterator[Row]:
    """The rows of a file with the values of `columns`, in that order, each of the type given there."""
    with _parquet(path) as file:
        there = file.schema_arrow.names
        if missing := [name for name in columns if name not in there]:
            raise BertprepError(
                f"{path}: has no column {', '.join(missing)}, found {', '.join(there)}; "
                "is it a file of this task? If so, download it again"
            )
        number = 0
        for batch in file.iter_batches(ROWS_A_BATCH, columns=list(columns), use_threads=False):
            contents = batch.to_pydict()
            for values in zip(*(contents[name] for name in columns), strict=True):
                row = Row(path, number, values)
                for value, (name, kind) in zip(values, columns.items(), strict=True):
                    if not isinstance(value, kind):
                        raise row.fault(
                            f"column {name} is {type(value).__name__}, expected {kind.__name__}; download the file again"
                        )
                yield row
                number += 1


def class_names(path: Path, column: str) -> list[str] | None:
    """What the integers 0, 1, ... of `column` mean, by the description the Hub puts in its files; None without one."""
    with _parquet(path) as file:
        description = (file.schema_arrow.metadata or {}).get(b"huggingface")
    try:
        names = json.loads(description or b"null")["info"]["features"][column]["names"]
    except (KeyError, TypeError, ValueError):
        return None
    return [str(name) for name in names] if isinstance(names, list) else None


def write_if_different(path: Path, content: bytes | bytearray) -> None:
    """Make `path` hold `content`; a file that already does is not touched."""
    try:
        if path.stat().st_size == len(content) and sha256_of(path) == hashlib.sha256(content).hexdigest():
            return
    except OSError:  # none there, or one that cannot be read
        pass
    with atomic_file(path) as file:
        file.write(content)

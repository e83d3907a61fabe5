"""Reads files of labelled texts: GLUE's and the user's own.

GLUE's TSV is read as in Google's `run_classifier.py`: there is no quoting, carriage returns are removed, and only newlines end
lines. A user's own file is a table: TSV, CSV, JSON Lines, a JSON array or Parquet, whose columns are found by name. Rows
without a text or a gold label are left out and counted. Errors name the file and line.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bertprep.errors import BertprepError
from bertprep.tasks.glue import MAX_SCORE, UNLABELLED, GlueTask
from bertprep.tasks.tables import (
    LocatedRow,
    has_quoted_cells,
    is_json,
    is_parquet,
    json_rows,
    parquet_rows,
    read_data,
    read_text,
    split_cells,
)
from bertprep.terminal import counted
from bertprep.work.layout import by_number

TEXT_A = ("text_a", "sentence1", "text", "sentence", "premise")
TEXT_B = ("text_b", "sentence2", "hypothesis")
LABEL = ("label", "labels", "gold_label", "score")
"""The column names that a user's own file may have. Of several names of a label, the first one counts."""
MISSING = frozenset(
    ("", "#N/A", "#NA", "-NaN", "-nan", "<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null", "-", "unknown")
)
"""What stands for no label: what pandas reads as missing, the - of SNLI, and unknown, as in some of GLUE's test sets."""
_NO_NUMBER = ("-1", "-100")
"""What stands for no label among numbered classes, in `datasets` and in PyTorch."""
_MAX_LABELS, _MAX_LABEL = 1000, 200  # the number of labels, and of characters in one
_SEPARATORS = "\t,;|"
_WHOLE = re.compile(r"([+-]?\d+)\.0+")
_NO_BREAKS = str.maketrans("\t\n\r", "   ")  # BERT's tokenizer treats them as spaces; here they end columns and lines
_SHOWN = 40  # characters of a label, in errors
_ONE_LABEL = "if a text may have several labels, make a task for each of them, with its column as label"

Row = tuple[bytes, bytes, bytes]
"""text_a, text_b and label, each empty if it is absent."""
Labels = NDArray[np.int32] | NDArray[np.float32]


@dataclass(frozen=True)
class TextFile:
    """The examples of a file, in order, and where each one is, such as "line 3". The first is on line `first_line`."""

    path: Path
    split: str
    size_bytes: int
    sha256: str
    first_line: int
    rows: list[Row]
    locations: Sequence[str]
    unlabelled: int = 0
    """The number of rows that were left out, since they have no label or no text."""

    @property
    def labels(self) -> list[bytes]:
        return [row[2] for row in self.rows]

    def fault(self, row: int, why: str) -> BertprepError:
        return BertprepError(f"{self.path}: {self.locations[row]}: {why}")


def _fault(path: Path, line: int, why: str) -> BertprepError:
    return BertprepError(f"{path}: line {line:,}: {why}")


class _Lines(Sequence[str]):
    """The locations of examples of which each is one line."""

    def __init__(self, first: int, count: int) -> None:
        self._numbers = range(first, first + count)

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, index: Any) -> Any:
        return f"line {self._numbers[index]:,}"


def read_file(path: Path, split: str, task: GlueTask) -> TextFile:
    """Read the examples of a file; raise `BertprepError` for the first invalid line."""
    data = read_data(path, "a file of examples")
    described = path, split, len(data), hashlib.sha256(data).hexdigest()
    if not task.folder and (is_parquet(data) or is_json(path, data)):
        rows, locations = _read_objects(path, split, data)
        return TextFile(*described, 1, rows, locations)
    text = read_text(path, data)
    if not text:
        raise BertprepError(f"{path}: is empty; expected one example per line")
    if not task.folder:
        separator = _separator(split, text.partition("\n")[0])
        if separator != "\t" or has_quoted_cells(text):
            rows, locations = _read_cells(path, split, text, separator)
            return TextFile(*described, 2, rows, locations)
    lines = text.encode().split(b"\n")
    rows, first_line = _read_lines(path, split, task, lines if lines[-1] else lines[:-1])
    return TextFile(*described, first_line, rows, _Lines(first_line, len(rows)))


def _read_lines(path: Path, split: str, task: GlueTask, lines: Sequence[bytes]) -> tuple[list[Row], int]:
    """Return the examples of TSV without quoting, and the number of the first one's line."""
    rows: list[Row] = []
    skipped = 0
    try:
        read, skipped = _reader(split, task, lines)
        for text in lines[skipped:]:
            rows.append(read(text))  # noqa: PERF401 - an error takes its line number from the length
    except ValueError as error:
        raise _fault(path, skipped + len(rows) + 1, str(error)) from error
    if not rows:
        raise BertprepError(f"{path}: has a header but no examples; expected one example per line")
    return rows, skipped + 1


def _separator(split: str, header: str) -> str:
    """Return what separates the columns of a user's own table: that by which its header has the columns of a task, or one."""
    for separator in _SEPARATORS:
        try:
            _find_columns(split, _names(header, separator))
        except ValueError:
            continue
        return separator
    known = {*TEXT_A, *TEXT_B, *LABEL}
    return next((separator for separator in _SEPARATORS if known.intersection(_names(header, separator))), "\t")


def _names(header: str, separator: str) -> list[str]:
    try:
        return next((cells for _, cells in split_cells(header, separator)), [])
    except ValueError:
        return header.split(separator)


def _read_cells(path: Path, split: str, text: str, separator: str) -> tuple[list[Row], list[str]]:
    """Return the examples of a table with quotes, and the location of each."""
    rows: list[Row] = []
    locations: list[str] = []
    try:
        cells = split_cells(text, separator)
        names = next(names for _, names in cells)
        wanted = _find_columns(split, names)
        for number, found in cells:
            if not rows and len(found) == len(names) + 1 and found[0].isdecimal():
                names = ["", *names]  # R writes no name for the numbers of the rows
            if len(found) != len(names):
                name = {"\t": "tabs", ",": "commas", ";": "semicolons"}.get(separator, separator)
                raise ValueError(
                    f"line {number:,}: has {counted(len(found), 'column')}, expected {len(names)}, separated by {name}; put "
                    "quotes around texts that have one"
                )
            rows.append(_read_object(wanted, split, dict(zip(names, found, strict=True))))
            locations.append(f"line {number:,}")
    except ValueError as error:
        raise BertprepError(f"{path}: {error}") from error
    if not rows:
        raise BertprepError(f"{path}: has a header but no examples; expected one example per line")
    return rows, locations


def _read_objects(path: Path, split: str, data: bytes) -> tuple[list[Row], list[str]]:
    """Return the examples of JSON or Parquet, and the location of each. In Parquet, numbered labels may have names."""
    objects: Iterable[LocatedRow]
    names: Sequence[str] = ()
    if is_parquet(data):
        features, objects = parquet_rows(path, data)
        column = next((features[name] for name in LABEL if name in features), None)
        names = column.get("names") or () if isinstance(column, dict) else ()
    else:
        objects = json_rows(path, data)
    rows: list[Row] = []
    locations: list[str] = []
    wanted: tuple[str, str | None, str | None] | None = None
    for where, values in objects:
        try:
            wanted = wanted or _find_columns(split, list(values))
            label = values.get(wanted[2] or "")
            if names and type(label) is int and 0 <= label < len(names):
                values[str(wanted[2])] = str(names[label])
            rows.append(_read_object(wanted, split, values))
        except ValueError as error:
            raise BertprepError(f"{path}: {where}: {error}") from error
        locations.append(where)
    if not rows:
        raise BertprepError(f"{path}: has no examples; expected one example per line")
    return rows, locations


def _reader(split: str, task: GlueTask, lines: Sequence[bytes]) -> tuple[Callable[[bytes], Row], int]:
    header = lines[0].decode().split("\t")
    if not task.folder:
        wanted = _find_columns(split, header)
        if len(lines) > 1 and lines[1].count(b"\t") == len(header) and lines[1].partition(b"\t")[0].isdigit():
            header = ["", *header]  # R writes no name for the numbers of the rows
        return partial(_read_own_columns, _columns(header, *wanted)), 1
    file = task.files[split]
    text_b = task.texts[1] if len(task.texts) > 1 else None
    columns = _columns(file.columns, task.texts[0], text_b, None if split in UNLABELLED else task.label)
    if file.header and columns.label is not None and len(header) >= columns.least:
        label = header[columns.label]
        if label in task.labels or (task.is_regression and _is_number(label)):
            expected = "\\t".join(file.columns)
            raise ValueError(
                f"is an example, expected the header {expected}, since Google's readers skip line 1; add the header"
            )
    return partial(_read_columns, columns), int(file.header)


class Columns(NamedTuple):
    """The indices of the columns with texts and label; a line has at least `least` columns."""

    text_a: int
    text_b: int | None
    label: int | None  # None in files for submissions; -1 for the last column, even if a line has extra ones
    least: int


def _columns(header: Sequence[str], text_a: str, text_b: str | None, label: str | None) -> Columns:
    least = 1 + max(header.index(name) for name in (text_a, text_b, label) if name is not None)
    is_last = label == header[-1]
    position = None if label is None else -1 if is_last else header.index(label)
    return Columns(header.index(text_a), None if text_b is None else header.index(text_b), position, least)


def _read_columns(columns: Columns, line: bytes) -> Row:
    fields = line.split(b"\t")
    if len(fields) < columns.least:
        found = f"has {counted(len(fields), 'column')}" if line else "is blank"
        raise ValueError(f"{found}, expected {columns.least} or more columns, separated by tabs; fix it")
    text_b, label = columns.text_b, columns.label
    return fields[columns.text_a], b"" if text_b is None else fields[text_b], b"" if label is None else fields[label]


def _read_own_columns(columns: Columns, line: bytes) -> Row:
    text_a, text_b, label = _read_columns(columns, line)
    return text_a, text_b, canonical(label.decode()).encode()


def _read_object(names: tuple[str, str | None, str | None], split: str, values: Mapping[str, Any]) -> Row:
    """Return the example in a row of a table; a text or label that is null is empty."""
    text_a, text_b, label = names
    missing = next((name for name in names if name and name not in values), None)
    if missing:
        raise ValueError(f"has no {missing!r}, unlike the first one; fix or remove it")
    return (
        _text(text_a, values[text_a]),
        _text(text_b, values[text_b]) if text_b else b"",
        _text(label, _label(label, values[label])) if label and split not in UNLABELLED else b"",
    )


def _text(name: str, value: object) -> bytes:
    if value is None:
        return b""
    if not isinstance(value, str):
        raise ValueError(f"{name!r} is {value!r:.{_SHOWN}}, expected a string")
    if "\0" in value:
        raise ValueError(f"{name!r} has a NUL character, which text never has; remove it")
    try:
        return value.translate(_NO_BREAKS).encode()
    except UnicodeEncodeError:
        raise ValueError(f"{name!r} has half of a surrogate pair, which is not a character; remove it") from None


def _label(name: str, value: object) -> object:
    """Return a label of JSON or Parquet as its text: true as `true`, 1 and 1.0 as `1`."""
    if isinstance(value, bool | int | float):
        return canonical("" if value != value else str(value))
    if isinstance(value, list | dict):
        found = "list" if isinstance(value, list) else "object"
        raise ValueError(f"{name!r} is a {found}, expected one label for each text; {_ONE_LABEL}")
    return canonical(value) if isinstance(value, str) else value


def canonical(label: str) -> str:
    """Return the name of a label without what a table adds to it: pandas writes 1 as 1.0 beside empty cells, and true as True.

    >>> [canonical(label) for label in ("1.0", "True", "1.5", "yes")]
    ['1', 'true', '1.5', 'yes']
    """
    if label in ("True", "False"):
        return label.lower()
    found = _WHOLE.fullmatch(label)
    return found[1] if found else label


def _find_columns(split: str, names: Sequence[str]) -> tuple[str, str | None, str | None]:
    found: list[str | None] = []
    for choices in (TEXT_A, TEXT_B):
        there = [name for name in names if name in choices]
        if len(there) > 1:
            raise ValueError(f"has the columns {' and '.join(there)}, expected one of them; remove or rename the others")
        found.append(there[0] if there else None)
    text_a, text_b = found
    label = next((name for name in LABEL if name in names), None)
    is_labelled = split not in UNLABELLED
    if text_a is None or (is_labelled and label is None):
        missing, advice = f"{' or '.join(TEXT_A)} for the text", "name them in the first line"
        if text_a is not None:
            missing, advice = " or ".join(LABEL), f"name the label's column so; {_ONE_LABEL}"
        raise ValueError(f"has no column {missing}; its columns are {', '.join(names)[:200]}; {advice}")
    return text_a, text_b, label if is_labelled else None


def leave_out_unlabelled(file: TextFile, task: GlueTask) -> TextFile:
    """Return a file without the rows that have no gold label or, in a user's own file, no text.

    Raises `BertprepError` if none is left. The rows of a split for submissions are all kept, since each needs a prediction.
    """
    if file.split in UNLABELLED:
        return file
    known = {label.encode() for label in task.labels}
    if not task.folder and task.is_regression and _has_negatives(file):
        known = {mark.encode() for mark in _NO_NUMBER}
    kept = [
        index
        for index, (text, _, label) in enumerate(file.rows)
        if (label in known or not _is_missing(label.decode())) and (task.folder or text.strip())
    ]
    if not kept:
        raise BertprepError(
            f"{file.path}: none of its {len(file.rows):,} rows has a text and a label; name it test... if it needs predictions"
        )
    if len(kept) == len(file.rows):
        return file
    return replace(
        file,
        rows=[file.rows[index] for index in kept],
        locations=[file.locations[index] for index in kept],
        unlabelled=len(file.rows) - len(kept),
    )


def _has_negatives(file: TextFile) -> bool:
    return any(_is_number(label) and float(label) < 0 for label in map(bytes.decode, file.labels) if not _is_missing(label))


def _is_missing(label: str) -> bool:
    return label.strip() in MISSING or canonical(label) in _NO_NUMBER


def label_ids(file: TextFile, task: GlueTask) -> Labels:
    """Return the id of each label, or the scores of a regression task; zeros if the split is unlabelled."""
    if file.split in UNLABELLED:
        return np.zeros(len(file.rows), np.float32) if task.is_regression else np.zeros(len(file.rows), np.int32)
    labels = [label.decode() for label in file.labels]
    if task.is_regression:
        wanted = f" from 0 to {MAX_SCORE:g}" if task.folder else ""
        for row, label in enumerate(labels):
            if not _is_number(label) or (task.folder and not 0 <= float(label) <= MAX_SCORE):
                raise file.fault(row, f"the score is {label[:_SHOWN]!r}, expected a number{wanted}")
        return np.array([float(label) for label in labels], np.float32)
    ids = {label: index for index, label in enumerate(task.labels)}
    for row, label in enumerate(labels):
        if label not in ids:
            why = f"the label is {label[:_SHOWN]!r}, expected one of {', '.join(task.labels[:20])}"
            if task.folder and file.locations[row] == "line 1" and label.lower() == task.label.lower():
                why = "is a header, but this GLUE file has none: its first line is an example; remove the header"
            raise file.fault(row, why)
    return np.array([ids[label] for label in labels], np.int32)


def find_labels(file: TextFile) -> tuple[str, ...]:
    """Return the distinct labels of a user's training file, sorted; numbers are sorted by value. Scores have none.

    Labels are scores if all are numbers, and some have fractions. What stands for no label is none of them. -1 is one if the
    others are 0 or 1, as in sentiments, or other negative numbers.
    """
    found = {label.decode() for label in file.labels}
    long = next((label for label in found if len(label) > _MAX_LABEL), None)
    if long is not None:
        row = file.labels.index(long.encode())
        raise file.fault(
            row, f"its label has {len(long):,} characters, expected at most {_MAX_LABEL}; is this the right column?"
        )
    labels = {label for label in found if not _is_missing(label)}
    if all(map(_is_number, labels)) and (max(map(float, labels), default=0) <= 1 or min(map(float, labels)) < 0):
        labels |= found & set(_NO_NUMBER[:1])
    if len(labels) > 1 and all(map(_is_number, labels)) and any(float(label) % 1 for label in labels):
        return ()
    if not 2 <= len(labels) <= _MAX_LABELS:
        raise BertprepError(
            f"{file.path}: has {counted(len(labels), 'label')}, expected 2 to {_MAX_LABELS:,}; check the file, or name them "
            "with --labels"
        )
    return tuple(sorted(labels, key=float if all(map(_is_number, labels)) else by_number))


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False

"""Reads files of labelled texts: GLUE's and the user's own.

TSV is read as in Google's `run_classifier.py`: there is no quoting, carriage returns are removed, and only newlines end lines.
JSON Lines can have any text. Errors name the file and line.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bertprep.errors import BertprepError, reading
from bertprep.files.object_cache import open_local
from bertprep.tasks.glue import MAX_SCORE, UNLABELLED, GlueTask
from bertprep.terminal import counted
from bertprep.untrusted import parse_json
from bertprep.work.layout import by_number

TEXT_A = ("text_a", "sentence1", "text", "sentence")
TEXT_B = ("text_b", "sentence2")
LABEL = ("label",)
"""The column names that a user's own file may have."""
_MAX_LABELS = 1000
_NO_BREAKS = str.maketrans("\t\n\r", "   ")  # BERT's tokenizer treats them as spaces; here they end columns and lines
_SHOWN = 40  # characters of a label, in errors

Row = tuple[bytes, bytes, bytes]
"""text_a, text_b and label, each empty if it is absent."""
Labels = NDArray[np.int32] | NDArray[np.float32]


@dataclass(frozen=True)
class TextFile:
    """The examples of a file, in order; the first is on line `first_line`, after the header if there is one."""

    path: Path
    split: str
    size_bytes: int
    sha256: str
    first_line: int
    rows: list[Row]

    @property
    def labels(self) -> list[bytes]:
        return [row[2] for row in self.rows]

    def fault(self, row: int, why: str) -> BertprepError:
        return _fault(self.path, self.first_line + row, why)


def _fault(path: Path, line: int, why: str) -> BertprepError:
    return BertprepError(f"{path}: line {line:,}: {why}")


def read_file(path: Path, split: str, task: GlueTask) -> TextFile:
    """Read the examples of a file; raise `BertprepError` for the first invalid line."""
    with reading(path, "; expected a file of examples"), open_local(path) as file:
        data = file.read()
    lines = _split_lines(path, data)
    if not lines:
        raise BertprepError(f"{path}: is empty; expected one example per line")
    rows: list[Row] = []
    skipped = 0
    try:
        read, skipped = _reader(path, split, task, lines[0])
        for text in lines[skipped:]:
            rows.append(read(text))  # noqa: PERF401 - an error takes its line number from the length
    except ValueError as error:
        raise _fault(path, skipped + len(rows) + 1, str(error)) from error
    if not rows:
        raise BertprepError(f"{path}: has a header but no examples; expected one example per line")
    return TextFile(path, split, len(data), hashlib.sha256(data).hexdigest(), skipped + 1, rows)


def _split_lines(path: Path, data: bytes) -> list[bytes]:
    wrong, why = data.find(b"\0"), "has a NUL byte, which text never has; is this a text file?"
    try:
        data.decode()
    except UnicodeDecodeError as error:
        wrong, why = error.start, f"byte 0x{data[error.start]:02x} is not UTF-8; convert the file, for instance with iconv"
    if wrong >= 0:
        raise _fault(path, 1 + data.count(b"\n", 0, wrong), why)
    lines = data.replace(b"\r", b"").split(b"\n")
    return lines if lines[-1] else lines[:-1]


def _reader(path: Path, split: str, task: GlueTask, first: bytes) -> tuple[Callable[[bytes], Row], int]:
    if not task.folder and path.suffix.lower() in (".jsonl", ".json"):
        return partial(_read_object, _find_columns(split, list(_parse_object(first)))), 0
    header = first.decode().removeprefix("\ufeff").split("\t")
    if not task.folder:
        return partial(_read_columns, _columns(header, *_find_columns(split, header))), 1
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


def _read_object(names: tuple[str, str | None, str | None], line: bytes) -> Row:
    values = _parse_object(line)
    text_a, text_b, label = names
    if label and type(values.get(label)) is int:
        values[label] = str(values[label])
    return _text(values, text_a), _text(values, text_b), _text(values, label)


def _parse_object(line: bytes) -> dict[str, Any]:
    try:
        values = parse_json(line)
    except ValueError as error:
        raise ValueError(f"is not JSON ({error}); expected one object per line") from error
    if not isinstance(values, dict):
        raise ValueError('is not a JSON object; expected one per line, such as {"text": "...", "label": "..."}')
    return values


def _text(values: dict[str, Any], name: str | None) -> bytes:
    if name is None:
        return b""
    value = values.get(name)
    if not isinstance(value, str):
        raise ValueError(f"has no text {name!r}, unlike the first line; fix or remove the line")
    if "\0" in value:
        raise ValueError(f"{name!r} has a NUL character, which text never has; remove it")
    try:
        return value.translate(_NO_BREAKS).encode()
    except UnicodeEncodeError:
        raise ValueError(f"{name!r} has half of a surrogate pair, which is not a character; remove it") from None


def _find_columns(split: str, names: Sequence[str]) -> tuple[str, str | None, str | None]:
    found: list[str | None] = []
    for choices in (TEXT_A, TEXT_B, LABEL):
        there = [name for name in names if name in choices]
        if len(there) > 1:
            raise ValueError(f"has the columns {' and '.join(there)}, expected one of them; remove or rename the others")
        found.append(there[0] if there else None)
    text_a, text_b, label = found
    is_labelled = split not in UNLABELLED
    if text_a is None or (is_labelled and label is None):
        missing = f"{' or '.join(TEXT_A)} for the text" if text_a is None else "label"
        raise ValueError(f"has no column {missing}; its columns are {', '.join(names)[:200]}")
    return text_a, text_b, label if is_labelled else None


def label_ids(file: TextFile, task: GlueTask) -> Labels:
    """Return the id of each label, or the scores of a regression task; zeros if the split is unlabelled."""
    if file.split in UNLABELLED:
        return np.zeros(len(file.rows), np.float32) if task.is_regression else np.zeros(len(file.rows), np.int32)
    labels = [label.decode() for label in file.labels]
    if task.is_regression:
        for row, label in enumerate(labels):
            if not _is_number(label) or not 0 <= float(label) <= MAX_SCORE:
                raise file.fault(row, f"the score is {label[:_SHOWN]!r}, expected a number from 0 to {MAX_SCORE:g}")
        return np.array([float(label) for label in labels], np.float32)
    ids = {label: index for index, label in enumerate(task.labels)}
    for row, label in enumerate(labels):
        if label not in ids:
            why = f"the label is {label[:_SHOWN]!r}, expected one of {', '.join(task.labels[:20])}"
            if task.folder and file.first_line + row == 1 and label.lower() == task.label.lower():
                why = "is a header, but this GLUE file has none: its first line is an example; remove the header"
            raise file.fault(row, why)
    return np.array([ids[label] for label in labels], np.int32)


def find_labels(file: TextFile) -> tuple[str, ...]:
    """Return the distinct labels of a user's training file, sorted; numbers are sorted by value."""
    if b"" in file.labels:
        raise file.fault(file.labels.index(b""), "its label is empty, expected a name; add the label or remove the line")
    found = {label.decode() for label in file.labels}
    if not 2 <= len(found) <= _MAX_LABELS:
        raise BertprepError(
            f"{file.path}: has {len(found):,} labels, expected 2 to {_MAX_LABELS:,}; check the file, or name them with --labels"
        )
    return tuple(sorted(found, key=by_number))


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False

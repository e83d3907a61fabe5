"""Files of labelled texts, GLUE's and the user's own: read in blocks of lines, so that workers share a large file.

TSV is read as Google's `run_classifier.py` reads it: no quoting, so quotes are plain characters; carriage returns vanish; lines
end at newlines only. JSON Lines may hold any text. A file is read once from end to end, for its sha256, its first line and the
offsets of its blocks; then each block by itself. Anything wrong is one line with file and line number.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertprep.errors import BertprepError
from bertprep.tasks import EXAMPLES_PER_FILE
from bertprep.tasks.glue import HIGHEST_SCORE, UNLABELLED, Columns, GlueTask
from bertprep.untrusted import parse_json
from bertprep.workspace.layout import by_number

LINES_IN_BLOCK = EXAMPLES_PER_FILE
TEXT_A = ("text_a", "sentence1", "text", "sentence")
TEXT_B = ("text_b", "sentence2")
LABEL = ("label",)
"""What the columns of a user's own file may be called."""
JSON_LINES = (".jsonl", ".json")
MOST_LINE_BYTES = 1 << 18
"""Of a line without its newline: many times the tokens of any model, and a bound for the memory of a block."""
_READ_BYTES = 4 << 20
_NO_BREAKS = str.maketrans("\t\n\r", "   ")  # BERT's tokenizer takes them for spaces, and here they end columns and lines
_SHOWN = 40  # characters of a label, in errors

Read = Callable[[int, bytes], "tuple[bytes, bytes, bytes]"]
"""Reads (line number, line) as text_a, text_b, label; an absent one is empty."""


@dataclass(frozen=True)
class TextFile:
    """A file of examples that was read once, and where each block of `LINES_IN_BLOCK` lines begins."""

    path: Path
    split: str
    size_bytes: int
    sha256: str
    lines: int
    starts: tuple[int, ...]
    line_one: bytes  # which names the columns


@dataclass(frozen=True)
class Rows:
    """Examples in the order of their lines: text_b is empty where there is none, labels are 0 where the file has none."""

    text_a: list[bytes]
    text_b: list[bytes]
    labels: NDArray[np.int32] | NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.text_a)


def scan_file(path: Path, split: str) -> TextFile:
    """Read a file once; raises `BertprepError` where it cannot be read, is empty, or has a line above `MOST_LINE_BYTES`."""
    if not path.is_file():
        raise BertprepError(f"{path}: {'is not a file' if path.exists() else 'does not exist'}; expected a file of examples")
    digest = hashlib.sha256()
    size_bytes = lines = line_start = 0
    starts = [0]
    head = b""
    ends_line = True
    try:
        with path.open("rb", buffering=0) as file:
            while block := file.read(_READ_BYTES):
                digest.update(block)
                ends = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n"))
                first = -(lines + 1) % LINES_IN_BLOCK  # the newline of this block after which the next block of lines begins
                starts += (size_bytes + 1 + ends[first::LINES_IN_BLOCK]).tolist()
                if not lines:
                    head += block
                bounds = np.concatenate([[line_start], size_bytes + 1 + ends, [size_bytes + len(block) + 1]])
                _check_lengths(path, lines + 1, bounds)
                line_start = int(bounds[-2])
                lines += len(ends)
                size_bytes += len(block)
                ends_line = block.endswith(b"\n")
    except OSError as error:
        raise BertprepError(f"{path}: cannot be read: {error.strerror}") from error
    if not size_bytes:
        raise BertprepError(f"{path}: is empty; expected one example a line")
    starts = [start for start in starts if start < size_bytes]
    (line_one,) = _split_lines(path, 1, head[: head.find(b"\n") + 1] or head)
    return TextFile(path, split, size_bytes, digest.hexdigest(), lines + (not ends_line), tuple(starts), line_one)


def _check_lengths(path: Path, first: int, bounds: NDArray[np.int64]) -> None:
    """Raise for a line that is too long; line `first` + i begins at bounds[i]. The last may be longer than was read so far."""
    too_long = np.diff(bounds) - 1 > MOST_LINE_BYTES
    if too_long.any():
        why = f"has more than {MOST_LINE_BYTES:,} bytes, the most that a line may have; is it a file of one example a line?"
        raise _fault(path, first + int(np.argmax(too_long)), why)


def read_rows(file: TextFile, task: GlueTask, block: int) -> Rows:
    """The examples of one block of lines; raises `BertprepError` for the first line that is wrong."""
    first, lines = _read_lines(file, block)
    read, skipped = _reader(file, task)
    if first == 1:
        first, lines = first + skipped, lines[skipped:]
    rows = [read(number, line) for number, line in enumerate(lines, first)]
    if file.split in UNLABELLED:
        labels: NDArray[Any] = np.zeros(len(rows), np.float32 if task.is_regression else np.int32)
    elif task.is_regression:
        labels = np.array([_score(file, number, row[2]) for number, row in enumerate(rows, first)], np.float32)
    else:
        numbers = {label.encode(): number for number, label in enumerate(task.labels)}
        found = [numbers.get(row[2], -1) for row in rows]
        if -1 in found:
            wrong = found.index(-1)
            raise _wrong_label(file, first + wrong, rows[wrong][2], task)
        labels = np.array(found, np.int32)
    return Rows([row[0] for row in rows], [row[1] for row in rows], labels)


def count_rows(file: TextFile, task: GlueTask) -> int:
    """How many examples a file has; raises `BertprepError` where its header is wrong or it has no other line."""
    _, skipped = _reader(file, task)
    if file.lines == skipped:
        raise BertprepError(f"{file.path}: has a header and no example; expected one example a line")
    return file.lines - skipped


def find_labels(file: TextFile, task: GlueTask) -> tuple[str, ...]:
    """The different labels of a training file of the user's own, sorted, numbers by their size."""
    read, skipped = _reader(file, task)
    found: set[bytes] = set()
    for block in range(len(file.starts)):
        first, lines = _read_lines(file, block)
        start = skipped if block == 0 else 0
        for number, line in enumerate(lines[start:], first + start):
            label = read(number, line)[2]
            if not label:
                raise _fault(file.path, number, "its label is empty, expected a name; fill it in, or remove the line")
            found.add(label)
        if len(found) > 1000:
            raise BertprepError(f"{file.path}: has over 1,000 different labels; is that its column of labels?")
    if len(found) < 2:
        raise BertprepError(f"{file.path}: has {len(found)} label; a classifier needs two or more (--labels names them)")
    return tuple(sorted((label.decode() for label in found), key=by_number))


def _read_lines(file: TextFile, block: int) -> tuple[int, list[bytes]]:
    """The number of a block's first line, and its lines without carriage returns, checked to be UTF-8 without NUL."""
    start = file.starts[block]
    end = file.starts[block + 1] if block + 1 < len(file.starts) else file.size_bytes
    with file.path.open("rb") as opened:
        opened.seek(start)
        data = opened.read(end - start)
    if len(data) < end - start:
        raise BertprepError(f"{file.path}: was cut short while it was read; see that nothing else writes there, and try again")
    first = block * LINES_IN_BLOCK + 1
    return first, _split_lines(file.path, first, data)


def _split_lines(path: Path, first: int, data: bytes) -> list[bytes]:
    """The lines of some bytes, of which the first is number `first`; without carriage returns, checked as said above."""
    wrong, why = -1, ""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        wrong, why = error.start, f"byte 0x{data[error.start]:02x} is not UTF-8; convert the file, for instance with iconv"
    if wrong < 0 and (wrong := data.find(b"\0")) >= 0:
        why = "has a NUL, which no text has; is it a file of text?"
    if wrong >= 0:
        raise _fault(path, first + data.count(b"\n", 0, wrong), why)
    lines = data.replace(b"\r", b"").split(b"\n")
    if not lines[-1]:
        lines.pop()
    return lines


def _reader(file: TextFile, task: GlueTask) -> tuple[Read, int]:
    """How to read a line of this file, and how many lines its header has (0 or 1)."""
    if task.folder:
        columns = task.columns(file.split)
        if columns.has_header:
            _check_is_header(file, task, columns)
        return _read_columns(file, columns), int(columns.has_header)
    if file.path.suffix.lower() in JSON_LINES:
        return _read_objects(file), 0
    names = file.line_one.decode().removeprefix("\ufeff").split("\t")
    text_a, text_b, label = _find_columns(file, names)
    positions = {name: names.index(name) for name in (text_a, text_b, label) if name}
    columns = Columns(
        positions[text_a], positions.get(text_b or ""), positions.get(label or ""), True, max(positions.values()) + 1
    )
    return _read_columns(file, columns), 1


def _check_is_header(file: TextFile, task: GlueTask, columns: Columns) -> None:
    """Google's readers drop the first line unseen; raise where that would drop an example."""
    fields = file.line_one.split(b"\t")
    if columns.label is None or len(fields) < columns.least:
        return
    label = fields[columns.label].removeprefix("\ufeff".encode()).decode()
    if label in task.labels or (task.is_regression and _is_number(label)):
        expected = "\\t".join(task.files[file.split].columns)
        raise _fault(file.path, 1, f"is an example, expected the header {expected}, which readers skip; put it there")


def _read_columns(file: TextFile, columns: Columns) -> Read:
    text_a, text_b, label, least = columns.text_a, columns.text_b, columns.label, columns.least

    def read(number: int, line: bytes) -> tuple[bytes, bytes, bytes]:
        fields = line.split(b"\t")
        if len(fields) < least:
            found = f"has {len(fields)} column{'s' * (len(fields) > 1)}" if line else "is blank"
            raise _fault(file.path, number, f"{found}, expected {least} or more columns, separated by tabs; fix it")
        return (
            fields[text_a],
            b"" if text_b is None else fields[text_b],
            b"" if label is None else fields[label],
        )

    return read


def _read_objects(file: TextFile) -> Read:
    text_a, text_b, label = _find_columns(file, list(_parse_object(file, 1, file.line_one)))

    def read(number: int, line: bytes) -> tuple[bytes, bytes, bytes]:
        values = _parse_object(file, number, line)
        return (
            _text(file, number, values, text_a),
            b"" if text_b is None else _text(file, number, values, text_b),
            b"" if label is None else _text(file, number, values, label, or_whole_number=True),
        )

    return read


def _parse_object(file: TextFile, number: int, line: bytes) -> dict[str, Any]:
    try:
        values = parse_json(line)
    except ValueError as error:
        raise _fault(file.path, number, f"is not JSON ({error}); expected one object a line") from error
    if not isinstance(values, dict):
        raise _fault(file.path, number, 'is not a JSON object; expected one a line, such as {"text": "...", "label": "..."}')
    return values


def _text(file: TextFile, number: int, values: dict[str, Any], name: str, *, or_whole_number: bool = False) -> bytes:
    value = values.get(name)
    if or_whole_number and type(value) is int:
        return str(value).encode()
    if not isinstance(value, str):
        raise _fault(file.path, number, f"has no text {name!r}, as the first line has; fix or remove it")
    if "\0" in value:
        raise _fault(file.path, number, f"{name!r} has a NUL, which no text has")
    try:
        return value.translate(_NO_BREAKS).encode()
    except UnicodeEncodeError:
        raise _fault(file.path, number, f"{name!r} has half of a surrogate pair, which is no character") from None


def _find_columns(file: TextFile, names: Sequence[str]) -> tuple[str, str | None, str | None]:
    """The names of text_a, text_b and the label among those of the first line; raises where one is missing or unclear."""
    found: list[str | None] = []
    for choices in (TEXT_A, TEXT_B, LABEL):
        there = [name for name in names if name in choices]
        if len(there) > 1:
            why = f"has the columns {' and '.join(there)}; leave one of them, it is not clear which is meant"
            raise _fault(file.path, 1, why)
        found.append(there[0] if there else None)
    text_a, text_b, label = found
    is_labelled = file.split not in UNLABELLED
    if text_a is None or (is_labelled and label is None):
        missing = f"{' or '.join(TEXT_A)} for the text" if text_a is None else "label"
        shown = ", ".join(names)[:200]
        raise _fault(file.path, 1, f"names no column {missing}; it has: {shown}")
    return text_a, text_b, label if is_labelled else None


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _score(file: TextFile, number: int, text: bytes) -> float:
    if _is_number(text.decode()) and 0 <= (score := float(text)) <= HIGHEST_SCORE:
        return score
    raise _fault(file.path, number, f"the score is {text.decode()[:_SHOWN]!r}, expected a number from 0 to {HIGHEST_SCORE:g}")


def _wrong_label(file: TextFile, number: int, label: bytes, task: GlueTask) -> BertprepError:
    expected = ", ".join(task.labels[:20])
    if task.folder and number == 1 and label.decode().lower() in ("label", task.label.lower()):
        return _fault(file.path, 1, "is a header, and this file of GLUE's has none: its first line is an example; remove it")
    return _fault(file.path, number, f"the label is {label.decode()[:_SHOWN]!r}, expected one of {expected}")


def _fault(path: Path, line: int, why: str) -> BertprepError:
    return BertprepError(f"{path}: line {line:,}: {why}")

"""Reads the rows of a fine-tuning file, whatever wrote it: Parquet, JSON Lines, a JSON array, CSV, TSV with quotes.

The bytes of a file tell what it is, since people give tables any name. Each row comes with its location, for errors. A file has
at most 1 GiB. It is read whole, since each task needs all of its labels first.
"""

from __future__ import annotations

import io
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bertprep.errors import BertprepError, first_line, not_utf8, reading
from bertprep.files.archives import BZIP2, GZIP, XZ, ZSTANDARD, compression_of
from bertprep.files.object_cache import local_copy
from bertprep.untrusted import parse_json, read_bounded

MAX_BYTES = 1 << 30
_PARQUET = b"PAR1"
_ZIP = b"PK\x03\x04"
_UNPACK = {GZIP: "gunzip", BZIP2: "bunzip2", ZSTANDARD: "unzstd", XZ: "unxz"}
_JSON = re.compile(rb'(?:\xef\xbb\xbf)?\s*(?:\{\s*["}]|\[\s*[{\]])')

LocatedRow = tuple[str, dict[str, Any]]
"""Where a row is in its file, such as "line 3", and its values by column."""


def read_data(path: Path, expected: str) -> bytes:
    """Return the bytes of a file; raise `BertprepError` if it cannot be read or is too large."""
    with reading(path, f"; expected {expected}"):
        try:
            return read_bounded(local_copy(path), MAX_BYTES)
        except ValueError as error:
            raise BertprepError(f"{path}: {error}; expected {expected}: split or sample the file") from error


def read_text(path: Path, data: bytes) -> str:
    """Return a file's text without a byte order mark and carriage returns; raise `BertprepError` if it is not UTF-8."""
    if data.startswith(_ZIP):
        raise BertprepError(
            f"{path}: is a workbook of Excel, or a ZIP archive; save the table as CSV in UTF-8, or unpack the archive"
        )
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        if unpack := _UNPACK.get(compression_of(data)):
            raise BertprepError(f"{path}: is compressed; unpack it: {unpack} < {shlex.quote(str(path))} > NEW") from error
        line = 1 + data.count(b"\n", 0, error.start)
        raise not_utf8(f"{path}: line {line:,}", error) from error
    if (zero := text.find("\0")) >= 0:
        line = 1 + text.count("\n", 0, zero)
        raise BertprepError(f"{path}: line {line:,}: has a NUL byte, which text never has; is this a text file?")
    return text.removeprefix("\ufeff").replace("\r", "")


def is_parquet(data: bytes) -> bool:
    return data.startswith(_PARQUET)


def is_json(path: Path, data: bytes) -> bool:
    """Return whether a file is JSON or JSON Lines, by its suffix or its first characters; a first word may be [ or {."""
    return path.suffix.lower() in (".json", ".jsonl") or _JSON.match(data) is not None


def parquet_rows(path: Path, data: bytes) -> tuple[Mapping[str, Any], list[LocatedRow]]:
    """Return the features that `datasets` describes in a Parquet file, by column, and the rows of the file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(io.BytesIO(data), use_threads=False)
        rows = table.to_pylist()
    except (pa.ArrowException, OSError, ValueError, MemoryError, OverflowError) as error:
        raise BertprepError(
            f"{path}: cannot be read as Parquet: {first_line(error)}; it may be incomplete: write or download it again"
        ) from error
    try:
        features = parse_json((table.schema.metadata or {}).get(b"huggingface", b"{}"))["info"]["features"]
    except (LookupError, TypeError, ValueError):
        features = {}
    located = [(f"row {index:,}", row) for index, row in enumerate(rows)]
    return features if isinstance(features, dict) else {}, located


def json_rows(path: Path, data: bytes) -> Iterator[LocatedRow]:
    """Yield the objects of JSON Lines, or of a JSON array; blank lines are passed over."""
    text = read_text(path, data)
    if text.lstrip().startswith("["):
        try:
            values = parse_json(text.encode(), nan_is_null=True)
        except ValueError as error:
            raise BertprepError(
                f"{path}: is not JSON ({_short(error)}); expected an array of objects, or one per line"
            ) from error
        for index, row in enumerate(values):
            yield _checked(path, f"object {index:,}", row)
        return
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        where = f"line {number:,}"
        try:
            values = parse_json(line.encode(), nan_is_null=True)
        except ValueError as error:
            raise BertprepError(f"{path}: {where}: is not JSON ({_short(error)}); expected one object per line") from error
        yield _checked(path, where, values)


def _short(error: ValueError) -> str:
    return first_line(error)[:200]


def _checked(path: Path, where: str, row: object) -> LocatedRow:
    if not isinstance(row, dict):
        raise BertprepError(f'{path}: {where}: is not a JSON object; expected one per line, such as {{"text": "..."}}')
    if row and all(isinstance(value, dict) and "0" in value for value in row.values()):  # each value is a column of pandas
        raise BertprepError(
            f"{path}: {where}: has whole columns, expected one object for each row; in pandas: "
            'to_json(path, orient="records", lines=True)'
        )
    return where, row


def _cell(separator: str, *, plain: str) -> re.Pattern[str]:
    """Return what matches a cell and its end: in quotes (group 1), or else `plain` (group 2)."""
    end = re.escape(separator)
    return re.compile(rf'(?:"([^"]*(?:""[^"]*)*)"|({plain.format(end)}))({end}|\n|\Z)')


def split_cells(text: str, separator: str) -> Iterator[tuple[int, list[str]]]:
    r"""Yield the line number and the cells of each row of CSV, or of TSV with quotes; blank lines are passed over.

    Raises `ValueError` for a quote that is not closed, or that is not the last character of its cell.

    >>> list(split_cells('text,label\n"Good, ""really""\ngood",1\n', ","))
    [(1, ['text', 'label']), (2, ['Good, "really"\ngood', '1'])]
    """
    cell = _cell(separator, plain='(?!")[^{0}\n]*')
    at, line, first = 0, 1, 1
    cells: list[str] = []
    text = text if text.endswith("\n") else f"{text}\n"
    while at < len(text):
        found = cell.match(text, at)
        if found is None:
            raise ValueError(f"line {line:,}: has a quote that is not closed, or text after the closing one")
        quoted, plain, end = found.groups()
        cells.append(plain if quoted is None else quoted.replace('""', '"'))
        line += found[0].count("\n")
        at = found.end()
        if end == "\n":
            if cells != [""]:
                yield first, cells
            first, cells = line, []


def has_quoted_cells(text: str, separator: str = "\t") -> bool:
    r"""Return whether a table was written with quotes, as by pandas, and not just has texts with quotes, as GLUE's files.

    Writers quote a cell if it has a quote, a separator or a line break, and double its quotes; or they quote all texts. So a
    table has quoted cells if no other cell has a quote, and if the quotes of each are needed, or are around all of a column. If
    all lines have as many columns, what seems to be a cell of several lines is made of texts with a quote each.

    >>> has_quoted_cells('text\tlabel\n"He said ""no""."\t1\n'), has_quoted_cells('text\tlabel\n"No", he said.\t1\n')
    (True, False)
    """
    if '\n"' not in text and f'{separator}"' not in text:
        return False
    is_needed, cell = re.compile(f'[{separator}\n"]').search, _cell(separator, plain='[^{0}\n"]*')
    bare: set[int] = set()
    wrapped: set[int] = set()  # columns with a cell whose quotes are not needed
    spans = False
    column, at = 0, text.find("\n") + 1  # names of columns may have no quotes where all texts have
    while at < len(text):
        found = cell.match(text, at)
        if found is None:
            return False
        quoted, plain, end = found.groups()
        if plain:
            bare.add(column)
        elif quoted is not None and not is_needed(quoted):
            wrapped.add(column)
        spans = spans or (quoted is not None and (separator in quoted or "\n" in quoted))
        column = column + 1 if end == separator else 0
        at = found.end()
    if spans and len({line.count(separator) for line in text.split("\n") if line}) == 1:
        return False
    return not bare & wrapped

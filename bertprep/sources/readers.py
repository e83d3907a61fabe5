"""Readers of the documents of one source file, unchanged and in order: plain text, JSON Lines, CSV, Parquet, Arrow.

Each reader streams, with one document in memory (Parquet, Arrow: several), none longer than `MOST_DOCUMENT_BYTES`. It also
yields empty documents, so that dropped ones can be counted.
"""

import codecs
import csv
import io
import json
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any, BinaryIO

from bertprep.errors import BertprepError
from bertprep.files.archives import BUFFER_BYTES
from bertprep.sources.arrow import open_arrow
from bertprep.sources.fields import column_texts, find_column, find_value, holds_records, no_field, to_text
from bertprep.sources.parquet import open_parquet
from bertprep.sources.streams import open_stream
from bertprep.text.documents import MOST_DOCUMENT_BYTES, check_encoding, too_long

_MISSING = frozenset(
    {"", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN"}
    | {"<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"}
)
"""What pandas, by which `datasets` reads tables, takes for missing."""


def read_text(location: str) -> Iterator[str]:
    """Documents of plain text: a blank line ends one."""
    lines: list[str] = []
    characters = 0
    for line in _lines(location):
        if line.strip():
            lines.append(line)
            characters += len(line)
            if characters > MOST_DOCUMENT_BYTES:
                raise too_long(location, "a document")
        elif lines:
            yield "".join(lines)
            lines.clear()
            characters = 0
    if lines:
        yield "".join(lines)


def read_whole(location: str) -> Iterator[str]:
    """The whole file as one document."""
    lines: list[str] = []
    characters = 0
    for line in _lines(location):
        lines.append(line)
        characters += len(line)
        if characters > MOST_DOCUMENT_BYTES:
            raise too_long(location, "the document")
    yield "".join(lines)


def _lines(location: str) -> Iterator[str]:
    with open_stream(location) as file:
        for number, line in enumerate(_split_lines(location, file), start=1):
            if number == 1:
                check_encoding(location, line)
            try:
                text = line.decode()
            except UnicodeDecodeError as error:
                raise BertprepError(
                    f"{location}: line {number:,}: expected UTF-8, found 0x{line[error.start]:02x} ({error.reason}); "
                    "convert the file, for example with iconv -t UTF-8"
                ) from error
            yield text.removeprefix("\ufeff") if number == 1 else text


def _split_lines(location: str, file: BinaryIO) -> Iterator[bytes]:
    """The lines of a file with their ends; read in blocks, since a line may be the whole file."""
    number, rest = 1, b""
    while block := file.read(BUFFER_BYTES):
        end = block.rfind(b"\n") + 1
        if end:
            lines = rest + block[:end]
            yield from io.BytesIO(lines)
            number += lines.count(b"\n")
            rest = b""
        rest += block[end:]
        if len(rest) > MOST_DOCUMENT_BYTES:
            raise too_long(f"{location}: line {number:,}", "it")
    if rest:
        yield rest


def read_json_lines(location: str, field: str) -> Iterator[str]:
    """The field `field` of each line, a JSON object; null is an empty document."""
    with open_stream(location) as file:
        for number, line in enumerate(_split_lines(location, file), start=1):
            if number == 1:
                check_encoding(location, line)
                line = line.removeprefix(codecs.BOM_UTF8)
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:  # UnicodeDecodeError is a ValueError; brackets may be nested deeply
                if line.strip() in (b"{", b"[", b"[{"):
                    raise BertprepError(
                        f"{location}: line {number:,}: is JSON over several lines, expected JSON Lines, an object a line; "
                        "write it so (jq -c), or name the files with the text instead of their folder"
                    ) from error
                raise BertprepError(
                    f"{location}: line {number:,}: expected a JSON object, found {_shown(line)}: {error}"
                ) from error
            if not isinstance(row, dict):
                raise BertprepError(f"{location}: line {number:,}: expected a JSON object, found {_shown(line)}")
            where = partial("{}: line {:,}".format, location, number)
            value = row[field] if field in row else find_value(row, field, where)
            yield to_text(value, lambda where=where: f"{where()}: field {field!r}", row)  # type: ignore[misc]


def read_parquet(location: str, field: str) -> Iterator[str]:
    """The column `field`, row by row; null is an empty document."""
    with open_parquet(location) as file:
        yield from column_texts(file.column(find_column(file.schema, field, location)), field, location)


def read_arrow(location: str, field: str) -> Iterator[str]:
    """The column `field` of an Arrow file, row by row; null is an empty document."""
    with open_arrow(location) as file:
        yield from column_texts(file.column(find_column(file.schema, field, location)), field, location)


def check_not_records(location: str) -> None:
    """Raise `UsageError` where a Parquet or Arrow file has tokens and no text; a damaged one is reported when it is read."""
    schema = None
    with suppress(BertprepError), (open_parquet if location.endswith(".parquet") else open_arrow)(location) as file:
        schema = file.schema
    if schema is not None and holds_records(schema):
        find_column(schema, "", location)  # whose error it is


def read_table(location: str, field: str, delimiter: str) -> Iterator[str]:
    """The column `field` of a table in text, CSV or TSV, whose first line names the columns.

    Quotes, and line ends between them, are as in `datasets`; the cells that it takes for missing are empty documents.
    """
    lines = _TableLines(location)
    rows = lines.rows(delimiter)
    header = next(rows, [])
    if field not in header:
        raise no_field(f"{location}: has no column", field, header)
    column = header.index(field)
    for row in rows:
        if not column < len(row) <= len(header):
            raise BertprepError(
                f"{location}: line {lines.start:,}: expected {len(header):,} cells as in the first line, found {len(row):,}; "
                'put text with a separator or a line end between quotes, "..."'
            )
        yield "" if row[column] in _MISSING else row[column]


class _TableLines:
    """The lines of a table for csv.reader, which takes as many for a row as its quotes demand."""

    def __init__(self, location: str) -> None:
        self._location = location
        self.start = 0  # the line where the row begins

    def rows(self, delimiter: str) -> Iterator[list[str]]:
        """The cells of each row; blank lines are skipped."""
        usual = csv.field_size_limit(MOST_DOCUMENT_BYTES + 1)
        try:
            for row in csv.reader(self._read(), delimiter=delimiter):
                if any(map(str.strip, row)):
                    yield row
                self.start = 0
        except csv.Error as error:
            raise BertprepError(f"{self._location}: line {self.start:,}: cannot be read as a table: {error}") from error
        finally:
            csv.field_size_limit(usual)

    def _read(self) -> Iterator[str]:
        characters = 0
        for number, line in enumerate(_lines(self._location), start=1):
            if not self.start:
                self.start, characters = number, 0
            characters += len(line)
            if characters > MOST_DOCUMENT_BYTES:
                raise too_long(f"{self._location}: line {self.start:,}", "a row from there on")
            if "\0" in line:
                raise BertprepError(
                    f"{self._location}: line {number:,}: has a zero byte, which text has not; write the file again"
                )
            yield line
        if self.start:
            raise BertprepError(
                f"{self._location}: line {self.start:,}: has a quote that no other one closes; is the file whole? "
                'A quote within text is written as two, ""'
            )


def _shown(value: Any) -> str:
    text = value.decode(errors="replace").strip() if isinstance(value, bytes) else repr(value)
    return text if len(text) <= 40 else text[:40] + "..."

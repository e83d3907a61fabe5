"""Readers of the documents of one source file, unchanged and in order: plain text, JSON Lines, Parquet.

Each reader streams, with one document in memory (Parquet: several), none longer than `MOST_DOCUMENT_BYTES`. It also yields
empty documents, so that dropped ones can be counted.
"""

import codecs
import io
import json
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

from bertprep.errors import BertprepError, UsageError
from bertprep.files.archives import BUFFER_BYTES
from bertprep.sources.parquet import open_parquet, show_names
from bertprep.sources.streams import open_stream
from bertprep.text.documents import MOST_DOCUMENT_BYTES, check_encoding, too_long


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
                raise BertprepError(
                    f"{location}: line {number:,}: expected a JSON object, found {_shown(line)}: {error}"
                ) from error
            if not isinstance(row, dict):
                raise BertprepError(f"{location}: line {number:,}: expected a JSON object, found {_shown(line)}")
            if field not in row:
                raise _no_field(f"{location}: line {number:,}: has no field", field, row)
            yield _text(row[field], f"{location}: line {number:,}: field {field!r}")


def read_parquet(location: str, field: str) -> Iterator[str]:
    """The column `field`, row by row; null is an empty document."""
    with open_parquet(location) as file:
        if field not in file.schema.names:
            raise _no_field(f"{location}: has no column", field, file.schema.names)
        for number, (value,) in enumerate(file.read([field])):
            yield _text(value, f"{location}: row {number:,}: column {field!r}")


def _no_field(what: str, field: str, found: Iterable[str]) -> UsageError:
    return UsageError(f"{what} {field!r}, but {show_names(found)}; name the one with the text by --field")


def _text(value: Any, where: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise BertprepError(f"{where}: expected text, found {type(value).__name__} {_shown(value)}")
    if len(value) > MOST_DOCUMENT_BYTES:
        raise too_long(where, "it")
    return value


def _shown(value: Any) -> str:
    text = value.decode(errors="replace").strip() if isinstance(value, bytes) else repr(value)
    return text if len(text) <= 40 else text[:40] + "..."

"""The documents of one source file as they stand there, in order: plain text, JSON Lines, Parquet.

Each reader is a stream, in the memory of one document (Parquet: of some, and of what a row group needs), and yields
an empty text where the file has one, so that what is dropped can be counted.
"""

import codecs
import json
from collections.abc import Iterable, Iterator
from typing import Any

from bertprep.errors import BertprepError, UsageError
from bertprep.sources.streams import BUFFER_BYTES, open_raw, open_stream

ROWS = 64  # at once in memory; a document may be a book


def read_text(location: str) -> Iterator[str]:
    """Documents of plain text: a blank line ends one."""
    lines: list[str] = []
    for line in _lines(location):
        if line.strip():
            lines.append(line)
        elif lines:
            yield "".join(lines)
            lines.clear()
    if lines:
        yield "".join(lines)


def read_whole(location: str) -> Iterator[str]:
    """The whole file as one document."""
    yield "".join(_lines(location))


def _lines(location: str) -> Iterator[str]:
    with open_stream(location) as file:
        for number, line in enumerate(file, start=1):
            try:
                text = line.decode()
            except UnicodeDecodeError as error:
                raise BertprepError(
                    f"{location}: line {number:,}: expected UTF-8, found 0x{line[error.start]:02x} ({error.reason}); "
                    "convert the file, for example with iconv -t UTF-8"
                ) from error
            yield text.removeprefix("\ufeff") if number == 1 else text


def read_json_lines(location: str, field: str) -> Iterator[str]:
    """The field `field` of each line, a JSON object; null is an empty document."""
    with open_stream(location) as file:
        for number, line in enumerate(file, start=1):
            if number == 1:
                line = line.removeprefix(codecs.BOM_UTF8)
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except ValueError as error:  # UnicodeDecodeError is one
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
    for number, value in enumerate(read_column(location, field)):
        yield _text(value, f"{location}: row {number:,}: column {field!r}")


def read_column(location: str, column: str) -> Iterator[Any]:
    """The values of a column of a Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with open_raw(location) as raw, pq.ParquetFile(raw, pre_buffer=False, buffer_size=BUFFER_BYTES) as file:
            if column not in (names := file.schema_arrow.names):
                raise _no_field(f"{location}: has no column", column, names)
            for batch in file.iter_batches(ROWS, columns=[column], use_threads=False):
                yield from batch.column(0).to_pylist()
    except (pa.ArrowException, OSError) as error:
        raise BertprepError(f"{location}: cannot be read as Parquet: {error}; is it whole? fetch it again") from error


def _no_field(what: str, field: str, found: Iterable[str]) -> UsageError:
    return UsageError(f"{what} {field!r}, but {', '.join(map(repr, found)) or 'none'}; name that of the text with --field")


def _text(value: Any, where: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise BertprepError(f"{where}: expected text, found {type(value).__name__} {_shown(value)}")
    return value


def _shown(value: Any) -> str:
    text = value.decode(errors="replace").strip() if isinstance(value, bytes) else repr(value)
    return text if len(text) <= 40 else text[:40] + "..."

"""Reads rows of other people's Parquet files in bounded memory, with one-line errors for any fault.

A column is stored in pages, with repeated values once in a dictionary page, so a small file can expand to gigabytes. The number
of rows read at a time therefore follows from their mean size in the footer and from the size of the dictionary page, since a
single value may be as long as that page.
"""

import io
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO

from bertprep.errors import BertprepError
from bertprep.files.archives import BUFFER_BYTES
from bertprep.sources.streams import open_raw
from bertprep.text.documents import MOST_DOCUMENT_BYTES

_MOST_ROWS = 64
_SHOWN = 40  # characters of a name, and names

# Numbers of fields in Parquet's Thrift structs, and of the compact encoding's kinds
_ROW_GROUPS = 4  # of FileMetaData
_CHUNKS, _ROWS = 1, 3  # of RowGroup
_CHUNK_FACTS = 3  # of ColumnChunk
_PATH, _VALUES, _UNCOMPRESSED_BYTES, _PAGE_AT, _DICTIONARY_PAGE_AT = 3, 5, 6, 9, 11  # of ColumnMetaData
_PAGE_KIND, _PAGE_UNCOMPRESSED_BYTES, _DICTIONARY_PAGE = 1, 2, 2  # of PageHeader, and the kind that a dictionary page has
_HEADER_BYTES = 1024  # a dictionary page without statistics
_TRUE, _BINARY, _DOUBLE, _STRUCT = 1, 8, 7, 12
_BOOLEANS, _BYTES, _NUMBERS, _LISTS = (1, 2), (3,), (4, 5, 6), (9, 10)
_MOST_DEPTH = 16


class ParquetRows:
    """The rows of one open file; see `open_parquet`."""

    def __init__(self, raw: BinaryIO, file: Any, location: str) -> None:
        self._raw, self._file, self._location = raw, file, location
        self.schema = file.schema_arrow

    def read(self, columns: list[str]) -> Iterator[tuple[Any, ...]]:
        """The values of `columns` in each row, as Python objects."""
        start = 0
        for batch in self._file.iter_batches(self._rows_at_a_time(columns), columns=columns, use_threads=False):
            values = [self._to_python(batch.column(column), column, start) for column in columns]
            yield from zip(*values, strict=True)
            start += len(batch)

    def _to_python(self, column: Any, name: str, start: int) -> list[Any]:
        try:
            values: list[Any] = column.to_pylist()
        except UnicodeDecodeError:
            for row, value in enumerate(column, start):
                try:
                    value.as_py()
                except UnicodeDecodeError as error:
                    raise BertprepError(
                        f"{self._location}: row {row:,}: column {name!r}: expected UTF-8, found "
                        f"0x{error.object[error.start]:02x} ({error.reason}); write the column again as UTF-8"
                    ) from error
            raise
        return values

    def _rows_at_a_time(self, columns: Iterable[str]) -> int:
        """As many rows as fit in about `MOST_DOCUMENT_BYTES`."""
        largest = 1
        with suppress(OSError, ValueError, LookupError, TypeError):  # a damaged file; reading it will report that
            for group in _footer(self._raw)[_ROW_GROUPS]:
                for chunk in (chunk[_CHUNK_FACTS] for chunk in group[_CHUNKS]):
                    if chunk[_PATH][0].decode() in columns:
                        largest = max(
                            largest, chunk[_UNCOMPRESSED_BYTES] // max(1, group[_ROWS]), self._dictionary_bytes(chunk)
                        )
        if largest > MOST_DOCUMENT_BYTES:
            raise BertprepError(
                f"{self._location}: has values of {largest:,} bytes, more than the {MOST_DOCUMENT_BYTES:,} of the longest "
                "document that is read; split them into documents"
            )
        return max(1, min(_MOST_ROWS, MOST_DOCUMENT_BYTES // largest))

    def _dictionary_bytes(self, chunk: dict[int, Any]) -> int:
        """The size of the dictionary page that a column may begin with; 0 if it has none."""
        self._raw.seek(min(chunk.get(_DICTIONARY_PAGE_AT, chunk[_PAGE_AT]), chunk[_PAGE_AT]))
        header, _ = _read_struct(self._raw.read(_HEADER_BYTES), 0, 0)
        return int(header[_PAGE_UNCOMPRESSED_BYTES]) if header[_PAGE_KIND] == _DICTIONARY_PAGE else 0


def sizes_of_columns(raw: BinaryIO) -> Iterator[tuple[str, int, int]]:
    """(name, number of values, number of rows) of each column in each row group.

    Raises `OSError`, `ValueError`, `LookupError`, `TypeError` or `AttributeError` where the file is damaged.
    """
    for group in _footer(raw)[_ROW_GROUPS]:
        for chunk in (chunk[_CHUNK_FACTS] for chunk in group[_CHUNKS]):
            yield chunk[_PATH][0].decode(), chunk[_VALUES], group[_ROWS]


def _footer(raw: BinaryIO) -> dict[int, Any]:
    """The metadata at the end of a file; pyarrow's own parser of it crashes on some wrong numbers."""
    raw.seek(-8, io.SEEK_END)
    size = int.from_bytes(raw.read(4), "little")
    raw.seek(-8 - size, io.SEEK_END)
    return _read_struct(raw.read(size), 0, 0)[0]


def _read_struct(data: bytes, at: int, depth: int) -> tuple[dict[int, Any], int]:
    """(values by the numbers of their fields, where the struct ends) in Thrift's compact encoding.

    Raises `IndexError` where the data ends first, `ValueError` where it is not a struct.

    >>> _read_struct(bytes.fromhex("15 04 15 80 10 18 01 61 00"), 0, 0)
    ({1: 2, 2: 1024, 3: b'a'}, 9)
    """
    if depth > _MOST_DEPTH:
        raise ValueError("structs in structs")
    fields: dict[int, Any] = {}
    number = 0
    while data[at]:
        kind, delta = data[at] & 15, data[at] >> 4
        number, at = (number + delta, at + 1) if delta else _read_number(data, at + 1)
        if kind in _BOOLEANS:  # the kind is the value
            fields[number] = kind == _TRUE
        else:
            fields[number], at = _read_value(data, at, kind, depth)
    return fields, at + 1


def _read_value(data: bytes, at: int, kind: int, depth: int) -> tuple[Any, int]:
    if kind in _NUMBERS:
        return _read_number(data, at)
    if kind in _BYTES or kind in _BOOLEANS:
        return data[at], at + 1
    if kind == _DOUBLE:
        return data[at : at + 8], at + 8
    if kind == _BINARY:
        size, at = _read_varint(data, at)
        return data[at : at + size], at + size
    if kind in _LISTS:
        count, inner = data[at] >> 4, data[at] & 15
        count, at = _read_varint(data, at + 1) if count == 15 else (count, at + 1)
        values = []
        for _ in range(count):
            value, at = _read_value(data, at, inner, depth + 1)
            values.append(value)
        return values, at
    if kind == _STRUCT:
        return _read_struct(data, at, depth + 1)
    raise ValueError(f"kind {kind}")


def _read_number(data: bytes, at: int) -> tuple[int, int]:
    value, at = _read_varint(data, at)
    return value >> 1 ^ -(value & 1), at  # zigzag


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while data[at] >= 0x80:
        value |= (data[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if shift > 63:
            raise ValueError("a number of more than 64 bits")
    return value | data[at] << shift, at + 1


def show_names(names: Iterable[str]) -> str:
    r"""The names of fields for a one-line error message, whatever they contain; only the first of many.

    >>> show_names(["id", "te\nxt"]), show_names([])
    ("'id', 'te\\nxt'", 'none')
    """
    shown = [repr(name if len(name) <= _SHOWN else name[:_SHOWN] + "...") for name in names]
    more = len(shown) - _SHOWN
    return ", ".join(shown[:_SHOWN]) + (f" and {more:,} more" if more > 0 else "") or "none"


@contextmanager
def open_parquet(location: str) -> Iterator[ParquetRows]:
    """Open a file at a path or URL. Raises `BertprepError` if it cannot be read, also during reading."""
    import pyarrow as pa  # takes 0.1 s, which commands without Parquet need not pay
    import pyarrow.parquet as pq

    try:
        with open_raw(location) as raw, pq.ParquetFile(raw, pre_buffer=False, buffer_size=BUFFER_BYTES) as file:
            yield ParquetRows(raw, file, location)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        why = (str(error).splitlines() or [type(error).__name__])[0]
        raise BertprepError(f"{location}: cannot be read as Parquet: {why}; is it whole? fetch it again") from error

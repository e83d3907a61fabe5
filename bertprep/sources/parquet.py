"""Reads rows of other people's Parquet files in bounded memory, with one-line errors for any fault.

A column is stored in pages, with repeated values once in a dictionary page, so a small file can expand to gigabytes. The number
of rows read at a time therefore follows from their mean size in the footer and from the size of the dictionary page, since a
single value may be as long as that page.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO

from bertprep.errors import BertprepError
from bertprep.files.archives import BUFFER_BYTES
from bertprep.sources.fields import select, to_python
from bertprep.sources.streams import open_raw
from bertprep.text.documents import MOST_DOCUMENT_BYTES

if TYPE_CHECKING:
    import pyarrow as pa

_MOST_ROWS = 1024
_MOST_VALUES = 1 << 27  # in the lists of a row group
_LEVEL_BYTES = 8  # of a value in a list, however well it is compressed: two levels and a number into the dictionary
_OPTIONS: dict[str, Any] = {"pre_buffer": False, "buffer_size": BUFFER_BYTES}

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
        for batch in self._file.iter_batches(
            self._rows_at_a_time([[name] for name in columns]), columns=columns, use_threads=False
        ):
            values = [to_python(batch.column(name), start, partial(self._where, name)) for name in columns]
            yield from zip(*values, strict=True)
            start += len(batch)

    def _where(self, column: str, row: int) -> str:
        return f"{self._location}: row {row:,}: column {column!r}"

    def column(self, path: list[str]) -> Iterator[pa.Array]:
        """The column to which the names `path` lead, in arrays of some rows. Texts in lists may be numbers into a dictionary.

        Else one list of a few bytes, of the same text a million times, would take gigabytes.
        """
        import pyarrow.parquet as pq

        stored = [self._file.schema.column(number).path for number in range(len(self._file.schema))]
        leaves = [name for name in stored if _leads_to(path, name.split("."))] or path[:1]
        in_lists = any(len(name.split(".")) > len(path) for name in leaves)
        file = pq.ParquetFile(self._raw, **_OPTIONS, read_dictionary=leaves) if in_lists else self._file
        rows = self._rows_at_a_time([path], as_dictionary=in_lists)
        for group in range(file.num_row_groups):  # pyarrow has no lists with dictionaries of two groups
            for batch in file.iter_batches(rows, row_groups=[group], columns=leaves, use_threads=False):
                yield select(batch.column(path[0]), path[1:])

    def _rows_at_a_time(self, paths: list[list[str]], *, as_dictionary: bool = False) -> int:
        """As many rows as fit in about `MOST_DOCUMENT_BYTES`; whether texts in lists are read as numbers into a dictionary."""
        row_bytes, largest, most_values = 1, 0, 0  # the last in the lists of a row group
        with suppress(OSError, ValueError, LookupError, TypeError):  # a damaged file; reading it will report that
            for group in _footer(self._raw)[_ROW_GROUPS]:
                rows = max(1, group[_ROWS])
                for chunk in (chunk[_CHUNK_FACTS] for chunk in group[_CHUNKS]):
                    stored = [name.decode() for name in chunk[_PATH]]
                    if not any(_leads_to(path, stored) for path in paths):
                        continue
                    in_lists = chunk[_VALUES] - rows
                    mean = max(chunk[_UNCOMPRESSED_BYTES], _LEVEL_BYTES * in_lists) // rows
                    dictionary = self._dictionary_bytes(chunk)
                    row_bytes = max(row_bytes, mean, 0 if in_lists > 0 and as_dictionary else dictionary)
                    largest = max(largest, mean, dictionary)
                    most_values = max(most_values, in_lists)
        if largest > MOST_DOCUMENT_BYTES:
            raise BertprepError(
                f"{self._location}: has values of {largest:,} bytes, more than the {MOST_DOCUMENT_BYTES:,} of the longest "
                "document that is read; split them into documents"
            )
        if most_values > _MOST_VALUES:
            raise BertprepError(
                f"{self._location}: has lists with {most_values:,} texts in a row group, more than the {_MOST_VALUES:,} "
                "that are read; write it with smaller row groups"
            )
        return max(1, min(_MOST_ROWS, MOST_DOCUMENT_BYTES // row_bytes))

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


def _leads_to(path: list[str], stored: list[str]) -> bool:
    """Whether a column is stored under the names of `path`: lists have two names of their own between these.

    >>> _leads_to(["text"], ["text", "list", "element"]), _leads_to(["text", "en"], ["text", "de"])
    (True, False)
    """
    if path[0] != stored[0]:
        return False
    names = iter(stored)
    return all(name in names for name in path)


@contextmanager
def open_parquet(location: str) -> Iterator[ParquetRows]:
    """Open a file at a path or URL. Raises `BertprepError` if it cannot be read, also during reading."""
    import pyarrow as pa  # takes 0.1 s, which commands without Parquet need not pay
    import pyarrow.parquet as pq

    try:
        with open_raw(location) as raw, pq.ParquetFile(raw, **_OPTIONS) as file:
            yield ParquetRows(raw, file, location)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        why = (str(error).splitlines() or [type(error).__name__])[0]
        raise BertprepError(f"{location}: cannot be read as Parquet: {why}; is it whole? fetch it again") from error

"""What the footer of a Parquet file and the headers of its pages say: how much a small file expands to when it is read.

Nothing is left unchecked because it could not be understood: all that is wrong raises `ParquetError`.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, NamedTuple

MOST_VALUES = 1 << 27
"""In the lists of a row group, one of which may have them all: as many as pyarrow's usual 1,048,576 rows of 128 tokens."""
_MOST_PAGE_BYTES = 1 << 30

# Numbers of fields in Parquet's Thrift structs, and of the compact encoding's kinds
_ROW_GROUPS = 4  # of FileMetaData
_CHUNKS, _ROWS = 1, 3  # of RowGroup
_CHUNK_FACTS = 3  # of ColumnChunk
_PATH, _VALUES, _UNCOMPRESSED_BYTES, _PAGE_AT, _DICTIONARY_PAGE_AT = 3, 5, 6, 9, 11  # of ColumnMetaData
_PAGE_KIND, _PAGE_UNCOMPRESSED_BYTES, _PAGE_COMPRESSED_BYTES, _DATA_HEADERS = 1, 2, 3, (5, 8)  # of PageHeader
_PAGE_VALUES = 1  # of both headers of data pages
_DICTIONARY_PAGE = 2
_HEADER_BYTES = 1024, 1 << 16, 1 << 24  # read at a time: without statistics, with some, with long ones
_TRUE, _BINARY, _DOUBLE, _MAP, _STRUCT = 1, 8, 7, 11, 12
_BOOLEANS, _BYTES, _NUMBERS, _LISTS = (1, 2), (3,), (4, 5, 6), (9, 10)
_MOST_DEPTH = 16


class ParquetError(ValueError):
    """A file whose footer or page headers are not what the format has."""


class Chunk(NamedTuple):
    """A column of a row group: the names that lead to it, and what the footer says of its size."""

    path: list[str]
    rows: int
    values: int
    uncompressed_bytes: int
    page_at: int  # the offset of its first page


def read_chunks(raw: BinaryIO) -> list[Chunk]:
    """All columns of all row groups; pyarrow's own parser of the footer crashes on some wrong numbers."""
    with _understood("footer"):
        raw.seek(-8, io.SEEK_END)
        size = int.from_bytes(raw.read(4), "little")
        raw.seek(-8 - size, io.SEEK_END)
        footer = _read_struct(raw.read(size), 0, 0)[0]
        return [_chunk(chunk[_CHUNK_FACTS], int(group[_ROWS])) for group in footer[_ROW_GROUPS] for chunk in group[_CHUNKS]]


def _chunk(facts: dict[int, Any], rows: int) -> Chunk:
    first, dictionary = int(facts[_PAGE_AT]), int(facts.get(_DICTIONARY_PAGE_AT, 0))
    path = [name.decode() for name in facts[_PATH]]
    at = dictionary if 0 < dictionary < first else first
    return Chunk(path, rows, int(facts[_VALUES]), int(facts[_UNCOMPRESSED_BYTES]), at)


def dictionary_bytes(raw: BinaryIO, chunk: Chunk) -> int:
    """The size of the dictionary page that a column may begin with; 0 if it has none."""
    with _understood("page headers"):
        header, _ = _page_header(raw, chunk.page_at)
        return int(header[_PAGE_UNCOMPRESSED_BYTES]) if header[_PAGE_KIND] == _DICTIONARY_PAGE else 0


def values_in_pages(raw: BinaryIO, chunk: Chunk) -> int:
    """How many values the pages have that pyarrow reads of a column: a page may hold more than the footer says of all."""
    with _understood("page headers"):
        values, at = 0, chunk.page_at
        while values < chunk.values:
            header, at = _page_header(raw, at)
            sizes = header[_PAGE_UNCOMPRESSED_BYTES], header[_PAGE_COMPRESSED_BYTES]
            if not all(0 <= size <= _MOST_PAGE_BYTES for size in sizes):
                raise ValueError(f"a page of {max(sizes):,} bytes, expected at most {_MOST_PAGE_BYTES:,}")
            at += sizes[1]
            values += sum(max(0, header[kind][_PAGE_VALUES]) for kind in _DATA_HEADERS if kind in header)
        return values


def _page_header(raw: BinaryIO, at: int) -> tuple[dict[int, Any], int]:
    """(the header of the page at an offset, where its content begins)."""
    for size in _HEADER_BYTES:
        raw.seek(at)
        data = raw.read(size)
        try:
            header, end = _read_struct(data, 0, 0)
        except IndexError:
            if len(data) < size:
                break
        else:
            return header, at + end
    raise ValueError("a page that is cut")


@contextmanager
def _understood(what: str) -> Iterator[None]:
    try:
        yield
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        how = str(error) if type(error) is ValueError else "a field is missing or of another kind"
        raise ParquetError(f"its {what} cannot be understood: {how}") from error


def _read_struct(data: bytes, at: int, depth: int) -> tuple[dict[int, Any], int]:
    """(values by the numbers of their fields, where the struct ends) in Thrift's compact encoding.

    Raises `IndexError` where the data ends first, `ValueError` where it is not a struct.

    >>> _read_struct(bytes.fromhex("15 04 15 80 10 18 01 61 00"), 0, 0)
    ({1: 2, 2: 1024, 3: b'a'}, 9)
    """
    fields: dict[int, Any] = {}
    number = 0
    while data[at]:
        kind, delta = data[at] & 15, data[at] >> 4
        number, at = (number + delta, at + 1) if delta else _read_number(data, at + 1)
        if number in fields:  # of which pyarrow may take the other
            raise ValueError(f"field {number} stands in a struct twice")
        if kind in _BOOLEANS:  # the kind is the value
            fields[number] = kind == _TRUE
        else:
            fields[number], at = _read_value(data, at, kind, depth)
    return fields, at + 1


def _read_value(data: bytes, at: int, kind: int, depth: int) -> tuple[Any, int]:
    """(a value, where it ends); a map, of which Parquet has none, is a list of its keys and values.

    >>> _read_value(bytes.fromhex("01 88 01 61 01 62"), 0, _MAP, 0)
    ([b'a', b'b'], 6)
    """
    if depth > _MOST_DEPTH:
        raise ValueError("structs in structs")
    if kind in _NUMBERS:
        return _read_number(data, at)
    if kind in _BYTES or kind in _BOOLEANS:
        return data[at], at + 1
    if kind in (_DOUBLE, _BINARY):
        size, at = _read_varint(data, at) if kind == _BINARY else (8, at)
        if at + size > len(data):
            raise IndexError("the data ends")
        return data[at : at + size], at + size
    if kind in _LISTS:
        count, inner = data[at] >> 4, data[at] & 15
        count, at = _read_varint(data, at + 1) if count == 15 else (count, at + 1)
        values = []
        for _ in range(count):
            value, at = _read_value(data, at, inner, depth + 1)
            values.append(value)
        return values, at
    if kind == _MAP:
        count, at = _read_varint(data, at)
        kinds, at = (data[at], at + 1) if count else (0, at)
        values = []
        for number in range(2 * count):
            value, at = _read_value(data, at, kinds & 15 if number % 2 else kinds >> 4, depth + 1)
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

"""The messages of Arrow files: the batches of a file of anyone's, none of which expands beyond a limit.

pyarrow checks all that a message says but one thing: a compressed buffer names the size of what it expands to, and that much
memory is taken at once. So each message is looked at here before pyarrow reads it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from bertprep.errors import BertprepError

if TYPE_CHECKING:
    import pyarrow as pa

FILE_MAGIC = b"ARROW1"
CONTINUATION = b"\xff\xff\xff\xff"
END_OF_STREAM = CONTINUATION + bytes(4)
_MOST_EXPANDED_BYTES = 1 << 30

# Numbers of fields in Arrow's flatbuffers, of kinds of messages, and sizes of structs
_KIND, _HEADER, _BODY_LENGTH = 1, 2, 3  # of Message
_DICTIONARY, _RECORD_BATCH = 2, 3  # kinds
_DICTIONARY_DATA = 1  # of DictionaryBatch
_BUFFERS, _COMPRESSION = 2, 3  # of RecordBatch
_DICTIONARIES, _BATCHES = 2, 3  # of Footer
_BUFFER_BYTES, _BLOCK_BYTES = 16, 24


class _Message(NamedTuple):
    """A message: where the next one begins, whether it is a dictionary, and the size of what is compressed in it."""

    end: int
    is_dictionary: bool
    expanded: int


def is_list(kind: pa.DataType) -> bool:
    """Whether values of a type are lists, of any layout that is read."""
    import pyarrow as pa

    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def batches_in_file(reader: Any, source: pa.NativeFile, location: str) -> Iterator[pa.RecordBatch]:
    """The batches of an Arrow file, whose `reader` reads `source`.

    Raises `BertprepError` if one, with the dictionaries, expands to more than `_MOST_EXPANDED_BYTES`, and `struct.error` or
    `IndexError` where the file is damaged.
    """
    dictionaries = 0
    for at in _blocks(source):
        message = _look_at(source, at)
        _check_expanded(dictionaries + message.expanded, location)
        dictionaries += message.expanded if message.is_dictionary else 0
    yield from map(reader.get_batch, range(reader.num_record_batches))


def batches_in_stream(reader: Any, source: pa.NativeFile, location: str) -> Iterator[pa.RecordBatch]:
    """The same of a stream; at its end `source` stands after what was read of it."""
    dictionaries = 0
    while True:
        start = source.tell()
        message = _look_at(source, start)
        while message.is_dictionary:  # read_next_batch reads it with the batch
            dictionaries += message.expanded
            _check_expanded(dictionaries, location)
            message = _look_at(source, message.end)
        _check_expanded(dictionaries + message.expanded, location)
        source.seek(start)
        try:
            batch = reader.read_next_batch()
        except StopIteration:
            return
        yield batch


def _check_expanded(size: int, location: str) -> None:
    if size > _MOST_EXPANDED_BYTES:
        raise BertprepError(
            f"{location}: has a batch of {size:,} bytes once decompressed, more than the {_MOST_EXPANDED_BYTES:,} that "
            "are read; write it in smaller batches"
        )


def _blocks(file: pa.NativeFile) -> Iterator[int]:
    """Where the messages of a file begin, as its footer lists them, dictionaries first."""
    size = file.size()
    (footer_bytes,) = struct.unpack("<i", _read(file, size - 10, 4))
    footer = _read(file, size - 10 - footer_bytes, footer_bytes)
    for field in _DICTIONARIES, _BATCHES:
        for at in _items(footer, _field(footer, _follow(footer, 0), field), _BLOCK_BYTES):
            yield struct.unpack_from("<q", footer, at)[0]


def _look_at(file: pa.NativeFile, at: int) -> _Message:
    marker = _read(file, at, 4)
    start = at + 8 if marker == CONTINUATION else at + 4  # before version 0.15 there was no marker
    size = int.from_bytes(_read(file, start - 4, 4), "little", signed=True)
    data = _read(file, start, size)
    if not data:
        return _Message(at, False, 0)
    message = _follow(data, 0)
    kind, body = data[_field(data, message, _KIND)], start + len(data)
    batch = _follow(data, _field(data, message, _HEADER))
    if kind == _DICTIONARY:
        batch = _follow(data, _field(data, batch, _DICTIONARY_DATA))
    expanded = 0
    if kind in (_DICTIONARY, _RECORD_BATCH) and _field(data, batch, _COMPRESSION):
        for item in _items(data, _field(data, batch, _BUFFERS), _BUFFER_BYTES):
            offset, length = struct.unpack_from("<qq", data, item)
            if length >= 8:  # the size of what it expands to, -1 if it is not compressed
                expanded += max(0, struct.unpack("<q", _read(file, body + offset, 8))[0])
    length_at = _field(data, message, _BODY_LENGTH)
    return _Message(body + (struct.unpack_from("<q", data, length_at)[0] if length_at else 0), kind == _DICTIONARY, expanded)


def _read(file: pa.NativeFile, at: int, size: int) -> bytes:
    if at < 0 or size < 0 or at + size > file.size():
        size = 0
    else:
        file.seek(at)
    return bytes(file.read(size))


def _field(data: bytes, table: int, number: int) -> int:
    """Where the value of a field of a flatbuffers table is, 0 if it has none."""
    fields = table - struct.unpack_from("<i", data, table)[0]
    if 4 + 2 * number >= struct.unpack_from("<H", data, fields)[0]:
        return 0
    offset: int = struct.unpack_from("<H", data, fields + 4 + 2 * number)[0]
    return table + offset if offset else 0


def _follow(data: bytes, at: int) -> int:
    return at + int(struct.unpack_from("<I", data, at)[0])


def _items(data: bytes, at: int, size: int) -> range:
    """Where the structs of a flatbuffers vector begin."""
    if not at:
        return range(0)
    start = _follow(data, at)
    count = min(struct.unpack_from("<I", data, start)[0], len(data) // size)
    return range(start + 4, start + 4 + count * size, size)

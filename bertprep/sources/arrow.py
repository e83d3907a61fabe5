"""Reads a column of other people's Arrow files, streams and files of batches, with one-line errors for any fault.

A file on disk is mapped into memory, so of its batches, which may be large, only the text is copied. Every batch is validated
before it is read: its offsets and numbers into dictionaries come from the file. A stream that lacks its end marker was cut,
perhaps between two batches, where Arrow itself would take the rest for the whole.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO

from bertprep.errors import BertprepError
from bertprep.files.mapped_file import MappedFile
from bertprep.sources.fields import select
from bertprep.sources.streams import open_raw

if TYPE_CHECKING:
    import pyarrow as pa

_FILE_MAGIC = b"ARROW1"
_END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"
_MOST_EXPANDED_BYTES = 1 << 30

# Numbers of fields in Arrow's flatbuffers, of kinds of messages, and sizes of structs
_KIND, _HEADER, _BODY_LENGTH = 1, 2, 3  # of Message
_DICTIONARY, _RECORD_BATCH = 2, 3  # kinds
_DICTIONARY_DATA = 1  # of DictionaryBatch
_BUFFERS, _COMPRESSION = 2, 3  # of RecordBatch
_DICTIONARIES, _BATCHES = 2, 3  # of Footer
_BUFFER_BYTES, _BLOCK_BYTES = 16, 24
_MARKER = 0xFFFFFFFF


class ArrowRows:
    """The rows of one open file; see `open_arrow`."""

    def __init__(self, source: pa.NativeFile, mapped: MappedFile | None, location: str) -> None:
        import pyarrow as pa

        self._source, self._mapped, self._location = source, mapped, location
        self._is_file = source.read(len(_FILE_MAGIC)) == _FILE_MAGIC
        self._open = pa.ipc.open_file if self._is_file else pa.ipc.open_stream
        source.seek(0)
        self.schema: pa.Schema = self._open(source).schema

    def column(self, path: list[str]) -> Iterator[pa.Array]:
        """The column to which the names `path` lead, an array for each batch."""
        import pyarrow as pa

        names = self.schema.names
        self._source.seek(0)
        only = pa.ipc.IpcReadOptions(included_fields=[names.index(path[0])], use_threads=False)
        reader: Any = self._open(self._source, options=only)
        start = 0
        for batch in self._file_batches(reader) if self._is_file else self._stream_batches(reader):
            try:
                batch.validate(full=True)
            except pa.ArrowInvalid as error:
                raise pa.ArrowInvalid(f"in the batch from row {start:,} on: {error}") from error
            start += len(batch)
            yield select(batch.column(0), path[1:])
            if self._mapped is not None:
                self._mapped.check()

    def _file_batches(self, reader: Any) -> Iterator[pa.RecordBatch]:
        for at in _blocks(self._source):
            _check_message(self._source, at, self._location)
        yield from map(reader.get_batch, range(reader.num_record_batches))

    def _stream_batches(self, reader: Any) -> Iterator[pa.RecordBatch]:
        while True:
            at = start = self._source.tell()
            is_dictionary = True
            while is_dictionary:  # read_next_batch reads it with the batch
                at, is_dictionary = _check_message(self._source, at, self._location)
            self._source.seek(start)
            try:
                yield reader.read_next_batch()
            except StopIteration:
                break
        self._check_end()

    def _check_end(self) -> None:
        import pyarrow as pa

        end = self._source.tell()
        self._source.seek(max(0, end - len(_END_OF_STREAM)))
        if self._source.read(len(_END_OF_STREAM)) != _END_OF_STREAM:
            raise pa.ArrowInvalid("it ends without the marker of its end")
        if self._source.read(1):
            raise pa.ArrowInvalid(f"it has more bytes after its end at byte {end:,}")


def _blocks(file: pa.NativeFile) -> Iterator[int]:
    """Where the messages of a file of batches begin, as its footer lists them."""
    size = file.size()
    (footer_bytes,) = struct.unpack("<i", _read(file, size - 10, 4))
    footer = _read(file, size - 10 - footer_bytes, footer_bytes)
    for field in _DICTIONARIES, _BATCHES:
        for at in _items(footer, _field(footer, _follow(footer, 0), field), _BLOCK_BYTES):
            yield struct.unpack_from("<q", footer, at)[0]


def _check_message(file: pa.NativeFile, at: int, location: str) -> tuple[int, bool]:
    """(where the message after the one at `at` begins, whether this one is a dictionary).

    Raises `BertprepError` if its buffers are compressed and expand to more than `_MOST_EXPANDED_BYTES`, which pyarrow would
    allocate at once; it checks everything else itself.
    """
    marker, size = struct.unpack("<Ii", _read(file, at, 8).ljust(8, b"\0"))
    start = at + 8 if marker == _MARKER else at + 4  # before version 0.15 there was no marker
    data = _read(file, start, size if marker == _MARKER else marker)
    if not data:
        return at, False
    message = _follow(data, 0)
    kind, body = data[_field(data, message, _KIND)], start + len(data)
    batch = _follow(data, _field(data, message, _HEADER))
    if kind == _DICTIONARY:
        batch = _follow(data, _field(data, batch, _DICTIONARY_DATA))
    if kind in (_DICTIONARY, _RECORD_BATCH) and _field(data, batch, _COMPRESSION):
        expanded = 0
        for item in _items(data, _field(data, batch, _BUFFERS), _BUFFER_BYTES):
            offset, length = struct.unpack_from("<qq", data, item)
            if length >= 8:  # the size of what it expands to, -1 if it is not compressed
                expanded += max(0, struct.unpack("<q", _read(file, body + offset, 8))[0])
        if expanded > _MOST_EXPANDED_BYTES:
            raise BertprepError(
                f"{location}: has a batch of {expanded:,} bytes once decompressed, more than the {_MOST_EXPANDED_BYTES:,} that "
                "are read; write it in smaller batches"
            )
    length_at = _field(data, message, _BODY_LENGTH)
    return body + (struct.unpack_from("<q", data, length_at)[0] if length_at else 0), kind == _DICTIONARY


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


@contextmanager
def open_arrow(location: str) -> Iterator[ArrowRows]:
    """Open a file at a path or URL. Raises `BertprepError` if it cannot be read, also during reading."""
    import pyarrow as pa

    try:
        with open_raw(location) as raw:
            yield ArrowRows(*_source(raw), location)
    except (pa.ArrowException, OSError, UnicodeDecodeError, MemoryError, OverflowError, struct.error, IndexError) as error:
        why = (str(error).splitlines() or [type(error).__name__])[0]
        raise BertprepError(f"{location}: cannot be read as Arrow: {why}; is it whole? write or fetch it again") from error


def _source(raw: BinaryIO) -> tuple[pa.NativeFile, MappedFile | None]:
    import pyarrow as pa

    if not isinstance(raw, io.BufferedReader):
        return pa.PythonFile(raw, mode="r"), None
    if not raw.peek(1):
        raise pa.ArrowInvalid("it is empty")
    mapped = MappedFile(raw)
    return pa.BufferReader(pa.py_buffer(mapped)), mapped

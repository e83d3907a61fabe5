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

from bertprep.errors import BertprepError, first_line
from bertprep.files.arrow_messages import END_OF_STREAM, FILE_MAGIC, batches_in_file, batches_in_stream
from bertprep.files.mapped_file import MappedFile
from bertprep.sources.fields import select
from bertprep.sources.streams import open_raw

if TYPE_CHECKING:
    import pyarrow as pa


class ArrowRows:
    """The rows of one open file; see `open_arrow`."""

    def __init__(self, source: pa.NativeFile, mapped: MappedFile | None, location: str) -> None:
        import pyarrow as pa

        self._source, self._mapped, self._location = source, mapped, location
        self._is_file = source.read(len(FILE_MAGIC)) == FILE_MAGIC
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
        batches = (batches_in_file if self._is_file else batches_in_stream)(reader, self._source, self._location)
        for batch in batches:
            try:
                batch.validate(full=True)
            except pa.ArrowInvalid as error:
                raise pa.ArrowInvalid(f"in the batch from row {start:,} on: {error}") from error
            start += len(batch)
            yield select(batch.column(0), path[1:])
            if self._mapped is not None:
                self._mapped.check()
        if not self._is_file:
            self._check_end()

    def _check_end(self) -> None:
        import pyarrow as pa

        end = self._source.tell()
        self._source.seek(max(0, end - len(END_OF_STREAM)))
        if self._source.read(len(END_OF_STREAM)) != END_OF_STREAM:
            raise pa.ArrowInvalid("it ends without the marker of its end")
        if self._source.read(1):
            raise pa.ArrowInvalid(f"it has more bytes after its end at byte {end:,}")


@contextmanager
def open_arrow(location: str) -> Iterator[ArrowRows]:
    """Open a file at a path or URL. Raises `BertprepError` if it cannot be read, also during reading."""
    import pyarrow as pa

    try:
        with open_raw(location) as raw:
            yield ArrowRows(*_source(raw), location)
    except (pa.ArrowException, OSError, UnicodeDecodeError, MemoryError, OverflowError, struct.error, IndexError) as error:
        raise BertprepError(
            f"{location}: cannot be read as Arrow: {first_line(error)}; is it whole? write or fetch it again"
        ) from error


def _source(raw: BinaryIO) -> tuple[pa.NativeFile, MappedFile | None]:
    import pyarrow as pa

    if not isinstance(raw, io.BufferedReader):
        return pa.PythonFile(raw, mode="r"), None
    if not raw.peek(1):
        raise pa.ArrowInvalid("it is empty")
    mapped = MappedFile(raw)
    return pa.BufferReader(pa.py_buffer(mapped)), mapped

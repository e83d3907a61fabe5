"""Records to Arrow: the messages of a stream of record batches, and the columns of a batch, filled in place.

    schema      0xFFFFFFFF, u32 size, metadata: the columns and their types, the classes' names, the shape of the records
    batch       0xFFFFFFFF, u32 size, metadata: its rows, and where each column is; then the columns, each padded to 8 bytes
    ...         all batches but the last have the rows that `columns.rows_in_batch` says
    end         0xFFFFFFFF, u32 0

That is what `datasets` writes and maps into memory. The messages' metadata is pyarrow's own, and the values are filled in by
kernels and NumPy where they will be written from, so the bytes are those of pyarrow's writer without its copies.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bertprep.config import RecordFormat
from bertprep.errors import BertprepError
from bertprep.files.arrow_messages import END_OF_STREAM
from bertprep.records.buffers import RecordBuffer
from bertprep.records.columns import (
    COLUMNS,
    LABELS,
    Column,
    NoColumnsError,
    check_fits,
    put_labels,
    rows_in_batch,
    schema_of,
    values_in,
)
from bertprep.records.examples import Examples, MaskedExamples, Shape

if TYPE_CHECKING:
    import pyarrow as pa

ROW_GROUP = 8
"""Record batches that a row group of a Parquet file has."""
_ADVICE = "convert to TFRecord or OFRecord"


def column_starts(shape: Shape, rows: int) -> list[int]:
    """Where each column's values begin in the body of a batch of that many rows, and at last how many bytes the body has."""
    starts = [0]
    for column in COLUMNS[shape.kind]:
        starts.append(starts[-1] + (_size_bytes(column, shape, rows) + 7) // 8 * 8)
    return starts


@lru_cache(maxsize=64)
def schema_message(shape: Shape, labels: tuple[str, ...] = ()) -> bytes:
    """What a file of such records begins with; `labels` are as in `columns.schema_of`."""
    message: bytes = schema_of(shape, labels).serialize().to_pybytes()
    return message


@lru_cache(maxsize=64)
def batch_header(shape: Shape, rows: int) -> bytes:
    """What is before the body of a record batch of that many rows."""
    import pyarrow as pa

    schema = schema_of(shape)
    pairs = zip(COLUMNS[shape.kind], schema, strict=True)
    columns = [_empty_column(pa, field.type, rows, _size_bytes(column, shape, rows)) for column, field in pairs]
    message = pa.record_batch(columns, schema=schema).serialize()
    header: bytes = message.slice(0, 8 + int.from_bytes(message.slice(4, 4), "little")).to_pybytes()
    if len(header) + column_starts(shape, rows)[-1] != message.size:
        raise BertprepError(
            f"pyarrow {pa.__version__} lays out record batches in another way than bertprep; take pyarrow 25 or 26"
        )
    return header


def stream_bytes(shape: Shape, records: int) -> int:
    """The size of a stream of so many records, whose classes have no names."""
    rows = rows_in_batch(shape)
    batches = {rows: records // rows, records % rows: 1 if records % rows else 0}
    sizes = [
        count * (len(batch_header(shape, rows)) + column_starts(shape, rows)[-1]) for rows, count in batches.items() if count
    ]
    return len(schema_message(shape)) + sum(sizes) + len(END_OF_STREAM)


def _empty_column(pa: Any, kind: Any, rows: int, size_bytes: int) -> pa.Array:
    data = pa.py_buffer(np.zeros(size_bytes, np.uint8))
    if not pa.types.is_fixed_size_list(kind):
        return pa.Array.from_buffers(kind, rows, [None, data])
    values = pa.Array.from_buffers(kind.value_type, rows * kind.list_size, [None, data])
    return pa.FixedSizeListArray.from_arrays(values, kind.list_size)


class RecordBatches:
    """Record batches in the making, one after another, in a buffer that is to be emptied after each.

    For Parquet, whose row groups they become, they are `ROW_GROUP` times as long, and without what makes a stream of them.
    """

    def __init__(
        self, shape: Shape, buffer: RecordBuffer, labels: Sequence[str] = (), record_format: str = RecordFormat.ARROW
    ) -> None:
        self.shape, self._buffer = shape, buffer
        self.filled = 0
        self._is_stream = record_format == RecordFormat.ARROW
        self.rows = rows_in_batch(shape) * (1 if self._is_stream else ROW_GROUP)
        schema = schema_message(shape, tuple(labels)) if self._is_stream else b""
        self._header, self._starts = batch_header(shape, self.rows), column_starts(shape, self.rows)
        buffer.make_room(len(schema) + len(self._header) + self._starts[-1] + len(END_OF_STREAM))
        buffer.append(schema)

    @property
    def addresses(self) -> NDArray[np.int64]:
        """Where a kernel writes a whole batch: the address of each column's first value."""
        body = self._buffer.room[len(self._header) :]
        return np.array([body.ctypes.data + start for start in self._starts[:-1]], np.int64)

    def put(self, examples: Examples) -> None:
        """Fill the next rows; raises `NoColumnsError` for a record that has no such form."""
        body = self._buffer.room[len(self._header) :]
        for column, start in zip(COLUMNS[self.shape.kind], self._starts, strict=False):
            values = values_in(column, self.shape)
            end = start + _size_bytes(column, self.shape, self.rows)
            rows: NDArray[Any] = body[start:end].view(column.dtype).reshape(self.rows, values)
            rows = rows[self.filled : self.filled + len(examples)]
            if column is LABELS:
                assert isinstance(examples, MaskedExamples)
                put_labels(examples, rows)
                continue
            found = getattr(examples, column.feature).reshape(rows.shape)
            if column.dtype == np.int8:
                check_fits(column, found)
            rows[...] = found
        self.filled += len(examples)

    def close(self) -> None:
        """End the batch with the rows that are filled; what is between its columns becomes zeros."""
        header, starts = batch_header(self.shape, self.filled), column_starts(self.shape, self.filled)
        room = self._buffer.room
        before, body = room[len(self._header) :], room[len(header) :]
        for column, start, old, end in zip(COLUMNS[self.shape.kind], starts, self._starts, starts[1:], strict=False):
            size_bytes = _size_bytes(column, self.shape, self.filled)
            if self.filled < self.rows:  # the last, whose columns lie closer together
                body[start : start + size_bytes] = before[old : old + size_bytes]
            body[start + size_bytes : end] = 0
        room[: len(header)] = np.frombuffer(header, np.uint8)
        self._buffer.filled_bytes += len(header) + starts[-1]
        self.filled = 0

    def end(self) -> None:
        """End the file; no batch is open."""
        if self._is_stream:
            self._buffer.append(END_OF_STREAM)


def encode_batches(
    blocks: Iterable[Examples], buffer: RecordBuffer, labels: Sequence[str] = (), record_format: str = RecordFormat.ARROW
) -> Iterator[int]:
    """Fill the buffer with batches of blocks of one shape; yields how many records came when it is to be emptied.

    Raises `NoColumnsError` for a record of the block asked for last that has no such form.
    """
    batches: RecordBatches | None = None
    for examples in blocks:
        batches = batches or RecordBatches(examples.shape, buffer, labels, record_format)
        done = 0
        while done < len(examples):
            count = min(len(examples) - done, batches.rows - batches.filled)
            try:
                batches.put(examples[done : done + count])
            except NoColumnsError as error:
                raise NoColumnsError(f"{error}; {_ADVICE}", done + error.row) from None
            done += count
            if batches.filled == batches.rows:
                batches.close()
                yield batches.rows
    if batches is None:
        return
    if rest := batches.filled:
        batches.close()
        yield rest
    batches.end()


def _size_bytes(column: Column, shape: Shape, rows: int) -> int:
    return rows * values_in(column, shape) * np.dtype(column.dtype).itemsize

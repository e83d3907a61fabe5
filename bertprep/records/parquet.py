"""Records as Parquet: batches of columns through pyarrow's writer, hashed as they are written.

The bytes are the same for the same release of pyarrow, which a manifest names: another may compress or lay out pages otherwise.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable, Sequence
from typing import Any

from bertprep.files.atomic import AtomicFile
from bertprep.records.buffers import RecordBuffer
from bertprep.records.columns import COLUMNS, schema_of
from bertprep.records.examples import Shape


def write_row_groups(
    filled: Iterable[Any], buffer: RecordBuffer, file: AtomicFile, shape: Shape, labels: Sequence[str] = ()
) -> str:
    """Write a file with a row group for each record batch that `filled` leaves in the buffer; returns the file's sha256."""
    import pyarrow as pa  # takes 0.1 s, which commands for other formats need not pay
    import pyarrow.parquet as pq

    schema, sink = schema_of(shape, labels), _Sink(file)
    single = [column.name for column in COLUMNS[shape.kind] if column.width == "one"]
    with pq.ParquetWriter(sink, schema, compression="zstd", write_statistics=single) as writer:
        for _ in filled:
            if buffer.filled_bytes:
                writer.write_batch(pa.ipc.read_record_batch(pa.ipc.read_message(pa.py_buffer(buffer.filled)), schema))
                buffer.filled_bytes = 0
    return sink.digest.hexdigest()


class _Sink(io.RawIOBase):
    """What pyarrow writes to."""

    def __init__(self, file: AtomicFile) -> None:
        self.digest = hashlib.sha256()
        self._file = file

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        view = memoryview(data)
        self._file.write(view)
        self.digest.update(view)
        return len(view)

    def tell(self) -> int:
        return self._file.size_bytes

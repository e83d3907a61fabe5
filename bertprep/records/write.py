"""Blocks of examples to files, in any formats at once: the only way in which records are written.

TFRecord and OFRecord are encoded in one pass (`kernels.encode`), Arrow and Parquet by pyarrow, gzip by isal. The sha256 is of
the bytes as they are written.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import mmap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertprep import kernels
from bertprep.config import DEFAULT_DIALECT, DEFAULT_FORMATS, GZIP, TF2, RecordFormat, Variant
from bertprep.errors import BertprepError
from bertprep.files.atomic import AtomicFile, atomic_file
from bertprep.kernels import numbers as n
from bertprep.records.columns import COLUMNS, record_batch, rows_in_batch, schema_of
from bertprep.records.digest import Sha256Pair, can_pair
from bertprep.records.examples import Examples, Shape

_FLUSHED_BYTES = 1 << 20
_PAGE_BYTES = 4096  # what direct writing asks for, as far as is known
ROW_GROUP = 8
"""Record batches that a row group of a Parquet file has."""


@dataclass(frozen=True)
class WrittenFile:
    """The entry of a record file in a manifest."""

    records: int
    bytes: int
    sha256: str


def entry_of(written: WrittenFile) -> dict[str, Any]:
    return {"examples": written.records, "bytes": written.bytes, "sha256": written.sha256}


def write_examples(
    blocks: Iterable[Examples],
    paths: Mapping[RecordFormat, Path],
    variant: Variant = DEFAULT_DIALECT,
    labels: Sequence[str] = (),
    *,
    tidies: bool = True,
) -> dict[RecordFormat, WrittenFile]:
    """Write blocks of one shape to one file for each format: all of them complete, or none.

    Blocks may be reused after the next is requested. `labels` are class names for Arrow and Parquet. Raises `BertprepError` for
    no example or a failed write, `NoColumnsError` for a record that Arrow and Parquet cannot hold.
    """
    writers: list[ProtobufWriter | ColumnWriter] = []
    records = 0
    with contextlib.ExitStack() as stack:
        files = {
            RecordFormat(name): stack.enter_context(atomic_file(path, direct=variant.compress != GZIP, tidies=tidies))
            for name, path in paths.items()
        }
        for block in blocks:
            writers = writers or _make_writers(files, block.shape, variant, labels)
            for writer in writers:
                writer.put(block)
            records += len(block)
        if not records:
            raise BertprepError(f"{', '.join(map(str, paths.values()))}: there is no example to write; expected at least one")
        sha256 = {which: found for writer in writers for which, found in writer.finish().items()}
    return {which: WrittenFile(records, files[which].size_bytes, sha256[which]) for which in files}


def _make_writers(
    files: Mapping[RecordFormat, AtomicFile], shape: Shape, variant: Variant, labels: Sequence[str]
) -> list[ProtobufWriter | ColumnWriter]:
    protobufs = {which: file for which, file in files.items() if which in DEFAULT_FORMATS}
    columns = [ColumnWriter(which, file, shape, labels) for which, file in files.items() if which not in DEFAULT_FORMATS]
    return [*([ProtobufWriter(protobufs, shape, variant)] if protobufs else []), *columns]


class HashedFile(io.RawIOBase):
    """A file in the making: page-aligned memory to fill, hashed and written past the page cache in whole pages."""

    def __init__(self, file: AtomicFile, compress: str = "", *, is_hashed: bool = True) -> None:
        self._file, self._sha256 = file, hashlib.sha256() if is_hashed else None
        self._gzip = None
        self._unit = _PAGE_BYTES
        if compress == GZIP:
            from isal import isal_zlib  # takes 10 ms, which other files need not pay

            self._gzip = isal_zlib.compressobj(1, wbits=31)
            self._unit = _FLUSHED_BYTES  # fixed chunks, since their bounds change the compressed bytes
        self.memory = np.empty(0, np.uint8)
        self.filled = 0

    def make_room(self, capacity: int) -> bool:
        """Have room for `capacity` bytes after those that wait to be written; return whether that is new memory."""
        size = 2 * _FLUSHED_BYTES + capacity
        if size <= len(self.memory):
            return False
        memory = np.frombuffer(mmap.mmap(-1, size), np.uint8)
        memory[: self.filled] = self.memory[: self.filled]
        self.memory = memory
        return True

    @property
    def whole_pages(self) -> NDArray[np.uint8]:
        return self.memory[: self.filled // self._unit * self._unit]

    def flush(self) -> None:
        """Write whole pages, and move what follows them to the front."""
        written = len(self.whole_pages)
        self._put(self.whole_pages)
        self.filled -= written
        self.memory[: self.filled] = self.memory[written : written + self.filled]

    def write(self, data: Any) -> int:
        self.make_room(_FLUSHED_BYTES)
        view = memoryview(data).cast("B")
        for start in range(0, len(view), _FLUSHED_BYTES):
            chunk = view[start : start + _FLUSHED_BYTES]
            self.memory[self.filled : self.filled + len(chunk)] = chunk
            self.filled += len(chunk)
            if self.filled >= _FLUSHED_BYTES:
                self.flush()
        return len(view)

    def finish(self) -> str:
        """Write what is left; return the sha256 of the file, if it was taken."""
        self._put(self.memory[: self.filled])
        self.filled = 0  # since io flushes it once more when it goes
        if self._gzip:
            self._write(self._gzip.flush())
        return self._sha256.hexdigest() if self._sha256 else ""

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._file.size_bytes + self.filled

    def _put(self, data: NDArray[np.uint8]) -> None:
        if not self._gzip:
            self._write(data.data)
            return
        for start in range(0, len(data), self._unit):
            self._write(self._gzip.compress(data[start : start + self._unit]))

    def _write(self, data: bytes | memoryview) -> None:
        if self._sha256:
            self._sha256.update(data)
        self._file.write(data)


class ProtobufWriter:
    """Writes blocks as TFRecord, OFRecord or both."""

    def __init__(self, files: Mapping[RecordFormat, AtomicFile], shape: Shape, variant: Variant) -> None:
        self._formats = [which for which in DEFAULT_FORMATS if which in files]
        self._pair = Sha256Pair() if len(files) == 2 and can_pair() else None
        self._files = [HashedFile(files[which], variant.compress, is_hashed=not self._pair) for which in self._formats]
        counts = shape.counts
        self._max_record_bytes = n.WIDEST_AROUND + sum(n.WIDEST_HEADER + n.WIDEST_NUMBER * count for count in counts)
        headers = np.zeros(len(counts) * n.HEADERS * n.HEADER_WIDTH, np.uint8)
        ready = np.zeros(max(counts), np.uint32)
        packed = np.zeros(n.WIDEST_NUMBER * max(counts) + n.SLACK, np.uint8)
        self._tables = self._max_record_bytes, feature_keys(variant.feature_names), headers, ready, packed
        self._sizes = np.zeros(2 + len(counts), np.int64)
        self._bound: tuple[Examples, Callable[[int], int]] | None = None

    def put(self, block: Examples) -> None:
        has_new = [file.make_room(self._max_record_bytes * len(block)) for file in self._files]
        if self._bound is None or self._bound[0] is not block or any(has_new):
            self._bound = block, self._bind(block)
        for which, file in zip(self._formats, self._files, strict=True):
            self._sizes[DEFAULT_FORMATS.index(which)] = file.filled
        self._bound[1](len(block))
        for which, file in zip(self._formats, self._files, strict=True):
            file.filled = int(self._sizes[DEFAULT_FORMATS.index(which)])
        if max(file.filled for file in self._files) >= _FLUSHED_BYTES:
            if self._pair:
                self._pair.update([file.whole_pages for file in self._files])
            for file in self._files:
                file.flush()

    def finish(self) -> dict[RecordFormat, str]:
        of_pair = self._pair.hexdigests([file.memory[: file.filled] for file in self._files]) if self._pair else None
        of_files = [file.finish() for file in self._files]
        return dict(zip(self._formats, of_pair or of_files, strict=True))

    def _bind(self, block: Examples) -> Callable[[int], int]:
        none = np.zeros(0, np.uint8)
        memories = dict(zip(self._formats, (file.memory for file in self._files), strict=True))
        both = (memories.get(which, none) for which in DEFAULT_FORMATS)
        formats = sum(which.number for which in self._formats)
        return kernels.load().encode.bind(formats, block.table(), *self._tables, *both, self._sizes)


class ColumnWriter:
    """Writes blocks as Arrow or Parquet, by pyarrow: batches of `rows_in_batch` rows, row groups of ROW_GROUP batches."""

    def __init__(self, which: RecordFormat, file: AtomicFile, shape: Shape, labels: Sequence[str]) -> None:
        import pyarrow as pa  # takes 0.1 s, and its Parquet 0.2 more, which commands for other formats need not pay

        self._which, self._schema = which, schema_of(shape, labels)
        self._file = HashedFile(file)
        self._rows = rows_in_batch(shape)
        self._waiting: list[pa.RecordBatch] = []
        if which == RecordFormat.ARROW:
            self._writer: Any = pa.ipc.new_stream(self._file, self._schema)
        else:
            import pyarrow.parquet as pq

            self._rows *= ROW_GROUP
            single = [column.name for column in COLUMNS[shape.kind] if column.width == "one"]
            self._writer = pq.ParquetWriter(self._file, self._schema, compression="zstd", write_statistics=single)

    def put(self, block: Examples) -> None:
        """Write the rows of a block; those that do not fill a batch wait, as copies, for others."""
        if len(block) == self._rows and not self._waiting:
            self._writer.write_batch(record_batch(block, self._schema))
            return
        self._waiting.append(record_batch(block, self._schema, copy=True))
        while sum(map(len, self._waiting)) >= self._rows:
            self._write(self._rows)

    def finish(self) -> dict[RecordFormat, str]:
        if self._waiting:
            self._write(self._rows)
        self._writer.close()
        return {self._which: self._file.finish()}

    def _write(self, count: int) -> None:
        import pyarrow as pa

        batch = pa.concat_batches(self._waiting)
        self._writer.write_batch(batch[:count])
        self._waiting = [batch[count:]] if len(batch) > count else []


def feature_keys(feature_names: str) -> NDArray[np.uint8]:
    """Return (features, 32): each feature's name with the protobuf bytes around it, and at the end how many those are."""
    keys = np.zeros((len(n.KNOWN_FEATURES), n.KEY_WIDTH), np.uint8)
    for row, feature in zip(keys, n.KNOWN_FEATURES, strict=True):
        name = (n.TF2_NAMES.get(feature, feature) if feature_names == TF2 else feature).encode()
        around = b"\x0a" + bytes([len(name)]) + name + b"\x12"  # map entry: field 1 is the name, field 2 the Feature
        row[: len(around)] = np.frombuffer(around, np.uint8)
        row[-1] = len(around)
    return keys

"""Writes blocks of examples to files, in several formats at once; all record files are written here.

One pass encodes TFRecord and OFRecord together (`kernels.encode`). pyarrow writes Arrow and Parquet, and isal compresses.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertprep import kernels
from bertprep.config import DEFAULT_FORMATS, DEFAULT_VARIANT, TF2, RecordFormat, Variant
from bertprep.errors import BertprepError
from bertprep.files.atomic import AtomicFile, atomic_file
from bertprep.files.checksums import BLAKE3
from bertprep.files.hashed import FLUSHED_BYTES, HashedFile
from bertprep.files.paths import as_path
from bertprep.kernels import numbers as n
from bertprep.records.columns import COLUMNS, NoColumnsError, record_batch, rows_in_batch, schema_of
from bertprep.records.examples import MAX_VALUES, Examples, Shape

_NO_MEMORY = np.zeros(0, np.uint8)
ROW_GROUP = 8
"""Number of record batches in a row group of a Parquet file."""


@dataclass(frozen=True)
class WrittenFile:
    """The number of records, the size and the checksum of a file that was written."""

    records: int
    bytes: int
    blake3: str


def entry_of(written: WrittenFile) -> dict[str, Any]:
    return {"examples": written.records, "bytes": written.bytes, BLAKE3: written.blake3}


def write_examples(
    blocks: Iterable[Examples],
    paths: Mapping[RecordFormat, Path | str],
    variant: Variant = DEFAULT_VARIANT,
    labels: Sequence[str] = (),
    *,
    tidies: bool = True,
) -> dict[RecordFormat, WrittenFile]:
    """Write blocks of one shape to one file per format; if this raises, no file is written.

    A block is no longer needed once the next one is requested. `labels` are class names for Arrow and Parquet. Raises
    `BertprepError` if there are no examples, if blocks differ in shape, if a value is negative, or if a write fails, and
    `NoColumnsError` for a record that Arrow and Parquet cannot represent.
    """
    writers: list[ProtobufWriter | ColumnWriter] = []
    records, shape = 0, None
    where = ", ".join(map(str, paths.values()))
    if isinstance(blocks, Examples):
        raise TypeError(f"{where}: expected blocks of examples, found one block; give it in a list")
    with contextlib.ExitStack() as stack:
        files = {
            RecordFormat(name): stack.enter_context(atomic_file(as_path(path), tidies=tidies)) for name, path in paths.items()
        }
        for index, block in enumerate(blocks):
            shape = _check_block(block, index, shape, where)
            writers = writers or _make_writers(files, shape, variant, labels)
            if not all(writer.put(block) for writer in writers):
                raise BertprepError(f"{where}: block {index}: {block.find_negative()}")
            records += len(block)
        if not records:
            raise BertprepError(f"{where}: there are no examples to write, expected at least one")
        checksums = {which: found for writer in writers for which, found in writer.finish().items()}
    return {which: WrittenFile(records, files[which].size_bytes, checksums[which]) for which in files}


def _check_block(block: Examples, index: int, expected: Shape | None, where: str) -> Shape:
    """Return the shape of a block; after the first block it must be `expected`."""
    if not isinstance(block, Examples):
        raise TypeError(f"{where}: block {index} is {type(block).__name__}, expected Examples")
    shape = block.sizes
    if expected is None and (min(shape.counts) < 1 or max(shape.counts) > MAX_VALUES):
        raise BertprepError(f"{where}: block {index} has {shape}, expected 1 to {MAX_VALUES:,} values of each feature")
    if shape != (expected or shape):
        raise BertprepError(
            f"{where}: block {index} has {shape}, expected {expected} like the blocks before; write them to separate files"
        )
    return shape


def _make_writers(
    files: Mapping[RecordFormat, AtomicFile], shape: Shape, variant: Variant, labels: Sequence[str]
) -> list[ProtobufWriter | ColumnWriter]:
    protobufs = {which: file for which, file in files.items() if which in DEFAULT_FORMATS}
    columns = [ColumnWriter(which, file, shape, labels) for which, file in files.items() if which not in DEFAULT_FORMATS]
    return [*([ProtobufWriter(protobufs, shape, variant)] if protobufs else []), *columns]


class ProtobufWriter:
    """Writes blocks as TFRecord, OFRecord or both."""

    def __init__(self, files: Mapping[RecordFormat, AtomicFile], shape: Shape, variant: Variant) -> None:
        self._formats = [which for which in DEFAULT_FORMATS if which in files]
        self._files = [HashedFile(files[which], variant.compress) for which in self._formats]
        counts = shape.counts
        self._max_record_bytes = n.WIDEST_AROUND + sum(n.WIDEST_HEADER + n.WIDEST_NUMBER * count for count in counts)
        headers = np.zeros(len(counts) * n.HEADERS * n.HEADER_WIDTH, np.uint8)
        ready = np.zeros(shape.itemsize, np.uint32)
        packed = np.zeros(n.WIDEST_NUMBER * shape.itemsize + n.SLACK, np.uint8)
        formats, keys = sum(which.number for which in self._formats), feature_keys(variant.feature_names)
        self._sizes = np.zeros(2 + len(counts), np.int64)
        encode = kernels.load().encode
        self._encode = encode.bind(formats, self._max_record_bytes, keys, headers, ready, packed, self._sizes)

    def put(self, block: Examples) -> bool:
        """Write a block, and return True; if it contains a negative integer, write nothing and return False."""
        for file in self._files:
            file.make_room(self._max_record_bytes * len(block))
        for which, file in zip(self._formats, self._files, strict=True):
            self._sizes[DEFAULT_FORMATS.index(which)] = file.filled
        memories = dict(zip(self._formats, (file.memory for file in self._files), strict=True))
        both = (memories.get(which, _NO_MEMORY) for which in DEFAULT_FORMATS)
        if self._encode(*both, block, len(block)) < len(block):
            return False
        for which, file in zip(self._formats, self._files, strict=True):
            file.filled = int(self._sizes[DEFAULT_FORMATS.index(which)])
        if max(file.filled for file in self._files) >= FLUSHED_BYTES:
            for file in self._files:
                file.flush()
        return True

    def finish(self) -> dict[RecordFormat, str]:
        return {which: file.finish() for which, file in zip(self._formats, self._files, strict=True)}


class ColumnWriter:
    """Writes blocks as Arrow or Parquet with pyarrow, in batches of `rows_in_batch` rows; ROW_GROUP batches are a row group."""

    def __init__(self, which: RecordFormat, file: AtomicFile, shape: Shape, labels: Sequence[str]) -> None:
        import pyarrow as pa  # takes 0.1 s, and Parquet 0.2 s more, which commands for other formats need not pay

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

    def put(self, block: Examples) -> bool:
        """Write a block like `ProtobufWriter.put`; rows that do not fill a batch are copied and wait for more."""
        try:
            batch = record_batch(block, self._schema)
        except NoColumnsError:
            if block.find_negative():
                return False
            raise
        if len(batch) == self._rows and not self._waiting:
            self._writer.write_batch(batch)
            return True
        self._waiting.append(batch)
        while sum(map(len, self._waiting)) >= self._rows:
            self._write(self._rows)
        return True

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
    """Return a row of bytes for each feature: (features, 32).

    A row has the name with the protobuf bytes around it, and in its last byte the number of these bytes.
    """
    keys = np.zeros((len(n.KNOWN_FEATURES), n.KEY_WIDTH), np.uint8)
    for row, feature in zip(keys, n.KNOWN_FEATURES, strict=True):
        name = (n.TF2_NAMES.get(feature, feature) if feature_names == TF2 else feature).encode()
        around = b"\x0a" + bytes([len(name)]) + name + b"\x12"  # map entry: field 1 is the name, field 2 the Feature
        row[: len(around)] = np.frombuffer(around, np.uint8)
        row[-1] = len(around)
    return keys

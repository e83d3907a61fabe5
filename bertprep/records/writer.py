"""Instances to record files: encoded in blocks that stay in the processor's cache, hashed and written at once.

TFRecord and OFRecord are made in one pass over the instances, Arrow and Parquet each in one more. A file appears under its name
when it is whole; its sha256 is taken of the bytes as they are written. See docs/formats.md for the layouts, and
`bertprep.kernels.encode` and `columns` for how they are made.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bertprep import kernels
from bertprep.config import DEFAULT_DIALECT, DEFAULT_FORMATS, TF2, Dialect, RecordFormat
from bertprep.files.atomic import atomic_file
from bertprep.instances import Instances, Vocabulary
from bertprep.kernels.numbers import (
    FEATURES,
    FLOAT_LIST_TAG,
    HEADER_WIDTH,
    INT32_LIST_TAG,
    INT64_LIST_TAG,
    KEY_WIDTH,
    KNOWN_FEATURES,
    SLACK,
    SPARE_VARINTS,
    TF2_NAMES,
    WIDEST_VARINT,
    widest_record,
)
from bertprep.protobuf import varint
from bertprep.records.arrow import RecordBatches
from bertprep.records.buffers import BUFFER_BYTES, RecordBuffer, make_buffer, write_buffers
from bertprep.records.examples import Shape
from bertprep.records.parquet import write_row_groups


@dataclass(frozen=True)
class WrittenFile:
    """What the manifest says of a record file."""

    records: int
    bytes: int
    sha256: str


class RecordEncoder:
    """Encodes instances of one shape with one vocabulary; holds the tables for it, so use one for many shards."""

    def __init__(self, vocabulary: Vocabulary, shape: Shape, *, dialect: Dialect = DEFAULT_DIALECT) -> None:
        self.shape, self.dialect = shape, dialect
        _, seq, pred = shape
        self._cls, self._sep, self._pad = vocabulary.cls, vocabulary.sep, vocabulary.pad
        self._vocabulary_varints = _varints(np.arange(len(vocabulary), dtype=np.int32))
        self._position_varints = _varints(np.arange(seq, dtype=np.int32))
        widest = {
            "input_ids": WIDEST_VARINT * seq,
            "masked_lm_positions": WIDEST_VARINT * pred,
            "masked_lm_ids": WIDEST_VARINT * pred,
        }
        fixed = {"input_mask": seq, "segment_ids": seq, "masked_lm_weights": 4 * pred, "next_sentence_labels": 1}
        keys = feature_keys(dialect.feature_names)
        self._headers = {tag: _headers(tag, keys, widest, fixed) for tag in (INT64_LIST_TAG, INT32_LIST_TAG)}
        patterns = bytes(64), b"\1" * 64, np.ones(16, "<f4").tobytes(), varint(vocabulary.pad) * 64
        self._patterns = np.frombuffer(b"".join(pattern[:64] for pattern in patterns), np.uint8)
        self._sequence = np.zeros(seq + SPARE_VARINTS, np.uint32)
        self._values = np.zeros(WIDEST_VARINT * (seq + 2 * pred) + 4 * SLACK, np.uint8)
        self._tags = np.zeros(len(FEATURES), np.int64)

    def encode(self, instances: Instances, buffers: Mapping[RecordFormat, RecordBuffer]) -> Iterator[None]:
        """Fill the buffers, one for each format, with records in their order; yields when they are to be emptied."""
        kind, seq, pred = self.shape
        capacity = max(BUFFER_BYTES, 2 * widest_record(seq, pred))
        for buffer in buffers.values():
            buffer.make_room(capacity)
        sizes = np.zeros(2, np.int64)
        varints = _varints(instances.tokens)
        headers, bases = self._headers[INT64_LIST_TAG if RecordFormat.TFRECORD in buffers else INT32_LIST_TAG]
        done = 0
        while done < len(instances):
            rooms = [buffers[each].room if each in buffers else np.empty(0, np.uint8) for each in DEFAULT_FORMATS]
            done = kernels.load().encode(
                sum(RecordFormat(name).number for name in buffers), done, len(instances), instances.order, seq, pred,
                len(kind.features), varints, self._vocabulary_varints, self._position_varints, self._cls, self._sep, self._pad,
                instances.slices, instances.is_random_next,
                instances.mask_ends, instances.mask_positions, instances.mask_replacements,
                headers, bases, self._patterns, self._sequence, self._values, self._tags,
                *rooms, capacity, sizes,
            )  # fmt: skip
            for size, each in zip(sizes.tolist(), DEFAULT_FORMATS, strict=True):
                if each in buffers:
                    buffers[each].filled_bytes += size
            yield

    def encode_columns(self, instances: Instances, batches: RecordBatches) -> Iterator[None]:
        """Fill one record batch after another; yields when the buffer that they are in is to be emptied."""
        for first in range(0, len(instances), batches.rows):
            batches.filled = min(batches.rows, len(instances) - first)
            kernels.load().encode_columns(
                first, first + batches.filled, instances.order, self.shape.seq,
                instances.tokens, self._cls, self._sep, self._pad,
                instances.slices, instances.is_random_next,
                instances.mask_ends, instances.mask_positions, instances.mask_replacements,
                len(batches.addresses), batches.addresses,
            )  # fmt: skip
            batches.close()
            yield
        batches.end()


def write_records(
    instances: Instances, encoder: RecordEncoder, paths: Mapping[RecordFormat, Path]
) -> dict[RecordFormat, WrittenFile]:
    """Write `instances` to one file for each format in `paths`; all of them appear whole, or none.

    Compression and names are those of the encoder's dialect; where they are not the default, TFRecord is the one format.
    Raises `BertprepError` where the system refuses a write.
    """
    shape = encoder.shape
    sums: dict[RecordFormat, str] = {}
    with contextlib.ExitStack() as stack:
        files = {
            name: stack.enter_context(atomic_file(path, direct=name != RecordFormat.PARQUET, keeps=True))
            for name, path in paths.items()
        }
        if together := [name for name in files if name in DEFAULT_FORMATS]:
            buffers = {name: make_buffer(encoder.dialect.compress) for name in together}
            found = write_buffers(
                encoder.encode(instances, buffers), list(buffers.values()), [files[name] for name in together]
            )
            sums.update(zip(together, found, strict=True))
        if RecordFormat.ARROW in files:
            buffer = RecordBuffer()
            batches = encoder.encode_columns(instances, RecordBatches(shape, buffer))
            (sums[RecordFormat.ARROW],) = write_buffers(batches, [buffer], [files[RecordFormat.ARROW]])
        if RecordFormat.PARQUET in files:
            buffer = RecordBuffer()
            batches = encoder.encode_columns(instances, RecordBatches(shape, buffer, record_format=RecordFormat.PARQUET))
            sums[RecordFormat.PARQUET] = write_row_groups(batches, buffer, files[RecordFormat.PARQUET], shape)
    return {name: WrittenFile(len(instances), file.size_bytes, sums[name]) for name, file in files.items()}


def _varints(numbers: NDArray[np.int32]) -> NDArray[np.uint32]:
    varints = np.empty(len(numbers) + SPARE_VARINTS, np.uint32)
    kernels.load().make_varints(numbers, len(numbers), varints)
    return varints


def feature_keys(feature_names: str) -> NDArray[np.uint8]:
    """(features, 32): each feature's name with the protobuf bytes around it, and at the end how many those are."""
    keys = np.zeros((len(KNOWN_FEATURES), KEY_WIDTH), np.uint8)
    for row, feature in zip(keys, KNOWN_FEATURES, strict=True):
        name = (TF2_NAMES.get(feature, feature) if feature_names == TF2 else feature).encode()
        around = b"\x0a" + bytes([len(name)]) + name + b"\x12"  # map entry: field 1 is the name, field 2 the Feature
        row[: len(around)] = np.frombuffer(around, np.uint8)
        row[-1] = len(around)
    return keys


def _headers(
    tag: int, keys: NDArray[np.uint8], widest: Mapping[str, int], fixed: Mapping[str, int]
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """(ready headers of all features, where each feature's begin): one for each size its values can have."""
    tables: list[NDArray[np.uint8]] = []
    bases: list[int] = []
    for number, name in enumerate(FEATURES):
        most = widest.get(name) or fixed[name]
        table = np.zeros((most + 1, HEADER_WIDTH), np.uint8)
        list_tag = FLOAT_LIST_TAG if name == "masked_lm_weights" else tag
        kernels.load().make_headers(keys, number, list_tag, most, table)
        bases.append(sum(map(len, tables)))
        tables.append(table if name in widest else table[-1:])
    return np.concatenate(tables), np.array(bases, np.int64)

"""Instances to TFRecord and OFRecord files: encoded in blocks that stay in the processor's cache, hashed and written at once.

Both formats are made in one pass over the instances. A file appears under its name when it is whole; its sha256 is taken of
the bytes as they are written. See docs/formats.md for the layout and `bertprep.kernels.encode` for how it is made.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bertprep import kernels
from bertprep.config import DEFAULT_DIALECT, GOOGLE, TF2, Dialect
from bertprep.files.atomic import atomic_file
from bertprep.instances import Instances, Vocabulary
from bertprep.records.buffers import BUFFER_BYTES, RecordBuffer, make_buffer
from bertprep.records.digest import Sha256Pair
from bertprep.records.formats import OFRECORD, TFRECORD

FEATURES = (
    "input_ids",
    "input_mask",
    "segment_ids",
    "masked_lm_positions",
    "masked_lm_ids",
    "masked_lm_weights",
    "next_sentence_labels",
)
"""The features of a record, in the order in which they are written."""

_NAMES = {GOOGLE: {}, TF2: {"input_ids": "input_word_ids", "segment_ids": "input_type_ids"}}
_KEY_WIDTH, _HEADER_WIDTH = 32, 64  # as in bertprep.kernels.encode, which is not imported at run time
_INT64_LIST, _INT32_LIST, _FLOAT_LIST = 0x1A, 0x22, 0x12
_FORMAT_BITS = {TFRECORD: 1, OFRECORD: 2}
_WIDEST_VARINT = 3
_SPARE = 256


@dataclass(frozen=True)
class WrittenFile:
    """What the manifest says of a record file."""

    records: int
    bytes: int
    sha256: str


class RecordEncoder:
    """Encodes instances of one sequence length with one vocabulary; holds the tables for it, so use one for many shards."""

    def __init__(self, vocabulary: Vocabulary, *, seq: int, pred: int, dialect: Dialect = DEFAULT_DIALECT) -> None:
        self.seq, self.pred, self.dialect = seq, pred, dialect
        self._cls, self._sep = vocabulary.cls, vocabulary.sep
        self._vocabulary_varints = _varints(np.arange(len(vocabulary), dtype=np.int32))
        self._position_varints = _varints(np.arange(seq, dtype=np.int32))
        widest = {
            "input_ids": _WIDEST_VARINT * seq,
            "masked_lm_positions": _WIDEST_VARINT * pred,
            "masked_lm_ids": _WIDEST_VARINT * pred,
        }
        fixed = {"input_mask": seq, "segment_ids": seq, "masked_lm_weights": 4 * pred, "next_sentence_labels": 1}
        keys = feature_keys(dialect.feature_names)
        self._headers = {tag: _headers(tag, keys, widest, fixed) for tag in (_INT64_LIST, _INT32_LIST)}
        self._patterns = np.concatenate([np.full(64, n, np.uint8) for n in (0, 1)] + [np.ones(16, "<f4").view(np.uint8)])
        self._sequence = np.zeros(seq + 64, np.uint32)
        self._values = np.zeros(_WIDEST_VARINT * (seq + 2 * pred) + 4 * _SPARE, np.uint8)
        self._tags = np.zeros(len(FEATURES), np.int64)
        self._widest_record = (
            2 * _SPARE + len(FEATURES) * _HEADER_WIDTH + _WIDEST_VARINT * (seq + 2 * pred) + 2 * seq + 4 * pred
        )

    def encode(self, instances: Instances, buffers: Mapping[str, RecordBuffer]) -> Iterator[None]:
        """Fill the buffers, one for each format, with records in their order; yields when they are to be emptied."""
        capacity = max(BUFFER_BYTES, 2 * self._widest_record)
        for buffer in buffers.values():
            buffer.make_room(capacity)
        sizes = np.zeros(2, np.int64)
        varints = _varints(instances.tokens)
        headers, bases = self._headers[_INT64_LIST if TFRECORD in buffers else _INT32_LIST]
        done = 0
        while done < len(instances):
            rooms = [buffers[name].room if name in buffers else np.empty(0, np.uint8) for name in (TFRECORD, OFRECORD)]
            done = kernels.load().encode(
                sum(_FORMAT_BITS[name] for name in buffers), done, len(instances), instances.order, self.seq, self.pred,
                varints, self._vocabulary_varints, self._position_varints, self._cls, self._sep,
                instances.slices, instances.is_random_next,
                instances.mask_ends, instances.mask_positions, instances.mask_replacements,
                headers, bases, self._patterns, self._sequence, self._values, self._tags,
                *rooms, capacity, sizes,
            )  # fmt: skip
            for name, buffer in buffers.items():
                buffer.filled_bytes += int(sizes[0] if name == TFRECORD else sizes[1])
            yield


def write_records(instances: Instances, encoder: RecordEncoder, paths: Mapping[str, Path]) -> dict[str, WrittenFile]:
    """Write `instances` to one file for each format in `paths`; all of them appear whole, or none.

    Compression and names are those of the encoder's dialect; where they are not the default, TFRecord is the one format.
    Raises `BertprepError` where the system refuses a write.
    """
    digests = Sha256Pair(len(paths))
    buffers = {name: make_buffer(encoder.dialect.compress) for name in paths}
    with contextlib.ExitStack() as stack:
        files = {name: stack.enter_context(atomic_file(path, direct=True)) for name, path in paths.items()}
        for _ in encoder.encode(instances, buffers):
            digests.update([buffer.take_unhashed() for buffer in buffers.values()])
            for name, buffer in buffers.items():
                buffer.take_pages(files[name])
        sums = digests.hexdigests([buffer.take_end(files[name]) for name, buffer in buffers.items()])
    return {
        name: WrittenFile(len(instances), file.size_bytes, digest)
        for (name, file), digest in zip(files.items(), sums, strict=True)
    }


def _varints(numbers: NDArray[np.int32]) -> NDArray[np.uint32]:
    varints = np.empty(len(numbers) + 64, np.uint32)  # with room behind for copies that overshoot
    kernels.load().make_varints(numbers, len(numbers), varints)
    return varints


def feature_keys(feature_names: str) -> NDArray[np.uint8]:
    """(features, 32): each feature's name with the protobuf bytes around it, and at the end how many those are."""
    keys = np.zeros((len(FEATURES), _KEY_WIDTH), np.uint8)
    for row, feature in zip(keys, FEATURES, strict=True):
        name = _NAMES[feature_names].get(feature, feature).encode()
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
        table = np.zeros((most + 1, _HEADER_WIDTH), np.uint8)
        list_tag = _FLOAT_LIST if name == "masked_lm_weights" else tag
        kernels.load().make_headers(keys, number, list_tag, most, table)
        bases.append(sum(map(len, tables)))
        tables.append(table if name in widest else table[-1:])
    return np.concatenate(tables), np.array(bases, np.int64)

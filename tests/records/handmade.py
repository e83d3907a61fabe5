"""Record files put together byte by byte, slowly and plainly: what the reader's tests measure it against.

Every liberty that protobuf gives a writer can be taken: the order of features, of name and value, packed or not, the type of
a list, other names, features that mean nothing to us.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bertprep.records import Examples

Number = int | float
Record = Mapping[str, Sequence[Number]]

SEQ, PRED = 8, 2
FIRST: Record = {
    "input_ids": [101, 1996, 103, 30521, 102, 2054, 102, 0],
    "input_mask": [1, 1, 1, 1, 1, 1, 1, 0],
    "segment_ids": [0, 0, 0, 0, 0, 1, 1, 0],
    "masked_lm_positions": [2, 0],
    "masked_lm_ids": [4937, 0],
    "masked_lm_weights": [1.0, 0.0],
    "next_sentence_labels": [1],
}
SECOND: Record = {**FIRST, "input_ids": [101, 7, 102, 200, 20000, 102, 0, 0], "next_sentence_labels": [0]}


def random_record(rng: random.Random, seq: int = SEQ, pred: int = PRED, *, most: int = 30521) -> Record:
    return {
        "input_ids": [rng.randrange(most + 1) for _ in range(seq)],
        "input_mask": [rng.randrange(2) for _ in range(seq)],
        "segment_ids": [rng.randrange(2) for _ in range(seq)],
        "masked_lm_positions": [rng.randrange(seq) for _ in range(pred)],
        "masked_lm_ids": [rng.randrange(most + 1) for _ in range(pred)],
        "masked_lm_weights": [float(rng.randrange(2)) for _ in range(pred)],
        "next_sentence_labels": [rng.randrange(2)],
    }


@dataclass(frozen=True)
class Variant:
    """How a tool writes; where a choice is random it is made anew for every feature."""

    record_format: str = "tfrecord"
    packed: bool | None = True  # None: at random
    int64: bool = False  # in an OFRecord
    doubles: bool = False  # in an OFRecord
    any_order: bool = False
    new_names: bool = False
    extras: bool = False  # features and fields that nobody knows


def varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    out = bytearray()
    while number >= 128:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def number_list(values: Iterable[Number], *, packed: bool = True) -> bytes:
    numbers = [varint(int(value)) for value in values]
    return field(1, b"".join(numbers)) if packed else b"".join(b"\x08" + number for number in numbers)


def float_list(values: Iterable[Number], *, packed: bool = True, doubles: bool = False) -> bytes:
    numbers = [struct.pack("<d" if doubles else "<f", value) for value in values]
    tag = b"\x09" if doubles else b"\x0d"
    return field(1, b"".join(numbers)) if packed else b"".join(tag + number for number in numbers)


def message(record: Record, variant: Variant, rng: random.Random | None = None) -> bytes:
    """A serialized Example or OFRecord."""
    rng = rng or random.Random(0)
    entries = [_entry(name, values, variant, rng) for name, values in record.items()]
    if variant.extras:
        entries += [field(1, field(1, b"unique_ids") + field(2, field(1, field(1, b"abc")))), varint(9 << 3) + varint(300)]
    if variant.any_order:
        rng.shuffle(entries)
    body = b"".join(entries)
    return field(1, body) if variant.record_format == "tfrecord" else body


def serialize(examples: Examples, row: int, record_format: str, *, without: str = "") -> bytes:
    """Return one of some examples as a message, in the order of the kind's features."""
    entries = b""
    for feature, array in zip(examples.features, examples.arrays, strict=True):
        values = np.atleast_1d(array[row]).tolist()
        if feature.dtype == np.float32:
            of_type = field(2, float_list(values))
        else:
            of_type = field(3 if record_format == "tfrecord" else 4, number_list(values))
        if feature.name != without:
            entries += field(1, field(1, feature.name.encode()) + field(2, of_type))
    return field(1, entries) if record_format == "tfrecord" else entries


def _entry(name: str, values: Sequence[Number], variant: Variant, rng: random.Random) -> bytes:
    packed = rng.random() < 0.5 if variant.packed is None else variant.packed
    is_example = variant.record_format == "tfrecord"
    if name == "masked_lm_weights":
        feature = field(3 if variant.doubles else 2, float_list(values, packed=packed, doubles=variant.doubles))
    else:
        feature = field(3 if is_example else 5 if variant.int64 else 4, number_list(values, packed=packed))
    if variant.new_names:
        name = {"input_ids": "input_word_ids", "segment_ids": "input_type_ids"}.get(name, name)
    parts = [field(1, name.encode()), field(2, feature)]
    if variant.extras:
        parts.append(varint(7 << 3 | 5) + b"1234")
    if variant.any_order:
        rng.shuffle(parts)
    return field(1, b"".join(parts))


def crc32c(data: bytes) -> int:
    checksum = 0xFFFFFFFF
    for byte in data:
        checksum ^= byte
        for _ in range(8):
            checksum = checksum >> 1 ^ (0x82F63B78 if checksum & 1 else 0)
    return checksum ^ 0xFFFFFFFF


def masked(data: bytes) -> bytes:
    checksum = crc32c(data)
    return struct.pack("<I", ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def frame(data: bytes, record_format: str = "tfrecord") -> bytes:
    """A record as it stands in a file."""
    length = struct.pack("<Q", len(data))
    return length + masked(length) + data + masked(data) if record_format == "tfrecord" else length + data


def file_of(*records: Record, variant: Variant | None = None, rng: random.Random | None = None) -> bytes:
    variant = variant or Variant()
    return b"".join(frame(message(record, variant, rng), variant.record_format) for record in records)

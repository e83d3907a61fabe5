"""Which of the formats a file is, from its first bytes.

    TFRecord   u64 length, u32 masked CRC-32C of those 8 bytes, data, u32 checksum: recognized by the first checksum
    OFRecord   i64 length, data that begins with the tag of a map entry, 0x0A: recognized by that byte
    Arrow      a stream of messages, each after FF FF FF FF and its size, or a file that begins with ARROW1
    Parquet    a file that begins with PAR1

A TFRecord file whose first checksum is wrong is still taken for one if all else looks so, for the sake of its message.
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bertprep import kernels
from bertprep.config import RecordFormat
from bertprep.errors import BertprepError

_MAP_ENTRY = 0x0A
_ARROW_BEGINNINGS = b"\xff\xff\xff\xff", b"ARROW1"
_MAX_MESSAGE_BYTES = 1 << 31  # no protobuf message is longer


def find_format(path: Path, data: NDArray[np.uint8], *, is_whole: bool = True) -> RecordFormat:
    """The format of the file with these bytes, or that begins with them.

    Raises `BertprepError` where it has none of them or is empty.
    """
    if len(data) == 0:
        raise BertprepError(f"{path}: is empty, it holds no records; make it again")
    head = data[:13].tobytes()
    length = int.from_bytes(head[:8], "little")
    if len(data) >= 12 and int.from_bytes(head[8:12], "little") == masked_checksum(data[:8]):
        return RecordFormat.TFRECORD
    if head.startswith(_ARROW_BEGINNINGS):
        return RecordFormat.ARROW
    if head.startswith(b"PAR1"):
        return RecordFormat.PARQUET
    if len(data) >= 9 and length < _MAX_MESSAGE_BYTES:
        if head[8] == _MAP_ENTRY:
            return RecordFormat.OFRECORD
        if head[12:] == bytes([_MAP_ENTRY]) and length <= len(data) - 16:
            return RecordFormat.TFRECORD
    size = f"{'' if is_whole else 'more than '}{len(data):,} bytes"
    raise BertprepError(
        f"{path}: is neither TFRecord, OFRecord, Arrow nor Parquet: it has {size} and begins with {head[:12].hex(' ')}; "
        "give a file that bertprep create or a tool like it has made"
    )


def masked_checksum(data: NDArray[np.uint8]) -> int:
    """The masked CRC-32C of TFRecord.

    >>> hex(masked_checksum(np.frombuffer(b"123456789", np.uint8)))
    '0xc78ab0e5'
    """
    checksum = kernels.load().checksum(0, data, len(data))
    return ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF  # a CRC of data that has its own CRC would be weak

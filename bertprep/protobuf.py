"""The part of protobuf's wire format that TensorFlow's small messages need (protobuf.dev/programming-guides/encoding).

A field is its number and kind in one varint, then its value. Fields that are 0 or empty are not written, as in proto3.
The bytes may be hostile: a truncated field or an unknown kind raises `ValueError`.
"""

from collections.abc import Iterator

INTEGER, EIGHT_BYTES, LENGTH, FOUR_BYTES = 0, 1, 2, 5
"""The wire types: a varint, a fixed64 or double, length-delimited bytes, a fixed32 or float."""
_LONGEST_VARINT = 10  # bytes, for 64 bits


def varint(value: int) -> bytes:
    """A varint: seven bits a byte, lowest first; all bytes but the last have the highest bit set.

    >>> varint(300).hex()
    'ac02'
    """
    groups = bytearray()
    while value > 0x7F:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    groups.append(value)
    return bytes(groups)


def integer(field: int, value: int) -> bytes:
    return varint(field << 3 | INTEGER) + varint(value)


def message(field: int, content: bytes) -> bytes:
    """A field of bytes, text or a nested message."""
    return varint(field << 3 | LENGTH) + varint(len(content)) + content


def fixed(field: int, content: bytes) -> bytes:
    """A field of 4 or 8 bytes: a float, a double, or a number as wide."""
    return varint(field << 3 | (FOUR_BYTES if len(content) == 4 else EIGHT_BYTES)) + content


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """The number at `position`, and the position after it.

    >>> read_varint(bytes.fromhex("ac02"), 0)
    (300, 2)
    """
    value = 0
    for length, byte in enumerate(data[position : position + _LONGEST_VARINT]):
        value |= (byte & 0x7F) << 7 * length
        if byte < 0x80:
            return value, position + length + 1
    raise ValueError(f"a number at byte {position:,} has no end")


def read_fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Number and value of each field of a message: an integer for varints and fixed numbers, bytes for all else."""
    position = 0
    while position < len(data):
        key, position = read_varint(data, position)
        kind, value = key & 7, 0
        if kind == INTEGER:
            value, position = read_varint(data, position)
            yield key >> 3, value
            continue
        if kind == LENGTH:
            size, position = read_varint(data, position)
        else:
            size = {EIGHT_BYTES: 8, FOUR_BYTES: 4}.get(kind, -1)
        if not 0 <= size <= len(data) - position:
            raise ValueError(f"a field at byte {position:,} is cut off, or of a kind that does not exist")
        content = data[position : position + size]
        yield key >> 3, content if kind == LENGTH else int.from_bytes(content, "little")
        position += size

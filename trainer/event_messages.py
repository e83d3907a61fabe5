"""Encode the part of protobuf's wire format that TensorBoard's events need (protobuf.dev/programming-guides/encoding).

A field is a varint of its number and wire type, and then its value. Fields that are 0 or empty are not written, as in proto3.
"""

INTEGER, EIGHT_BYTES, LENGTH, FOUR_BYTES = 0, 1, 2, 5
"""Wire types: varint; fixed64 or double; length-delimited bytes; fixed32 or float."""


def varint(value: int) -> bytes:
    """Encode a varint: seven bits per byte, lowest first. All bytes but the last have the highest bit set.

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
    return varint(field << 3 | LENGTH) + varint(len(content)) + content


def fixed(field: int, content: bytes) -> bytes:
    """Encode a field of 4 or 8 bytes: a float, a double, or a fixed-width number."""
    return varint(field << 3 | (FOUR_BYTES if len(content) == 4 else EIGHT_BYTES)) + content

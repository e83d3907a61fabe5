"""Protobuf messages put together byte by byte, so that a test can write what no usual writer does.

A field is its tag, a length and the content. An `Example` (TFRecord) and an `OFRecord` hold a map from names to features,
which on the wire is a repeated entry of a name (field 1) and a feature (field 2), in any order.
"""

from collections.abc import Iterable, Mapping


def varint(number: int) -> bytes:
    """A number in protobuf's variable length: seven bits a byte, the lowest first.

    >>> varint(300).hex()
    'ac02'
    """
    low, rest = number & 127, number >> 7
    return bytes([low | 128]) + varint(rest) if rest else bytes([low])


def field(number: int, content: bytes) -> bytes:
    """Field `number` of a message, of the kind that carries its length: a string, a message or a packed list."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def packed_integers(numbers: Iterable[int]) -> bytes:
    """A list message (`repeated int64 value = 1`) as every writer makes it: packed."""
    return field(1, b"".join(map(varint, numbers)))


def unpacked_integers(numbers: Iterable[int]) -> bytes:
    """The same list with a tag before each number, as protobuf lets a writer do; every reader must take both."""
    return b"".join(varint(1 << 3 | 0) + varint(number) for number in numbers)


def feature_map(features: Mapping[str, bytes]) -> bytes:
    """The entries of a `map<string, Feature>` that is field 1, in the order of `features`."""
    return b"".join(field(1, field(1, name.encode()) + field(2, feature)) for name, feature in features.items())

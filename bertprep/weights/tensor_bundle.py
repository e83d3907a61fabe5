"""TensorFlow's checkpoint format, "V2" or TensorBundle: variables by name, read and written with NumPy alone.

    PREFIX.index                  a table (sstable.py): "" -> BundleHeaderProto, each variable's name -> BundleEntryProto
    PREFIX.data-00000-of-00001    the variables' values, row-major, little-endian, concatenated in the order of their names

    BundleHeaderProto   1 number of data files, 2 endianness (1: big), 3 version {1 producer}
    BundleEntryProto    1 type, 2 shape {2 dimension {1 size}}, 3 data file, 4 position, 5 size in bytes,
                        6 fixed32 masked CRC-32C of the values, 7 slices, of a variable that was saved in pieces

Writes float32, byte-identical to `tf.train.Saver` for the same variables. Reads all floating-point types, from any number of
data files; a variable is read on request, after its offset, size and checksum are verified.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bertprep import kernels
from bertprep.errors import BertprepError, UsageError
from bertprep.files.atomic import atomic_file, explain_write_error
from bertprep.files.places import local_copy, place
from bertprep.protobuf import fixed, integer, message, read_fields
from bertprep.records.formats import mask_checksum
from bertprep.weights.safetensors import to_float32
from bertprep.weights.sstable import MOST_BYTES, decode_table, encode_table

INDEX_SUFFIX = ".index"
_FLOAT, _DOUBLE, _BFLOAT16, _HALF = 1, 2, 14, 19  # TensorFlow's numbers
_STORED = {_FLOAT: "<f4", _DOUBLE: "<f8", _BFLOAT16: "<u2", _HALF: "<f2"}
_HEADER = integer(1, 1) + message(3, integer(1, 1))  # one data file, version 1
_MOST_DIMENSIONS = 254  # TensorFlow's limit
_WRITTEN_BYTES = 1 << 22
"""Bytes written at a time, so that a large table is never copied as a whole."""


@dataclass(frozen=True)
class Entry:
    """Where one variable is stored."""

    shape: tuple[int, ...]
    data_type: int = _FLOAT
    shard: int = 0
    offset: int = 0
    size_bytes: int = 0
    checksum: int = 0
    in_slices: bool = False


def find_prefix(path: Path) -> Path | None:
    """The prefix for a `path` that is a prefix or one of its files; None if there is no such checkpoint."""
    prefix = place(re.sub(r"\.(index|data-\d{5}-of-\d{5})$", "", str(path)))
    return prefix if _index_of(prefix).is_file() else None


def newest_bundle(folder: Path, released: str) -> Path | None:
    """The prefix of the highest step in a folder, in TensorFlow's form model.ckpt-300.

    If none has a step, the one named `released`, or the only one; raises `UsageError` if there are several.
    """
    prefixes = [index.with_name(index.name.removesuffix(INDEX_SUFFIX)) for index in folder.glob(f"*{INDEX_SUFFIX}")]
    steps = {int(match[1]): prefix for prefix in prefixes if (match := re.search(r"-(\d+)$", prefix.name))}
    if steps:
        return steps[max(steps)]
    if folder / released in prefixes:
        return folder / released
    if len(prefixes) > 1:
        names = ", ".join(sorted(ascii(prefix.name) for prefix in prefixes))
        raise UsageError(f"{folder}: holds several checkpoints of TensorFlow, {names}; name one of them")
    return prefixes[0] if prefixes else None


def _index_of(prefix: Path) -> Path:
    return place(f"{prefix}{INDEX_SUFFIX}")


def _data_of(prefix: Path, shard: int, shards: int) -> Path:
    return place(f"{prefix}.data-{shard:05d}-of-{shards:05d}")


def bundle_files(prefix: Path) -> tuple[Path, Path]:
    """The paths of the index and the data of a written bundle, which has one data file."""
    return _index_of(prefix), _data_of(prefix, 0, 1)


class TensorBundle:
    """A checkpoint's variables: `entries` has their positions, `read` reads one."""

    def __init__(self, prefix: Path) -> None:
        """Read the index; raises `BertprepError` if it is invalid."""
        self._prefix, self._index = prefix, _index_of(prefix)
        try:
            with self._index.open("rb") as file:
                content = file.read(MOST_BYTES + 1)
        except OSError as error:
            raise BertprepError(f"{self._index}: cannot be read: {error.strerror or error}") from error
        try:
            if len(content) > MOST_BYTES:
                raise ValueError(f"it has more than {MOST_BYTES:,} bytes")
            table = decode_table(content)
            self._shards = _read_header(table.pop(b"", None))
            self.entries = {name.decode(): _read_entry(value) for name, value in table.items()}
        except ValueError as error:
            raise BertprepError(
                f"{self._index}: is damaged, or no index of a TensorFlow checkpoint ({error}); copy it from its source again"
            ) from error

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: entry.shape for name, entry in self.entries.items()}

    def read(self, name: str) -> NDArray[np.float32]:
        """The values of one variable, as float32."""
        entry = self.entries[name]
        if entry.in_slices or entry.data_type not in _STORED:
            wrong = "is saved in slices" if entry.in_slices else f"is of TensorFlow's type {entry.data_type}"
            raise BertprepError(f"{self._prefix}: {name}: {wrong}, expected floating-point numbers in one piece")
        stored = np.dtype(_STORED[entry.data_type])
        path = _data_of(self._prefix, entry.shard, self._shards)
        try:
            copy = local_copy(path)
            file_bytes = copy.stat().st_size
            count = math.prod(entry.shape)
            if entry.size_bytes != count * stored.itemsize or entry.offset + entry.size_bytes > file_bytes:
                raise BertprepError(
                    f"{path}: {name}: {count:,} values of {stored.itemsize} bytes; found {entry.size_bytes:,} bytes at "
                    f"{entry.offset:,} of {file_bytes:,}; the file is cut off or is not of its index, copy both again"
                )
            with copy.open("rb") as file:
                file.seek(entry.offset)
                values = np.fromfile(file, stored, count)
        except OSError as error:
            raise BertprepError(f"{path}: cannot be read: {error.strerror or error}") from error
        if len(values) != count or mask_checksum(_checksum(0, values)) != entry.checksum:
            raise BertprepError(f"{path}: {name}: has another checksum than its values; the file is damaged, copy it again")
        return to_float32(values).reshape(entry.shape)


def _read_header(header: bytes | None) -> int:
    """The number of data files."""
    if header is None:
        raise ValueError("it has no header")
    fields = dict(read_fields(header))
    shards = fields.get(1, 0)
    if fields.get(2, 0) != 0:
        raise ValueError("its values are big-endian")
    if not isinstance(shards, int) or not 1 <= shards <= 99_999:
        raise ValueError(f"its number of data files is {shards!r}")
    return shards


def _read_entry(content: bytes) -> Entry:
    names = {1: "data_type", 3: "shard", 4: "offset", 5: "size_bytes", 6: "checksum"}
    numbers: dict[str, int] = {}
    shape: tuple[int, ...] = ()
    in_slices = False
    for field, value in read_fields(content):
        if field == 2 and isinstance(value, bytes):
            shape = tuple(_read_size(dimension) for number, dimension in read_fields(value) if number == 2)
        elif field == 7:
            in_slices = True
        elif field in names and isinstance(value, int):
            numbers[names[field]] = value
    if len(shape) > _MOST_DIMENSIONS:
        raise ValueError(f"a shape has {len(shape):,} dimensions")
    if math.prod(max(1, size) for size in shape) >= 1 << 63:
        raise ValueError("a shape is larger than any array can be")
    return Entry(shape, numbers.pop("data_type", 0), in_slices=in_slices, **numbers)


def _read_size(dimension: int | bytes) -> int:
    sizes = [value for field, value in read_fields(dimension) if field == 1] if isinstance(dimension, bytes) else [b""]
    size = sizes[-1] if sizes else 0
    if not isinstance(size, int):
        raise ValueError("a shape has a size that is not a number")
    return size


def write_bundle(prefix: Path, variables: Mapping[str, NDArray[np.float32]]) -> None:
    """Write variables by name as PREFIX.index and its one data file; arrays may be views of a mapped file.

    An old index is removed first and the new one written last, so a killed run leaves none rather than a wrong one.
    """
    index, entries, offset = _index_of(prefix), {}, 0
    try:
        index.unlink(missing_ok=True)
    except OSError as error:
        raise explain_write_error(index, error) from error
    with atomic_file(_data_of(prefix, 0, 1)) as file:
        for name in sorted(variables, key=str.encode):
            checksum = 0
            for values in _pieces(variables[name]):
                file.write(values.data)
                checksum = _checksum(checksum, values)
            shape = variables[name].shape
            entries[name] = Entry(shape, offset=offset, size_bytes=file.size_bytes - offset, checksum=mask_checksum(checksum))
            offset = file.size_bytes
    with atomic_file(index) as file:
        named = ((name.encode(), _encode_entry(entry)) for name, entry in entries.items())
        file.write(encode_table([(b"", _HEADER), *named]))


def holds(prefix: Path, variables: Mapping[str, NDArray[np.float32]]) -> bool:
    """Whether an intact bundle of exactly these variables and values exists."""
    try:
        bundle = TensorBundle(prefix)
        return bundle.shapes == {name: values.shape for name, values in variables.items()} and all(
            np.array_equal(bundle.read(name), values) for name, values in variables.items()
        )
    except BertprepError:
        return False


def _pieces(values: NDArray[np.float32]) -> Iterator[NDArray[np.float32]]:
    """The values in row-major order, a few rows at a time."""
    rows = np.atleast_1d(values)
    step = max(1, _WRITTEN_BYTES // max(1, math.prod(rows.shape[1:]) * 4))
    for first in range(0, len(rows), step):
        yield np.ascontiguousarray(rows[first : first + step], "<f4")


def _checksum(previous: int, values: NDArray[np.generic]) -> int:
    data = values.reshape(-1).view(np.uint8)
    return kernels.load().checksum(previous, data, len(data))


def _encode_entry(entry: Entry) -> bytes:
    shape = b"".join(message(2, _unless_zero(1, size)) for size in entry.shape)
    position = _unless_zero(4, entry.offset) + _unless_zero(5, entry.size_bytes)
    return integer(1, entry.data_type) + message(2, shape) + position + fixed(6, struct.pack("<I", entry.checksum))


def _unless_zero(field: int, value: int) -> bytes:
    return integer(field, value) if value else b""

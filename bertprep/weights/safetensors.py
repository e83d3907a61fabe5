"""The safetensors format: arrays by name in one file, read and written with NumPy alone.

    8 bytes   length of the header, little-endian
    header    JSON: {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ..., "__metadata__": {...}}
    data      the arrays, row-major, little-endian, at the offsets from here

Files are written atomically, in float32 and sorted by name; half-precision files can be read too.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertprep.errors import BertprepError
from bertprep.files.atomic import atomic_file
from bertprep.files.mapped_file import MappedFile
from bertprep.files.places import ObjectPath, hold_copy, local_copy
from bertprep.untrusted import parse_json

_LONGEST_HEADER = 100_000_000  # bytes, the limit of the format's own library
_ALIGNMENT = 8  # bytes; the alignment of the data that other tools expect
_STORED: dict[str, np.dtype[Any]] = {
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype("<u2"),  # the upper half of a float32
    "F64": np.dtype("<f8"),
}


def read_safetensors(path: Path) -> dict[str, NDArray[np.float32]]:
    """The floating-point arrays in a file, as float32; others, such as a list of positions, are skipped."""
    with map_safetensors(path) as values:
        return {name: np.array(value) for name, value in values.items()}


@contextmanager
def map_safetensors(path: Path) -> Iterator[dict[str, NDArray[np.float32]]]:
    """The same as read-only views of the file if it has float32, which take no memory.

    Raises `BertprepError` after the block if the file was truncated meanwhile, since the views then had zeros for its end.
    """
    with _mapped(path) as data:
        header, start = _read_header(path, data)
        yield {
            name: _view_array(path, name, entry, data[start:])
            for name, entry in header.items()
            if name != "__metadata__" and entry.get("dtype") in _STORED
        }


def to_float32(values: NDArray[Any]) -> NDArray[np.float32]:
    """Values of any floating-point type as float32; bfloat16, which NumPy lacks, is given as u16."""
    if values.dtype == "<u2":
        return (values.astype("<u4") << 16).view("<f4")
    return np.asarray(values, np.float32)


def read_metadata(path: Path) -> dict[str, str]:
    """The metadata of a file; most have none. Of an object only the header is read."""
    if isinstance(path, ObjectPath):
        header, _ = _read_header(path, _head_of(path))
    else:
        with _mapped(path) as data:
            header, _ = _read_header(path, data)
    return dict(header.get("__metadata__", {}))


def _head_of(path: ObjectPath) -> NDArray[np.uint8]:
    """The bytes of an object up to the end of its header."""
    from bertprep.files import object_store

    try:
        head = object_store.read_head(path, 8)
        if len(head) == 8 and (size := struct.unpack("<Q", head)[0]) <= _LONGEST_HEADER:
            head = object_store.read_head(path, 8 + size)
    except OSError as error:
        raise BertprepError(f"{path}: cannot be read: {error.strerror or error}") from error
    return np.frombuffer(head, np.uint8)


@contextmanager
def _mapped(path: Path) -> Iterator[NDArray[np.uint8]]:
    """The bytes of a file; raises after the block if it was truncated meanwhile."""
    try:
        with (copy := local_copy(path)).open("rb") as file:
            if copy is not path:
                hold_copy(file)
            mapping = MappedFile(file) if copy.stat().st_size else None
    except OSError as error:
        raise BertprepError(f"{path}: cannot be read: {error.strerror or error}") from error
    try:
        yield np.frombuffer(mapping or b"", np.uint8)
    finally:
        if mapping is not None:
            mapping.check()


def _read_header(path: Path, data: NDArray[np.uint8]) -> tuple[dict[str, Any], int]:
    """The entries by name, and the offset of the data."""
    size = struct.unpack("<Q", data[:8].tobytes())[0] if len(data) >= 8 else 0
    if not 0 < size <= min(len(data) - 8, _LONGEST_HEADER):
        raise BertprepError(f"{path}: is not a whole safetensors file: {len(data):,} bytes, with a header of {size:,}")
    try:
        header = parse_json(data[8 : 8 + size].tobytes())
    except ValueError as error:
        raise BertprepError(f"{path}: is not a safetensors file: its header is not JSON ({error})") from error
    if not isinstance(header, dict) or not all(isinstance(entry, dict) for entry in header.values()):
        raise BertprepError(f"{path}: is not a safetensors file: its header is not one of names and entries")
    return header, 8 + size


def _view_array(path: Path, name: str, entry: Mapping[str, Any], data: NDArray[np.uint8]) -> NDArray[np.float32]:
    stored = _STORED[entry["dtype"]]
    try:
        shape = tuple(int(size) for size in entry["shape"])
        begin, end = (int(offset) for offset in entry["data_offsets"])
    except (KeyError, TypeError, ValueError) as error:
        raise BertprepError(f"{path}: {name}: its entry has no shape or no offsets: {dict(entry)}") from error
    expected = math.prod(shape) * stored.itemsize
    if not (0 <= begin <= end <= len(data) and end - begin == expected):
        raise BertprepError(
            f"{path}: {name}: {entry['dtype']} of shape {list(shape)} takes {expected:,} bytes; "
            f"found bytes {begin:,} to {end:,} of {len(data):,}; the file is cut off or damaged"
        )
    return to_float32(np.frombuffer(data[begin:end], stored)).reshape(shape)


def write_safetensors(path: Path, arrays: Mapping[str, NDArray[np.float32]], metadata: Mapping[str, str]) -> None:
    """Write arrays by name as float32, with metadata; a file or object that is there is replaced."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    end = 0
    for name in sorted(arrays):
        begin, end = end, end + arrays[name].size * 4
        header[name] = {"dtype": "F32", "shape": list(arrays[name].shape), "data_offsets": [begin, end]}
    encoded = json.dumps(header, separators=(",", ":")).encode()
    encoded += b" " * (-len(encoded) % _ALIGNMENT)
    with atomic_file(path, replace=True) as file:
        file.write(struct.pack("<Q", len(encoded)) + encoded)
        for name in sorted(arrays):
            file.write(np.ascontiguousarray(arrays[name], "<f4").tobytes())

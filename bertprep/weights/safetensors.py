"""Reads and writes safetensors files: floating-point arrays by name, as float32.

The package safetensors reads them. This file writes them itself: atomically, to object stores too, sorted by name, one array
at a time.

    8 bytes   length of the header, little-endian
    header    JSON: {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ..., "__metadata__": {...}}
    data      the arrays, row-major, little-endian, at offsets counted from here
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertprep.errors import BertprepError, reading
from bertprep.files.atomic import atomic_file
from bertprep.files.object_cache import local_copy
from bertprep.files.paths import ObjectPath, open_plain
from bertprep.untrusted import OBJECT, TEXT, check_values, parse_json
from bertprep.weights.google_names import WeightFile

_METADATA = "__metadata__"
MAX_HEADER_BYTES = 8 << 20
"""The limit on a header: 60,000 arrays. The package allows 100 MB, which take 2 GB to parse if a stranger wrote them."""
_LENGTH = struct.Struct("<Q")
_ALIGNMENT = 8  # bytes; other tools expect the data to be aligned like this
_FLOATING = ("F16", "BF16", "F32", "F64")


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    import ml_dtypes  # noqa: F401 - makes bfloat16 known to NumPy
    from safetensors import SafetensorError, safe_open

    try:
        with reading(path), open_plain(local_copy(path)) as copy, safe_open(copy.name, "np") as file:
            yield file
    except SafetensorError as error:
        raise _invalid(path, error) from error


@contextmanager
def open_safetensors(path: Path) -> Iterator[WeightFile]:
    """Open the floating-point arrays of a file, which are read on access; other arrays are skipped."""
    with _opened(path) as file:
        slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
        shapes = {name: tuple(each.get_shape()) for name, each in slices.items() if each.get_dtype() in _FLOATING}
        yield WeightFile(shapes, lambda name: np.asarray(file.get_tensor(name), np.float32))


def read_safetensors(path: Path) -> dict[str, NDArray[np.float32]]:
    """Read the floating-point arrays of a file."""
    with open_safetensors(path) as file:
        return {name: file.read(name) for name in file.shapes}


def read_metadata(path: Path) -> dict[str, str]:
    """Read the metadata of a file; for an object in a store, only the header is fetched."""
    try:
        metadata = _read_header(path).get(_METADATA, {})
        return check_values(metadata, dict.fromkeys(metadata, TEXT), prefix=f"{_METADATA}.")
    except (TypeError, ValueError) as error:
        raise _invalid(path, error) from error


def read_dtypes(path: Path) -> dict[str, str]:
    """Read the type of each array of a file, such as F32."""
    try:
        return {name: str(entry.get("dtype")) for name, entry in _read_header(path).items() if name != _METADATA}
    except ValueError as error:
        raise _invalid(path, error) from error


def _read_header(path: Path) -> dict[str, Any]:
    """Read the JSON of a file's header; raises `ValueError` if it is not an object of objects, or is too large."""
    with reading(path):
        head = _read_head(path, _LENGTH.size)
        if len(head) < _LENGTH.size:
            raise ValueError(f"it has {len(head)} bytes")
        (size,) = _LENGTH.unpack(head)
        if size > MAX_HEADER_BYTES:
            raise ValueError(f"its header would have {size:,} bytes, expected at most {MAX_HEADER_BYTES:,}")
        header = parse_json(_read_head(path, _LENGTH.size + size)[_LENGTH.size :])
    return check_values(header, dict.fromkeys(header, OBJECT) if isinstance(header, dict) else {})


def _read_head(path: Path, size_bytes: int) -> bytes:
    if isinstance(path, ObjectPath):
        from bertprep.files import object_store

        return object_store.read_head(path, size_bytes)[:size_bytes]
    with open_plain(path) as file:
        return file.read(size_bytes)


def _invalid(path: Path, error: Exception) -> BertprepError:
    return BertprepError(f"{path}: is not a valid safetensors file: {error}; name another file, or download it again")


def write_safetensors(path: Path, arrays: Mapping[str, NDArray[np.float32]], metadata: Mapping[str, str]) -> None:
    """Write arrays as float32, with metadata, and replace an existing file or object."""
    header: dict[str, Any] = {_METADATA: dict(metadata)}
    end = 0
    for name in sorted(arrays):
        begin, end = end, end + arrays[name].size * 4
        header[name] = {"dtype": "F32", "shape": list(arrays[name].shape), "data_offsets": [begin, end]}
    encoded = json.dumps(header, separators=(",", ":")).encode()
    encoded += b" " * (-len(encoded) % _ALIGNMENT)
    with atomic_file(path, replace=True) as file:
        file.write(_LENGTH.pack(len(encoded)) + encoded)
        for name in sorted(arrays):
            file.write(np.ascontiguousarray(arrays[name], "<f4").tobytes())

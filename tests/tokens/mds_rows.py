"""A reader of MDS shards, written from the description of the format: no part of bertprep reads them."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of an MDS shard: column to text, number, or list of ids."""
    data = path.read_bytes()
    count = int.from_bytes(data[:4], "little")
    begins = np.frombuffer(data, "<u4", count + 1, 4).tolist()
    assert begins[-1] == len(data)
    config = json.loads(data[4 * (count + 2) : begins[0]])
    return [_read_row(data[begin:end], config) for begin, end in pairwise(begins)]


def _read_row(data: bytes, config: dict[str, Any]) -> dict[str, Any]:
    variable = sum(size is None for size in config["column_sizes"])
    sizes = iter(np.frombuffer(data, "<u4", variable).tolist())
    at, row = 4 * variable, {}
    for name, encoding, fixed in zip(config["column_names"], config["column_encodings"], config["column_sizes"], strict=True):
        size = fixed or next(sizes)
        row[name] = _decode(encoding, data[at : at + size])
        at += size
    assert at == len(data)
    return row


def _decode(encoding: str, value: bytes) -> Any:
    if encoding == "str":
        return value.decode()
    if encoding == "int":
        return int.from_bytes(value, "little", signed=True)
    bytes_of_length = 1 << (value[0] & 3)
    ids = np.frombuffer(value[1 + bytes_of_length :], encoding.removeprefix("ndarray:"))
    assert (value[0] >> 2, int.from_bytes(value[1 : 1 + bytes_of_length], "little")) == (1, len(ids))
    return ids.tolist()

"""Identify the text that files are made from, so that a manifest can record it and a later run can see that it has changed.

A manifest entry has the name of the text shard, its size in bytes and its CRC-32C, which the tokenizer computes as it reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bertprep import kernels
from bertprep.errors import BertprepError
from bertprep.files.object_cache import open_local
from bertprep.work.layout import MANIFEST

_BLOCK_BYTES = 1 << 20


def identify_text(*paths: Path) -> tuple[int, str]:
    """Return the size in bytes and the CRC-32C, in hexadecimal, of one file or of the concatenation of several."""
    block = np.empty(_BLOCK_BYTES, np.uint8)
    size_bytes = crc32c = 0
    for path in paths:
        try:
            with open_local(path) as file:
                while read := file.readinto(block.data):
                    size_bytes += read
                    crc32c = kernels.load().checksum(crc32c, block, read)
        except OSError as error:
            raise BertprepError(f"{path}: cannot be read as a text shard: {error.strerror}; make it again") from error
    return size_bytes, f"{crc32c:08x}"


def text_entry(name: str, size_bytes: int, crc32c: str) -> dict[str, Any]:
    """Return the value of `text` in the manifest entry of a file."""
    return {"name": name, "bytes": size_bytes, "crc32c": crc32c}


def check_text(path: Path, expected: Mapping[str, Any] | None, read: Mapping[str, Any]) -> None:
    """Raise `BertprepError` if the text that was read differs from the entry in the manifest of the text shards."""
    if expected is None or (read["bytes"], read["crc32c"]) == (expected["bytes"], expected["crc32c"]):
        return
    raise BertprepError(
        f"{path}: {read['bytes']:,} bytes with crc32c {read['crc32c']} were read, expected {expected['bytes']:,} with "
        f"{expected['crc32c'][:16]} as in the {MANIFEST} of the text shards; run the command again, and if this repeats, "
        "remove the corrupt shard with bertprep validate --remove-damaged and make it again with bertprep shard"
    )


def check_unchanged(folder: Path, made: Mapping[str, Any], text: str, size_bytes: int, crc32c: str) -> None:
    """Raise `BertprepError` if a folder was made from text of another size or CRC-32C."""
    if (size_bytes, crc32c) != (made["bytes"], made["crc32c"]):
        raise BertprepError(
            f"{folder}: was made from {made['bytes']:,} bytes of text (crc32c {made['crc32c']}), but {text} has changed since: "
            f"it has {size_bytes:,} bytes ({crc32c}); choose another --output, or remove this folder"
        )

"""The text that files are made from: how their manifest names it, and whether it is the same text still.

An entry has the name of the text shard, its size in bytes and its CRC-32C, which the tokenizer computes as it reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bertprep import kernels
from bertprep.errors import BertprepError
from bertprep.files.checksums import SHA256
from bertprep.files.object_cache import open_local
from bertprep.files.paths import checksum_of
from bertprep.work.layout import MANIFEST

_BLOCK_BYTES = 1 << 20


def identify_text(*paths: Path) -> tuple[int, str]:
    """Return the size in bytes and the CRC-32C, in hexadecimal, of a file, or of several one after the other."""
    block = np.empty(_BLOCK_BYTES, np.uint8)
    size_bytes = crc32c = 0
    for path in paths:
        try:
            with open_local(path) as file:
                while read := file.readinto(block.data):
                    size_bytes += read
                    crc32c = kernels.load().checksum(crc32c, block, read)
        except OSError as error:
            raise BertprepError(f"{path}: cannot be read: {error.strerror}; expected a text shard") from error
    return size_bytes, f"{crc32c:08x}"


def text_entry(name: str, size_bytes: int, crc32c: str) -> dict[str, Any]:
    """Return what the entry of a file says of its text."""
    return {"name": name, "bytes": size_bytes, "crc32c": crc32c}


def check_text(path: Path, expected: Mapping[str, Any] | None, read: Mapping[str, Any]) -> None:
    """Raise if the text that was read differs from the shards' manifest; one of 0.2.0, without CRC-32C, costs a sha256."""
    if expected is None:
        return
    name = "crc32c" if "crc32c" in expected else SHA256
    found = read[name] if name in read else checksum_of(path, SHA256)
    if (read["bytes"], found) == (expected["bytes"], expected[name]):
        return
    raise BertprepError(
        f"{path}: {read['bytes']:,} bytes with {name} {found[:16]} were read, expected {expected['bytes']:,} with "
        f"{expected[name][:16]}, as the {MANIFEST} of the text shards says; if this command finds the same again, remove the "
        "corrupt shard with bertprep validate --remove-damaged, and make it again with bertprep shard"
    )


def check_unchanged(folder: Path, made: Mapping[str, Any], text: str, size_bytes: int, crc32c: str) -> None:
    """Raise if a folder was made of another text than the one that has this size and CRC-32C now."""
    if (size_bytes, crc32c) != (made["bytes"], made["crc32c"]):
        raise BertprepError(
            f"{folder}: was made from {made['bytes']:,} bytes of text (crc32c {made['crc32c']}), and {text} has changed since: "
            f"{size_bytes:,} bytes ({crc32c}); choose another --output, or remove this folder"
        )

"""LevelDB's table format, in which TensorFlow keeps the index of a checkpoint: sorted keys and values in one small file.

    block ...   entries; then the offset of each 16th, u32 each, and the number of offsets, u32
                an entry: varint lengths of the prefix shared with the last key, the rest of the key, and the value; both
    trailer     after each block: u8 compression (0: none), u32 masked CRC-32C of the block and that byte
    last two    an empty block, and the index: offset and size of all blocks before it, by a key not below their last
    footer      offset and size of these two as varints, zeros up to 40 bytes, u64 magic number

Written tables are byte-identical to those of TensorFlow's writer. Reading trusts nothing: any damage raises `ValueError`, and
memory is bounded by `MOST_BYTES`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

import numpy as np

from bertprep.protobuf import read_varint, varint
from bertprep.records.formats import masked_checksum

MOST_BYTES = 1 << 26
"""The largest table accepted, with keys written in full; that of BERT large and its optimizer has 0.1 MB."""
_MAGIC = struct.pack("<Q", 0xDB4775248B80FB57)
_FOOTER_BYTES, _TRAILER_BYTES = 48, 5
_BLOCK_BYTES = 1 << 18  # TensorFlow's limit; a block ends with the entry that reaches it
_RESTART_INTERVAL = 16


class _Block:
    """A block under construction."""

    def __init__(self, restart_interval: int) -> None:
        self._interval = restart_interval
        self._data, self._restarts, self._entries, self._last = bytearray(), [0], 0, b""

    def add(self, key: bytes, value: bytes) -> None:
        shared = 0
        if self._entries and self._entries % self._interval == 0:
            self._restarts.append(len(self._data))
        else:
            shared = _shared_prefix(self._last, key)
        self._data += varint(shared) + varint(len(key) - shared) + varint(len(value)) + key[shared:] + value
        self._entries, self._last = self._entries + 1, key

    @property
    def size_bytes(self) -> int:
        return len(self._data) + 4 * len(self._restarts) + 4

    def finish(self) -> bytes:
        """The block and its trailer."""
        content = self._data + struct.pack(f"<{len(self._restarts) + 1}I", *self._restarts, len(self._restarts)) + b"\0"
        return bytes(content) + struct.pack("<I", _checksum(content))


def encode_table(items: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The bytes of a table of these sorted keys and their values."""
    table, index, block = bytearray(), _Block(1), _Block(_RESTART_INTERVAL)
    last, full = b"", b""
    for key, value in items:
        if full:
            index.add(_separator(last, key), full)
            full = b""
        block.add(key, value)
        last = key
        if block.size_bytes >= _BLOCK_BYTES:
            full, block = _append(table, block), _Block(_RESTART_INTERVAL)
    if not full:
        full = _append(table, block)
    meta = _append(table, _Block(_RESTART_INTERVAL))
    index.add(_successor(last), full)
    return bytes(table + (meta + _append(table, index)).ljust(_FOOTER_BYTES - len(_MAGIC), b"\0") + _MAGIC)


def _append(table: bytearray, block: _Block) -> bytes:
    """Append a block; returns its offset and size, as stored in the index."""
    content, position = block.finish(), len(table)
    table += content
    return varint(position) + varint(len(content) - _TRAILER_BYTES)


def _separator(last: bytes, following: bytes) -> bytes:
    """The shortest key not below `last` and below `following`."""
    shared = _shared_prefix(last, following)
    if shared < min(len(last), len(following)) and last[shared] < 0xFF and last[shared] + 1 < following[shared]:
        return last[:shared] + bytes([last[shared] + 1])
    return last


def _successor(last: bytes) -> bytes:
    """A short key not below `last`."""
    for position, byte in enumerate(last):
        if byte < 0xFF:
            return last[:position] + bytes([byte + 1])
    return last


def _shared_prefix(one: bytes, other: bytes) -> int:
    shared = 0
    while shared < min(len(one), len(other)) and one[shared] == other[shared]:
        shared += 1
    return shared


def _checksum(data: bytes | bytearray) -> int:
    return masked_checksum(np.frombuffer(data, np.uint8))


def decode_table(table: bytes) -> dict[bytes, bytes]:
    """The values of a table by key, in order; raises `ValueError` if it is damaged."""
    if len(table) < _FOOTER_BYTES or table[-len(_MAGIC) :] != _MAGIC:
        raise ValueError(f"its {len(table):,} bytes do not end as those of a table do")
    footer = table[-_FOOTER_BYTES:]
    _, position = read_varint(footer, 0)
    _, position = read_varint(footer, position)
    index, _ = _block(table, footer[position:])
    values: dict[bytes, bytes] = {}
    size_bytes, last, end = 0, b"", 0
    for upper, handle in _entries(index):
        block, next_end = _block(table, handle, end)
        end, size_bytes = next_end, size_bytes + len(upper)
        for key, value in _entries(block):
            if values and key <= last:
                raise ValueError(f"key {key[:80]!r} comes after {last[:80]!r}")
            size_bytes += len(key) + len(value)
            _check_size(size_bytes)
            values[key], last = value, key
        _check_size(size_bytes)
    return values


def _check_size(size_bytes: int) -> None:
    if size_bytes > MOST_BYTES:
        raise ValueError(f"its keys and values take more than {MOST_BYTES:,} bytes")


def _block(table: bytes, handle: bytes, first: int = 0) -> tuple[bytes, int]:
    """The block at an offset of at least `first`, verified, and its end; so no block is read twice."""
    position, after = read_varint(handle, 0)
    size, _ = read_varint(handle, after)
    end = position + size
    if position < first or end + _TRAILER_BYTES > len(table) - _FOOTER_BYTES:
        raise ValueError(f"a block of {size:,} bytes at {position:,} does not fit into its {len(table):,} bytes")
    if _checksum(table[position : end + 1]) != int.from_bytes(table[end + 1 : end + _TRAILER_BYTES], "little"):
        raise ValueError(f"the block at {position:,} has another checksum than its bytes")
    if table[end]:
        raise ValueError(f"the block at {position:,} is compressed (kind {table[end]}), which those of TensorFlow are not")
    return table[position:end], end


def _entries(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The keys and values of a block."""
    restarts = int.from_bytes(block[-4:], "little")
    end = len(block) - 4 * (restarts + 1)
    if end < 0:
        raise ValueError(f"a block of {len(block):,} bytes is too short for {restarts:,} restarts")
    key, position = b"", 0
    while position < end:
        shared, position = read_varint(block, position)
        rest, position = read_varint(block, position)
        size, position = read_varint(block, position)
        if shared > len(key) or position + rest + size > end:
            raise ValueError(f"an entry at byte {position:,} of its block is cut off")
        key = key[:shared] + block[position : position + rest]
        yield key, block[position + rest : position + rest + size]
        position += rest + size

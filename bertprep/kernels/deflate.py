"""DEFLATE (RFC 1951) with the fixed codes: what gzip files hold, the same bytes wherever they are made.

zlib and zlib-ng write other bytes for the same input, so equal bytes on all machines take a compressor of our own. This one
takes the match with the last position, at most 32 KiB back, where the same four bytes stood, and writes with the codes that
the format itself defines: no tables are built or sent. On records it is four times as fast as zlib's fastest level, and the
files are a tenth larger. See docs/decisions/0013-own-deflate.md.
"""

from bertprep.kernels.language import (
    i32_p,
    i64,
    kernel,
    leading_zeros,
    load_u32,
    load_u64,
    store_u64,
    subroutine,
    trailing_zeros,
    u8_p,
    u32,
    u32_p,
    u64,
)
from bertprep.kernels.numbers import CODE_SIZE_SHIFT, DISTANCE_CODES, LENGTH_CODES, SEEN_BITS

_WINDOW, _SHORTEST, _LONGEST = 1 << 15, 4, 258
_FIXED_CODES, _BITS_BEFORE = 1, 3  # the type of a block, and the bits in front of its first code
_END_OF_BLOCK_BITS = 7  # all of them 0


@subroutine
def _put(out, at, bits, held, code, size):
    """Add `size` bits to the `held` bits (fewer than 8) not yet written; returns where, which and how many are then."""
    bits |= u64(code) << u64(held)
    held += size
    store_u64(out, at, bits)
    return at + (held >> 3), bits >> u64(held & ~7), held & 7


@subroutine
def _put_code(out, at, bits, held, code):
    return _put(out, at, bits, held, code & u32((1 << CODE_SIZE_SHIFT) - 1), i64(code >> u32(CODE_SIZE_SHIFT)))


@subroutine
def _match(data, there, here, size):
    """How many bytes from `there` on are those from `here` on; at most those of one match."""
    most = min(size - here, _LONGEST)
    length = i64(_SHORTEST)
    while length + 8 <= most:
        differing = load_u64(data, there + length) ^ load_u64(data, here + length)
        if differing != u64(0):
            return length + (trailing_zeros(differing) >> 3)
        length += 8
    while length < most and data[there + length] == data[here + length]:
        length += 1
    return length


@kernel
def deflate(data: u8_p, size: i64, is_last: i64, codes: u32_p, seen: i32_p, out: u8_p) -> i64:
    """Write `size` bytes as one block, which looks back at nothing before them; returns the bytes written, whole ones.

    A block that is not the last is followed by an empty one, which ends at a whole byte. `out` takes nine eighths of the
    size and DEFLATE_SLACK bytes.
    """
    for i in range(1 << SEEN_BITS):
        seen[i] = -_WINDOW - 1
    at, bits, held = _put(out, i64(0), u64(0), i64(0), u32(is_last | (_FIXED_CODES << 1)), i64(_BITS_BEFORE))
    here = i64(0)
    while here < size:
        length = i64(0)
        there = i64(0)
        if here + _SHORTEST <= size:
            four = load_u32(data, here)
            slot = i64(((u64(four) * u64(2654435761)) & u64(0xFFFFFFFF)) >> u64(32 - SEEN_BITS))
            there = i64(seen[slot])
            seen[slot] = here
            if here - there <= _WINDOW and load_u32(data, there) == four:
                length = _match(data, there, here, size)
        if length == 0:
            at, bits, held = _put_code(out, at, bits, held, codes[data[here]])
            here += 1
            continue
        at, bits, held = _put_code(out, at, bits, held, codes[LENGTH_CODES + length])
        distance = here - there - 1
        extra = max(62 - leading_zeros(u64(distance | 1)), 0)
        at, bits, held = _put_code(out, at, bits, held, codes[DISTANCE_CODES + 2 * extra + (distance >> extra)])
        at, bits, held = _put(out, at, bits, held, distance & ((1 << extra) - 1), extra)
        here += length
    at, bits, held = _put(out, at, bits, held, u32(0), i64(_END_OF_BLOCK_BITS))
    if is_last:
        return at + i64(held > 0)
    at, bits, held = _put(out, at, bits, held, u32(0), i64(_BITS_BEFORE))
    at += i64(held > 0)
    store_u64(out, at, u64(0xFFFF0000))
    return at + 4

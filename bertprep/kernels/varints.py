"""Decodes protobuf's varints to int32 or uint8, which is the hot loop of reading.

64 bytes are compared with 0x80 at once, which gives a bit for the last byte of each number. If all 64 are numbers of one byte,
they are widened, 16 at a time. Numbers of up to four bytes are decoded by operations on bits, in 6 cycles each, and longer ones
byte by byte.
"""

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from bertprep.kernels import numbers as n
from bertprep.kernels.language import i32_p, i64, subroutine, u8_p, u64
from bertprep.kernels.memory import (
    copy_memory,
    count_bits,
    find_bytes,
    leading_zeros,
    load_u32,
    loaded,
    shifted,
    stored,
    trailing_zeros,
)

_REACH = 67
"""Bytes that the file must still have to decode a block of 64: four bytes are loaded even from the last one on."""
_ALL_BITS = u64(0xFFFFFFFFFFFFFFFF)
_SEVENS = u64(0x7F7F7F7F)


_number_ends = find_bytes((0, 0x7F))


@intrinsic
def widen_16(_context, _out, _index, _data, _at):
    """Widen 16 bytes from data[at] on to 16 numbers from out[index] on."""

    def generate(context, builder, _signature, arguments):
        out, index, data, at = arguments
        wide = ir.VectorType(ir.IntType(32), 16)
        stored(builder, builder.zext(loaded(builder, data, at, ir.VectorType(ir.IntType(8), 16)), wide), out, index)
        return context.get_dummy_value()

    return types.none(i32_p, i64, u8_p, i64), generate


@subroutine
def read_varint(data, at, end):
    """Return a number of at most 63 bits, or -1 if there is none, and where it ends."""
    value, shift = i64(0), i64(0)
    while at < end and shift < 63:
        byte = i64(data[at])
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7
    return i64(-1), at


@subroutine
def read_number(data, at, end, highest):
    """Return a number from 0 to `highest`, or a fault, and where it ends."""
    value, after = read_varint(data, at, end)
    if value >= 0:
        return (value if value <= highest else i64(n.OUT_OF_RANGE)), after
    return i64(n.OUT_OF_RANGE) if after - at == 9 else i64(n.MALFORMED), after


@subroutine
def read_signed(data, at, end):
    """Return a number of up to 64 bits, which may be negative, and where it ends."""
    value, shift = i64(0), i64(0)
    while at < end and shift < 64:
        byte = i64(data[at])
        value |= (byte & 0x7F) << shift
        shift += 7
        at += 1
        if byte < 0x80:
            break
    return value, at


@subroutine
def _unpack_one_by_one(data, at, end, out, done, count, highest):
    while at < end:
        if done == count:
            return i64(n.WRONG_COUNT)
        value, at = read_number(data, at, end, highest)
        if value < 0:
            return value
        out[done] = value
        done += 1
    return i64(0) if done == count else i64(n.WRONG_COUNT)


@subroutine
def unpack_bytes(data, at, end, _limit, out, start, count):
    """Decode data[at:end] to out[start:], expecting `count` numbers of at most 255; return 0 or a fault."""
    bits = u64(0)
    for i in range(at, end):
        bits |= u64(data[i])
    if end - at == count and bits < u64(0x80):
        copy_memory(shifted(out, start), shifted(data, at), count)
        return i64(0)
    return _unpack_one_by_one(data, at, end, out, start, start + count, i64(n.MAX_BYTE))


@subroutine
def _put_block(out, done, data, at, ends):
    """Decode the numbers of a block; `ends` has a bit for the last byte of each number, and none is longer than 4 bytes."""
    first = i64(0)
    while ends:
        last = trailing_zeros(ends)
        ends &= ends - u64(1)
        word = u64(load_u32(data, at + first)) & (_SEVENS >> u64(8 * (first + 3 - last)))
        out[done] = (
            (word & u64(0x7F))
            | ((word >> u64(1)) & u64(0x3F80))
            | ((word >> u64(2)) & u64(0x1FC000))
            | ((word >> u64(3)) & u64(0xFE00000))
        )
        done += 1
        first = last + 1


@subroutine
def unpack_numbers(data, at, end, limit, out, start, count):
    """Decode data[at:end] to out[start:], expecting `count` numbers; return 0 or a fault. The file ends at `limit`."""
    done, stop = start, start + count
    while at < end and at + _REACH <= limit:
        ends, within = _number_ends(data, at), _ALL_BITS
        if end - at < 64:
            within = (u64(1) << u64(end - at)) - u64(1)
            ends &= within
        numbers = count_bits(ends)
        if numbers > stop - done:
            return i64(n.WRONG_COUNT)
        if ends == _ALL_BITS:
            for k in range(0, 64, 16):
                widen_16(out, done + k, data, at + k)
            done += 64
            at += 64
            continue
        going_on = ~ends & within
        in_pairs = going_on & (going_on >> u64(1))
        if in_pairs & (in_pairs >> u64(2)) or numbers == 0:
            break  # a number has five bytes or more, or does not end in this block
        size = 64 - leading_zeros(ends)
        _put_block(out, done, data, at, ends)
        done += numbers
        at += size
    return _unpack_one_by_one(data, at, end, out, done, stop, i64(n.MAX_INT32))


@subroutine
def count_numbers(data, at, end):
    """Return the number of values in a packed list, by counting the bytes that end one."""
    numbers = i64(0)
    for i in range(at, end):
        numbers += i64(data[i] < 0x80)
    return numbers

"""Protobuf's varints to int32: the hot loop of reading.

64 bytes are compared with 0x80 at once, which gives a bit for each last byte. 16 one-byte numbers in a row are widened; others
are taken apart by bits, 6 cycles a number, or with AVX-512 VBMI 16 at a time, 1.5 cycles. Longer ones go byte by byte.
"""

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from bertprep.kernels import numbers as n
from bertprep.kernels.language import CPU_FEATURES, i32_p, i64, subroutine, u8_p, u64
from bertprep.kernels.memory import count_bits, find_bytes, leading_zeros, load_u32, loaded, stored, trailing_zeros

_REACH = 80
"""Bytes of the file that must lie ahead for a block of 64: the last of four loads of 32 begins at byte 48."""
_LOW_16 = u64(0xFFFF)
_ALL_BITS = u64(0xFFFFFFFFFFFFFFFF)
_MOST = 0x7FFFFFFF
_SEVENS = u64(0x7F7F7F7F)
_HAS_COMPRESSION = all(CPU_FEATURES.get(name) for name in ("avx512f", "avx512bw", "avx512vl", "avx512vbmi"))


_number_ends = find_bytes((0, 0x7F))


@intrinsic
def widen_16(_context, _out, _index, _data, _at):
    """16 bytes from data[at] to 16 numbers from out[index]."""

    def generate(context, builder, _signature, arguments):
        out, index, data, at = arguments
        wide = ir.VectorType(ir.IntType(32), 16)
        stored(builder, builder.zext(loaded(builder, data, at, ir.VectorType(ir.IntType(8), 16)), wide), out, index)
        return context.get_dummy_value()

    return types.none(i32_p, i64, u8_p, i64), generate


def _windows(builder, data, at):
    """The 4 bytes from each of 16 on, as 64 bytes."""
    source = loaded(builder, data, at, ir.VectorType(ir.IntType(8), 32))
    lanes = ir.Constant(ir.VectorType(ir.IntType(32), 64), [k + b for k in range(16) for b in range(4)])
    return builder.shuffle_vector(source, ir.Constant(source.type, ir.Undefined), lanes)


@intrinsic
def _unpack_16(_context, _out, _index, _data, _at, _starts, _count):
    """Compute the numbers at each of 16 bytes, compress those in `starts`, store them."""

    def generate(context, builder, _signature, arguments):
        out, index, data, at, starts, count = arguments
        wide = ir.VectorType(ir.IntType(32), 16)

        def every(number):
            return ir.Constant(wide, [number] * 16)

        # lane k holds the 4 bytes from k on
        word = builder.bitcast(_windows(builder, data, at), wide)
        # the bits up to the first byte below 0x80
        ends = builder.and_(builder.not_(word), every(0x80808080))
        number = builder.and_(word, builder.xor(ends, builder.sub(ends, every(1))))
        value = builder.and_(number, every(0x7F))
        for shift, bits in ((1, 0x3F80), (2, 0x1FC000), (3, 0xFE00000)):
            value = builder.or_(value, builder.and_(builder.lshr(number, every(shift)), every(bits)))
        chosen = builder.bitcast(builder.trunc(starts, ir.IntType(16)), ir.VectorType(ir.IntType(1), 16))
        function = builder.module.declare_intrinsic(
            "llvm.x86.avx512.mask.compress.v16i32", (), ir.FunctionType(wide, [wide, wide, chosen.type])
        )
        together = builder.call(function, [value, ir.Constant(wide, [0] * 16), chosen])
        # only the selected lanes, so that nothing after them is overwritten
        narrow = ir.IntType(32)
        lane = ir.Constant(wide, list(range(16)))
        one = builder.insert_element(ir.Constant(wide, ir.Undefined), builder.trunc(count, narrow), narrow(0))
        counts = builder.shuffle_vector(one, ir.Constant(wide, ir.Undefined), every(0))
        pointer = builder.bitcast(builder.gep(out, [index]), wide.as_pointer())
        store = builder.module.declare_intrinsic(
            "llvm.masked.store.v16i32.p0", (), ir.FunctionType(ir.VoidType(), [wide, pointer.type, narrow, chosen.type])
        )
        builder.call(store, [together, pointer, narrow(4), builder.icmp_unsigned("<", lane, counts)])
        return context.get_dummy_value()

    return types.none(i32_p, i64, u8_p, i64, u64, i64), generate


@subroutine
def read_varint(data, at, end):
    """A number of at most 63 bits and where it ends; -1 where there is none."""
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
def read_number(data, at, end):
    """A value from 0 to 2**31 - 1 and where it ends, or a fault."""
    value, after = read_varint(data, at, end)
    if value >= 0:
        return (value if value <= _MOST else i64(n.OUT_OF_RANGE)), after
    return i64(n.OUT_OF_RANGE) if after - at == 9 else i64(n.MALFORMED), after


@subroutine
def _unpack_bytes(data, at, end, out, done, count):
    while at < end:
        if done == count:
            return i64(n.WRONG_COUNT)
        value, at = read_number(data, at, end)
        if value < 0:
            return value
        out[done] = value
        done += 1
    return i64(0) if done == count else i64(n.WRONG_COUNT)


@subroutine
def _put_block_by_bits(out, done, data, at, ends, _size):
    """Write the numbers of a block, whose ends are the bits of `ends`; none is longer than 4 bytes."""
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
def _put_block_by_lanes(out, done, data, at, ends, size):
    """The same with AVX-512 VBMI; a number begins where the one before has ended."""
    starts = ((ends << u64(1)) | u64(1)) & (_ALL_BITS >> u64(64 - size))
    while starts:
        numbers = count_bits(starts & _LOW_16)
        _unpack_16(out, done, data, at, starts, numbers)
        done += numbers
        starts >>= u64(16)
        at += 16


def _unpacker(put_block):
    @subroutine
    def unpack(data, at, end, limit, out, start, count):
        """Read all numbers of data[at:end] to out[start:], which must be `count`; the file ends at `limit`. Return 0 or a
        fault.
        """
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
                break  # a number of five bytes or more, or one without an end
            size = 64 - leading_zeros(ends)
            put_block(out, done, data, at, ends, size)
            done += numbers
            at += size
        return _unpack_bytes(data, at, end, out, done, stop)

    return unpack


unpack = _unpacker(_put_block_by_lanes if _HAS_COMPRESSION else _put_block_by_bits)


@subroutine
def count_numbers(data, at, end):
    """How many numbers a packed list holds: the bytes that end one."""
    numbers = i64(0)
    for i in range(at, end):
        numbers += i64(data[i] < 0x80)
    return numbers

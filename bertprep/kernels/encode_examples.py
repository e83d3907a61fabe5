"""Examples, as arrays of whatever values a reader found, to the bytes of a TFRecord or an OFRecord file.

The generator's encoder knows what its values can be; this one looks. One pass over a feature's values finds how wide its
widest is, and so how they are written: bytes as they are where none reaches 128 (masks, segments, positions), 16 ready
varints at a time below 2**21 (tokens), and one by one above. Lengths come before contents, so sizes are summed first and
every value is written once, where it stays. The bytes are those of `encode` for the same values; see docs/formats.md.
"""

from bertprep.kernels.encode import close_tfrecord, put_header, put_sequence, put_varint, ready_varint, varint_size
from bertprep.kernels.language import (
    i32_p,
    i64,
    i64_p,
    kernel,
    pointer_at,
    store_u32,
    store_u64,
    subroutine,
    u8_p,
    u32,
    u32_p,
    u64,
)
from bertprep.kernels.numbers import (
    ARRAY_ADDRESS,
    ARRAY_FEATURE,
    ARRAY_IS_FLOAT,
    ARRAY_VALUES,
    ARRAY_WIDTH,
    ARRAYS_SIZE,
    FLOAT_LIST_TAG,
    INT32_LIST_TAG,
    INT64_LIST_TAG,
    TFRECORD,
    VARINT_SIZE_SHIFT,
)


@subroutine
def _make_ready(numbers, start, count, ready):
    """Ready varints of numbers below 2**21, and the varint of no bytes after them to a multiple of 16; returns their bytes."""
    size = i64(0)
    for i in range(count):
        ready[i] = ready_varint(u32(numbers[start + i]))
        size += i64(ready[i] >> u32(VARINT_SIZE_SHIFT))
    for i in range(count, (count + 15) // 16 * 16):
        ready[i] = u32(0)
    return size


@subroutine
def _put_numbers(out, at, keys, feature, tag, numbers, start, count, ready):
    """A feature of `count` whole numbers from numbers[start]; returns where it ends."""
    bits = i64(0)
    for i in range(count):
        bits |= i64(numbers[start + i])
    if bits < 1 << 7:
        at = put_header(out, at, keys, feature, tag, count)
        for i in range(count):
            out[at + i] = numbers[start + i]
        return at + count
    if bits < 1 << 21:
        at = put_header(out, at, keys, feature, tag, _make_ready(numbers, start, count, ready))
        return put_sequence(out, at, ready, count)
    size = i64(0)
    for i in range(count):
        size += varint_size(i64(numbers[start + i]))
    at = put_header(out, at, keys, feature, tag, size)
    for i in range(count):
        at = put_varint(out, at, i64(numbers[start + i]))
    return at


@subroutine
def _put_floats(out, at, keys, feature, values, start, count):
    """The feature of `count` floats, given as their bits."""
    at = put_header(out, at, keys, feature, FLOAT_LIST_TAG, 4 * count)
    for i in range(count):
        store_u32(out, at + 4 * i, values[start + i])
    return at + 4 * count


@kernel
def encode_examples(
    record_format: i64, first: i64, end: i64, arrays: i64_p, widest: i64,
    keys: u8_p, ready: u32_p, out: u8_p, capacity: i64, size: i64_p,
) -> i64:  # fmt: skip
    """Write rows `first` to `end` - 1, as far as `capacity` allows; returns the number of the first not written.

    All whole numbers are at least 0. A record takes at most `widest` bytes. `ready` holds as many numbers as the longest
    feature, and SPARE_VARINTS; size[0] is set to the bytes written.
    """
    before = i64(8) if record_format != TFRECORD else 12 + 1 + varint_size(widest)
    tag = i64(INT64_LIST_TAG) if record_format == TFRECORD else i64(INT32_LIST_TAG)
    start = i64(0)
    row = first
    while row < end and start + widest <= capacity:
        body = start + before
        at = body
        for array in range(0, ARRAY_WIDTH * arrays[ARRAYS_SIZE], ARRAY_WIDTH):
            feature, count, address = arrays[array + ARRAY_FEATURE], arrays[array + ARRAY_VALUES], arrays[array + ARRAY_ADDRESS]
            if arrays[array + ARRAY_IS_FLOAT]:
                at = _put_floats(out, at, keys, feature, pointer_at(u32_p, address), row * count, count)
            else:
                at = _put_numbers(out, at, keys, feature, tag, pointer_at(i32_p, address), row * count, count, ready)
        if record_format == TFRECORD:
            start = close_tfrecord(out, start, body, at - body)
        else:
            store_u64(out, start, u64(at - body))
            start = at
        row += 1
    size[0] = start
    return row

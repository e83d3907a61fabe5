"""Examples, as arrays of whatever values a reader found, to the bytes of a TFRecord or an OFRecord file.

The generator's encoder knows what its values can be; this one asks. One pass over a feature's values tells how wide its
widest is, and so how they are written: bytes as they are where none reaches 128 (masks, segments, positions), 16 ready
varints at a time below 2**21 (tokens), and one by one above. Lengths come before contents, so sizes are summed first and
every value is written once, where it stays. The bytes are those of `encode` for the same values; see docs/formats.md.
"""

from bertprep.kernels.crc32c import masked_crc32c
from bertprep.kernels.encode import copy_some, put_sequence, put_varint
from bertprep.kernels.language import (
    copy_16,
    i32_p,
    i64,
    i64_p,
    kernel,
    store_u32,
    store_u64,
    subroutine,
    u8_p,
    u32,
    u32_p,
    u64,
)
from bertprep.kernels.numbers import (
    FLOAT_LIST_TAG,
    INPUT_IDS,
    INPUT_MASK,
    INT32_LIST_TAG,
    INT64_LIST_TAG,
    KEY_WIDTH,
    LABELS,
    NEXT_SENTENCE,
    POSITIONS,
    SEGMENT_IDS,
    TFRECORD,
    VARINT_SIZE_SHIFT,
    WEIGHTS,
    widest_example,
)

_widest_example = subroutine(widest_example)


@subroutine
def varint_size(value):
    return 1 + i64(value >= 1 << 7) + i64(value >= 1 << 14) + i64(value >= 1 << 21) + i64(value >= 1 << 28)


@subroutine
def _put_header(out, at, keys, feature, tag, size):
    """Write all bytes of a feature before its values, which have `size` bytes; returns where those begin."""
    key_size = i64(keys[(feature + 1) * KEY_WIDTH - 1])
    in_list = 1 + varint_size(size) + size
    in_feature = 1 + varint_size(in_list) + in_list
    out[at] = 0x0A
    at = put_varint(out, at + 1, key_size + varint_size(in_feature) + in_feature)
    copy_16(out, at, keys, feature * KEY_WIDTH)
    copy_16(out, at + 16, keys, feature * KEY_WIDTH + 16)
    at = put_varint(out, at + key_size, in_feature)
    out[at] = tag
    at = put_varint(out, at + 1, in_list)
    out[at] = 0x0A
    return put_varint(out, at + 1, size)


@subroutine
def _make_ready(numbers, start, count, ready):
    """Ready varints of numbers below 2**21, and the varint of no bytes behind them to the end of 16; returns their bytes."""
    size = i64(0)
    for i in range(count):
        n = u32(numbers[start + i])
        two, three = n >= u32(1 << 7), n >= u32(1 << 14)
        low = (n & u32(0x7F)) | ((n & u32(0x3F80)) << u32(1)) | ((n & u32(0x1FC000)) << u32(2))
        low |= (u32(0x80) if two else u32(0)) | (u32(0x8000) if three else u32(0))
        width = u32(1) + u32(two) + u32(three)
        ready[i] = u32(low | (width << u32(VARINT_SIZE_SHIFT)))
        size += i64(width)
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
        at = _put_header(out, at, keys, feature, tag, count)
        for i in range(count):
            out[at + i] = numbers[start + i]
        return at + count
    if bits < 1 << 21:
        at = _put_header(out, at, keys, feature, tag, _make_ready(numbers, start, count, ready))
        return put_sequence(out, at, ready, count)
    size = i64(0)
    for i in range(count):
        size += varint_size(i64(numbers[start + i]))
    at = _put_header(out, at, keys, feature, tag, size)
    for i in range(count):
        at = put_varint(out, at, i64(numbers[start + i]))
    return at


@subroutine
def _put_weights(out, at, keys, weights, start, count):
    """The feature of `count` floats, given as their bits."""
    at = _put_header(out, at, keys, WEIGHTS, FLOAT_LIST_TAG, 4 * count)
    for i in range(count):
        store_u32(out, at + 4 * i, weights[start + i])
    return at + 4 * count


@subroutine
def _close_frame(out, start, body, body_size, record_format):
    """Write what is around the body of the record at `start`; returns where the record ends."""
    if record_format != TFRECORD:
        store_u64(out, start, u64(body_size))
        return body + body_size
    data = start + 12
    around = 1 + varint_size(body_size)
    if data + around != body:  # a long sequence of which this record needs a shorter length
        copy_some(out, data + around, out, body, body_size)
    out[data] = 0x0A
    put_varint(out, data + 1, body_size)
    store_u64(out, start, u64(around + body_size))
    store_u32(out, start + 8, masked_crc32c(out, start, 8))
    end = data + around + body_size
    store_u32(out, end, masked_crc32c(out, data, around + body_size))
    return end + 4


@kernel
def encode_examples(
    record_format: i64, first: i64, end: i64, seq: i64, pred: i64,
    input_ids: i32_p, input_mask: i32_p, segment_ids: i32_p,
    positions: i32_p, labels: i32_p, weights: u32_p, next_sentence: i32_p,
    keys: u8_p, ready: u32_p, out: u8_p, capacity: i64, size: i64_p,
) -> i64:  # fmt: skip
    """Write rows `first` to `end` - 1, as far as `capacity` allows; returns the number of the first not written.

    All whole numbers are at least 0; `weights` are the bits of floats. `ready` has room for seq + 64 numbers; size[0] tells
    the bytes written.
    """
    widest = _widest_example(seq, pred)
    before = i64(8) if record_format != TFRECORD else 12 + 1 + varint_size(widest)
    tag = i64(INT64_LIST_TAG) if record_format == TFRECORD else i64(INT32_LIST_TAG)
    start = i64(0)
    row = first
    while row < end and start + widest <= capacity:
        body = start + before
        at = _put_numbers(out, body, keys, INPUT_IDS, tag, input_ids, row * seq, seq, ready)
        at = _put_numbers(out, at, keys, INPUT_MASK, tag, input_mask, row * seq, seq, ready)
        at = _put_numbers(out, at, keys, SEGMENT_IDS, tag, segment_ids, row * seq, seq, ready)
        at = _put_numbers(out, at, keys, POSITIONS, tag, positions, row * pred, pred, ready)
        at = _put_numbers(out, at, keys, LABELS, tag, labels, row * pred, pred, ready)
        at = _put_weights(out, at, keys, weights, row * pred, pred)
        at = _put_numbers(out, at, keys, NEXT_SENTENCE, tag, next_sentence, row, 1, ready)
        start = _close_frame(out, start, body, at - body, record_format)
        row += 1
    size[0] = start
    return row

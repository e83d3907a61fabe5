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
def _put_weights(out, at, keys, weights, start, count):
    """The feature of `count` floats, given as their bits."""
    at = put_header(out, at, keys, WEIGHTS, FLOAT_LIST_TAG, 4 * count)
    for i in range(count):
        store_u32(out, at + 4 * i, weights[start + i])
    return at + 4 * count


@kernel
def encode_examples(
    record_format: i64, first: i64, end: i64, seq: i64, pred: i64,
    input_ids: i32_p, input_mask: i32_p, segment_ids: i32_p,
    positions: i32_p, labels: i32_p, weights: u32_p, next_sentence: i32_p,
    keys: u8_p, ready: u32_p, out: u8_p, capacity: i64, size: i64_p,
) -> i64:  # fmt: skip
    """Write rows `first` to `end` - 1, as far as `capacity` allows; returns the number of the first not written.

    All whole numbers are at least 0; `weights` are the bits of floats. `ready` holds seq + SPARE_VARINTS numbers; size[0] is
    set to the bytes written.
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
        if record_format == TFRECORD:
            start = close_tfrecord(out, start, body, at - body)
        else:
            store_u64(out, start, u64(at - body))
            start = at
        row += 1
    size[0] = start
    return row

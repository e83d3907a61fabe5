"""Instances to the bytes of TFRecord and OFRecord files, both in one pass.

The two formats hold the same features, seven or without pairs six, in the same protobuf nesting; between two equal features
only the tag differs that says "list of int64" or "list of int32". So a record's body is written once, copied for the second
format, and six bytes of the copy are changed. See docs/formats.md for the layout.

Tokens come as ready varints: the lower three bytes of a number are the bytes to write, the highest is how many. Writing a
token is one store of four bytes and one addition, and a padded copy may overshoot: outputs need SLACK spare bytes.
"""

from llvmlite import ir
from numba.extending import intrinsic

from bertprep.kernels.crc32c import masked_crc32c
from bertprep.kernels.language import (
    CPU_FEATURES,
    copy_16,
    copy_64,
    i32_p,
    i64,
    i64_p,
    kernel,
    loaded,
    ones_in,
    prefetch,
    shifted,
    store_u32,
    store_u64,
    stored,
    subroutine,
    u8_p,
    u16_p,
    u32,
    u32_p,
    u64,
)
from bertprep.kernels.numbers import (
    HEADER_WIDTH,
    INPUT_IDS,
    INPUT_MASK,
    INT32_LIST_TAG,
    KEY_WIDTH,
    LABELS,
    NEXT_SENTENCE,
    OFRECORD,
    POSITIONS,
    SEGMENT_IDS,
    SIZE_AT,
    TAG_AT,
    TFRECORD,
    UNCHANGED,
    VARINT_SIZE_SHIFT,
    WEIGHTS,
    widest_record,
)

_ZEROS, _ONES, _FLOAT_ONES, _PADS = 0, 64, 128, 192  # the offsets of 64 bytes of each in `patterns`
_widest_record = subroutine(widest_record)
_AHEAD = 4  # records between asking for an instance's memory and using it


@subroutine
def varint_size(value):
    """The bytes of a number below 2**35."""
    return 1 + i64(value >= 1 << 7) + i64(value >= 1 << 14) + i64(value >= 1 << 21) + i64(value >= 1 << 28)


@subroutine
def put_varint(out, at, value):
    while value >= 0x80:
        out[at] = (value & 0x7F) | 0x80
        value >>= 7
        at += 1
    out[at] = value
    return at + 1


@subroutine
def ready_varint(n):
    """The ready varint of a number from 0 to 2**21 - 1, given as u32."""
    low = (n & u32(0x7F)) | ((n & u32(0x3F80)) << u32(1)) | ((n & u32(0x1FC000)) << u32(2))
    two, three = n >= u32(1 << 7), n >= u32(1 << 14)
    low |= (u32(0x80) if two else u32(0)) | (u32(0x8000) if three else u32(0))
    return u32(low | ((u32(1) + u32(two) + u32(three)) << u32(VARINT_SIZE_SHIFT)))


@kernel
def make_varints(numbers: i32_p, count: i64, varints: u32_p) -> i64:
    """Ready varints of numbers from 0 to 2**21 - 1."""
    for i in range(count):
        varints[i] = ready_varint(u32(numbers[i]))
    return 0


@subroutine
def _fill(out, at, size, patterns, pattern):
    """Write `size` bytes of one of the patterns, 64 at a time; from memory, or LLVM would call memset, which costs more."""
    for i in range(0, size, 64):
        copy_64(out, at + i, patterns, pattern)


@subroutine
def _fill_ids(out, at, count, patterns, pad_size):
    """Write the id of [PAD] `count` times, a varint of `pad_size` bytes, as many whole ones at a time as 64 bytes hold."""
    i, size, step = i64(0), count * pad_size, i64(63) if pad_size == 3 else i64(64)
    while i < size:
        copy_64(out, at + i, patterns, _PADS)
        i += step
    return size


@subroutine
def copy_some(out, at, source, start, size):
    for i in range(0, size, 64):
        copy_64(out, at + i, source, start + i)


@subroutine
def put_header(out, at, keys, feature, tag, size):
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


@kernel
def make_headers(keys: u8_p, feature: i64, tag: i64, most: i64, headers: u8_p) -> i64:
    """The ready headers of `feature` for values of 0 to `most` bytes."""
    for size in range(most + 1):
        start = size * HEADER_WIDTH
        end = put_header(headers, start, keys, feature, tag, size)
        after_tag = varint_size(1 + varint_size(size) + size) + 1 + varint_size(size)
        headers[start + TAG_AT], headers[start + SIZE_AT] = end - after_tag - 1 - start, end - start
    return 0


@subroutine
def _put_ready_header(out, at, headers, number, tags, feature):
    """Write a ready header and note where its tag went; returns where the values begin."""
    start = number * HEADER_WIDTH
    copy_64(out, at, headers, start)
    tags[feature] = at + i64(headers[start + TAG_AT])
    return at + i64(headers[start + SIZE_AT])


@subroutine
def close_tfrecord(out, start, body, body_size):
    """Write what is around the body of the TFRecord at `start`; returns where the record ends."""
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


@subroutine
def _put_ready_varint(out, at, varint):
    store_u32(out, at, varint)
    return at + i64(varint >> u32(VARINT_SIZE_SHIFT))


@intrinsic
def _pack_16(_context, _out, _at, _sequence, _first):
    """Write the bytes of 16 ready varints from sequence[first] to out[at], packed; returns their number."""

    def generate(_context, builder, _signature, arguments):
        out, at, sequence, first = arguments
        bytes_64 = ir.VectorType(ir.IntType(8), 64)
        value = loaded(builder, sequence, first, bytes_64)
        # each byte gets the size in the fourth byte of its varint, and stays if it is before that
        sizes = builder.shuffle_vector(value, value, ir.Constant(ir.VectorType(ir.IntType(32), 64), [k | 3 for k in range(64)]))
        stays = builder.icmp_unsigned(">", sizes, ir.Constant(bytes_64, [k & 3 for k in range(64)]))
        compress = builder.module.declare_intrinsic(
            "llvm.x86.avx512.mask.compress.v64i8", (), ir.FunctionType(bytes_64, [bytes_64, bytes_64, stays.type])
        )
        packed = builder.call(compress, [value, ir.Constant(bytes_64, [0] * 64), stays])
        stored(builder, packed, out, at)
        return ones_in(builder, builder.bitcast(stays, ir.IntType(64)))

    return i64(u8_p, i64, u32_p, i64), generate


@subroutine
def _put_sequence_packed(out, at, sequence, size):
    """Write `size` ready varints, 16 at a time; those after them must be 0, which is the varint of no bytes."""
    for first in range(0, size, 16):
        at += _pack_16(out, at, sequence, first)
    return at


@subroutine
def _put_sequence_one_by_one(out, at, sequence, size):
    for i in range(size):
        at = _put_ready_varint(out, at, sequence[i])
    return at


put_sequence = _put_sequence_packed if CPU_FEATURES.get("avx512vbmi2") else _put_sequence_one_by_one


@subroutine
def _gather(sequence, varints, slices, instance, cls, sep):
    """[CLS] A [SEP] B [SEP] as ready varints, or [CLS] A [SEP], where B has the size -1; returns the sizes of A and B."""
    a_start, a_size = i64(slices[4 * instance]), i64(slices[4 * instance + 1])
    b_start, b_size = i64(slices[4 * instance + 2]), i64(slices[4 * instance + 3])
    sequence[0] = cls
    for i in range(0, a_size, 16):
        copy_64(sequence, 1 + i, varints, a_start + i)
    sequence[1 + a_size] = sep
    for i in range(0, b_size, 16):
        copy_64(sequence, 2 + a_size + i, varints, b_start + i)
    sequence[2 + a_size + b_size] = sep
    return a_size, b_size


@subroutine
def prefetch_instance(order, record, end, slices, is_random_next, mask_ends, varints, mask_positions, mask_replacements):
    """Begin to bring what records a little ahead will need: they are in random order, so nothing else foresees it."""
    if record + 2 * _AHEAD < end:
        coming = order[record + 2 * _AHEAD]
        prefetch(slices, 4 * coming)
        prefetch(is_random_next, coming)
        prefetch(mask_ends, coming)
    if record + _AHEAD < end:
        coming = order[record + _AHEAD]
        for segment in range(0, 4, 2):
            start, size = i64(slices[4 * coming + segment]), i64(slices[4 * coming + segment + 1])
            for i in range(0, size + 15, 16):
                prefetch(varints, start + i)
        mask, last = mask_ends[max(coming - 1, 0)], mask_ends[coming] - 1
        prefetch(mask_positions, mask)
        prefetch(mask_positions, last)
        while mask < last + 16:
            prefetch(mask_replacements, min(mask, last))
            mask += 16


@subroutine
def _put_labels(values, sequence, mask_positions, mask_replacements, first, masks, vocabulary_varints):
    """The labels leave the sequence for `values`, the replacements enter it; returns the bytes of the labels."""
    at = i64(0)
    for i in range(first, first + masks):
        position = i64(mask_positions[i])
        at = _put_ready_varint(values, at, sequence[position])
        replacement = i64(mask_replacements[i])
        if replacement != UNCHANGED:
            sequence[position] = vocabulary_varints[replacement]
    return at


@subroutine
def _put_text(out, at, values, sequence, a_size, b_size, seq, pad_size, headers, header_bases, tags, patterns):
    """input_ids, input_mask and segment_ids; `values` is a buffer for the ids. Returns where they end."""
    size = a_size + b_size + 3
    ids_size = put_sequence(values, i64(0), sequence, size)
    ids_size += _fill_ids(values, ids_size, seq - size, patterns, pad_size)
    at = _put_ready_header(out, at, headers, header_bases[INPUT_IDS] + ids_size, tags, INPUT_IDS)
    copy_some(out, at, values, 0, ids_size)
    at = _put_ready_header(out, at + ids_size, headers, header_bases[INPUT_MASK], tags, INPUT_MASK)
    _fill(out, at, size, patterns, _ONES)
    _fill(out, at + size, seq - size, patterns, _ZEROS)
    at = _put_ready_header(out, at + seq, headers, header_bases[SEGMENT_IDS], tags, SEGMENT_IDS)
    _fill(out, at, a_size + 2, patterns, _ZEROS)
    _fill(out, at + a_size + 2, b_size + 1, patterns, _ONES)
    _fill(out, at + size, seq - size, patterns, _ZEROS)
    return at + seq


@subroutine
def _put_predictions(
    out, at, values, labels_size, positions, masks, pred, position_varints, headers, header_bases, tags, patterns
):  # fmt: skip
    """masked_lm_positions, _ids, which are in `values`, and _weights; returns where they end."""
    start = labels_size + 64
    size = start
    for i in range(masks):
        size = _put_ready_varint(values, size, position_varints[i64(positions[i])])
    size -= start
    _fill(values, start + size, pred - masks, patterns, _ZEROS)
    size += pred - masks
    at = _put_ready_header(out, at, headers, header_bases[POSITIONS] + size, tags, POSITIONS)
    copy_some(out, at, values, start, size)
    at = _put_ready_header(out, at + size, headers, header_bases[LABELS] + labels_size, tags, LABELS)
    copy_some(out, at, values, 0, labels_size)
    at = _put_ready_header(out, at + labels_size, headers, header_bases[WEIGHTS], tags, WEIGHTS)
    _fill(out, at, 4 * masks, patterns, _FLOAT_ONES)
    _fill(out, at + 4 * masks, 4 * (pred - masks), patterns, _ZEROS)
    return at + 4 * pred


@subroutine
def _copy_as_ofrecord(ofrecords, at, tfrecords, body, body_size, tags, features):
    """The body of an Example to an OFRecord: int32 where that has int64."""
    copy_some(ofrecords, at, tfrecords, body, body_size)
    for feature in range(features):
        if feature != WEIGHTS:
            ofrecords[at + tags[feature] - body] = INT32_LIST_TAG


@kernel
def encode(
    formats: i64, first: i64, end: i64, order: i64_p, seq: i64, pred: i64, features: i64,
    varints: u32_p, vocabulary_varints: u32_p, position_varints: u32_p, cls: i64, sep: i64, pad: i64,
    slices: i32_p, is_random_next: u8_p, mask_ends: i64_p, mask_positions: u16_p, mask_replacements: i32_p,
    headers: u8_p, header_bases: i64_p, patterns: u8_p, sequence: u32_p, values: u8_p, tags: i64_p,
    tfrecords: u8_p, ofrecords: u8_p, capacity: i64, sizes: i64_p,
) -> i64:  # fmt: skip
    """Write records `first` to `end` - 1, as far as `capacity` allows; returns the number of the first not written.

    Record k is instance order[k]. `formats` is TFRECORD, OFRECORD or both, `features` how many are written. `varints` are the
    instances' tokens as ready varints, `vocabulary_varints` and `position_varints` those of all tokens and of all positions.
    `sequence` holds seq numbers and SPARE_VARINTS, `values` the widest features; `patterns` are 64 bytes each of 0, of 1, of
    1.0, of `pad` as a varint; sizes[0] and sizes[1] are set to the bytes written.
    """
    widest = _widest_record(seq, pred)
    around_widest = 1 + varint_size(widest)
    tf_at, of_at = i64(0), i64(0)
    record = first
    cls_varint, sep_varint = vocabulary_varints[cls], vocabulary_varints[sep]
    pad_size = i64(vocabulary_varints[pad] >> u32(VARINT_SIZE_SHIFT))
    while record < end and max(tf_at, of_at) + widest <= capacity:
        prefetch_instance(order, record, end, slices, is_random_next, mask_ends, varints, mask_positions, mask_replacements)
        instance = order[record]
        a_size, b_size = _gather(sequence, varints, slices, instance, cls_varint, sep_varint)
        size = a_size + b_size + 3
        copy_64(sequence, size, patterns, _ZEROS)
        mask_start = mask_ends[instance - 1] if instance else i64(0)
        masks = mask_ends[instance] - mask_start

        # where the body goes: after its length and, in an Example, after the one message around all features
        if formats & TFRECORD:
            out, body = tfrecords, tf_at + 12 + around_widest
        else:
            out, body = ofrecords, of_at + 8
        labels_size = _put_labels(values, sequence, mask_positions, mask_replacements, mask_start, masks, vocabulary_varints)
        _fill(values, labels_size, pred - masks, patterns, _ZEROS)
        labels_size += pred - masks
        ids = shifted(values, labels_size + 64)
        at = _put_text(out, body, ids, sequence, a_size, b_size, seq, pad_size, headers, header_bases, tags, patterns)
        at = _put_predictions(
            out, at, values, labels_size, shifted(mask_positions, mask_start), masks, pred, position_varints,
            headers, header_bases, tags, patterns,
        )  # fmt: skip
        if features > NEXT_SENTENCE:
            at = _put_ready_header(out, at, headers, header_bases[NEXT_SENTENCE], tags, NEXT_SENTENCE)
            out[at] = is_random_next[instance]
            at += 1
        body_size = at - body

        if formats & OFRECORD:
            store_u64(ofrecords, of_at, u64(body_size))
            if formats & TFRECORD:
                _copy_as_ofrecord(ofrecords, of_at + 8, tfrecords, body, body_size, tags, features)
            of_at += 8 + body_size
        if formats & TFRECORD:
            tf_at = close_tfrecord(tfrecords, tf_at, body, body_size)
        record += 1
    sizes[0], sizes[1] = tf_at, of_at
    return record

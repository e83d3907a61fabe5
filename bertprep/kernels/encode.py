"""Encodes blocks of records as TFRecord and OFRecord, both in one pass.

The body of a record is written once and copied for the second format, which differs only in the tags of integer lists.
docs/reference/formats.md describes the layout. Outputs need SLACK spare bytes.
"""

from bertprep.kernels import numbers as n
from bertprep.kernels.crc32c import masked_crc32c
from bertprep.kernels.language import Block, i32_p, i64, i64_p, kernel, subroutine, u8_p, u32, u32_p, u64
from bertprep.kernels.memory import copy_16, copy_64, copy_memory, field_at, pointer_at, shifted, store_u32, store_u64


@subroutine
def varint_size(value):
    """Return how many bytes the varint of a number below 2**35 takes."""
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
def _ready_varint(number):
    """Return the varint of a number below 2**21 in the lower three bytes, and its size in the fourth."""
    two, three = number >= u32(1 << 7), number >= u32(1 << 14)
    low = (number & u32(0x7F)) | ((number & u32(0x3F80)) << u32(1)) | ((number & u32(0x1FC000)) << u32(2))
    low |= (u32(0x80) if two else u32(0)) | (u32(0x8000) if three else u32(0))
    return u32(low | ((u32(1) + u32(two) + u32(three)) << u32(24)))


@subroutine
def _bits_of(numbers, count):
    """Return the bitwise or of all numbers, which shows how wide the widest is, and whether one is negative."""
    bits = u32(0)
    for i in range(count):
        bits |= u32(numbers[i])
    return bits


@subroutine
def _put_numbers(out, numbers, count, ready):
    """Write `count` numbers as varints; return their size in bytes, or -1 if a number is negative."""
    bits = _bits_of(numbers, count)
    if bits > u32(n.MAX_INT32):
        return i64(-1)
    if bits < u32(1 << 7):
        for i in range(count):
            out[i] = numbers[i]
        return count
    for i in range(count):
        ready[i] = _ready_varint(u32(numbers[i]))
    at = i64(0)
    if bits < u32(1 << 21):
        for i in range(count):
            store_u32(out, at, ready[i])
            at += i64(ready[i] >> u32(24))
        return at
    for i in range(count):
        at = put_varint(out, at, i64(numbers[i]))
    return at


@subroutine
def copy_some(out, at, source, start, size):
    for i in range(0, size, 64):
        copy_64(out, at + i, source, start + i)


@subroutine
def _make_header(header, keys, feature, tag, size):
    """Make a feature's header: all bytes before its values, which take `size` bytes, then the tag's offset and the length."""
    key_size = i64(keys[(feature + 1) * n.KEY_WIDTH - 1])
    in_list = 1 + varint_size(size) + size
    in_feature = 1 + varint_size(in_list) + in_list
    header[0] = 0x0A
    at = put_varint(header, i64(1), key_size + varint_size(in_feature) + in_feature)
    copy_16(header, at, keys, feature * n.KEY_WIDTH)
    copy_16(header, at + 16, keys, feature * n.KEY_WIDTH + 16)
    at = put_varint(header, at + key_size, in_feature)
    header[at] = tag
    header[n.TAG_AT] = at
    at = put_varint(header, at + 1, in_list)
    header[at] = 0x0A
    header[n.SIZE_AT] = put_varint(header, at + 1, size)


@subroutine
def _put_header(out, at, headers, keys, feature, tag, size):
    """Write the header of a feature whose values take `size` bytes; return its length, and the offset of its tag.

    Headers for sizes below HEADERS are made once and kept.
    """
    kept = size if size < n.HEADERS else i64(0)
    header = shifted(headers, n.HEADER_WIDTH * kept)
    if header[n.SIZE_AT] == 0 or kept == 0:
        _make_header(header, keys, feature, tag, size)
    copy_64(out, at, header, i64(0))
    return i64(header[n.SIZE_AT]), i64(header[n.TAG_AT])


@subroutine
def _close_tfrecord(out, start, body, body_size):
    """Write the lengths and checksums around the body of the TFRecord at `start`; return where the record ends."""
    data = start + 12
    around = 1 + varint_size(body_size)
    if data + around != body:  # the length takes fewer bytes than were reserved for it
        copy_some(out, data + around, out, body, body_size)
    out[data] = 0x0A
    put_varint(out, data + 1, body_size)
    store_u64(out, start, u64(around + body_size))
    store_u32(out, start + 8, masked_crc32c(out, start, 8))
    end = data + around + body_size
    store_u32(out, end, masked_crc32c(out, data, around + body_size))
    return end + 4


@kernel(
    "count <= len(block)",
    keys="len(KNOWN_FEATURES) * KEY_WIDTH",
    headers="HEADERS * HEADER_WIDTH * len(block.dtype)",
    ready="block.itemsize",
    packed="WIDEST_NUMBER * block.itemsize + SLACK",
    tfrecords="sizes[0] + widest * count if formats & TFRECORD else 0",
    ofrecords="sizes[1] + widest * count if formats & OFRECORD else 0",
    sizes="2 + len(block.dtype)",
)
def encode(
    formats: i64, widest: i64, keys: u8_p, headers: u8_p, ready: u32_p, packed: u8_p, sizes: i64_p,
    tfrecords: u8_p, ofrecords: u8_p, block: Block, count: i64,
) -> i64:  # fmt: skip
    """Write the first `count` records of the block; return `count`, or the first record with a negative integer.

    `formats` is TFRECORD, OFRECORD or both. TFRecords are written from sizes[0] on, OFRecords from sizes[1] on, and both sizes
    advance. A record takes at most `widest` bytes. `headers` has HEADERS headers of HEADER_WIDTH bytes for each field, zeros at
    first. `ready` and `packed` are scratch memory for all values of a record.
    """
    around = 1 + varint_size(widest)
    tag = i64(n.INT64_LIST_TAG if formats & n.TFRECORD else n.INT32_LIST_TAG)
    tags = shifted(sizes, 2)
    tf_at, of_at = sizes[0], sizes[1]
    for row in range(count):
        out, body = (tfrecords, tf_at + 12 + around) if formats & n.TFRECORD else (ofrecords, of_at + 8)
        at = body
        kept = headers
        for number in range(block[n.BLOCK_FIELDS]):
            field = shifted(block, n.FIELD_WIDTH * number)
            values, feature, address = field[n.FIELD_VALUES], field[n.FIELD_FEATURE], field_at(block, number, row)
            if field[n.FIELD_TYPE] == n.FLOATS:
                size = 4 * values
                header_size, tag_at = _put_header(out, at, kept, keys, feature, i64(n.FLOAT_LIST_TAG), size)
                copy_memory(shifted(out, at + header_size), pointer_at(u8_p, address), size)
            elif field[n.FIELD_TYPE] == n.BYTES and _bits_of(pointer_at(u8_p, address), values) < u32(1 << 7):
                size = values
                header_size, tag_at = _put_header(out, at, kept, keys, feature, tag, size)
                copy_memory(shifted(out, at + header_size), pointer_at(u8_p, address), size)
            else:
                if field[n.FIELD_TYPE] == n.BYTES:
                    size = _put_numbers(packed, pointer_at(u8_p, address), values, ready)
                else:
                    size = _put_numbers(packed, pointer_at(i32_p, address), values, ready)
                if size < 0:
                    return row
                header_size, tag_at = _put_header(out, at, kept, keys, feature, tag, size)
                copy_some(out, at + header_size, packed, i64(0), size)
            tags[number] = at + tag_at - body
            kept = shifted(kept, n.HEADER_WIDTH * n.HEADERS)
            at += header_size + size
        body_size = at - body
        if formats & n.OFRECORD:
            store_u64(ofrecords, of_at, u64(body_size))
            if formats & n.TFRECORD:
                copy_some(ofrecords, of_at + 8, out, body, body_size)
                for number in range(block[n.BLOCK_FIELDS]):
                    if block[n.FIELD_WIDTH * number + n.FIELD_TYPE] != n.FLOATS:
                        ofrecords[of_at + 8 + tags[number]] = n.INT32_LIST_TAG
            of_at += 8 + body_size
        if formats & n.TFRECORD:
            tf_at = _close_tfrecord(tfrecords, tf_at, body, body_size)
    sizes[0], sizes[1] = tf_at, of_at
    return count

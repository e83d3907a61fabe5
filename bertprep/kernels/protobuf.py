"""Finds features in a serialized record of any tool, and reads their values.

    Example (TFRecord)   1: Features { 1: entry { 1: name, 2: Feature }, ... }    Feature: 1 bytes, 2 float, 3 int64 list
    OFRecord                         { 1: entry { 1: name, 2: Feature }, ... }    1 bytes, 2 float, 3 double, 4 int32, 5 int64

Entries and fields may be in any order, and numbers may be packed or not. Every length is checked against the end of the message
that contains it.
"""

import numpy as np

from bertprep.kernels import numbers as n
from bertprep.kernels.language import i64, inlined, subroutine
from bertprep.kernels.memory import load_f32, load_f64, load_u64, shifted
from bertprep.kernels.varints import (
    count_numbers,
    read_number,
    read_signed,
    read_varint,
    unpack_bytes,
    unpack_numbers,
)

_NAMES = {name: feature for feature, known in enumerate(n.KNOWN_FEATURES) for name in (known, n.TF2_NAMES.get(known, known))}
_BY_SIZE = sorted(_NAMES, key=len)
_SIZES = np.array([len(name) for name in _BY_SIZE])
_LONGEST = len(_BY_SIZE[-1])
_FIRST_OF_SIZE = np.searchsorted(_SIZES, np.arange(_LONGEST + 1))
_FEATURE_OF = np.array([_NAMES[name] for name in _BY_SIZE])


def _eight_bytes(name: str, start: int) -> int:
    return int.from_bytes(name.encode()[start : start + 8], "little")


# All names have 9 to 20 bytes, so three overlapping loads of eight bytes cover any of them.
_HEADS = np.array([_eight_bytes(name, 0) for name in _BY_SIZE], np.uint64)
_MIDDLES = np.array([_eight_bytes(name, min(8, len(name) - 8)) for name in _BY_SIZE], np.uint64)
_TAILS = np.array([_eight_bytes(name, len(name) - 8) for name in _BY_SIZE], np.uint64)


@subroutine
def _feature_named(data, at, size):
    """Return the number of the feature with the name data[at : at + size], or -1."""
    if size < 8 or size > _LONGEST:
        return i64(-1)
    row = _FIRST_OF_SIZE[size]
    while row < len(_SIZES) and _SIZES[row] == size:
        if (
            load_u64(data, at) == _HEADS[row]
            and load_u64(data, at + min(i64(8), size - 8)) == _MIDDLES[row]
            and load_u64(data, at + size - 8) == _TAILS[row]
        ):
            return _FEATURE_OF[row]
        row += 1
    return i64(-1)


@subroutine
def _skip(data, tag, at, end):
    """Return the end of a field with this tag and content from `at` on, unless it is length-delimited; -1 if malformed."""
    wire_type, after = tag & 7, i64(-1)
    if tag < 8:  # there is no field 0, and a malformed tag is -1
        return after
    if wire_type == 0:
        for k in range(min(i64(10), end - at)):
            if data[at + k] < 0x80:
                return at + k + 1
    elif wire_type == 1:
        after = at + 8
    elif wire_type == 5:
        after = at + 4
    return after if after <= end else i64(-1)


@inlined
def _next_field(data, at, end):
    """Return (tag, begin, end) of the field at data[at]: begin and end of its content, with -1 as the end if malformed."""
    tag, begin = read_varint(data, at, end)
    if tag & 7 == 2 and tag >= 8:
        size, begin = read_varint(data, begin, end)
        return tag, begin, begin + size if 0 <= size <= end - begin else i64(-1)
    return tag, begin, _skip(data, tag, begin, end)


@subroutine
def _locate_in_entry(data, at, end, wanted, found, spans, problem):
    """Write the span of the feature in a map entry, where field 1 is the name and field 2 the Feature.

    Return `found` with the bit of this feature, or a fault. Features that are not wanted are skipped.
    """
    name, name_size = i64(0), i64(0)
    value, value_end = i64(-1), i64(-1)
    while at < end:
        tag, begin, at = _next_field(data, at, end)
        if at < 0 or (tag == 0x12 and value >= 0):
            return i64(n.MALFORMED)
        if tag == 0x0A:
            name, name_size = begin, at - begin
        elif tag == 0x12:
            value, value_end = begin, at
    feature = _feature_named(data, name, name_size)
    if feature < 0 or not (wanted >> feature) & 1:
        return found
    problem[n.FEATURE] = feature
    span = shifted(spans, n.SPAN_SIZE * feature)
    if (found >> feature) & 1:
        return i64(n.TWICE)
    span[n.KIND], span[n.BEGIN], span[n.END] = i64(0), name, name
    at, end = value, value_end
    while at < end:
        tag, begin, at = _next_field(data, at, end)
        is_list = tag & 7 == 2 and tag >> 3 <= n.INT64_LIST
        if at < 0 or (is_list and span[n.KIND]):
            return i64(n.MALFORMED)
        if is_list:
            span[n.KIND], span[n.BEGIN], span[n.END] = tag >> 3, begin, at
    return found | i64(1) << feature


@subroutine
def _locate_in_map(data, at, end, wanted, found, spans, problem):
    while at < end:
        tag, begin, at = _next_field(data, at, end)
        if at < 0:
            return i64(n.MALFORMED)
        if tag == 0x0A:
            found = _locate_in_entry(data, begin, at, wanted, found, spans, problem)
            if found < 0:
                return found
    return found


@subroutine
def find_features(data, at, end, record_format, wanted, spans, problem):
    """Write the spans of the wanted features that the record data[at:end] has; return these features as bits, or a fault."""
    if record_format == n.OFRECORD:
        return _locate_in_map(data, at, end, wanted, i64(0), spans, problem)
    found = i64(0)
    while at < end:
        tag, begin, at = _next_field(data, at, end)
        if at < 0:
            return i64(n.MALFORMED)
        if tag == 0x0A:
            found = _locate_in_map(data, begin, at, wanted, found, spans, problem)
            if found < 0:
                return found
    return found


@subroutine
def locate_features(data, at, end, record_format, wanted, spans, problem):
    """Write the spans of all wanted features like `find_features`; return 0, or a fault if a feature is missing."""
    found = find_features(data, at, end, record_format, wanted, spans, problem)
    if found < 0:
        return found
    if found == wanted:
        return i64(0)
    problem[n.FEATURE] = 0
    while (found >> problem[n.FEATURE]) & 1 == (wanted >> problem[n.FEATURE]) & 1:
        problem[n.FEATURE] += 1
    return i64(n.MISSING)


@subroutine
def check_list(spans, feature, is_float, record_format, problem):
    """Check the type of a feature's list; return 0, or a fault if it does not fit."""
    kind = spans[n.SPAN_SIZE * feature + n.KIND]
    if is_float:
        fits = kind == n.FLOAT_LIST or (kind == n.DOUBLE_LIST and record_format == n.OFRECORD)
    elif record_format == n.OFRECORD:
        fits = kind in (n.INT32_LIST, n.INT64_LIST)
    else:
        fits = kind == n.EXAMPLE_INT64_LIST
    if fits:
        return i64(0)
    problem[n.FEATURE], problem[n.FOUND] = feature, kind
    return i64(n.WRONG_TYPE)


@subroutine
def _next_values(data, at, end, width):
    """Return (begin, after) of the next values in a list; `width` is the size of a value, or 0 for varints.

    `begin` is -1 if the list is malformed.
    """
    tag, begin, after = _next_field(data, at, end)
    if after < 0 or (tag == 0x0A and width and (after - begin) % width):
        return i64(-1), after
    if tag == 0x0A or (width == 0 and tag == 0x08) or (width == 4 and tag == 0x0D) or (width == 8 and tag == 0x09):
        return begin, after
    return after, after  # an unknown field


@subroutine
def count_values(data, at, end, width):
    """Return the number of values in a list, or MALFORMED."""
    count = i64(0)
    while at < end:
        begin, at = _next_values(data, at, end, width)
        if begin < 0:
            return i64(n.MALFORMED)
        count += (at - begin) // width if width else count_numbers(data, begin, at)
    return count


def _make_taker(unpack, highest):
    @subroutine
    def take(data, spans, feature, limit, out, count):
        at, end = spans[n.SPAN_SIZE * feature + n.BEGIN], spans[n.SPAN_SIZE * feature + n.END]
        if at < end:
            tag, begin, after = _next_field(data, at, end)
            if tag == 0x0A and after == end:
                return unpack(data, begin, end, limit, out, i64(0), count)
        done = i64(0)
        while at < end:
            begin, at = _next_values(data, at, end, i64(0))
            if begin < 0:
                return i64(n.MALFORMED)
            while begin < at:
                value, begin = read_number(data, begin, at, i64(highest))
                if value < 0:
                    return value
                if done == count:
                    return i64(n.WRONG_COUNT)
                out[done] = value
                done += 1
        return i64(0) if done == count else i64(n.WRONG_COUNT)

    return take


take_numbers, take_bytes = _make_taker(unpack_numbers, n.MAX_INT32), _make_taker(unpack_bytes, n.MAX_BYTE)
"""take(data, spans, feature, limit, out, count) writes the `count` numbers of a feature to `out`, and returns 0 or a fault.

`limit` is the end of the file.
"""


@subroutine
def first_beyond(data, spans, feature, highest):
    """Return the first number of a feature that is below 0 or above `highest`; the caller knows that there is one."""
    at, end, value = spans[n.SPAN_SIZE * feature + n.BEGIN], spans[n.SPAN_SIZE * feature + n.END], i64(0)
    while at < end:
        begin, at = _next_values(data, at, end, i64(0))
        if begin < 0:
            break
        while begin < at:
            value, begin = read_signed(data, begin, at)
            if value < 0 or value > highest:
                return value
    return value


@subroutine
def take_floats(data, spans, feature, out, count):
    """Write the `count` floats of a feature, which are doubles in some OFRecords, to `out`; return 0 or a fault."""
    at, end = spans[n.SPAN_SIZE * feature + n.BEGIN], spans[n.SPAN_SIZE * feature + n.END]
    width = i64(4) if spans[n.SPAN_SIZE * feature + n.KIND] == n.FLOAT_LIST else i64(8)
    done = i64(0)
    while at < end:
        begin, at = _next_values(data, at, end, width)
        if begin < 0:
            return i64(n.MALFORMED)
        values = (at - begin) // width
        if values > count - done:
            return i64(n.WRONG_COUNT)
        if width == 4:
            for i in range(values):
                out[done + i] = load_f32(data, begin + 4 * i)
        else:
            for i in range(values):
                out[done + i] = load_f64(data, begin + 8 * i)
        done += values
    return i64(0) if done == count else i64(n.WRONG_COUNT)

"""Decodes the bytes of record files into arrays: frames, checksums, and the values of records.

    TFRecord   u64 length, u32 masked CRC-32C of the length, data, u32 masked CRC-32C of the data
    OFRecord   i64 length, data

Whatever lengths a file contains, nothing outside it is read. Kernels return the number of records, or a fault with notes for
the error message.
"""

from bertprep.kernels import numbers as n
from bertprep.kernels.crc32c import masked_crc32c
from bertprep.kernels.language import Block, Table, f32_p, i32_p, i64, i64_p, kernel, struct, subroutine, u8_p
from bertprep.kernels.memory import copy_memory, field_at, load_u32, load_u64, pointer_at, prefetch, shifted
from bertprep.kernels.protobuf import (
    check_list,
    count_values,
    find_features,
    first_beyond,
    locate_features,
    take_bytes,
    take_floats,
    take_numbers,
)

File = struct({"data": "size", "offsets": "records + 1"}, data=u8_p, size=i64, format=i64, offsets=i64_p, records=i64)
"""A file's bytes, its format, and the offset of each record and of the end, or space for them.

Files of columns have -1 as `records`.
"""
Files = Table(File)
Content = struct({"data": "size"}, data=u8_p, size=i64)
_WIDTH, _CONTENT_WIDTH = len(File.fields), len(Content.fields)

# `notes` has NOTES_SIZE numbers: PROBLEM_SIZE about a fault, then SPAN_SIZE about each feature.

_AHEAD = 8  # records between prefetching a record and reading it
_MOST_LINES = 32  # cache lines of 64 bytes that are prefetched of a record


@subroutine
def _open_frame(data, size, at, record_format, problem):
    """Return (begin, end) of the data of the record at byte `at`, or (fault, 0)."""
    left = size - at
    around = i64(16) if record_format == n.TFRECORD else i64(8)
    head = i64(12) if record_format == n.TFRECORD else i64(8)
    if left < head:
        problem[n.FOUND], problem[n.EXPECTED] = left, around
        return i64(n.LEFT_OVER), i64(0)
    length = i64(load_u64(data, at))
    if record_format == n.TFRECORD:
        problem[n.FOUND], problem[n.EXPECTED] = i64(load_u32(data, at + 8)), i64(masked_crc32c(data, at, i64(8)))
        if problem[n.FOUND] != problem[n.EXPECTED]:
            return i64(n.LENGTH_CHECKSUM), i64(0)
    if length < 0 or length > left - around:
        problem[n.FOUND], problem[n.EXPECTED] = left - head, length + around - head
        return i64(n.TRUNCATED), i64(0)
    return at + head, at + head + length


@subroutine
def _open_record(data, size, at, record_format, problem):
    """Return (begin, end) or (fault, 0) like `_open_frame`, and also verify the checksum of the data."""
    begin, end = _open_frame(data, size, at, record_format, problem)
    if begin < 0:
        return begin, end
    if record_format == n.TFRECORD:
        problem[n.FOUND], problem[n.EXPECTED] = i64(load_u32(data, end)), i64(masked_crc32c(data, begin, end - begin))
        if problem[n.FOUND] != problem[n.EXPECTED]:
            return i64(n.DATA_CHECKSUM), i64(0)
    return begin, end


@subroutine
def _locate(data, size, at, record_format, block, spans, problem):
    """Check a record and locate its features; return where its data ends, or a fault."""
    begin, end = _open_record(data, size, at, record_format, problem)
    if begin < 0:
        return begin
    fault = locate_features(data, begin, end, record_format, block[n.BLOCK_WANTED], spans, problem)
    return fault if fault < 0 else end


@subroutine
def _count(data, spans, feature, is_float):
    width = i64(0)
    if is_float:
        width = i64(8) if spans[n.SPAN_SIZE * feature + n.KIND] == n.DOUBLE_LIST else i64(4)
    return count_values(data, spans[n.SPAN_SIZE * feature + n.BEGIN], spans[n.SPAN_SIZE * feature + n.END], width)


@subroutine
def _decode_record(data, size, at, record_format, block, row, spans, problem):
    """Decode one record into row `row` of the block; return where the next record begins, or a fault."""
    end = _locate(data, size, at, record_format, block, spans, problem)
    if end < 0:
        return end
    for number in range(block[n.BLOCK_FIELDS]):
        field = shifted(block, n.FIELD_WIDTH * number)
        feature, count, kind = field[n.FIELD_FEATURE], field[n.FIELD_VALUES], field[n.FIELD_TYPE]
        address, is_float = field_at(block, number, row), kind == n.FLOATS
        fault = check_list(spans, feature, is_float, record_format, problem)
        if fault < 0:
            return fault
        if is_float:
            fault = take_floats(data, spans, feature, pointer_at(f32_p, address), count)
        elif kind == n.BYTES:
            fault = take_bytes(data, spans, feature, size, pointer_at(u8_p, address), count)
        else:
            fault = take_numbers(data, spans, feature, size, pointer_at(i32_p, address), count)
        if fault < 0:
            problem[n.FEATURE], problem[n.EXPECTED] = feature, count
            if fault == n.WRONG_COUNT:
                problem[n.FOUND] = _count(data, spans, feature, is_float)
            elif fault == n.OUT_OF_RANGE:
                problem[n.EXPECTED] = n.MAX_BYTE if kind == n.BYTES else n.MAX_INT32
                problem[n.FOUND] = first_beyond(data, spans, feature, problem[n.EXPECTED])
            return fault
    return end + 4 if record_format == n.TFRECORD else end


@kernel(lists="len(KNOWN_FEATURES)", notes="NOTES_SIZE")
def find_lists(file: File, lists: i64_p, notes: i64_p) -> i64:
    """Find the type of each known feature's list in the first record; return 0 or a fault.

    lists[f] becomes the number of the list's field, 0 if feature f has no list, or -1 if the record lacks the feature.
    """
    of, problem, spans = File(file), notes, shifted(notes, n.PROBLEM_SIZE)
    problem[n.ROW] = 0
    begin, end = _open_record(of.data, of.size, i64(0), of.format, problem)
    if begin < 0:
        return begin
    found = find_features(of.data, begin, end, of.format, i64(-1), spans, problem)
    if found < 0:
        return found
    for feature in range(len(n.KNOWN_FEATURES)):
        lists[feature] = spans[n.SPAN_SIZE * feature + n.KIND] if (found >> feature) & 1 else i64(-1)
    return i64(0)


@kernel(counts="len(block.dtype)", notes="NOTES_SIZE")
def measure(file: File, block: Block, counts: i64_p, notes: i64_p) -> i64:
    """Count the values that the first record has for each field of the block; return 0 or a fault."""
    of, problem, spans = File(file), notes, shifted(notes, n.PROBLEM_SIZE)
    problem[n.ROW] = 0
    end = _locate(of.data, of.size, i64(0), of.format, block, spans, problem)
    if end < 0:
        return end
    for number in range(block[n.BLOCK_FIELDS]):
        feature = block[n.FIELD_WIDTH * number + n.FIELD_FEATURE]
        is_float = block[n.FIELD_WIDTH * number + n.FIELD_TYPE] == n.FLOATS
        fault = check_list(spans, feature, is_float, of.format, problem)
        if fault < 0:
            return fault
        counts[number] = _count(of.data, spans, feature, is_float)
        if counts[number] < 0:
            return counts[number]
    return i64(0)


@kernel("0 <= found <= most <= records", problem="PROBLEM_SIZE")
def find_records(file: File, found: i64, most: i64, problem: i64_p) -> i64:
    """Find the offsets of records up to the end of the file, or of at most `most` records; return their number, or a fault.

    The first `found` records are already known.
    """
    of = File(file)
    at = of.offsets[found]
    while at < of.size and found < most:
        begin, end = _open_frame(of.data, of.size, at, of.format, problem)
        if begin < 0:
            problem[n.ROW] = found
            return begin
        at = end + 4 if of.format == n.TFRECORD else end
        found += 1
        of.offsets[found] = at
    return found


@kernel(
    "0 <= row <= len(block) - count",
    files="int(numbers[:count].max(initial=-1)) + 1", numbers="count", records="count", notes="NOTES_SIZE",
)  # fmt: skip
def gather(files: Files, numbers: i64_p, records: i64_p, count: i64, block: Block, row: i64, notes: i64_p) -> i64:
    """Read record records[i] of file numbers[i] into row `row` + i, for i < count; return `count` or a fault."""
    problem, spans = notes, shifted(notes, n.PROBLEM_SIZE)
    for i in range(count):
        is_run = i + _AHEAD < count and records[i + _AHEAD] == records[i] + _AHEAD  # the processor prefetches runs by itself
        if i + 2 * _AHEAD < count and not is_run:
            coming = File(shifted(files, _WIDTH * numbers[i + 2 * _AHEAD]))
            prefetch(coming.offsets, records[i + 2 * _AHEAD])
        if i + _AHEAD < count and not is_run:
            coming = File(shifted(files, _WIDTH * numbers[i + _AHEAD]))
            bounds = shifted(coming.offsets, records[i + _AHEAD])
            lines = (bounds[1] - bounds[0]) // 64 + 1
            for line in range(min(lines, i64(_MOST_LINES))):
                prefetch(coming.data, bounds[0] + 64 * line)
        of = File(shifted(files, _WIDTH * numbers[i]))
        at = _decode_record(of.data, of.size, of.offsets[records[i]], of.format, block, row + i, spans, problem)
        if at < 0:
            problem[n.ROW] = i
            return at
    return count


@kernel(files="int(numbers[:count].max(initial=-1)) + 1", numbers="count", starts="count", out="count * size")
def copy_rows(files: Table(Content), numbers: i64_p, starts: i64_p, count: i64, size: i64, out: u8_p) -> i64:
    """Copy `size` bytes from byte starts[i] of file numbers[i] into row i of `out`, for i < count.

    Return `count`, or the first row that is not inside its file.
    """
    for i in range(count):
        if i + _AHEAD < count:
            prefetch(Content(shifted(files, _CONTENT_WIDTH * numbers[i + _AHEAD])).data, starts[i + _AHEAD])
        of = Content(shifted(files, _CONTENT_WIDTH * numbers[i]))
        if starts[i] < 0 or starts[i] > of.size - size:
            return i64(i)
        copy_memory(shifted(out, i * size), shifted(of.data, starts[i]), size)
    return count

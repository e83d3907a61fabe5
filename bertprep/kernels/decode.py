"""The bytes of TFRecord and OFRecord files to arrays: frames, checksums, and the values of one record or many.

    TFRecord   u64 length, u32 masked CRC-32C of the length, data, u32 masked CRC-32C of the data
    OFRecord   i64 length, data

Whatever the bytes are, nothing outside the file is read: a length is believed when it fits into what is left of the file.
Kernels return how many records they did, or a fault, with `problem` telling which record it is and what about it.
"""

from numba import types
from numba.extending import intrinsic

from bertprep.kernels.crc32c import masked_crc32c
from bertprep.kernels.encode import (
    FEATURES,
    INPUT_IDS,
    INPUT_MASK,
    LABELS,
    NEXT_SENTENCE,
    POSITIONS,
    SEGMENT_IDS,
    TFRECORD,
    WEIGHTS,
)
from bertprep.kernels.faults import (
    DATA_CHECKSUM,
    EXPECTED,
    FEATURE,
    FOUND,
    LEFT_OVER,
    LENGTH_CHECKSUM,
    ROW,
    TRUNCATED,
    WRONG_COUNT,
)
from bertprep.kernels.language import f32_p, i32_p, i64, i64_p, kernel, load_u32, load_u64, prefetch, subroutine, u8_p
from bertprep.kernels.messages import (
    BEGIN,
    DOUBLE_LIST,
    END,
    KIND,
    SPAN_SIZE,
    count_values,
    locate_features,
    take_numbers,
    take_weights,
)

_AHEAD = 8  # records between asking for a record's memory and reading it
_MOST_LINES = 32  # of 64 bytes, that are asked for


@intrinsic
def _pointer_at(_context, kind, _address):
    """The memory at an address, as a pointer of that kind."""

    def generate(context, builder, signature, arguments):
        return builder.inttoptr(arguments[1], context.get_value_type(signature.return_type))

    return kind.instance_type(kind, types.int64), generate


@subroutine
def _open_frame(data, size, at, record_format, problem):
    """(begin, end) of the data of the record at `at`, or (fault, 0)."""
    left = size - at
    around = i64(16) if record_format == TFRECORD else i64(8)
    head = i64(12) if record_format == TFRECORD else i64(8)
    if left < head:
        problem[FOUND], problem[EXPECTED] = left, around
        return i64(LEFT_OVER), i64(0)
    length = i64(load_u64(data, at))
    if record_format == TFRECORD:
        problem[FOUND], problem[EXPECTED] = i64(load_u32(data, at + 8)), i64(masked_crc32c(data, at, i64(8)))
        if problem[FOUND] != problem[EXPECTED]:
            return i64(LENGTH_CHECKSUM), i64(0)
    if length < 0 or length > left - around:
        problem[FOUND], problem[EXPECTED] = left - head, length + around - head
        return i64(TRUNCATED), i64(0)
    return at + head, at + head + length


@subroutine
def _after(end, record_format):
    """Where the record after the one whose data ends at `end` begins."""
    return end + 4 if record_format == TFRECORD else end


@subroutine
def _locate(data, size, at, record_format, spans, problem):
    """Check a record and locate its features; returns where its data ends, or a fault."""
    begin, end = _open_frame(data, size, at, record_format, problem)
    if begin < 0:
        return begin
    if record_format == TFRECORD:
        problem[FOUND], problem[EXPECTED] = i64(load_u32(data, end)), i64(masked_crc32c(data, begin, end - begin))
        if problem[FOUND] != problem[EXPECTED]:
            return i64(DATA_CHECKSUM)
    fault = locate_features(data, begin, end, record_format, spans, problem)
    return fault if fault < 0 else end


@subroutine
def _count(data, spans, feature):
    width = i64(0)
    if feature == WEIGHTS:
        width = i64(8) if spans[SPAN_SIZE * WEIGHTS + KIND] == DOUBLE_LIST else i64(4)
    return count_values(data, spans[SPAN_SIZE * feature + BEGIN], spans[SPAN_SIZE * feature + END], width)


@subroutine
def _explain(data, spans, feature, count, fault, problem):
    """Note about a feature that could not be taken what a message needs."""
    problem[FEATURE], problem[EXPECTED] = feature, count
    if fault == WRONG_COUNT:
        problem[FOUND] = _count(data, spans, feature)
    return fault


@subroutine
def _decode_record(
    data, size, at, record_format, row, seq, pred,
    input_ids, input_mask, segment_ids, positions, masked_ids, weights, labels, spans, problem,
):  # fmt: skip
    """One record to row `row` of the arrays; returns where the next one begins, or a fault."""
    end = _locate(data, size, at, record_format, spans, problem)
    if end < 0:
        return end
    fault = take_numbers(data, spans, INPUT_IDS, size, input_ids, row * seq, seq)
    if fault < 0:
        return _explain(data, spans, i64(INPUT_IDS), seq, fault, problem)
    fault = take_numbers(data, spans, INPUT_MASK, size, input_mask, row * seq, seq)
    if fault < 0:
        return _explain(data, spans, i64(INPUT_MASK), seq, fault, problem)
    fault = take_numbers(data, spans, SEGMENT_IDS, size, segment_ids, row * seq, seq)
    if fault < 0:
        return _explain(data, spans, i64(SEGMENT_IDS), seq, fault, problem)
    fault = take_numbers(data, spans, POSITIONS, size, positions, row * pred, pred)
    if fault < 0:
        return _explain(data, spans, i64(POSITIONS), pred, fault, problem)
    fault = take_numbers(data, spans, LABELS, size, masked_ids, row * pred, pred)
    if fault < 0:
        return _explain(data, spans, i64(LABELS), pred, fault, problem)
    fault = take_weights(data, spans, weights, row * pred, pred)
    if fault < 0:
        return _explain(data, spans, i64(WEIGHTS), pred, fault, problem)
    fault = take_numbers(data, spans, NEXT_SENTENCE, size, labels, row, i64(1))
    if fault < 0:
        return _explain(data, spans, i64(NEXT_SENTENCE), i64(1), fault, problem)
    return _after(end, record_format)


@kernel
def measure(data: u8_p, size: i64, record_format: i64, counts: i64_p, spans: i64_p, problem: i64_p) -> i64:
    """How many values each feature of the first record has; 0 or a fault."""
    problem[ROW] = 0
    end = _locate(data, size, i64(0), record_format, spans, problem)
    if end < 0:
        return end
    for feature in range(FEATURES):
        counts[feature] = _count(data, spans, feature)
        if counts[feature] < 0:
            problem[FEATURE] = feature
            return counts[feature]
    return i64(0)


@kernel
def find_records(
    data: u8_p, size: i64, record_format: i64, offsets: i64_p, found: i64, room: i64, problem: i64_p
) -> i64:  # fmt: skip
    """Where records begin, the first `found` of which are known, up to the end of the file or the `room` in `offsets`.

    Returns how many are known now; offsets[that] is where the last one ends. Checks lengths and their checksums.
    """
    at = offsets[found]
    while at < size and found < room:
        begin, end = _open_frame(data, size, at, record_format, problem)
        if begin < 0:
            problem[ROW] = found
            return begin
        at = _after(end, record_format)
        found += 1
        offsets[found] = at
    return found


@kernel
def decode(
    data: u8_p, size: i64, record_format: i64, offsets: i64_p, first: i64, count: i64, row: i64, seq: i64, pred: i64,
    input_ids: i32_p, input_mask: i32_p, segment_ids: i32_p, positions: i32_p, masked_ids: i32_p, weights: f32_p, labels: i32_p,
    spans: i64_p, problem: i64_p,
) -> i64:  # fmt: skip
    """Records `first` to first + count - 1, or to the end of the file, to the rows from `row` on; returns how many.

    offsets[first] must be known; those of the records after it are noted.
    """
    at = offsets[first]
    done = i64(0)
    while at < size and done < count:
        at = _decode_record(
            data, size, at, record_format, row + done, seq, pred,
            input_ids, input_mask, segment_ids, positions, masked_ids, weights, labels, spans, problem,
        )  # fmt: skip
        if at < 0:
            problem[ROW] = done
            return at
        done += 1
        offsets[first + done] = at
    return done


FILE_SIZE, FILE_FORMAT, FILE_DATA, FILE_OFFSETS = range(4)
FILE_WIDTH = 4


@kernel
def gather(
    files: i64_p, file_numbers: i64_p, records: i64_p, count: i64, row: i64, seq: i64, pred: i64,
    input_ids: i32_p, input_mask: i32_p, segment_ids: i32_p, positions: i32_p, masked_ids: i32_p, weights: f32_p, labels: i32_p,
    spans: i64_p, problem: i64_p,
) -> i64:  # fmt: skip
    """Record records[i] of file file_numbers[i] to row `row` + i, for i below `count`; returns count.

    `files` has for each file its size, its format, and the addresses of its bytes and of its offsets, which are all known.
    """
    for i in range(count):
        if i + 2 * _AHEAD < count:
            coming = files[FILE_WIDTH * file_numbers[i + 2 * _AHEAD] + FILE_OFFSETS]
            prefetch(_pointer_at(i64_p, coming), records[i + 2 * _AHEAD])
        if i + _AHEAD < count:
            coming = FILE_WIDTH * file_numbers[i + _AHEAD]
            coming_offsets = _pointer_at(i64_p, files[coming + FILE_OFFSETS])
            begin = coming_offsets[records[i + _AHEAD]]
            lines = (coming_offsets[records[i + _AHEAD] + 1] - begin) // 64 + 1
            for line in range(min(lines, i64(_MOST_LINES))):
                prefetch(_pointer_at(u8_p, files[coming + FILE_DATA]), begin + 64 * line)
        file = FILE_WIDTH * file_numbers[i]
        outcome = _decode_record(
            _pointer_at(u8_p, files[file + FILE_DATA]), files[file + FILE_SIZE],
            _pointer_at(i64_p, files[file + FILE_OFFSETS])[records[i]], files[file + FILE_FORMAT], row + i, seq, pred,
            input_ids, input_mask, segment_ids, positions, masked_ids, weights, labels, spans, problem,
        )  # fmt: skip
        if outcome < 0:
            problem[ROW] = i
            return outcome
    return count

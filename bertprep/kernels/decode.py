"""The bytes of record files to arrays: frames, checksums, and the values of one record or many.

    TFRecord   u64 length, u32 masked CRC-32C of the length, data, u32 masked CRC-32C of the data
    OFRecord   i64 length, data
    Arrow      batches of columns, see `kernels.batches`

Whatever the bytes are, nothing outside the file is read: a length is believed if it fits into what is left of the file.
Kernels return how many records they read, or a fault, and note what a message about it needs. They work on rows of numbers,
addresses among them: one for each open file, so that one call can gather from many, and one for the arrays.
"""

from bertprep.kernels.batches import decode_rows, prefetch_row, read_row
from bertprep.kernels.crc32c import masked_crc32c
from bertprep.kernels.language import (
    f32_p,
    i32_p,
    i64,
    i64_p,
    kernel,
    load_u32,
    load_u64,
    pointer_at,
    prefetch,
    shifted,
    subroutine,
    u8_p,
    u32,
    u32_p,
)
from bertprep.kernels.messages import check_list, count_values, find_features, locate_features, take_floats, take_numbers
from bertprep.kernels.numbers import (
    ARRAY_ADDRESS,
    ARRAY_FEATURE,
    ARRAY_KIND,
    ARRAY_VALUES,
    ARRAY_WIDTH,
    ARRAYS_SIZE,
    ARRAYS_WANTED,
    ARROW,
    BEGIN,
    BEYOND_MODEL,
    DATA_CHECKSUM,
    DOUBLE_LIST,
    END,
    EXPECTED,
    FEATURE,
    FILE_DATA,
    FILE_FORMAT,
    FILE_OFFSETS,
    FILE_SIZE,
    FILE_WIDTH,
    FOUND,
    KIND,
    KIND_FLOAT32,
    KNOWN_FEATURES,
    LEFT_OVER,
    LENGTH_CHECKSUM,
    PROBLEM_SIZE,
    ROW,
    SPAN_SIZE,
    TFRECORD,
    TRUNCATED,
    WRONG_COUNT,
)

# The arrays: a row of ARRAY_WIDTH numbers for each feature that is asked for; see `Examples.addresses`.
# Notes: NOTES_SIZE numbers, PROBLEM_SIZE on a fault and SPAN_SIZE on each feature.

_MINUS_ZERO = 1 << 31  # as bits
_AHEAD = 8  # records between asking for a record's memory and reading it
_MOST_LINES = 32  # of 64 bytes, that are asked for
_CHECKED = 4096  # values that are checked at a time: 16 KB, which the first cache still holds


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
def _open_record(data, size, at, record_format, problem):
    """As `_open_frame`, with the data's checksum verified."""
    begin, end = _open_frame(data, size, at, record_format, problem)
    if begin < 0:
        return begin, end
    if record_format == TFRECORD:
        problem[FOUND], problem[EXPECTED] = i64(load_u32(data, end)), i64(masked_crc32c(data, begin, end - begin))
        if problem[FOUND] != problem[EXPECTED]:
            return i64(DATA_CHECKSUM), i64(0)
    return begin, end


@subroutine
def _locate(data, size, at, record_format, arrays, spans, problem):
    """Check a record and locate its features; returns where its data ends, or a fault."""
    begin, end = _open_record(data, size, at, record_format, problem)
    if begin < 0:
        return begin
    fault = locate_features(data, begin, end, record_format, arrays[ARRAYS_WANTED], spans, problem)
    return fault if fault < 0 else end


@subroutine
def _count(data, spans, feature, is_float):
    width = i64(0)
    if is_float:
        width = i64(8) if spans[SPAN_SIZE * feature + KIND] == DOUBLE_LIST else i64(4)
    return count_values(data, spans[SPAN_SIZE * feature + BEGIN], spans[SPAN_SIZE * feature + END], width)


@subroutine
def _decode_record(data, size, at, record_format, arrays, row, spans, problem):
    """One record to row `row` of the arrays; returns where the next one begins, or a fault."""
    end = _locate(data, size, at, record_format, arrays, spans, problem)
    if end < 0:
        return end
    for array in range(0, ARRAY_WIDTH * arrays[ARRAYS_SIZE], ARRAY_WIDTH):
        feature, count, address = arrays[array + ARRAY_FEATURE], arrays[array + ARRAY_VALUES], arrays[array + ARRAY_ADDRESS]
        is_float = arrays[array + ARRAY_KIND] == KIND_FLOAT32
        fault = check_list(spans, feature, is_float, record_format, problem)
        if fault < 0:
            return fault
        if is_float:
            fault = take_floats(data, spans, feature, pointer_at(f32_p, address), row * count, count)
        else:
            fault = take_numbers(data, spans, feature, size, pointer_at(i32_p, address), row * count, count)
        if fault < 0:
            problem[FEATURE], problem[EXPECTED] = feature, count
            if fault == WRONG_COUNT:
                problem[FOUND] = _count(data, spans, feature, is_float)
            return fault
    return end + 4 if record_format == TFRECORD else end


@kernel
def find_lists(file: i64_p, lists: i64_p, notes: i64_p) -> i64:
    """The field of each known feature's list in the first record, 0 for none, -1 for no such feature; 0 or a fault."""
    data, problem, spans = pointer_at(u8_p, file[FILE_DATA]), notes, shifted(notes, PROBLEM_SIZE)
    problem[ROW] = 0
    begin, end = _open_record(data, file[FILE_SIZE], i64(0), file[FILE_FORMAT], problem)
    if begin < 0:
        return begin
    found = find_features(data, begin, end, file[FILE_FORMAT], i64(-1), spans, problem)
    if found < 0:
        return found
    for feature in range(len(KNOWN_FEATURES)):
        lists[feature] = spans[SPAN_SIZE * feature + KIND] if (found >> feature) & 1 else i64(-1)
    return i64(0)


@kernel
def measure(file: i64_p, arrays: i64_p, counts: i64_p, notes: i64_p) -> i64:
    """How many values the first record has in each feature that the arrays are of; 0 or a fault."""
    data, problem, spans = pointer_at(u8_p, file[FILE_DATA]), notes, shifted(notes, PROBLEM_SIZE)
    problem[ROW] = 0
    end = _locate(data, file[FILE_SIZE], i64(0), file[FILE_FORMAT], arrays, spans, problem)
    if end < 0:
        return end
    for number in range(arrays[ARRAYS_SIZE]):
        array = ARRAY_WIDTH * number
        feature = arrays[array + ARRAY_FEATURE]
        fault = check_list(spans, feature, arrays[array + ARRAY_KIND] == KIND_FLOAT32, file[FILE_FORMAT], problem)
        if fault < 0:
            return fault
        counts[number] = _count(data, spans, feature, arrays[array + ARRAY_KIND] == KIND_FLOAT32)
        if counts[number] < 0:
            problem[FEATURE] = feature
            return counts[number]
    return i64(0)


@kernel
def find_records(file: i64_p, found: i64, most: i64, problem: i64_p) -> i64:
    """Where records begin, the first `found` of which are known, up to the end of the file or record number `most`.

    Returns how many are known now; the offset after them is where the last one ends. Checks lengths and their checksums.
    """
    data, size, record_format = pointer_at(u8_p, file[FILE_DATA]), file[FILE_SIZE], file[FILE_FORMAT]
    offsets = pointer_at(i64_p, file[FILE_OFFSETS])
    at = offsets[found]
    while at < size and found < most:
        begin, end = _open_frame(data, size, at, record_format, problem)
        if begin < 0:
            problem[ROW] = found
            return begin
        at = end + 4 if record_format == TFRECORD else end
        found += 1
        offsets[found] = at
    return found


@kernel
def decode(file: i64_p, first: i64, count: i64, arrays: i64_p, row: i64, notes: i64_p) -> i64:
    """Records `first` to first + count - 1, or to the end of the file, to the rows from `row` on; returns how many.

    The offset of `first` must be known; those of the records after it are noted. A file of columns needs none.
    """
    data, size, record_format = pointer_at(u8_p, file[FILE_DATA]), file[FILE_SIZE], file[FILE_FORMAT]
    offsets = pointer_at(i64_p, file[FILE_OFFSETS])
    problem, spans = notes, shifted(notes, PROBLEM_SIZE)
    if record_format == ARROW:
        return decode_rows(file[FILE_DATA], offsets, first, count, arrays, row, problem)
    at = offsets[first]
    done = i64(0)
    while at < size and done < count:
        at = _decode_record(data, size, at, record_format, arrays, row + done, spans, problem)
        if at < 0:
            problem[ROW] = done
            return at
        done += 1
        offsets[first + done] = at
    return done


@subroutine
def _gather_range(files, numbers, records, first, stop, count, arrays, row, notes):
    """Records `first` to stop - 1 of the `count` that are asked for; returns 0 or a fault."""
    problem, spans = notes, shifted(notes, PROBLEM_SIZE)
    for i in range(first, stop):
        if i + 2 * _AHEAD < count:
            coming = FILE_WIDTH * numbers[i + 2 * _AHEAD]
            if files[coming + FILE_FORMAT] != ARROW:
                prefetch(pointer_at(i64_p, files[coming + FILE_OFFSETS]), records[i + 2 * _AHEAD])
        if i + _AHEAD < count:
            coming = FILE_WIDTH * numbers[i + _AHEAD]
            data, offsets = pointer_at(u8_p, files[coming + FILE_DATA]), pointer_at(i64_p, files[coming + FILE_OFFSETS])
            if files[coming + FILE_FORMAT] == ARROW:
                prefetch_row(files[coming + FILE_DATA], offsets, records[i + _AHEAD], i64(_MOST_LINES))
            else:
                bounds = shifted(offsets, records[i + _AHEAD])
                lines = (bounds[1] - bounds[0]) // 64 + 1
                for line in range(min(lines, i64(_MOST_LINES))):
                    prefetch(data, bounds[0] + 64 * line)
        file = shifted(files, FILE_WIDTH * numbers[i])
        data, offsets = pointer_at(u8_p, file[FILE_DATA]), pointer_at(i64_p, file[FILE_OFFSETS])
        if file[FILE_FORMAT] == ARROW:
            outcome = read_row(file[FILE_DATA], offsets, records[i], arrays, row + i, problem)
        else:
            at, size, record_format = offsets[records[i]], file[FILE_SIZE], file[FILE_FORMAT]
            outcome = _decode_record(data, size, at, record_format, arrays, row + i, spans, problem)
        if outcome < 0:
            problem[ROW] = i
            return outcome
    return i64(0)


@subroutine
def _check_range(first, stop, arrays, row, most, problem):
    """Whether all values of records `first` to stop - 1 are 0 to most[i] in array number i; returns 0 or a fault.

    Floats are compared by their bits, whose order is that of the numbers, with infinity and NaN after all of them. All
    values of a feature are one run without a branch, which becomes vector code; where one is too high is looked for after.
    """
    excess = i64(0)
    for number in range(arrays[ARRAYS_SIZE]):
        array = shifted(arrays, ARRAY_WIDTH * number)
        width = array[ARRAY_VALUES]
        values = shifted(pointer_at(u32_p, array[ARRAY_ADDRESS]), (row + first) * width)
        highest = u32(0)
        for i in range((stop - first) * width):
            highest = max(highest, values[i])
        excess = max(excess, i64(highest) - most[number])
    if excess <= 0:
        return i64(0)
    for i in range(first, stop):
        for number in range(arrays[ARRAYS_SIZE]):
            array = shifted(arrays, ARRAY_WIDTH * number)
            width = array[ARRAY_VALUES]
            values = shifted(pointer_at(u32_p, array[ARRAY_ADDRESS]), (row + i) * width)
            for k in range(width):
                value = i64(values[k])
                if value > most[number] and not (array[ARRAY_KIND] == KIND_FLOAT32 and value == _MINUS_ZERO):
                    problem[ROW], problem[FEATURE] = i, array[ARRAY_FEATURE]
                    problem[FOUND], problem[EXPECTED] = value, most[number]
                    return i64(BEYOND_MODEL)
    return i64(0)


@kernel
def gather(files: i64_p, numbers: i64_p, records: i64_p, count: i64, arrays: i64_p, row: i64, notes: i64_p) -> i64:
    """Record records[i] of file numbers[i] to row `row` + i, for i below `count`; returns count.

    All offsets of the files must be known.
    """
    fault = _gather_range(files, numbers, records, i64(0), count, count, arrays, row, notes)
    return fault if fault < 0 else count


@kernel
def gather_within(
    files: i64_p, numbers: i64_p, records: i64_p, count: i64, most: i64_p, arrays: i64_p, row: i64, notes: i64_p
) -> i64:
    """As `gather`, of records whose values are 0 to most[i] in array number i: a few at a time, while the cache has them."""
    width = i64(0)
    for array in range(0, ARRAY_WIDTH * arrays[ARRAYS_SIZE], ARRAY_WIDTH):
        width += arrays[array + ARRAY_VALUES]
    first, portion = i64(0), max(i64(1), i64(_CHECKED) // max(i64(1), width))
    while first < count:
        stop = min(first + portion, count)
        fault = _gather_range(files, numbers, records, first, stop, count, arrays, row, notes)
        read = notes[ROW] if fault < 0 else stop
        beyond = _check_range(first, read, arrays, row, most, notes)
        if beyond < 0:
            return beyond
        if fault < 0:
            return fault
        first = stop
    return count

"""Rows of an Arrow file's batches of columns to arrays: narrow numbers widened, labels turned into predictions.

A batch has the values of one column after those of another, each column's in one run. Where these begin is in the file's table
(`numbers.TABLE_ROWS`), which the caller has checked: every column of every batch is within the file. A row is then a copy from
each column, and costs a third of a TFRecord's. Whole numbers below 0 or beyond int32 are a fault as in any record.
"""

from bertprep.kernels.language import (
    f32_p,
    i8_p,
    i32,
    i32_p,
    i64,
    i64_p,
    others_of_16,
    pointer_at,
    prefetch,
    shifted,
    subroutine,
    trailing_zeros,
    u8_p,
    u32,
    u32_p,
    u64,
    u64_p,
)
from bertprep.kernels.numbers import (
    ARRAY_ADDRESS,
    ARRAY_FEATURE,
    ARRAY_KIND,
    ARRAY_VALUES,
    ARRAY_WIDTH,
    COLUMN_ARRAY,
    COLUMN_BYTES,
    COLUMN_VALUES,
    COLUMN_WIDTH,
    EXPECTED,
    FEATURE,
    FOUND,
    KIND_FLOAT32,
    LABELS,
    NOT_PREDICTED,
    OUT_OF_RANGE,
    POSITIONS,
    ROW,
    TABLE_COLUMNS,
    TABLE_HEAD,
    TABLE_RECORDS,
    TABLE_ROWS,
    WRONG_COUNT,
)

_MOST = (1 << 31) - 1


@subroutine
def _offsets_of(table, record):
    """(where the columns of the record's batch begin, its row there)."""
    batch = record // table[TABLE_ROWS]
    columns = table[TABLE_COLUMNS]
    return shifted(table, TABLE_HEAD + (COLUMN_WIDTH + batch) * columns), record - batch * table[TABLE_ROWS]


@subroutine
def prefetch_row(data, table, record, most):
    """Begin to bring a row into the cache, `most` lines of each column."""
    offsets, within = _offsets_of(table, record)
    for number in range(table[TABLE_COLUMNS]):
        column = shifted(table, TABLE_HEAD + COLUMN_WIDTH * number)
        size = column[COLUMN_VALUES] * column[COLUMN_BYTES]
        at = offsets[number] + within * size
        for line in range(min((size + 63) // 64, most)):
            prefetch(pointer_at(u8_p, data), at + 64 * line)


@subroutine
def decode_rows(data, table, first, count, arrays, row, problem):
    """Records `first` to first + count - 1, or to the last, to the rows from `row` on; returns how many, or a fault."""
    count = min(count, table[TABLE_RECORDS] - first)
    for done in range(count):
        fault = read_row(data, table, first + done, arrays, row + done, problem)
        if fault < 0:
            problem[ROW] = done
            return fault
    return max(i64(0), count)


@subroutine
def read_row(data, table, record, arrays, row, problem):
    """One record of the file at address `data` to row `row` of the arrays; 0 or a fault."""
    offsets, within = _offsets_of(table, record)
    for number in range(table[TABLE_COLUMNS]):
        column = shifted(table, TABLE_HEAD + COLUMN_WIDTH * number)
        array = shifted(arrays, ARRAY_WIDTH * column[COLUMN_ARRAY])
        count, width = column[COLUMN_VALUES], column[COLUMN_BYTES]
        values = data + offsets[number] + within * count * width
        if array[ARRAY_FEATURE] == POSITIONS:
            fault = _take_labels(values, count, width, array, row, problem)
            if fault < 0:
                return fault
        elif not _copy(values, count, width, array[ARRAY_ADDRESS] + 4 * row * count) and array[ARRAY_KIND] != KIND_FLOAT32:
            problem[FEATURE] = array[ARRAY_FEATURE]
            return i64(OUT_OF_RANGE)
    return i64(0)


@subroutine
def _copy(values, count, width, to):
    """The numbers at one address to another, as 4 bytes each; whether all are 0 or more and an int32 holds them.

    Without a branch in a loop, so that it becomes vector code.
    """
    out = pointer_at(u32_p, to)
    highest = u32(0)
    if width == 4:
        numbers = pointer_at(u32_p, values)
        for i in range(count):
            out[i] = numbers[i]
            highest = max(highest, numbers[i])
        return highest <= u32(_MOST)
    if width == 1:
        narrow = pointer_at(u8_p, values)
        for i in range(count):
            out[i] = narrow[i]
            highest = max(highest, u32(narrow[i]))
        return highest < u32(128)
    wide, bits = pointer_at(u64_p, values), u64(0)
    for i in range(count):
        out[i] = u32(wide[i])
        bits |= wide[i]
    return bits <= u64(_MOST)


@subroutine
def _take_labels(values, count, width, array, row, problem):
    """The labels at an address as predictions: ascending positions with their ids, weights of 1, then zeros; 0 or a fault."""
    room = array[ARRAY_VALUES]
    positions = pointer_at(i32_p, array[ARRAY_ADDRESS] + 4 * row * room)
    ids = pointer_at(i32_p, array[ARRAY_WIDTH + ARRAY_ADDRESS] + 4 * row * room)
    weights = pointer_at(f32_p, array[2 * ARRAY_WIDTH + ARRAY_ADDRESS] + 4 * row * room)
    found = i64(0)
    for at in range(0, count, 16):
        predicted = _predicted_of_16(values, at, count, width)
        while predicted:
            position = at + trailing_zeros(predicted)
            predicted &= predicted - u64(1)
            label = _label(values, position, width)
            if label < 0 or label > _MOST:
                problem[FEATURE] = LABELS
                return i64(OUT_OF_RANGE)
            if found < room:
                positions[found], ids[found], weights[found] = position, label, 1.0
            found += 1
    if found > room:
        problem[FEATURE], problem[FOUND], problem[EXPECTED] = POSITIONS, found, room
        return i64(WRONG_COUNT)
    for i in range(found, room):
        positions[i], ids[i], weights[i] = 0, 0, 0.0
    return i64(0)


@subroutine
def _predicted_of_16(values, at, count, width):
    """A bit for each of the up to 16 labels from `at` on: whether its token is to be predicted."""
    if width == 4 and at + 16 <= count:
        return others_of_16(pointer_at(i32_p, values), at, i32(NOT_PREDICTED))
    bits = u64(0)
    for i in range(min(i64(16), count - at)):
        bits |= u64(_label(values, at + i, width) != NOT_PREDICTED) << u64(i)
    return bits


@subroutine
def _label(values, at, width):
    if width == 4:
        return i64(pointer_at(i32_p, values)[at])
    if width == 8:
        return pointer_at(i64_p, values)[at]
    return i64(pointer_at(i8_p, values)[at])

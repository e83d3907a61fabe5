"""Instances to rows of arrays: what a reader would find in their records, without the records.

The rows of a batch are of any shards, in any order. So what is known of a shard is a row of addresses, and the memory of an
instance, which nothing foresees, is asked for a few rows ahead.
"""

from bertprep.kernels.language import (
    copy_numbers,
    f32_p,
    fill,
    i32_p,
    i64,
    i64_p,
    kernel,
    pointer_at,
    prefetch,
    shifted,
    subroutine,
    u8_p,
    u16_p,
)
from bertprep.kernels.numbers import (
    ARRAY_ADDRESS,
    ARRAY_VALUES,
    ARRAY_WIDTH,
    ARRAYS_SIZE,
    INPUT_IDS,
    INPUT_MASK,
    LABELS,
    LIVE_IS_RANDOM,
    LIVE_MASK_ENDS,
    LIVE_ORDER,
    LIVE_POSITIONS,
    LIVE_REPLACEMENTS,
    LIVE_SLICES,
    LIVE_TOKENS,
    LIVE_WIDTH,
    NEXT_SENTENCE,
    POSITIONS,
    SEGMENT_IDS,
    UNCHANGED,
    WEIGHTS,
)

_AHEAD = 4  # rows between asking for an instance's memory and using it


@subroutine
def _rows_of(arrays, feature, row):
    """The address of row `row` of a feature; the arrays are in the order of the features."""
    array = shifted(arrays, ARRAY_WIDTH * feature)
    return array[ARRAY_ADDRESS] + 4 * row * array[ARRAY_VALUES]


@subroutine
def _prefetch_ahead(shards, numbers, records, i, count):
    """Begin to bring what rows a little ahead will need, in the order in which one leads to the other."""
    if i + 3 * _AHEAD < count:
        shard = shifted(shards, LIVE_WIDTH * numbers[i + 3 * _AHEAD])
        prefetch(pointer_at(i64_p, shard[LIVE_ORDER]), records[i + 3 * _AHEAD])
    if i + 2 * _AHEAD < count:
        shard = shifted(shards, LIVE_WIDTH * numbers[i + 2 * _AHEAD])
        instance = pointer_at(i64_p, shard[LIVE_ORDER])[records[i + 2 * _AHEAD]]
        prefetch(pointer_at(i32_p, shard[LIVE_SLICES]), 4 * instance)
        prefetch(pointer_at(u8_p, shard[LIVE_IS_RANDOM]), instance)
        prefetch(pointer_at(i64_p, shard[LIVE_MASK_ENDS]), max(instance - 1, 0))
    if i + _AHEAD < count:
        shard = shifted(shards, LIVE_WIDTH * numbers[i + _AHEAD])
        instance = pointer_at(i64_p, shard[LIVE_ORDER])[records[i + _AHEAD]]
        slices = shifted(pointer_at(i32_p, shard[LIVE_SLICES]), 4 * instance)
        tokens = pointer_at(i32_p, shard[LIVE_TOKENS])
        for segment in range(0, 4, 2):
            start, size = i64(slices[segment]), i64(slices[segment + 1])
            for at in range(0, size + 15, 16):
                prefetch(tokens, start + at)
        ends = pointer_at(i64_p, shard[LIVE_MASK_ENDS])
        mask = ends[instance - 1] if instance else i64(0)
        last = ends[instance] - 1
        positions, replacements = pointer_at(u16_p, shard[LIVE_POSITIONS]), pointer_at(i32_p, shard[LIVE_REPLACEMENTS])
        prefetch(positions, mask)
        prefetch(positions, last)
        while mask < last + 16:
            prefetch(replacements, min(mask, last))
            mask += 16


@kernel
def fill_examples(
    shards: i64_p, numbers: i64_p, records: i64_p, rows: i64_p, count: i64, cls: i64, sep: i64, pad: i64, arrays: i64_p
) -> i64:
    """Record records[i] of shard numbers[i] to row rows[i], for i below `count`; returns count.

    A row of `shards` has the addresses of a shard's instances (LIVE_WIDTH). `arrays` are those of pretraining records, of
    which the last, next_sentence_labels, may be missing; they are as long and have room for as many predictions as needed.
    """
    seq, pred = arrays[ARRAY_VALUES], arrays[ARRAY_WIDTH * POSITIONS + ARRAY_VALUES]
    has_label = arrays[ARRAYS_SIZE] > NEXT_SENTENCE
    for i in range(count):
        _prefetch_ahead(shards, numbers, records, i, count)
        shard = shifted(shards, LIVE_WIDTH * numbers[i])
        instance = pointer_at(i64_p, shard[LIVE_ORDER])[records[i]]
        slices = shifted(pointer_at(i32_p, shard[LIVE_SLICES]), 4 * instance)
        tokens = pointer_at(i32_p, shard[LIVE_TOKENS])
        a_size, b_size = i64(slices[1]), i64(slices[3])
        size = a_size + b_size + 3  # b_size is -1 where there is no pair
        ids = pointer_at(i32_p, _rows_of(arrays, INPUT_IDS, rows[i]))
        ids[0] = cls
        copy_numbers(shifted(ids, 1), shifted(tokens, i64(slices[0])), a_size)
        ids[1 + a_size] = sep
        copy_numbers(shifted(ids, 2 + a_size), shifted(tokens, i64(slices[2])), b_size)
        ids[size - 1] = sep
        fill(ids, size, seq, pad)
        mask = pointer_at(i32_p, _rows_of(arrays, INPUT_MASK, rows[i]))
        fill(mask, i64(0), size, 1)
        fill(mask, size, seq, 0)
        segments = pointer_at(i32_p, _rows_of(arrays, SEGMENT_IDS, rows[i]))
        fill(segments, i64(0), a_size + 2, 0)
        fill(segments, a_size + 2, size, 1)
        fill(segments, size, seq, 0)

        ends = pointer_at(i64_p, shard[LIVE_MASK_ENDS])
        start = ends[instance - 1] if instance else i64(0)
        masks = ends[instance] - start
        masked = shifted(pointer_at(u16_p, shard[LIVE_POSITIONS]), start)
        replacements = shifted(pointer_at(i32_p, shard[LIVE_REPLACEMENTS]), start)
        positions = pointer_at(i32_p, _rows_of(arrays, POSITIONS, rows[i]))
        labels = pointer_at(i32_p, _rows_of(arrays, LABELS, rows[i]))
        weights = pointer_at(f32_p, _rows_of(arrays, WEIGHTS, rows[i]))
        for k in range(masks):
            position = i64(masked[k])
            positions[k], labels[k] = position, ids[position]
            if replacements[k] != UNCHANGED:
                ids[position] = replacements[k]
        fill(positions, masks, pred, 0)
        fill(labels, masks, pred, 0)
        fill(weights, i64(0), masks, 1.0)
        fill(weights, masks, pred, 0.0)
        if has_label:
            label = pointer_at(i32_p, _rows_of(arrays, NEXT_SENTENCE, rows[i]))
            label[0] = pointer_at(u8_p, shard[LIVE_IS_RANDOM])[instance]
    return count

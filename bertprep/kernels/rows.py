"""Instances to rows of arrays: the only layout of records, for files and for training.

The rows of a block may be of any shards, in any order. Masks, segments and weights are copied from patterns of ones and zeros.
The memory of an instance is prefetched a few rows ahead.
"""

from bertprep.kernels import numbers as n
from bertprep.kernels.language import f32_p, i32_p, i64, i64_p, kernel, subroutine, u8_p, u16_p, u32_p
from bertprep.kernels.memory import copy_memory, fill, pointer_at, prefetch, shifted

_AHEAD = 4  # rows between asking for the memory of an instance and using it


@subroutine
def _row(arrays, feature, row, size):
    """Return the address of row `row` of a feature whose values have `size` bytes; arrays are in the order of the features."""
    array = shifted(arrays, n.ARRAY_WIDTH * feature)
    return array[n.ARRAY_ADDRESS] + size * row * array[n.ARRAY_VALUES]


@subroutine
def _prefetch_ahead(shards, indices, records, i, count):
    """Begin to bring what rows a little ahead will need, in the order in which one leads to the other."""
    if i + 3 * _AHEAD < count:
        shard = shifted(shards, n.SHARD_WIDTH * indices[i + 3 * _AHEAD])
        prefetch(pointer_at(i64_p, shard[n.SHARD_ORDER]), records[i + 3 * _AHEAD])
    if i + 2 * _AHEAD < count:
        shard = shifted(shards, n.SHARD_WIDTH * indices[i + 2 * _AHEAD])
        instance = pointer_at(i64_p, shard[n.SHARD_ORDER])[records[i + 2 * _AHEAD]]
        prefetch(pointer_at(i32_p, shard[n.SHARD_SLICES]), 4 * instance)
        prefetch(pointer_at(u8_p, shard[n.SHARD_IS_RANDOM]), instance)
        prefetch(pointer_at(i64_p, shard[n.SHARD_MASK_ENDS]), max(instance - 1, 0))
    if i + _AHEAD < count:
        shard = shifted(shards, n.SHARD_WIDTH * indices[i + _AHEAD])
        instance = pointer_at(i64_p, shard[n.SHARD_ORDER])[records[i + _AHEAD]]
        slices = shifted(pointer_at(i32_p, shard[n.SHARD_SLICES]), 4 * instance)
        tokens = pointer_at(i32_p, shard[n.SHARD_TOKENS])
        for segment in range(0, 4, 2):
            start, size = i64(slices[segment]), i64(slices[segment + 1])
            for at in range(0, size + 15, 16):
                prefetch(tokens, start + at)
        ends = pointer_at(i64_p, shard[n.SHARD_MASK_ENDS])
        first, last = ends[instance - 1] if instance else i64(0), ends[instance] - 1
        prefetch(pointer_at(u16_p, shard[n.SHARD_POSITIONS]), first)
        prefetch(pointer_at(u16_p, shard[n.SHARD_POSITIONS]), last)
        for mask in range(first, last + 16, 16):
            prefetch(pointer_at(i32_p, shard[n.SHARD_REPLACEMENTS]), min(mask, last))


@kernel
def lay_out(
    cls: i64, sep: i64, pad: i64, patterns: i64_p, arrays: i64_p, shards: i64_p, indices: i64_p, records: i64_p, count: i64
) -> i64:
    """Write record records[i] of shard indices[i] to row i of the arrays, for `count` of them; return `count`.

    A row of `shards` has the addresses of a shard's instances (SHARD_WIDTH). The last of `arrays`, next_sentence_labels, is
    optional. `patterns` are the addresses of seq ones then seq zeros, seq zeros then seq ones, and pred weights 1.0 then pred
    weights 0.0.
    """
    seq, pred = arrays[n.ARRAY_WIDTH * n.INPUT_IDS + n.ARRAY_VALUES], arrays[n.ARRAY_WIDTH * n.POSITIONS + n.ARRAY_VALUES]
    has_label = arrays[n.ARRAYS_SIZE] > n.NEXT_SENTENCE
    ones, zeros_ones = pointer_at(u8_p, patterns[0]), pointer_at(u8_p, patterns[1])
    float_ones = pointer_at(f32_p, patterns[2])
    for i in range(count):
        _prefetch_ahead(shards, indices, records, i, count)
        shard = shifted(shards, n.SHARD_WIDTH * indices[i])
        tokens = pointer_at(i32_p, shard[n.SHARD_TOKENS])
        instance = pointer_at(i64_p, shard[n.SHARD_ORDER])[records[i]]
        slices = shifted(pointer_at(i32_p, shard[n.SHARD_SLICES]), 4 * instance)
        a_size, b_size = i64(slices[1]), i64(slices[3])
        size = a_size + b_size + 3  # b_size is -1 where there is no pair
        ids = pointer_at(i32_p, _row(arrays, n.INPUT_IDS, i, 4))
        ids[0] = cls
        copy_memory(shifted(ids, 1), shifted(tokens, i64(slices[0])), a_size)
        ids[1 + a_size] = sep
        copy_memory(shifted(ids, 2 + a_size), shifted(tokens, i64(slices[2])), max(b_size, 0))
        ids[size - 1] = sep
        fill(ids, size, seq, pad)
        copy_memory(pointer_at(u8_p, _row(arrays, n.INPUT_MASK, i, 1)), shifted(ones, seq - size), seq)
        segments = pointer_at(u8_p, _row(arrays, n.SEGMENT_IDS, i, 1))
        copy_memory(segments, shifted(zeros_ones, seq - a_size - 2), size)
        fill(segments, size, seq, 0)

        ends = pointer_at(i64_p, shard[n.SHARD_MASK_ENDS])
        start = ends[instance - 1] if instance else i64(0)
        masks = ends[instance] - start
        masked = shifted(pointer_at(u16_p, shard[n.SHARD_POSITIONS]), start)
        replacements = shifted(pointer_at(i32_p, shard[n.SHARD_REPLACEMENTS]), start)
        positions = pointer_at(i32_p, _row(arrays, n.POSITIONS, i, 4))
        labels = pointer_at(i32_p, _row(arrays, n.LABELS, i, 4))
        for k in range(masks):
            position = i64(masked[k])
            positions[k], labels[k] = position, ids[position]
            if replacements[k] != n.UNCHANGED:
                ids[position] = replacements[k]
        fill(positions, masks, pred, 0)
        fill(labels, masks, pred, 0)
        copy_memory(pointer_at(f32_p, _row(arrays, n.WEIGHTS, i, 4)), shifted(float_ones, pred - masks), pred)
        if has_label:
            pointer_at(u8_p, _row(arrays, n.NEXT_SENTENCE, i, 1))[0] = pointer_at(u8_p, shard[n.SHARD_IS_RANDOM])[instance]
    return count


@kernel
def make_labels(
    rows: i64, seq: i64, pred: i64, positions: i32_p, ids: i32_p, weights: u32_p, labels: i32_p
) -> i64:  # fmt: skip
    """Make the labels of predictions, whose weights are bits; return the first row that has none, or `rows`.

    Only ascending positions of weight 1, then zeros, can be labels.
    """
    for row in range(rows):
        fill(labels, i64(0), seq, n.NOT_PREDICTED)
        before, i = i64(-1), i64(0)
        while i < pred and i64(weights[i]) == n.FLOAT_ONE and before < i64(positions[i]) < seq:
            before = i64(positions[i])
            labels[before] = ids[i]
            i += 1
        rest = i64(0)
        while i < pred:
            rest |= i64(positions[i]) | i64(ids[i]) | i64(weights[i])
            i += 1
        if rest:
            return row
        positions, ids, weights = shifted(positions, pred), shifted(ids, pred), shifted(weights, pred)
        labels = shifted(labels, seq)
    return rows


@kernel
def take_labels(
    rows: i64, seq: i64, pred: i64, labels: i32_p, positions: i32_p, ids: i32_p, weights: f32_p
) -> i64:  # fmt: skip
    """Make the predictions of some labels; return the first row with a label below 0 or more than `pred`, or `rows`."""
    first = rows
    for row in range(rows):
        found, lowest = i64(0), i64(0)
        for position in range(seq):
            label = labels[position]
            if label != n.NOT_PREDICTED:
                lowest = min(lowest, i64(label))
                if found < pred:
                    positions[found], ids[found], weights[found] = position, label, 1.0
                found += 1
        for i in range(found, pred):
            positions[i], ids[i], weights[i] = 0, 0, 0.0
        if lowest < 0 or found > pred:
            first = min(first, row)
        positions, ids, weights = shifted(positions, pred), shifted(ids, pred), shifted(weights, pred)
        labels = shifted(labels, seq)
    return first

"""Lays out instances as rows of a block, for files and for training, and converts predictions to labels and back.

The rows of a block may come from any shards, in any order. Masks, segments and weights are copied from patterns of ones and
zeros. The memory of an instance is prefetched a few rows ahead.
"""

from bertprep.kernels import numbers as n
from bertprep.kernels.language import (
    Block,
    Table,
    f32_p,
    i32_p,
    i64,
    i64_p,
    kernel,
    struct,
    subroutine,
    u8_p,
    u16_p,
    u32_p,
)
from bertprep.kernels.memory import copy_memory, field_at, field_values, fill, pointer_at, prefetch, shifted

Shard = struct(
    {
        "slices": "4 * len(order)", "is_random_next": "len(order)", "mask_ends": "len(order)",
        "mask_positions": "int(mask_ends[-1]) if len(mask_ends) else 0",
        "mask_replacements": "int(mask_ends[-1]) if len(mask_ends) else 0",
    },
    tokens=i32_p, slices=i32_p, is_random_next=u8_p, mask_ends=i64_p, mask_positions=u16_p, mask_replacements=i32_p,
    order=i64_p,
)  # fmt: skip
"""The arrays of a shard's `generator.Instances`."""
Shards = Table(Shard)
_WIDTH = len(Shard.fields)
_AHEAD = 4  # rows between prefetching the memory of an instance and using it


@subroutine
def _prefetch_ahead(shards, indices, records, i, count):
    """Prefetch the memory of the next rows in three steps, because the addresses of a step are found in the step before."""
    if i + 3 * _AHEAD < count:
        shard = Shard(shifted(shards, _WIDTH * indices[i + 3 * _AHEAD]))
        prefetch(shard.order, records[i + 3 * _AHEAD])
    if i + 2 * _AHEAD < count:
        shard = Shard(shifted(shards, _WIDTH * indices[i + 2 * _AHEAD]))
        instance = shard.order[records[i + 2 * _AHEAD]]
        prefetch(shard.slices, 4 * instance)
        prefetch(shard.is_random_next, instance)
        prefetch(shard.mask_ends, max(instance - 1, 0))
    if i + _AHEAD < count:
        shard = Shard(shifted(shards, _WIDTH * indices[i + _AHEAD]))
        instance = shard.order[records[i + _AHEAD]]
        slices = shifted(shard.slices, 4 * instance)
        for segment in range(0, 4, 2):
            start, size = i64(slices[segment]), i64(slices[segment + 1])
            for at in range(0, size + 15, 16):
                prefetch(shard.tokens, start + at)
        ends = shard.mask_ends
        first, last = ends[instance - 1] if instance else i64(0), ends[instance] - 1
        prefetch(shard.mask_positions, first)
        prefetch(shard.mask_positions, last)
        for mask in range(first, last + 16, 16):
            prefetch(shard.mask_replacements, min(mask, last))


@kernel(
    "count <= len(block)",
    ones="3 * block.dtype['input_ids'].shape[0]", weights="2 * block.dtype['masked_lm_ids'].shape[0]",
    shards="int(indices[:count].max(initial=-1)) + 1", indices="count", records="count",
)  # fmt: skip
def lay_out(
    cls: i64, sep: i64, pad: i64, ones: u8_p, weights: f32_p, block: Block, shards: Shards, indices: i64_p, records: i64_p,
    count: i64,
) -> i64:  # fmt: skip
    """Write record records[i] of shard indices[i] to row i of the block, for i < count; return `count`.

    The last field, next_sentence_labels, is optional. `ones` must be seq ones, seq zeros and seq ones, and `weights` pred ones
    and pred zeros.
    """
    seq, pred = field_values(block, n.INPUT_IDS), field_values(block, n.POSITIONS)
    has_label = block[n.BLOCK_FIELDS] > n.NEXT_SENTENCE
    zeros_ones = shifted(ones, seq)
    for i in range(count):
        _prefetch_ahead(shards, indices, records, i, count)
        shard = Shard(shifted(shards, _WIDTH * indices[i]))
        tokens, instance = shard.tokens, shard.order[records[i]]
        slices = shifted(shard.slices, 4 * instance)
        a_size, b_size = i64(slices[1]), i64(slices[3])
        size = a_size + b_size + 3  # b_size is -1 without a second segment
        ids = pointer_at(i32_p, field_at(block, n.INPUT_IDS, i))
        ids[0] = cls
        copy_memory(shifted(ids, 1), shifted(tokens, i64(slices[0])), a_size)
        ids[1 + a_size] = sep
        copy_memory(shifted(ids, 2 + a_size), shifted(tokens, i64(slices[2])), max(b_size, 0))
        ids[size - 1] = sep
        fill(ids, size, seq, pad)
        copy_memory(pointer_at(u8_p, field_at(block, n.INPUT_MASK, i)), shifted(ones, seq - size), seq)
        segments = pointer_at(u8_p, field_at(block, n.SEGMENT_IDS, i))
        copy_memory(segments, shifted(zeros_ones, seq - a_size - 2), size)
        fill(segments, size, seq, 0)

        start = shard.mask_ends[instance - 1] if instance else i64(0)
        masks = shard.mask_ends[instance] - start
        masked, replacements = shifted(shard.mask_positions, start), shifted(shard.mask_replacements, start)
        positions = pointer_at(i32_p, field_at(block, n.POSITIONS, i))
        labels = pointer_at(i32_p, field_at(block, n.LABELS, i))
        for k in range(masks):
            position = i64(masked[k])
            positions[k], labels[k] = position, ids[position]
            if replacements[k] != n.UNCHANGED:
                ids[position] = replacements[k]
        fill(positions, masks, pred, 0)
        fill(labels, masks, pred, 0)
        copy_memory(pointer_at(f32_p, field_at(block, n.WEIGHTS, i)), shifted(weights, pred - masks), pred)
        if has_label:
            pointer_at(u8_p, field_at(block, n.NEXT_SENTENCE, i))[0] = shard.is_random_next[instance]
    return count


@kernel("rows <= len(block)", labels="rows * block.dtype['input_ids'].shape[0]")
def make_labels(block: Block, rows: i64, labels: i32_p) -> i64:
    """Convert the predictions of the first records to labels (rows, seq); return `rows`, or the first row that cannot be.

    A row can be converted if its positions ascend and have the weight 1, and everything after them is zeros.
    """
    seq, pred = field_values(block, n.INPUT_IDS), field_values(block, n.POSITIONS)
    for row in range(rows):
        positions = pointer_at(i32_p, field_at(block, n.POSITIONS, row))
        ids = pointer_at(i32_p, field_at(block, n.LABELS, row))
        weights = pointer_at(u32_p, field_at(block, n.WEIGHTS, row))  # the bits of the floats
        fill(labels, i64(0), seq, n.NOT_PREDICTED)
        before, i = i64(-1), i64(0)
        while i < pred and i64(weights[i]) == n.FLOAT_ONE and before < i64(positions[i]) < seq and ids[i] >= 0:
            before = i64(positions[i])
            labels[before] = ids[i]
            i += 1
        rest = i64(0)
        while i < pred:
            rest |= i64(positions[i]) | i64(ids[i]) | i64(weights[i])
            i += 1
        if rest:
            return row
        labels = shifted(labels, seq)
    return rows


@kernel("0 <= first <= len(block) - rows", labels="rows * block.dtype['input_ids'].shape[0]")
def take_labels(labels: i32_p, rows: i64, block: Block, first: i64) -> i64:
    """Convert labels (rows, seq) to the predictions of the records from `first` on.

    Return `rows`, or the first row with a negative label or with more than `pred` labels.
    """
    seq, pred = field_values(block, n.INPUT_IDS), field_values(block, n.POSITIONS)
    wrong = rows
    for row in range(rows):
        positions = pointer_at(i32_p, field_at(block, n.POSITIONS, first + row))
        ids = pointer_at(i32_p, field_at(block, n.LABELS, first + row))
        weights = pointer_at(f32_p, field_at(block, n.WEIGHTS, first + row))
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
            wrong = min(wrong, row)
        labels = shifted(labels, seq)
    return wrong

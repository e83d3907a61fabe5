"""Records to the columns of an Arrow record batch: the values of each column stand together, a row after the other, in place.

`records.columns` says which columns those are. A column of labels is -100 but where a token is to be predicted, and a record
whose predictions are not what a generator makes, ascending positions of weight 1 and then zeros, has no such form.
"""

from bertprep.kernels.encode import prefetch_instance
from bertprep.kernels.language import (
    copy_numbers,
    fill,
    i32_p,
    i64,
    i64_p,
    kernel,
    pointer_at,
    shifted,
    store_u64,
    u8_p,
    u16_p,
    u32_p,
    u64,
)
from bertprep.kernels.numbers import FLOAT_ONE, NOT_PREDICTED, UNCHANGED


@kernel
def encode_columns(
    first: i64, end: i64, order: i64_p, seq: i64, tokens: i32_p, cls: i64, sep: i64, pad: i64,
    slices: i32_p, is_random_next: u8_p, mask_ends: i64_p, mask_positions: u16_p, mask_replacements: i32_p,
    column_count: i64, columns: i64_p,
) -> i64:  # fmt: skip
    """Write records `first` to `end` - 1, record k being instance order[k], to the rows from 0 on; returns `end`.

    `columns` has the addresses of input_ids, token_type_ids, attention_mask, labels and, unless that is not one of them,
    next_sentence_label.
    """
    has_label = column_count > 4
    ids, labels = pointer_at(i32_p, columns[0]), pointer_at(i32_p, columns[3])
    segments, mask = pointer_at(u8_p, columns[1]), pointer_at(u8_p, columns[2])
    is_random = pointer_at(u8_p, columns[4] if has_label else i64(0))
    for record in range(first, end):
        prefetch_instance(order, record, end, slices, is_random_next, mask_ends, tokens, mask_positions, mask_replacements)
        instance = order[record]
        a_size, b_size = i64(slices[4 * instance + 1]), i64(slices[4 * instance + 3])
        size = a_size + b_size + 3
        ids[0] = cls
        copy_numbers(shifted(ids, 1), shifted(tokens, i64(slices[4 * instance])), a_size)
        ids[1 + a_size] = sep
        copy_numbers(shifted(ids, 2 + a_size), shifted(tokens, i64(slices[4 * instance + 2])), b_size)
        ids[size - 1] = sep
        fill(ids, size, seq, pad)
        fill(segments, i64(0), a_size + 2, 0)
        fill(segments, a_size + 2, size, 1)
        fill(segments, size, seq, 0)
        fill(mask, i64(0), size, 1)
        fill(mask, size, seq, 0)
        fill(labels, i64(0), seq, NOT_PREDICTED)
        for i in range(mask_ends[instance - 1] if instance else i64(0), mask_ends[instance]):
            position = i64(mask_positions[i])
            labels[position] = ids[position]
            if mask_replacements[i] != UNCHANGED:
                ids[position] = mask_replacements[i]
        if has_label:
            store_u64(is_random, i64(0), u64(is_random_next[instance]))
            is_random = shifted(is_random, 8)
        ids, labels = shifted(ids, seq), shifted(labels, seq)
        segments, mask = shifted(segments, seq), shifted(mask, seq)
    return end


@kernel
def make_labels(
    rows: i64, seq: i64, pred: i64, positions: i32_p, ids: i32_p, weights: u32_p, labels: i32_p
) -> i64:  # fmt: skip
    """The column of labels of some predictions, weights given as their bits; returns the first row that has none, or `rows`."""
    for row in range(rows):
        fill(labels, i64(0), seq, NOT_PREDICTED)
        before, i = i64(-1), i64(0)
        while i < pred and i64(weights[i]) == FLOAT_ONE and before < i64(positions[i]) < seq:
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

"""The loops of SQuAD's features: answers are narrowed to their own tokens, and windows of a paragraph become rows of arrays."""

from bertprep.kernels.language import i32_p, i64, i64_p, kernel


@kernel
def narrow_spans(count: i64, tokens: i32_p, starts: i64_p, ends: i64_p, answers: i32_p, answer_ends: i64_p) -> i64:
    """Narrow each span tokens[starts[i]:ends[i] + 1] to the first run in it that equals answer i; return how many have one.

    Answer i is answers[answer_ends[i - 1]:answer_ends[i]], from 0 for the first.
    """
    found = i64(0)
    begin = i64(0)
    for i in range(count):
        size = answer_ends[i] - begin
        at = starts[i]
        last = ends[i] + 1 - size
        while size > 0 and at <= last:
            k = i64(0)
            while k < size and tokens[at + k] == answers[begin + k]:
                k += 1
            if k == size:
                starts[i] = at
                ends[i] = at + size - 1
                found += 1
                break
            at += 1
        begin = answer_ends[i]
    return found


@kernel
def write_windows(
    count: i64, seq: i64, cls: i64, sep: i64, pad: i64,
    queries: i32_p, query_starts: i64_p, query_sizes: i64_p,
    tokens: i32_p, starts: i64_p, sizes: i64_p,
    input_ids: i32_p, input_mask: i32_p, segment_ids: i32_p,
) -> i64:  # fmt: skip
    """Write `count` rows of `seq` values: [CLS], a question, [SEP], a window of its paragraph, [SEP], padding.

    Row i has queries[query_starts[i]:][:query_sizes[i]] and tokens[starts[i]:][:sizes[i]]. Padding is `pad` in input_ids, else
    0.
    """
    for i in range(count):
        at = i * seq
        end = at + seq
        query, start = query_starts[i], starts[i]
        first = at + query_sizes[i] + 2
        last = first + sizes[i]
        input_ids[at] = cls
        for k in range(query_sizes[i]):
            input_ids[at + 1 + k] = queries[query + k]
        input_ids[first - 1] = sep
        for k in range(sizes[i]):
            input_ids[first + k] = tokens[start + k]
        input_ids[last] = sep
        for k in range(at, first):
            input_mask[k] = 1
            segment_ids[k] = 0
        for k in range(first, last + 1):
            input_mask[k] = 1
            segment_ids[k] = 1
        for k in range(last + 1, end):
            input_ids[k] = pad
            input_mask[k] = 0
            segment_ids[k] = 0
    return 0

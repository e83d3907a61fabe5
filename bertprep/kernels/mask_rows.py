"""Makes the rows of a batch from packed sequences: ids, labels and positions, with tokens masked.

The rows of a batch may be from different windows: each row names its window, whose addresses the kernel has. Draw i of a row is
a hash of the row's key and i (splitmix64), so a row is the same in any batch, process or order. `bertprep.tokens.reference` has
the algorithm in plain Python. A row of 1,024 tokens, 30% of them masked, takes about 5 microseconds.
"""

from bertprep.kernels import numbers as n
from bertprep.kernels.language import (
    f64_p,
    i32_p,
    i64,
    i64_p,
    inlined,
    kernel,
    struct,
    subroutine,
    u8_p,
    u16_p,
    u32_p,
    u64,
    u64_p,
)
from bertprep.kernels.memory import copy_numbers, fill, pointer_at, shifted

_STEP = u64(0x9E3779B97F4A7C15)  # splitmix64
_MIX_1, _MIX_2 = u64(0xBF58476D1CE4E5B9), u64(0x94D049BB133111EB)
_SHIFT_1, _SHIFT_2, _SHIFT_3, _HALF = u64(30), u64(27), u64(31), u64(32)
_LOW_32 = u64(0xFFFFFFFF)


RowSettings = struct(
    {
        "before": "before_size", "after": "after_size",
        "is_special": "width", "begins_word": "width", "span_below": "longest_span",
        "words": "3 * (seq + 1)", "state": "1",
    },
    seq=i64, pad=i64, mask=i64,  # mask is NO_TOKEN if the tokenizer lacks it
    before=i64_p, before_size=i64, after=i64_p, after_size=i64,  # the special tokens around a sequence
    first_position=i64, is_causal=i64,
    is_pair=i64,  # the sequences of a row are segments: [CLS] A [SEP] B [SEP]
    width=i64, is_special=u8_p,  # (width,), by id, or there is no token with this id; all ids are below `width`
    whole_words=i64, begins_word=u8_p,  # (width,), by id, for windows without word bits
    longest_word=i64,  # in tokens; longer words are masked token by token
    mask_below=i64, random_below=i64,  # probabilities in units of 2**-32: a draw below them gives [MASK], a random token
    span_below=i64_p, longest_span=i64,  # probabilities in units of 2**-32 of spans of up to 1, 2, ... words
    rounds_up=i64,  # whether the number of tokens to mask is rounded up, or to the nearest number
    is_spanbert=i64,  # whether spans begin at the words of random tokens, and their kind of replacement is drawn once per span
    keeps_spans=i64,  # whether a span that meets a masked word is skipped, as in ALBERT, or cut off there
    words=i32_p,  # scratch, (3, seq + 1)
    state=u64_p,  # scratch, one number
)  # fmt: skip
"""The settings of rows, `s` below."""


@inlined
def draw(state):
    """Return the next 64 random bits of a splitmix64."""
    state[0] += _STEP
    mixed = state[0]
    mixed = (mixed ^ (mixed >> _SHIFT_1)) * _MIX_1
    mixed = (mixed ^ (mixed >> _SHIFT_2)) * _MIX_2
    return mixed ^ (mixed >> _SHIFT_3)


@subroutine
def _copy_tokens(s, window, begin, size, ids):
    """Copy tokens of a window's shard to `ids`; return whether all of them are ids of the tokenizer."""
    if window[n.WINDOW_TOKEN_BYTES] == 2:
        copy_numbers(ids, shifted(pointer_at(u16_p, window[n.WINDOW_TOKENS]), begin), size)
    else:
        copy_numbers(ids, shifted(pointer_at(i32_p, window[n.WINDOW_TOKENS]), begin), size)
    is_wrong = False
    for i in range(size):
        is_wrong |= (ids[i] < 0) | (ids[i] >= s.width)
    return not is_wrong


@subroutine
def _split_last_word(s, words):
    """Split the last word, which has `longest_word` tokens, into words of one token; return the number of words."""
    starts, ends = s.words, shifted(s.words, s.seq + 1)
    first = starts[words - 1]
    for i in range(s.longest_word):
        starts[words - 1 + i] = first + i
        ends[words - 1 + i] = first + i + 1
    return words + s.longest_word - 1


@subroutine
def _list_words(s, window, begin, size, ids, at, word):
    """Write where the words of a sequence start and end, without special tokens; return the number of words so far.

    In a word of more than `longest_word` tokens, each token becomes a word of its own.
    """
    starts, ends = s.words, shifted(s.words, s.seq + 1)
    bits, has_bits = pointer_at(u8_p, window[n.WINDOW_WORD_BITS]), window[n.WINDOW_WORD_BITS] != 0
    is_open, is_long = False, False
    for i in range(size):
        token = ids[at + i]
        if s.is_special[token]:
            is_open = False
            continue
        begins = True
        if s.whole_words and is_open:
            if has_bits:
                begins = (bits[(begin + i) >> 3] >> ((begin + i) & 7)) & 1 != 0
            else:
                begins = s.begins_word[token] != 0
            if begins:
                is_long = False
            elif is_long:
                begins = True
            elif at + i - starts[word - 1] == s.longest_word:
                word = _split_last_word(s, word)
                is_long, begins = True, True
        else:
            is_long = False
        if begins:
            starts[word] = at + i
            word += 1
        ends[word - 1] = at + i + 1
        is_open = True
    return word


@subroutine
def _mask_token(s, ids, labels, position, bits):
    """Copy a token's id to its label, and replace the token with [MASK], a random token that is not special, or itself.

    `bits` decide which.
    """
    labels[position] = ids[position]
    kind = i64(bits >> _HALF)
    if kind < s.mask_below:
        ids[position] = s.mask
    elif kind < s.random_below:
        token = i64(((bits & _LOW_32) * u64(s.width)) >> _HALF)
        while s.is_special[token]:
            token = i64(((draw(s.state) & _LOW_32) * u64(s.width)) >> _HALF)
        ids[position] = token


@subroutine
def _mask_tokens_of_words(s, words, wanted, ids, labels):
    """Mask `wanted` random tokens in words that are not masked yet; these words have at least that many tokens."""
    starts, ends, left = s.words, shifted(s.words, s.seq + 1), shifted(s.words, 2 * (s.seq + 1))
    count = 0
    for word in range(words):
        if labels[starts[word]] == n.NOT_PREDICTED:
            for position in range(starts[word], ends[word]):
                left[count] = position
                count += 1
    for i in range(wanted):
        other = i + i64(((draw(s.state) >> _HALF) * u64(count - i)) >> _HALF)
        position = i64(left[other])
        left[other] = left[i]
        _mask_token(s, ids, labels, position, draw(s.state))


@subroutine
def _words_in_reach(s, word, words, sequence_ids):
    """Return how many words, at most `longest_span`, are adjacent from `word` on in its sequence, including `word`."""
    starts, ends = s.words, shifted(s.words, s.seq + 1)
    count = 1
    while count < s.longest_span and word + count < words:
        before, start = i64(ends[word + count - 1]), i64(starts[word + count])
        if start != before or sequence_ids[start] != sequence_ids[before - 1]:
            break
        count += 1
    return count


@subroutine
def _draw_span(s):
    """Return a random number of words, at most `longest_span`."""
    length = i64(draw(s.state) >> _HALF)
    span = 1
    while span < s.longest_span and length >= s.span_below[span - 1]:
        span += 1
    return span


@subroutine
def _words_that_fit(s, word, span, space, labels):
    """Return how many words of a span can be masked with at most `space` tokens.

    A masked word ends the span, or makes it empty if `keeps_spans` is set.
    """
    starts, ends = s.words, shifted(s.words, s.seq + 1)
    fitting, tokens = 0, i64(0)
    while fitting < span:
        start = i64(starts[word + fitting])
        tokens += i64(ends[word + fitting]) - start
        if tokens > space:
            break
        if labels[start] != n.NOT_PREDICTED:
            if s.keeps_spans:
                fitting = 0
            break
        fitting += 1
    return fitting


@subroutine
def _mask_words(s, words, share, ids, labels, sequence_ids):
    """Mask spans of words, starting at words in random order, until a share of the tokens, and at least one, is masked.

    SpanBERT's spans start at the words of tokens in random order, so a long word is more likely to be masked. If no further
    word fits, single tokens of the remaining words are masked, so that every row has exactly the wanted number.
    """
    starts, ends, order = s.words, shifted(s.words, s.seq + 1), shifted(s.words, 2 * (s.seq + 1))
    candidates, anchors = i64(0), i64(0)
    for word in range(words):
        size = i64(ends[word] - starts[word])
        candidates += size
        for _ in range(size if s.is_spanbert else i64(1)):
            order[anchors] = word
            anchors += 1
    wanted = min(candidates, max(_rounded(s, share * candidates), i64(1)))
    masked = i64(0)
    for i in range(anchors):
        if masked >= wanted:
            break
        other = i + i64(((draw(s.state) >> _HALF) * u64(anchors - i)) >> _HALF)
        word = i64(order[other])
        order[other] = order[i]
        span = 1
        if s.longest_span > 1:
            span = min(_draw_span(s), _words_in_reach(s, word, words, sequence_ids))
        span = _words_that_fit(s, word, span, wanted - masked, labels)
        if span == 0:
            continue
        kind = u64(0)
        if s.is_spanbert:
            kind = (draw(s.state) >> _HALF) << _HALF
        for position in range(starts[word], ends[word + span - 1]):
            bits = draw(s.state)
            if s.is_spanbert:
                bits = kind | (bits & _LOW_32)
            _mask_token(s, ids, labels, position, bits)
            masked += 1
    if masked < wanted:
        _mask_tokens_of_words(s, words, wanted - masked, ids, labels)


@inlined
def _rounded(s, number):
    """Round a number that is not negative up, or to the nearest integer, and halves to the even one."""
    floor = i64(number)
    rest = number - floor
    if (s.rounds_up and rest > 0) or rest > 0.5 or (rest == 0.5 and floor % 2 == 1):
        floor += 1
    return floor


@subroutine
def _number(s, positions, sequences, start, end, number):
    for i in range(start, end):
        positions[i] = s.first_position + i - start
        sequences[i] = number


@kernel(
    windows="WINDOW_WIDTH * (int(indices[:count].max(initial=-1)) + 1)", indices="count", rows="count", keys="count",
    shares="count",
    input_ids="count * seq", labels="count * seq", position_ids="count * seq", sequence_ids="count * seq",
)  # fmt: skip
def fill_rows(
    settings: RowSettings, windows: i64_p, indices: i64_p, rows: i64_p, keys: u64_p, shares: f64_p, count: i64,
    input_ids: i64_p, labels: i64_p, position_ids: i64_p, sequence_ids: i64_p,
) -> i64:  # fmt: skip
    """Write row rows[i] of window indices[i] to row i of the arrays, and mask the fraction shares[i] of its tokens.

    Return `count`, or the first row with a fault: an id out of range, or more than `seq` tokens.

    Each row of `windows` describes a window (WINDOW_WIDTH). Padding counts as a separate sequence. Tokens that are not
    predicted have the label -100. With causal labels, which models shift, these are padding and the first token of each
    sequence.
    """
    s = RowSettings(settings)
    for i in range(count):
        window = shifted(windows, n.WINDOW_WIDTH * indices[i])
        begins, sizes = pointer_at(u32_p, window[n.WINDOW_BEGINS]), pointer_at(i32_p, window[n.WINDOW_SIZES])
        row_starts = shifted(pointer_at(i32_p, window[n.WINDOW_ROW_STARTS]), rows[i])
        ids, row_labels = shifted(input_ids, i * s.seq), shifted(labels, i * s.seq)
        positions, sequences = shifted(position_ids, i * s.seq), shifted(sequence_ids, i * s.seq)
        fill(row_labels, i64(0), s.seq, n.NOT_PREDICTED)
        at, words = i64(0), i64(0)
        for sequence in range(i64(row_starts[0]), i64(row_starts[1])):
            first, begin, size = at, i64(begins[sequence]), i64(sizes[sequence])
            before_size = i64(0) if s.is_pair and sequence > row_starts[0] else s.before_size
            if at + before_size + size + s.after_size > s.seq:
                return i
            copy_numbers(shifted(ids, at), s.before, before_size)
            at += before_size
            if not _copy_tokens(s, window, begin, size, shifted(ids, at)):
                return i
            if not s.is_causal:
                words = _list_words(s, window, begin, size, ids, at, words)
            at += size
            copy_numbers(shifted(ids, at), s.after, s.after_size)
            at += s.after_size
            if s.is_causal:
                copy_numbers(shifted(row_labels, first + 1), shifted(ids, first + 1), at - first - 1)
            _number(s, positions, sequences, first, at, sequence - row_starts[0])
        fill(ids, at, s.seq, s.pad)
        _number(s, positions, sequences, at, s.seq, row_starts[1] - row_starts[0])
        if not s.is_causal:
            s.state[0] = keys[i]
            s.state[0] = draw(s.state)  # hashes the key, so that rows with similar keys have unrelated draws
            _mask_words(s, words, shares[i], ids, row_labels, sequences)
    return count

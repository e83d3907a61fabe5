"""Checks whether records are BERT examples: faults, statistics and hashes, in one pass over the arrays.

The text of a record is its tokens with the labels restored. Each record has two hashes, of its text and of all values. Their
lowest bits are flags: the first's is set if the text is long and varied, so that no other equals it by chance; the second's six
are c: other masks of the same text are equal with a probability of at most 2**-c.
"""

from collections import namedtuple

from bertprep.kernels import numbers as n
from bertprep.kernels.language import f32_p, i32_p, i64, i64_p, kernel, struct, subroutine, u8_p, u64, u64_p
from bertprep.kernels.memory import count_bits, pointer_at, shifted

_CERTAIN_TEXT = 32  # tokens; shorter ones, such as two stock phrases, come again by themselves
_MAX_CHOICES = 63
_SHOWN_ALIKE = 32
"""In units of 1 / CHOICE: two draws show the same at a position with a chance of 0.8**2 + 0.1**2 + ..., below 0.71."""

Checker = struct(
    # the rules; see `check.records`
    seq=i64, pred=i64, vocabulary=i64, cls=i64, sep=i64, mask=i64, pad=i64, segments=i64, count_rule=i64, step=i64,
    by_length=i64_p, half_up=i64_p,  # (seq + 1,) predictions, halves rounded to even, and up where that is right too
    kinds=u8_p,  # (vocabulary,) CONTINUES and ALONE_IN_WORD
    log2_factorials=i64_p,  # (seq + 1,) in units of 1 / CHOICE
    keys=u64_p,  # random numbers: seq for the hash of the text, and one for each value of a record
    # scratch memory
    text=i32_p,  # (seq + 1,)
    words=i64_p,  # (WORD_ROWS, seq + 1)
    unpaired=i32_p,  # (seq + 2,) a record with a random B to compare with the next: first [SEP], length or 0 for none, text
    segments_in_bits=u64_p,  # (4, SKETCH_WORDS) sketches of its A and B, and of those of the next
    # the results, which are added to
    faults=i64_p,  # (VALUE_FAULTS, VALUE_FAULT_WIDTH)
    lengths=i64_p, lengths_of_a=i64_p, predictions=i64_p, positions=i64_p, labels=i64_p, tokens=i64_p, shown=i64_p,
    next_sentence=i64_p, position_steps=i64_p, expected_labels=i64_p, word_positions=i64_p, word_labels=i64_p,
    replaced=i64_p, signs=i64_p, predicted=i64_p,  # see `check.outcome.RecordCounts`
    sketches=u64_p, sketched=i64_p,  # of the first two of each `step` records: a sketch; the length and the first token
)  # fmt: skip
"""The checker of a file: `t` below; `r` is the record that it looks at."""
Record = namedtuple("Record", "index ids mask segments positions labels weights")


@subroutine
def _values(arrays, feature, row):
    """The address of a row of a feature, whose values have 4 bytes."""
    array = shifted(arrays, n.ARRAY_WIDTH * feature)
    return array[n.ARRAY_ADDRESS] + 4 * row * array[n.ARRAY_VALUES]


@subroutine
def _note(t, r, fault, position, expected, found):
    """Count a fault, and keep the first one's particulars; returns 1."""
    row = shifted(t.faults, n.VALUE_FAULT_WIDTH * fault)
    if row[n.FAULT_COUNT] == 0:
        row[n.FAULT_RECORD], row[n.FAULT_POSITION], row[n.FAULT_EXPECTED], row[n.FAULT_FOUND] = (
            r.index, position, expected, found
        )  # fmt: skip
    row[n.FAULT_COUNT] += 1
    return 1


@subroutine
def _first_other(values, start, stop, wanted):
    position = start
    while position < stop and values[position] == wanted:
        position += 1
    return position


@subroutine
def _first(values, start, stop, wanted):
    """The first position from `start` on that holds `wanted`, or `stop`."""
    position = start
    while position < stop and values[position] != wanted:
        position += 1
    return position


@subroutine
def _check_all(t, r, fault, values, start, stop, wanted, expected):
    """Note the first of values[start:stop] that is not `wanted`; returns whether there is one."""
    position = _first_other(values, start, stop, wanted)
    return _note(t, r, fault, position, expected, i64(values[position])) if position < stop else 0


@subroutine
def _check_padding(t, r):
    """(tokens of text, whether there is a fault)."""
    bad = 0
    length = _first_other(r.mask, 0, t.seq, 1)  # what is wrong comes after, or there where it is neither 0 nor 1
    wrong = _first_other(r.mask, length, t.seq, 0)
    if wrong < t.seq or length == 0:
        wrong = min(wrong, t.seq - 1)
        bad |= _note(t, r, n.UNEVEN_MASK, wrong, 0, i64(r.mask[wrong]))
    bad |= _check_all(t, r, n.PADDING_IDS, r.ids, length, t.seq, t.pad, length)
    bad |= _check_all(t, r, n.PADDING_SEGMENTS, r.segments, length, t.seq, 0, length)
    return length, bad


@subroutine
def _count_candidates(text, length, sep):
    """The tokens between [CLS] and the last token that are no [SEP]."""
    candidates = 0
    for position in range(1, length - 1):
        candidates += i64(text[position] != sep)
    return candidates


@subroutine
def _check_predictions(t, r, length):
    """(number of predictions, whether there is a fault); puts the labels back into the text."""
    count, bad = 0, 0
    while count < t.pred and r.weights[count] == 1.0:
        count += 1
    wrong = _first_other(r.weights, count, t.pred, 0.0)
    if wrong < t.pred:
        bad |= _note(t, r, n.UNEVEN_WEIGHTS, wrong, 0, count)
    wrong = min(_first_other(r.positions, count, t.pred, 0), _first_other(r.labels, count, t.pred, 0))
    if wrong < t.pred and bad == 0:
        found = i64(r.positions[wrong]) if r.positions[wrong] != 0 else i64(r.labels[wrong])
        bad |= _note(t, r, n.AFTER_PREDICTIONS, wrong, count, found)
    before, outside, unordered, on_special = -1, 0, 0, 0
    for i in range(count):
        position, label = i64(r.positions[i]), i64(r.labels[i])
        if position < 0 or position >= length:
            if outside == 0:
                outside = _note(t, r, n.MASK_OUTSIDE, position, length, label)
            continue
        if position <= before and unordered == 0:
            unordered = _note(t, r, n.MASK_ORDER, position, before, position)
        before = position
        t.text[position] = r.labels[i]
        is_special = position == 0 or position == length - 1 or label == t.cls or label == t.sep
        is_special = is_special or (r.segments[position] == 0 and r.segments[position + 1] == 1)
        if is_special and on_special == 0:
            on_special = _note(t, r, n.MASK_ON_SPECIAL, position, 0, label)
    wanted, rounded_up = t.by_length[length], t.half_up[length]
    if count < wanted and t.segments == n.FULL_SENTENCES:
        candidates = _count_candidates(t.text, length, t.sep)
        wanted, rounded_up = min(wanted, candidates), min(rounded_up, candidates)
    if count > max(wanted, rounded_up) or (t.count_rule == n.EXACT_COUNT and count not in (wanted, rounded_up)):
        _note(t, r, n.PREDICTION_COUNT, length, wanted, count)  # and is counted all the same
    return count, bad | outside | unordered | on_special


@subroutine
def _check_text(t, r, length):
    """Check for [CLS] A [SEP] B [SEP] with its segments, or [CLS] A [SEP], where A may hold [SEP].

    Returns the position of the first [SEP], the number before the last token, the number of tokens equal to the next, and the
    fault.
    """
    text, cls, sep, pad, bad = t.text, t.cls, t.sep, t.pad, 0
    n_cls, n_sep, sep_positions, n_pad, n_same, n_empty = 0, 0, 0, 0, 0, 0
    text[length] = -1
    for position in range(length):
        token = i64(text[position])
        n_cls += i64(token == cls)
        n_sep += i64(token == sep)
        sep_positions += position * i64(token == sep)
        n_pad += i64(token == pad)
        n_same += i64(token == i64(text[position + 1]))
    if n_pad != 0:
        bad |= _note(t, r, n.PAD_IN_TEXT, _first(text, 0, length, pad), length, 0)
    if length == 0 or text[0] != cls:
        bad |= _note(t, r, n.NO_CLS, 0, cls, i64(text[0]) if length else 0)
    elif n_cls > 1:
        bad |= _note(t, r, n.CLS_IN_TEXT, _first(text, 1, length, cls), cls, n_cls)
    first_sep = 0
    if t.segments == n.FULL_SENTENCES:
        if length == 0 or text[length - 1] != sep:
            bad |= _note(t, r, n.SEP_LAST, length - 1, sep, i64(text[length - 1]) if length else 0)
        else:
            for position in range(1, length):
                n_empty += i64(text[position] == sep) & (i64(text[position - 1] == sep) | i64(position == 1))
            first_sep = _first(text, 1, length - 1, sep)
            if n_empty != 0 or length < 3:
                bad |= _note(t, r, n.EMPTY_SEGMENT, first_sep, 0, n_empty)
        bad |= _check_all(t, r, n.WRONG_SEGMENTS, r.segments, 0, length, 0, 0)
    elif n_sep != 2 and (n_sep != 1 or t.segments == n.TWO_SEGMENTS):
        bad |= _note(t, r, n.SEP_COUNT, 0, 2, n_sep)
    elif text[length - 1] != sep:
        bad |= _note(t, r, n.SEP_LAST, length - 1, sep, i64(text[length - 1]))
    else:
        first_sep = sep_positions - (length - 1) if n_sep == 2 else length - 1
        if t.pred > 0 and (first_sep < 2 or first_sep == length - 2):
            bad |= _note(t, r, n.EMPTY_SEGMENT, first_sep, 0, 0)
        wrong = _check_all(t, r, n.WRONG_SEGMENTS, r.segments, 0, first_sep + 1, 0, 0)
        bad |= wrong or _check_all(t, r, n.WRONG_SEGMENTS, r.segments, first_sep + 1, length, 1, 1)
    return first_sep, n_sep - 1, n_same, bad


@subroutine
def _check_range(t, r, values, count):
    """Note the first of `count` tokens that the vocabulary lacks; returns whether there is one."""
    position = 0
    while position < count and 0 <= values[position] < t.vocabulary:
        position += 1
    return _note(t, r, n.ID_RANGE, position, t.vocabulary, i64(values[position])) if position < count else 0


@subroutine
def _hash_all(arrays, row, keys):
    """The sum over all values; arrays of floats are taken as the bits they are."""
    total, at = u64(0), 0
    for feature in range(arrays[n.ARRAYS_SIZE]):
        width = arrays[n.ARRAY_WIDTH * feature + n.ARRAY_VALUES]
        values = pointer_at(i32_p, _values(arrays, feature, row))
        for i in range(width):
            total += u64(values[i]) * keys[at + i]
        at += width
    return total & ~u64(_MAX_CHOICES)


@subroutine
def _hash_text(t, r, count):
    """The sum over the tokens, with the labels at their positions."""
    total = u64(0)
    for position in range(t.seq):
        total += u64(r.ids[position]) * t.keys[position]
    for i in range(count):
        position = i64(r.positions[i])
        if 0 <= position < t.seq:
            total += (u64(r.labels[i]) - u64(r.ids[position])) * t.keys[position]
    return total & ~u64(1)


@subroutine
def _sketch_text(text, start, stop, sketch):
    """A bit for each token; which one, its number decides."""
    for position in range(start, stop):
        bit = (u64(text[position]) * u64(0x9E3779B97F4A7C15)) >> u64(55)
        sketch[i64(bit >> u64(6))] |= u64(1) << (bit & u64(63))


@subroutine
def _count_common(sketches, first, second):
    total = 0
    for word in range(n.SKETCH_WORDS):
        total += count_bits(sketches[n.SKETCH_WORDS * first + word] & sketches[n.SKETCH_WORDS * second + word])
    return total


@subroutine
def _compare_segments(t, first_sep, length):
    """Compare two records labelled random: have their As more tokens in common with their own Bs than with each other's?"""
    unpaired, sketches = t.unpaired, t.segments_in_bits
    if unpaired[1] == 0:
        unpaired[0], unpaired[1] = first_sep, length
        for position in range(length):
            unpaired[2 + position] = t.text[position]
    else:
        before, before_sep = shifted(unpaired, 2), i64(unpaired[0])
        end_of_a = min(first_sep, before_sep)
        size_of_b = min(length - first_sep, unpaired[1] - before_sep) - 2
        for word in range(4 * n.SKETCH_WORDS):
            sketches[word] = u64(0)
        _sketch_text(before, 1, end_of_a, sketches)
        _sketch_text(before, before_sep + 1, before_sep + 1 + size_of_b, shifted(sketches, n.SKETCH_WORDS))
        _sketch_text(t.text, 1, end_of_a, shifted(sketches, 2 * n.SKETCH_WORDS))
        _sketch_text(t.text, first_sep + 1, first_sep + 1 + size_of_b, shifted(sketches, 3 * n.SKETCH_WORDS))
        own = _count_common(sketches, 0, 1) + _count_common(sketches, 2, 3)
        other = _count_common(sketches, 0, 3) + _count_common(sketches, 2, 1)
        t.signs[n.OWN_B] += i64(own > other)
        t.signs[n.OTHER_B] += i64(own < other)
        unpaired[1] = 0


@subroutine
def _expect_tokens(t, first_sep, inner, length, drawn, n_same):
    """Add the expected counts of random masks: each token but the `inner` [SEP] is equally likely."""
    candidates = length - 2 - inner
    fraction = (drawn * n.SCALE + candidates // 2) // candidates
    text, expected = t.text, t.position_steps
    expected[1] += fraction
    position = first_sep
    for _ in range(inner):
        expected[position] -= fraction
        expected[position + 1] += fraction
        position = _first(text, position + 1, length - 1, i64(text[first_sep]))
    expected[length - 1] -= fraction
    t.signs[n.EXPECTED_RIGHT] += n_same * fraction
    t.signs[n.EXPECTED_LEFT] += n_same * fraction
    if t.vocabulary > 0:
        for position in range(1, length - 1):
            t.expected_labels[text[position]] += fraction
        t.expected_labels[text[first_sep]] -= inner * fraction


@subroutine
def _choices(t, positions, drawn):
    """The logarithm of the number of ways to draw that many of the positions."""
    return t.log2_factorials[positions] - t.log2_factorials[drawn] - t.log2_factorials[positions - drawn]


@subroutine
def _expect_words(t, r, length, drawn):
    """Add those of whole words, counted at their first piece; return the number of choices, or -1 where words are masked in
    part.
    """
    text, heads, row = t.text, t.words, t.seq + 1
    sizes, masked = shifted(heads, row), shifted(heads, 2 * row)
    of_size, masked_of_size = shifted(heads, 3 * row), shifted(heads, 4 * row)
    words, pieces, at = 0, 0, 0
    for position in range(length):
        of_size[position] = masked_of_size[position] = 0
    for position in range(1, length - 1):
        if text[position] == t.sep:
            continue
        while at < drawn and r.positions[at] < position:
            at += 1
        is_masked = i64(at < drawn and r.positions[at] == position)
        if words > 0 and t.kinds[text[position]] == n.CONTINUES:
            sizes[words - 1] += 1
            pieces += is_masked ^ masked[words - 1]
        else:
            heads[words], sizes[words], masked[words] = position, 1, is_masked
            words += 1
    if pieces != 0:
        _note(t, r, n.WORD_IN_PART, 0, 0, pieces)
        return -1
    smallest = length
    for word in range(words):
        of_size[sizes[word]] += 1
        masked_of_size[sizes[word]] += masked[word]
        if masked[word] == 0:
            smallest = min(smallest, sizes[word])
    if smallest <= t.by_length[length] - drawn:
        _note(t, r, n.WORD_LEFT_OUT, smallest, t.by_length[length], drawn)  # and is counted all the same
    for word in range(words):
        position, size = heads[word], sizes[word]
        fraction = (masked_of_size[size] * n.SCALE + of_size[size] // 2) // of_size[size]
        token = i64(text[position])
        t.position_steps[position] += fraction
        t.position_steps[position + 1] -= fraction
        t.expected_labels[token] += fraction
        t.word_positions[position] += masked[word]
        t.word_labels[token] += masked[word]
        t.signs[n.EXPECTED_RIGHT] += fraction * i64(token == text[position + 1])
        t.signs[n.EXPECTED_LEFT] += fraction * i64(token == text[position - 1])
        t.signs[n.RIGHT] += masked[word] & i64(token == text[position + 1])
        t.signs[n.LEFT] += masked[word] & i64(token == text[position - 1])
    choices = 0
    for size in range(1, length - 1):
        if masked_of_size[size] != 0:
            choices += _choices(t, of_size[size], masked_of_size[size])
    return choices


@subroutine
def _count_predictions(t, r, drawn):
    """Count predictions by position, by label and by shown token; returns the number that show [MASK]."""
    n_masks = 0
    for i in range(drawn):
        position, original = i64(r.positions[i]), i64(r.labels[i])
        token = i64(r.ids[position])
        t.positions[position] += 1
        if t.vocabulary > 0:
            t.labels[original] += 1
        if token == t.mask:
            t.shown[0] += 1
            n_masks += 1
        elif token == original:
            t.shown[1] += 1
        else:
            t.shown[2] += 1
            if t.vocabulary > 0:
                t.replaced[token] += 1
    return n_masks


@subroutine
def _check_masks(t, r, length, drawn, n_masks):
    """Note a [MASK] that is not at one of the `drawn` predicted positions, `n_masks` of which have one."""
    in_all = 0
    for position in range(length):
        in_all += i64(i64(r.ids[position]) == t.mask)
    if in_all != n_masks:
        position, i = 0, 0
        while r.ids[position] != t.mask or (i < drawn and r.positions[i] == position):
            if i < drawn and r.positions[i] == position:
                i += 1
            position += 1
        _note(t, r, n.MASK_WITHOUT_LABEL, position, 0, t.mask)


@subroutine
def _count_tokens(t, r, length, inner):
    """Count the tokens of the text but [CLS] and [SEP], and note one that continues a word that nothing continues."""
    text, kinds, misplaced = t.text, t.kinds, 0
    for position in range(1, length - 1):
        t.tokens[text[position]] += 1
        misplaced += i64(kinds[text[position]] == n.ALONE_IN_WORD) & i64(kinds[text[position + 1]] == n.CONTINUES)
    t.tokens[t.sep] -= inner
    if misplaced != 0:
        position = 2
        while kinds[text[position]] != n.CONTINUES or kinds[text[position - 1]] != n.ALONE_IN_WORD:
            position += 1
        _note(t, r, n.PIECE_OF_NONE, position, misplaced, i64(text[position]))


@kernel
def check_records(checker: Checker, arrays: i64_p, count: i64, indices: i64_p, hashes: u64_p) -> i64:
    """Check `count` records of the arrays, whose indices in their file are given; return how many have no fault.

    The arrays are in the order of the features. `hashes` has two numbers a record.
    """
    t = Checker(checker)
    text, sketches = t.text, t.sketches
    has_pairs = t.pred > 0 and t.segments != n.FULL_SENTENCES
    first_of_masks = n.POSITIONS if t.pred > 0 else n.INPUT_IDS  # fine-tuning has none, and these arrays are not looked at
    clean = 0
    for row in range(count):
        r = Record(
            indices[row],
            pointer_at(i32_p, _values(arrays, n.INPUT_IDS, row)),
            pointer_at(i32_p, _values(arrays, n.INPUT_MASK, row)),
            pointer_at(i32_p, _values(arrays, n.SEGMENT_IDS, row)),
            pointer_at(i32_p, _values(arrays, first_of_masks, row)),
            pointer_at(i32_p, _values(arrays, first_of_masks + 1, row)),
            pointer_at(f32_p, _values(arrays, first_of_masks + 2, row)),
        )
        label = i64(pointer_at(i32_p, _values(arrays, n.NEXT_SENTENCE, row))[0]) if has_pairs else 0
        length, bad = _check_padding(t, r)
        for position in range(length):
            text[position] = r.ids[position]
        drawn, wrong = _check_predictions(t, r, length)
        bad |= wrong
        hashes[2 * row] = _hash_text(t, r, drawn)
        hashes[2 * row + 1] = _hash_all(arrays, row, shifted(t.keys, t.seq))
        first_sep, inner, n_same, wrong = _check_text(t, r, length)
        bad |= wrong
        if t.vocabulary > 0:
            bad |= _check_range(t, r, r.ids, t.seq) or _check_range(t, r, r.labels, t.pred)
        if label != 0 and label != 1:
            bad |= _note(t, r, n.WRONG_NEXT_SENTENCE, 0, 0, label)
        if t.pred == 0:
            clean += 1 - bad
            continue
        choices = 0
        if bad == 0 and t.count_rule == n.WHOLE_WORDS:
            choices = _expect_words(t, r, length, drawn)
        elif bad == 0 and t.count_rule == n.EXACT_COUNT:
            choices = _choices(t, length - 2 - inner, drawn)
        if bad != 0 or choices < 0:
            continue

        clean += 1
        hashes[2 * row] |= u64(length >= _CERTAIN_TEXT and 4 * n_same < length)
        hashes[2 * row + 1] |= u64(min((choices + drawn * _SHOWN_ALIKE) // n.CHOICE, _MAX_CHOICES))
        t.lengths[length] += 1
        t.predictions[drawn] += 1
        t.predicted[length] += drawn
        if has_pairs:
            t.lengths_of_a[first_sep - 1] += 1
            t.next_sentence[label] += 1
            if label == 1:
                _compare_segments(t, first_sep, length)
            if length == t.seq and 2 * (first_sep - 1) < t.seq - 4:
                t.signs[n.OPEN_FOLLOWS + label] += 1
        if t.step != 0 and (r.index & (t.step - 1)) < 2:
            slot = 2 * (r.index // t.step) + (r.index & 1)
            t.sketched[2 * slot], t.sketched[2 * slot + 1] = length, i64(text[1])
            _sketch_text(text, 1, length - 1, shifted(sketches, n.SKETCH_WORDS * slot))
        _check_masks(t, r, length, drawn, _count_predictions(t, r, drawn))
        if t.vocabulary > 0:
            _count_tokens(t, r, length, inner)
        if t.count_rule != n.WHOLE_WORDS:
            if n_same != 0:
                for i in range(drawn):
                    position = i64(r.positions[i])
                    t.signs[n.RIGHT] += i64(text[position] == text[position + 1])
                    t.signs[n.LEFT] += i64(text[position] == text[position - 1])
            _expect_tokens(t, first_sep, inner, length, drawn, n_same)
    return clean

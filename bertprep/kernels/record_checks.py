"""Is each of many records a BERT example? Their faults, their statistics and a hash of each, in one pass over the arrays.

The text of a record is its tokens with the labels put back at their positions; only there must [CLS] and [SEP] be where they
belong, because a random replacement may be any token of the vocabulary, [SEP] and [PAD] too. Loops over whole rows have no
branch, so that the compiler makes them vector code; where a fault is, is looked for when there is one.

Records with a fault are counted as such and left out of the statistics, but for a wrong number of predictions. A record has
two hashes, sums of values each multiplied by a random 64-bit number of its position: of its text, and of all its values. Two
different records agree in both with a chance below 2**-90, and the same text under other masks in the first. Their lowest
bits are not part of the hash: the first's is set if the text is long and varied, so that no other text equals it by chance; the
second's six are a number c: other masks drawn for the text equal these with a probability of at most 2**-c.
"""

from bertprep.kernels.language import (
    count_bits,
    f32_p,
    i32_p,
    i64,
    i64_p,
    kernel,
    pointer_at,
    shifted,
    subroutine,
    u8_p,
    u64,
    u64_p,
)
from bertprep.kernels.numbers import (
    AFTER_PREDICTIONS,
    ALONE_IN_WORD,
    ARRAY_ADDRESS,
    ARRAY_VALUES,
    ARRAY_WIDTH,
    ARRAYS_SIZE,
    AT_BY_LENGTH,
    AT_CONTINUES,
    AT_EXPECTED_LABELS,
    AT_EXPECTED_POSITIONS,
    AT_FACTORIALS,
    AT_FAULTS,
    AT_HALF_UP,
    AT_KEYS,
    AT_LABELS,
    AT_LENGTHS,
    AT_LENGTHS_OF_A,
    AT_NEXT_SENTENCE,
    AT_POSITIONS,
    AT_PREDICTED,
    AT_PREDICTIONS,
    AT_REPLACED,
    AT_RULES,
    AT_SEGMENTS,
    AT_SHOWN,
    AT_SIGNS,
    AT_SKETCHED_LENGTHS,
    AT_SKETCHES,
    AT_TEXT,
    AT_TOKENS,
    AT_WORD_LABELS,
    AT_WORD_POSITIONS,
    AT_WORDS,
    CHOICE,
    CLS_IN_TEXT,
    CONTINUES,
    EMPTY_SEGMENT,
    EXACT_COUNT,
    EXPECTED_LEFT,
    EXPECTED_RIGHT,
    FAULT_COUNT,
    FAULT_EXPECTED,
    FAULT_FOUND,
    FAULT_POSITION,
    FAULT_RECORD,
    FULL_SENTENCES,
    ID_RANGE,
    INPUT_IDS,
    INPUT_MASK,
    LEFT,
    MASK_ON_SPECIAL,
    MASK_ORDER,
    MASK_OUTSIDE,
    MASK_WITHOUT_LABEL,
    NEXT_SENTENCE,
    NO_CLS,
    OPEN_FOLLOWS,
    OTHER_B,
    OWN_B,
    PAD_IN_TEXT,
    PADDING_IDS,
    PADDING_SEGMENTS,
    PIECE_OF_NONE,
    POSITIONS,
    PREDICTION_COUNT,
    RIGHT,
    RULE_CLS,
    RULE_COUNT,
    RULE_MASK,
    RULE_PAD,
    RULE_PRED,
    RULE_SEGMENTS,
    RULE_SEP,
    RULE_SEQ,
    RULE_STEP,
    RULE_TOKENS,
    SCALE,
    SEGMENT_IDS,
    SEP_COUNT,
    SEP_LAST,
    SKETCH_WORDS,
    TWO_SEGMENTS,
    UNEVEN_MASK,
    UNEVEN_WEIGHTS,
    VALUE_FAULT_WIDTH,
    WHOLE_WORDS,
    WORD_IN_PART,
    WORD_LEFT_OUT,
    WRONG_NEXT_SENTENCE,
    WRONG_SEGMENTS,
)

_CERTAIN_TEXT = 32  # tokens; shorter ones, such as two stock phrases, come again by themselves
_MOST_CHOICES = 63
_SHOWN_ALIKE = 32
"""In units of 1 / CHOICE: two draws show the same at a position with a chance of 0.8**2 + 0.1**2 + ..., below 0.71."""


@subroutine
def _address(arrays, feature):
    """Where the values of a feature of pretraining records are."""
    return arrays[ARRAY_WIDTH * feature + ARRAY_ADDRESS]


@subroutine
def _note(faults, fault, record, position, expected, found):
    """Count a fault, and keep the first one's particulars; returns 1."""
    row = shifted(faults, i64(VALUE_FAULT_WIDTH) * fault)
    if row[FAULT_COUNT] == 0:
        row[FAULT_RECORD], row[FAULT_POSITION], row[FAULT_EXPECTED], row[FAULT_FOUND] = record, position, expected, found
    row[FAULT_COUNT] += 1
    return i64(1)


@subroutine
def _first_other(values, start, stop, wanted):
    """The first position from `start` on that does not hold `wanted`, or `stop`."""
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
def _check_padding(ids, mask, segments, seq, pad, record, faults):
    """(tokens of text, 1 if there is a fault else 0)."""
    length, others, bad = i64(0), i64(0), i64(0)
    for position in range(seq):
        length += mask[position]
    for position in range(seq):
        others |= i64(mask[position]) ^ i64(position < length)
    if others != 0 or length == 0:
        length = _first_other(mask, i64(0), seq, 1)
        # the text ends where the mask first leaves 1; what is wrong comes after, or there where it is neither 0 nor 1
        wrong = _first_other(mask, length, seq, 0)
        bad |= _note(faults, i64(UNEVEN_MASK), record, min(wrong, seq - 1), i64(0), i64(mask[min(wrong, seq - 1)]))
    left_ids, left_segments = i64(0), i64(0)
    for position in range(length, seq):
        left_ids |= i64(ids[position]) ^ pad
        left_segments |= segments[position]
    if left_ids != 0:
        wrong = _first_other(ids, length, seq, pad)
        bad |= _note(faults, i64(PADDING_IDS), record, wrong, length, i64(ids[wrong]))
    if left_segments != 0:
        wrong = _first_other(segments, length, seq, 0)
        bad |= _note(faults, i64(PADDING_SEGMENTS), record, wrong, length, i64(segments[wrong]))
    return length, bad


@subroutine
def _count_candidates(text, length, sep):
    """The tokens between [CLS] and the last token that are no [SEP]."""
    candidates = i64(0)
    for position in range(1, length - 1):
        candidates += i64(text[position] != sep)
    return candidates


@subroutine
def _check_predictions(positions, labels, weights, segments, length, rules, by_length, half_up, text, record, faults):
    """(number of predictions, 1 if there is a fault else 0); puts the labels back into the text."""
    pred, bad = rules[RULE_PRED], i64(0)
    count = i64(0)
    while count < pred and weights[count] == 1.0:
        count += 1
    rest = i64(0)
    for i in range(count, pred):
        if weights[i] != 0.0:
            bad |= _note(faults, i64(UNEVEN_WEIGHTS), record, i, i64(0), count)
            break
    for i in range(count, pred):
        rest |= i64(positions[i]) | i64(labels[i])
    if rest != 0 and bad == 0:
        wrong = min(_first_other(positions, count, pred, 0), _first_other(labels, count, pred, 0))
        found = i64(positions[wrong]) if positions[wrong] != 0 else i64(labels[wrong])
        bad |= _note(faults, i64(AFTER_PREDICTIONS), record, wrong, count, found)
    before, outside, unordered, on_special = i64(-1), i64(0), i64(0), i64(0)
    for i in range(count):
        position, label = i64(positions[i]), i64(labels[i])
        if position < 0 or position >= length:
            if outside == 0:
                outside = _note(faults, i64(MASK_OUTSIDE), record, position, length, label)
            continue
        if position <= before and unordered == 0:
            unordered = _note(faults, i64(MASK_ORDER), record, position, before, position)
        before = position
        text[position] = labels[i]
        is_special = position == 0 or position == length - 1 or label == rules[RULE_CLS] or label == rules[RULE_SEP]
        is_special = is_special or (segments[position] == 0 and segments[position + 1] == 1)
        if is_special and on_special == 0:
            on_special = _note(faults, i64(MASK_ON_SPECIAL), record, position, i64(0), label)
    wanted, rounded_up = by_length[length], half_up[length]
    if count < wanted and rules[RULE_SEGMENTS] == FULL_SENTENCES:
        candidates = _count_candidates(text, length, rules[RULE_SEP])
        wanted, rounded_up = min(wanted, candidates), min(rounded_up, candidates)
    if count > max(wanted, rounded_up) or (rules[RULE_COUNT] == EXACT_COUNT and count not in (wanted, rounded_up)):
        _note(faults, i64(PREDICTION_COUNT), record, length, wanted, count)  # and is counted all the same
    return count, bad | outside | unordered | on_special


@subroutine
def _check_text(text, segments, length, rules, record, faults):
    """Whether the text is [CLS] A [SEP] B [SEP] with its segments, or [CLS] A [SEP]; in full sentences A may hold [SEP].

    Returns the position of the first [SEP], how many there are before the last token, how many tokens are the same as the next
    one, and 1 if there is a fault, else 0.
    """
    cls, sep, pad, bad = rules[RULE_CLS], rules[RULE_SEP], rules[RULE_PAD], i64(0)
    n_cls, n_sep, sep_positions, n_pad, n_same, n_empty = i64(0), i64(0), i64(0), i64(0), i64(0), i64(0)
    text[length] = -1
    for position in range(length):
        token = i64(text[position])
        n_cls += i64(token == cls)
        n_sep += i64(token == sep)
        sep_positions += position * i64(token == sep)
        n_pad += i64(token == pad)
        n_same += i64(token == i64(text[position + 1]))
    if n_pad != 0:
        bad |= _note(faults, i64(PAD_IN_TEXT), record, _first(text, i64(0), length, pad), length, i64(0))
    if length == 0 or text[0] != cls:
        bad |= _note(faults, i64(NO_CLS), record, i64(0), cls, i64(text[0]) if length else i64(0))
    elif n_cls > 1:
        bad |= _note(faults, i64(CLS_IN_TEXT), record, _first(text, i64(1), length, cls), cls, n_cls)
    first_sep = i64(0)
    if rules[RULE_SEGMENTS] == FULL_SENTENCES:
        if length == 0 or text[length - 1] != sep:
            bad |= _note(faults, i64(SEP_LAST), record, length - 1, sep, i64(text[length - 1]) if length else i64(0))
        else:
            for position in range(1, length):
                n_empty += i64(text[position] == sep) & (i64(text[position - 1] == sep) | i64(position == 1))
            first_sep = _first(text, i64(1), length - 1, sep)
            if n_empty != 0 or length < 3:
                bad |= _note(faults, i64(EMPTY_SEGMENT), record, first_sep, i64(0), n_empty)
        wrong = _first_other(segments, i64(0), length, 0)
        if wrong < length:
            bad |= _note(faults, i64(WRONG_SEGMENTS), record, wrong, i64(0), i64(segments[wrong]))
    elif n_sep != 2 and (n_sep != 1 or rules[RULE_SEGMENTS] == TWO_SEGMENTS):
        bad |= _note(faults, i64(SEP_COUNT), record, i64(0), i64(2), n_sep)
    elif text[length - 1] != sep:
        bad |= _note(faults, i64(SEP_LAST), record, length - 1, sep, i64(text[length - 1]))
    else:
        first_sep = sep_positions - (length - 1) if n_sep == 2 else length - 1
        if rules[RULE_PRED] > 0 and (first_sep < 2 or first_sep == length - 2):
            bad |= _note(faults, i64(EMPTY_SEGMENT), record, first_sep, i64(0), i64(0))
        others = i64(0)
        for position in range(length):
            others |= i64(segments[position]) ^ i64(position > first_sep)
        if others != 0:
            wrong = _first_other(segments, i64(0), first_sep + 1, 0)
            if wrong == first_sep + 1:
                wrong = _first_other(segments, wrong, length, 1)
            bad |= _note(faults, i64(WRONG_SEGMENTS), record, wrong, i64(wrong > first_sep), i64(segments[wrong]))
    return first_sep, n_sep - 1, n_same, bad


@subroutine
def _check_range(values, count, size, record, faults):
    """1 if a value is not below `size`, else 0."""
    highest, signs = i64(0), i64(0)
    for position in range(count):
        value = i64(values[position])
        highest = max(highest, value)
        signs |= value
    if signs < 0 or highest >= size:
        position = i64(0)
        while 0 <= values[position] < size:
            position += 1
        return _note(faults, i64(ID_RANGE), record, position, size, i64(values[position]))
    return i64(0)


@subroutine
def _hash_all(arrays, row, keys):
    """The sum over all values; arrays of floats are taken as the bits they are."""
    total, at = u64(0), i64(0)
    for feature in range(arrays[ARRAYS_SIZE]):
        width = arrays[ARRAY_WIDTH * feature + ARRAY_VALUES]
        values = shifted(pointer_at(i32_p, _address(arrays, feature)), row * width)
        for i in range(width):
            total += u64(values[i]) * keys[at + i]
        at += width
    return total & ~u64(_MOST_CHOICES)


@subroutine
def _hash_text(ids, positions, labels, count, seq, keys):
    """The sum over the tokens, with the labels at their positions."""
    total = u64(0)
    for position in range(seq):
        total += u64(ids[position]) * keys[position]
    for i in range(count):
        position = i64(positions[i])
        if 0 <= position < seq:
            total += (u64(labels[i]) - u64(ids[position])) * keys[position]
    return total & ~u64(1)


@subroutine
def _sketch_text(text, start, stop, sketch):
    """A bit for each token; which one, its number decides."""
    for position in range(start, stop):
        bit = (u64(text[position]) * u64(0x9E3779B97F4A7C15)) >> u64(55)
        sketch[i64(bit >> u64(6))] |= u64(1) << (bit & u64(63))


@subroutine
def _count_common(sketches, first, second):
    """The bits that two sketches have in common."""
    total = i64(0)
    for word in range(SKETCH_WORDS):
        total += count_bits(sketches[SKETCH_WORDS * first + word] & sketches[SKETCH_WORDS * second + word])
    return total


@subroutine
def _compare_segments(text, first_sep, length, kept, signs):
    """Of each two records that are said to have a random B: is each A more like its own B than like the other's?

    `kept` are the sketches of A and B of the record before, and of this one, and whether there is one before.
    """
    before = i64(kept[4 * SKETCH_WORDS])
    sketches = shifted(kept, 2 * SKETCH_WORDS * before)
    for word in range(2 * SKETCH_WORDS):
        sketches[word] = u64(0)
    _sketch_text(text, i64(1), first_sep, sketches)
    _sketch_text(text, first_sep + 1, length - 1, shifted(sketches, i64(SKETCH_WORDS)))
    kept[4 * SKETCH_WORDS] = u64(1 - before)
    if before != 0:
        own = _count_common(kept, i64(0), i64(1)) + _count_common(kept, i64(2), i64(3))
        other = _count_common(kept, i64(0), i64(3)) + _count_common(kept, i64(2), i64(1))
        signs[OWN_B] += i64(own > other)
        signs[OTHER_B] += i64(own < other)


@subroutine
def _expect_tokens(text, first_sep, inner, length, n, n_same, tables, with_labels):
    """Add what fair draws of `n` of the tokens make expect: each but the `inner` [SEP] is drawn as likely as any other."""
    candidates = length - 2 - inner
    fraction = (n * i64(SCALE) + candidates // 2) // candidates
    expected = pointer_at(i64_p, tables[AT_EXPECTED_POSITIONS])
    expected[1] += fraction
    position = first_sep
    for _ in range(inner):
        expected[position] -= fraction
        expected[position + 1] += fraction
        position = _first(text, position + 1, length - 1, i64(text[first_sep]))
    expected[length - 1] -= fraction
    signs = pointer_at(i64_p, tables[AT_SIGNS])
    signs[EXPECTED_RIGHT] += n_same * fraction
    signs[EXPECTED_LEFT] += n_same * fraction
    if with_labels:
        expected_labels = pointer_at(i64_p, tables[AT_EXPECTED_LABELS])
        for position in range(1, length - 1):
            expected_labels[text[position]] += fraction
        expected_labels[text[first_sep]] -= inner * fraction


@subroutine
def _choices(logarithms, positions, drawn):
    """The logarithm of the number of ways to draw that many of the positions."""
    return logarithms[positions] - logarithms[drawn] - logarithms[positions - drawn]


@subroutine
def _expect_words(text, sep, length, positions, n, wanted, seq, tables, record, faults):
    """The same for whole words; returns the choices that there were, or -1 where words are masked in part.

    A word is masked as likely as any other of as many pieces, whatever the number of predictions that were left when it came
    up. It counts once, at its first piece. As in Google's script, pieces go with what precedes them, across a [SEP] too.
    """
    continues = pointer_at(u8_p, tables[AT_CONTINUES])
    heads = pointer_at(i64_p, tables[AT_WORDS])
    sizes, masked = shifted(heads, seq + 1), shifted(heads, 2 * (seq + 1))
    of_size, masked_of_size = shifted(heads, 3 * (seq + 1)), shifted(heads, 4 * (seq + 1))
    words, pieces, at = i64(0), i64(0), i64(0)
    for position in range(length):
        of_size[position] = masked_of_size[position] = 0
    for position in range(1, length - 1):
        if text[position] == sep:
            continue
        while at < n and positions[at] < position:
            at += 1
        is_masked = i64(at < n and positions[at] == position)
        if words > 0 and continues[text[position]] == CONTINUES:
            sizes[words - 1] += 1
            pieces += is_masked ^ masked[words - 1]
        else:
            heads[words], sizes[words], masked[words] = position, 1, is_masked
            words += 1
    if pieces != 0:
        _note(faults, i64(WORD_IN_PART), record, i64(0), i64(0), pieces)
        return i64(-1)
    smallest = length
    for word in range(words):
        of_size[sizes[word]] += 1
        masked_of_size[sizes[word]] += masked[word]
        if masked[word] == 0:
            smallest = min(smallest, sizes[word])
    if smallest <= wanted - n:
        _note(faults, i64(WORD_LEFT_OUT), record, smallest, wanted, n)  # and is counted all the same
    expected = pointer_at(i64_p, tables[AT_EXPECTED_POSITIONS])
    expected_labels = pointer_at(i64_p, tables[AT_EXPECTED_LABELS])
    seen = pointer_at(i64_p, tables[AT_WORD_POSITIONS])
    labels_seen = pointer_at(i64_p, tables[AT_WORD_LABELS])
    signs = pointer_at(i64_p, tables[AT_SIGNS])
    for word in range(words):
        position, size = heads[word], sizes[word]
        fraction = (masked_of_size[size] * i64(SCALE) + of_size[size] // 2) // of_size[size]
        token = i64(text[position])
        expected[position] += fraction
        expected[position + 1] -= fraction
        expected_labels[token] += fraction
        seen[position] += masked[word]
        labels_seen[token] += masked[word]
        signs[EXPECTED_RIGHT] += fraction * i64(token == text[position + 1])
        signs[EXPECTED_LEFT] += fraction * i64(token == text[position - 1])
        signs[RIGHT] += masked[word] & i64(token == text[position + 1])
        signs[LEFT] += masked[word] & i64(token == text[position - 1])
    logarithms, choices = pointer_at(i64_p, tables[AT_FACTORIALS]), i64(0)
    for size in range(1, length - 1):
        if masked_of_size[size] != 0:
            choices += _choices(logarithms, of_size[size], masked_of_size[size])
    return choices


@subroutine
def _count_predictions(ids, positions, labels, n, mask, tokens, tables):
    """Count predictions by position, by label and by shown token; returns the number that show [MASK]."""
    positions_seen, labels_seen = pointer_at(i64_p, tables[AT_POSITIONS]), pointer_at(i64_p, tables[AT_LABELS])
    shown, replaced = pointer_at(i64_p, tables[AT_SHOWN]), pointer_at(i64_p, tables[AT_REPLACED])
    n_masks = i64(0)
    for i in range(n):
        position, original = i64(positions[i]), i64(labels[i])
        token = i64(ids[position])
        positions_seen[position] += 1
        if tokens > 0:
            labels_seen[original] += 1
        if token == mask:
            shown[0] += 1
            n_masks += 1
        elif token == original:
            shown[1] += 1
        else:
            shown[2] += 1
            if tokens > 0:
                replaced[token] += 1
    return n_masks


@subroutine
def _check_masks(ids, length, positions, n, n_masks, mask, record, faults):
    """Note a [MASK] that is not at one of the `n` predicted positions, `n_masks` of which have one."""
    in_all = i64(0)
    for position in range(length):
        in_all += i64(i64(ids[position]) == mask)
    if in_all != n_masks:
        position, i = i64(0), i64(0)
        while ids[position] != mask or (i < n and positions[i] == position):
            if i < n and positions[i] == position:
                i += 1
            position += 1
        _note(faults, i64(MASK_WITHOUT_LABEL), record, position, i64(0), mask)


@kernel
def check_records(arrays: i64_p, count: i64, numbers: i64_p, tables: i64_p, hashes: u64_p) -> i64:
    """Check `count` records of the arrays, whose numbers in their file are `numbers`; returns how many have no fault.

    `tables` are the addresses of the arrays of a `RecordChecker`, in the order of the names AT_. Counts add to what these
    hold: faults (VALUE_FAULTS, VALUE_FAULT_WIDTH); `RecordCounts`; what of its positions and labels fair draws make expect, in
    units of 1 / SCALE: (seq + 1) differences from each position to the next, and one a token; random tokens shown.
    AT_BY_LENGTH, AT_HALF_UP and AT_FACTORIALS have seq + 1 numbers; AT_TEXT holds seq + 1 tokens, AT_WORDS for
    WORD_ROWS * (seq + 1) numbers, AT_SKETCHES and AT_SKETCHED_LENGTHS for two sketches in rules[RULE_STEP] records,
    `hashes` for two numbers a record: of its text, and of the whole.
    """
    rules, keys = pointer_at(i64_p, tables[AT_RULES]), pointer_at(u64_p, tables[AT_KEYS])
    by_length, half_up = pointer_at(i64_p, tables[AT_BY_LENGTH]), pointer_at(i64_p, tables[AT_HALF_UP])
    logarithms = pointer_at(i64_p, tables[AT_FACTORIALS])
    text, faults = pointer_at(i32_p, tables[AT_TEXT]), pointer_at(i64_p, tables[AT_FAULTS])
    lengths, lengths_of_a = pointer_at(i64_p, tables[AT_LENGTHS]), pointer_at(i64_p, tables[AT_LENGTHS_OF_A])
    predictions, tokens_seen = pointer_at(i64_p, tables[AT_PREDICTIONS]), pointer_at(i64_p, tables[AT_TOKENS])
    next_sentence, signs = pointer_at(i64_p, tables[AT_NEXT_SENTENCE]), pointer_at(i64_p, tables[AT_SIGNS])
    predicted, kinds = pointer_at(i64_p, tables[AT_PREDICTED]), pointer_at(u8_p, tables[AT_CONTINUES])
    sketches = pointer_at(u64_p, tables[AT_SKETCHES])
    sketched_lengths = pointer_at(i64_p, tables[AT_SKETCHED_LENGTHS])
    seq, pred, tokens, step = rules[RULE_SEQ], rules[RULE_PRED], rules[RULE_TOKENS], rules[RULE_STEP]
    whole_words, has_pairs = rules[RULE_COUNT] == WHOLE_WORDS, pred > 0 and rules[RULE_SEGMENTS] != FULL_SENTENCES
    first_of_masks = i64(POSITIONS) if pred > 0 else i64(0)  # fine-tuning has none, and these arrays are not looked at
    clean = i64(0)
    for row in range(count):
        ids = shifted(pointer_at(i32_p, _address(arrays, INPUT_IDS)), row * seq)
        mask = shifted(pointer_at(i32_p, _address(arrays, INPUT_MASK)), row * seq)
        segments = shifted(pointer_at(i32_p, _address(arrays, SEGMENT_IDS)), row * seq)
        positions = shifted(pointer_at(i32_p, _address(arrays, first_of_masks)), row * pred)
        labels = shifted(pointer_at(i32_p, _address(arrays, first_of_masks + 1)), row * pred)
        weights = shifted(pointer_at(f32_p, _address(arrays, first_of_masks + 2)), row * pred)
        label = i64(pointer_at(i32_p, _address(arrays, NEXT_SENTENCE))[row]) if has_pairs else i64(0)
        record = numbers[row]

        length, bad = _check_padding(ids, mask, segments, seq, rules[RULE_PAD], record, faults)
        for position in range(length):
            text[position] = ids[position]
        n, wrong = _check_predictions(
            positions, labels, weights, segments, length, rules, by_length, half_up, text, record, faults
        )  # fmt: skip
        bad |= wrong
        hashes[2 * row] = _hash_text(ids, positions, labels, n, seq, keys)
        hashes[2 * row + 1] = _hash_all(arrays, row, shifted(keys, seq))
        first_sep, inner, n_same, wrong = _check_text(text, segments, length, rules, record, faults)
        bad |= wrong
        if tokens > 0:
            wrong = _check_range(ids, seq, tokens, record, faults)
            if wrong == 0:
                wrong = _check_range(labels, pred, tokens, record, faults)
            bad |= wrong
        if label != 0 and label != 1:
            bad |= _note(faults, i64(WRONG_NEXT_SENTENCE), record, i64(0), i64(0), label)
        if pred == 0:
            clean += 1 - bad
            continue
        choices = i64(0)
        if bad == 0 and whole_words:
            choices = _expect_words(text, rules[RULE_SEP], length, positions, n, by_length[length], seq, tables, record, faults)
        elif bad == 0 and rules[RULE_COUNT] == EXACT_COUNT:
            choices = _choices(logarithms, length - 2 - inner, n)
        if bad != 0 or choices < 0:
            continue

        clean += 1
        hashes[2 * row] |= u64(length >= _CERTAIN_TEXT and 4 * n_same < length)
        hashes[2 * row + 1] |= u64(min((choices + n * _SHOWN_ALIKE) // CHOICE, _MOST_CHOICES))
        lengths[length] += 1
        predictions[n] += 1
        predicted[length] += n
        if has_pairs:
            lengths_of_a[first_sep - 1] += 1
            next_sentence[label] += 1
            if label == 1:
                _compare_segments(text, first_sep, length, pointer_at(u64_p, tables[AT_SEGMENTS]), signs)
            if length == seq and 2 * (first_sep - 1) < seq - 4:
                signs[OPEN_FOLLOWS + label] += 1
        if step != 0 and (record & (step - 1)) < 2:
            slot = 2 * (record // step) + (record & i64(1))
            sketched_lengths[2 * slot], sketched_lengths[2 * slot + 1] = length, i64(text[1])
            _sketch_text(text, i64(1), length - 1, shifted(sketches, i64(SKETCH_WORDS) * slot))
        n_masks = _count_predictions(ids, positions, labels, n, rules[RULE_MASK], tokens, tables)
        _check_masks(ids, length, positions, n, n_masks, rules[RULE_MASK], record, faults)
        if tokens > 0:
            misplaced = i64(0)
            for position in range(1, length - 1):
                tokens_seen[text[position]] += 1
                misplaced += i64(kinds[text[position]] == ALONE_IN_WORD) & i64(kinds[text[position + 1]] == CONTINUES)
            tokens_seen[rules[RULE_SEP]] -= inner
            if misplaced != 0:
                position = i64(2)
                while kinds[text[position]] != CONTINUES or kinds[text[position - 1]] != ALONE_IN_WORD:
                    position += 1
                _note(faults, i64(PIECE_OF_NONE), record, position, misplaced, i64(text[position]))
        if not whole_words:
            if n_same != 0:
                for i in range(n):
                    position = i64(positions[i])
                    signs[RIGHT] += i64(text[position] == text[position + 1])
                    signs[LEFT] += i64(text[position] == text[position - 1])
            _expect_tokens(text, first_sep, inner, length, n, n_same, tables, tokens > 0)
    return clean


@kernel
def compare_neighbours(sketches: u64_p, lengths: i64_p, pairs: i64, wins: i64_p) -> i64:
    """Are neighbours more alike than records far apart? Compares pair p of neighbours with pair p + pairs // 2; returns 0.

    Sketches 2 * p and 2 * p + 1 are of neighbours; `lengths` has the length of each, 0 for none, and its first token.
    `wins` are added to: how often the two pairs have more tokens in common than the same four records paired the other way,
    how often fewer, and the same for lengths and for first tokens that are closer.
    """
    half = pairs // 2
    for pair in range(half):
        a, b, c, d = 2 * pair, 2 * pair + 1, 2 * (pair + half), 2 * (pair + half) + 1
        if lengths[2 * a] == 0 or lengths[2 * b] == 0 or lengths[2 * c] == 0 or lengths[2 * d] == 0:
            continue
        near = _count_common(sketches, a, b) + _count_common(sketches, c, d)
        far = _count_common(sketches, a, c) + _count_common(sketches, b, d)
        wins[0] += i64(near > far)
        wins[1] += i64(near < far)
        for of in range(2):
            near = abs(lengths[2 * a + of] - lengths[2 * b + of]) + abs(lengths[2 * c + of] - lengths[2 * d + of])
            far = abs(lengths[2 * a + of] - lengths[2 * c + of]) + abs(lengths[2 * b + of] - lengths[2 * d + of])
            wins[2 + 2 * of] += i64(near < far)
            wins[3 + 2 * of] += i64(near > far)
    return 0

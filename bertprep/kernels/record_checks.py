"""Is each of many records a BERT example? Their faults, their statistics and a hash of each, in one pass over the arrays.

The text of a record is its tokens with the labels put back at their places; only there must [CLS] and [SEP] be where they
belong, because a random replacement may be any token of the vocabulary, [SEP] and [PAD] too. Loops over whole rows have no
branch, so that the compiler makes them vector code; where a fault is, is looked for when there is one.

Records with a fault are counted as such and left out of the statistics, but for a wrong number of predictions. The hash of a
record is the sum of all its values, each multiplied by a random 64-bit number of its place, twice: two different records agree
in it with a chance below 2**-96. Its lowest bit is no sum: it tells that the record has so many predictions that no two draws
from the same text agree in their places.
"""

from bertprep.kernels.decode import _pointer_at
from bertprep.kernels.encode import FEATURES
from bertprep.kernels.language import f32_p, i32_p, i64, i64_p, kernel, shifted, subroutine, u64, u64_p
from bertprep.kernels.record_faults import (
    AT_MOST,
    BEHIND_PREDICTIONS,
    CLS,
    CLS_IN_TEXT,
    COUNT,
    COUNT_RULE,
    EMPTY_SEGMENT,
    EXACT_COUNT,
    EXPECTED,
    FAULT_WIDTH,
    FOUND,
    ID_RANGE,
    MASK,
    MASK_ON_SPECIAL,
    MASK_ORDER,
    MASK_OUTSIDE,
    MASK_WITHOUT_LABEL,
    NEXT_SENTENCE,
    NO_CLS,
    PAD_IN_TEXT,
    PADDING_IDS,
    PADDING_SEGMENTS,
    PLACE,
    PRED,
    PREDICTION_COUNT,
    RECORD,
    SCALE,
    SEGMENTS,
    SEP,
    SEP_COUNT,
    SEP_LAST,
    SEQ,
    TOKENS,
    UNEVEN_MASK,
    WEIGHTS,
)


@subroutine
def _note(faults, fault, record, place, expected, found):
    """Count a fault, and keep the first one's particulars; returns 1."""
    row = shifted(faults, i64(FAULT_WIDTH) * fault)
    if row[COUNT] == 0:
        row[RECORD], row[PLACE], row[EXPECTED], row[FOUND] = record, place, expected, found
    row[COUNT] += 1
    return i64(1)


@subroutine
def _first_other(values, start, stop, wanted):
    """The first place from `start` on that does not hold `wanted`, or `stop`."""
    place = start
    while place < stop and values[place] == wanted:
        place += 1
    return place


@subroutine
def _first(values, start, stop, wanted):
    """The first place from `start` on that holds `wanted`, or `stop`."""
    place = start
    while place < stop and values[place] != wanted:
        place += 1
    return place


@subroutine
def _check_padding(ids, mask, segments, seq, record, faults):
    """(tokens of text, 1 if there is a fault else 0)."""
    length, others, bad = i64(0), i64(0), i64(0)
    for place in range(seq):
        length += mask[place]
    for place in range(seq):
        others |= i64(mask[place]) ^ i64(place < length)
    if others != 0 or length == 0:
        length = _first_other(mask, i64(0), seq, 1)
        # the text ends where the mask first leaves 1; what is wrong is behind, or there where it is neither 0 nor 1
        wrong = _first_other(mask, length, seq, 0)
        bad |= _note(faults, i64(UNEVEN_MASK), record, min(wrong, seq - 1), i64(0), i64(mask[min(wrong, seq - 1)]))
    left_ids, left_segments = i64(0), i64(0)
    for place in range(length, seq):
        left_ids |= ids[place]
        left_segments |= segments[place]
    if left_ids != 0:
        wrong = _first_other(ids, length, seq, 0)
        bad |= _note(faults, i64(PADDING_IDS), record, wrong, length, i64(ids[wrong]))
    if left_segments != 0:
        wrong = _first_other(segments, length, seq, 0)
        bad |= _note(faults, i64(PADDING_SEGMENTS), record, wrong, length, i64(segments[wrong]))
    return length, bad


@subroutine
def _check_predictions(positions, labels, weights, segments, length, rules, by_length, text, record, faults):
    """(number of predictions, 1 if there is a fault else 0); puts the labels back into the text."""
    pred, bad = rules[PRED], i64(0)
    count = i64(0)
    while count < pred and weights[count] == 1.0:
        count += 1
    behind = i64(0)
    for i in range(count, pred):
        if weights[i] != 0.0:
            bad |= _note(faults, i64(WEIGHTS), record, i, i64(0), count)
            break
    for i in range(count, pred):
        behind |= i64(positions[i]) | i64(labels[i])
    if behind != 0 and bad == 0:
        wrong = min(_first_other(positions, count, pred, 0), _first_other(labels, count, pred, 0))
        found = i64(positions[wrong]) if positions[wrong] != 0 else i64(labels[wrong])
        bad |= _note(faults, i64(BEHIND_PREDICTIONS), record, wrong, count, found)
    before, outside, unordered, on_special = i64(-1), i64(0), i64(0), i64(0)
    for i in range(count):
        place, label = i64(positions[i]), i64(labels[i])
        if place < 0 or place >= length:
            if outside == 0:
                outside = _note(faults, i64(MASK_OUTSIDE), record, place, length, label)
            continue
        if place <= before and unordered == 0:
            unordered = _note(faults, i64(MASK_ORDER), record, place, before, place)
        before = place
        text[place] = labels[i]
        is_special = place == 0 or place == length - 1 or label == rules[CLS] or label == rules[SEP]
        is_special = is_special or (segments[place] == 0 and segments[place + 1] == 1)
        if is_special and on_special == 0:
            on_special = _note(faults, i64(MASK_ON_SPECIAL), record, place, i64(0), label)
    wanted = by_length[length]
    rule = rules[COUNT_RULE]
    if (rule == EXACT_COUNT and count != wanted) or (rule == AT_MOST and count > wanted):
        _note(faults, i64(PREDICTION_COUNT), record, length, wanted, count)  # and is counted all the same
    return count, bad | outside | unordered | on_special


@subroutine
def _check_text(text, segments, length, rules, record, faults):
    """(place of the first [SEP], 1 if there is a fault else 0): whether the text is [CLS] A [SEP] B [SEP] with its segments."""
    cls, sep, bad = rules[CLS], rules[SEP], i64(0)
    n_cls, n_sep, sep_places, n_pad = i64(0), i64(0), i64(0), i64(0)
    for place in range(length):
        token = i64(text[place])
        n_cls += i64(token == cls)
        n_sep += i64(token == sep)
        sep_places += place * i64(token == sep)
        n_pad += i64(token == 0)
    if n_pad != 0:
        bad |= _note(faults, i64(PAD_IN_TEXT), record, _first(text, i64(0), length, 0), length, i64(0))
    if length == 0 or text[0] != cls:
        bad |= _note(faults, i64(NO_CLS), record, i64(0), cls, i64(text[0]) if length else i64(0))
    elif n_cls > 1:
        bad |= _note(faults, i64(CLS_IN_TEXT), record, _first(text, i64(1), length, cls), cls, n_cls)
    first_sep = i64(0)
    if n_sep != 2:
        bad |= _note(faults, i64(SEP_COUNT), record, i64(0), i64(2), n_sep)
    elif text[length - 1] != sep:
        bad |= _note(faults, i64(SEP_LAST), record, length - 1, sep, i64(text[length - 1]))
    else:
        first_sep = sep_places - (length - 1)
        if first_sep < 2 or first_sep == length - 2:
            bad |= _note(faults, i64(EMPTY_SEGMENT), record, first_sep, i64(0), i64(0))
        others = i64(0)
        for place in range(length):
            others |= i64(segments[place]) ^ i64(place > first_sep)
        if others != 0:
            wrong = _first_other(segments, i64(0), first_sep + 1, 0)
            if wrong == first_sep + 1:
                wrong = _first_other(segments, wrong, length, 1)
            bad |= _note(faults, i64(SEGMENTS), record, wrong, i64(wrong > first_sep), i64(segments[wrong]))
    return first_sep, bad


@subroutine
def _check_range(values, count, size, record, faults):
    """1 if a value is not below `size`, else 0."""
    highest, signs = i64(0), i64(0)
    for place in range(count):
        value = i64(values[place])
        highest = max(highest, value)
        signs |= value
    if signs < 0 or highest >= size:
        place = i64(0)
        while 0 <= values[place] < size:
            place += 1
        return _note(faults, i64(ID_RANGE), record, place, size, i64(values[place]))
    return i64(0)


@subroutine
def _count_values(seq, pred):
    return 3 * seq + 3 * pred + 1


@subroutine
def _hash_record(room, row, keys, values_in_all, hashes):
    """The two sums of products; arrays of floats are taken as the bits they are."""
    first, second, at = u64(0), u64(0), i64(0)
    for feature in range(FEATURES):
        width = room[FEATURES + feature]
        values = shifted(_pointer_at(i32_p, room[feature]), row * width)
        for i in range(width):
            value = u64(values[i])
            first += value * keys[at + i]
            second += value * keys[values_in_all + at + i]
        at += width
    hashes[0], hashes[1] = first, second & ~u64(1)


@kernel
def check_records(
    room: i64_p,
    count: i64,
    numbers: i64_p,
    rules: i64_p,
    by_length: i64_p,
    certain_by_length: i64_p,
    keys: u64_p,
    text: i32_p,
    faults: i64_p,
    lengths: i64_p,
    lengths_of_a: i64_p,
    predictions: i64_p,
    positions_seen: i64_p,
    labels_seen: i64_p,
    tokens_seen: i64_p,
    shown: i64_p,
    next_sentence: i64_p,
    expected_positions: i64_p,
    expected_labels: i64_p,
    hashes: u64_p,
) -> i64:
    """Check `count` records of the arrays, whose numbers in their file are `numbers`; returns how many have no fault.

    Counts add to what the arrays hold: `faults` (FAULTS, FAULT_WIDTH), the counts of a `Tally`, and what of its `positions`
    and `labels` is to be expected of fair draws, in units of 1 / SCALE: (seq + 1) differences from place to place, and one a
    token. `by_length` and `certain_by_length` have seq + 1 numbers; `text` has room for seq + 1 tokens, `hashes` for two
    numbers a record.
    """  # fmt: skip
    seq, pred, tokens = rules[SEQ], rules[PRED], rules[TOKENS]
    clean = i64(0)
    for row in range(count):
        ids = shifted(_pointer_at(i32_p, room[0]), row * seq)
        mask = shifted(_pointer_at(i32_p, room[1]), row * seq)
        segments = shifted(_pointer_at(i32_p, room[2]), row * seq)
        positions = shifted(_pointer_at(i32_p, room[3]), row * pred)
        labels = shifted(_pointer_at(i32_p, room[4]), row * pred)
        weights = shifted(_pointer_at(f32_p, room[5]), row * pred)
        label = i64(_pointer_at(i32_p, room[6])[row])
        record = numbers[row]
        _hash_record(room, row, keys, _count_values(seq, pred), shifted(hashes, 2 * row))

        length, bad = _check_padding(ids, mask, segments, seq, record, faults)
        for place in range(length):
            text[place] = ids[place]
        n, wrong = _check_predictions(
            positions, labels, weights, segments, length, rules, by_length, text, record, faults
        )  # fmt: skip
        bad |= wrong
        first_sep, wrong = _check_text(text, segments, length, rules, record, faults)
        bad |= wrong
        if tokens > 0:
            wrong = _check_range(ids, seq, tokens, record, faults)
            if wrong == 0:
                wrong = _check_range(labels, pred, tokens, record, faults)
            bad |= wrong
        if label != 0 and label != 1:
            bad |= _note(faults, i64(NEXT_SENTENCE), record, i64(0), i64(0), label)
        if bad != 0:
            continue

        clean += 1
        hashes[2 * row + 1] |= u64(certain_by_length[length] & i64(n >= by_length[length]))
        lengths[length] += 1
        lengths_of_a[first_sep - 1] += 1
        predictions[n] += 1
        next_sentence[label] += 1
        n_masks = i64(0)
        for i in range(n):
            place, original = i64(positions[i]), i64(labels[i])
            token = i64(ids[place])
            positions_seen[place] += 1
            if tokens > 0:
                labels_seen[original] += 1
            if token == rules[MASK]:
                shown[0] += 1
                n_masks += 1
            elif token == original:
                shown[1] += 1
            else:
                shown[2] += 1
        masks_in_all = i64(0)
        for place in range(length):
            masks_in_all += i64(i64(ids[place]) == rules[MASK])
        if masks_in_all != n_masks:
            place, i = i64(0), i64(0)
            while ids[place] != rules[MASK] or (i < n and positions[i] == place):
                if i < n and positions[i] == place:
                    i += 1
                place += 1
            _note(faults, i64(MASK_WITHOUT_LABEL), record, place, i64(0), rules[MASK])
        share = (n * i64(SCALE) + (length - 3) // 2) // (length - 3)
        expected_positions[1] += share
        expected_positions[first_sep] -= share
        expected_positions[first_sep + 1] += share
        expected_positions[length - 1] -= share
        if tokens > 0:
            for place in range(1, length - 1):
                tokens_seen[text[place]] += 1
                expected_labels[text[place]] += share
            tokens_seen[rules[SEP]] -= 1
            expected_labels[rules[SEP]] -= share
    return clean

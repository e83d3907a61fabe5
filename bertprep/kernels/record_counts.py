"""Collects statistics of valid records, and hashes all records, even invalid ones; `check.values` decides which are valid.

The text of a record is its tokens with the labels restored. Each record has two hashes: of its text, and of all its values. The
lowest bit of the first hash is a flag: it is set if the text is so long and varied that no other text equals it by chance. The
lowest six bits of the second hash are a number c: independent masks of the same text are equal with a probability of at most
2**-c.
"""

from collections import namedtuple

from bertprep.kernels import numbers as n
from bertprep.kernels.language import Block, i32_p, i64, i64_p, kernel, struct, subroutine, u8_p, u64, u64_p
from bertprep.kernels.memory import count_bits, field_at, field_values, pointer_at, shifted

_CERTAIN_TEXT = 32  # tokens; a shorter text, such as two stock phrases, may occur again by chance
_MAX_CHOICES = 63
_SHOWN_ALIKE = 32
"""Minus the logarithm, in units of 1 / CHOICE, of the probability that two draws show the same token at a position: it is
0.8**2 + 0.1**2 + ..., which is below 0.71."""

Counter = struct(
    {
        "log2_factorials": "seq + 1", "kinds": "vocabulary", "keys": "seq + block.itemsize",
        "words": "WORD_ROWS * (seq + 1)", "unpaired": "seq + 2", "segments_in_bits": "4 * SKETCH_WORDS",
    },
    seq=i64, vocabulary=i64, sep=i64, mask=i64, has_pairs=i64, count_rule=i64, step=i64,  # see `check.rules`
    kinds=u8_p,  # (vocabulary,) CONTINUES and ALONE_IN_WORD
    log2_factorials=i64_p,  # (seq + 1,), in units of 1 / CHOICE
    keys=u64_p,  # random numbers: seq for the hash of the text, then at least one for each value of a record
    # scratch memory
    words=i64_p,  # (WORD_ROWS, seq + 1)
    unpaired=i32_p,  # (seq + 2,), a record with a random B that waits for the next: first [SEP], length or 0 for none, text
    segments_in_bits=u64_p,  # (4, SKETCH_WORDS), sketches of A and B of that record, and of A and B of the next
    # results: the kernel adds to them
    lengths=i64_p, lengths_of_a=i64_p, predictions=i64_p, positions=i64_p, labels=i64_p, tokens=i64_p, shown=i64_p,
    next_sentence=i64_p, position_steps=i64_p, expected_labels=i64_p, word_positions=i64_p, word_labels=i64_p,
    replaced=i64_p, signs=i64_p, predicted=i64_p,  # see `check.outcome.RecordCounts`
    sketches=u64_p, sketched=i64_p,  # for the first two of each `step` records: a sketch; the length and the first token
)  # fmt: skip
"""The counter of a file, `t` below; `r` is the current record."""
Record = namedtuple("Record", "index text ids positions labels length drawn first_sep inner")
"""`text` has the labels restored and `length` tokens. `drawn` is the number of predictions, and `inner` the number of [SEP]
before the last token."""


@subroutine
def _first(values, start, stop, wanted):
    """Return the first position from `start` on that has the value `wanted`, or `stop` if there is none."""
    position = start
    while position < stop and values[position] != wanted:
        position += 1
    return position


@subroutine
def _hash(values, count, keys):
    total = u64(0)
    for i in range(count):
        total += u64(values[i]) * keys[i]
    return total


@subroutine
def _hash_all(block, row, keys):
    """Return the hash of all values of a record; floats count by their bits."""
    total, at = u64(0), 0
    for feature in range(block[n.BLOCK_FIELDS]):
        width, address = field_values(block, feature), field_at(block, feature, row)
        if block[n.FIELD_WIDTH * feature + n.FIELD_TYPE] == n.BYTES:
            total += _hash(pointer_at(u8_p, address), width, shifted(keys, at))
        else:
            total += _hash(pointer_at(i32_p, address), width, shifted(keys, at))
        at += width
    return total & ~u64(_MAX_CHOICES)


@subroutine
def _hash_text(text, count, keys):
    return _hash(text, count, keys) & ~u64(1)


@subroutine
def _sketch_text(text, start, stop, sketch):
    """Set a bit of the sketch for each token; the token's id decides which one."""
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
def _compare_segments(t, r):
    """Compare two records labelled random: count whether their As share more tokens with their own Bs than with each other's.

    The first record of a pair is only stored; the second one is compared with it.
    """
    unpaired, sketches = t.unpaired, t.segments_in_bits
    if unpaired[1] == 0:
        unpaired[0], unpaired[1] = r.first_sep, r.length
        for position in range(r.length):
            unpaired[2 + position] = r.text[position]
        return
    before, before_sep = shifted(unpaired, 2), i64(unpaired[0])
    end_of_a = min(r.first_sep, before_sep)
    size_of_b = min(r.length - r.first_sep, unpaired[1] - before_sep) - 2
    for word in range(4 * n.SKETCH_WORDS):
        sketches[word] = u64(0)
    _sketch_text(before, 1, end_of_a, sketches)
    _sketch_text(before, before_sep + 1, before_sep + 1 + size_of_b, shifted(sketches, n.SKETCH_WORDS))
    _sketch_text(r.text, 1, end_of_a, shifted(sketches, 2 * n.SKETCH_WORDS))
    _sketch_text(r.text, r.first_sep + 1, r.first_sep + 1 + size_of_b, shifted(sketches, 3 * n.SKETCH_WORDS))
    own = _count_common(sketches, 0, 1) + _count_common(sketches, 2, 3)
    other = _count_common(sketches, 0, 3) + _count_common(sketches, 2, 1)
    t.signs[n.OWN_B] += i64(own > other)
    t.signs[n.OTHER_B] += i64(own < other)
    unpaired[1] = 0


@subroutine
def _expect_tokens(t, r, n_same):
    """Add the expected counts for random masks, by which every token except the `inner` [SEP] is equally likely."""
    text, expected, last = r.text, t.position_steps, r.length - 1
    candidates = r.length - 2 - r.inner
    fraction = (r.drawn * n.SCALE + candidates // 2) // candidates
    expected[1] += fraction
    position = r.first_sep
    for _ in range(r.inner):
        expected[position] -= fraction
        expected[position + 1] += fraction
        position = _first(text, position + 1, last, t.sep)
    expected[last] -= fraction
    t.signs[n.EXPECTED_RIGHT] += n_same * fraction
    t.signs[n.EXPECTED_LEFT] += n_same * fraction
    if t.vocabulary > 0:
        for position in range(1, last):
            t.expected_labels[text[position]] += fraction
        t.expected_labels[t.sep] -= r.inner * fraction


@subroutine
def _choices(t, positions, drawn):
    """Return the logarithm of the number of ways to draw `drawn` of the positions."""
    return t.log2_factorials[positions] - t.log2_factorials[drawn] - t.log2_factorials[positions - drawn]


@subroutine
def _expect_words(t, r):
    """Add the expected counts for masks of whole words, each counted at its first token.

    Return the logarithm of the number of ways to choose the words.
    """
    text, heads, row = r.text, t.words, t.seq + 1
    sizes, masked = shifted(heads, row), shifted(heads, 2 * row)
    of_size, masked_of_size = shifted(heads, 3 * row), shifted(heads, 4 * row)
    words, at = 0, 0
    for position in range(r.length):
        of_size[position] = masked_of_size[position] = 0
    for position in range(1, r.length - 1):
        if text[position] == t.sep:
            continue
        while at < r.drawn and r.positions[at] < position:
            at += 1
        is_masked = i64(at < r.drawn and r.positions[at] == position)
        if words > 0 and t.kinds[text[position]] == n.CONTINUES:
            sizes[words - 1] += 1
        else:
            heads[words], sizes[words], masked[words] = position, 1, is_masked
            words += 1
    for word in range(words):
        of_size[sizes[word]] += 1
        masked_of_size[sizes[word]] += masked[word]
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
    for size in range(1, r.length - 1):
        if masked_of_size[size] != 0:
            choices += _choices(t, of_size[size], masked_of_size[size])
    return choices


@subroutine
def _count_predictions(t, r):
    """Count predictions by position, by label, and by the token that the model sees."""
    for i in range(r.drawn):
        position, original = i64(r.positions[i]), i64(r.labels[i])
        token = i64(r.ids[position])
        t.positions[position] += 1
        if t.vocabulary > 0:
            t.labels[original] += 1
        if token == t.mask:
            t.shown[0] += 1
        elif token == original:
            t.shown[1] += 1
        else:
            t.shown[2] += 1
            if t.vocabulary > 0:
                t.replaced[token] += 1


@subroutine
def _count_tokens(t, r):
    """Count the tokens of the text, except [CLS] and [SEP]."""
    for position in range(1, r.length - 1):
        t.tokens[r.text[position]] += 1
    t.tokens[t.sep] -= r.inner


@subroutine
def _count_same(r):
    """Return the number of tokens that equal the next token."""
    total = 0
    for position in range(r.length - 1):
        total += i64(r.text[position] == r.text[position + 1])
    return total


@subroutine
def _count_beside(t, r):
    """Count the predictions whose label equals the token on the right, and those whose label equals the token on the left."""
    for i in range(r.drawn):
        position = i64(r.positions[i])
        t.signs[n.RIGHT] += i64(r.text[position] == r.text[position + 1])
        t.signs[n.LEFT] += i64(r.text[position] == r.text[position - 1])


@subroutine
def _count_pair(t, r, label):
    t.lengths_of_a[r.first_sep - 1] += 1
    t.next_sentence[label] += 1
    if label == 1:
        _compare_segments(t, r)
    if r.length == t.seq and 2 * (r.first_sep - 1) < t.seq - 4:
        t.signs[n.OPEN_FOLLOWS + label] += 1


@kernel(
    "count <= len(block)", texts="count * seq", about="ABOUT_WIDTH * count", indices="count", hashes="2 * count",
)  # fmt: skip
def count_records(counter: Counter, block: Block, count: i64, texts: i32_p, about: i64_p, indices: i64_p, hashes: u64_p) -> i64:
    """Count the first `count` records of the block, and hash them; return how many are valid.

    `indices` (count,) are the records' indices in their file, and `texts` (count, seq) their tokens with the labels restored.
    `about` (count, ABOUT_WIDTH) has numbers about each record, of which only IS_VALID matters if it is 0. `hashes` (count, 2)
    gets the two hashes. The fields of the block are in the order of KNOWN_FEATURES.
    """
    t = Counter(counter)
    valid = 0
    for row in range(count):
        of_row, text = shifted(about, n.ABOUT_WIDTH * row), shifted(texts, t.seq * row)
        hashes[2 * row] = _hash_text(text, t.seq, t.keys)
        hashes[2 * row + 1] = _hash_all(block, row, shifted(t.keys, t.seq))
        if of_row[n.IS_VALID] == 0:
            continue
        valid += 1
        r = Record(
            indices[row], text,
            pointer_at(i32_p, field_at(block, n.INPUT_IDS, row)),
            pointer_at(i32_p, field_at(block, n.POSITIONS, row)),
            pointer_at(i32_p, field_at(block, n.LABELS, row)),
            of_row[n.LENGTH], of_row[n.DRAWN], of_row[n.FIRST_SEP], of_row[n.INNER_SEPS],
        )  # fmt: skip
        n_same, choices = _count_same(r), 0
        if t.count_rule == n.WHOLE_WORDS:
            choices = _expect_words(t, r)
        else:
            _expect_tokens(t, r, n_same)
            if n_same != 0:
                _count_beside(t, r)
            if t.count_rule == n.EXACT_COUNT:
                choices = _choices(t, r.length - 2 - r.inner, r.drawn)
        hashes[2 * row] |= u64(r.length >= _CERTAIN_TEXT and 4 * n_same < r.length)
        hashes[2 * row + 1] |= u64(min((choices + r.drawn * _SHOWN_ALIKE) // n.CHOICE, _MAX_CHOICES))
        t.lengths[r.length] += 1
        t.predictions[r.drawn] += 1
        t.predicted[r.length] += r.drawn
        if t.has_pairs != 0:
            _count_pair(t, r, i64(pointer_at(u8_p, field_at(block, n.NEXT_SENTENCE, row))[0]))
        if t.step != 0 and (r.index & (t.step - 1)) < 2:
            slot = 2 * (r.index // t.step) + (r.index & 1)
            t.sketched[2 * slot], t.sketched[2 * slot + 1] = r.length, i64(text[1])
            _sketch_text(text, 1, r.length - 1, shifted(t.sketches, n.SKETCH_WORDS * slot))
        _count_predictions(t, r)
        if t.vocabulary > 0:
            _count_tokens(t, r)
    return valid

"""Generates masked instances: sentence pairs with the same draws as Google's `create_pretraining_data.py`, or full sentences.

Read `instances.reference` first, which has the same algorithms in plain Python. Segments are slices of one array of tokens, and
truncation only moves their ends; full sentences are slices of `packed`. An instance of 128 tokens takes about 0.5 microseconds.
"""

from bertprep.kernels import numbers as n
from bertprep.kernels.language import i32_p, i64, i64_p, kernel, struct, subroutine, u8_p, u16_p, u32_p, u64, u64_p
from bertprep.kernels.memory import copy_numbers, shifted, trailing_zeros
from bertprep.kernels.mersenne import draw_53_bits, draw_below, shuffle, shuffle_head

_MASK_PROBABILITY = 7205759403792794  # 0.8 and 0.5 as thresholds for draw_53_bits: ceil(p * 2**53)
_HALF = 4503599627370496
_RANDOM_DOCUMENT_TRIES = 10

Generator = struct(
    {
        "tokens": "sentence_starts[-1]", "sentence_starts": "document_starts[-1] + 1", "document_starts": "documents + 1",
        "order": "documents", "predictions": "longest + 3", "continues": "vocabulary", "drawn": "draws",
        "twister": "TWISTER_SIZE",
        "scratch": "4 * (longest + 4)", "marked": "longest // 64 + 1", "chosen": "longest + 3", "state": "GENERATOR_STATE_SIZE",
        "slices": "4 * instance_capacity", "is_random_next": "instance_capacity", "mask_ends": "instance_capacity",
        "mask_positions": "mask_capacity", "mask_replacements": "mask_capacity",
    },
    tokens=i32_p, sentence_starts=i64_p,  # sentence s is tokens[sentence_starts[s]:sentence_starts[s + 1]]
    document_starts=i64_p,  # document d begins with sentence document_starts[d]
    order=i64_p, documents=i64,  # the shuffled documents
    longest=i64,  # the most tokens of an instance, not counting [CLS] and the [SEP] at the end of each segment
    rounds=i64, short_threshold=i64,
    predictions=i64_p, most_predictions=i64,  # number of masks for each length of a sequence, including special tokens
    whole_word=i64, continues=u8_p, cls=i64, sep=i64, mask=i64, vocabulary=i64,
    drawn=i32_p, draws=i64,  # the ids among which random tokens are drawn
    twister=u32_p,
    scratch=u16_p,  # (4, longest + 4)
    marked=u64_p, chosen=i32_p,  # for each position a bit, which is 0 at first, and a replacement
    state=i64_p, instance_capacity=i64, mask_capacity=i64,
    packed=i32_p, slices=i32_p, is_random_next=u8_p, mask_ends=i64_p, mask_positions=u16_p, mask_replacements=i32_p,
)  # fmt: skip
"""The arguments of the generator, `g` below. The last ones are the arrays of `instances.generator.Instances`."""


@subroutine
def _list_candidates(g, text, a_start, a_size, b_size, positions):
    """Write the positions that may be masked, which are all except those of [CLS] and [SEP]; return their number."""
    if b_size == n.NO_SEGMENT:
        text, specials = shifted(text, a_start), 0
        for i in range(a_size):
            specials += i64(text[i] == g.sep) | i64(text[i] == g.cls)
        if specials != 0:  # rare: the sequence spans several documents
            count = 0
            for i in range(a_size):
                positions[count] = i + 1
                count += i64(text[i] != g.sep) & i64(text[i] != g.cls)
            return count
    for i in range(a_size):
        positions[i] = i + 1
    for i in range(b_size):
        positions[a_size + i] = a_size + 2 + i
    return a_size + max(b_size, 0)


@subroutine
def _choose_masked_words(g, text, a_start, a_size, b_start, candidates, count, wanted, picked):
    """Choose words to mask in random order, skipping words that would exceed `wanted` tokens.

    Write the positions of their tokens to `picked`, and return the number of these positions.
    """
    words, word_starts = shifted(g.scratch, 2 * (g.longest + 4)), shifted(g.scratch, 3 * (g.longest + 4))
    a, b = shifted(text, a_start - 1), shifted(text, b_start - a_size - 2)  # indexed by positions in the sequence
    word_count = 0
    for i in range(count):
        position = i64(candidates[i])
        if i == 0 or not g.continues[a[position] if position <= a_size else b[position]]:
            words[word_count] = word_count
            word_starts[word_count] = i
            word_count += 1
    word_starts[word_count] = count
    shuffle(g.twister, words, word_count)
    size = 0
    for word in range(word_count):
        if size >= wanted:
            break
        start, end = i64(word_starts[i64(words[word])]), i64(word_starts[i64(words[word]) + 1])
        if size + end - start > wanted:
            continue
        for i in range(start, end):
            picked[size] = candidates[i]
            size += 1
    return size


@subroutine
def _draw_replacements(g, positions, count):
    """Draw the replacement for each of these positions into `chosen`, and set their bits in `marked`."""
    for i in range(count):
        position = i64(positions[i])
        if draw_53_bits(g.twister) < _MASK_PROBABILITY:
            replacement = g.mask
        elif draw_53_bits(g.twister) < _HALF:
            replacement = n.UNCHANGED
        else:
            replacement = i64(g.drawn[draw_below(g.twister, g.draws)])
        g.chosen[position] = replacement
        g.marked[position >> 6] |= u64(1) << u64(position & 63)


@subroutine
def _put_masks(g, size, mask):
    """Write the marked positions below `size` in ascending order, and clear the marks; return the new end of the masks."""
    for group in range((size >> 6) + 1):
        bits = g.marked[group]
        g.marked[group] = u64(0)
        while bits != u64(0):
            position = (group << 6) + trailing_zeros(bits)
            bits &= bits - u64(1)
            g.mask_positions[mask] = position
            g.mask_replacements[mask] = g.chosen[position]
            mask += 1
    return mask


@subroutine
def _put_instance(g, text, instance, mask, a_start, a_size, b_start, b_size):
    """Write an instance, as slices of `text`, and its masks; return the new end of the masks."""
    slices = shifted(g.slices, 4 * instance)
    slices[0], slices[1], slices[2], slices[3] = a_start, a_size, b_start, b_size
    positions, candidates, size = g.scratch, shifted(g.scratch, g.longest + 4), a_size + b_size + 3
    wanted = g.predictions[size]
    if g.whole_word:
        count = _list_candidates(g, text, a_start, a_size, b_size, candidates)
        count = _choose_masked_words(g, text, a_start, a_size, b_start, candidates, count, wanted, positions)
    else:
        candidate_count = _list_candidates(g, text, a_start, a_size, b_size, positions)
        count = min(wanted, candidate_count)
        shuffle_head(g.twister, positions, candidate_count, count)
    _draw_replacements(g, positions, count)
    mask = _put_masks(g, size, mask)
    g.mask_ends[instance] = mask
    return mask


@subroutine
def _draw_random_next(g, document, target):
    """Return the first sentence, and the one after the last, from a random one on in another document, of `target` tokens."""
    other = 0
    for _ in range(_RANDOM_DOCUMENT_TRIES):
        other = draw_below(g.twister, g.documents)
        if other != document:
            break
    sentence, end = g.document_starts[g.order[other]], g.document_starts[g.order[other] + 1]
    sentence += draw_below(g.twister, end - sentence)
    first, start = sentence, g.sentence_starts[sentence]
    while True:
        sentence += 1
        if sentence == end or g.sentence_starts[sentence] - start >= target:
            break
    return first, sentence


@subroutine
def _is_too_long(g, sentence):
    """Return whether a sentence alone exceeds `longest` tokens. In a segment only the last sentence can."""
    return g.sentence_starts[sentence + 1] - g.sentence_starts[sentence] > g.longest


@subroutine
def _truncate(g, a_start, a_size, b_start, b_size):
    """Remove tokens from the front or the back of the longer segment until both fit in `longest` tokens."""
    while a_size + b_size > g.longest:
        front = i64(draw_53_bits(g.twister) < _HALF)
        if a_size > b_size:
            a_start += front
            a_size -= 1
        else:
            b_start += front
            b_size -= 1
    return a_start, a_size, b_start, b_size


@kernel()
def generate(generator: Generator) -> i64:
    """Generate pairs; return 1 when all rounds are done, or 0 if the output arrays might overflow.

    After 0, call it again with larger arrays and the same state to continue.
    """
    g = Generator(generator)
    instance, mask = g.state[n.INSTANCES], g.state[n.MASKS]
    for repetition in range(g.state[n.ROUND], g.rounds):
        for document in range(g.state[n.DOCUMENT] if repetition == g.state[n.ROUND] else 0, g.documents):
            sentence, end_sentence = g.document_starts[g.order[document]], g.document_starts[g.order[document] + 1]
            most_instances = end_sentence - sentence
            if instance + most_instances > g.instance_capacity or mask + most_instances * g.most_predictions > g.mask_capacity:
                g.state[n.ROUND], g.state[n.DOCUMENT], g.state[n.INSTANCES], g.state[n.MASKS] = (
                    repetition, document, instance, mask
                )  # fmt: skip
                return 0
            target = g.longest
            if draw_53_bits(g.twister) < g.short_threshold:
                target = 2 + draw_below(g.twister, g.longest - 1)
            while sentence < end_sentence:
                # A chunk has sentences up to the target length, or to the end of the document.
                chunk_start = sentence
                a_start = g.sentence_starts[chunk_start]
                while True:
                    sentence += 1
                    if sentence == end_sentence or g.sentence_starts[sentence] - a_start >= target:
                        break
                chunk_sentences = sentence - chunk_start
                a_sentences = 1
                if chunk_sentences >= 2:
                    a_sentences = 1 + draw_below(g.twister, chunk_sentences - 1)
                a_end = chunk_start + a_sentences
                a_size = g.sentence_starts[a_end] - a_start
                random_next = chunk_sentences == 1 or draw_53_bits(g.twister) < _HALF
                if random_next:
                    b_first, b_end = _draw_random_next(g, document, target - a_size)
                    sentence = a_end  # the sentences after A are used again by the next pair
                else:
                    b_first, b_end = a_end, sentence
                b_start = g.sentence_starts[b_first]
                b_size = g.sentence_starts[b_end] - b_start
                if not (_is_too_long(g, a_end - 1) or _is_too_long(g, b_end - 1)):
                    g.state[n.PAIR_TOKENS] += a_size + b_size
                    g.state[n.TRUNCATED_TOKENS] += max(a_size + b_size - g.longest, 0)
                a_start, a_size, b_start, b_size = _truncate(g, a_start, a_size, b_start, b_size)
                mask = _put_instance(g, g.tokens, instance, mask, a_start, a_size, b_start, b_size)
                g.is_random_next[instance] = random_next
                instance += 1
    g.state[n.INSTANCES], g.state[n.MASKS] = instance, mask
    return 1


@subroutine
def _pack(g, at, instance):
    """Pack the sentences of a round; return the end of the packed tokens and the end of the sequences.

    The ends of the sequences are kept in `mask_ends` until their masks are drawn.
    """
    start, ends = at, g.mask_ends  # the start of the current sequence, which is empty only before the first sentence
    for d in range(g.documents):
        document, separators = g.order[d], i64(d > 0)  # [SEP] only if the first sentence joins sentences of the last document
        for sentence in range(g.document_starts[document], g.document_starts[document + 1]):
            first, end = g.sentence_starts[sentence], g.sentence_starts[sentence + 1]
            if at > start and at - start + separators + end - first > g.longest:
                ends[instance] = start = at
                instance += 1
            elif separators and at > start:
                g.packed[at] = g.sep
                at += 1
            separators = 0
            while end - first > g.longest:
                copy_numbers(shifted(g.packed, at), shifted(g.tokens, first), g.longest)
                at += g.longest
                first += g.longest
                ends[instance] = start = at
                instance += 1
            copy_numbers(shifted(g.packed, at), shifted(g.tokens, first), end - first)
            at += end - first
    ends[instance] = at
    return at, instance + 1


@kernel(packed="rounds * (sentence_starts[-1] + documents)")
def pack_sentences(generator: Generator) -> i64:
    """Generate the full-sentence instances of all rounds, shuffling the documents in each round; return 1."""
    g = Generator(generator)
    instance, mask, at = 0, 0, 0
    for _ in range(g.rounds):
        shuffle(g.twister, g.order, g.documents)
        start, first = at, instance
        at, end = _pack(g, at, instance)
        for i in range(first, end):
            size = g.mask_ends[i] - start
            mask = _put_instance(g, g.packed, i, mask, start, size, start, n.NO_SEGMENT)
            start += size
        instance = end
    g.state[n.INSTANCES], g.state[n.MASKS], g.state[n.PACKED] = instance, mask, at
    return 1


@kernel(generator="TWISTER_SIZE", numbers="count")
def shuffle_numbers(generator: u32_p, numbers: i64_p, count: i64) -> i64:
    """Shuffle the first `count` numbers like `random.shuffle`; return 0."""
    shuffle(generator, numbers, count)
    return 0

"""The generator: sentence pairs and their masks, draw for draw those of Google's `create_pretraining_data.py`.

`instances.reference` is the same algorithm in plain Python, and the one to read first. Here a document is a run of
sentences, a sentence a run of tokens, and all of them are in one array: segment A and segment B are slices of it, and
cutting them to length moves their ends. No token is copied. Costs about 0.5 microseconds an instance of 128 tokens, most of
it for the shuffle that picks the masked positions.
"""

from bertprep.kernels.language import i32_p, i64, i64_p, kernel, subroutine, u8_p, u16_p, u32_p, u64, u64_p
from bertprep.kernels.memory import shifted, trailing_zeros
from bertprep.kernels.mersenne import draw_53_bits, draw_below, shuffle, shuffle_head
from bertprep.kernels.numbers import DOCUMENT, INSTANCES, MASKS, ROUND, UNCHANGED

MASK_PROBABILITY = 7205759403792794  # 0.8 and 0.5 as thresholds for draw_53_bits: ceil(p * 2**53)
HALF = 4503599627370496
RANDOM_DOCUMENT_TRIES = 10


@subroutine
def _pick_tokens(a_size, b_size, head, generator, positions):
    """Leave the masked positions, `head` of them, at the front of `positions`."""
    count = a_size + b_size
    for i in range(a_size):
        positions[i] = i + 1
    for i in range(b_size):
        positions[a_size + i] = a_size + 2 + i
    shuffle_head(generator, positions, count, head)
    return head


@subroutine
def pick_words(words, word_starts, count, wanted, generator, picked):
    """Draw words in random order, without those that would exceed the `wanted` tokens; returns how many tokens these have.

    Word n of `count` has the tokens from word_starts[n] to word_starts[n + 1] - 1. The numbers of those of the drawn words are
    left at the front of `picked`; `words` is a scratch array.
    """
    for n in range(count):
        words[n] = n
    shuffle(generator, words, count)
    size = i64(0)
    for n in range(count):
        if size >= wanted:
            break
        start, end = i64(word_starts[i64(words[n])]), i64(word_starts[i64(words[n]) + 1])
        if size + end - start > wanted:
            continue
        for i in range(start, end):
            picked[size] = i
            size += 1
    return size


@subroutine
def _pick_whole_words(
    tokens, a_start, a_size, b_start, b_size, wanted, continues, generator, positions, words, word_starts
):  # fmt: skip
    """The same for whole words: a token that begins with ## is masked together with the token before it.

    `words` and `word_starts` are scratch arrays. Returns how many positions there are, at most `wanted`.
    """
    count = i64(0)
    for i in range(a_size + b_size):
        token = tokens[a_start + i] if i < a_size else tokens[b_start + i - a_size]
        if i == 0 or not continues[token]:
            word_starts[count] = i
            count += 1
    word_starts[count] = a_size + b_size
    picked = pick_words(words, word_starts, count, wanted, generator, positions)
    for n in range(picked):
        positions[n] += 1 if i64(positions[n]) < a_size else 2
    return picked


@subroutine
def _draw_random_next(documents, document_count, document, sentence_starts, target, generator):
    """(start, end) of the tokens of another document's sentences, at least one, until there are `target` of them."""
    other = i64(0)
    for _ in range(RANDOM_DOCUMENT_TRIES):
        other = draw_below(generator, document_count)
        if other != document:
            break
    sentence, end = documents[2 * other], documents[2 * other + 1]
    sentence += draw_below(generator, end - sentence)
    start = sentence_starts[sentence]
    while True:
        sentence += 1
        if sentence == end or sentence_starts[sentence] - start >= target:
            break
    return start, sentence_starts[sentence]


@subroutine
def _truncate(a_start, a_size, b_start, b_size, longest, generator):
    """The longer segment loses a token, at the front or the back, until both fit."""
    while a_size + b_size > longest:
        front = i64(draw_53_bits(generator) < HALF)
        if a_size > b_size:
            a_start += front
            a_size -= 1
        else:
            b_start += front
            b_size -= 1
    return a_start, a_size, b_start, b_size


@subroutine
def draw_replacements(positions, count, mask_token, vocabulary_size, generator, chosen, marked):
    """What is shown at each of the positions, in `chosen`; `marked` has a bit for each of them."""
    for n in range(count):
        position = i64(positions[n])
        if draw_53_bits(generator) < MASK_PROBABILITY:
            replacement = mask_token
        elif draw_53_bits(generator) < HALF:
            replacement = i64(UNCHANGED)
        else:
            replacement = draw_below(generator, vocabulary_size)
        chosen[position] = replacement
        marked[position >> 6] |= u64(1) << u64(position & 63)


@subroutine
def put_masks(size, chosen, marked, mask, mask_positions, mask_replacements):
    """Write the marked positions of `size` in ascending order, and clear the marks; returns where they end."""
    for group in range((size >> 6) + 1):
        bits = marked[group]
        marked[group] = u64(0)
        while bits != u64(0):
            position = (group << 6) + trailing_zeros(bits)
            bits &= bits - u64(1)
            mask_positions[mask] = position
            mask_replacements[mask] = chosen[position]
            mask += 1
    return mask


@kernel
def generate(
    tokens: i32_p, sentence_starts: i64_p, documents: i64_p, document_count: i64,
    longest: i64, rounds: i64, short_threshold: i64, predictions: i64_p, most_predictions: i64,
    whole_word: i64, continues: u8_p, mask_token: i64, vocabulary_size: i64,
    generator: u32_p, scratch: u16_p, marked: u64_p, chosen: i32_p,
    state: i64_p, instance_capacity: i64, mask_capacity: i64,
    slices: i32_p, is_random_next: u8_p, mask_ends: i64_p, mask_positions: u16_p, mask_replacements: i32_p,
) -> i64:  # fmt: skip
    """Make instances until all rounds are done (returns 1) or the output arrays could overflow (returns 0).

    Sentence s is tokens[sentence_starts[s]:sentence_starts[s+1]]; documents[2*d] is the first sentence of document d in the
    shuffled order, documents[2*d+1] the first after it. `longest` is the sequence length less three; predictions[n] the
    number of masks in a sequence of n tokens. Instance i is slices[4*i:4*i+4]: start and size of A, start and size of B; its
    masks end at mask_ends[i]. `scratch` holds 3 * (longest + 4) numbers, `marked` one bit and `chosen` one number a position.
    """
    instance, mask = state[INSTANCES], state[MASKS]
    words, word_starts = shifted(scratch, longest + 4), shifted(scratch, 2 * (longest + 4))
    for repetition in range(state[ROUND], rounds):
        for document in range(state[DOCUMENT] if repetition == state[ROUND] else 0, document_count):
            first_sentence, end_sentence = documents[2 * document], documents[2 * document + 1]
            most_instances = end_sentence - first_sentence
            if instance + most_instances > instance_capacity or mask + most_instances * most_predictions > mask_capacity:
                state[ROUND], state[DOCUMENT], state[INSTANCES], state[MASKS] = repetition, document, instance, mask
                return 0
            target = longest
            if draw_53_bits(generator) < short_threshold:
                target = 2 + draw_below(generator, longest - 1)
            sentence = first_sentence
            while sentence < end_sentence:
                # the chunk: sentences up to the target length, or to the end of the document
                chunk_start = sentence
                chunk_token = sentence_starts[chunk_start]
                while True:
                    sentence += 1
                    if sentence == end_sentence or sentence_starts[sentence] - chunk_token >= target:
                        break
                chunk_sentences = sentence - chunk_start
                a_sentences = i64(1)
                if chunk_sentences >= 2:
                    a_sentences = 1 + draw_below(generator, chunk_sentences - 1)
                a_start, a_end = chunk_token, sentence_starts[chunk_start + a_sentences]
                if chunk_sentences == 1 or draw_53_bits(generator) < HALF:
                    random_next = True
                    b_target = target - (a_end - a_start)
                    b_start, b_end = _draw_random_next(
                        documents, document_count, document, sentence_starts, b_target, generator
                    )  # fmt: skip
                    sentence = chunk_start + a_sentences  # the sentences that were not used are put back
                else:
                    random_next = False
                    b_start, b_end = a_end, sentence_starts[sentence]
                a_start, a_size, b_start, b_size = _truncate(
                    a_start, a_end - a_start, b_start, b_end - b_start, longest, generator
                )  # fmt: skip
                wanted = predictions[a_size + b_size + 3]
                if whole_word:
                    picked = _pick_whole_words(
                        tokens, a_start, a_size, b_start, b_size, wanted, continues, generator, scratch, words, word_starts
                    )
                else:
                    picked = _pick_tokens(a_size, b_size, min(wanted, a_size + b_size), generator, scratch)
                draw_replacements(scratch, picked, mask_token, vocabulary_size, generator, chosen, marked)
                mask = put_masks(a_size + b_size + 3, chosen, marked, mask, mask_positions, mask_replacements)
                slices[4 * instance] = a_start
                slices[4 * instance + 1] = a_size
                slices[4 * instance + 2] = b_start
                slices[4 * instance + 3] = b_size
                is_random_next[instance] = random_next
                mask_ends[instance] = mask
                instance += 1
    state[ROUND], state[DOCUMENT], state[INSTANCES], state[MASKS] = rounds, 0, instance, mask
    return 1


@kernel
def shuffle_numbers(generator: u32_p, numbers: i64_p, count: i64) -> i64:
    """`random.shuffle` of `count` numbers."""
    shuffle(generator, numbers, count)
    return 0

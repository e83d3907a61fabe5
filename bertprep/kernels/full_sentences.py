"""The generator without sentence pairs: full sentences one after another, up to the sequence length, and their masks.

`instances.reference` has the same algorithm in plain Python. Here the sequences of a round stand one after another in one
array, which a sequence is a slice of: appending a sentence is one copy. Costs about 0.45 microseconds a sequence of 128
tokens, most of it for the shuffle that picks the masked positions.
"""

from bertprep.kernels.language import i32_p, i64, i64_p, kernel, subroutine, u8_p, u16_p, u32_p, u64_p
from bertprep.kernels.memory import copy_numbers, shifted
from bertprep.kernels.mersenne import shuffle, shuffle_head
from bertprep.kernels.numbers import INSTANCES, MASKS, NO_SEGMENT, PACKED
from bertprep.kernels.sentence_pairs import draw_replacements, pick_words, put_masks


@subroutine
def _list_candidates(text, size, cls, sep, positions):
    """The positions that can be masked, all but those of [CLS] and [SEP]; returns how many there are."""
    specials = i64(0)
    for i in range(size):
        specials += i64(text[i] == sep) | i64(text[i] == cls)
    if specials == 0:  # as most sequences, which are of one document
        for i in range(size):
            positions[i] = i + 1
        return size
    count = i64(0)
    for i in range(size):
        positions[count] = i + 1
        count += i64(text[i] != sep) & i64(text[i] != cls)
    return count


@subroutine
def _pick_whole_words(text, candidates, count, wanted, continues, generator, positions, words, word_starts):
    """Leave the positions of whole words, at most `wanted`, at the front of `positions`; returns how many there are."""
    word_count = i64(0)
    for i in range(count):
        if i == 0 or not continues[text[i64(candidates[i]) - 1]]:
            word_starts[word_count] = i
            word_count += 1
    word_starts[word_count] = count
    picked = pick_words(words, word_starts, word_count, wanted, generator, positions)
    for n in range(picked):
        positions[n] = candidates[i64(positions[n])]
    return picked


@subroutine
def _put_slice(slices, instance, start, end):
    """Write sequence number `instance`, which has no second segment; returns the number of the next."""
    slices[4 * instance], slices[4 * instance + 1] = start, end - start
    slices[4 * instance + 2], slices[4 * instance + 3] = start, NO_SEGMENT
    return instance + 1


@subroutine
def _pack(
    tokens, sentence_starts, document_starts, documents, document_count, longest, sep, packed, at, slices, instance
):  # fmt: skip
    """Pack the sentences of a round; returns the end of the packed tokens, and of the sequences."""
    start = at  # of the sequence that is being filled, which holds something but before the first sentence
    for d in range(document_count):
        document = documents[d]
        separators = i64(d > 0)  # before the first sentence, where that joins those of the document before
        for sentence in range(document_starts[document], document_starts[document + 1]):
            first, end = sentence_starts[sentence], sentence_starts[sentence + 1]
            if at > start and at - start + separators + end - first > longest:
                instance = _put_slice(slices, instance, start, at)
                start = at
            elif separators and at > start:
                packed[at] = sep
                at += 1
            separators = i64(0)
            while end - first > longest:
                copy_numbers(shifted(packed, at), shifted(tokens, first), longest)
                at += longest
                first += longest
                instance = _put_slice(slices, instance, start, at)
                start = at
            copy_numbers(shifted(packed, at), shifted(tokens, first), end - first)
            at += end - first
    return at, _put_slice(slices, instance, start, at)


@kernel
def pack_sentences(
    tokens: i32_p, sentence_starts: i64_p, document_starts: i64_p, documents: i64_p, document_count: i64,
    longest: i64, rounds: i64, predictions: i64_p, whole_word: i64, continues: u8_p,
    cls: i64, sep: i64, mask_token: i64, vocabulary_size: i64,
    generator: u32_p, scratch: u16_p, marked: u64_p, chosen: i32_p, state: i64_p,
    packed: i32_p, slices: i32_p, mask_ends: i64_p, mask_positions: u16_p, mask_replacements: i32_p,
) -> i64:  # fmt: skip
    """Make the sequences of all rounds; `state` is set to how many there are, of masks and of packed tokens. Returns 0.

    Sentence s is tokens[sentence_starts[s]:sentence_starts[s+1]], document d has those from document_starts[d] on; `documents`
    are the numbers of all documents, which each round shuffles. `longest` is the sequence length less two; predictions[n] the
    number of masks in a sequence of n tokens. Instance i is [CLS], the slices[4*i+1] packed tokens from slices[4*i] on, [SEP];
    its masks end at mask_ends[i]. `scratch` holds 4 * (longest + 4) numbers, `marked` a bit and `chosen` a number a position.
    """
    candidates = shifted(scratch, longest + 4)
    words, word_starts = shifted(scratch, 2 * (longest + 4)), shifted(scratch, 3 * (longest + 4))
    instance, mask, at = i64(0), i64(0), i64(0)
    for _ in range(rounds):
        shuffle(generator, documents, document_count)
        first_of_round = instance
        at, instance = _pack(
            tokens, sentence_starts, document_starts, documents, document_count, longest, sep, packed, at, slices, instance
        )
        for i in range(first_of_round, instance):
            text, size = shifted(packed, i64(slices[4 * i])), i64(slices[4 * i + 1])
            wanted = predictions[size + 2]
            if whole_word:
                count = _list_candidates(text, size, cls, sep, candidates)
                picked = _pick_whole_words(text, candidates, count, wanted, continues, generator, scratch, words, word_starts)
            else:
                count = _list_candidates(text, size, cls, sep, scratch)
                picked = min(wanted, count)
                shuffle_head(generator, scratch, count, picked)
            draw_replacements(scratch, picked, mask_token, vocabulary_size, generator, chosen, marked)
            mask = put_masks(size + 2, chosen, marked, mask, mask_positions, mask_replacements)
            mask_ends[i] = mask
    state[INSTANCES], state[MASKS], state[PACKED] = instance, mask, at
    return 0

"""A tokenized shard to instances: the compiled generator, and the arrays that it works on and fills.

The algorithm is in `bertprep.kernels.sentence_pairs` and `full_sentences` and, to be read, in `bertprep.instances.reference`.
Costs about 0.5 microseconds and 120 bytes an instance of 128 tokens; nothing else grows with the number of rounds. Without
pairs the tokens do: they are there once for each round, packed, which takes 4 bytes a token and round.
"""

import math
import random
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from bertprep import kernels
from bertprep.config import InstanceSettings
from bertprep.errors import BertprepError
from bertprep.instances.tokenizer import TokenizedShard
from bertprep.instances.vocabulary import Vocabulary
from bertprep.kernels.numbers import GENERATOR_STATE_SIZE, INSTANCES, MASKS, PACKED, TWISTER_SIZE, TWISTER_STATE, TWISTER_USED

MOST_TOKENS_IN_SHARD = 1 << 31


@dataclass(frozen=True)
class Instances:
    """n masked-LM instances of one shard, as slices of its tokens.

    Instance i is [CLS] A [SEP] B [SEP] with A = tokens[slices[i, 0]:][:slices[i, 1]] and B likewise from slices[i, 2:4]. Its
    masks are those from mask_ends[i - 1] to mask_ends[i]: at mask_positions, counted from [CLS], ascending, mask_replacements
    stands instead of the token, which is the label; UNCHANGED leaves the token. `order` is that of the records: record k is
    instance order[k].

    Without pairs instance i is [CLS] A [SEP], the size of B is NO_SEGMENT, which is -1, and `tokens` are those of all rounds,
    with each [SEP] between documents.
    """

    tokens: NDArray[np.int32]  # (tokens of the shard,), or those of all rounds
    slices: NDArray[np.int32]  # (n, 4)
    is_random_next: NDArray[np.uint8]  # (n,), 0 without pairs
    mask_ends: NDArray[np.int64]  # (n,)
    mask_positions: NDArray[np.uint16]  # (masks,)
    mask_replacements: NDArray[np.int32]  # (masks,)
    order: NDArray[np.int64]  # (n,)

    def __len__(self) -> int:
        return len(self.slices)


def generate_instances(shard: TokenizedShard, vocabulary: Vocabulary, settings: InstanceSettings, *, seed: int) -> Instances:
    """The instances of a shard with `random.Random(seed)`, those of `dupe` rounds together, in shuffled order."""
    if not settings.has_pairs:
        return _pack_sentences(shard, vocabulary, settings, seed=seed)
    if len(shard.tokens) >= MOST_TOKENS_IN_SHARD:
        raise BertprepError(
            f"a shard of {len(shard.tokens):,} tokens is too large; at most {MOST_TOKENS_IN_SHARD:,}; make more shards"
        )
    compiled = kernels.load()
    twister = mersenne_twister(seed)
    order = np.arange(shard.documents, dtype=np.int64)
    compiled.shuffle_numbers(twister, order, len(order))
    documents = np.stack([shard.document_starts[order], shard.document_starts[order + 1]], axis=1)

    longest = settings.longest
    state = np.zeros(GENERATOR_STATE_SIZE, np.int64)
    scratch = np.empty(3 * (longest + 4), np.uint16)
    marked = np.zeros(settings.seq // 64 + 2, np.uint64)
    chosen = np.empty(settings.seq + 1, np.int32)
    predictions = predictions_by_length(settings.seq, settings.pred, settings.masked_lm_prob)
    continues = np.frombuffer(vocabulary.continues, np.uint8)

    # A first guess that nearly always holds; where it does not, the arrays grow and the generator resumes where it stopped.
    most_in_a_document = int(np.diff(shard.document_starts).max())
    instances = most_in_a_document + settings.dupe * (3 * len(shard.tokens) // settings.seq + shard.documents)
    masks = most_in_a_document * settings.pred + int(instances * min(settings.pred, settings.masked_lm_prob * settings.seq + 1))
    slices: NDArray[np.int32] = np.empty((instances, 4), np.int32)
    is_random_next: NDArray[np.uint8] = np.empty(instances, np.uint8)
    mask_ends: NDArray[np.int64] = np.empty(instances, np.int64)
    mask_positions: NDArray[np.uint16] = np.empty(masks, np.uint16)
    mask_replacements: NDArray[np.int32] = np.empty(masks, np.int32)
    while True:
        is_finished = compiled.generate(
            shard.tokens, shard.sentence_starts, documents, len(documents),
            longest, settings.dupe, threshold(settings.short_seq_prob), predictions, settings.pred,
            int(settings.whole_word), continues, vocabulary.mask, len(vocabulary),
            twister, scratch, marked, chosen,
            state, len(slices), len(mask_positions),
            slices, is_random_next, mask_ends, mask_positions, mask_replacements,
        )  # fmt: skip
        if is_finished:
            break
        slices, is_random_next, mask_ends = _grown(slices), _grown(is_random_next), _grown(mask_ends)
        mask_positions, mask_replacements = _grown(mask_positions), _grown(mask_replacements)
    n, n_masks = int(state[INSTANCES]), int(state[MASKS])
    records = np.arange(n, dtype=np.int64)
    compiled.shuffle_numbers(twister, records, n)
    return Instances(
        shard.tokens,
        slices[:n],
        is_random_next[:n],
        mask_ends[:n],
        mask_positions[:n_masks],
        mask_replacements[:n_masks],
        records,
    )


def _pack_sentences(shard: TokenizedShard, vocabulary: Vocabulary, settings: InstanceSettings, *, seed: int) -> Instances:
    """The same without pairs: `dupe` rounds over all documents, each in another order, packed and masked anew."""
    most_tokens = settings.dupe * (len(shard.tokens) + shard.documents)  # each document with a [SEP]
    if most_tokens >= MOST_TOKENS_IN_SHARD:
        raise BertprepError(
            f"a shard of {len(shard.tokens):,} tokens is too large; at most {MOST_TOKENS_IN_SHARD:,} in --dupe {settings.dupe} "
            "rounds without pairs; make more shards, or fewer rounds"
        )
    compiled = kernels.load()
    twister = mersenne_twister(seed)
    longest = settings.longest
    predictions = predictions_by_length(settings.seq, settings.pred, settings.masked_lm_prob, special=2)
    # of two sequences that follow each other the second begins with what the first had not enough space for
    most = settings.dupe * (2 * (len(shard.tokens) + shard.documents) // longest + 2)
    most_masks = most * int(max(predictions))
    state = np.zeros(GENERATOR_STATE_SIZE, np.int64)
    packed: NDArray[np.int32] = np.empty(most_tokens, np.int32)  # the system gives memory only for what is written
    slices: NDArray[np.int32] = np.empty((most, 4), np.int32)
    mask_ends: NDArray[np.int64] = np.empty(most, np.int64)
    mask_positions: NDArray[np.uint16] = np.empty(most_masks, np.uint16)
    mask_replacements: NDArray[np.int32] = np.empty(most_masks, np.int32)
    compiled.pack_sentences(
        shard.tokens, shard.sentence_starts, shard.document_starts,
        np.arange(shard.documents, dtype=np.int64), shard.documents,
        longest, settings.dupe, predictions, int(settings.whole_word), np.frombuffer(vocabulary.continues, np.uint8),
        vocabulary.cls, vocabulary.sep, vocabulary.mask, len(vocabulary),
        twister, np.empty(4 * (longest + 4), np.uint16), np.zeros(settings.seq // 64 + 2, np.uint64),
        np.empty(settings.seq + 1, np.int32), state,
        packed, slices, mask_ends, mask_positions, mask_replacements,
    )  # fmt: skip
    n, n_masks, n_tokens = (int(state[which]) for which in (INSTANCES, MASKS, PACKED))
    records = np.arange(n, dtype=np.int64)
    compiled.shuffle_numbers(twister, records, n)
    return Instances(
        packed[:n_tokens],
        slices[:n],
        np.zeros(n, np.uint8),
        mask_ends[:n],
        mask_positions[:n_masks],
        mask_replacements[:n_masks],
        records,
    )


def predictions_by_length(seq: int, pred: int, masked_lm_prob: float, special: int = 3) -> NDArray[np.int64]:
    """The number of masked tokens in a sequence of n tokens, special ones counted, for n = 0 to seq.

    A table, because Python's `round` goes to the even neighbour and works on the exact product of doubles. [CLS] and the two
    [SEP] count among the n tokens but are never masked, which leaves n - 3 at most; without pairs there may be but 2 such.
    """
    wanted = [min(pred, max(1, min(round(n * masked_lm_prob), n - special))) for n in range(seq + 1)]
    return np.array(wanted, np.int64)


def threshold(probability: float) -> int:
    """The whole number t for which a 53-bit draw is below t just when `random() < probability`."""
    return math.ceil(probability * 2**53)


def mersenne_twister(seed: int) -> NDArray[np.uint32]:
    """`random.Random(seed)` as bertprep.kernels.mersenne keeps it; all its draws are still to be made."""
    state = random.Random(seed).getstate()[1]
    twister = np.zeros(TWISTER_SIZE, np.uint32)
    twister[:TWISTER_STATE] = state[:TWISTER_STATE]
    twister[TWISTER_USED] = TWISTER_STATE  # a fresh generator has used up its draws
    return twister


Number = TypeVar("Number", bound=np.generic)


def _grown(array: NDArray[Number]) -> NDArray[Number]:
    """The array, twice as long."""
    larger = np.empty((2 * len(array), *array.shape[1:]), array.dtype)
    larger[: len(array)] = array
    return larger

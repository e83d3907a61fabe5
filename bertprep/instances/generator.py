"""A tokenized shard to instances: the compiled generator and its arrays; `reference` is the algorithm to read.

Costs about 0.5 microseconds and 120 bytes an instance of 128 tokens; full sentences also 4 bytes a token and round.
"""

import math
import random
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertprep import kernels
from bertprep.config import InstanceSettings
from bertprep.errors import BertprepError
from bertprep.instances.tokenizer import TokenizedShard
from bertprep.instances.vocabulary import Vocabulary
from bertprep.kernels.numbers import GENERATOR_STATE_SIZE, INSTANCES, MASKS, PACKED, TWISTER_SIZE, TWISTER_STATE, TWISTER_USED

GENERATOR = "google-research/bert eedf5716"
"""The name in manifests of the program whose examples are made."""
MAX_TOKENS_IN_SHARD = 1 << 31


@dataclass(frozen=True)
class Instances:
    """n masked-LM instances of one shard, as slices of its tokens.

    Instance i is [CLS] A [SEP] B [SEP] with A = tokens[slices[i, 0]:][:slices[i, 1]] and B likewise from slices[i, 2:4]. Its
    masks are those up to mask_ends[i]: at mask_positions, ascending, mask_replacements replaces the token, or UNCHANGED keeps
    it. Record k is instance order[k]. Of full sentences the size of B is NO_SEGMENT, and `tokens` are those of all rounds.
    """

    tokens: NDArray[np.int32]  # (tokens of the shard,), or those of all rounds
    slices: NDArray[np.int32]  # (n, 4)
    is_random_next: NDArray[np.uint8]  # (n,), 0 for full sentences
    mask_ends: NDArray[np.int64]  # (n,)
    mask_positions: NDArray[np.uint16]  # (masks,)
    mask_replacements: NDArray[np.int32]  # (masks,)
    order: NDArray[np.int64]  # (n,)

    def __len__(self) -> int:
        return len(self.slices)


def generate_instances(shard: TokenizedShard, vocabulary: Vocabulary, settings: InstanceSettings, *, seed: int) -> Instances:
    """Return the instances of a shard with `random.Random(seed)`, of all `dupe` rounds, in shuffled order."""
    tokens, documents, longest, dupe = len(shard.tokens), shard.documents, settings.longest, settings.dupe
    most_tokens = tokens if settings.has_pairs else dupe * (tokens + documents)  # each document with a [SEP]
    if most_tokens >= MAX_TOKENS_IN_SHARD:
        rounds = "" if settings.has_pairs else f" in --dupe {dupe} rounds of full sentences"
        raise BertprepError(
            f"a shard of {tokens:,} tokens is too large; at most {MAX_TOKENS_IN_SHARD:,}{rounds}; make more shards"
            + (", or fewer rounds" if rounds else "")
        )
    compiled = kernels.load()
    predictions = predictions_by_length(settings.seq, settings.pred, settings.masked_lm_prob, 3 if settings.has_pairs else 2)
    if settings.has_pairs:
        # A first guess that nearly always holds; where it does not, the arrays grow and the generator resumes where it stopped.
        most_in_a_document = int(np.diff(shard.document_starts).max())
        most = most_in_a_document + dupe * (3 * tokens // settings.seq + documents)
        masks = most_in_a_document * settings.pred + int(most * min(settings.pred, settings.masked_lm_prob * settings.seq + 1))
    else:
        # of two sequences that follow each other the second begins with what the first had not enough space for
        most = dupe * (2 * (tokens + documents) // longest + 2)
        masks = most * int(max(predictions))
    twister, order, state = (
        mersenne_twister(seed),
        np.arange(documents, dtype=np.int64),
        np.zeros(GENERATOR_STATE_SIZE, np.int64),
    )
    packed = np.empty(0 if settings.has_pairs else most_tokens, np.int32)  # the OS gives memory only for what is written
    if settings.has_pairs:
        compiled.shuffle_numbers(twister, order, len(order))
    made: dict[str, NDArray[Any]] = {
        "slices": np.empty((most, 4), np.int32),
        "is_random_next": np.zeros(most, np.uint8),
        "mask_ends": np.empty(most, np.int64),
        "mask_positions": np.empty(masks, np.uint16),
        "mask_replacements": np.empty(masks, np.int32),
    }
    fields = {
        "tokens": shard.tokens, "sentence_starts": shard.sentence_starts, "document_starts": shard.document_starts,
        "order": order, "documents": documents, "longest": longest, "rounds": dupe,
        "short_threshold": threshold(settings.short_seq_prob), "predictions": predictions, "most_predictions": settings.pred,
        "whole_word": int(settings.whole_word), "continues": np.frombuffer(vocabulary.continues, np.uint8),
        "cls": vocabulary.cls, "sep": vocabulary.sep, "mask": vocabulary.mask, "vocabulary": len(vocabulary),
        "twister": twister, "scratch": np.empty((4, longest + 4), np.uint16), "chosen": np.empty(settings.seq + 1, np.int32),
        "marked": np.zeros(settings.seq // 64 + 2, np.uint64), "state": state, "packed": packed,
    }  # fmt: skip
    generate = compiled.generate if settings.has_pairs else compiled.pack_sentences
    while not generate({**fields, **made, "instance_capacity": most, "mask_capacity": masks}):
        made = {name: np.concatenate([array, np.empty_like(array)]) for name, array in made.items()}
        most, masks = 2 * most, 2 * masks
    n, n_masks, n_packed = (int(state[which]) for which in (INSTANCES, MASKS, PACKED))
    records = np.arange(n, dtype=np.int64)
    compiled.shuffle_numbers(twister, records, n)
    return Instances(
        shard.tokens if settings.has_pairs else packed[:n_packed],
        made["slices"][:n],
        made["is_random_next"][:n],
        made["mask_ends"][:n],
        made["mask_positions"][:n_masks],
        made["mask_replacements"][:n_masks],
        records,
    )


def predictions_by_length(seq: int, pred: int, masked_lm_prob: float, special: int = 3) -> NDArray[np.int64]:
    """Return the number of masked tokens for n = 0 to seq tokens, special ones counted: a table, for Python's `round`."""
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

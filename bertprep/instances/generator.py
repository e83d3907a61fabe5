"""Generates the instances of a tokenized shard with compiled kernels; read `reference` for the algorithm.

An instance of 128 tokens costs about 0.5 microseconds and 120 bytes. Full sentences also need 4 bytes per token and round.
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
from bertprep.kernels.numbers import (
    GENERATOR_STATE_SIZE,
    INSTANCES,
    MASKS,
    PACKED,
    PAIR_TOKENS,
    TRUNCATED_TOKENS,
    TWISTER_SIZE,
    TWISTER_STATE,
    TWISTER_USED,
)

GENERATOR = "google-research/bert eedf5716"
"""The program whose examples the generator reproduces, as manifests name it."""
MAX_TOKENS_IN_SHARD = 1 << 31


@dataclass(frozen=True)
class Instances:
    """n masked-LM instances of one shard, as slices of its tokens.

    Instance i is [CLS] A [SEP] B [SEP], where A is tokens[slices[i, 0]:][:slices[i, 1]], and B is found in the same way from
    slices[i, 2:4]. Its masks are mask_ends[i - 1] to mask_ends[i] - 1 (from 0 for the first instance). At mask_positions, in
    ascending order, mask_replacements replaces the token; UNCHANGED keeps it. Record k is instance order[k]. For full sentences
    the size of B is NO_SEGMENT, and `tokens` has the packed tokens of all rounds.

    `paired_tokens` counts the tokens of the pairs before they are truncated to the length of a record, and `truncated_tokens`
    those that this removes, both without pairs that have a sentence longer than a record. For full sentences they are 0.
    """

    tokens: NDArray[np.int32]  # (tokens,)
    slices: NDArray[np.int32]  # (n, 4)
    is_random_next: NDArray[np.uint8]  # (n,), 0 for full sentences
    mask_ends: NDArray[np.int64]  # (n,)
    mask_positions: NDArray[np.uint16]  # (masks,)
    mask_replacements: NDArray[np.int32]  # (masks,)
    order: NDArray[np.int64]  # (n,)
    paired_tokens: int
    truncated_tokens: int

    def __len__(self) -> int:
        return len(self.slices)


def generate_instances(shard: TokenizedShard, vocabulary: Vocabulary, settings: InstanceSettings, *, seed: int) -> Instances:
    """Return the instances of all `dupe` rounds over a shard, in shuffled order, with the draws of `random.Random(seed)`.

    Raises `BertprepError` for a shard with too many tokens.
    """
    tokens, documents, longest, dupe = len(shard.tokens), shard.documents, settings.longest, settings.dupe
    most_tokens = tokens if settings.has_pairs else dupe * (tokens + documents)  # each document with a [SEP]
    if most_tokens >= MAX_TOKENS_IN_SHARD:
        rounds = "" if settings.has_pairs else f" in --dupe {dupe} rounds of full sentences"
        raise BertprepError(
            f"a shard of {tokens:,} tokens is too large, expected at most {MAX_TOKENS_IN_SHARD:,}{rounds}; make more shards"
            + (", or fewer rounds" if rounds else "")
        )
    compiled = kernels.load()
    predictions = predictions_by_length(settings.seq, settings.pred, settings.masked_lm_prob, 3 if settings.has_pairs else 2)
    if settings.has_pairs:
        # A first guess that is nearly always enough; otherwise the arrays grow, and the generator resumes where it stopped.
        most_in_a_document = int(np.diff(shard.document_starts).max())
        most = most_in_a_document + dupe * (3 * tokens // settings.seq + documents)
        masks = most_in_a_document * settings.pred + int(most * min(settings.pred, settings.masked_lm_prob * settings.seq + 1))
    else:
        # A sequence begins with a sentence that did not fit the previous one, so two in a row exceed `longest` tokens.
        most = dupe * (2 * (tokens + documents) // longest + 2)
        masks = most * int(max(predictions))
    twister, order, state = (
        mersenne_twister(seed),
        np.arange(documents, dtype=np.int64),
        np.zeros(GENERATOR_STATE_SIZE, np.int64),
    )
    packed = np.empty(0 if settings.has_pairs else most_tokens, np.int32)  # the OS allocates only the pages that are written
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
        "whole_word": int(settings.whole_word), "continues": vocabulary.continues_word.view(np.uint8),
        "cls": vocabulary.cls, "sep": vocabulary.sep, "mask": vocabulary.mask, "vocabulary": len(vocabulary),
        "drawn": vocabulary.drawn_ids, "draws": len(vocabulary.drawn_ids),
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
        paired_tokens=int(state[PAIR_TOKENS]),
        truncated_tokens=int(state[TRUNCATED_TOKENS]),
    )


def predictions_by_length(seq: int, pred: int, masked_lm_prob: float, special: int = 3) -> NDArray[np.int64]:
    """Return the number of masked tokens of sequences with 0 to `seq` tokens, including special ones: (seq + 1,).

    Python makes this table, because the kernel has no `round` like Python's.
    """
    wanted = [min(pred, max(1, min(round(n * masked_lm_prob), n - special))) for n in range(seq + 1)]
    return np.array(wanted, np.int64)


def threshold(probability: float) -> int:
    """Return the integer t such that a 53-bit draw is below t exactly when `random() < probability`."""
    return math.ceil(probability * 2**53)


def mersenne_twister(seed: int) -> NDArray[np.uint32]:
    """Return the state of a new `random.Random(seed)` in the layout of bertprep.kernels.mersenne."""
    state = random.Random(seed).getstate()[1]
    twister = np.zeros(TWISTER_SIZE, np.uint32)
    twister[:TWISTER_STATE] = state[:TWISTER_STATE]
    twister[TWISTER_USED] = TWISTER_STATE  # a new generator has no draws left, so the first call makes a block of them
    return twister

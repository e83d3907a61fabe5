"""Finds the records whose text contains a word, by token ids, without decoding any text.

Text is the original, before masking. Only whole words match: `state` is found neither in `states`, which may be one token, nor
in `state ##s`. Several words must be adjacent.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bertprep.errors import UsageError
from bertprep.instances import Vocabulary
from bertprep.instances.reference import tokenize
from bertprep.records.examples import Examples, MaskedExamples


@dataclass(frozen=True)
class Phrase:
    """The tokens to search for, and for each token of the vocabulary whether it continues a word."""

    pieces: tuple[str, ...]
    numbers: tuple[int, ...]
    continues: NDArray[np.bool_]  # (vocabulary + 1,): the last entry is for all ids beyond it

    def __str__(self) -> str:
        return " ".join(self.pieces).replace(" ##", "")


def make_phrase(text: str, vocabulary: Vocabulary) -> Phrase:
    """The tokens of some words, in lower case if the vocabulary has no capitals.

    Raises `UsageError` if they cannot be written in this vocabulary.
    """
    known = {token: number for number, token in enumerate(vocabulary.tokens)}
    cased = any(token != token.lower() for token in vocabulary.tokens if token[:1] != "[")
    pieces = tuple(tokenize(text, set(known), lower=not cased))
    if not pieces or "[UNK]" in pieces:
        raise UsageError(f"--search {text}: cannot be written in the tokens of {vocabulary.path}, so no record has it")
    continues = np.frombuffer(vocabulary.continues + b"\0", np.bool_)
    return Phrase(pieces, tuple(known[piece] for piece in pieces), continues)


def restore(examples: Examples) -> NDArray[np.int32]:
    """(n, seq) the tokens, with the labels of pretraining records restored at their positions."""
    restored: NDArray[np.int32] = examples.input_ids.copy()
    if not isinstance(examples, MaskedExamples):
        return restored
    is_label = (examples.masked_lm_weights > 0) & (examples.masked_lm_positions < examples.seq)
    rows, columns = np.nonzero(is_label)
    restored[rows, examples.masked_lm_positions[rows, columns]] = examples.masked_lm_ids[rows, columns]
    return restored


def find_phrase(examples: Examples, phrase: Phrase) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(rows, columns) at which the phrase begins, ordered by row."""
    return find_in_text(restore(examples), phrase)


def find_in_text(text: NDArray[np.int32], phrase: Phrase) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The same in rows of tokens, (n, length)."""
    rows, columns = np.nonzero(text == phrase.numbers[0])
    padded = np.pad(text, ((0, 0), (0, len(phrase.numbers))), constant_values=-1)  # no token, which continues no word
    for offset, number in enumerate(phrase.numbers[1:], 1):
        is_next = padded[rows, columns + offset] == number
        rows, columns = rows[is_next], columns[is_next]
    after = padded[rows, columns + len(phrase.numbers)]
    is_whole = ~phrase.continues[np.minimum(after, len(phrase.continues) - 1)]
    return rows[is_whole], columns[is_whole]

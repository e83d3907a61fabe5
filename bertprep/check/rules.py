"""Define the rules for the records of a split: sizes, special tokens, masking. `check.values` compares records with them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from unicodedata import category

import numpy as np
from numpy.typing import NDArray

from bertprep.check.counts import Ints
from bertprep.check.finding import ERROR, WARNING
from bertprep.instances import Vocabulary
from bertprep.instances.generator import predictions_by_length
from bertprep.kernels import numbers as kernel
from bertprep.records import Examples, MaskedExamples, PretrainingExamples, SquadEvalExamples, SquadExamples
from bertprep.records.examples import Shape


@dataclass(frozen=True)
class RecordRules:
    """The rules for the records of a split.

    `tokens` is the size of the vocabulary, and `continues` has a byte for each of its tokens (`kinds_of_tokens`); without a
    vocabulary they are 0 and empty. `pad` is the id of [PAD]. With `may_round_up`, half a prediction may be rounded up, as in
    Python 2. With `by_manifest`, bertprep made the records. The last three fields are for fine-tuning.
    """

    seq: int
    pred: int
    tokens: int
    cls: int
    sep: int
    mask: int
    masked_lm_prob: float
    whole_word: bool = False
    continues: bytes = b""
    may_round_up: bool = False
    pad: int = 0
    kind: type[Examples] = PretrainingExamples
    by_manifest: bool = False
    unk: int = -1  # -1 without a vocabulary
    labels: int | None = None  # the number of classes, if it is known
    may_be_impossible: bool = True  # SQuAD 2.0 has questions without an answer

    @property
    def shape(self) -> Shape:
        return Shape(self.kind, self.seq, self.pred)

    @property
    def is_pretraining(self) -> bool:
        return issubclass(self.kind, MaskedExamples)

    @property
    def has_pairs(self) -> bool:
        return self.kind is PretrainingExamples

    @property
    def segments(self) -> int:
        """The kind of segments in a record, one of the constants of `kernels.numbers`."""
        if self.is_pretraining and not self.has_pairs:
            return kernel.FULL_SENTENCES
        has_two = issubclass(self.kind, (PretrainingExamples, SquadExamples, SquadEvalExamples))
        return kernel.TWO_SEGMENTS if has_two else kernel.ONE_OR_TWO_SEGMENTS

    @property
    def level_of_text(self) -> str:
        """The level of findings that another tool may intend, but bertprep's generator never causes."""
        return ERROR if self.by_manifest else WARNING

    @property
    def count_rule(self) -> int:
        """The rule for the number of predictions, one of the three constants of `kernels.numbers`."""
        if not self.whole_word:
            return kernel.EXACT_COUNT
        return kernel.WHOLE_WORDS if self.continues else kernel.AT_MOST

    @cached_property
    def by_length(self) -> Ints:
        """The number of predictions by tokens of text, halves rounded to even: (seq + 1,)."""
        return self.predictions_by_length()

    @cached_property
    def half_up(self) -> Ints:
        """The same as `by_length`, but with halves rounded up if that is allowed: (seq + 1,)."""
        return self.predictions_by_length(halves_up=self.may_round_up)

    @cached_property
    def kinds(self) -> NDArray[np.uint8]:
        """The role of each token in a word: CONTINUES, ALONE_IN_WORD or 0, (tokens,)."""
        return np.frombuffer(self.continues or bytes(self.tokens + 1), np.uint8)

    def predictions_by_length(self, *, halves_up: bool = False) -> Ints:
        """Return the number of predictions for 0 to seq tokens of text, with halves rounded to even, or up."""
        special = 3 if self.has_pairs else 2
        table = predictions_by_length(self.seq, self.pred, self.masked_lm_prob, special)
        for n in range(self.seq + 1) if halves_up else ():
            if (n * self.masked_lm_prob) % 1 == 0.5:
                table[n] = min(self.pred, math.ceil(n * self.masked_lm_prob), max(n - special, 1))
        return table


def kinds_of_tokens(vocabulary: Vocabulary) -> bytes:
    """Return a byte for each token: 1 if it continues a word, 2 if nothing continues it ([UNK], punctuation), else 0."""
    is_alone = (
        len(token) == 1 and (category(token)[0] == "P" or (token.isascii() and not token.isalnum()))
        for token in vocabulary.tokens
    )
    kinds = bytearray(kernel.ALONE_IN_WORD * alone for alone in is_alone)
    kinds[vocabulary.unk] = kernel.ALONE_IN_WORD
    return bytes(kind | continues for kind, continues in zip(kinds, vocabulary.continues_word.tolist(), strict=True))

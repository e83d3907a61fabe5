"""The rules for single records, each with the words that a user reads, and records as small as can be."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bertprep.check.records import RecordChecker
from bertprep.check.rules import RecordRules, kinds_of_tokens
from bertprep.instances.vocabulary import Vocabulary
from bertprep.kernels import numbers as kernel
from bertprep.records import MaskedExamples, PretrainingExamples
from tests.check import VOCABULARY

CLS, SEP, MASK, THE = VOCABULARY.cls, VOCABULARY.sep, VOCABULARY.mask, VOCABULARY.tokens.index("the")
RULES = RecordRules(10, 3, len(VOCABULARY), CLS, SEP, MASK, masked_lm_prob=0.3)
VALID = {
    "input_ids": [CLS, MASK, THE, SEP, THE, MASK, SEP, 0, 0, 0],
    "input_mask": [1, 1, 1, 1, 1, 1, 1, 0, 0, 0],
    "segment_ids": [0, 0, 0, 0, 1, 1, 1, 0, 0, 0],
    "masked_lm_positions": [1, 5, 0],
    "masked_lm_ids": [THE, THE, 0],
    "masked_lm_weights": [1.0, 1.0, 0.0],
    "next_sentence_labels": 1,
}


def found(**changes: list[float] | int) -> list[str]:
    """The findings of two records, a valid one and one with these values instead."""
    examples = PretrainingExamples.empty(2, seq=10, pred=3)
    for name, values in VALID.items():
        getattr(examples, name)[0] = values
        getattr(examples, name)[1] = changes.get(name, values)
    checker = RecordChecker(RULES)
    checker.check(examples, np.arange(2))
    assert all(finding.record == 1 and finding.count == 1 for finding in checker.findings("x"))
    return [f"{finding.code}: {finding.expected}, found {finding.found}" for finding in checker.findings("x")]


def test_a_valid_record() -> None:
    assert found() == []


@pytest.mark.parametrize(
    ("feature", "values", "finding"),
    [
        ("input_mask", [1] * 6 + [0, 1, 0, 0], "padding: input_mask 1 for the text, then 0 to the end, found 1 at position 7"),
        ("input_ids", [*VALID["input_ids"][:9], 77], "padding: input_ids 0 after the 7 tokens of text, found 77 at position 9"),
        (
            "segment_ids",
            [0] * 4 + [1] * 4 + [0] * 2,
            "padding: segment_ids 0 after the 7 tokens of text, found 1 at position 7",
        ),
        ("input_ids", [THE, *VALID["input_ids"][1:]], f"no-cls: [CLS], token {CLS}, at position 0, found token {THE}"),
        ("masked_lm_ids", [CLS, THE, 0], "no-cls: [CLS] at position 0 only, found another at position 1"),
        ("masked_lm_ids", [SEP, THE, 0], "separators: two [SEP], found 3"),
        (
            "segment_ids",
            [0, 1, 0, 0, 1, 1, 1, 0, 0, 0],
            "segments: segment_ids 0 to the first [SEP], then 1, found 1 at position 1",
        ),
        (
            "masked_lm_ids",
            [THE, 9999, 0],
            f"id-range: tokens below {len(VOCABULARY)}, the size of the vocabulary, found 9999 at position 1",
        ),
        ("masked_lm_positions", [5, 1, 0], "mask-order: ascending masked_lm_positions, found 1 after 5"),
        ("masked_lm_positions", [1, 8, 0], "mask-outside: masked_lm_positions within the 7 tokens of text, found 8"),
        (
            "masked_lm_positions",
            [1, 6, 0],
            f"mask-on-special: no prediction on [CLS] or [SEP], found position 6 with label {THE}",
        ),
        (
            "masked_lm_weights",
            [1.0, 1.0, 0.5],
            "weights: masked_lm_weights 1, then 0 to the end, found another value at index 2, after 2 ones",
        ),
        (
            "masked_lm_ids",
            [THE, THE, 7],
            "weights: positions and labels 0 after the 2 predictions with weight 1, found 7 at index 2",
        ),
        ("next_sentence_labels", 3, "next-sentence-label: 0 or 1, found 3"),
        (
            "input_ids",
            [CLS, MASK, MASK, *VALID["input_ids"][3:]],
            "mask-without-label: [MASK] at predicted positions only, found one at position 2",
        ),
    ],
)
def test_each_rule_says_where_it_is_broken(feature: str, values: list[float] | int, finding: str) -> None:
    assert finding in found(**{feature: values})


def test_nothing_continues_punctuation_and_what_is_unknown() -> None:
    tokens = ("[UNK]", "$", "+", ".", "\u3002", "a", "7", "\u8a9e", "\u20ac", "##s", "##$")
    vocabulary = Vocabulary(Path("vocab.txt"), tokens, "0" * 64, pad=5, unk=0, cls=6, sep=7, mask=8)
    alone, continues = kernel.ALONE_IN_WORD, kernel.CONTINUES
    assert [*kinds_of_tokens(vocabulary)] == [*[alone] * 5, *[0] * 4, *[continues] * 2]


@pytest.mark.parametrize("kind", [PretrainingExamples, MaskedExamples])
@pytest.mark.parametrize("seq", [1, 2, 3, 4, 5])
def test_records_as_small_as_can_be(kind: type[MaskedExamples], seq: int) -> None:
    examples = kind.empty(600, seq=seq, pred=1)
    for array in examples.arrays:
        array[...] = np.arange(600).reshape(-1, *[1] * (array.ndim - 1)) % 2
    for whole_word in (False, True):
        rules = replace(RULES, seq=seq, pred=1, kind=kind, whole_word=whole_word, continues=bytes(len(VOCABULARY)))
        checker = RecordChecker(rules, 600, 600)
        checker.check(examples, np.arange(600))
        checker.compare()
        assert "no-cls" in {finding.code for finding in checker.findings("x")}

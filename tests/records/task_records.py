"""Sound examples of every kind for fine-tuning, as Google's scripts make them, on tokens that mean nothing."""

from __future__ import annotations

import numpy as np

from bertprep.records import KINDS, Examples, MaskedExamples
from bertprep.records.examples import (
    ClassificationExamples,
    RegressionExamples,
    SquadEvalExamples,
    SquadExamples,
    TokenClassificationExamples,
)

TASK_KINDS = [kind for kind in KINDS if not issubclass(kind, MaskedExamples)]
CLS, SEP, FIRST_WORD, TOKENS, LABELS = 2, 3, 5, 40, 3


def task_examples(kind: type[Examples], count: int, *, seq: int = 16, seed: int = 0, first: int = 0) -> Examples:
    """`count` examples, of SQuAD those of the windows from number `first` of a split on."""
    rng = np.random.default_rng(seed)
    examples = kind.empty(count, seq=seq)
    for array in examples.arrays:
        array[...] = 0
    is_squad = isinstance(examples, SquadExamples | SquadEvalExamples)
    for row in range(count):
        length = int(rng.integers(6, seq + 1))
        end_of_a = int(rng.integers(2, length - 2))
        is_single = not is_squad and rng.random() < 0.5
        examples.input_ids[row, :length] = rng.integers(FIRST_WORD, TOKENS, length)
        examples.input_ids[row, [0, length - 1]] = CLS, SEP
        examples.input_mask[row, :length] = 1
        if not is_single:
            examples.input_ids[row, end_of_a] = SEP
            examples.segment_ids[row, end_of_a + 1 : length] = 1
        if isinstance(examples, SquadExamples):
            answer = int(rng.integers(end_of_a + 1, length - 1))
            has_answer = row % 3 > 0
            examples.start_positions[row] = answer * has_answer
            examples.end_positions[row] = int(rng.integers(answer, length - 1)) * has_answer
            examples.is_impossible[row] = row % 6 == 0
    if isinstance(examples, SquadExamples | SquadEvalExamples):
        examples.unique_ids[:] = 1_000_000_000 + first + np.arange(count)
    if isinstance(examples, TokenClassificationExamples):
        examples.label_weights[:, 1::2] = examples.input_mask[:, 1::2]
        examples.label_ids[:] = rng.integers(0, LABELS, examples.label_ids.shape) * (examples.label_weights > 0)
    if isinstance(examples, ClassificationExamples):
        examples.label_ids[:] = rng.integers(0, LABELS, count)
    if isinstance(examples, RegressionExamples):
        examples.label_ids[:] = rng.uniform(0, 5, count)
    if isinstance(examples, ClassificationExamples | RegressionExamples):
        examples.is_real_example[:] = 1
    return examples

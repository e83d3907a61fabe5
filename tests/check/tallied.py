"""Outcomes of records in memory, as the validator computes them from files."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bertprep.check.outcome import FileFacts, Outcome
from bertprep.check.records import RecordChecker, RecordRules
from bertprep.check.statistics import expect
from bertprep.instances import load_vocabulary
from bertprep.records.examples import PretrainingExamples
from bertprep.work.manifest import Manifest
from tests.golden import GOLDEN

CLS, SEP, MASK = 2, 3, 4
VOCABULARY = load_vocabulary(GOLDEN / "vocab.txt")
RULES = RecordRules(128, 20, len(VOCABULARY), VOCABULARY.cls, VOCABULARY.sep, VOCABULARY.mask, masked_lm_prob=0.15)
"""Those of records of the golden corpus in the default settings."""


def outcome_of(
    splits: dict[str, PretrainingExamples], *, vocabulary: int, manifest: Manifest | None = None, files: int = 1
) -> Outcome:
    """A sound data set of these records, as if each split lay in `files` files."""
    first = next(iter(splits.values()))
    outcome = Outcome(Path("data/tfrecord/settings/books"), "tfrecord", manifest, None, first.seq, first.pred)
    rules = RecordRules(first.seq, first.pred, vocabulary, CLS, SEP, MASK, masked_lm_prob=0.15)
    for split, examples in splits.items():
        checker = RecordChecker(rules)
        checker.check(examples, np.arange(len(examples)))
        assert checker.findings(split) == []
        outcome.counts[split] = checker.counts
        outcome.expected[split] = expect(checker.counts, rules)
        for number in range(files):
            name = f"{split}/books_{split}_{number:05d}.tfrecord" if split else f"{number:05d}.tfrecord"
            size = len(examples) // files
            outcome.files.append(FileFacts(name, split, size, 800 * size))
    return outcome


def sound_examples(count: int, *, seq: int = 32, pred: int = 5, vocabulary: int = 60, seed: int = 1) -> PretrainingExamples:
    """Random records as the generator makes them: [PAD], [UNK], [CLS], [SEP], [MASK] are tokens 0 to 4."""
    rng = np.random.default_rng(seed)
    examples = PretrainingExamples(
        *(np.zeros_like(array) for array in PretrainingExamples.empty(count, seq=seq, pred=pred).arrays)
    )
    for row in range(count):
        length = seq if rng.random() < 0.8 else int(rng.integers(5, seq))
        first_sep = int(rng.integers(2, length - 2))
        ids = rng.integers(5, vocabulary, seq)
        ids[[0, first_sep, length - 1]] = CLS, SEP, SEP
        places = np.setdiff1d(np.arange(1, length - 1), [first_sep])
        wanted = min(pred, max(1, round(length * 0.15)), len(places))
        chosen = np.sort(rng.choice(places, wanted, replace=False))
        examples.masked_lm_positions[row, :wanted] = chosen
        examples.masked_lm_ids[row, :wanted] = ids[chosen]
        examples.masked_lm_weights[row, :wanted] = 1
        kind = rng.random(wanted)
        ids[chosen] = np.where(kind < 0.8, MASK, np.where(kind < 0.9, ids[chosen], rng.integers(5, vocabulary, wanted)))
        examples.input_ids[row, :length] = ids[:length]
        examples.input_mask[row, :length] = 1
        examples.segment_ids[row, first_sep + 1 : length] = 1
        examples.next_sentence_labels[row] = rng.random() < 0.5
    return examples

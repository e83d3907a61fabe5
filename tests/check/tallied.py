"""Outcomes made in a few lines of NumPy from examples: what the validator's kernels give, slowly."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bertprep.check.outcome import FileFacts, Outcome
from bertprep.check.tally import Tally
from bertprep.records.examples import Examples
from bertprep.workspace.manifest import Manifest


def tally_of(examples: Examples, vocabulary: int) -> Tally:
    """The counts of sound records; [MASK] is the token shown most often at a prediction that is not the label."""
    seq, pred = examples.seq, examples.pred
    rows = np.arange(len(examples))
    lengths = examples.input_mask.sum(axis=1)
    first_sep = lengths - examples.segment_ids.sum(axis=1) - 1
    weighted = examples.masked_lm_weights > 0
    at = (np.repeat(rows, weighted.sum(axis=1)), examples.masked_lm_positions[weighted])
    labels, shown = examples.masked_lm_ids[weighted], examples.input_ids[at]
    text = examples.input_ids.copy()
    text[at] = labels
    is_token = examples.input_mask == 1
    is_token[:, 0] = False
    is_token[rows, first_sep] = is_token[rows, lengths - 1] = False
    others = shown[shown != labels]
    mask = np.bincount(others).argmax() if others.size else -1
    kinds = [np.sum((shown == mask) & (shown != labels)), np.sum(shown == labels), np.sum((shown != mask) & (shown != labels))]
    return Tally(
        lengths=np.bincount(lengths, minlength=seq + 1),
        lengths_of_a=np.bincount(first_sep - 1, minlength=seq + 1),
        predictions=np.bincount(weighted.sum(axis=1), minlength=pred + 1),
        positions=np.bincount(at[1], minlength=seq),
        labels=np.bincount(labels, minlength=vocabulary),
        tokens=np.bincount(text[is_token], minlength=vocabulary),
        shown=np.array(kinds, np.int64),
        next_sentence=np.bincount(examples.next_sentence_labels, minlength=2),
    )


def outcome_of(splits: dict[str, Examples], *, vocabulary: int, manifest: Manifest | None = None, files: int = 1) -> Outcome:
    """A sound data set of these records, as if each split lay in `files` files."""
    first = next(iter(splits.values()))
    outcome = Outcome(Path("data/tfrecord/settings/books"), "tfrecord", manifest, None, first.seq, first.pred)
    for split, examples in splits.items():
        outcome.tallies[split] = tally_of(examples, vocabulary)
        for number in range(files):
            name = f"{split}/books_{split}_{number:05d}.tfrecord" if split else f"{number:05d}.tfrecord"
            size = len(examples) // files
            outcome.files.append(FileFacts(name, split, size, 800 * size))
    return outcome


def sound_examples(count: int, *, seq: int = 32, pred: int = 5, vocabulary: int = 60, seed: int = 1) -> Examples:
    """Random records as the generator makes them: [PAD], [UNK], [CLS], [SEP], [MASK] are tokens 0 to 4."""
    cls, sep, mask = 2, 3, 4
    rng = np.random.default_rng(seed)
    examples = Examples(*(np.zeros_like(array) for array in Examples.empty(count, seq=seq, pred=pred).arrays))  # type: ignore[arg-type]
    for row in range(count):
        length = seq if rng.random() < 0.8 else int(rng.integers(5, seq))
        first_sep = int(rng.integers(2, length - 2))
        ids = rng.integers(5, vocabulary, seq)
        ids[[0, first_sep, length - 1]] = cls, sep, sep
        places = np.setdiff1d(np.arange(1, length - 1), [first_sep])
        wanted = min(pred, max(1, round(length * 0.15)), len(places))
        chosen = np.sort(rng.choice(places, wanted, replace=False))
        examples.masked_lm_positions[row, :wanted] = chosen
        examples.masked_lm_ids[row, :wanted] = ids[chosen]
        examples.masked_lm_weights[row, :wanted] = 1
        kind = rng.random(wanted)
        ids[chosen] = np.where(kind < 0.8, mask, np.where(kind < 0.9, ids[chosen], rng.integers(5, vocabulary, wanted)))
        examples.input_ids[row, :length] = ids[:length]
        examples.input_mask[row, :length] = 1
        examples.segment_ids[row, first_sep + 1 : length] = 1
        examples.next_sentence_labels[row] = rng.random() < 0.5
    return examples

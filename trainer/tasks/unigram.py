"""What a model must beat: the masked-LM loss by unigram frequencies, which looks at nothing but how often a token is a label.

A masked token is predicted with probability (its count + 1) / (all counts + size of the vocabulary): the one added keeps every
label possible, since the loss of an impossible one is infinite. A model that is no better has learned nothing from the words
around the mask. The loss depends on the counts of labels in both splits alone, so only those are kept of the records.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertprep.records.live import LiveExamples
from bertprep.records.record_set import Records

_PORTION = 4096  # records read at a time


def unigram_loss(
    training: Records, test: Records, *, vocab_size: int, test_sequences: int = 0, most_records: int = 1_000_000
) -> float:
    """Mean loss, in nats, of the masked tokens of `test`, predicted by how often each is one in `training`.

    Of `test` the first `test_sequences` records count, as in an evaluation, or with 0 all of them. Of each set at
    most `most_records` are read, spread evenly, of live examples the first. 0 where no token is masked.
    """
    counts = _count_labels(training, len(training), vocab_size=vocab_size, most_records=most_records)
    test_records = min(test_sequences or len(test), len(test))
    test_counts = _count_labels(test, test_records, vocab_size=vocab_size, most_records=most_records)
    losses = np.log(counts.sum() + vocab_size) - np.log(counts + 1)  # (vocabulary,): of predicting each token
    return float(test_counts @ losses / max(test_counts.sum(), 1.0))


def _count_labels(records: Records, first: int, *, vocab_size: int, most_records: int) -> NDArray[np.float64]:
    """(vocabulary,): how often each token is a label in the `first` records, of which at most `most_records` are read.

    The records are opened for a model with that vocabulary, so that one with another label is bad.
    """
    counts = np.zeros(vocab_size)
    is_live = isinstance(records, LiveExamples)  # of which those of few shards cost least
    numbers = np.arange(min(first, most_records)) if is_live else _spread(first, most_records)
    examples: Any = records.kind.empty(min(_PORTION, len(numbers)), seq=records.seq, pred=records.pred)
    for start in range(0, len(numbers), _PORTION):
        portion = numbers[start : start + _PORTION]
        records.gather_good(examples, portion)  # without what is bad: the steps and evaluations that meet it name it
        labels, weights = examples.masked_lm_ids[: len(portion)], examples.masked_lm_weights[: len(portion)]
        is_counted = weights != 0  # what fills a record up may have any number
        counts += np.bincount(labels[is_counted], weights[is_counted], minlength=vocab_size)
    return counts


def _spread(records: int, most: int) -> NDArray[np.int64]:
    """The numbers of at most `most` of `records` records, evenly apart.

    >>> _spread(10, 4).tolist(), _spread(3, 4).tolist()
    ([0, 2, 5, 7], [0, 1, 2])
    """
    count = min(records, most)
    return np.arange(count, dtype=np.int64) * records // count

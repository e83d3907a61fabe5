"""What the counts of good data should be, from its settings and its lengths: the marks that the charts are drawn against.

The generator decides the number of predictions by the length alone, and takes their places at random among all tokens but
[CLS] and [SEP]; so the histogram of lengths tells how many predictions there must be, and how often each place is one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bertprep.check.outcome import Outcome
from bertprep.check.tally import Tally
from bertprep.instances import generator

_SPECIAL_TOKENS = 3  # [CLS] and two [SEP]
_NORMAL_95 = 1.959964  # 95 % of a normal distribution lie within so many standard deviations


@dataclass(frozen=True)
class Expected:
    """The settings that decide what is expected."""

    masked_lm_prob: float
    short_seq_prob: float
    whole_word: bool


def expected_of(outcome: Outcome) -> Expected:
    """From the manifest, or the defaults of Google's script where there is none."""
    made_with = outcome.manifest.made_with if outcome.manifest else {}
    return Expected(
        masked_lm_prob=float(made_with.get("masked_lm_prob", 0.15)),
        short_seq_prob=float(made_with.get("short_seq_prob", 0.1)),
        whole_word=bool(made_with.get("whole_word", False)),
    )


def predictions_by_length(seq: int, pred: int, masked_lm_prob: float) -> NDArray[np.int64]:
    """(seq + 1,) predictions of a record by its tokens of text.

    >>> predictions_by_length(8, 2, 0.15).tolist()
    [0, 1, 1, 1, 1, 1, 1, 1, 1]
    """
    wanted = generator.predictions_by_length(seq, pred, masked_lm_prob)
    wanted[0] = 0
    return wanted


def expected_predictions(tally: Tally, masked_lm_prob: float) -> NDArray[np.int64]:
    """(pred + 1,) records by number of predictions."""
    seq, pred = len(tally.lengths) - 1, len(tally.predictions) - 1
    wanted = predictions_by_length(seq, pred, masked_lm_prob)
    return np.bincount(wanted, weights=tally.lengths, minlength=pred + 1).astype(np.int64)


def maskable_by_position(tally: Tally) -> NDArray[np.int64]:
    """(seq,) records that have a token at the place which may be masked: of text, neither [CLS] nor [SEP]."""
    seq = len(tally.positions)
    longer = tally.records - np.cumsum(tally.lengths)[:seq]  # (seq,): records with more than p tokens
    text = np.append(longer[1:], 0)  # the last token is a [SEP]
    text[0] = 0
    first_sep = np.zeros(seq, np.int64)
    first_sep[1:] = tally.lengths_of_a[: seq - 1]  # it stands behind [CLS] and A
    return np.maximum(text - first_sep, 0)


def expected_rate_by_position(tally: Tally, masked_lm_prob: float) -> NDArray[np.float64]:
    """(seq,) the share of maskable tokens at each place that should be predictions; 0 where there are none.

    [CLS] and the last [SEP] are accounted for exactly; the first [SEP] as if its place did not depend on the length.
    """
    seq, pred = len(tally.positions), len(tally.predictions) - 1
    lengths = np.arange(seq + 1)
    rates = predictions_by_length(seq, pred, masked_lm_prob) / np.maximum(lengths - _SPECIAL_TOKENS, 1)
    behind = np.cumsum((tally.lengths * rates)[::-1])[::-1]  # sums over records of at least so many tokens
    records = np.cumsum(tally.lengths[::-1])[::-1]
    expected = np.zeros(seq)
    expected[1 : seq - 1] = (behind / np.maximum(records, 1))[3:]  # a token at p has a [SEP] behind it: length >= p + 2
    return expected


def interval(hits: int, trials: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share.

    >>> tuple(round(end, 3) for end in interval(80, 100))
    (0.711, 0.867)
    """
    if trials <= 0:
        return 0.0, 1.0
    share, squared = hits / trials, _NORMAL_95**2
    middle = (share + squared / (2 * trials)) / (1 + squared / trials)
    half = _NORMAL_95 * np.sqrt(share * (1 - share) / trials + squared / (4 * trials**2)) / (1 + squared / trials)
    return max(float(middle - half), 0.0), min(float(middle + half), 1.0)

"""The shares that tell whether data was masked and paired as BERT's generator does it, and what each should be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bertprep.check.tally import Tally
from bertprep.reporting.amounts import percent
from bertprep.reporting.expectations import Expected, predictions_by_length

Part = tuple[int, int]
"""How many, of how many."""


@dataclass(frozen=True)
class Share:
    """One share by split, with the range in which it is expected: a point where low and high are the same."""

    name: str
    of: str
    parts: dict[str, Part]
    low: float
    high: float
    expected: str  # the range in words


def shares_of(tallies: dict[str, Tally], expected: Expected) -> list[Share]:
    """All shares of a data set."""
    vocabulary = max((len(tally.labels) for tally in tallies.values()), default=0)
    chance = 0.1 / vocabulary if vocabulary else 0.0  # that a random token is a certain one
    everything = masked_share(list(tallies.values()), expected)

    def exactly(name: str, of: str, share: float, part: Callable[[Tally], Part]) -> Share:
        return Share(name, of, _parts(tallies, part), share, share, percent(share, 2))

    return [
        exactly("shown as [MASK]", "of the predictions", 0.8 + chance, lambda tally: _shown(tally, 0)),
        exactly("left as it was", "of the predictions", 0.1 + chance, lambda tally: _shown(tally, 1)),
        exactly("another token", "of the predictions", 0.1 - 2 * chance, lambda tally: _shown(tally, 2)),
        Share(
            "masked", "of the tokens of text", _parts(tallies, lambda tally: (int(tally.shown.sum()), tally.text_tokens)),
            0.0 if expected.whole_word else everything, everything,
            f"{'at most ' if expected.whole_word else ''}{percent(everything, 2)}, by the lengths",
        ),
        Share(
            "B is random", "of the records",
            _parts(tallies, lambda tally: (int(tally.next_sentence[1]), tally.records)),
            0.5, 0.8, "50\u00a0%, and more where chunks are one sentence",
        ),
        Share(
            "shorter than a sequence", "of the records",
            _parts(tallies, lambda tally: (tally.records - int(tally.lengths[-1]), tally.records)),
            0.0, 1.0, f"{percent(expected.short_seq_prob, 0)} of the documents are cut short; their ends come on top",
        ),
    ]  # fmt: skip


def masked_share(tallies: list[Tally], expected: Expected) -> float:
    """The share of tokens of text that should be predictions, of records with these lengths."""
    wanted = tokens = 0
    for tally in tallies:
        seq, pred = len(tally.lengths) - 1, len(tally.predictions) - 1
        wanted += int(tally.lengths @ predictions_by_length(seq, pred, expected.masked_lm_prob))
        tokens += int(tally.lengths @ np.arange(seq + 1))
    return wanted / tokens if tokens else 0.0


def _shown(tally: Tally, kind: int) -> Part:
    return int(tally.shown[kind]), int(tally.shown.sum())


def _parts(tallies: dict[str, Tally], part: Callable[[Tally], Part]) -> dict[str, Part]:
    return {split: part(tally) for split, tally in tallies.items()}

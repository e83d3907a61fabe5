"""All splits of a data set as one: their counts added up."""

from __future__ import annotations

from collections.abc import Iterable

from bertprep.check.tally import Tally


def together(tallies: Iterable[Tally]) -> Tally:
    """One tally of all records; there must be at least one."""
    first, *others = tallies
    seq, pred, vocabulary = len(first.positions), len(first.predictions) - 1, len(first.labels)
    everything = Tally.empty(seq=seq, pred=pred, vocabulary=vocabulary)
    for tally in (first, *others):
        everything.add(tally)
    return everything

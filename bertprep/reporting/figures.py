"""The figures of a report: the counts in each chart, and its caption."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bertprep.check.outcome import Counts, Expected, FileFacts, Tally, TokenTally
from bertprep.reporting.charts import Columns, Values, draw, group
from bertprep.reporting.markup import Markup, count, element, percent

_FILES_ONE_BY_ONE = 40
_SPREAD_COLUMNS = 24


def figure(title: str, columns: Columns, caption: str) -> Markup:
    """A chart with its title, its legend and its caption."""
    legend = None
    if len(columns.series) > 1 or columns.expected is not None:
        names = [element("li", name, class_=key) for name, key in zip(columns.series, ("first", "second"), strict=False)]
        if columns.expected is not None:
            names.append(element("li", "expected", class_="expected"))
        legend = element("ul", *names, class_="legend")
    parts = (element("h3", title), legend, draw(columns, f"{title}. {caption}"), element("figcaption", caption))
    return element("figure", *parts)


def lengths(tallies: dict[str, Tally]) -> Markup:
    """Records by tokens of text."""
    everything = Tally.total(tallies.values())
    full = everything.lengths[-1] / max(everything.records, 1)
    caption = (
        f"{percent(full)} of the records fill all {count(len(everything.positions))} positions, half have at least "
        f"{count(_median(everything.lengths))} tokens. {percent(everything.padding_share)} of all tokens are padding."
    )
    return figure("Length", _histogram({split: tally.lengths for split, tally in tallies.items()}, "tokens of text"), caption)


def sentences(tallies: dict[str, TokenTally]) -> Markup:
    """Sentences of token shards by their tokens."""
    everything = sum(tallies.values(), TokenTally())
    longer = everything.lengths[-1] / max(everything.sentences, 1)
    caption = (
        f"{everything.tokens / max(everything.sentences, 1):.1f} tokens a sentence on average, half have at least "
        f"{count(_median(everything.lengths))}; {percent(longer)} have {count(TokenTally.LONGEST)} or more, counted as that "
        f"many. A document has {everything.sentences / max(everything.documents, 1):.1f} sentences."
    )
    by_split = {split: tally.lengths for split, tally in tallies.items()}
    return figure("Length", _histogram(by_split, "tokens", of="sentences"), caption)


def segments(tallies: dict[str, Tally]) -> Markup:
    """Records by tokens of segment A."""
    everything = Tally.total(tallies.values())
    mean_a = _mean(everything.lengths_of_a)
    mean_b = _mean(everything.lengths) - mean_a - 3
    caption = f"A has {mean_a:.1f} tokens on average, B {mean_b:.1f}, without [CLS] and [SEP]."
    by_split = {split: tally.lengths_of_a for split, tally in tallies.items()}
    return figure("Segment A", _histogram(by_split, "tokens of A"), caption)


def predictions(tallies: dict[str, Tally], expected: dict[str, Expected]) -> Markup:
    """Records by number of predictions, against the expected numbers."""
    numbers = [of_split.predictions for of_split in expected.values() if of_split.predictions is not None]
    wanted = np.sum(numbers, axis=0) if numbers else None
    asked = "Whole words are masked: a record has at most as many as its length allows."
    if wanted is not None:
        asked = "The expected number follows from the length of each record."
    by_split = {split: tally.predictions for split, tally in tallies.items()}
    caption = f"{_mean(Tally.total(tallies.values()).predictions):.2f} a record on average. {asked}"
    return figure("Predictions", _histogram(by_split, "predictions", wanted), caption)


def positions(tallies: dict[str, Tally], expected: dict[str, Expected]) -> Markup:
    """The fraction of maskable tokens at each position that are predicted: flat if masking prefers no position."""
    series: dict[str, Values] = {}
    edges, width = np.zeros(0), 1
    for split, tally in tallies.items():
        hits, edges, width = group(tally.positions)
        series[split or "records"] = hits / np.maximum(group(maskable_by_position(tally))[0], 1)
    wanted = None
    numbers = [of_split.positions for of_split in expected.values() if of_split.positions is not None]
    if numbers:
        # expected predictions are not whole numbers, so they are grouped as thousandths
        thousandths = np.rint(np.sum(numbers, axis=0) * 1000).astype(np.int64)
        maskable = maskable_by_position(Tally.total(tallies.values()))
        wanted = group(thousandths)[0] / 1000 / np.maximum(group(maskable)[0], 1)
    columns = Columns(edges, series, wanted, _in_steps("position in the record", width), "masked of the tokens there")
    caption = (
        "If no position is preferred or avoided, all columns have the same height, except by chance. [CLS] is never masked."
    )
    return figure("Position", columns, caption)


def records_by_file(files: Sequence[FileFacts]) -> Markup:
    """Records of each file if there are few files; otherwise files by their number of records."""
    splits = list(dict.fromkeys(file.split for file in files))
    numbers = np.array([file.records for file in files], np.int64)
    names = {split: split or "files" for split in splits}
    fewest, most = int(np.min(numbers)), int(np.max(numbers))
    of_split = {split: np.array([file.split == split for file in files]) for split in splits}
    caption = (
        f"Between {count(fewest)} and {count(most)} records in a file, "
        f"half of the files have at least {count(int(np.median(numbers)))}."
    )
    if len(files) <= _FILES_ONE_BY_ONE:
        values = {names[split]: np.where(of_split[split], numbers, 0).astype(np.float64) for split in splits}
        columns = Columns(np.arange(0.5, len(files) + 1, dtype=np.float64), values, None, "file", "records", _whole)
        return figure("Records of each file", columns, caption)
    width = (most - fewest + 1) / _SPREAD_COLUMNS
    edges = np.array([fewest - 0.5 + width * number for number in range(_SPREAD_COLUMNS + 1)], np.float64)
    values = {names[split]: np.histogram(numbers[of_split[split]], edges)[0].astype(np.float64) for split in splits}
    columns = Columns(edges, values, None, "records in a file", "files", _whole)
    return figure("Files by their records", columns, caption)


def _whole(value: float) -> str:
    return f"{value:,.6g}"


def _histogram(
    by_split: dict[str, Counts], x_label: str, expected: NDArray[np.int64] | None = None, *, of: str = "records"
) -> Columns:
    """Fractions of each split's records by an integer."""
    series: dict[str, Values] = {}
    edges, width = np.zeros(0), 1
    for split, counts in by_split.items():
        grouped, edges, width = group(counts)
        series[split or of] = grouped / max(int(grouped.sum()), 1)
    wanted = None if expected is None else group(expected)[0] / max(int(expected.sum()), 1)
    return Columns(edges, series, wanted, _in_steps(x_label, width), f"of the {of}")


def _in_steps(label: str, width: int) -> str:
    return label if width == 1 else f"{label}, {width} a column"


def _median(counts: Counts) -> int:
    """The median of values given as counts by value."""
    return int(np.searchsorted(np.cumsum(counts), counts.sum() / 2))


def _mean(counts: Counts) -> float:
    """The mean of values given as counts by value."""
    return float(counts @ np.arange(len(counts))) / max(int(counts.sum()), 1)


def maskable_by_position(tally: Tally) -> Counts:
    """(seq,) records whose token at the position may be masked: text other than [CLS] and [SEP]."""
    seq = len(tally.positions)
    longer = tally.records - np.cumsum(tally.lengths)[:seq]  # (seq,): records with more than p tokens
    text = np.append(longer[1:], 0)  # the last token is a [SEP]
    text[0] = 0
    first_sep = np.zeros(seq, np.int64)
    first_sep[1:] = tally.lengths_of_a[: seq - 1]  # after [CLS] and A
    return np.maximum(text - first_sep, 0)

"""The charts of the page: histograms of the records and sentences of a data set, drawn by matplotlib as inline SVG."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from functools import reduce
from operator import add
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bertprep.check.outcome import FileFacts, Ints, Outcome, RecordCounts, TokenCounts

_MAX_COLUMNS = 70
_FILES_ONE_BY_ONE = 40
_TALL = 3.0  # a column this many times as high as all others is cut off, so that those remain visible

Values = NDArray[np.float64]


class Chart(NamedTuple):
    """A drawing with its title and caption, which are also its text alternative."""

    title: str
    caption: str
    svg: str


def percent(fraction: float, digits: int = 1) -> str:
    r"""Return a fraction in percent.

    >>> percent(0.0625), percent(0.8, 2)
    ('6.2\xa0%', '80.00\xa0%')
    """
    return f"{fraction * 100:.{digits}f}\N{NO-BREAK SPACE}%"


def charts_of(outcome: Outcome) -> list[Chart]:
    """Draw the lengths, segments, predictions and positions of records, or the sentences of token shards."""
    if outcome.token_counts:
        return [_sentences(outcome.token_counts)]
    tallies = outcome.counts
    if not any(tally.records for tally in tallies.values()):
        return []
    total = reduce(add, tallies.values())
    caption = (
        f"{percent(total.lengths[-1] / total.records)} of the records fill all {len(total.positions):,} positions, half have "
        f"at least {_median(total.lengths):,} tokens. {percent(total.padding_share)} of all tokens are padding."
    )
    charts = [_histogram("Length", {split: tally.lengths for split, tally in tallies.items()}, "tokens of text", caption)]
    if total.has_pairs:
        mean_a = _mean(total.lengths_of_a)
        caption = f"A has {mean_a:.1f} tokens on average, B {_mean(total.lengths) - mean_a - 3:.1f}, without [CLS] and [SEP]."
        of_a = {split: tally.lengths_of_a for split, tally in tallies.items()}
        charts.append(_histogram("Segment A", of_a, "tokens of A", caption))
    return [*charts, _predictions(outcome, total), _positions(outcome), *([_files(outcome.files)] if outcome.files else [])]


def _predictions(outcome: Outcome, total: RecordCounts) -> Chart:
    wanted = [each.predictions for each in outcome.expected.values() if each.predictions is not None]
    asked = "Whole words are masked: a record has at most as many as its length allows."
    if wanted:
        asked = "The expected number follows from the length of each record."
    caption = f"{_mean(total.predictions):.2f} a record on average. {asked}"
    found = {split: tally.predictions for split, tally in outcome.counts.items()}
    return _histogram("Predictions", found, "predictions", caption, np.sum(wanted, axis=0) if wanted else None)


def _sentences(tallies: Mapping[str, TokenCounts]) -> Chart:
    total = sum(tallies.values(), TokenCounts())
    sentences = max(total.sentences, 1)
    caption = (
        f"{total.tokens / sentences:.1f} tokens a sentence on average, half have at least {_median(total.lengths):,}; "
        f"{percent(total.lengths[-1] / sentences)} have {TokenCounts.LONGEST:,} or more, counted as that many. A document has "
        f"{total.sentences / max(total.documents, 1):.1f} sentences."
    )
    by_split = {split or "sentences": tally.lengths for split, tally in tallies.items()}
    return _histogram("Sentences", by_split, "tokens", caption)


def _histogram(title: str, counts: Mapping[str, Ints], x_label: str, caption: str, wanted: Ints | None = None) -> Chart:
    """Draw the fractions of each split's records by an integer."""
    _, edges = group(next(iter(counts.values())))
    series = {split or "records": group(each)[0] / max(int(each.sum()), 1) for split, each in counts.items()}
    expected = None if wanted is None else group(wanted)[0] / max(int(wanted.sum()), 1)
    return Chart(title, caption, _draw(edges, series, expected, (x_label, "fraction of all")))


def _positions(outcome: Outcome) -> Chart:
    """Draw the fraction of maskable tokens at each position that are predicted: flat if masking prefers no position."""
    maskable = {split: group(maskable_by_position(tally))[0] for split, tally in outcome.counts.items()}
    hits = {split: group(tally.positions) for split, tally in outcome.counts.items()}
    series = {split or "records": hits[split][0] / np.maximum(maskable[split], 1) for split in hits}
    wanted = [each.positions for each in outcome.expected.values() if each.positions is not None]
    expected = None
    if wanted:
        expected = group(np.sum(wanted, axis=0))[0] / np.maximum(np.sum([*maskable.values()], axis=0), 1)
    edges = next(edges for _, edges in hits.values())
    caption = "If no position is preferred or avoided, all columns have the same height, but for chance. [CLS] is never masked."
    return Chart("Position", caption, _draw(edges, series, expected, ("position in the record", "masked of the tokens there")))


def _files(files: Sequence[FileFacts]) -> Chart:
    """Draw the records of each file if there are few files; otherwise files by their number of records."""
    counts = [file.records for file in files]
    numbers, fewest, most = np.array(counts, np.int64), min(counts), max(counts)
    splits = dict.fromkeys(file.split for file in files)
    masks = {split or "files": np.array([file.split == split for file in files]) for split in splits}
    caption = f"Between {fewest:,} and {most:,} records in a file, half of the files have at least {int(np.median(numbers)):,}."
    if len(files) <= _FILES_ONE_BY_ONE:
        series = {name: np.where(mask, numbers, 0).astype(np.float64) for name, mask in masks.items()}
        drawing = _draw(np.arange(0.5, len(files) + 1), series, None, ("file", "records"), in_percent=False)
        return Chart("Records of each file", caption, drawing)
    edges = np.linspace(fewest - 0.5, most + 0.5, 25)
    series = {name: np.histogram(numbers[mask], edges)[0].astype(np.float64) for name, mask in masks.items()}
    drawing = _draw(edges, series, None, ("records in a file", "files"), in_percent=False)
    return Chart("Files by their records", caption, drawing)


def group(counts: NDArray[Any]) -> tuple[Values, Values]:
    """Group counts by integer into columns of equal width; the last ends with the highest number. Returns them and the edges.

    >>> group(np.arange(1, 141))[0][:3].tolist(), group(np.arange(3))[1].tolist()
    ([3.0, 7.0, 11.0], [-0.5, 0.5, 1.5, 2.5])
    """
    width = -(-len(counts) // _MAX_COLUMNS)
    columns = -(-len(counts) // width)
    padded = np.concatenate([np.zeros(columns * width - len(counts)), counts])
    edges = len(counts) - 0.5 - width * np.arange(columns, -1, -1, dtype=np.float64)
    return padded.reshape(columns, width).sum(axis=1), edges


def _draw(
    edges: Values, series: Mapping[str, Values], expected: Values | None, labels: tuple[str, str], *, in_percent: bool = True
) -> str:
    """Return an SVG of a filled histogram, of another one as an outline, and of the expected values as a dashed line."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure
    from matplotlib.ticker import PercentFormatter

    figure = Figure(figsize=(4.2, 2.7), layout="constrained")
    axes = figure.add_subplot()
    for index, (name, values) in enumerate(series.items()):
        axes.stairs(values, edges, fill=index == 0, alpha=0.75 if index == 0 else 1.0, color=f"C{index}", label=name)
    if expected is not None:
        axes.stairs(expected, edges, linestyle="--", color="#000000", baseline=None, label="expected")
    heights: Values = np.array([*series.values(), *([] if expected is None else [expected])]).max(axis=0)
    tallest = int(np.argmax(heights))
    others = max(np.delete(heights, tallest).tolist(), default=0.0)
    if others > 0 and heights[tallest] > _TALL * others:
        axes.set_ylim(0, 1.4 * others)
        axes.set_title(f"{heights[tallest]:.4g} at {edges[tallest + 1] - 0.5:,.0f}, cut off", fontsize="small")
    axes.set(xlabel=labels[0], ylabel=labels[1])
    axes.spines[["top", "right"]].set_visible(False)
    if in_percent:
        axes.yaxis.set_major_formatter(PercentFormatter(1))
    if len(series) > 1 or expected is not None:
        axes.legend(frameon=False, fontsize="small")
    drawn = io.StringIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "bertprep"}):
        figure.savefig(drawn, format="svg", transparent=True, metadata={"Date": None})
    svg = drawn.getvalue()
    return svg[svg.index("<svg") :].replace("#000000", "currentColor")


def _median(counts: Ints) -> int:
    return int(np.searchsorted(np.cumsum(counts), counts.sum() / 2))


def _mean(counts: Ints) -> float:
    return float(counts @ np.arange(len(counts))) / max(int(counts.sum()), 1)


def maskable_by_position(tally: RecordCounts) -> Ints:
    """Return (seq,) records whose token at the position may be masked: text other than [CLS] and [SEP]."""
    seq = len(tally.positions)
    longer = tally.records - np.cumsum(tally.lengths)[:seq]  # (seq,): records with more than p tokens
    text = np.append(longer[1:], 0)  # the last token is a [SEP]
    text[0] = 0
    first_sep = np.zeros(seq, np.int64)
    first_sep[1:] = tally.lengths_of_a[: seq - 1]  # after [CLS] and A
    return np.maximum(text - first_sep, 0)

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
    of_splits = outcome.counts
    if not any(counts.records for counts in of_splits.values()):
        return []
    total, expected = reduce(add, of_splits.values()), [*outcome.expected.values()]
    is_known = expected[0].is_known
    caption = (
        f"{percent(total.lengths[-1] / total.records)} of the records fill all {len(total.positions):,} positions, half have "
        f"at least {_median(total.lengths):,} tokens. {percent(total.padding_share)} of all tokens are padding."
    )
    charts = [_histogram("Length", {split: of.lengths for split, of in of_splits.items()}, "tokens of text", caption)]
    if total.has_pairs:
        mean_a = _mean(total.lengths_of_a)
        caption = f"A has {mean_a:.1f} tokens on average, B {_mean(total.lengths) - mean_a - 3:.1f}, without [CLS] and [SEP]."
        charts.append(
            _histogram("Segment A", {split: of.lengths_of_a for split, of in of_splits.items()}, "tokens of A", caption)
        )
    why = "The expected number follows from the length of each record."
    if not is_known:
        why = "Whole words are masked: a record has at most as many as its length allows."
    caption = f"{_mean(total.predictions):.2f} a record on average. {why}"
    wanted = reduce(add, [of.predictions for of in expected]) if is_known else None
    found = {split: of.predictions for split, of in of_splits.items()}
    charts.append(_histogram("Predictions", found, "predictions", caption, wanted))
    # the fraction of maskable tokens at each position that are predicted: flat if masking prefers no position
    caption = "If no position is preferred or avoided, all columns have the same height, but for chance. [CLS] is never masked."
    found = {split: of.positions for split, of in of_splits.items()}
    maskable = {split: _group(maskable_by_position(of))[0] for split, of in of_splits.items()}
    drawn = reduce(add, [of.positions for of in expected]) if is_known else None
    labels = ("position in the record", "masked of the tokens there")
    charts.append(Chart("Position", caption, _draw(found, maskable, labels, drawn)))
    return [*charts, _files(outcome.files)]


def _sentences(of_splits: Mapping[str, TokenCounts]) -> Chart:
    total = reduce(add, of_splits.values())
    sentences = max(total.sentences, 1)
    caption = (
        f"{total.tokens / sentences:.1f} tokens a sentence on average, half have at least {_median(total.lengths):,}; "
        f"{percent(total.lengths[-1] / sentences)} have {TokenCounts.LONGEST:,} or more, counted as that many. A document has "
        f"{total.sentences / max(total.documents, 1):.1f} sentences."
    )
    return _histogram("Sentences", {split: of.lengths for split, of in of_splits.items()}, "tokens", caption)


def _files(files: Sequence[FileFacts]) -> Chart:
    """Draw the records of each file, or where there are many, the mean of neighbouring ones."""
    numbers = np.array([file.records for file in files])
    caption = (
        f"Between {numbers.min():,} and {numbers.max():,} records in a file, half of the files have at least "
        f"{int(np.median(numbers)):,}."
    )
    is_of = {split: np.array([file.split == split for file in files]) for split in dict.fromkeys(file.split for file in files)}
    found = {split: np.where(mask, numbers, 0) for split, mask in is_of.items()}
    of_column = dict.fromkeys(found, _group(np.ones(len(files)))[0])
    return Chart("Records of each file", caption, _draw(found, of_column, ("file", "records"), in_percent=False))


def _histogram(title: str, counts: Mapping[str, Ints], x_label: str, caption: str, wanted: Ints | None = None) -> Chart:
    """Draw the fractions of each split's records by an integer."""
    totals = {split: of.sum() for split, of in counts.items()}
    return Chart(title, caption, _draw(counts, totals, (x_label, "fraction of all"), wanted))


def _group(counts: NDArray[Any]) -> tuple[Values, Values]:
    """Group counts by integer into columns of equal width; the last ends with the highest number. Return them and the edges.

    >>> _group(np.arange(1, 141))[0][:3].tolist(), _group(np.arange(3))[1].tolist()
    ([3.0, 7.0, 11.0], [-0.5, 0.5, 1.5, 2.5])
    """
    width = -(-len(counts) // _MAX_COLUMNS)
    columns = -(-len(counts) // width)
    padded = np.concatenate([np.zeros(columns * width - len(counts)), counts])
    edges = len(counts) - 0.5 - width * np.arange(columns, -1, -1, dtype=np.float64)
    return padded.reshape(columns, width).sum(axis=1), edges


def _draw(
    counts: Mapping[str, NDArray[Any]], of: Mapping[str, Any], labels: tuple[str, str],
    wanted: NDArray[Any] | None = None, *, in_percent: bool = True,
) -> str:  # fmt: skip
    """Return an SVG of counts in columns, each `of` so many: one split filled, others as outlines, the expected as dashes."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator, PercentFormatter

    edges = next(_group(each)[1] for each in counts.values())
    series = {split: _group(each)[0] / np.maximum(of[split], 1) for split, each in counts.items()}
    figure = Figure(figsize=(4.2, 2.7), layout="constrained")
    axes = figure.add_subplot()
    for index, (name, values) in enumerate(series.items()):
        axes.stairs(values, edges, fill=index == 0, alpha=0.75 if index == 0 else 1.0, color=f"C{index}", label=name or "found")
    heights: Values = np.array([*series.values()]).max(axis=0)
    if wanted is not None:
        expected = _group(wanted)[0] / np.maximum(reduce(add, of.values()), 1)
        axes.stairs(expected, edges, linestyle="--", color="#000000", baseline=None, label="expected")
        heights = np.maximum(heights, expected)
    tallest = int(np.argmax(heights))
    others = max(np.delete(heights, tallest).tolist(), default=0.0)
    if others > 0 and heights[tallest] > _TALL * others:
        axes.set_ylim(0, 1.4 * others)
        axes.set_title(f"{heights[tallest]:.4g} at {edges[tallest + 1] - 0.5:,.0f}, cut off", fontsize="small")
    axes.set(xlabel=labels[0], ylabel=labels[1])
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.spines[["top", "right"]].set_visible(False)
    if in_percent:
        axes.yaxis.set_major_formatter(PercentFormatter(1))
    if len(series) > 1 or wanted is not None:
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


def maskable_by_position(counts: RecordCounts) -> Ints:
    """Return (seq,) records whose token at the position may be masked: text other than [CLS] and [SEP]."""
    seq = len(counts.positions)
    longer = counts.records - np.cumsum(counts.lengths)[:seq]  # (seq,): records with more than p tokens
    text = np.append(longer[1:], 0)  # the last token is a [SEP]
    text[0] = 0
    first_sep = np.zeros(seq, np.int64)
    first_sep[1:] = counts.lengths_of_a[: seq - 1]  # after [CLS] and A
    return np.maximum(text - first_sep, 0)

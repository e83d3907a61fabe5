"""Histograms and small interval strips as inline SVG, which show found and expected values together.

A histogram has filled columns for the first series, an outline for the second, and a dashed line for the expected values. It is
340 units wide, about the width available on a phone and in one of three columns of a desktop page, so its text always has the
size of the page's small print. A series is one path, whatever its number of columns. A strip shows intervals on a short axis;
it has no text and a fixed size, so it fits a table row on any screen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bertprep.check.outcome import Range
from bertprep.reporting.markup import Markup, element, join, nice_step, plain_percent

Values = NDArray[np.float64]
Interval = tuple[float, float, float]
"""The value, and the two ends of its interval."""

MOST_COLUMNS = 70
_WIDTH, _HEIGHT = 340, 216
_TOP, _BOTTOM, _RIGHT = 30, 178, 332
_CHARACTER = 6.2  # approximate width of a character in labels
_TOWERS = 3.0  # a column this many times as high as all others is cut off, so that those remain visible
_STRIP_WIDTH, _STRIP_ROW, _STRIP_PADDING = 168, 12, 5


@dataclass(frozen=True)
class Columns:
    """The data of a histogram: the value of each column of each series, between n + 1 edges."""

    edges: Values  # (n + 1,)
    series: dict[str, Values]  # (n,) by name; at most two
    expected: Values | None  # (n,)
    x_label: str
    y_label: str
    y_text: Callable[[float], str] = plain_percent

    @property
    def all_values(self) -> list[Values]:
        return [*self.series.values(), *([] if self.expected is None else [self.expected])]


def group(counts: Sequence[int] | NDArray[np.int64], most: int = MOST_COLUMNS) -> tuple[NDArray[np.int64], Values, int]:
    """Counts by integer, grouped into at most `most` columns of equal width, the last of which ends with the highest number.

    >>> group([1, 2, 3, 4, 5], most=3)
    (array([1, 5, 9]), array([-1.5,  0.5,  2.5,  4.5]), 2)
    """
    values = np.asarray(counts, np.int64)
    width = -(-len(values) // most)
    columns = -(-len(values) // width)
    grouped = np.concatenate([np.zeros(columns * width - len(values), np.int64), values]).reshape(columns, width).sum(axis=1)
    edges = len(values) - 0.5 - width * np.arange(columns, -1, -1, dtype=np.float64)
    return grouped, edges, width


def draw(columns: Columns, description: str) -> Markup:
    """The chart; `description` is its text alternative."""
    top, cut = _top_of(columns)
    step = nice_step(top, 4)
    ticks = np.arange(0, top + step * 1e-6, step)
    labels = [columns.y_text(float(tick)) for tick in ticks]
    left = 10 + _CHARACTER * max(map(len, labels))
    edges = np.maximum(columns.edges, -0.5)  # the first column of a group may begin below 0

    def x(value: float) -> float:
        return float(left + (value - edges[0]) / (edges[-1] - edges[0]) * (_RIGHT - left))

    def y(value: float) -> float:
        return float(_BOTTOM - min(value / top, 1.0) * (_BOTTOM - _TOP))

    parts: list[Markup | None] = [element("text", columns.y_label, x=2, y=14, class_="axis-name")]
    for tick, label in zip(ticks, labels, strict=True):
        height = round(y(float(tick)), 1)
        parts.append(element("line", x1=round(left, 1), x2=_RIGHT, y1=height, y2=height, class_="grid"))
        parts.append(element("text", label, x=round(left - 5, 1), y=round(height + 4, 1), class_="end"))
    for name, values in zip(("first", "second"), columns.series.values(), strict=False):
        parts.append(element("path", d=_steps(values, edges, x, y, closed=name == "first"), class_=name))
    if columns.expected is not None:
        parts.append(element("path", d=_steps(columns.expected, edges, x, y, closed=False), class_="expected"))
    if cut is not None:
        parts.append(_mark_cut(columns, edges, x, cut))
    parts += [element("line", x1=round(left, 1), x2=_RIGHT, y1=_BOTTOM, y2=_BOTTOM, class_="base"), *_x_axis(edges, x)]
    parts.append(element("text", columns.x_label, x=round((left + _RIGHT) / 2, 1), y=_HEIGHT - 6, class_="middle axis-name"))
    return element("svg", *parts, viewBox=f"0 0 {_WIDTH} {_HEIGHT}", role="img", aria_label=description, class_="chart")


def _top_of(columns: Columns) -> tuple[float, int | None]:
    """The value at the upper end, and the column that is cut off there because it would flatten all others."""
    highest = np.max(columns.all_values, axis=0)  # (n,)
    tower = int(np.argmax(highest))
    others = max(np.delete(highest, tower).tolist(), default=0.0)
    if others > 0 and highest[tower] > _TOWERS * others:
        return 1.4 * others, tower
    return 1.06 * max(float(highest[tower]), 1e-9), None


def _steps(values: Values, edges: Values, x: Callable[[float], float], y: Callable[[float], float], *, closed: bool) -> str:
    """A path along the tops of the columns, closed to the axis at both ends if it is filled."""
    path = [f"M{x(edges[0]):.1f} {_BOTTOM}" if closed else f"M{x(edges[0]):.1f} {y(values[0]):.1f}"]
    height = float("nan")
    for right, value in zip(edges[1:], values, strict=True):
        if (level := round(y(float(value)), 1)) != height:
            path.append(f"V{level:g}")
            height = level
        path.append(f"H{x(float(right)):.1f}")
    return "".join([*path, f"V{_BOTTOM}Z" if closed else ""])


def _mark_cut(columns: Columns, edges: Values, x: Callable[[float], float], tower: int) -> Markup:
    """A gap in the cut column, and its height as a label on the side that has space."""
    begin, end = x(float(edges[tower])), x(float(edges[tower + 1]))
    heights = [columns.y_text(round(float(values[tower]), 3)) for values in columns.series.values()]
    first, last = edges[tower] + 0.5, edges[tower + 1] - 0.5
    at = f"at {last:,.0f}" if last - first < 1 else f"at {first:,.0f} to {last:,.0f}"
    label = " and ".join(dict.fromkeys(heights))
    on_the_left = _RIGHT - end < len(label) * _CHARACTER
    gap = f"M{begin - 3:.1f} {_TOP + 15}L{end + 3:.1f} {_TOP + 9}"
    edge = round(begin - 6 if on_the_left else end + 6, 1)
    kind = "end strong" if on_the_left else "strong"
    lines = [element("text", text, x=edge, y=_TOP + down, class_=kind) for text, down in ((label, 9), (at, 22))]
    return join(element("path", d=gap, class_="gap"), *lines)


def _x_axis(edges: Values, x: Callable[[float], float]) -> list[Markup]:
    low, high = float(edges[0]), float(edges[-1])
    step = max(nice_step(high - low, 4), 1.0)
    step = int(step) if step == int(step) else int(step) + 1
    marks: list[Markup] = []
    for tick in range(int(-(-low // step)) * step, int(high) + 1, step):
        at = round(x(tick), 1)
        text = f"{tick:,}"
        marks.append(element("line", x1=at, x2=at, y1=_BOTTOM, y2=_BOTTOM + 4, class_="base"))
        ends = at + _CHARACTER * len(text) / 2 > _WIDTH
        marks.append(element("text", text, x=_WIDTH - 2 if ends else at, y=_BOTTOM + 17, class_="end" if ends else "middle"))
    return marks


def draw_strip(rows: Sequence[Interval], ranges: Sequence[Range], *, scale: Range, description: str) -> Markup:
    """One line per interval on an axis from scale[0] to scale[1], in front of its expected range."""
    height = 2 * _STRIP_PADDING + _STRIP_ROW * len(rows)

    def x(value: float) -> float:
        fraction = (value - scale[0]) / (scale[1] - scale[0])
        return round(4 + min(max(fraction, 0.0), 1.0) * (_STRIP_WIDTH - 8), 1)

    parts = [element("line", x1=2, x2=_STRIP_WIDTH - 2, y1=height - 1, y2=height - 1, class_="grid")]
    for number, ((value, begin, end), (low, high)) in enumerate(zip(rows, ranges, strict=True)):
        top = 1 if number == 0 else _STRIP_PADDING + _STRIP_ROW * number
        bottom = height - 1 if number == len(rows) - 1 else _STRIP_PADDING + _STRIP_ROW * (number + 1)
        if x(high) - x(low) > 1:
            width = round(x(high) - x(low), 1)
            parts.append(element("rect", x=x(low), y=top, width=width, height=bottom - top, class_="range"))
        else:
            parts.append(element("line", x1=x(low), x2=x(low), y1=top, y2=bottom, class_="expected"))
        name = "first" if number == 0 else "second"
        middle = _STRIP_PADDING + _STRIP_ROW * number + _STRIP_ROW // 2
        parts.append(element("line", x1=x(begin), x2=x(end), y1=middle, y2=middle, class_=f"{name} whisker"))
        parts.append(element("circle", cx=x(value), cy=middle, r=3.5, class_=f"{name} dot"))
    return element(
        "svg", *parts, viewBox=f"0 0 {_STRIP_WIDTH} {height}", width=_STRIP_WIDTH, height=height, role="img",
        aria_label=description, class_="strip",
    )  # fmt: skip


def scale_around(expected: Range, rows: Sequence[Interval]) -> Range:
    """An axis that shows the expected range and all intervals, centred on an expected point."""
    ends = [end for row in rows for end in row]
    if expected == (0.0, 1.0):  # any fraction is right, so only the intervals must be visible
        expected = min(ends, default=0.0), max(ends, default=1.0)
    low, high = min([expected[0], *ends]), max([expected[1], *ends])
    if expected[0] == expected[1]:
        reach = 1.25 * max(high - expected[0], expected[0] - low, 1e-6)
        return expected[0] - reach, expected[0] + reach
    margin = 0.08 * (high - low)
    return max(low - margin, 0.0), min(high + margin, 1.0)

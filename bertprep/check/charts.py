"""Draw bar charts of counts as inline SVG: bars for the first split, lines for the others, dashes for expected values.

The style sheet of the page colours them, for light and dark mode, and the page prints their legends. A bar that dwarfs the
others is drawn broken, with its value above it. A chart takes 2 to 4 kB, whatever it counts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_WIDTH, _HEIGHT = 440, 190
_LEFT, _RIGHT, _TOP, _BOTTOM = 40, 8, 20, 24  # around the bars: the labels of the y axis, the value of a broken bar, the x axis
_MAX_COLUMNS = 64
_LABELS = 6  # about so many on the x axis
_TALL, _BROKEN = 2.5, 1.2  # a bar `_TALL` times as high as the next one is drawn broken, at `_BROKEN` times the next


@dataclass(frozen=True)
class Chart:
    """A drawing with its title, the unit of its bars, and a caption; `legend` has the CSS class and name of each series."""

    title: str
    unit: str
    caption: str
    svg: str
    legend: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Columns:
    """The columns of a chart: each counts the values from its start to below the next start; `labels` are for the x axis."""

    starts: NDArray[np.int64]
    labels: Sequence[str]

    def group(self, counts: NDArray[Any]) -> Floats:
        """Return the sum of the counts in each column."""
        return np.add.reduceat(counts[: max(len(counts), 1)], self.starts).astype(np.float64)


def equal_columns(size: int, *, last_alone: bool = False) -> Columns:
    """Return columns of equal width for the values from 0 to below `size`; the highest value may have its own column.

    >>> equal_columns(129, last_alone=True).starts[[0, 1, -2, -1]].tolist()
    [0, 2, 126, 128]
    """
    even = size - 1 if last_alone and size > 1 else size
    width = max(1, -(-even // _MAX_COLUMNS))
    starts = np.arange(0, even, width)
    if even < size:
        starts = np.append(starts, even)
    return Columns(starts, [f"{start:,}" for start in starts.tolist()])


def doubling_columns(size: int) -> Columns:
    """Return a column for 0 and one for each power of two, for counts by the number of bits of a value.

    >>> doubling_columns(5).labels
    ['0', '1', '2', '4', '8']
    """
    return Columns(np.arange(size), ["0", *(f"{1 << bits:,}" for bits in range(size - 1))])


def draw(
    columns: Columns, shares: Mapping[str, Floats], x_label: str, *, expected: Floats | None = None
) -> tuple[str, list[tuple[str, str]]]:
    """Return the SVG and the legend of a chart of each split's shares by column, and of the expected shares."""
    highest = np.max([*shares.values()], axis=0)
    top = float(highest.max(initial=0.0))
    second = float(np.sort(highest)[-2]) if len(highest) > 1 else 0.0
    broken = -1
    if top > _TALL * second > 0:
        broken, top = int(highest.argmax()), _BROKEN * second
    ticks = _ticks(top)
    if broken < 0:
        top = max(top, ticks[-1])
    ticks = [tick for tick in ticks if tick <= top]
    plot = _Plot(len(columns.starts), top or 1.0)
    parts = [plot.grid(ticks), plot.x_axis(columns.labels, x_label)]
    legend = []
    for index, (name, values) in enumerate(shares.items()):
        style = f"s{min(index, 3)}"
        parts.append(
            f'<path class="{"bars" if index == 0 else "line"} {style}" d="{plot.path(values, is_filled=index == 0)}"/>'
        )
        legend.append((style, name or "found"))
    if expected is not None:
        parts.append(f'<path class="line wanted" d="{plot.path(expected, is_filled=False)}"/>')
        legend.append(("wanted", "expected"))
    if broken >= 0:
        of_splits = [f"{float(each[broken]):.1%}" for each in shares.values()]
        parts.append(plot.broken_bar(broken, " / ".join(of_splits[:3])))
    svg = f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT + 16}" xmlns="http://www.w3.org/2000/svg">{"".join(parts)}</svg>'
    return svg, legend


@dataclass(frozen=True)
class _Plot:
    """The area of the bars, in the units of the drawing."""

    columns: int
    top: float

    def x(self, column: float) -> float:
        return _LEFT + column * (_WIDTH - _LEFT - _RIGHT) / self.columns

    def y(self, share: float) -> float:
        return _HEIGHT - _BOTTOM - min(share / self.top, 1.0) * (_HEIGHT - _BOTTOM - _TOP)

    def path(self, values: Floats, *, is_filled: bool) -> str:
        base = self.y(0)
        steps = [f"M{self.x(0):.1f} {base if is_filled else self.y(float(values[0])):.1f}"]
        steps += [f"V{self.y(value):.1f}H{self.x(column + 1):.1f}" for column, value in enumerate(values.tolist())]
        return "".join(steps) + (f"V{base:.1f}Z" if is_filled else "")

    def grid(self, ticks: Sequence[float]) -> str:
        lines = "".join(f"M{_LEFT} {self.y(tick):.1f}H{_WIDTH - _RIGHT}" for tick in ticks)
        decimals = 0 if len(ticks) < 2 else max(0, -math.floor(math.log10((ticks[1] - ticks[0]) * 100) + 1e-9))
        labels = "".join(
            f'<text class="right" x="{_LEFT - 5}" y="{self.y(tick) + 4:.1f}">{tick:.{decimals}%}</text>' for tick in ticks
        )
        return f'<path class="grid" d="{lines}"/>{labels}'

    def x_axis(self, labels: Sequence[str], x_label: str) -> str:
        step = max(1, round(len(labels) / _LABELS))
        chosen = [column for column in range(0, len(labels), step) if column <= len(labels) - 1 - step / 2]
        at = [*chosen, len(labels) - 1]
        y = _HEIGHT - _BOTTOM + 16
        middle = (_LEFT + _WIDTH - _RIGHT) / 2
        texts = "".join(
            f'<text class="{"right" if column == at[-1] and len(labels) > 12 else "middle"}" '
            f'x="{self.x(column + (1 if column == at[-1] and len(labels) > 12 else 0.5)):.1f}" y="{y}">{labels[column]}</text>'
            for column in dict.fromkeys(at)
        )
        return f'{texts}<text class="middle name" x="{middle:.0f}" y="{_HEIGHT + 10}">{x_label}</text>'

    def broken_bar(self, column: int, values: str) -> str:
        """Return the break through a bar that is higher than the chart, and its values above it."""
        left, right, y = self.x(column), self.x(column + 1), _TOP + 10
        gap = f"M{left - 3:.1f} {y + 4}L{right + 3:.1f} {y - 2}V{y + 2}L{left - 3:.1f} {y + 8}Z"
        is_right = column > self.columns / 2
        place = f'class="{"right" if is_right else "left"} value" x="{right if is_right else left:.1f}"'
        return f'<path class="break" d="{gap}"/><text {place} y="{_TOP - 6}">{values}</text>'


def _ticks(top: float) -> list[float]:
    """Return 0 and some round numbers up to `top`, or the next one above.

    >>> [round(tick, 3) for tick in _ticks(0.037)]
    [0.0, 0.01, 0.02, 0.03, 0.04]
    """
    if top <= 0:
        return [0.0]
    magnitude = 10.0 ** math.floor(math.log10(top))
    step = next(size * magnitude for size in (0.2, 0.5, 1.0, 2.0, 5.0) if top / (size * magnitude) <= 5)
    return [step * number for number in range(math.ceil(top / step - 1e-9) + 1)]

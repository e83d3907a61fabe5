"""Small drawings beside a number: its interval on a short axis, and where it is expected.

They hold no text and keep their size, so that they stand in a row of a table on any screen; the table says the numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

from bertprep.reporting.markup import Markup, element

Interval = tuple[float, float, float]
"""The value, and the two ends of its interval."""

WIDTH = 168
_ROW, _PADDING = 12, 5


def draw_strip(rows: Sequence[Interval], *, low: float, high: float, scale: tuple[float, float], description: str) -> Markup:
    """One line for each interval on an axis from scale[0] to scale[1], with the expected range low to high behind."""
    height = 2 * _PADDING + _ROW * len(rows)

    def x(value: float) -> float:
        share = (value - scale[0]) / (scale[1] - scale[0])
        return round(4 + min(max(share, 0.0), 1.0) * (WIDTH - 8), 1)

    parts = [element("line", x1=2, x2=WIDTH - 2, y1=height - 1, y2=height - 1, class_="grid")]
    if x(high) - x(low) > 1:
        parts.append(element("rect", x=x(low), y=1, width=round(x(high) - x(low), 1), height=height - 2, class_="range"))
    else:
        parts.append(element("line", x1=x(low), x2=x(low), y1=1, y2=height - 1, class_="expected"))
    for number, (value, begin, end) in enumerate(rows):
        name = "first" if number == 0 else "second"
        middle = _PADDING + _ROW * number + _ROW // 2
        parts.append(element("line", x1=x(begin), x2=x(end), y1=middle, y2=middle, class_=f"{name} whisker"))
        parts.append(element("circle", cx=x(value), cy=middle, r=3.5, class_=f"{name} dot"))
    return element(
        "svg", *parts, viewBox=f"0 0 {WIDTH} {height}", width=WIDTH, height=height, role="img", aria_label=description,
        class_="strip",
    )  # fmt: skip


def scale_around(expected: tuple[float, float], rows: Sequence[Interval]) -> tuple[float, float]:
    """An axis on which the expected range and all intervals can be seen, with a point expected in its middle."""
    ends = [end for row in rows for end in row]
    if expected == (0.0, 1.0):  # any share will do, so only the intervals need room
        expected = min(ends, default=0.0), max(ends, default=1.0)
    low, high = min([expected[0], *ends]), max([expected[1], *ends])
    if expected[0] == expected[1]:
        reach = 1.25 * max(high - expected[0], expected[0] - low, 1e-6)
        return expected[0] - reach, expected[0] + reach
    margin = 0.08 * (high - low)
    return max(low - margin, 0.0), min(high + margin, 1.0)

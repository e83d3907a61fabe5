"""Charts have a bar for each column, labels that say which, and a break where one bar dwarfs the others."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from bertprep.check.charts import doubling_columns, draw, equal_columns

SVG = "{http://www.w3.org/2000/svg}"


def texts_of(svg: str) -> list[str]:
    return [text.text or "" for text in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def heights_of(svg: str, style: str) -> list[float]:
    """The heights of the steps of a path, from the x axis."""
    path = next(path.get("d", "") for path in ElementTree.fromstring(svg).iter(f"{SVG}path") if style in path.get("class", ""))
    steps = [float(y) for y in re.findall(r"V([\d.]+)H", path)]
    return [166 - step for step in steps]


def test_bars_are_as_high_as_their_shares() -> None:
    svg, legend = draw(equal_columns(4), {"training": np.array([0.1, 0.2, 0.3, 0.4])}, "tokens")
    assert heights_of(svg, "bars") == pytest.approx([36.5, 73, 109.5, 146], abs=0.2)
    assert texts_of(svg) == ["0%", "10%", "20%", "30%", "40%", "0", "1", "2", "3", "tokens"]
    assert legend == [("s0", "training")]


def test_a_bar_that_dwarfs_the_others_is_broken_with_its_values() -> None:
    shares = {"training": np.array([0.05, 0.05, 0.9]), "test": np.array([0.1, 0.1, 0.8])}
    svg, legend = draw(equal_columns(3), shares, "tokens", expected=np.array([0.0, 0.1, 0.9]))
    assert "90.0% / 80.0%" in texts_of(svg)
    assert 'class="break"' in svg
    assert heights_of(svg, "bars")[0] == pytest.approx(146 * 0.05 / 0.12, abs=0.2)
    assert [name for _, name in legend] == ["training", "test", "expected"]
    assert 'class="break"' not in draw(equal_columns(2), {"": np.array([0.4, 0.6])}, "tokens")[0]


def test_columns_count_each_value_once() -> None:
    for size, alone in ((1, False), (2, True), (65, False), (129, True), (513, True), (4096, False)):
        columns = equal_columns(size, last_alone=alone)
        counts = np.arange(size) + 1
        assert columns.group(counts).sum() == counts.sum()
        assert len(columns.starts) == len(columns.labels) <= 65
        if alone:
            assert columns.group(counts)[-1] == size
    assert doubling_columns(3).group(np.array([1, 2, 3])).tolist() == [1, 2, 3]


def test_nothing_at_all_is_an_empty_chart() -> None:
    svg, _ = draw(equal_columns(3), {"": np.zeros(3)}, "tokens")
    assert heights_of(svg, "bars") == [0, 0, 0]


def test_labels_of_the_axis_are_what_they_stand_for() -> None:
    """For tops of any size, the labels ascend in equal steps up to the highest bar or the next step."""
    for top in [share / 1000 for share in range(1, 1001)]:
        svg, _ = draw(equal_columns(2), {"": np.array([top, top])}, "tokens")
        labels = [float(text[:-1]) for text in texts_of(svg) if text.endswith("%")]
        assert 3 <= len(labels) <= 7, top
        assert np.diff(labels) == pytest.approx([labels[1]] * (len(labels) - 1)), top
        assert 100 * top <= labels[-1] + 1e-9 <= 2.1 * 100 * top, top

"""Plot the losses of runs from their logs: training as lines, the test split as points.

The upper panel shows the masked-LM loss, and the lower one the next-sentence loss; for another task they show the loss and its
first metric. Thin lines are the losses of guessing by frequency. Colors differ in lightness, so a print in gray shows the same.
"""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bertprep.errors import BertprepError
from bertprep.files.atomic import atomic_file
from bertprep.untrusted import COUNT, TEXT, check_values, parse_json
from trainer.metrics import describe_metrics, metric_names, name_in_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_ENTRY = {"kind": TEXT, "step": COUNT}
Entries = Sequence[Mapping[str, Any]]
COLORS = (("#5aaaf0", "#a03000"), ("#f0b030", "#204080"), ("#70c080", "#701060"), ("#c0a0e0", "#205020"))
"""The two colors of each run: light for training, dark for the test split."""
LEAST_SPAN = 0.1
"""The smallest span of a vertical axis."""
FEW_POINTS = 60
"""The number of points up to which a line has markers."""
MAX_LABEL, MAX_TITLE, LINE = 48, 72, 150
"""The maximum number of characters of a name in the legend, of a name in the title, and of a line of the title."""


def read_log(path: Path) -> list[dict[str, Any]]:
    """Return the entries of a log, without an incomplete last line."""
    try:
        lines = path.read_bytes().split(b"\n")[:-1]
    except OSError as error:
        raise BertprepError(f"{path}: cannot be read: {error.strerror or error}") from error
    entries = []
    for number, line in enumerate(lines, 1):
        try:
            entries.append(dict(check_values(parse_json(line), _ENTRY, needed=tuple(_ENTRY))))
        except ValueError as error:
            shown = line[:40].decode(errors="replace")
            raise BertprepError(
                f"{path}: line {number}: expected an entry with a kind and a step, found {shown!r}; remove the line or the file"
            ) from error
    return entries


def draw_losses(logs: Mapping[str, Path], picture: Path) -> None:
    """Draw the losses of runs as a PNG, given the logs by the runs' labels."""
    try:
        figure = make_figure({label: read_log(path) for label, path in logs.items()})
    except ImportError as error:
        raise BertprepError(f"{picture.name} is not drawn: matplotlib is not installed") from error
    png = io.BytesIO()
    figure.savefig(png, format="png")
    with atomic_file(picture, replace=True) as file:
        file.write(png.getvalue())


def make_figure(runs: Mapping[str, Entries]) -> Figure:
    """Make a figure of 1200 x 720 pixels without pyplot, which retains figures and looks for a display."""
    from matplotlib.figure import Figure

    entries = [entry for run in runs.values() for entry in run if entry["kind"] in ("train", "evaluation")]
    if not entries:
        raise BertprepError("the logs have no losses yet; draw them when a run has logged some")
    names = [name for name in metric_names(entries) if not name.startswith(("start_", "end_"))][:2]  # not SQuAD's two addends
    figure = Figure(figsize=(12, 7.2), dpi=100, layout="constrained")
    panels = figure.subplots(len(names), sharex=True, squeeze=False, height_ratios=[2, 1][: len(names)])[:, 0]
    for panel, name in zip(panels, names, strict=True):
        for index, (label, run) in enumerate(runs.items()):
            _draw_run(panel, run, name, label=_shorten(label, MAX_LABEL), color=index)
        _draw_guess(panel, runs, name)
        _set_limits(panel)
        panel.set_ylabel(name_in_text(name))
        panel.grid(axis="y", alpha=0.4)
    panels[-1].set_xlabel("steps")
    panels[-1].set_xlim(left=0)
    panels[-1].xaxis.get_major_locator().set_params(integer=True)
    title = [line for label, run in runs.items() for line in _summary(_shorten(label, MAX_TITLE), run)]
    figure.suptitle("\n".join(title), x=0.01, ha="left", fontsize="medium")
    handles = {str(line.get_label()): line for panel in panels for line in panel.get_legend_handles_labels()[0]}
    figure.legend(handles.values(), handles.keys(), loc="outside lower left", ncols=2, frameon=False)
    return figure


def _draw_run(panel: Axes, run: Entries, name: str, *, label: str, color: int) -> None:
    """Draw training as a line, and the test split, if there is one, as points in the darker color of the run."""
    light, dark = COLORS[color % len(COLORS)]
    steps, values = _curve(run, "train", name)
    marker = "." if len(steps) <= FEW_POINTS else ""
    panel.plot(steps, values, color=light, marker=marker, markersize=8, label=f"{label}: training")
    steps, values = _curve(run, "evaluation", name)
    if steps:
        panel.plot(steps, values, "--o", color=dark, linewidth=1, markersize=7, label=f"{label}: test split")


def _draw_guess(panel: Axes, runs: Mapping[str, Entries], name: str) -> None:
    """Draw the loss of guessing by frequency as a thin line with its name."""
    losses = {round(guess, 2): f"guessing by frequency, {guess:.2f}" for run in runs.values() for guess in _guesses(run, name)}
    if name == "next_sentence_loss":
        losses = {math.log(2): "guessing, ln 2"}
    for loss, words in losses.items():
        panel.axhline(loss, color="black", linewidth=0.8, linestyle=":")
        panel.annotate(
            words, (0, loss), xycoords=("axes fraction", "data"), xytext=(4, 3), textcoords="offset points", fontsize="small"
        )


def _set_limits(panel: Axes) -> None:
    """Show a span of at least `LEAST_SPAN`, which does not magnify noise, and nothing below 0."""
    values = [float(value) for line in panel.get_lines() for value in np.asarray(line.get_ydata())]
    missing = max(0.0, LEAST_SPAN - (max(values) - min(values))) if values else 0.0
    if missing:
        panel.set_ylim(min(values) - missing / 2, max(values) + missing / 2)
    bottom, top = panel.get_ylim()
    panel.set_ylim(max(bottom, -0.02 * top), top)  # a little below 0, so that markers at 0 are not cut off


def _guesses(run: Entries, name: str) -> list[float]:
    """Return the loss of guessing by frequency that a run has logged for a metric, if any: a list of one or none."""
    logged = [entry["guessing_by_frequency"] for entry in run if isinstance(entry.get("guessing_by_frequency"), Mapping)]
    return [float(losses[name]) for losses in logged[-1:] if isinstance(losses.get(name), float)]


def _summary(label: str, run: Entries) -> list[str]:
    """Return the last results of a run as lines that fit into the picture."""
    last = next((entry for kind in ("evaluation", "train") for entry in reversed(run) if entry["kind"] == kind), {})
    text = f"{label}: {describe_metrics(last)} after {last.get('step', 0):,} steps"
    return textwrap.wrap(text, LINE, subsequent_indent="    ", break_on_hyphens=False)


def _shorten(label: str, most: int) -> str:
    """Leave out the middle of a long name, since its ends identify the run.

    >>> _shorten("tiny_wikicorpus_en_ofrecord_seq_128_adam_1000_steps", 25)
    'tiny_wikicor…m_1000_steps'
    """
    if len(label) <= most:
        return label
    half = (most - 1) // 2
    return f"{label[:half]}…{label[-half:]}"


def _curve(run: Entries, kind: str, name: str) -> tuple[list[int], list[float]]:
    found = [entry for entry in run if entry["kind"] == kind and entry.get(name) is not None]
    return [entry["step"] for entry in found], [entry[name] for entry in found]

"""Plots the losses of runs from their logs: training as lines, the test split as points.

Masked LM is above and next sentence below; of another task the loss above and its first metric below.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertprep.errors import BertprepError
from bertprep.files.atomic import atomic_file
from bertprep.untrusted import COUNT, TEXT, check_values, parse_json
from trainer.metrics import describe_metrics, metric_names, name_in_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ENTRY = {"kind": TEXT, "step": COUNT}
Entries = Sequence[Mapping[str, Any]]


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
                f"{path}: line {number}: is not an entry with a kind and a step: {shown!r}; remove the line, or the file"
            ) from error
    return entries


def draw_losses(logs: Mapping[str, Path], picture: Path) -> None:
    """Draw the runs with these labels and logs as a PNG."""
    try:
        figure = make_figure({label: read_log(path) for label, path in logs.items()})
    except ImportError as error:
        raise BertprepError(f"{picture.name} is not drawn: matplotlib is not installed") from error
    png = io.BytesIO()
    figure.savefig(png, format="png")
    with atomic_file(picture, replace=True) as file:
        file.write(png.getvalue())


def make_figure(runs: Mapping[str, Entries]) -> Figure:
    """The figure, 1200 x 720 pixels; without pyplot, which retains figures and looks for a display."""
    from matplotlib.figure import Figure

    entries = [entry for run in runs.values() for entry in run if entry["kind"] in ("train", "evaluation")]
    if not entries:
        raise BertprepError("there are no losses yet; draw them when the run has logged some")
    figure = Figure(figsize=(12, 7.2), dpi=100, layout="constrained")
    panels = figure.subplots(2, sharex=True, height_ratios=[2, 1])
    shown = [name for name in metric_names(entries) if not name.startswith(("start_", "end_"))]  # parts of SQuAD's
    for panel, name in zip(panels, shown, strict=False):
        for index, (label, run) in enumerate(runs.items()):
            panel.plot(*_curve(run, "train", name), color=f"C{index}", label=f"{label}: training")
            panel.plot(*_curve(run, "evaluation", name), "o", color=f"C{index}", label=f"{label}: test split")
        panel.set_ylabel(name_in_text(name))
        panel.grid(axis="y", alpha=0.4)
    panels[1].set_xlabel("steps")
    figure.suptitle("\n".join(_summary(label, run) for label, run in runs.items()), x=0.01, ha="left", fontsize="medium")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower left", ncols=3, frameon=False)
    return figure


def _summary(label: str, run: Entries) -> str:
    last = next((entry for kind in ("evaluation", "train") for entry in reversed(run) if entry["kind"] == kind), {})
    return f"{label}: {describe_metrics(last)} after {last.get('step', 0):,} steps"


def _curve(run: Entries, kind: str, name: str) -> tuple[list[int], list[float]]:
    found = [entry for entry in run if entry["kind"] == kind and entry.get(name) is not None]
    return [entry["step"] for entry in found], [entry[name] for entry in found]

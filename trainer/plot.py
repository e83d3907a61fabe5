"""Plots the losses of runs from their logs, over the steps of the run.

Of pretraining masked LM is above and next sentence below; of another task the loss above and its first metric below.

    line      training; if there are many entries, a pale line of them and a strong one of moving means within each phase
    points    the test split
    dashes    the masked-LM loss of predicting by the unigram frequencies of the training labels

A single run has one colour for training and one for the test split, several have one each; the colours are Okabe and Ito's,
which colour-blind people can distinguish. The plot depends only on the logs.
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bertprep.errors import BertprepError
from bertprep.files.atomic import atomic_file
from trainer.log_file import read_log

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Entry = Mapping[str, Any]
_VERMILLION = "#D55E00"
_COLOURS = ("#0072B2", _VERMILLION, "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_INK, _PALE_INK = "#222222", "#8A8A8A"
_STYLE: dict[Any, Any] = {
    "axes.axisbelow": True, "axes.edgecolor": _PALE_INK, "axes.grid": True, "axes.grid.axis": "y", "axes.labelcolor": _INK,
    "axes.spines.right": False, "axes.spines.top": False, "axes.xmargin": 0.01, "figure.constrained_layout.h_pad": 0.08,
    "figure.constrained_layout.use": True, "figure.constrained_layout.w_pad": 0.12, "grid.color": "#E6E6E6",
    "legend.frameon": False, "legend.labelcolor": _INK, "lines.markeredgecolor": "white", "text.color": _INK,
    "xtick.labelcolor": _INK, "ytick.labelcolor": _INK,
}  # fmt: skip
_NO_SCORES = {
    "kind", "step", "phase", "epoch", "sequences", "loss", "learning_rate", "gradient_norm", "loss_scale", "skipped",
    "sequences_per_second", "tokens_per_second", "flops_per_second", "seconds_left", "threshold",
}  # fmt: skip
"""What entries of the log have besides the metrics of fine-tuning."""
_FEW = 80  # the most training entries that one line shows clearly
_REACH = 0.02  # fraction of a phase's entries on either side in a moving mean


@dataclass(frozen=True)
class _Run:
    """The log of a run, and its style."""

    label: str
    prefix: str  # prefix of the names in the legend if there are several runs
    colour: str
    test_colour: str
    training: Sequence[Entry]
    test: Sequence[Entry]

    @property
    def phase_ends(self) -> list[int]:
        """The last step of each phase but the last."""
        entries = sorted([*self.training, *self.test], key=lambda entry: int(entry["step"]))
        return list({entry["phase"]: int(entry["step"]) for entry in entries}.values())[:-1]

    @property
    def summary(self) -> str:
        """A sentence with the last losses, those of the test split if there are any."""
        last, where = (self.test[-1], "test split") if self.test else (self.training[-1], "training")
        if "masked_lm_loss" not in last:
            metrics = ", ".join(f"{name} {_value(last, name):.4g}" for name in last if name in ("loss", *_scores(last)))
            return f"{self.label}: {where} after {last['step']:,} steps: {metrics}"
        masked_lm = (
            f"{self.label}: {where} after {last['step']:,} steps: masked-LM loss {_value(last, 'masked_lm_loss'):.2f} "
            f"(accuracy {_value(last, 'masked_lm_accuracy'):.2f})"
        )
        if "next_sentence_loss" not in last:
            return masked_lm
        accuracy = _value(last, "next_sentence_accuracy")
        return f"{masked_lm}, next sentence {_value(last, 'next_sentence_loss'):.2f} ({accuracy:.2f})"


def draw_losses(logs: Mapping[str, Path], picture: Path) -> None:
    """Draw the runs with these labels and logs as a PNG; raises `BertprepError` without matplotlib, or without losses."""
    try:
        figure = make_figure(logs)
    except ImportError as error:
        raise BertprepError(f"{picture.name} is not drawn: matplotlib is not installed") from error
    png = io.BytesIO()
    figure.savefig(png, format="png")
    with atomic_file(picture) as file:
        file.write(png.getvalue())


def make_figure(logs: Mapping[str, Path]) -> Figure:
    """The figure, 1200 x 720 pixels; without pyplot, which retains figures and looks for a display."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    runs = _read_runs(logs)
    with rc_context(_STYLE):
        figure = Figure(figsize=(12, 7.2), dpi=100)
        FigureCanvasAgg(figure)
        above, below = figure.subplots(2, sharex=True, height_ratios=[2, 1])
        (of_above, label_above), (of_below, label_below) = _panels(runs)
        for run in runs:
            _draw_run(above, run, of_above)
            _draw_run(below, run, of_below)
        _draw_unigram_loss(above, runs)
        for number, step in enumerate(sorted({step for run in runs for step in run.phase_ends}), 2):
            above.annotate(f" phase {number}", (step, 0.02), xycoords=("data", "axes fraction"), color=_PALE_INK, va="bottom")
            for panel in (above, below):
                panel.axvline(step, color=_PALE_INK, linewidth=1, linestyle=":")
        above.set_ylabel(label_above)
        below.set(xlabel="steps", ylabel=label_below)
        below.xaxis.set_major_locator(MaxNLocator(integer=True))
        below.xaxis.set_major_formatter("{x:,.0f}")
        figure.align_ylabels()
        figure.suptitle("\n".join(run.summary for run in runs), x=0.01, ha="left", fontsize=13)
        figure.legend(*above.get_legend_handles_labels(), loc="outside lower left", ncols=3)
    return figure


def _panels(runs: Sequence[_Run]) -> tuple[tuple[str, str], tuple[str, str]]:
    """What is drawn above and below, by its name in the log, and what the axis calls it."""
    entries = [entry for run in runs for entry in (*run.test, *run.training)]
    if any("masked_lm_loss" in entry for entry in entries) and not any("next_sentence_loss" in entry for entry in entries):
        return ("masked_lm_loss", "masked-LM loss (nats)"), ("masked_lm_accuracy", "masked-LM accuracy")
    if any("masked_lm_loss" in entry for entry in entries):
        return ("masked_lm_loss", "masked-LM loss (nats)"), ("next_sentence_loss", "next-sentence loss (nats)")
    score = next((name for entry in entries for name in _scores(entry)), "loss")
    return ("loss", "loss"), (score, score.replace("_", " "))


def _scores(entry: Entry) -> list[str]:
    """The metrics of an entry of a fine-tuning task, but for the loss."""
    return [name for name in entry if name not in _NO_SCORES]


def _read_runs(logs: Mapping[str, Path]) -> list[_Run]:
    is_alone = len(logs) == 1
    runs = []
    for (label, path), colour in zip(logs.items(), cycle(_COLOURS), strict=False):
        entries = read_log(path)
        training, test = ([entry for entry in entries if entry["kind"] == kind] for kind in ("train", "evaluation"))
        if not training and not test:
            raise BertprepError(f"{path}: holds no losses yet; draw it when the run has logged some")
        prefix, test_colour = ("", _VERMILLION) if is_alone else (f"{label}, ", colour)
        runs.append(_Run(label, prefix, colour, test_colour, training, test))
    return runs


def _value(entry: Entry, name: str) -> float:
    value = entry.get(name)
    return math.nan if value is None else float(value)  # JSON has no NaN


def _curve(entries: Sequence[Entry], name: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Steps and values of the entries that have one."""
    points = np.array([(entry["step"], _value(entry, name)) for entry in entries], np.float64).reshape(-1, 2)
    points = points[np.isfinite(points[:, 1])]
    return points[:, 0], points[:, 1]


def _draw_run(panel: Axes, run: _Run, loss: str) -> None:
    label = f"{run.prefix}training"
    if len(run.training) <= _FEW:
        panel.plot(*_curve(run.training, loss), color=run.colour, linewidth=1.6, label=label)
    else:
        panel.plot(*_curve(run.training, loss), color=run.colour, linewidth=0.8, alpha=0.3)
        label += " (moving mean)"
        for phase in sorted({entry["phase"] for entry in run.training}):
            steps, values = _curve([entry for entry in run.training if entry["phase"] == phase], loss)
            means = moving_mean(values, math.ceil(_REACH * len(values)))
            panel.plot(steps, means, color=run.colour, linewidth=1.8, label=label)
            label = ""
    steps, values = _curve(run.test, loss)
    if len(steps):
        panel.plot(steps, values, "o", color=run.test_colour, markersize=6.5, label=f"{run.prefix}test split")


def _draw_unigram_loss(panel: Axes, runs: Sequence[_Run]) -> None:
    """A line for each run, from its start; runs on the same data have the same line."""
    label = "test split, by the training labels' frequencies"
    for run in runs:
        steps, values = _curve(run.test, "unigram_loss")
        if len(steps):
            start = min(entry["step"] for entry in [*run.training, *run.test])
            steps, values = np.append(start, steps), np.append(values[0], values)
            panel.plot(steps, values, "--", drawstyle="steps-pre", color=_PALE_INK, linewidth=1.3, label=label)
            label = ""


def moving_mean(values: NDArray[np.float64], reach: int) -> NDArray[np.float64]:
    """The mean of each value with up to `reach` before and after it, fewer at the ends but equally many on both sides.

    >>> moving_mean(np.array([1.0, 4.0, 7.0, 1.0, 1.0]), 1).tolist()
    [1.0, 4.0, 4.0, 3.0, 1.0]
    """
    totals = np.concatenate([[0.0], np.cumsum(values)])
    indices = np.arange(len(values))
    reaches = np.minimum(reach, np.minimum(indices, indices[::-1]))
    means: NDArray[np.float64] = (totals[indices + reaches + 1] - totals[indices - reaches]) / (2 * reaches + 1)
    return means

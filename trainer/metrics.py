"""Name the metrics in the entries of a log, and write them as text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

_OTHERS = {
    "kind", "step", "epoch", "sequences", "learning_rate", "gradient_norm", "loss_scale", "skipped", "sequences_per_second",
    "tokens_per_second", "flops_per_second", "seconds_left", "threshold",
}  # fmt: skip
"""The keys of training and evaluation entries that are not metrics."""


def metric_names(entries: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the names of the metrics in log entries, losses first; `loss` is left out if there is a masked-LM loss."""
    names = dict.fromkeys(name for entry in entries for name in entry if name not in _OTHERS)
    if "masked_lm_loss" in names:
        names.pop("loss", None)
    return sorted(names, key=lambda name: not name.endswith("loss"))


def name_in_text(metric: str) -> str:
    """Return the name of a metric as text, with hyphens and spaces.

    >>> name_in_text("masked_lm_loss")
    'masked-LM loss'
    """
    return metric.replace("masked_lm", "masked-LM").replace("next_sentence", "next-sentence").replace("_", " ")


def describe_metrics(entry: Mapping[str, Any], guessed: Mapping[str, float] | None = None) -> str:
    """Return the metrics of a log entry as text, each with the loss of guessing by frequency if that is given.

    >>> describe_metrics({"step": 9, "loss": 9.674, "masked_lm_loss": 8.98, "next_sentence_loss": 0.694})
    'masked-LM loss 8.98, next-sentence loss 0.694'
    >>> describe_metrics({"masked_lm_loss": 5.61}, {"masked_lm_loss": 6.57})
    'masked-LM loss 5.61 (guessing by frequency 6.57)'
    """
    found = {name: entry[name] for name in metric_names([entry]) if entry[name] is not None}
    guesses = {name: f" (guessing by frequency {loss:.3g})" for name, loss in (guessed or {}).items()}
    return ", ".join(f"{name_in_text(name)} {value:.3g}{guesses.get(name, '')}" for name, value in found.items())

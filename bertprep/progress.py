"""Shows the progress of long work: a bar that is updated on a terminal, elsewhere a line at most every five seconds."""

import os
import sys
import time
from dataclasses import dataclass
from types import TracebackType

from bertprep.terminal import duration, print_message, printable

__all__ = ["SECONDS_BETWEEN_LINES", "SILENT", "Progress", "Reporter", "print_message"]

SECONDS_BETWEEN_LINES = 5.0
_SECONDS_ON_TERMINAL = 0.1
_BAR_WIDTH = 20
_USUAL_COLUMNS = 80


class Progress:
    """Shows `label: done/total things` on standard error, with the amounts that `advance` counts and their rate per second."""

    def __init__(self, label: str, total: int | None, things: str = "shards", *, enabled: bool = True) -> None:
        self._label, self._total, self._things, self._enabled = label, total, things, enabled
        self._done = 0
        self._amounts: dict[str, float] = {}
        self._started = self._last_line = time.monotonic()
        self._on_terminal = enabled and sys.stderr.isatty()

    def __enter__(self) -> "Progress":
        return self

    def advance(self, count: int = 1, **amounts: float) -> None:
        """Count `count` finished things, and the amounts in them by unit; an underscore in a unit stands for a space."""
        self._done += count
        for unit, amount in amounts.items():
            self._amounts[unit] = self._amounts.get(unit, 0) + amount
        now = time.monotonic()
        between = _SECONDS_ON_TERMINAL if self._on_terminal else SECONDS_BETWEEN_LINES
        if not self._enabled or now - self._last_line < between or self._done == self._total:
            return
        self._last_line, seconds = now, now - self._started
        left = f"{duration(seconds)} so far"
        if self._total is not None and self._done:
            left = f"{duration(seconds / self._done * (self._total - self._done))} left"
        line = self._line(seconds)
        if self._on_terminal:  # the next line or message overwrites this one, so it is cut to the width
            shown = f"{self._bar()}{left}, {printable(line)}"[: _columns() - 1]
            sys.stderr.write(f"\x1b[K{shown}\r")
            sys.stderr.flush()
        else:
            print_message(f"{line}, {left}")

    def _bar(self) -> str:
        if self._total is None:
            return ""
        full = _BAR_WIDTH * self._done // max(self._total, 1)
        return f"[{'#' * full:.<{_BAR_WIDTH}}] "

    def _line(self, seconds: float) -> str:
        of_total = "" if self._total is None else f"/{self._total:,}"
        parts = [f"{self._label}: {self._done:,}{of_total} {self._things}"]
        for unit, amount in self._amounts.items():
            per_second = f"{_number(amount / max(seconds, 1e-9), unit)} {unit.partition('_')[0]}/s"
            parts.append(f"{_number(amount, unit)} {unit.replace('_', ' ')} ({per_second})")
        return ", ".join(parts)

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        if self._enabled and kind is None and (self._done or self._total != 0):
            seconds = time.monotonic() - self._started
            print_message(f"{self._line(seconds)}, in {duration(seconds)}")


def _number(amount: float, unit: str) -> str:
    """Return an amount with as many decimals as its size needs; the unit never changes."""
    if not unit.startswith("MB"):
        return f"{amount:,.0f}" if amount >= 10 else f"{amount:.3g}"
    return f"{amount:,.1f}" if amount >= 1 else f"{amount:.3f}"


def _columns() -> int:
    """Return the width of the terminal of standard error, since standard output may be a file."""
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or _USUAL_COLUMNS
    except (OSError, ValueError):
        return _USUAL_COLUMNS


@dataclass(frozen=True)
class Reporter:
    """Reports messages and progress if it is `enabled`; a command creates one and passes it on."""

    enabled: bool = True

    def message(self, line: str) -> None:
        if self.enabled:
            print_message(line)

    def progress(self, label: str, total: int | None, things: str = "shards", *, enabled: bool = True) -> Progress:
        return Progress(label, total, things, enabled=enabled and self.enabled)


SILENT = Reporter(enabled=False)

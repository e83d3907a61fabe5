"""Progress of long work: on a terminal a bar with throughput and time left, otherwise a line at most every five seconds."""

import sys
import time
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from bertprep.terminal import duration, printable, say

__all__ = ["SECONDS_BETWEEN_LINES", "SILENT", "Progress", "Reporter", "say"]

SECONDS_BETWEEN_LINES = 5.0


class Progress:
    """Shows `label: done/total things` and the throughput of what `advance` counts, on standard error."""

    def __init__(self, label: str, total: int | None, things: str = "shards", *, enabled: bool = True) -> None:
        self._label, self._total, self._things, self._enabled = label, total, things, enabled
        self._done = 0
        self._amounts: dict[str, float] = {}
        self._started = self._last_line = time.monotonic()
        self._bar: Any = None

    def __enter__(self) -> "Progress":
        if self._enabled and sys.stderr.isatty():
            self._bar = _rich_bar()
            self._bar.start()
            self._task = self._bar.add_task(printable(self._label), total=self._total, throughput="")
        return self

    def advance(self, count: int = 1, **amounts: float) -> None:
        """Count `count` finished things and their contents by unit; an underscore in a unit stands for a space."""
        self._done += count
        for unit, amount in amounts.items():
            self._amounts[unit] = self._amounts.get(unit, 0) + amount
        now = time.monotonic()
        if self._bar is not None:
            self._bar.update(self._task, completed=self._done, throughput=self._last_throughput(now))
            self._bar.refresh()
        elif self._enabled and (now - self._last_line >= SECONDS_BETWEEN_LINES) and self._done != self._total:
            self._last_line = now
            seconds = now - self._started
            passed = f"{duration(seconds)} so far"
            if self._total is not None and self._done:
                passed = f"{duration(seconds / self._done * (self._total - self._done))} left"
            self._print(passed, now)

    def _amounts_so_far(self, now: float) -> str:
        seconds = max(now - self._started, 1e-9)
        shown = []
        for unit, amount in self._amounts.items():
            if unit.startswith("MB") and amount < 1:
                unit, amount = f"k{unit[1:]}", 1000 * amount
            digits = int(unit.startswith("MB") and amount < 10)
            throughput = f"{amount / seconds:,.{0 if amount >= 1000 else 1}f}/s"
            shown.append(f"{amount:,.{digits}f} {unit.replace('_', ' ')} ({throughput})")
        return ", ".join(shown)

    def _last_throughput(self, now: float) -> str:
        unit, amount = next(reversed(self._amounts.items()), ("", 0.0))
        return f"{amount / max(now - self._started, 1e-9):,.0f} {unit.replace('_', ' ')}/s" if unit else ""

    def _print(self, passed: str, now: float) -> None:
        of_total = "" if self._total is None else f"/{self._total:,}"
        done = f"{self._label}: {self._done:,}{of_total} {self._things}"
        say(", ".join(filter(None, [done, self._amounts_so_far(now), passed])))

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.stop()
        elif self._enabled and kind is None and (self._done or self._total != 0):
            now = time.monotonic()
            self._print(duration(now - self._started), now)


@dataclass(frozen=True)
class Reporter:
    """Reports on long work and its progress, or stays silent; created by the command and passed down."""

    enabled: bool = True

    def say(self, line: str) -> None:
        if self.enabled:
            say(line)

    def progress(self, label: str, total: int | None, things: str = "shards", *, enabled: bool = True) -> Progress:
        """Return a context manager that shows progress, unless this is silent."""
        return Progress(label, total, things, enabled=enabled and self.enabled)


SILENT = Reporter(enabled=False)


def _rich_bar() -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    # No refreshing thread: workers are forked, and a fork of a process with threads may copy a held lock.
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TextColumn("{task.fields[throughput]}"),
        TimeRemainingColumn(),
        TextColumn("left"),
        console=Console(stderr=True),
        auto_refresh=False,
        expand=True,
    )

"""Progress of a download: on a terminal a bar for each file and one for all, otherwise plain lines.

Several threads receive files, which may restart from the beginning, so each reports the present size of its file, not
increments. Throughput counts received bytes only, not those of an earlier run. A plain line is printed at most every five
seconds, and one for each file.
"""

import sys
import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from bertprep.progress import SECONDS_BETWEEN_LINES, say
from bertprep.sources.transfer.listing import RemoteFile
from bertprep.terminal import duration, printable


class TransferProgress:
    """Shows the progress of each file on standard error; thread-safe."""

    def __init__(self, label: str, files: Sequence[RemoteFile], *, enabled: bool) -> None:
        self._label, self._files, self._enabled = label, files, enabled
        self._total = sum(file.size_bytes or 0 for file in files)
        self._there: dict[str, int] = {}
        self._before: dict[str, int] = {}
        self._started_at: dict[str, float] = {}
        self._finished = 0
        self._started = self._last_line = time.monotonic()
        self._lock = threading.Lock()
        self._bar: Any = None
        self._tasks: dict[str, Any] = {}

    def __enter__(self) -> "TransferProgress":
        if self._enabled and sys.stderr.isatty():
            self._bar = _rich_bar()
            self._all = self._bar.add_task(printable(self._label), total=self._total)
            self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.stop()

    def begin(self, file: RemoteFile, there_bytes: int) -> None:
        """Announce a file of which `there_bytes` already exist."""
        with self._lock:
            self._started_at[file.name] = time.monotonic()
            self._there[file.name] = self._before[file.name] = there_bytes
            if self._bar is not None:
                self._tasks[file.name] = self._bar.add_task(printable(file.name), total=file.size_bytes)

    def reach(self, file: RemoteFile, there_bytes: int) -> None:
        """Report that `there_bytes` of the file now exist."""
        with self._lock:
            # a restarted file counts from zero
            self._before[file.name] = min(self._before[file.name], there_bytes)
            self._there[file.name] = there_bytes
            now = time.monotonic()
            if self._bar is not None:
                self._bar.update(self._tasks[file.name], completed=there_bytes)
                self._bar.update(self._all, completed=sum(self._there.values()))
            elif self._enabled and now - self._last_line >= SECONDS_BETWEEN_LINES:
                self._last_line = now
                say(f"{self._label}: {self._summary(now)}")

    def finish(self, file: RemoteFile, size_bytes: int) -> None:
        """Report that the file is complete and verified."""
        with self._lock:
            now = time.monotonic()
            self._finished += 1
            started_at = self._started_at.get(file.name)
            self._there[file.name] = size_bytes
            self._before.setdefault(file.name, size_bytes)
            if self._bar is not None:
                if file.name in self._tasks:
                    self._bar.remove_task(self._tasks.pop(file.name))
                self._bar.update(self._all, completed=sum(self._there.values()))
            if self._enabled and started_at is not None:
                say(f"{self._label}: {file.name}, {size_bytes / 1e6:,.1f} MB in {now - started_at:,.1f} s")

    def _summary(self, now: float) -> str:
        there = sum(self._there.values())
        bytes_per_second = (there - sum(self._before.values())) / max(now - self._started, 1e-9)
        files = f"{self._finished:,}/{len(self._files):,} files"
        text = f"{files}, {there / 1e6:,.0f} of {self._total / 1e6:,.0f} MB, {bytes_per_second / 1e6:,.1f} MB/s"
        if bytes_per_second > 0 and self._total > there:
            text += f", {duration((self._total - there) / bytes_per_second)} left"
        return text


def _rich_bar() -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        refresh_per_second=4,
    )

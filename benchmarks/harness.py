"""Measure rows of a table in turns, in CPU seconds, and print them as Markdown as soon as they are known.

A row is a function, run in this process once before it is timed, or a command, run in a process of its own. Costs are those of
all threads and child processes, user and system; memory is the peak of a command's largest process. Rows that are compared take
turns, run after run, because a shared machine gets slower and faster within minutes: figures are medians of the runs, and a
ratio, for a unit of work, is the median of the runs' own ratios to the first row.
"""

import argparse
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from bertprep import __version__

BERTPREP = [sys.executable, "-m", "bertprep"]
DESCRIBED = ("numpy", "numba", "pyarrow")
_COLUMNS = ("", "{} a CPU-second", "CPU ns each", "CPU s", "wall s", "peak MB", "CPU, wall of the first")
# Runs in a process of its own, so that the resources of its children are those of the command alone.
_REPORT = """
import resource, subprocess, sys, time
started = time.monotonic()
status = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL).returncode
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(status, used.ru_utime + used.ru_stime, time.monotonic() - started, used.ru_maxrss)
"""


@dataclass(frozen=True)
class Row:
    """A row of a table: a function or a command, the units of work that it does, and what must run before it, untimed."""

    name: str
    count: float
    work: Callable[[], Any] | Sequence[object]
    before: Callable[[], Any] | None = None


@dataclass(frozen=True)
class Cost:
    """The CPU seconds and wall seconds of a row, and the peak memory of a command in bytes."""

    cpu: float
    wall: float
    peak: float = 0.0


class Bench:
    """A scratch folder, the number of runs, and the table that is printed."""

    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        self.folder, self.options = folder, options
        self._unit = ""

    def scaled(self, amount: float) -> int:
        """The amount of data at the chosen --scale; at least 1."""
        return max(1, round(amount * float(self.options.scale)))

    def compare(self, unit: str, rows: Sequence[Row]) -> list[Cost]:
        """Measure rows in turns, print them, and return their medians."""
        if unit != self._unit:
            self._unit = unit
            print(f"\n| {' | '.join(_COLUMNS).format(unit)} |\n|{'---|' * len(_COLUMNS)}", flush=True)
        costs: list[list[Cost]] = [[] for _ in rows]
        for run in range(self.options.runs + 1):
            for row, of_row in zip(rows, costs, strict=True):
                if run == 0 and not callable(row.work):
                    continue  # a new process is never warm
                if row.before:
                    row.before()
                cost = measure(row.work)
                of_row += [cost] if run else []
        medians = [median_of(of_row) for of_row in costs]
        for row, of_row, cost in zip(rows, costs, medians, strict=True):
            cells = [row.name, f"{row.count / cost.cpu:,.0f}", f"{cost.cpu / row.count * 1e9:,.0f}", f"{cost.cpu:.2f}"]
            cells += [f"{cost.wall:.2f}", f"{cost.peak / 1e6:,.0f}" if cost.peak else ""]
            units = rows[0].count / row.count
            ratios = [(one.cpu / first.cpu, one.wall / first.wall) for one, first in zip(of_row, costs[0], strict=True)]
            shown = (f"{statistics.median(each) * units:.2f}" for each in zip(*ratios, strict=True))
            cells.append(", ".join(shown) if len(rows) > 1 else "")
            print(f"| {' | '.join(cells)} |", flush=True)
        return medians


def measure(work: Callable[[], Any] | Sequence[object]) -> Cost:
    """Call a function or run a command, which must succeed, and return its cost."""
    if callable(work):
        started, wall = used(), time.monotonic()
        work()
        return Cost(used() - started, time.monotonic() - wall)
    command = [str(word) for word in work]
    run = subprocess.run([sys.executable, "-c", _REPORT, *command], capture_output=True, text=True, check=True)
    status, cpu, elapsed, peak = map(float, run.stdout.split())
    if status:
        raise SystemExit(f"{run.stderr}{' '.join(command)}: exit status {status:.0f}")
    return Cost(cpu, elapsed, peak * (1 if sys.platform == "darwin" else 1024))


def used() -> float:
    """Return the CPU seconds of this process and of its finished children."""
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def median_of(costs: Sequence[Cost]) -> Cost:
    """Return the medians of CPU, wall and memory, each computed separately."""
    return Cost(*(statistics.median(column) for column in zip(*((c.cpu, c.wall, c.peak) for c in costs), strict=True)))


def describe_machine(*packages: str) -> str:
    """Return the date, the processor, the system, and the versions of installed packages."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor())
    versions = [f"Python {platform.python_version()}", f"bertprep {__version__}"]
    for name in (*DESCRIBED, *packages):
        with suppress(PackageNotFoundError):
            versions.append(f"{name} {version(name)}")
    machine = f"{model}, {os.cpu_count()} cores, {platform.system()} {platform.release()}"
    return f"{date.today()}, {machine}; {', '.join(versions)}"


def run(benchmarks: Sequence[Callable[[Bench], None]], doc: str | None) -> None:
    """Run the benchmarks that the command line names, or all."""
    by_name = {each.__name__: each for each in benchmarks}
    names = "\n".join(f"  {name:12}{(each.__doc__ or '').splitlines()[0]}" for name, each in by_name.items())
    parser = argparse.ArgumentParser(
        description=f"{doc}\nbenchmarks:\n{names}", formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="benchmarks (default: all)")
    parser.add_argument("--runs", type=int, default=5, help="of each row (default: %(default)s)")
    parser.add_argument("--scale", type=float, default=1.0, help="how much data, as a factor (default: 1)")
    parser.add_argument("--folder", type=Path, help="where data goes and is removed, which decides the file system")
    parser.add_argument("--text", type=Path, help="one sentence a line, a blank line after a document (default: the sample)")
    parser.add_argument("--vocab", type=Path, help="(default: 30,522 tokens trained on the text)")
    parser.add_argument("--dump", type=Path, help="of wikitext: a Wikimedia dump (default: the excerpt in gensim's wheel)")
    parser.add_argument("--torch-python", metavar="PYTHON", help="of live: has torch, transformers and datasets")
    options = parser.parse_args()
    if unknown := set(options.names) - set(by_name):
        parser.error(f"{', '.join(sorted(unknown))}: unknown; choose from {', '.join(by_name)}")
    print(describe_machine())
    for name in options.names or by_name:
        print(f"\n## {name}")
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            by_name[name](Bench(Path(folder), options))


def remove(*paths: Path) -> None:
    """Remove files and folders that exist."""
    for path in paths:
        if path.is_dir():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)

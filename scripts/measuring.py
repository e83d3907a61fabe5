"""Shared by the benchmarks: the cost of a command, and a description of the machine."""

import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

from bertprep.workspace.manifest import versions_of

# Runs in a process of its own, so that the resources of its children are those of the command alone.
_REPORT = """
import resource, subprocess, sys, time
started = time.monotonic()
status = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(status, used.ru_utime + used.ru_stime, time.monotonic() - started, used.ru_maxrss)
"""


def run_command(arguments: list[str]) -> tuple[float, float, int]:
    """(CPU seconds, wall seconds, peak memory in bytes of its largest process) of a command."""
    out = subprocess.run([sys.executable, "-c", _REPORT, *arguments], capture_output=True, text=True, check=True).stdout
    status, cpu, wall, peak_kb = out.split()
    if status != "0":
        raise SystemExit(f"{' '.join(arguments)}: exit status {status}")
    return float(cpu), float(wall), int(peak_kb) * (1 if sys.platform == "darwin" else 1024)


def median_cpu(work: Callable[[], Any], runs: int, *, between: Callable[[], Any] = lambda: None) -> float:
    """Median CPU seconds of `work` in all threads of this process, after one that is not counted; `between` is not timed."""
    seconds = []
    for run in range(runs + 1):
        between()
        started = time.process_time()
        work()
        if run:
            seconds.append(time.process_time() - started)
    return statistics.median(seconds)


def describe_machine(*packages: str) -> str:
    """The date, the processor, the system, and the versions of the relevant packages."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor())
    versions = ", ".join(f"{name} {version}" for name, version in versions_of(*packages).items())
    return f"{date.today()}, {model}, {os.cpu_count()} cores, {platform.system()} {platform.release()}; {versions}"


def remove(folder: Path) -> None:
    """Empty a folder."""
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()

"""Processes of OneFlow's launcher on this host: they wait for each other, so a time limit ends them all."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.trainer.small_runs import free_ports, start

SECONDS = 900
STEPS_FILE = Path(__file__).with_name("layout_steps.py")


def launch(program: Sequence[str], processes: int, logs: Path, *, hosts: int = 1) -> "list[subprocess.Popen[str]]":
    """Start a program, as [FILE, ...] or ["-m", MODULE, ...], in so many processes; several hosts are one launcher each."""
    (port,) = free_ports(1)
    launcher = [sys.executable, "-m", "oneflow.distributed.launch", "--logdir", str(logs)]
    layout = ["--nproc_per_node", str(processes // hosts), "--nnodes", str(hosts)]
    place = ["--master_addr", "127.0.0.1", "--master_port", str(port)]
    return [start([*launcher, *layout, *place, "--node_rank", str(host), *program]) for host in range(hosts)]


def finish_in_time(runs: "list[subprocess.Popen[str]]") -> str:
    """Wait for launchers to end well; returns what was said."""
    try:
        said = [run.communicate(timeout=SECONDS)[0] for run in runs]
    finally:
        kill(runs)
    assert [run.returncode for run in runs] == [0] * len(runs), "\n".join(said)
    return "".join(said)


def kill(runs: "list[subprocess.Popen[str]]") -> None:
    """All of what was launched, at once."""
    for run in runs:
        if run.poll() is None:
            os.killpg(run.pid, signal.SIGKILL)
            run.communicate()


def run_layouts(processes: int, folder: Path, layouts: Sequence[str], *, hosts: int = 1) -> dict[str, dict[str, Any]]:
    """The results of `layout_steps` for each layout, by its options, all in the same so many processes."""
    results = folder / "results.json"
    finish_in_time(launch([str(STEPS_FILE), str(results), *layouts], processes, folder / "logs", hosts=hosts))
    loaded: dict[str, dict[str, Any]] = json.loads(results.read_bytes())
    return loaded

"""A test that hangs fails with its name, wherever it waits."""

import os
import subprocess
import sys
from pathlib import Path

HANGING = """
import itertools, os, threading

def test_that_waits_for_a_pipe(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "pipe").read_bytes()

def test_that_waits_for_a_lock():
    (lock := threading.Lock()).acquire()
    lock.acquire()

def test_that_ends():
    pass

def test_that_never_returns_to_the_interpreter():
    sum(itertools.repeat(0))

def test_that_is_not_reached():
    pass
"""


def test_what_hangs_ends_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "test_hanging.py").write_text(HANGING)
    asked = [sys.executable, "-m", "pytest", "-v", "-p", "tests.time_limit", "test_hanging.py"]
    root = Path(__file__).parents[1]
    run = subprocess.run(
        asked, capture_output=True, text=True, check=False, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(root), "BERTPREP_TEST_SECONDS": "1.5"},
    )  # fmt: skip
    assert run.returncode == 1
    ended = [line.split()[:2] for line in run.stdout.splitlines() if line.startswith("test_hanging.py::")]
    assert ended == [
        ["test_hanging.py::test_that_waits_for_a_pipe", "FAILED"],
        ["test_hanging.py::test_that_waits_for_a_lock", "FAILED"],
        ["test_hanging.py::test_that_ends", "PASSED"],
        ["test_hanging.py::test_that_never_returns_to_the_interpreter"],
    ]
    assert "Timeout (0:00:02" in run.stderr
    assert "in test_that_never_returns_to_the_interpreter" in run.stderr

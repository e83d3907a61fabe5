"""Work spread over processes: results come back, failures name their task, dead workers are noticed."""

import os
import signal
import sys
from pathlib import Path

import pytest

from bertprep import pool
from bertprep.errors import BertprepError


def square(number: int) -> int:
    return number * number


def die(number: int) -> int:
    if number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def leave(number: int) -> int:
    if number == 3:
        os._exit(7)
    return number


def refuse(number: int) -> int:
    if number == 3:
        raise BertprepError("three is not allowed")
    return number


def break_down(number: int) -> int:
    return 1 // (number - 3)


TASKS = [(f"shard {number}", number) for number in range(8)]


@pytest.mark.parametrize("workers", [1, 2, 3, 20])
def test_every_task_is_done_once(workers: int) -> None:
    assert sorted(pool.run(square, TASKS, workers=workers)) == [(f"shard {n}", n * n) for n in range(8)]


def test_no_task_is_no_work() -> None:
    assert list(pool.run(square, [], workers=2)) == []


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (die, r"^shard 3: the worker was killed \(SIGKILL\), as the system does when memory runs out; "),
        (leave, r"^shard 3: the worker ended with exit status 7; finished files are kept, the same command resumes$"),
        (refuse, r"^three is not allowed$"),
    ],
)
def test_a_failed_task_fails_the_run(function: object, message: str) -> None:
    with pytest.raises(BertprepError, match=message):
        list(pool.run(function, TASKS, workers=2))  # type: ignore[arg-type]


def test_a_bug_keeps_its_traceback() -> None:
    with pytest.raises(RuntimeError, match=r"(?s)shard 3: failed in a worker.*in break_down.*ZeroDivisionError"):
        list(pool.run(break_down, TASKS, workers=2))


@pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc")
def test_closing_the_run_stops_its_workers() -> None:
    def children() -> set[str]:
        return {path.name for path in Path("/proc").iterdir() if f"\nPPid:\t{os.getpid()}\n" in _status(path)}

    before = children()
    run = pool.run(square, TASKS, workers=2)
    next(run)
    assert len(children() - before) == 2
    run.close()
    assert children() <= before


def _status(process: Path) -> str:
    try:
        return (process / "status").read_text()
    except OSError:  # no process, or one that has gone
        return ""

"""Work spread over processes: results come back, failures name their task, dead workers are noticed."""

import importlib
import os
import pickle
import pkgutil
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import bertprep
from bertprep import pool
from bertprep.errors import BertprepError, UsageError
from bertprep.records.records import BadRecordError


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


def process_of(_: int) -> int:
    return os.getpid()


def break_down(number: int) -> int:
    return 1 // (number - 3)


TASKS = [(f"shard {number}", number) for number in range(8)]


@pytest.mark.parametrize("workers", [1, 2, 3, 20])
def test_every_task_is_done_once(workers: int) -> None:
    assert sorted(pool.run(square, TASKS, workers=workers)) == [(f"shard {n}", n * n) for n in range(8)]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (die, r"^shard 3: the worker was killed \(SIGKILL\), as the OS does when memory runs out; "),
        (
            leave,
            r"^shard 3: the worker ended with exit status 7; run the same command again, which keeps files that are finished$",
        ),
        (refuse, r"^three is not allowed$"),
    ],
)
def test_a_failed_task_fails_the_run(function: object, message: str) -> None:
    with pytest.raises(BertprepError, match=message):
        list(pool.run(function, TASKS, workers=2))  # type: ignore[arg-type]


ERRORS: dict[type[BertprepError], BertprepError] = {BadRecordError: BadRecordError("is bad", index=3, row=4)}
"""Those whose constructors take more than a text."""


def kinds_of_errors(kind: type[BertprepError] = BertprepError) -> Iterator[type[BertprepError]]:
    yield kind
    for each in kind.__subclasses__():
        yield from kinds_of_errors(each)


def test_errors_of_workers_arrive_as_they_are() -> None:
    for module in pkgutil.walk_packages(bertprep.__path__, "bertprep."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    kinds = list(kinds_of_errors())
    assert {BertprepError, UsageError, *ERRORS} < set(kinds)
    for kind in kinds:
        error = ERRORS[kind] if kind in ERRORS else kind("says why")

        def fail(error: BertprepError = error) -> None:
            raise error

        outcome, arrived = pickle.loads(pickle.dumps(pool.attempt(fail)))
        assert (outcome, type(arrived), str(arrived)) == ("error", kind, str(error))
        assert (arrived.args, vars(arrived)) == (error.args, vars(error))
        arrived.add_location("on node 1")
        assert str(pickle.loads(pickle.dumps(arrived))) == f"{error} (on node 1)"


def test_a_bug_keeps_its_traceback() -> None:
    with pytest.raises(RuntimeError, match=r"(?s)shard 3: failed in a worker.*in break_down.*ZeroDivisionError"):
        list(pool.run(break_down, TASKS, workers=2))


def test_closing_the_run_stops_its_workers() -> None:
    run = pool.run(process_of, TASKS, workers=2)
    workers = {next(run)[1] for _ in range(4)}
    run.close()
    assert os.getpid() not in workers
    for worker in workers:
        with pytest.raises(ProcessLookupError):
            os.kill(worker, 0)


@pytest.mark.parametrize("way", ["fork", "spawn"])
def test_ctrl_c_does_not_reach_a_worker_that_begins(way: str, tmp_path: Path) -> None:
    """A worker that had it before it could ignore it ended with a traceback."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os, signal, sys\nif 'spawn_main' in str(sys.orig_argv): os.kill(os.getpid(), signal.SIGINT)"
    )
    program = """
import os, signal, sys
from bertprep import pool
from bertprep.files import object_store
signal.signal(signal.SIGINT, signal.default_int_handler)  # also where a shell has it ignored
if sys.argv[1] == "spawn":
    object_store.in_use = lambda: True
else:
    os.register_at_fork(after_in_child=lambda: os.kill(os.getpid(), signal.SIGINT))
print(sorted(pool.run(abs, [("a", -1), ("b", -2)], workers=2)))
"""
    paths = os.pathsep.join([str(tmp_path), *sys.path])
    run = subprocess.run(
        [sys.executable, "-c", program, way],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": paths},
        check=False,
    )
    assert (run.stdout, run.stderr) == ("[('a', 1), ('b', 2)]\n", "")


# --- threads


def test_results_of_threads_come_in_order_and_each_item_once() -> None:
    done: Counter[int] = Counter()

    def square(item: int) -> int:
        done[item] += 1
        return item * item

    assert pool.map_in_threads(square, range(500)) == [item * item for item in range(500)]
    assert set(done.values()) == {1}
    assert pool.map_in_threads(square, []) == []


def test_what_a_thread_could_not_do_the_caller_does() -> None:
    """`concurrent.futures` waits for ever for a thread that ended so."""
    caller = threading.current_thread()
    has_failed = threading.Event()

    def work(item: int) -> int:
        if threading.current_thread() is not caller:
            has_failed.set()
            raise MemoryError
        assert has_failed.wait(60)
        return item

    assert pool.map_in_threads(work, range(20), most=2) == list(range(20))


def test_threads_that_cannot_be_started_are_not_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert pool.map_in_threads(abs, range(-5, 0)) == [5, 4, 3, 2, 1]


def test_after_a_failure_no_thread_begins_another_item() -> None:
    caller, has_failed = threading.current_thread(), threading.Event()
    failed: dict[int, threading.Thread] = {}
    done: list[int] = []

    def work(item: int) -> None:
        if threading.current_thread() is not caller:
            failed[item] = threading.current_thread()
            has_failed.set()
        if item in failed:
            raise ValueError("an item that fails")
        assert has_failed.wait(60)
        for thread in failed.values():
            thread.join()
        done.append(item)

    with pytest.raises(ValueError, match="an item that fails"):
        pool.map_in_threads(work, range(1000), most=2)
    assert len(done) <= 1  # which was begun before


def test_the_error_is_that_of_the_first_item_that_fails() -> None:
    def work(item: int) -> None:
        if item >= 30:
            raise ValueError(f"item {item}")

    for most in (1, 4):
        with pytest.raises(ValueError, match="item 30"):
            pool.map_in_threads(work, range(1000), most=most)

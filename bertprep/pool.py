"""Runs one function over many tasks in worker processes of this machine; `ray_pool` does the same on a cluster.

Each worker has a pipe of its own, so if one dies, the run fails with the name of its task. A single worker is the calling
process itself, and so it is in a worker of another program's pool, which may not start processes. On Linux, workers are
forked (2 ms), unless the process has used an object store, whose client has threads that a fork loses. `map_in_threads` is
for kernels and NumPy, which release Python's lock.
"""

import contextlib
import ctypes
import os
import signal
import sys
import threading
import traceback
import types
from collections.abc import Callable, Generator, Iterable, Iterator, Sized
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from bertprep.errors import BertprepError, explain_system_error, out_of_memory
from bertprep.files import object_store

Argument = TypeVar("Argument")
Item = TypeVar("Item")
Result = TypeVar("Result")
Task = tuple[str, Argument]
"""The name of a task, for messages, and the argument for the function."""

_PR_SET_PDEATHSIG = 1


class ClusterWorkers(int):
    """The maximum number of tasks in flight on a cluster, which runs the tasks itself."""

    def run(
        self, function: Callable[[Argument], Result], tasks: Iterator[Task[Argument]]
    ) -> Generator[tuple[str, Result], None, None]:
        raise NotImplementedError


def default_workers() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def map_in_threads(function: Callable[[Item], Result], items: Iterable[Item], *, most: int | None = None) -> list[Result]:
    """Return function(item) for each item, in order, computed in one thread per processor or at most `most` threads.

    The calling thread works too. After a failure no thread begins another item, and the error of the first item that failed is
    raised. Only a thread that memory does not suffice for fails alone: the calling thread computes what that thread left.
    (`concurrent.futures` waits forever for a thread that ended because memory ran out.)

    >>> map_in_threads(abs, [-2, 3])
    [2, 3]
    """
    todo = list(items)
    results: dict[int, Result] = {}
    errors: dict[int, Exception] = {}
    indices = iter(range(len(todo)))  # shared by the threads; taking the next index is atomic

    def leave_the_rest() -> None:
        for _ in indices:
            pass

    def work() -> None:
        for index in indices:
            try:
                results[index] = function(todo[index])
            except Exception as error:
                if not isinstance(error, MemoryError) or threading.current_thread() is caller:
                    errors[index] = error
                leave_the_rest()

    caller, threads = threading.current_thread(), []
    try:
        for _ in range(min(default_workers(), most or len(todo), len(todo)) - 1):
            thread = threading.Thread(target=work, daemon=True)
            with contextlib.suppress(RuntimeError, MemoryError):
                thread.start()
                threads.append(thread)
        work()
    finally:
        leave_the_rest()  # after Ctrl-C; otherwise no index is left
        for thread in threads:
            thread.join()
    if errors:
        raise errors[min(errors)]
    return [results[index] if index in results else function(item) for index, item in enumerate(todo)]


def run(
    function: Callable[[Argument], Result], tasks: Iterable[Task[Argument]], *, workers: int
) -> Generator[tuple[str, Result], None, None]:
    """Yield the name and result of each task as it finishes, in no particular order.

    The first failure stops all workers and is raised: a `BertprepError` unchanged, a worker's death as a `BertprepError` that
    names the task, any other exception with the worker's traceback. With `ClusterWorkers`, the function and tasks must pickle.
    """
    if isinstance(workers, ClusterWorkers):
        yield from workers.run(function, iter(tasks))
        return
    if isinstance(tasks, Sized):
        workers = min(workers, len(tasks))
    if workers <= 1 or _is_daemonic():
        for name, argument in tasks:
            yield name, function(argument)
        return
    yield from _run_in_processes(function, iter(tasks), workers)


def _is_daemonic() -> bool:
    """Return whether this process is a daemon, such as a worker of a `Pool` or of a DataLoader, which may have no children."""
    packages = (sys.modules.get(name) for name in ("multiprocess", "multiprocessing"))
    return any(package.current_process().daemon for package in packages if package)


def _run_in_processes(
    function: Callable[[Argument], Result], tasks: Iterator[Task[Argument]], workers: int
) -> Generator[tuple[str, Result], None, None]:
    import multiprocess
    from multiprocess import resource_tracker
    from multiprocess.connection import wait

    forks = sys.platform == "linux" and not object_store.in_use()
    context = multiprocess.get_context("fork" if forks else "spawn")
    processes: dict[Any, Any] = {}  # this process's end of the pipe -> worker process
    at_work: dict[Any, str] = {}  # this process's end of the pipe -> name of the task
    sys.stdout.flush()
    sys.stderr.flush()
    if not forks:
        resource_tracker.ensure_running()
    try:
        for _ in range(workers):
            ours, theirs = context.Pipe()
            arguments = (function, theirs, [ours, *processes]) if forks else (function, theirs, [], str(Path.cwd()))
            process = context.Process(target=_work, args=arguments, daemon=True)
            with signals_blocked([signal.SIGINT]), contextlib.nullcontext() if forks else _without_main():
                process.start()
            theirs.close()
            processes[ours] = process
        for pipe in processes:
            _give_next(pipe, tasks, at_work)
        while at_work:
            for pipe in wait(list(at_work)):
                name = at_work.pop(pipe)
                try:
                    outcome, value = pipe.recv()
                except (EOFError, ConnectionResetError):
                    processes[pipe].join()
                    raise _explain_death(name, processes[pipe].exitcode) from None
                if outcome == "error":
                    raise value
                if outcome == "traceback":
                    raise RuntimeError(f"{name}: failed in a worker\n{value}")
                _give_next(pipe, tasks, at_work)
                yield name, value
    finally:
        for process in processes.values():
            process.kill()
        for pipe, process in processes.items():
            process.join()
            pipe.close()


@contextlib.contextmanager
def signals_blocked(signals: Iterable[signal.Signals]) -> Iterator[None]:
    """Block signals during the block, and for good in the processes that it starts, since their parent stops them.

    If these processes are spawned, the resource tracker must be running, since starting it would unblock SIGINT and SIGTERM.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def _without_main() -> Iterator[None]:
    """Start a process that does not run the caller's main module again."""
    main, sys.modules["__main__"] = sys.modules["__main__"], types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _give_next(pipe: Any, tasks: Iterator[Task[Any]], at_work: dict[Any, str]) -> None:
    if (task := next(tasks, None)) is not None:
        name, argument = task
        at_work[pipe] = name
        with contextlib.suppress(BrokenPipeError):  # the worker is dead; reading from the pipe will show it
            pipe.send(argument)


def _work(function: Callable[[Any], Any], pipe: Any, not_ours: list[Any], folder: str | None = None) -> None:
    if folder is not None:
        os.chdir(folder)
    for other in not_ours:
        other.close()
    if sys.platform == "linux":  # workers die with a parent that is killed
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    while True:
        try:
            argument = pipe.recv()
        except (EOFError, OSError):
            return
        pipe.send(attempt(partial(function, argument)))


def attempt(work: Callable[[], Any]) -> tuple[str, Any]:
    """Return ("result", value), ("error", `BertprepError`) or ("traceback", text of the traceback of any other failure)."""
    try:
        return "result", work()
    except BertprepError as error:
        return "error", error
    except OSError as error:
        explained = explain_system_error(error)
        return ("error", explained) if explained else ("traceback", traceback.format_exc())
    except MemoryError:
        return "error", out_of_memory()
    except BaseException:
        return "traceback", traceback.format_exc()


def _explain_death(name: str, exit_code: int | None) -> BertprepError:
    if exit_code == -signal.SIGKILL:
        cause = "was killed (SIGKILL), as the OS does when memory runs out; use fewer --workers or smaller shards"
    elif exit_code is not None and exit_code < 0:
        cause = f"died of {signal.Signals(-exit_code).name}"
    else:
        cause = f"ended with exit status {exit_code}"
    return BertprepError(f"{name}: the worker {cause}; run the same command again, which keeps files that are finished")

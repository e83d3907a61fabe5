"""The cluster executor of `pool.run`: each task is one Ray Core task, on any node.

A task that is lost with its node or worker runs again; after `_MAX_LOSSES` losses the run fails. Each worker process keeps the
function, with its tables and kernels. A worker with another version of bertprep, Python or a library refuses to work.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import pickle
import platform
import socket
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any

from bertprep.errors import BertprepError, UsageError, first_line
from bertprep.files.atomic import TEMPORARY_SUFFIX, temporary_folder
from bertprep.files.paths import is_object
from bertprep.pool import ClusterWorkers, attempt, default_workers
from bertprep.terminal import print_message
from bertprep.version import __version__

_ADDRESS = "RAY_ADDRESS"
_AUTHENTICATION = "RAY_AUTH_MODE"  # "token": if the user has a token, `ray start` uses it by itself, but `ray.init` does not
_TIMEOUT_SECONDS = 5.0  # for a response; a head responds in milliseconds
_POLL_SECONDS = 2.0  # the interval at which the cluster's CPUs are counted
_EXTRA_IN_FLIGHT = 4  # tasks in flight beyond two per CPU, so that an autoscaling cluster without nodes has a reason to grow
_MAX_LOSSES = 10
_MAX_IN_FLIGHT = 1 << 16
_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # otherwise Ray warns of a change in its own behavior
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".*",  # otherwise Ray prints 25 lines about a lost node, to standard output
    "RAY_NUM_REDIS_GET_RETRIES": "1",  # each takes half a minute
}
"""Settings of Ray, which environment variables of the user override."""
_COMPARED = ("llvmlite", "numpy", "pyarrow", "tokenizers")
"""Packages whose version could change a file. Ray itself compares its own version and Python's."""
_has_joined = False
"""Whether this module made the process's connection to Ray."""


@dataclass(frozen=True)
class _Task:
    name: str
    argument: bytes
    losses: int = 0  # of its worker, of its node, or of its data in Ray's object store


@dataclass(frozen=True)
class _Order:
    """Everything that the tasks of a run need: the pickled function, the working folder and node of the run, and its paths."""

    function: bytes
    folder: str
    node: str
    seen: tuple[Path, ...]  # paths that exist only on nodes that share the run's folders


class RayWorkers(ClusterWorkers):
    """Workers of the cluster at $RAY_ADDRESS; their nodes must share the folder `shared` and the paths in `read`."""

    shared: Path | None
    read: Sequence[Path]

    def run(self, function: Callable[[Any], Any], tasks: Iterator[tuple[str, Any]]) -> Generator[tuple[str, Any], None, None]:
        """Yield the name and result of each task as it finishes, like `pool.run`.

        Ray is started or joined for the first task, and stays until `close`.
        """
        if (first := next(tasks, None)) is None:
            return
        ray = _connect()
        from ray import cloudpickle

        tasks = chain([first], tasks)
        work = ray.remote(num_cpus=1, max_retries=0)(_shipped())
        needed = environment()
        in_flight: dict[Any, _Task] = {}
        capacity = lost = 0
        counted_at = told_at = 0.0
        has_warned = False
        with _mark(self.shared) as mark:
            where = str(Path.cwd()), ray.util.get_node_ip_address()
            order = ray.put(_Order(cloudpickle.dumps(function), *where, (*mark, *self.read)))

            def submit(task: _Task) -> None:
                in_flight[work.remote(needed, [order], task.argument)] = task

            try:
                while True:
                    if time.monotonic() - counted_at >= _POLL_SECONDS:
                        cpus = int(ray.cluster_resources().get("CPU", 0))
                        capacity, counted_at = min(self, 2 * cpus + _EXTRA_IN_FLIGHT), time.monotonic()
                        if not cpus and not has_warned:
                            print_message("the Ray cluster has no CPUs; waiting for a node with CPUs")
                            has_warned = True
                    while len(in_flight) < capacity and (taken := next(tasks, None)):
                        submit(_Task(taken[0], cloudpickle.dumps(taken[1])))
                    if lost and (time.monotonic() - told_at >= _POLL_SECONDS or not in_flight):
                        print_message(f"tasks of lost nodes or workers that run again: {lost:,}")
                        lost, told_at = 0, time.monotonic()
                    if not in_flight:
                        return
                    ready, _ = ray.wait(list(in_flight), num_returns=1, timeout=_POLL_SECONDS)
                    for reference in ready:
                        task = in_flight.pop(reference)
                        try:
                            outcome, value = pickle.loads(ray.get(reference))
                        except ray.exceptions.RayError as error:
                            submit(_retry(ray, task, error))
                            lost += 1
                            continue
                        if outcome == "error":
                            raise value
                        if outcome == "traceback":
                            raise RuntimeError(f"{task.name}: failed in a worker\n{value}")
                        yield task.name, value
            finally:
                for reference in in_flight:
                    with contextlib.suppress(Exception):  # Ray itself may have failed
                        ray.cancel(reference, force=True)


def choose_workers(workers: int | None, *, shared: Path | None, read: Iterable[Path]) -> RayWorkers:
    """Return the workers of a Ray cluster: at most `workers` tasks in flight, by default enough for all of its CPUs.

    Nodes that do not share the folder `shared` and the paths in `read` are refused.
    """
    found = find_spec("ray")  # an import would take a second
    if found is None or found.origin is None:  # any folder named ray counts as a package, but without an origin
        raise UsageError("--executor ray: Ray is not installed; pip install 'bertprep[ray]'")
    chosen = RayWorkers(workers or _MAX_IN_FLIGHT)
    chosen.shared = None if shared is None or is_object(shared) else shared
    chosen.read = [path for path in read if not is_object(path)]
    return chosen


@contextlib.contextmanager
def _mark(shared: Path | None) -> Iterator[tuple[Path, ...]]:
    """Create a temporary folder by which nodes recognize `shared`, and remove those of killed runs."""
    with contextlib.ExitStack() as stack:
        mark: tuple[Path, ...] = ()
        if shared is not None:
            folder = next((each for each in (shared, *shared.parents) if each.is_dir()), shared)
            with contextlib.suppress(BertprepError):
                mark = (stack.enter_context(temporary_folder(folder / f".ray-{platform.node()}")),)
        yield mark


def close() -> None:
    """Disconnect from the cluster, or end a local one; a connection that the calling program made stays open."""
    global _has_joined
    if _has_joined:
        sys.modules["ray"].shutdown()
        _has_joined = False


def _connect() -> Any:
    global _has_joined
    if (there := sys.modules.get("ray")) is not None and there.is_initialized():
        return there
    address = os.environ.get(_ADDRESS) or "local"
    shown = f"{_ADDRESS} {address}"
    _check_answers(address, shown)
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    import ray

    more = {"include_dashboard": False, "num_cpus": default_workers()} if address == "local" else {}
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **more)
    except Exception as error:  # Ray raises many types, and a plain Exception if starting takes too long
        why = " ".join(str(error).split())
        if "Version mismatch" in why:
            raise BertprepError(f"{shown}: {why}; run bertprep in the same environment as the cluster's nodes") from None
        may_need_token = address != "local" and _AUTHENTICATION not in os.environ
        advice = f"; if it asks for a token, set {_AUTHENTICATION}=token" if may_need_token else ""
        raise BertprepError(f"{shown}: {why}{advice}") from None
    _has_joined = True
    return ray


def _check_answers(address: str, shown: str) -> None:
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if address in ("local", "auto"):
        return
    if not host or not port.isdecimal():
        raise UsageError(f"{shown}: must be HOST:PORT of a Ray head, auto or local")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_TIMEOUT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise BertprepError(
            f"{shown}: no Ray head responds there ({error}); run ray status on the head for its address"
        ) from None


def _retry(ray: Any, task: _Task, error: Exception) -> _Task:
    cause = error.cause if isinstance(error, ray.exceptions.RayTaskError) else None
    if isinstance(cause, RuntimeError):  # raised by a node that refuses to work
        raise BertprepError(str(cause))
    error = cause if isinstance(cause, ray.exceptions.RayError) else error
    names = ("NodeDiedError", "ObjectLostError", "LocalRayletDiedError", "WorkerCrashedError", "OutOfMemoryError")
    if not isinstance(error, tuple(getattr(ray.exceptions, name) for name in names)):
        raise BertprepError(f"{task.name}: Ray could not run it: {' '.join(str(error).split())}")
    if task.losses + 1 < _MAX_LOSSES:
        return replace(task, losses=task.losses + 1)
    raise BertprepError(
        f"{task.name}: was lost {_MAX_LOSSES} times with its worker or node ({first_line(error)}); if memory runs out, use "
        "fewer --workers or smaller shards, else make sure that nodes stay up for as long as a task takes (ray status); "
        "finished files are kept, and the same command resumes"
    )


@cache
def environment() -> dict[str, str]:
    """Return the versions of everything that decides the bytes of files, with a checksum of bertprep's source."""
    folder = Path(__file__).parent
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(f"{path.relative_to(folder)}\n".encode() + path.read_bytes())
    versions = {"bertprep": __version__, "Python": platform.python_version()}
    for package in _COMPARED:
        with contextlib.suppress(PackageNotFoundError):
            versions[package] = version(package)
    return {**versions, "bertprep's source": digest.hexdigest()[:16]}


def _shipped() -> Callable[..., bytes]:
    """Return the function for Ray, which is pickled with its code, so that a worker without bertprep can report that."""

    def attend(needed: dict[str, str], order: list[Any], argument: bytes) -> bytes:
        import ray

        def refuse(why: str) -> RuntimeError:
            node = ray.util.get_node_ip_address()
            return RuntimeError(f"node {node}: {why}; all nodes need the same environment as the one that runs the command")

        try:
            from bertprep.ray_pool import environment, work
        except ImportError as error:
            raise refuse(f"has no bertprep {needed['bertprep']} ({error})") from None
        found = environment()
        for name, value in needed.items():
            if found.get(name) != value:
                raise refuse(f"has {name} {found.get(name, 'not at all')}, expected {value}")
        return work(order, argument)

    return attend


_kept: dict[str, _Order] = {}
"""The order of the run that a worker process belongs to, by the id of its reference in Ray."""


def work(order: list[Any], argument: bytes) -> bytes:
    """Run a task in a worker process, and return the pickled outcome."""
    import ray
    from ray import cloudpickle

    key = order[0].hex()
    if key not in _kept:
        _kept.clear()
        _kept[key] = ray.get(order[0])  # errors of Ray itself reach the run, which retries the task
    answer: bytes = cloudpickle.dumps(attempt(lambda: _run_task(_kept[key], argument)))
    return answer


def _run_task(order: _Order, argument: bytes) -> Any:
    function = _open(order)
    try:
        return function(pickle.loads(argument))
    except BertprepError as error:
        if (node := _node()) != order.node:
            error.add_location(f"on node {node}")
        raise


@lru_cache(maxsize=1)
def _open(order: _Order) -> Callable[[Any], Any]:
    """Return the function of a run; raise `BertprepError` if this node does not share the run's folders."""
    with contextlib.suppress(OSError):  # for relative paths; the folder is only needed if there are any
        os.chdir(order.folder)
    for path in order.seen:
        _check_there(path)
    function: Callable[[Any], Any] = pickle.loads(order.function)
    return function


def _check_there(path: Path) -> None:
    """Raise `BertprepError` if a path of the run does not appear here in a few seconds, as file systems may cache."""
    deadline = time.monotonic() + _TIMEOUT_SECONDS
    while not path.exists():
        if time.monotonic() > deadline:
            folder = path.parent if path.suffix == TEMPORARY_SUFFIX else path
            raise BertprepError(
                f"{folder}: is not the same folder on node {_node()} as where the command runs; "
                "inputs and outputs must be on a file system that all nodes share, or in an object store"
            )
        time.sleep(0.1)


def _node() -> str:
    import ray

    address: str = ray.util.get_node_ip_address()
    return address

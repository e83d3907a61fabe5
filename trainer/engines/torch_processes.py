"""Start and connect the processes of a run on PyTorch, one for each device.

    started by the user      one process per host (--hosts); it reads the batches, and computes on the host's first device
    started by that process  one process per further device (--devices); it executes the calls that come through a pipe

Ranks are counted host by host. GPUs are connected by NCCL, CPUs by gloo.
"""

from __future__ import annotations

import atexit
import os
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing import connection, get_context, resource_tracker
from queue import SimpleQueue
from threading import Thread
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from bertprep.errors import BertprepError, UsageError
from bertprep.pool import signals_blocked
from trainer.engines import STOP_SIGNALS
from trainer.engines.joining import JOIN_TIMEOUT, join
from trainer.settings import EngineSettings

_EXIT_SECONDS = 5  # how long to wait for a failed process to end, before its error is looked for
# Names of PyTorch 2.13 and later, or the older ones
_reduce_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor


class Address(NamedTuple):
    """The address at which the first process listens, and the ranks of a device's process."""

    host: str
    port: int
    rank: int
    size: int
    local_rank: int  # the device's index on its host


@dataclass(frozen=True)
class World:
    """All devices of a run, of which this process has one. All processes call its methods, in the same order."""

    rank: int = 0
    size: int = 1

    def sum(self, x: torch.Tensor) -> torch.Tensor:
        """Return the sum over all devices."""
        if self.size == 1:
            return x
        total = x.contiguous().clone()
        dist.all_reduce(total)
        return total

    def sum_rows(self, rows: torch.Tensor) -> torch.Tensor:
        """Return this device's row of the sum over all devices: (size, width) -> (width,)."""
        own = rows.new_empty(rows.shape[1])
        _reduce_scatter(own, rows.reshape(-1))
        return own

    def all_gather(self, x: torch.Tensor) -> torch.Tensor:
        """Return the arrays of all devices in the order of ranks: (n, ...) -> (size * n, ...)."""
        if self.size == 1:
            return x
        gathered = x.new_empty((self.size * len(x), *x.shape[1:]))
        _all_gather(gathered, x.contiguous())
        return gathered

    def broadcast(self, x: torch.Tensor) -> torch.Tensor:
        """Set `x` to its value on the first device, and return it."""
        if self.size > 1:
            dist.broadcast(x, 0)
        return x


class Workers:
    """The processes of this host's further devices, which end with this object."""

    def __init__(self, addresses: list[Address], serve: Callable[..., Any], settings: EngineSettings) -> None:
        context = get_context("spawn")
        self._pipes, self._processes = [], []
        resource_tracker.ensure_running()
        for address in addresses:
            pipe, end = context.Pipe()
            process = context.Process(target=_run, args=(end, serve, address, settings), daemon=True)
            with signals_blocked(STOP_SIGNALS):  # a scheduler sends them to all processes of a job
                process.start()
            end.close()
            self._pipes.append(pipe)
            self._processes.append(process)
        # Runs also when this process exits, before multiprocessing waits for the others
        self._close = weakref.finalize(self, _close_all, self._pipes)

    def call(self, method: str, arguments: list[tuple[Any, ...]]) -> None:
        """Call a method in each process with its own arguments, without waiting for it."""
        for pipe, of_process in zip(self._pipes, arguments, strict=True):
            pipe.send((method, of_process))

    def explain(self, error: Exception) -> Exception:
        """Return the error of the process that made a collective fail, or `error` if none of these processes has failed.

        A killed process comes first, since the others then only report that they have lost it.
        """
        connection.wait([process.sentinel for process in self._processes], timeout=_EXIT_SECONDS)
        reported: list[str] = []
        for number, (pipe, process) in enumerate(zip(self._pipes, self._processes, strict=True), 1):
            try:
                if pipe.poll():
                    reported.append(pipe.recv())
            except (EOFError, OSError):
                return BertprepError(
                    f"device {number} of this host: its process {process.pid} has ended; start the run again; it resumes from "
                    "the newest checkpoint"
                )
        return RuntimeError(reported[0]) if reported else error


def _close_all(pipes: list[Any]) -> None:
    for pipe in pipes:
        pipe.close()


def connect(settings: EngineSettings, devices: int, serve: Callable[..., Any]) -> tuple[World, Workers]:
    """Start a process for each further device of this host, and connect all processes; wait for those of other hosts.

    Each process executes calls on its `serve(settings, world, local rank)`. An earlier connection of this process is closed.
    """
    if not settings.hosts:
        return _connect(settings, devices, serve)
    return join(lambda: _connect(settings, devices, serve), settings.host_rank or 0, settings.hosts)


def _connect(settings: EngineSettings, devices: int, serve: Callable[..., Any]) -> tuple[World, Workers]:
    rank = settings.host_rank or 0
    host, port = "127.0.0.1", 0
    if settings.hosts:
        host, _, given = settings.hosts[0].rpartition(":")
        port = int(given)
    if not settings.hosts and devices == 1:
        return World(), Workers([], serve, settings)
    store = _store(host, port, is_first=rank == 0)
    counts = _agree(store, rank, devices, max(1, len(settings.hosts)))
    if min(counts) < max(counts):
        raise UsageError(
            f"--devices {devices}: each host must have this many devices, but they have {', '.join(map(str, counts))}"
        )
    addresses = [Address(host, store.port, rank * devices + number, sum(counts), number) for number in range(devices)]
    workers = Workers(addresses[1:], serve, settings)
    return _enter(store, addresses[0]), workers


def _store(host: str, port: int, *, is_first: bool) -> dist.TCPStore:
    return dist.TCPStore(host, port, is_master=is_first, wait_for_workers=False, timeout=timedelta(seconds=JOIN_TIMEOUT))


def _agree(store: dist.TCPStore, rank: int, devices: int, processes: int) -> list[int]:
    """Return the number of devices of each host's process."""
    store.set(f"devices of {rank}", str(devices))
    return [int(store.get(f"devices of {other}")) for other in range(processes)]


def _enter(store: dist.TCPStore, address: Address) -> World:
    if dist.is_initialized():
        dist.destroy_process_group()
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend, store=store, rank=address.rank, world_size=address.size)
    atexit.register(_leave)
    return World(address.rank, address.size)


def _leave() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()


def _run(pipe: Any, serve: Callable[..., Any], address: Address, settings: EngineSettings) -> None:
    """Execute the calls that come through the pipe, until the other end closes it."""
    calls: SimpleQueue[tuple[str, tuple[Any, ...]]] = SimpleQueue()
    Thread(target=_receive, args=(pipe, calls), daemon=True).start()
    try:
        world = _enter(_store(address.host, address.port, is_first=False), address)
        served = serve(settings, world, address.local_rank)
        while True:
            method, arguments = calls.get()
            getattr(served, method)(*arguments)
    except Exception as error:
        pipe.send(str(error) or repr(error))
        os._exit(1)


def _receive(pipe: Any, calls: SimpleQueue[tuple[str, tuple[Any, ...]]]) -> None:
    with suppress(EOFError, OSError):
        while True:
            calls.put(pipe.recv())
    os._exit(0)  # ends even a collective that waits for missing processes

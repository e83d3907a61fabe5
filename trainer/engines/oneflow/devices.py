"""This process's device, the pipelines that all processes make up, and what they tell each other.

    pipelines    [[0, 1], [2, 3]]    rank 1 has stage 1 of pipeline 0; without stages each rank is a pipeline of one

All processes of a pipeline read the same rows of a global batch. A tensor of several processes is a global one: it is on the
ranks of a stage, whole on each (a variable) or split along the sequences (a batch).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import oneflow as flow
from numpy.typing import NDArray

from bertprep.errors import BertprepError, UsageError
from trainer.engines.execution import Processor
from trainer.engines.oneflow import Process, read_process
from trainer.engines.oneflow.stages import Pipelines, check_order, place
from trainer.settings import EngineSettings

Tensor: TypeAlias = Any
_EXCHANGED = 1 << 24  # entries exchanged together: 64 MiB
_NEWEST_CAPABILITY = (8, 6)  # of a GPU that the published package was compiled for


@dataclass(frozen=True)
class Devices:
    """What this process computes on, and where it is among all."""

    kind: str  # "cpu" or "cuda"
    name: str  # for people: "NVIDIA A100-SXM4-80GB", or "CPU"
    number: int  # of the device
    process: Process
    pipelines: Pipelines
    capability: tuple[int, int] | None = None  # of a GPU

    @property
    def processor(self) -> Processor:
        return Processor(self.name, self.capability, is_gpu=self.kind == "cuda")

    @property
    def stages(self) -> int:
        return len(self.pipelines[0])

    @property
    def pipeline(self) -> int:
        """The number of this process's pipeline."""
        return next(number for number, ranks in enumerate(self.pipelines) if self.process.rank in ranks)

    @property
    def stage(self) -> int:
        """The number of this process's stage."""
        return self.pipelines[self.pipeline].index(self.process.rank)

    @property
    def device(self) -> Any:
        return flow.device(self.kind, self.number) if self.kind == "cuda" else flow.device("cpu")

    def placement(self, stage: int) -> Any:
        """The ranks of a stage, as OneFlow names them."""
        return flow.placement(self.kind, [ranks[stage] for ranks in self.pipelines])

    def tensor(self, array: NDArray[Any]) -> Tensor:
        """A copy of the array on this process's device."""
        return flow.tensor(np.ascontiguousarray(array), device=self.device)

    def sum_over_all(self, own: Tensor) -> Tensor:
        """The sum of a tensor of every process, in place."""
        if self.process.world_size > 1:
            flow.comm.all_reduce(own)
        return own

    def sum_each_over_all(self, own: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The sum of each tensor of every process; small ones are exchanged together, since each exchange has its cost."""
        if self.process.world_size == 1:
            return dict(own)
        summed = {}
        for names in _together(own):
            flat, start = self.sum_over_all(flow.cat([own[name].reshape(-1) for name in names])), 0
            for name in names:
                size = own[name].numel()
                summed[name] = flow.narrow(flat, 0, start, size).reshape(own[name].shape)
                start += size
        return summed

    def gather(self, number: int) -> list[int]:
        """This number of every process."""
        own = np.zeros(self.process.world_size)
        own[self.process.rank] = number
        return [round(each) for each in self.sum_over_all(self.tensor(own)).numpy().tolist()]

    def add_of_ends(self, own: Tensor) -> None:
        """To a tensor that the first and the last stage both have, each adds the other's."""
        first, last = self.pipelines[self.pipeline][0], self.pipelines[self.pipeline][-1]
        if self.process.rank == last:
            flow.comm.send(own, first, send_meta=False)
            own.copy_(self._receive(own, first))
        elif self.process.rank == first:
            own.add_(self._receive(own, last))
            flow.comm.send(own, last, send_meta=False)

    def send_to_first(self, own: Tensor | None, owner: int, shape: Sequence[int]) -> Tensor | None:
        """A float32 tensor of the rank `owner` in rank 0, and None elsewhere; all ranks call it."""
        if owner == 0 or self.process.rank not in (0, owner):
            return own if self.process.rank == 0 else None
        if self.process.rank == owner:
            flow.comm.send(own, 0, send_meta=False)
            return None
        return self._receive(flow.empty(*shape, device=self.device), owner)

    def _receive(self, like: Tensor, source: int) -> Tensor:
        return flow.comm.recv(source, shape=like.shape, dtype=like.dtype, device=like.device)


def _together(tensors: Mapping[str, Tensor]) -> Iterator[list[str]]:
    """The names of tensors in groups of about `_EXCHANGED` entries."""
    names, entries = [], 0
    for name, tensor in tensors.items():
        names.append(name)
        entries += tensor.numel()
        if entries >= _EXCHANGED:
            yield names
            names, entries = [], 0
    if names:
        yield names


def open_devices(settings: EngineSettings) -> Devices:
    """The GPU of this process's number on its host, or its CPU where there is none."""
    process, number = _join()
    kind, name = ("cuda", _name_of_gpu(number)) if flow.cuda.is_available() else ("cpu", "CPU")
    if kind == "cpu" and settings.amp not in ("auto", "off"):
        raise UsageError(f"--amp {settings.amp}: OneFlow has no half-precision kernels for CPUs; leave --amp out, or take GPUs")
    alone = Devices(kind, name, number, process, [[rank] for rank in range(process.world_size)])
    per_host = max(alone.gather(process.local_rank)) + 1
    if process.world_size % per_host or process.rank % per_host != process.local_rank:
        raise BertprepError(
            f"rank {process.rank}: is number {process.local_rank} of its host, and another host has {per_host} processes; "
            "start equally many on each"
        )
    pipelines = place(
        hosts=process.world_size // per_host, per_host=per_host, stages=settings.stages, strategy=settings.strategy
    )
    check_order(pipelines, settings.strategy)
    capability = tuple(flow.cuda.get_device_capability(number)) if kind == "cuda" else None
    return Devices(kind, name, number, process, pipelines, capability)


def _join() -> tuple[Process, int]:
    """This process's ranks by its launcher, and its number among those that OneFlow takes for one host's, by their address.

    The two differ where several launchers run on one host: then no two processes may have the same number, or they cannot
    exchange anything. OneFlow reads it from the environment when it first needs it.
    """
    process = read_process(os.environ) if flow.env.get_world_size() > 1 else Process()
    number = process.rank % (process.world_size // flow.env.get_node_size())
    os.environ["LOCAL_RANK"] = str(number)
    return process, number


def _name_of_gpu(number: int) -> str:
    if number >= flow.cuda.device_count():
        raise UsageError(f"process {number} of this host: it has {flow.cuda.device_count()} GPUs; start one for each")
    name, capability = flow.cuda.get_device_name(number), flow.cuda.get_device_capability(number)
    if tuple(capability) > _NEWEST_CAPABILITY:
        raise UsageError(
            f"{name}: OneFlow 0.9.0 was made for GPUs of capability 6.0 to 8.6, this one has {'.'.join(map(str, capability))}; "
            "set CUDA_VISIBLE_DEVICES= to run on the CPU, or take --engine tensorflow"
        )
    flow.cuda.set_device(number)
    return str(name)

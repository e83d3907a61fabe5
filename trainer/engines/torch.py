"""Train BERT on PyTorch: steps on all devices of a run, each with a process of its own.

    each device    computes the gradients of its micro-batches, which autograd adds up
    all devices    sum gradients, losses and correct predictions; each keeps its shard of the gradients
    each device    clips by the norm of the sum, and updates its shard of moments and variables; all gather the variables

Variables are complete on every device; moments are sharded (ZeRO-1). Adam is PyTorch's fused kernel, which is tested against
the same traces as the other engines; the other optimizers are composed of operations. Dropout masks depend on their key and
index only, so a resumed run has the same masks.
"""

from __future__ import annotations

import ctypes
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import numpy as np

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when CUDA starts; makes products bit-exact

import torch
from torch.nn import functional

from trainer.engines import Batch, Engine, Processor, State, exit_without_waiting, rows_of_devices
from trainer.engines.choice import check_gpus, choose_execution
from trainer.engines.torch_operations import Ops, ShardedOps
from trainer.engines.torch_processes import Workers, World, connect
from trainer.model import Array, Arrays
from trainer.model_config import ModelConfig
from trainer.optimizers import is_decayed, slots
from trainer.settings import EngineSettings, OptimizerSettings
from trainer.step import Step
from trainer.tasks.task import Task

_MANY_UPDATES = 1e9
"""A number of updates for which 1 - beta ** updates is 1: it turns off bias correction, which the fused Adam always has."""
_OF_MICRO_BATCH = ("dropout_key", "stop")
"""The features of a batch that have one row per micro-batch."""


class TorchEngine(Engine):
    """Steps of one model: a replica on this host's first device, and a process with a replica for each further device."""

    packages = (torch,)
    failures = (RuntimeError, BrokenPipeError)

    def __init__(self, settings: EngineSettings, devices: int, world: World, workers: Workers) -> None:
        gpus = [_processor(number) for number in range(devices)] if torch.cuda.is_available() else []
        processors = gpus or [Processor()]
        self._local_devices, self._world, self._workers = devices, world, workers
        self._replica = Replica(settings, world)
        super().__init__(
            settings, processors[0], choose_execution(settings, processors), devices=world.size,
            rank=world.rank // devices, processes=world.size // devices,
        )  # fmt: skip

    def prepare(self, model: ModelConfig, optimizer: OptimizerSettings, *, seed: int, task: Task) -> None:
        super().prepare(model, optimizer, seed=seed, task=task)
        self._call("prepare", self.precision, model, optimizer, task, self.shapes)

    def start(self, batch: Batch, learning_rate: float, accumulation: int) -> Array:
        return self._call_with_rows("start", batch, accumulation, learning_rate, self.scaled(1.0, accumulation))

    def sums(self, batch: Batch) -> Array:
        return self._call_with_rows("sums", batch, 1)

    def logits(self, batch: Batch) -> Mapping[str, Array]:
        logits: Mapping[str, Array] = self._call_with_rows("logits", batch, 1)
        return logits

    def state(self) -> State:
        with self.errors_in_a_line():
            state: State = self._call("state")
            return state

    def restore(self, state: State) -> None:
        with self.errors_in_a_line():
            names = [name for name in self.shapes if name in state]
            self._workers.call("restore", [(names, None)] * (self._local_devices - 1))
            self._replica.restore(names, state)

    def gather(self, number: int) -> list[int]:
        with self.errors_in_a_line():
            numbers: list[int] = self._call("gather", number)
        return numbers[:: self._local_devices]

    def peak_memory(self) -> int | None:
        return torch.cuda.max_memory_allocated() if self.has_accelerator else None

    @contextmanager
    def errors_in_a_line(self) -> Iterator[None]:
        with super().errors_in_a_line():
            try:
                yield
            except self.failures as error:
                if self._world.size == 1:
                    raise
                exit_without_waiting()
                raise self._workers.explain(error) from error

    def _call(self, method: str, *arguments: Any) -> Any:
        """Call a method of all replicas, and return the result of this process's replica."""
        self._workers.call(method, [arguments] * (self._local_devices - 1))
        return getattr(self._replica, method)(*arguments)

    def _call_with_rows(self, method: str, batch: Batch, accumulation: int, *arguments: Any) -> Any:
        """Call a method of all replicas, each with its rows of this process's batch: (micro-batches, rows, ...)."""
        parts = rows_of_devices(batch, accumulation, self._local_devices)
        self._workers.call(method, [(rows, *arguments) for rows in parts[1:]])
        return getattr(self._replica, method)(parts[0], *arguments)


class Replica:
    """The variables and shards of moments on one device, and the work of this device in a step.

    The shards of a variable are consecutive pieces of equal size; the last is padded with zeros. The shard of a single device
    is the variable itself.
    """

    def __init__(self, settings: EngineSettings, world: World, local_rank: int = 0) -> None:
        self._world, self._recompute = world, settings.checkpoint_activations
        self._device = torch.device("cuda", local_rank) if torch.cuda.is_available() else torch.device("cpu")
        if self._device.type == "cuda":
            torch.cuda.set_device(self._device)
            torch.use_deterministic_algorithms(settings.deterministic == "on")
            torch.utils.deterministic.fill_uninitialized_memory = False
        else:
            _keep_freed_memory()
            if settings.devices is not None:
                torch.set_num_threads(max(1, torch.get_num_threads() // settings.devices))

    def prepare(
        self,
        precision: str,
        model: ModelConfig,
        optimizer: OptimizerSettings,
        task: Task,
        shapes: Mapping[str, tuple[int, ...]],
    ) -> None:
        """Allocate the variables of these shapes and the rest of the state, filled with zeros."""
        self._optimizer, self._precision, self._shapes = optimizer, precision, shapes
        self._step = Step(Ops(precision, recompute=self._recompute), model, task, optimizer)
        self._update_step = self._step
        if self._world.size > 1:
            self._update_step = replace(self._step, ops=ShardedOps(self._world, precision))
        state = {name: torch.zeros(shape, device=self._device) for name, shape in shapes.items()}
        self._weights = {name: state[name].requires_grad_() for name in task.variable_shapes(model)}
        self._state = {name: self._shard(value.detach()) for name, value in state.items()}

    def start(self, batch: Batch, learning_rate: float, scaling: float) -> Array:
        """Run a step on features (micro-batches, rows, ...), with the loss multiplied by `scaling` and the loss scale."""
        keys, stop = torch.from_numpy(batch["dropout_key"]), float(batch["stop"][0, 0])
        rows = self._tensors({name: array for name, array in batch.items() if name not in _OF_MICRO_BATCH})
        loss_scale = self._state["loss_scale"].clone()
        scale, weight_sums = loss_scale * scaling, self._sum_over_devices(self._step.weight_sums(rows))
        sums = torch.zeros((), device=self._device)
        for number in range(len(keys)):
            part = {name: array[number] for name, array in rows.items()}
            part["dropout_key"] = keys[number]  # kept on the host, where generators are seeded
            loss, sums_of_part = self._step.micro_batch(self._weights, part, weight_sums, scale)
            loss.backward()
            sums = sums + sums_of_part.detach()
        totals = self._world.sum(torch.cat([sums, sums.new_tensor([stop])]))
        norm = self._update(scale, learning_rate)
        return torch.cat([totals[:-1], torch.stack([norm, loss_scale, totals[-1]])])

    def _sum_over_devices(self, numbers: Arrays) -> Arrays:
        return dict(zip(numbers, self._world.sum(torch.stack([*numbers.values()])), strict=True))

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def _update(self, scale: Array, learning_rate: float) -> Array:
        """Update the state by the gradients, which are `scale` times too large, free them, and return their norm."""
        gradients = self._take_gradients()
        norm = self._step.norm(gradients, scale)
        if self._world.size > 1:
            norm = self._world.sum(norm * norm).sqrt()
        step, factor = self._update_step, self._step.factor(norm, scale)
        if self._optimizer.name == "adam":
            self._adam(gradients, factor, learning_rate)
            gradients = {}  # the fused kernel has updated everything but the counters
        for name, value in step.changes(self._state, gradients, factor, learning_rate):
            self._state[name].copy_(value)
        if self._world.size > 1:
            self._gather_variables()
        return norm

    def _adam(self, gradients: Arrays, factor: Array, learning_rate: float) -> None:
        settings, state = self._optimizer, self._state
        updates = state["updates"] + 1 if settings.bias_correction else torch.full_like(state["updates"], _MANY_UPDATES)
        is_skipped = factor == 0
        if self._precision == "fp16":
            is_skipped = is_skipped | ~torch.isfinite(factor)
        for decays in (True, False):
            names = [name for name in gradients if is_decayed(name) == decays]
            first_moments = [state[slots(settings, name)[0]] for name in names]
            second_moments = [state[slots(settings, name)[1]] for name in names]
            torch._fused_adamw_(
                [state[name] for name in names],
                [gradients[name] for name in names],
                first_moments,
                second_moments,
                [],
                [updates] * len(names),
                lr=learning_rate,
                beta1=settings.beta_1,
                beta2=settings.beta_2,
                weight_decay=settings.weight_decay if decays else 0.0,
                eps=settings.epsilon,
                amsgrad=False,
                maximize=False,
                grad_scale=1 / factor,
                found_inf=is_skipped.float(),
            )

    def _take_gradients(self) -> Arrays:
        """Return this device's shard of each gradient, summed over all devices, and free the gradients."""
        gradients = {}
        for name, weight in self._weights.items():
            gradients[name] = torch.zeros_like(weight) if weight.grad is None else weight.grad
            weight.grad = None
        if self._world.size == 1:
            return gradients
        own = self._world.sum_rows(torch.cat([self._shards(gradient) for gradient in gradients.values()], dim=1))
        return dict(zip(gradients, own.split([len(self._state[name]) for name in gradients]), strict=True))

    def _gather_variables(self) -> None:
        own = torch.cat([self._state[name] for name in self._weights])
        shards = self._world.all_gather(own[None]).split([len(self._state[name]) for name in self._weights], dim=1)
        for weight, of_all in zip(self._weights.values(), shards, strict=True):
            weight.copy_(_join(of_all, weight.shape))

    def _shards(self, value: Array) -> Array:
        """Split an array into shards: (devices, elements)."""
        filling = -value.numel() % self._world.size
        return functional.pad(value.reshape(-1), (0, filling)).view(self._world.size, -1)

    def _shard(self, value: Array) -> Array:
        """Return this device's shard of an array, which is the array itself on a single device."""
        if self._world.size == 1 or value.ndim == 0:
            return value
        return self._shards(value)[self._world.rank].clone()

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def sums(self, batch: Batch) -> Array:
        return self._world.sum(self._step.sums(self._weights, self._only_micro_batch(batch)))

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def logits(self, batch: Batch) -> Mapping[str, Array]:
        logits = self._step.logits(self._weights, self._only_micro_batch(batch))
        return {name: self._world.all_gather(rows) for name, rows in logits.items()}

    def state(self) -> State:
        """Return the complete state, gathered array by array, so that a device has at most one sharded array complete."""
        return {name: self._complete(name).detach().cpu().numpy().copy() for name in self._shapes}

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def restore(self, names: Sequence[str], state: State | None) -> None:
        """Set the named values on all devices from `state`, which only the first device has."""
        for name in names:
            value = torch.empty(self._shapes[name])
            if state is not None:
                value.copy_(torch.from_numpy(np.array(state[name], np.float32)))
            value = self._world.broadcast(value.to(self._device))
            if name in self._weights:
                self._weights[name].copy_(value)
            self._state[name].copy_(self._shard(value))

    def gather(self, number: int) -> list[int]:
        numbers: list[int] = self._world.all_gather(torch.tensor([number], device=self._device)).tolist()
        return numbers

    def _complete(self, name: str) -> Array:
        if name in self._weights:
            return self._weights[name]
        value = self._state[name]
        return _join(self._world.all_gather(value), self._shapes[name]) if value.ndim else value

    def _only_micro_batch(self, batch: Batch) -> dict[str, Array]:
        return {name: array[0] for name, array in self._tensors(batch).items()}

    def _tensors(self, batch: Batch) -> dict[str, Array]:
        return {name: torch.from_numpy(np.ascontiguousarray(array)).to(self._device) for name, array in batch.items()}


def _join(shards: Array, shape: tuple[int, ...]) -> Array:
    return shards.reshape(-1)[: math.prod(shape)].view(shape)


def open_engine(settings: EngineSettings) -> TorchEngine:
    """Wait for the other hosts, and return the engine on this host's GPUs, or CPU, or on `settings.devices` of them."""
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    check_gpus(settings, gpus)
    devices = settings.devices or max(1, gpus)
    return TorchEngine(settings, devices, *connect(settings, devices, Replica))


def _processor(number: int) -> Processor:
    return Processor(torch.cuda.get_device_name(number), torch.cuda.get_device_capability(number), is_gpu=True)


_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4


def _keep_freed_memory() -> None:
    """Make glibc's malloc keep freed memory: it would return large blocks to the OS, which has to clear them again."""
    with suppress(AttributeError, OSError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_MAX, 0)
        mallopt(_M_TRIM_THRESHOLD, -1)

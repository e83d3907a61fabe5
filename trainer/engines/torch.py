"""Train BERT on PyTorch: steps on all devices of a run, each with a process of its own.

    each device    computes the gradients of its micro-batches, which autograd adds up
    all devices    sum gradients, losses and correct predictions; each keeps its shard of the gradients
    each device    clips by the norm of the sum, and updates its shard of moments and variables; all gather the variables

Variables are complete on every device; moments are sharded (ZeRO-1). Adam updates all variables at once by PyTorch's foreach
operations, as `torch.optim` does, whose classes always correct the bias. Dropout masks depend on their key and index only, so a
resumed run has the same masks.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
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
from trainer.optimizers import Update, is_decayed, slots
from trainer.settings import EngineSettings, OptimizerSettings
from trainer.step import Step
from trainer.tasks.task import Task

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
        elif settings.devices is not None:
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
            if self._precision != "fp16" or torch.isfinite(factor):  # an overflow of fp16 skips the update
                adam(Update(step.ops, self._optimizer, self._state, factor, learning_rate), self._state, gradients)
            gradients = {}  # what is left to change are the counters
        for name, value in step.changes(self._state, gradients, factor, learning_rate):
            self._state[name].copy_(value)
        if self._world.size > 1:
            self._gather_variables()
        return norm

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


def adam(update: Update, state: Arrays, gradients: Arrays) -> None:
    """Update variables and moments in place by Adam, as `trainer.optimizers` does one by one; the gradients are overwritten."""
    settings, epsilon = update.settings, update.settings.epsilon
    variables, work = [state[name] for name in gradients], list(gradients.values())
    means, squares = ([state[slots(settings, name)[index]] for name in gradients] for index in (0, 1))
    torch._foreach_mul_(work, update.factor)
    torch._foreach_mul_(means, update.unless_empty(settings.beta_1, 1.0))
    torch._foreach_add_(means, work, alpha=1 - settings.beta_1)
    torch._foreach_mul_(squares, update.unless_empty(settings.beta_2, 1.0))
    torch._foreach_addcmul_(squares, work, work, value=1 - settings.beta_2)
    roots = torch._foreach_sqrt(squares)
    if settings.bias_correction:
        of_mean = update.correction(settings.beta_1)
        torch._foreach_mul_(roots, of_mean / update.correction(settings.beta_2) ** 0.5)
        epsilon = epsilon * of_mean
    torch._foreach_add_(roots, epsilon)
    torch._foreach_copy_(work, means)
    torch._foreach_div_(work, roots)
    decayed = [name for name in gradients if is_decayed(name)]
    torch._foreach_add_([gradients[name] for name in decayed], [state[name] for name in decayed], alpha=settings.weight_decay)
    torch._foreach_mul_(work, update.learning_rate)
    torch._foreach_sub_(variables, work)


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

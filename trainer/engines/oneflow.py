"""Train BERT on OneFlow 0.9: the operations of the model, the processes as pipelines, and steps as compiled graphs.

    each process     computes the gradients of its micro-batches, and adds them up
    all processes    sum gradients, losses, correct predictions, squared norms of all stages, and requests to stop
    each process     clips by the norm of the sum, and updates its own variables; equal sums make equal updates

Each process has one device. A model is a chain of parts, each on a stage of a pipeline. With several processes, tensors are
global on the ranks of a stage: variables are complete on each, batches are split by sequences. The optimizer runs outside of
the graph, which would fix the learning rate; the SGD in the graph only subtracts the summed gradients from zeros.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

# OneFlow reads this while it is loaded; otherwise it warns of each driver that a machine without GPUs lacks.
os.environ.setdefault("GLOG_minloglevel", "3")

import oneflow as flow
from numpy.typing import NDArray

from bertprep.errors import BertprepError, UsageError
from trainer.engines import Batch, Engine, Processor, State
from trainer.engines import oneflow_pipeline as pipeline
from trainer.engines.choice import choose_execution
from trainer.engines.oneflow_pipeline import COEFFICIENTS, PRIME
from trainer.model import WORDS, Array, Arrays, Bert, Operations
from trainer.model_config import LAYER_NORM_EPSILON, ModelConfig
from trainer.optimizers import slots
from trainer.parts import parts_of
from trainer.settings import EngineSettings, OptimizerSettings
from trainer.step import Step, loss_and_sums
from trainer.tasks.task import Task

_NEWEST_CAPABILITY = (8, 6)  # of the GPUs that the published package was compiled for


class Ops(Operations):
    """OneFlow's operations. Dropout needs `powers_of_units()` on the device."""

    reshape = staticmethod(flow.reshape)
    permute = staticmethod(flow.permute)
    sqrt = staticmethod(flow.sqrt)
    tanh = staticmethod(flow.tanh)
    gelu = staticmethod(flow._C.gelu)
    sum = staticmethod(flow.sum)
    stack = staticmethod(flow.stack)
    square_sum = staticmethod(lambda x: flow.sum(flow.square(x)))
    softmax = staticmethod(partial(flow.softmax, dim=-1))
    cross_entropy = staticmethod(lambda labels, logits: flow._C.sparse_softmax_cross_entropy(logits, labels))
    expm1 = staticmethod(math.expm1)  # the count of updates is a Python number

    def __init__(self, precision: str = "off", powers: Array = None) -> None:
        super().__init__(precision)
        self._powers = powers

    def cast(self, x: Array, dtype: str) -> Array:
        return x.to(getattr(flow, dtype))

    def where(self, condition: Array, x: Array, y: Array) -> Array:
        """Choose between tensors or numbers: the loss scale and the count of updates are Python numbers."""
        if isinstance(condition, bool):
            return x if condition else y
        return flow.where(condition, x, y)

    def is_finite(self, x: Array) -> bool:
        return math.isfinite(float(x.numpy()[0]))

    def is_not_zero(self, x: Array) -> bool:
        return bool((x.numpy() != 0).any())

    def maximum(self, x: Array, least: float) -> Array:
        return flow.clamp(x, min=least)

    def argmax(self, x: Array) -> Array:
        return flow.argmax(x, dim=-1).to(flow.int32)

    def product(self, left: Array, right: Array) -> Array:
        return self.float32(flow._C.matmul(left, right, False, True))

    def look_up(self, table: Array, ids: Array) -> Array:
        return flow._C.gather(table, ids, 0)

    look_up_small = look_up

    def gather_positions(self, x: Array, positions: Array) -> Array:
        hidden = x.shape[-1]
        by_sequence = flow.reshape(x, (positions.shape[0], -1, hidden))
        return flow.reshape(flow._C.batch_gather(by_sequence, positions), (-1, hidden))

    def layer_norm(self, x: Array, gamma: Array, beta: Array) -> Array:
        """Compose LayerNorm of other operations, since OneFlow has none for CPUs."""
        exact = self.float32(x)
        centred = exact - _in_all_columns(flow.mean(exact, dim=-1, keepdim=True), exact)
        variance = flow.mean(flow.square(centred), dim=-1, keepdim=True)
        normal = centred * _in_all_columns(flow.rsqrt(variance + LAYER_NORM_EPSILON), exact)
        return (normal * gamma + beta).to(x.dtype)

    def dropout(self, x: Array, dropout_rate: float, key: Sequence[Array], number: int) -> Array:
        """Apply masks that are computed from NumPy's random numbers, since a graph's random operations cannot be seeded.

        `key` contains four random numbers for each row of each mask. Unit j of a row is dropped if their polynomial is small:

            (a + b j + c j**2 + d j**3) mod 2039  <  dropout_rate * 2039

        Any four of its values are independent. 2039 is the largest prime for which the matrix product is exact in float32.
        """
        powers = flow.narrow(self._powers, 1, 0, x.shape[-1])
        values = flow.fmod(flow.matmul(flow.reshape(key[number - 1], (-1, COEFFICIENTS)), powers), float(PRIME))
        limit = math.ceil(dropout_rate * PRIME)  # values below it are dropped
        kept = flow.trunc(values * (1 / PRIME) + (1 - (limit - 0.5) / PRIME))  # 0 or 1; comparing takes 50 times as long
        kept = flow.reshape(kept, tuple(x.shape)) * (PRIME / (PRIME - limit))
        return (self.float32(x) * kept).to(x.dtype)


def _in_all_columns(column: Array, like: Array) -> Array:
    return flow._C.broadcast_like(column, like)


def powers_of_units() -> NDArray[np.float32]:
    """Return the powers 0 to 3 of each unit's index, modulo 2039, which multiply the coefficients of a row: (4, 2039)."""
    units = np.arange(PRIME)
    return np.stack([units**power % PRIME for power in range(COEFFICIENTS)]).astype(np.float32)


def draw(rng: np.random.Generator, sequences: int, rows: int) -> NDArray[np.float32]:
    """Return the random numbers of a mask that has `rows` rows for each sequence: (sequences, rows * 4)."""
    return rng.integers(0, PRIME, (sequences, rows * COEFFICIENTS), np.uint16).astype(np.float32)


class _Through(flow.autograd.Function):
    """The identity in the forward pass. In the backward pass the gradient goes to another tensor, which SGD updates."""

    @staticmethod
    def forward(ctx: Any, value: Array, gradient: Array) -> Array:  # noqa: ARG004
        return flow._C.identity(value)

    @staticmethod
    def backward(ctx: Any, upstream: Array) -> tuple[None, Array]:  # noqa: ARG004
        return None, upstream


class _Module(flow.nn.Module):
    """A part of the network on its stage, computed by `compute` from a `Bert` and the result of the previous part.

    A variable is a pair of its value and the tensor from which its gradient is subtracted. A run of one process does not need
    that tensor, and its values are parameters.
    """

    def __init__(
        self, compute: Callable[..., Any], features: Sequence[str], make_bert: Callable[..., Bert], stage: int,
        variables: Mapping[str, tuple[Array, Array | None]],
    ) -> None:  # fmt: skip
        super().__init__()
        self.compute, self.features, self.make_bert, self.stage = compute, features, make_bert, stage
        self.variables = list(variables)
        for number, (value, gradient) in enumerate(variables.values()):
            if gradient is None:
                self.register_parameter(f"value_{number}", value)
            else:
                self.register_buffer(f"value_{number}", value)
                self.register_parameter(f"gradient_{number}", gradient)

    def forward(self, batch: Arrays, masks: Sequence[Array], *others: Array) -> Any:
        weights = {name: self._variable(number) for number, name in enumerate(self.variables)}
        return self.compute(self.make_bert(weights, batch, masks or None), *others)

    def _variable(self, number: int) -> Array:
        value = getattr(self, f"value_{number}")
        gradient = getattr(self, f"gradient_{number}", None)
        return value if gradient is None else _Through.apply(value, gradient)


def _head_and_losses(task: Task, bert: Bert, hidden: Array, *divisors: Array) -> list[Array]:
    """Return the scaled loss and the sums of all outputs; without `divisors`, which end with the scale, the logits."""
    logits = task.head(bert, hidden)
    if not divisors:
        return list(logits.values())
    *weight_sums, scale = [flow.narrow(divisors[0], 1, column, 1) for column in range(len(logits) + 1)]
    loss, sums = loss_and_sums(bert.ops, task, bert.batch, logits, dict(zip(logits, weight_sums, strict=True)))
    return [flow.sum(loss * scale), flow.stack(sums)]


class _Graph(flow.nn.Graph):
    """A pass over a batch, which returns the results of `_head_and_losses`.

    In training, the mean gradient of `micro_batches` micro-batches is subtracted from `gradients`. A run of one process gets
    the gradients of `leaves` as further results instead.
    """

    def __init__(
        self, parts: Sequence[_Module], placements: Sequence[Any], gradients: Sequence[Array], micro_batches: int,
        *, leaves: Sequence[Array], recompute: bool,
    ) -> None:  # fmt: skip
        super().__init__()
        self.parts, self._is_training, self._leaves = flow.nn.ModuleList(parts), micro_batches > 0, list(leaves)
        if self._is_training and leaves:
            self.config._train(True)  # an optimizer would do this
        elif self._is_training:
            self.add_optimizer(flow.optim.SGD(gradients, lr=1.0))
        if micro_batches > 1:
            self.config.set_gradient_accumulation_steps(micro_batches)
        settings = [part.to(flow.nn.graph.GraphModule) for part in self.parts]
        if len(placements) > 1:
            for part, of_part in zip(parts, settings, strict=True):
                of_part.set_stage(part.stage, placements[part.stage])
        for of_layer in settings[1:-1]:
            of_layer.activation_checkpointing = recompute and self._is_training

    def build(self, batch: Arrays, masks: Sequence[Sequence[Array]], divisors: Sequence[Array]) -> list[Array]:
        *encoder, head = self.parts
        *masks_of_encoder, masks_of_head = masks
        hidden: list[Array] = []  # the embeddings have no previous part
        for part, of_part in zip(encoder, masks_of_encoder, strict=True):
            hidden = [part(_chosen(batch, part.features), of_part, *hidden)]
        outputs: list[Array] = head(_chosen(batch, head.features), masks_of_head, *hidden, *divisors)
        if self._is_training:
            outputs[0].backward()
            outputs += [leaf.grad for leaf in self._leaves]
            for leaf in self._leaves:
                leaf.grad = None  # a tensor of the graph, which cannot be used outside of it
        return outputs


def _chosen(batch: Arrays, features: Sequence[str]) -> dict[str, Array]:
    """Return these features of a batch, without labels if it has none, since no loss is computed."""
    return {name: batch[name] for name in features if name in batch}


class OneFlowEngine(Engine):
    """Steps of one model on the devices of all processes, each of which has one."""

    packages = (flow,)

    def __init__(self, settings: EngineSettings) -> None:
        self._process, number = _join()
        processor = _open_gpu(number) if flow.cuda.is_available() else Processor()
        pipeline.check_precision(settings, has_accelerator=processor.is_gpu)
        kind = "cuda" if processor.is_gpu else "cpu"
        self._device = flow.device(kind, number)
        rank, world_size, local_rank = self._process.rank, self._process.world_size, self._process.local_rank
        execution = choose_execution(settings, [processor])
        super().__init__(settings, processor, execution, devices=world_size, rank=rank, processes=world_size)
        per_host = max(self.gather(local_rank)) + 1
        if world_size % per_host or rank % per_host != local_rank:
            raise BertprepError(
                f"rank {rank}: has local rank {local_rank}, but a host has {per_host} processes; start the same number of "
                "processes on each host"
            )
        self._pipelines = pipeline.arrange(
            hosts=world_size // per_host, per_host=per_host, stages=settings.stages, strategy=settings.strategy
        )
        if settings.stages > 1:
            self.device_name += f" in pipelines of {settings.stages}"
        self.devices = self.data_world_size = len(self._pipelines)
        self.data_rank = next(number for number, ranks in enumerate(self._pipelines) if rank in ranks)
        self._stage = self._pipelines[self.data_rank].index(rank)
        self._placements = [flow.placement(kind, list(ranks)) for ranks in zip(*self._pipelines, strict=True)]  # of stages

    def prepare(self, model: ModelConfig, optimizer: OptimizerSettings, *, seed: int, task: Task) -> None:
        super().prepare(model, optimizer, seed=seed, task=task)
        self._step = Step(Ops(self.precision), model, task, optimizer)
        self._stages = pipeline.cut(model, self.settings.stages, task)
        self._graphs: dict[tuple[Any, ...], _Graph] = {}  # by the shape of the batch
        *encoder, head = parts_of(model, task)
        self._inputs = {name for part in (*encoder, head) for name in part.features}
        labels = {name for output in task.outputs for name in (output.labels, output.weights)}
        with_losses = replace(head, compute=partial(_head_and_losses, task), features=(*head.features, *labels))
        parts = [*encoder, with_losses]
        self._modules: list[_Module] = []  # of all stages
        self._gradients: list[Array] = []
        self._leaves: list[Array] = []  # the variables, if the run has one process
        for number, stage in enumerate(self._stages):
            zeros = {name: self._tensor(np.zeros(self.variables[name], np.float32)) for name in stage.variables}
            values = {name: self._on_stage(value, number, flow.sbp.broadcast) for name, value in zeros.items()}
            pairs: dict[str, tuple[Array, Array | None]]
            if self.processes == 1:
                pairs = {name: (flow.nn.Parameter(value), None) for name, value in values.items()}
                self._leaves += [value for value, _ in pairs.values()]
            else:
                pairs = {name: (value, flow.nn.Parameter(flow.zeros_like(value))) for name, value in values.items()}
            powers = self._on_stage(self._tensor(powers_of_units()), number, flow.sbp.broadcast)
            make_bert = partial(Bert, Ops(self.precision, powers), model)
            for part in [parts[index] for index in stage.parts]:
                variables = {name: pairs[name] for name in part.variables}
                self._modules.append(_Module(part.compute, part.features, make_bert, number, variables))
            self._gradients += [gradient for _, gradient in pairs.values() if gradient is not None]
            if number == self._stage:
                self._own_gradients = {
                    name: flow.zeros_like(value.data) if gradient is None else _own(gradient)
                    for name, (value, gradient) in pairs.items()
                }
                self._state: dict[str, Any] = {name: _own(value) for name, (value, _) in pairs.items()}
        for name, value in list(self._state.items()):
            self._state |= {slot: flow.zeros_like(value) for slot in slots(optimizer, name)}
        self._state |= {"updates": 0.0, "loss_scale": 1.0, "good_steps": 0.0}

    def start(self, batch: Batch, learning_rate: float, accumulation: int) -> Array:
        keys, stop = batch["dropout_key"], batch["stop"]
        features = {name: rows for name, rows in batch.items() if name not in ("dropout_key", "stop")}
        loss_scale = self._state["loss_scale"]
        scale = self.scaled(loss_scale, accumulation)
        divisors = self._weight_sums_and_scale(features, scale)
        # With several processes, one run of a graph computes all micro-batches, so that stages work at the same time. In one
        # process each micro-batch is a run, since OneFlow's accumulation sometimes gives wrong gradients there.
        runs = accumulation if self.processes == 1 else 1
        micro_batches = accumulation // runs
        for gradient in self._own_gradients.values():
            gradient.zero_()
        sums = 0.0
        for run, keys_of_run in enumerate(np.split(keys, runs)):
            part = {name: np.split(array, runs)[run] for name, array in features.items()}
            masks = self._draw_masks(keys_of_run, part["input_ids"].shape)
            outputs = self._run(part, [divisors], masks, micro_batches)
            sums = sums + self._own_sums(outputs)
            if self._leaves:
                for own, gradient in zip(self._own_gradients.values(), outputs[2:], strict=True):
                    own.sub_(gradient)
        if len(self._stages) > 1 and WORDS in self._own_gradients:
            self._add_other_end(self._own_gradients[WORDS])
        result = self._sum_over_all(flow.cat([sums, self._squared_norm(), self._tensor(stop[:1])]))
        # SGD leaves the negative mean over the micro-batches of a run, not the sum
        scale /= micro_batches
        norm = flow.sqrt(result[-2:-1]) / scale
        factor = self._step.factor(norm, -scale)
        for name, value in self._step.changes(self._state, self._own_gradients, factor, learning_rate):
            if name in self._own_gradients:
                self._state[name].copy_(value)  # in place, since graphs read this memory
            else:
                self._state[name] = value
        return flow.cat([result[:-2], norm, self._tensor(np.array([loss_scale], np.float32)), result[-1:]])

    def sums(self, batch: Batch) -> Array:
        with flow.no_grad():
            return self._sum_over_all(self._own_sums(self._run(batch, [self._weight_sums_and_scale(batch, 1.0)])))

    def logits(self, batch: Batch) -> dict[str, Array]:
        with flow.no_grad():
            found = self._run(_chosen(batch, sorted(self._inputs)))
        if self.processes > 1:
            found = [rows.to_global(sbp=flow.sbp.broadcast).to_local() for rows in found]
        return dict(zip([output.name for output in self.task.outputs], found, strict=True))

    def state(self) -> State:
        arrays = {name: np.array(self._state[name], np.float32) for name, shape in self.shapes.items() if not shape}
        for name, shape in self.variables.items():
            owner = self._pipelines[0][next(n for n, stage in enumerate(self._stages) if name in stage.variables)]
            for each in (name, *slots(self.optimizer, name)):
                tensor = self._state[each] if each in self._state else flow.empty(*shape, device=self._device)
                if owner > 0:
                    flow.comm.broadcast(tensor, owner)
                if self.is_first:
                    arrays[each] = tensor.numpy().copy()  # on a CPU, numpy() shares the tensor's memory
        return arrays

    def restore(self, state: State) -> None:
        for name in [name for name in self._state if name in state]:  # in the same order in all processes
            if self.shapes[name]:
                self._state[name].copy_(self._tensor(state[name]))
            else:
                self._state[name] = float(state[name])

    def gather(self, number: int) -> list[int]:
        own = np.zeros(self._process.world_size)
        own[self._process.rank] = number
        return [round(each) for each in self._sum_over_all(self._tensor(own)).numpy().tolist()]

    def _tensor(self, array: NDArray[Any]) -> Array:
        return flow.tensor(np.ascontiguousarray(array), device=self._device)

    def _on_stage(self, own: Array, stage: int, sbp: Any) -> Array:
        """Return the tensor of a stage to which this process contributes `own`."""
        if self.processes == 1:
            return own
        return flow._C.to_global(own, self._placements[stage], [sbp], [], False)

    def _sum_over_all(self, own: Array) -> Array:
        if self._process.world_size > 1:
            flow.comm.all_reduce(own)
        return own

    def _add_other_end(self, own: Array) -> None:
        ranks = self._pipelines[self.data_rank]
        other = ranks[-1] if self._stage == 0 else ranks[0]
        if self._stage == 0:
            flow.comm.send(own, other, send_meta=False)
        received = flow.comm.recv(other, shape=own.shape, dtype=own.dtype, device=own.device)
        if self._stage > 0:
            flow.comm.send(own, other, send_meta=False)
        own.add_(received)

    def _weight_sums_and_scale(self, batch: Batch, scale: float) -> Array:
        """Return the global batch's divisor of each output's loss, and the loss scale: (1, outputs + 1)."""
        own = np.array([[batch[output.weights].sum() for output in self.task.outputs]], np.float32)
        summed = self._sum_over_all(self._tensor(own * (self._stage == 0)))  # one process of each pipeline
        return flow.cat([summed, self._tensor(np.array([[scale]], np.float32))], dim=1)

    def _draw_masks(self, keys: NDArray[np.int32], shape: Sequence[int]) -> list[list[Array]]:
        sequences, rngs = shape[0] // len(keys), [np.random.default_rng(key) for key in keys]
        rows_of_parts = [part.mask_rows for part in parts_of(self.model, self.task, seq=shape[1])]
        return [
            [self._rows(np.concatenate([draw(rng, sequences, rows) for rng in rngs]), module.stage) for rows in rows_of_part]
            for module, rows_of_part in zip(self._modules, rows_of_parts, strict=True)
        ]

    def _stage_of(self, feature: str) -> int:
        """Return the first stage that reads a feature."""
        return next((module.stage for module in self._modules if feature in module.features), len(self._stages) - 1)

    def _rows(self, array: NDArray[Any], stage: int) -> Array:
        return self._on_stage(self._tensor(array), stage, flow.sbp.split(0))

    def _run(
        self, batch: Batch, divisors: Sequence[Array] = (), masks: Sequence[Sequence[Array]] = (), micro_batches: int = 0
    ) -> list[Array]:
        last = len(self._stages) - 1
        features = {name: self._rows(array, self._stage_of(name)) for name, array in batch.items()}
        repeated = [each.repeat(max(1, micro_batches), 1) for each in divisors]  # one row per micro-batch
        placed = [self._on_stage(each, last, flow.sbp.broadcast) for each in repeated]
        key = (micro_batches, len(placed), *(array.shape for array in batch.values()))
        if key not in self._graphs:
            self._graphs[key] = _Graph(
                self._modules, self._placements, self._gradients, micro_batches,
                leaves=self._leaves if micro_batches else (), recompute=self.settings.checkpoint_activations,
            )  # fmt: skip
        outputs: list[Array] = self._graphs[key](features, masks or [[] for _ in self._modules], placed)
        for gradient in self._gradients:
            gradient.grad = None  # a tensor of this graph, which the next graph must not add to
        return outputs

    def _own_sums(self, outputs: Sequence[Array]) -> Array:
        """Return this process's addends to the sums of all micro-batches: zeros except in the last stage."""
        count = 3 * len(self.task.outputs)
        if self._stage < len(self._stages) - 1:
            return flow.zeros(count, device=self._device)
        own = outputs[1]
        if self.processes > 1:
            own = own.to_global(sbp=flow.sbp.partial_sum).to_local()
        return own.reshape(-1, count).sum(0)

    def _squared_norm(self) -> Array:
        """Return this process's addend to the squared norm of all gradients, each of which counts once: (1,)."""
        counted = [tensor for name, tensor in self._own_gradients.items() if name != WORDS or self._stage == 0]
        squares = sum(self._step.ops.square_sum(tensor) for tensor in counted)
        return squares.reshape(1) * float(self.data_rank == 0)


open_engine = OneFlowEngine


def _own(variable: Array) -> Array:
    data = variable.data
    return data.to_local() if data.is_global else data


def _join() -> tuple[pipeline.Process, int]:
    """Return this process's ranks, and the index of its device on the machine.

    OneFlow counts machines by network address. Several launchers on one machine count as several hosts here, but their
    processes share its devices, so the index may differ from the launcher's LOCAL_RANK, which it replaces.
    """
    process = pipeline.read_process(os.environ) if flow.env.get_world_size() > 1 else pipeline.Process()
    number = process.rank % (process.world_size // flow.env.get_node_size())
    os.environ["LOCAL_RANK"] = str(number)
    return process, number


def _open_gpu(number: int) -> Processor:
    if number >= flow.cuda.device_count():
        raise UsageError(
            f"process {number} of this host: the host has only {flow.cuda.device_count()} GPUs; start one process per GPU"
        )
    name, capability = flow.cuda.get_device_name(number), tuple(flow.cuda.get_device_capability(number))
    if capability > _NEWEST_CAPABILITY:
        raise UsageError(
            f"{name}: OneFlow 0.9.0 supports GPUs of capability 6.0 to 8.6, but this one has {'.'.join(map(str, capability))}; "
            "set CUDA_VISIBLE_DEVICES= to run on the CPU, or use --engine tensorflow"
        )
    flow.cuda.set_device(number)
    return Processor(str(name), capability, is_gpu=True)

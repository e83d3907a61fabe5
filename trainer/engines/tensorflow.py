"""Train BERT on TensorFlow: the operations of the model, the devices as a `tf.distribute` strategy, and the step on them.

    each device    computes the gradients of its micro-batches, one after another, and adds them up
    all devices    sum gradients, losses, correct predictions and requests to stop
    each device    clips by the norm of the sum, and updates its own copy of the variables; equal sums make equal updates

Devices have variables of their own, since assignments to mirrored ones would go through all devices. Losses are divided by the
totals of the global batch. Sums are float32. With XLA, everything between two collectives is compiled.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from functools import cache, partial
from typing import Any

import numpy as np

# TensorFlow reads this while it is loaded. Its warnings are for its developers.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import tensorflow as tf

from bertprep.errors import UsageError
from trainer.engines import Batch, Engine, Processor, State, rows_of_devices
from trainer.engines.choice import check_gpus, choose_execution
from trainer.model import Array, Arrays, Operation, Operations
from trainer.model_config import LAYER_NORM_EPSILON, ModelConfig
from trainer.settings import EngineSettings, OptimizerSettings
from trainer.step import Step
from trainer.tasks.task import Task

_function = partial(tf.function, autograph=False)  # no Python branch here depends on a tensor


class Ops(Operations):
    """TensorFlow's operations. Their gradients have the same bits each time where `--deterministic on` asks for that."""

    cast = staticmethod(tf.cast)
    reshape = staticmethod(tf.reshape)
    permute = staticmethod(tf.transpose)
    where = staticmethod(tf.where)
    maximum = staticmethod(tf.maximum)
    is_finite = staticmethod(tf.math.is_finite)
    is_not_zero = staticmethod(lambda x: x != 0)
    sqrt = staticmethod(tf.sqrt)
    expm1 = staticmethod(tf.math.expm1)
    tanh = staticmethod(tf.tanh)
    gelu = staticmethod(lambda x: x * (0.5 * tf.math.erf(x * math.sqrt(0.5)) + 0.5))
    softmax = staticmethod(tf.nn.softmax)
    sum = staticmethod(tf.reduce_sum)
    stack = staticmethod(tf.stack)
    square_sum = staticmethod(lambda x: 2 * tf.nn.l2_loss(x))
    look_up = staticmethod(tf.gather)
    argmax = staticmethod(partial(tf.argmax, axis=-1, output_type=tf.int32))
    add_bias = staticmethod(tf.nn.bias_add)  # adds, and sums its gradient, in half the time of a plain addition

    def project(self, x: Array, kernels: Sequence[Array], biases: Sequence[Array]) -> Any:
        """Apply the layers as one product, since the gradients of three uses of `x` would be added in varying order."""
        return tf.split(self.dense(x, tf.concat(kernels, 1), tf.concat(biases, 0)), len(kernels), 1)

    def product(self, left: Array, right: Array) -> Array:
        return self.float32(tf.matmul(left, right, transpose_b=True))

    def look_up_small(self, table: Array, ids: Array) -> Array:
        return tf.matmul(tf.one_hot(ids, table.shape[0]), table)

    def gather_positions(self, x: Array, positions: Array) -> Array:
        hidden = x.shape[-1]
        by_sequence = tf.reshape(x, (positions.shape[0], -1, hidden))
        return tf.reshape(tf.gather(by_sequence, positions, batch_dims=1), (-1, hidden))

    def layer_norm(self, x: Array, gamma: Array, beta: Array) -> Array:
        exact = self.float32(x)
        centred = exact - tf.reduce_mean(exact, axis=-1, keepdims=True)
        variance = tf.reduce_mean(tf.square(centred), axis=-1, keepdims=True)
        normal = centred * tf.math.rsqrt(variance + LAYER_NORM_EPSILON)
        return tf.cast(self.add_bias(normal * gamma, beta), x.dtype)

    def dropout(self, x: Array, dropout_rate: float, key: Array, number: int) -> Array:
        """Draw and multiply in float32, since bfloat16 cannot represent 0.1 or 1.1111."""
        kept = tf.random.stateless_uniform(x.shape, tf.add(key, [0, number])) >= dropout_rate
        return tf.cast(self.float32(x) * (self.float32(kept) * (1 / (1 - dropout_rate))), x.dtype)

    def cross_entropy(self, labels: Array, logits: Array) -> Array:
        """Multiply by 0 and 1 to find the label's logit, since the deterministic gradient of a gather takes twice the time.

        `tf.nn.sparse_softmax_cross_entropy_with_logits` gathers too where `--deterministic on` refuses its kernel.
        """
        of_label = tf.reduce_sum(logits * tf.one_hot(labels, logits.shape[-1]), axis=-1)
        return tf.reduce_logsumexp(logits, axis=-1) - of_label


class TensorFlowEngine(Engine):
    """Steps of one model on the devices of all processes, run by one of TensorFlow's strategies."""

    packages = (tf,)
    failures = tuple(getattr(tf.errors, f"{kind}Error") for kind in ("ResourceExhausted", "Aborted", "Internal", "Unavailable"))

    def __init__(self, settings: EngineSettings) -> None:
        if settings.deterministic == "on":
            tf.config.experimental.enable_op_determinism()  # otherwise GPUs add up embedding gradients in any order
        if settings.hosts:  # TensorFlow reads them from TF_CONFIG
            worker = {"type": "worker", "index": settings.host_rank}
            os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": settings.hosts}, "task": worker})
        rank, processes = settings.host_rank or 0, max(1, len(settings.hosts))
        gpus = _choose_gpus(settings)
        count = len(gpus) or _make_logical_cpus(settings, processes)
        self._names = tuple(f"{'GPU' if gpus else 'CPU'}:{number}" for number in range(count))
        self._strategy = _strategy_on(self._names, processes)
        processors = [_processor(gpu) for gpu in gpus] or [Processor()]
        execution = choose_execution(settings, processors)
        devices = int(self._strategy.num_replicas_in_sync)
        super().__init__(settings, processors[0], execution, devices=devices, rank=rank, processes=processes)
        self._sum = self._on_all(self._sum_over_all)

    def prepare(self, model: ModelConfig, optimizer: OptimizerSettings, *, seed: int, task: Task) -> None:
        super().prepare(model, optimizer, seed=seed, task=task)
        self._step = Step(Ops(self.precision), model, task, optimizer)
        self._replicas = []
        for device in self._names:
            with tf.device(device):
                self._replicas.append({name: tf.Variable(tf.zeros(shape)) for name, shape in self.shapes.items()})
        # A function even without XLA, so that it is traced only once for the first micro-batch and the loop over the others
        self._compute_gradients = _function(self._gradients, jit_compile=self.execution.xla)
        compiled: Operation = partial(_function, jit_compile=True) if self.execution.xla else lambda function: function
        self._make_update = compiled(self._update)
        self._compute_sums, self._compute_logits = compiled(self._step.sums), compiled(self._step.logits)
        self._train = self._on_all(self._train_on_one)
        self._evaluate = self._on_all(self._evaluate_on_one)
        self._predict = self._on_all(self._predict_on_one)

    def start(self, batch: Batch, learning_rate: float, accumulation: int) -> Array:
        return self._train(self._spread(batch, accumulation), tf.constant(learning_rate, tf.float32))

    def sums(self, batch: Batch) -> Array:
        return self._evaluate(self._spread(batch, 1))

    def logits(self, batch: Batch) -> Any:
        return self._predict(self._spread(batch, 1))

    def state(self) -> State:
        return {name: variable.numpy() for name, variable in self._replicas[0].items()}

    def restore(self, state: State) -> None:
        for variables in self._replicas:
            for name in variables.keys() & state.keys():
                variables[name].assign(state[name])

    def gather(self, number: int) -> list[int]:
        own = np.zeros(self.processes)
        own[self.data_rank] = number / len(self._names)  # each of this process's devices adds its share
        with self.errors_in_a_line():
            return [round(each) for each in self._sum(tf.constant(own)).numpy().tolist()]

    def peak_memory(self) -> int | None:
        return int(tf.config.experimental.get_memory_info("GPU:0")["peak"]) if self.has_accelerator else None

    def _spread(self, batch: Batch, accumulation: int) -> Any:
        """Split this process's rows into a tensor per device: (micro-batches, rows of a micro-batch, ...)."""
        replicas = len(self._replicas)
        parts = rows_of_devices(batch, accumulation, replicas)

        def of_replica(context: Any) -> dict[str, Array]:
            number = context.replica_id_in_sync_group - self.data_rank * replicas
            return {name: tf.constant(array) for name, array in parts[number].items()}

        return self._strategy.experimental_distribute_values_from_function(of_replica)

    def _on_all(self, compute: Operation) -> Any:
        def run(*arguments: Any) -> Any:
            return self._strategy.experimental_local_results(self._strategy.run(compute, args=arguments))[0]

        return _function(run)

    def _sum_over_all(self, values: Any) -> Any:
        if self.devices == 1:
            return values
        own = tf.nest.map_structure(tf.identity, values)  # a copy on this device, since a shared tensor cannot be summed
        return tf.distribute.get_replica_context().all_reduce("SUM", own)

    def _replica(self) -> dict[str, Any]:
        number = tf.distribute.get_replica_context().replica_id_in_sync_group  # an integer, or a constant tensor
        number = int(tf.get_static_value(tf.convert_to_tensor(number)))
        return self._replicas[number - self.data_rank * len(self._replicas)]

    def _weights(self) -> dict[str, Array]:
        variables = self._replica()
        return {name: tf.identity(variables[name]) for name in self.variables}

    def _train_on_one(self, batch: Arrays, learning_rate: Array) -> Array:
        variables, accumulation = self._replica(), batch["input_ids"].shape[0]
        loss_scale = tf.identity(variables["loss_scale"])
        scale = self.scaled(loss_scale, accumulation)
        weight_sums = self._sum_over_all(self._step.weight_sums(batch))
        compute = partial(self._compute_gradients, self._weights(), weight_sums=weight_sums, scale=scale)
        gradients, sums, stops = self._sum_over_all((*_add_up(compute, batch, accumulation), batch["stop"][0, 0]))
        norm = self._make_update(variables, gradients, learning_rate, scale)
        return tf.concat([sums, tf.stack([norm, loss_scale, stops])], 0)

    def _gradients(self, weights: Arrays, part: Arrays, *, weight_sums: Arrays, scale: Any) -> tuple[dict[str, Array], Any]:
        with tf.GradientTape() as tape:
            tape.watch(weights)
            loss, sums = self._step.micro_batch(weights, part, weight_sums, scale)
        gradients = tape.gradient(loss, weights)  # that of a table which is looked up is a list of rows
        return {name: tf.convert_to_tensor(gradient) for name, gradient in gradients.items()}, sums

    def _update(self, variables: Mapping[str, Any], gradients: Arrays, learning_rate: Array, scale: Any) -> Array:
        norm = self._step.norm({name: gradients[name] for name in self.variables}, scale)
        for name, value in self._step.changes(variables, gradients, self._step.factor(norm, scale), learning_rate):
            variables[name].assign(value)
        return norm

    def _evaluate_on_one(self, batch: Arrays) -> Array:
        return self._sum_over_all(self._compute_sums(self._weights(), {name: values[0] for name, values in batch.items()}))

    def _predict_on_one(self, batch: Arrays) -> dict[str, Array]:
        own = self._compute_logits(self._weights(), {name: values[0] for name, values in batch.items()})
        if self.devices > 1:
            own = {name: tf.distribute.get_replica_context().all_gather(rows, axis=0) for name, rows in own.items()}
        return dict(own)


open_engine = TensorFlowEngine


def _add_up(compute: Operation, batch: Arrays, accumulation: int) -> Any:
    first = compute({name: values[0] for name, values in batch.items()})
    if accumulation == 1:
        return first

    def add(number: Array, total: Any) -> tuple[Array, Any]:
        part = compute({name: values[number] for name, values in batch.items()})
        return number + 1, tf.nest.map_structure(tf.add, total, part)

    return tf.while_loop(lambda number, _: number < accumulation, add, (tf.constant(1), first), parallel_iterations=1)[1]


def _choose_gpus(settings: EngineSettings) -> list[Any]:
    gpus: list[Any] = tf.config.list_physical_devices("GPU")
    check_gpus(settings, len(gpus))
    gpus = gpus[: settings.devices]
    tf.config.set_visible_devices(gpus, "GPU")
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)
    return gpus


def _make_logical_cpus(settings: EngineSettings, world_size: int) -> int:
    count = settings.devices or 1
    if world_size > 1 and count > 1:
        raise UsageError(
            f"--devices {count}: several hosts without GPUs can have one device each; start more processes instead"
        )
    cpu = tf.config.list_physical_devices("CPU")[0]
    have = tf.config.get_logical_device_configuration(cpu)
    if count > 1 and (have is None or len(have) < count):
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * count)
    return count


@cache  # so that all engines of a process share one strategy, and no two sum over the same devices
def _strategy_on(names: tuple[str, ...], world_size: int) -> Any:
    if world_size == 1:
        return tf.distribute.MirroredStrategy(names) if len(names) > 1 else tf.distribute.get_strategy()
    # By default TensorFlow sums over hosts by its own rings, through the CPU
    kinds = tf.distribute.experimental.CommunicationImplementation
    kind = kinds.NCCL if names[0].startswith("GPU") else kinds.RING
    options = tf.distribute.experimental.CommunicationOptions(implementation=kind)
    return tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)


def _processor(gpu: Any) -> Processor:
    details = tf.config.experimental.get_device_details(gpu)
    return Processor(details.get("device_name", "GPU"), details.get("compute_capability"), is_gpu=True)

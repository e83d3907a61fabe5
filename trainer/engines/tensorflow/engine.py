"""The step on TensorFlow: forward and backward of every micro-batch on every device, one sum over all, one update.

    device      for each of its micro-batches: its part of the global loss -> gradients, added up
    all         sum of gradients, losses and hits
    device      clip by the norm of the sum, update its own copy of the variables: the same sum makes the same update

Each device has variables of its own rather than mirrored ones, whose every assignment would go through all devices again. A
loss is divided by the totals of the whole global batch, so that nothing depends on how the batch is split. Sums are float32 in
every precision. With XLA, everything between two collectives is compiled.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from bertprep.errors import BertprepError
from bertprep.records import Examples
from trainer.batches import features
from trainer.engines import Engine, LossScale, State, dropout_keys, heads_of, parts_factor
from trainer.engines.tensorflow.devices import Devices, open_devices
from trainer.engines.tensorflow.model import Encoder, Weights, gradients_of_variables, prepare_weights
from trainer.engines.tensorflow.optimizers import make_slots, update_variables
from trainer.metrics import StepResult
from trainer.model_config import ModelConfig
from trainer.settings import EngineSettings, OptimizerSettings
from trainer.tasks import Sums, Task
from trainer.tasks.pretraining import PRETRAINING
from trainer.weights import initial_values

Tensor: TypeAlias = Any
_COMPUTE_DTYPES = {"off": tf.float32, "fp16": tf.float16, "bf16": tf.bfloat16}


def open_engine(settings: EngineSettings) -> TensorFlowEngine:
    """The engine on the devices of this process; see `trainer.engines.Engine`."""
    return TensorFlowEngine(settings, open_devices(settings))


class TensorFlowEngine(Engine):
    """Steps of one model on the devices of all processes, by one of TensorFlow's strategies."""

    def __init__(self, settings: EngineSettings, devices: Devices) -> None:
        self._settings, self._local, self._strategy = settings, devices, devices.strategy
        self._replicas: list[_Replica] = []
        self.data_rank, self.data_world_size = devices.rank, devices.world_size
        self.processes, self.is_first = devices.world_size, devices.rank == 0
        self.devices = int(self._strategy.num_replicas_in_sync)
        self.device_name = devices.kind if self.devices == 1 else f"{self.devices} x {devices.kind}"
        self.has_accelerator = devices.has_gpu
        self.execution = devices.execution
        self.versions = {"tensorflow": tf.__version__, "python": platform.python_version()}

    def build(self, model: ModelConfig, optimizer: OptimizerSettings, *, seed: int, task: Task = PRETRAINING) -> None:
        self._seed, self._task, self._heads = seed, task, heads_of("tensorflow", task)
        values = initial_values(model, seed, task)
        function = partial(tf.function, autograph=False)  # no Python branch here depends on a tensor
        self._replicas = []
        for name in self._local.names:
            with tf.device(name):
                self._replicas.append(
                    _Replica(self._heads, model, optimizer, values, self.precision, self.execution.xla, function)
                )
        self._train, self._evaluate = function(self._train_on_all), function(self._evaluate_on_all)
        self._predict = function(self._predict_on_all)
        self.restart()

    def restart(self) -> None:
        for replica in self._replicas:
            replica.restart(self._settings.loss_scale)

    def train(
        self, examples: Examples, *, step: int, learning_rate: float, accumulation: int, stop: bool
    ) -> Callable[[], StepResult]:
        parts = accumulation * len(self._replicas)
        keys = dropout_keys(self._seed, step, range(self.data_rank * parts, (self.data_rank + 1) * parts))
        batch = self._spread({**features(examples), "dropout_key": keys}, accumulation)
        with self._explained():
            result = self._train(batch, tf.constant(learning_rate, tf.float32), tf.constant(float(stop)))

        def wait() -> StepResult:
            with self._explained():
                *sums, norm, scale, stops = result.numpy().tolist()
                return StepResult(self._task.sums(*sums), norm, scale, is_stop_wanted=stops > 0)

        return wait

    def evaluate(self, examples: Examples, row_weights: NDArray[np.float32]) -> Sums:
        batch = self._spread({**features(examples), "row_weights": row_weights}, 1)
        with self._explained():
            return self._task.sums(*self._evaluate(batch).numpy().tolist())

    def predict(self, examples: Examples) -> dict[str, NDArray[np.float32]]:
        batch = self._spread(features(examples), 1)
        with self._explained():
            return {name: rows.numpy() for name, rows in self._predict(batch)._asdict().items()}

    def state(self) -> State:
        return {name: variable.numpy() for name, variable in self._replicas[0].all_variables.items()}

    def restore(self, state: State) -> None:
        for replica in self._replicas:
            for name, variable in replica.all_variables.items():
                if name in state:
                    variable.assign(state[name])

    def gather(self, number: int) -> list[int]:
        if self.data_world_size == 1:
            return [number]
        own = np.zeros(self.data_world_size)
        own[self.data_rank] = number / len(self._replicas)  # each of this process's devices adds its part

        run = tf.function(
            lambda: self._first(self._strategy.run(self._sum_over_all, args=(tf.constant(own),))), autograph=False
        )
        with self._explained():
            return [round(value) for value in run().numpy().tolist()]

    def peak_memory(self) -> int | None:
        return int(tf.config.experimental.get_memory_info("GPU:0")["peak"]) if self.has_accelerator else None

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """The two failures of a machine that a user meets, in a line each."""
        try:
            yield
        except tf.errors.ResourceExhaustedError as error:
            raise BertprepError(
                f"{self.device_name}: out of memory; give a smaller --batch-size, and --accumulate for the same global batch"
            ) from error
        except (tf.errors.AbortedError, tf.errors.InternalError, tf.errors.UnavailableError) as error:
            if self.data_world_size == 1:
                raise
            raise BertprepError(
                f"process {self.data_rank} of {self.data_world_size}: another one is gone ({str(error).splitlines()[0]}); "
                "start all of them again, they resume from the newest checkpoint"
            ) from error

    def _spread(self, arrays: Mapping[str, NDArray[Any]], accumulation: int) -> Any:
        """Rows of this process as tensors (micro-batches, rows of one, ...) of each of its devices."""
        replicas = len(self._replicas)
        split = {name: a.reshape(accumulation, replicas, -1, *a.shape[1:]) for name, a in arrays.items()}

        def of_replica(context: Any) -> dict[str, Tensor]:
            number = context.replica_id_in_sync_group - self.data_rank * replicas
            return {name: tf.constant(array[:, number]) for name, array in split.items()}

        return self._strategy.experimental_distribute_values_from_function(of_replica)

    def _first(self, values: Any) -> Any:
        """One device's, where all have the same."""
        return self._strategy.experimental_local_results(values)[0]

    def _sum_over_all(self, values: Any) -> Any:
        """Sums over the devices of all processes; called on each of them."""
        if self.devices == 1:
            return values
        own = tf.nest.map_structure(tf.identity, values)  # on this device: one tensor in common cannot be summed
        return tf.distribute.get_replica_context().all_reduce("SUM", own)

    def _replica(self) -> _Replica:
        """That of the device which is being traced."""
        number = tf.distribute.get_replica_context().replica_id_in_sync_group  # an integer, or a constant tensor
        number = int(tf.get_static_value(tf.convert_to_tensor(number))) - self.data_rank * len(self._replicas)
        return self._replicas[number]

    def _train_on_all(self, batch: Any, learning_rate: Tensor, stop: Tensor) -> Tensor:
        return self._first(self._strategy.run(self._train_on_one, args=(batch, learning_rate, stop)))

    def _train_on_one(self, batch: Mapping[str, Tensor], learning_rate: Tensor, stop: Tensor) -> Tensor:
        replica, accumulation = self._replica(), batch["input_ids"].shape[0]
        totals = self._sum_over_all(self._heads.totals(batch))
        parts = tf.constant(parts_factor(accumulation * self.devices))
        compute = partial(replica.gradients, replica.prepare(), totals=totals, parts=parts)
        gradients, sums, stops = self._sum_over_all((*_add_up(compute, batch, accumulation), stop))
        norm, scale = replica.update(gradients, learning_rate, parts)
        return tf.stack([*sums, norm, scale, stops])

    def _evaluate_on_all(self, batch: Any) -> Tensor:
        return self._first(self._strategy.run(self._evaluate_on_one, args=(batch,)))

    def _evaluate_on_one(self, batch: Mapping[str, Tensor]) -> Tensor:
        return self._sum_over_all(tf.stack(self._replica().sums({name: values[0] for name, values in batch.items()})))

    def _predict_on_all(self, batch: Any) -> Any:
        return self._first(self._strategy.run(self._predict_on_one, args=(batch,)))

    def _predict_on_one(self, batch: Mapping[str, Tensor]) -> Any:
        """The logits of all devices' rows: replicas are numbered through all ranks, as the rows of a global batch are."""
        own = self._replica().logits({name: values[0] for name, values in batch.items()})
        if self.devices == 1:
            return own
        return type(own)(*(tf.distribute.get_replica_context().all_gather(rows, axis=0) for rows in own))


class _Replica:
    """What one device keeps and computes; `gradients`, `update`, `sums` and `logits` are what XLA compiles."""

    def __init__(
        self,
        heads: Any,
        model: ModelConfig,
        optimizer: OptimizerSettings,
        values: Mapping[str, NDArray[np.float32]],
        precision: str,
        xla: bool,
        function: Callable[..., Any],
    ) -> None:
        self._heads, self._model, self._optimizer = heads, model, optimizer
        self._compute_dtype, self._is_scaled = _COMPUTE_DTYPES[precision], precision == "fp16"
        self.variables = {name: tf.Variable(value, name=name) for name, value in values.items()}
        self._slots = make_slots(self.variables)
        self._updates = tf.Variable(0.0)  # of this phase
        self._loss_scale = LossScale(tf.Variable(0.0), tf.Variable(0.0))
        self.gradients = function(self._gradients, jit_compile=xla)  # traced once for the first micro-batch and the loop
        # A function of its own costs a second capture of every variable, which without XLA gives nothing
        self.update: Callable[..., Any] = function(self._update, jit_compile=True) if xla else self._update
        self.sums: Callable[..., Any] = function(self._sums, jit_compile=True) if xla else self._sums
        self.logits: Callable[..., Any] = function(self._logits, jit_compile=True) if xla else self._logits

    @property
    def all_variables(self) -> dict[str, Any]:
        """By the names that they have in a checkpoint; moments have those of Google's."""
        return {**self.variables, **self._phase_variables}

    @property
    def _phase_variables(self) -> dict[str, Any]:
        named = {f"{name}/adam_{which}": slot for name, slots in self._slots.items() for which, slot in slots._asdict().items()}
        return {
            **named,
            "updates": self._updates,
            "loss_scale": self._loss_scale.scale,
            "good_steps": self._loss_scale.good_steps,
        }

    def restart(self, loss_scale: float) -> None:
        for variable in self._phase_variables.values():
            variable.assign(tf.zeros(variable.shape))
        self._loss_scale.scale.assign(loss_scale if self._is_scaled else 1.0)

    def prepare(self) -> Weights:
        return prepare_weights(self._model, self.variables, self._compute_dtype)

    def _gradients(
        self, weights: Weights, part: Mapping[str, Tensor], *, totals: list[Tensor], parts: Tensor
    ) -> tuple[dict[str, Tensor], Sums]:
        """The gradients of prepared weights, float32, and what the micro-batch adds to the losses."""
        with tf.GradientTape() as tape:
            tape.watch(weights)
            sums = self._heads.sums(Encoder(self._model, weights, part["dropout_key"][0]), part)
            loss = self._heads.loss(sums, totals) * self._scale(parts)
        gradients = tape.gradient(loss, weights)
        return {name: tf.cast(gradient, tf.float32) for name, gradient in gradients.items()}, sums

    def _update(self, gradients: Mapping[str, Tensor], learning_rate: Tensor, parts: Tensor) -> tuple[Tensor, Tensor]:
        """The norm before clipping, and the loss scale that these gradients had."""
        norm = update_variables(
            self.variables,
            gradients_of_variables(self._model, gradients),
            self._slots,
            learning_rate=learning_rate,
            update=self._updates + 1,
            settings=self._optimizer,
            scale=self._scale(parts),
            skips=self._is_scaled,
        )
        if not self._is_scaled:
            self._updates.assign_add(1.0)
            return norm, tf.constant(1.0)
        is_finite, now = tf.math.is_finite(norm), LossScale(*map(tf.identity, self._loss_scale))
        for variable, value in zip(self._loss_scale, now.after(is_finite, tf.where), strict=True):
            variable.assign(value)
        self._updates.assign_add(tf.cast(is_finite, tf.float32))
        return norm, now.scale

    def _scale(self, parts: Tensor) -> Tensor:
        return self._loss_scale.scale * parts if self._is_scaled else 1.0

    def _sums(self, part: Mapping[str, Tensor]) -> Sums:
        sums: Sums = self._heads.sums(Encoder(self._model, self.prepare()), part, part["row_weights"])
        return sums

    def _logits(self, part: Mapping[str, Tensor]) -> Any:
        return self._heads.logits(Encoder(self._model, self.prepare()), part)


def _add_up(compute: Callable[..., Any], batch: Mapping[str, Tensor], accumulation: int) -> Any:
    """What `compute` gives for each micro-batch, summed; one after another, for the memory of one."""
    first = compute({name: values[0] for name, values in batch.items()})
    if accumulation == 1:
        return first

    def add(number: Tensor, total: Any) -> tuple[Tensor, Any]:
        part = compute({name: values[number] for name, values in batch.items()})
        return number + 1, tf.nest.map_structure(tf.add, total, part)

    return tf.while_loop(lambda number, _: number < accumulation, add, (tf.constant(1), first), parallel_iterations=1)[1]

"""The step on TensorFlow: forward and backward of every micro-batch on every device, one sum over all, one update.

    device      for each of its micro-batches: share of the global loss -> gradients, added up
    all         sum of gradients, losses and hits
    device      clip by the norm of the sum, update its own copy of the variables: the same sum makes the same update

Each device has variables of its own rather than mirrored ones, whose every assignment would go through all devices again.
A loss is divided by the masked-LM weight of the whole global batch, so that nothing depends on how the batch is cut. Sums are
float32 in every precision. With XLA, what lies between two collectives is compiled.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from bertprep.errors import BertprepError, UsageError
from bertprep.records import Examples
from trainer.batches import features
from trainer.engines import State
from trainer.engines.dropout_key import dropout_key
from trainer.engines.loss_scale import LossScale, parts_factor
from trainer.engines.tensorflow.devices import Devices, open_devices
from trainer.engines.tensorflow.loss_scale import next_loss_scale
from trainer.engines.tensorflow.model import (
    Weights,
    float32_gradients,
    gradients_of_variables,
    loss_share,
    make_variables,
    prepare_weights,
    pretraining_sums,
)
from trainer.engines.tensorflow.optimizers import Slots, make_slots, update_variables
from trainer.metrics import StepResult
from trainer.model_config import ModelConfig
from trainer.settings import EngineSettings, OptimizerSettings
from trainer.tasks.pretraining import PretrainingSums
from trainer.weights import initial_values

Tensor: TypeAlias = Any
_COMPUTE_DTYPES = {"off": "float32", "fp16": "float16", "bf16": "bfloat16"}
_COUNTS = ("updates", "loss_scale", "good_steps")


def open_engine(settings: EngineSettings) -> TensorFlowEngine:
    """The engine on the devices of this process; see `trainer.engines.Engine`."""
    if keras.backend.backend() != "tensorflow":
        raise UsageError(f"Keras was loaded before, on {keras.backend.backend()}; set KERAS_BACKEND=tensorflow before that")
    return TensorFlowEngine(settings, open_devices(settings))


@dataclass(frozen=True)
class _Replica:
    """What one device keeps."""

    variables: Mapping[str, Any]
    slots: list[Slots]
    updates: Any  # how many were made in this phase
    loss_scale: LossScale

    @property
    def all_variables(self) -> dict[str, Any]:
        """By the names that they have in a checkpoint; moments have those of Google's."""
        named = dict(self.variables)
        for name, slots in zip(self.variables, self.slots, strict=True):
            named[f"{name}/adam_m"], named[f"{name}/adam_v"] = slots
        return {**named, **dict(zip(_COUNTS, (self.updates, *self.loss_scale), strict=True))}


class TensorFlowEngine:
    """Steps of one model on the devices of all processes, by a strategy of TensorFlow's."""

    def __init__(self, settings: EngineSettings, devices: Devices) -> None:
        self._settings, self._local = settings, devices
        self._strategy = devices.strategy
        self._replicas: list[_Replica] = []
        self.data_rank, self.data_world_size = devices.rank, devices.world_size
        self.processes, self.is_first = devices.world_size, devices.rank == 0
        self.devices = int(self._strategy.num_replicas_in_sync)
        self.device_name = devices.kind if self.devices == 1 else f"{self.devices} x {devices.kind}"
        self.has_accelerator = devices.has_gpu
        self.execution = devices.execution
        self.versions = {"tensorflow": tf.__version__, "keras": keras.__version__, "python": platform.python_version()}

    @property
    def precision(self) -> str:
        return self.execution.precision

    @property
    def _is_scaled(self) -> bool:
        return self.precision == "fp16"

    def build(self, model: ModelConfig, optimizer: OptimizerSettings, *, seed: int) -> None:
        self._model, self._optimizer, self._seed = model, optimizer, seed
        values = initial_values(model, seed)
        self._replicas = [_make_replica(values, name) for name in self._local.names]
        function = partial(tf.function, autograph=False)  # there are no Python branches on tensors to turn into TensorFlow's
        compiled = partial(function, jit_compile=self.execution.xla)
        self._gradients = [compiled(partial(self._gradients_of, replica)) for replica in self._replicas]
        self._update = [compiled(partial(self._update_of, replica)) for replica in self._replicas]
        self._sums = [compiled(partial(self._sums_of, replica)) for replica in self._replicas]
        self._train, self._evaluate = function(self._train_on_all), function(self._evaluate_on_all)
        self.restart()

    def restart(self) -> None:
        for replica in self._replicas:
            for name, variable in replica.all_variables.items():
                if name not in replica.variables:
                    variable.assign(tf.zeros(variable.shape))
            replica.loss_scale.scale.assign(self._settings.loss_scale if self._is_scaled else 1.0)

    def train(
        self, examples: Examples, *, step: int, learning_rate: float, accumulation: int, stop: bool
    ) -> Callable[[], StepResult]:
        first = self.data_rank * accumulation * len(self._replicas)
        keys = [dropout_key(self._seed, step, first + part) for part in range(accumulation * len(self._replicas))]
        batch = self._spread({**features(examples), "dropout_key": np.array(keys)}, accumulation)
        with self._explained():
            result = self._train(batch, tf.constant(learning_rate, tf.float32), tf.constant(float(stop)))

        def wait() -> StepResult:
            with self._explained():
                return _read_result(result)

        return wait

    def evaluate(self, examples: Examples, row_weights: NDArray[np.float32]) -> PretrainingSums:
        batch = self._spread({**features(examples), "row_weights": row_weights}, 1)
        with self._explained():
            return PretrainingSums(*self._evaluate(batch).numpy().tolist())

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
                "start all of them again, they go on from the newest checkpoint"
            ) from error

    def _spread(self, arrays: Mapping[str, NDArray[Any]], accumulation: int) -> Any:
        """Rows of this process as tensors (micro-batches, rows of one, ...) of each of its devices."""
        replicas = len(self._replicas)
        cut = {name: a.reshape(accumulation, replicas, -1, *a.shape[1:]) for name, a in arrays.items()}

        def of_replica(context: Any) -> dict[str, Tensor]:
            number = context.replica_id_in_sync_group - self.data_rank * replicas
            return {name: tf.constant(array[:, number]) for name, array in cut.items()}

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

    def _number_of_replica(self) -> int:
        number = tf.distribute.get_replica_context().replica_id_in_sync_group  # an integer, or a constant tensor
        return int(tf.get_static_value(tf.convert_to_tensor(number))) - self.data_rank * len(self._replicas)

    def _train_on_all(self, batch: Any, rate: Tensor, stop: Tensor) -> Tensor:
        return self._first(self._strategy.run(self._train_on_one, args=(batch, rate, stop)))

    def _train_on_one(self, batch: Mapping[str, Tensor], rate: Tensor, stop: Tensor) -> Tensor:
        number = self._number_of_replica()
        accumulation = batch["input_ids"].shape[0]
        weight, sequences = self._sum_over_all(
            [tf.reduce_sum(batch["masked_lm_weights"]), tf.size(batch["next_sentence_labels"], tf.float32)]
        )
        parts = tf.constant(parts_factor(accumulation * self.devices))
        weights = self._prepare(self._replicas[number])
        compute = partial(self._gradients[number], weights, weight=weight, sequences=sequences, parts=parts)
        gradients, sums, stops = self._sum_over_all((*_add_up(compute, batch, accumulation), stop))
        norm, scale = self._update[number](gradients, rate, parts)
        return tf.stack([*sums, norm, scale, stops])

    def _gradients_of(
        self,
        replica: _Replica,
        weights: Weights,
        part: Mapping[str, Tensor],
        *,
        weight: Tensor,
        sequences: Tensor,
        parts: Tensor,
    ) -> tuple[dict[str, Tensor], PretrainingSums]:
        """The gradients of prepared weights, and what the micro-batch adds to the losses."""
        with tf.GradientTape() as tape:
            tape.watch(weights)
            sums = pretraining_sums(self._model, weights, part, dropout_key=part["dropout_key"][0])
            loss = loss_share(sums, weight, sequences) * self._scale(replica, parts)
        return float32_gradients(tape.gradient(loss, weights)), sums

    def _update_of(
        self, replica: _Replica, gradients: Mapping[str, Tensor], rate: Tensor, parts: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The norm before clipping, and the loss scale that these gradients had."""
        by_name = gradients_of_variables(self._model, gradients)
        norm = update_variables(
            list(replica.variables.values()),
            list(replica.variables),
            [by_name[name] for name in replica.variables],
            replica.slots,
            rate=rate,
            update=replica.updates + 1,
            settings=self._optimizer,
            scale=self._scale(replica, parts),
            skips=self._is_scaled,
        )
        if not self._is_scaled:
            replica.updates.assign_add(1.0)
            return norm, tf.constant(1.0)
        is_finite, scale = tf.math.is_finite(norm), tf.identity(replica.loss_scale.scale)
        following = next_loss_scale(LossScale(scale, tf.identity(replica.loss_scale.good_steps)), is_finite)
        replica.loss_scale.scale.assign(following.scale)
        replica.loss_scale.good_steps.assign(following.good_steps)
        replica.updates.assign_add(tf.cast(is_finite, tf.float32))
        return norm, scale

    def _scale(self, replica: _Replica, parts: Tensor) -> Tensor:
        return replica.loss_scale.scale * parts if self._is_scaled else 1.0

    def _evaluate_on_all(self, batch: Any) -> Tensor:
        return self._first(self._strategy.run(self._evaluate_on_one, args=(batch,)))

    def _evaluate_on_one(self, batch: Mapping[str, Tensor]) -> Tensor:
        part = {name: values[0] for name, values in batch.items()}
        return self._sum_over_all(tf.stack(self._sums[self._number_of_replica()](part)))

    def _sums_of(self, replica: _Replica, part: Mapping[str, Tensor]) -> PretrainingSums:
        return pretraining_sums(self._model, self._prepare(replica), part, row_weights=part["row_weights"])

    def _prepare(self, replica: _Replica) -> Weights:
        return prepare_weights(self._model, replica.variables, _COMPUTE_DTYPES[self.precision])


def _make_replica(values: Mapping[str, NDArray[np.float32]], device: str) -> _Replica:
    with tf.device(device):
        variables = make_variables(values)
        counts = [keras.Variable(0.0, dtype="float32", trainable=False, name=name) for name in _COUNTS]
        return _Replica(variables, make_slots(list(variables.values())), counts[0], LossScale(*counts[1:]))


def _add_up(compute: Callable[..., Any], batch: Mapping[str, Tensor], accumulation: int) -> Any:
    """What `compute` gives for each micro-batch, summed; one after another, for the memory of one."""
    first = compute({name: values[0] for name, values in batch.items()})
    if accumulation == 1:
        return first

    def add(number: Tensor, total: Any) -> tuple[Tensor, Any]:
        part = compute({name: values[number] for name, values in batch.items()})
        return number + 1, tf.nest.map_structure(tf.add, total, part)

    return tf.while_loop(lambda number, _: number < accumulation, add, (tf.constant(1), first), parallel_iterations=1)[1]


def _read_result(values: Tensor) -> StepResult:
    *sums, norm, scale, stop = values.numpy().tolist()
    return StepResult(PretrainingSums(*sums), norm, scale, is_stop_wanted=stop > 0)

"""The step on JAX: one compiled function of the state and a batch, on all devices at once, to the state after it.

    device      for each of its micro-batches: its part of the global loss -> gradients, added up
    all         sum of gradients, losses and hits; each device takes its part of the sum of gradients
    device      clip by the norm of the sum, update its part of the moments and variables; all get the variables

The variables are whole on every device, and moments are cut over them, as in ZeRO's first stage: a sum whose parts stay where
they are, and the variables gathered after the update, send what a sum for everybody sends. A loss is divided by the totals of
the whole global batch, so that nothing depends on how the batch is split. Sums are float32 in every precision. The state is
given away to the step, which overwrites it, and nothing but a few sums comes back.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jaxlib
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as Spec
from numpy.typing import NDArray

from bertprep.errors import BertprepError
from bertprep.records import Examples
from trainer.batches import features
from trainer.engines import Engine, LossScale, Slots, State, dropout_keys, heads_of, parts_factor
from trainer.engines.jax.devices import DATA, Devices, leave_alone, open_devices
from trainer.engines.jax.fused_ops import Array
from trainer.engines.jax.model import Model, Weights
from trainer.engines.jax.optimizers import update_variables
from trainer.metrics import StepResult
from trainer.model_config import ModelConfig
from trainer.settings import EngineSettings, OptimizerSettings
from trainer.tasks import Sums, Task
from trainer.tasks.pretraining import PRETRAINING
from trainer.weights import initial_values

_COMPUTE_DTYPES = {"off": jnp.float32, "fp16": jnp.float16, "bf16": jnp.bfloat16}
_WHOLE = Spec()  # on every device
_ROWS = Spec(None, DATA)  # of arrays (micro-batches, rows, ...)
_LARGEST_FUSED_HEAD = 128  # units; cuDNN's attention takes a multiple of 8


def open_engine(settings: EngineSettings) -> JaxEngine:
    """The engine on the devices of all processes; see `trainer.engines.Engine`."""
    return JaxEngine(settings, open_devices(settings))


class _Phase(NamedTuple):
    """All that the next step depends on."""

    variables: dict[str, Array]
    slots: dict[str, Slots]
    updates: Array  # of this phase
    loss_scale: LossScale


class JaxEngine(Engine):
    """Steps of one model on a mesh of devices, those of other processes too."""

    def __init__(self, settings: EngineSettings, devices: Devices) -> None:
        self._settings, self._mesh, self._local = settings, devices.mesh, len(devices.local)
        self._device, self._attention_fault, self._options = devices.local[0], devices.attention_fault, dict(devices.options)
        self.data_rank, self.data_world_size = devices.rank, devices.world_size
        self.processes, self.is_first = devices.world_size, devices.rank == 0
        self.devices = self._mesh.size
        self.device_name = devices.kind if self.devices == 1 else f"{self.devices} x {devices.kind}"
        self.has_accelerator = devices.is_accelerator
        self._gather = jax.jit(lambda array: array, out_shardings=self._whole)
        self.execution = devices.execution
        self.versions = {"jax": jax.__version__, "jaxlib": jaxlib.__version__, "python": platform.python_version()}

    def build(self, model: ModelConfig, optimizer: OptimizerSettings, *, seed: int, task: Task = PRETRAINING) -> None:
        self.prepare(model, optimizer, seed=seed, task=task)
        values = initial_values(model, seed, task)
        with self._explained():
            placed = {name: _place(value, self._whole) for name, value in values.items()}
            self._phase = self._phase_like._replace(variables=placed)
            self.restart()

    def prepare(self, model: ModelConfig, optimizer: OptimizerSettings, *, seed: int, task: Task = PRETRAINING) -> None:
        """What `build` does before there are variables, which is enough for `lower`."""
        self._seed, self._task, self._heads, self._optimizer = seed, task, heads_of("jax", task), optimizer
        is_fused = self.precision != "off" and not self._attention_fault
        is_fused = is_fused and model.head_size % 8 == 0 and model.head_size <= _LARGEST_FUSED_HEAD
        self._model = Model(model, is_fused, self._settings.checkpoint_activations)
        shapes = task.variable_shapes(model)
        self._cuts = {name: _cut(shape, self.devices) for name, shape in shapes.items()}
        variables = {name: self._like(shape) for name, shape in shapes.items()}
        slots = {name: Slots(*[self._like(shape, self._cuts[name])] * 2) for name, shape in shapes.items()}
        self._phase_like = _Phase(variables, slots, self._like(()), LossScale(self._like(()), self._like(())))
        placements = jax.tree_util.tree_map(lambda like: like.sharding, self._phase_like)
        compiled = partial(jax.jit, compiler_options=self._options)
        self._train = compiled(self._step, donate_argnums=0, out_shardings=(placements, self._whole))
        self._evaluate = compiled(self._evaluate_on_all, out_shardings=self._whole)
        self._predict = compiled(self._predict_on_all, out_shardings=self._whole)

    def lower(self, examples: Examples, accumulation: int) -> Any:
        """The step on global batches like this one, as a `jax.stages.Lowered`; its devices need not be here."""
        parts, like = (accumulation, self.devices), partial(self._like, cut=_ROWS)
        batch = {name: like((accumulation, len(rows) // accumulation, *rows.shape[1:]), dtype=rows.dtype)
                 for name, rows in features(examples).items()}  # fmt: skip
        batch |= {"dropout_key": like((*parts, 2), dtype=np.int32), "stop": like(parts)}
        return self._train.lower(self._phase_like, batch, self._like(()))

    def restart(self) -> None:
        likes = self._phase_like._replace(variables={})
        zeros = jax.tree_util.tree_map(lambda like: np.zeros(like.shape, like.dtype), likes)
        scale = np.float32(self._settings.loss_scale if self._is_scaled else 1.0)
        zeros = zeros._replace(loss_scale=LossScale(scale, np.zeros((), np.float32)))
        placed = jax.tree_util.tree_map(lambda like, value: _place(value, like.sharding), likes, zeros)
        self._phase = placed._replace(variables=self._phase.variables)

    def train(
        self, examples: Examples, *, step: int, learning_rate: float, accumulation: int, stop: bool
    ) -> Callable[[], StepResult]:
        parts = accumulation * self._local
        keys = dropout_keys(self._seed, step, range(self.data_rank * parts, (self.data_rank + 1) * parts))
        stops = np.full((accumulation, self._local), stop, np.float32)
        keys = keys.reshape(accumulation, self._local, 2)
        with self._explained():
            batch = {**self._spread(features(examples), accumulation), **self._send({"dropout_key": keys, "stop": stops})}
            self._phase, result = self._train(self._phase, batch, np.float32(learning_rate))

        def wait() -> StepResult:
            with self._explained():
                *sums, norm, scale, stopped = np.asarray(result).tolist()
                return StepResult(self._task.sums(*sums), norm, scale, is_stop_wanted=stopped > 0)

        return wait

    def evaluate(self, examples: Examples, row_weights: NDArray[np.float32]) -> Sums:
        with self._explained():
            batch = self._spread({**features(examples), "row_weights": row_weights}, 1)
            return self._task.sums(*np.asarray(self._evaluate(self._phase.variables, batch)).tolist())

    def predict(self, examples: Examples) -> dict[str, NDArray[np.float32]]:
        with self._explained():
            said = self._predict(self._phase.variables, self._spread(features(examples), 1))
            return {name: np.array(rows) for name, rows in said._asdict().items()}

    def state(self) -> State:
        # one variable at a time: those that are cut are never all whole on one device
        def whole(array: Array) -> Array:
            return array if array.is_fully_replicated else self._gather(array)

        with self._explained():
            return {name: np.array(whole(array)) for name, array in self._named(self._phase).items()}

    def restore(self, state: State) -> None:
        now = self._named(self._phase)
        likes = self._named(self._phase_like)
        with self._explained():
            now |= {name: _place(np.asarray(state[name], np.float32), likes[name].sharding) for name in now if name in state}
        self._phase = _Phase(
            {name: now[name] for name in self._cuts},
            {name: Slots(now[f"{name}/adam_m"], now[f"{name}/adam_v"]) for name in self._cuts},
            now["updates"],
            LossScale(now["loss_scale"], now["good_steps"]),
        )

    def gather(self, number: int) -> list[int]:
        if self.data_world_size == 1:
            return [number]
        own = np.tile(np.array([number >> 31, number & (2**31 - 1)], np.int32), (1, self._local, 1))
        with self._explained():
            of_all = np.array(self._gather(self._send({"own": own})["own"]))
        return [(high << 31) + low for high, low in of_all[0, :: self._local].tolist()]

    def peak_memory(self) -> int | None:
        return (self._device.memory_stats() or {}).get("peak_bytes_in_use") if self.has_accelerator else None

    @property
    def _is_scaled(self) -> bool:
        return self.precision == "fp16"

    @property
    def _whole(self) -> NamedSharding:
        """The placement of what every device has."""
        return NamedSharding(self._mesh, _WHOLE)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """The two failures of a machine that a user meets, in a line each."""
        try:
            yield
        except jax.errors.JaxRuntimeError as error:
            if self.data_world_size > 1:
                leave_alone()
            if "RESOURCE_EXHAUSTED" in str(error):
                raise BertprepError(
                    f"{self.device_name}: out of memory; give a smaller --batch-size, and --accumulate for the same global "
                    "batch, or --checkpoint-activations"
                ) from error
            if self.data_world_size == 1:
                raise
            raise BertprepError(
                f"process {self.data_rank} of {self.data_world_size}: another one is gone ({str(error).splitlines()[0]}); "
                "start all of them again, they resume from the newest checkpoint"
            ) from error

    def _spread(self, arrays: Mapping[str, NDArray[Any]], accumulation: int) -> dict[str, Array]:
        """Rows of this process as arrays (micro-batches, rows of all devices, ...)."""
        if self._model.fused_attention:
            self._check_masks(arrays["input_mask"])
        return self._send({name: array.reshape(accumulation, -1, *array.shape[1:]) for name, array in arrays.items()})

    def _check_masks(self, masks: NDArray[np.int32]) -> None:
        """Raise where a mask is more than a length, which is what cuDNN is told instead."""
        if (with_gap := np.flatnonzero((masks[:, 1:] > masks[:, :-1]).any(axis=1))).size:
            raise BertprepError(
                f"row {with_gap[0]} of a batch: its input_mask has a 1 after a 0; fused attention takes masks whose ones come "
                "first, as all tools of the field write them; take --amp off, or write the records again"
            )

    def _send(self, arrays: Mapping[str, NDArray[Any]]) -> dict[str, Array]:
        """Arrays (micro-batches, parts of this process's devices, ...) to the devices; the copies run while steps do."""
        rows = NamedSharding(self._mesh, _ROWS)
        return {name: jax.make_array_from_process_local_data(rows, array) for name, array in arrays.items()}

    def _named(self, phase: _Phase) -> dict[str, Any]:
        """By the names that arrays have in a checkpoint; moments have those of Google's."""
        moments = {
            f"{name}/adam_{which}": slot for name, slots in phase.slots.items() for which, slot in slots._asdict().items()
        }
        scale = phase.loss_scale
        return {
            **phase.variables, **moments,
            "updates": phase.updates, "loss_scale": scale.scale, "good_steps": scale.good_steps,
        }  # fmt: skip

    def _like(self, shape: tuple[int, ...], cut: Spec = _WHOLE, dtype: Any = np.float32) -> jax.ShapeDtypeStruct:
        """An array without values, with its place on the devices."""
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(self._mesh, cut))

    def _on_each(self, function: Callable[..., Any], inputs: Any, outputs: Any) -> Any:
        """`function` on every device, with its part of what is cut."""
        return jax.shard_map(function, mesh=self._mesh, in_specs=inputs, out_specs=outputs, check_vma=False)

    def _weights(self, variables: Weights) -> Weights:
        """What products read, in their precision; embeddings, LayerNorm and the logits' biases as they are."""
        dtype = _COMPUTE_DTYPES[self.precision]
        return {name: each.astype(dtype) if name.endswith(("/kernel", "/bias")) else each for name, each in variables.items()}

    def _products(self) -> Any:
        """Products of float32 are float32: without this GPUs and TPUs round their inputs to 10 or 7 bits."""
        return jax.default_matmul_precision("highest" if self.precision == "off" else "default")

    def _step(self, phase: _Phase, batch: Mapping[str, Array], learning_rate: Array) -> tuple[_Phase, Array]:
        accumulation = batch["input_ids"].shape[0]
        factor = parts_factor(accumulation * self.devices)
        scale = phase.loss_scale.scale * factor if self._is_scaled else jnp.float32(1.0)
        cuts = ({name: self._cuts[name] for name in phase.variables}, _WHOLE, _WHOLE)
        compute = self._on_each(self._gradients, (_WHOLE, _ROWS, _WHOLE), cuts)
        with self._products():
            gradients, sums, stops = compute(phase.variables, batch, scale)
        variables, slots, norm = update_variables(
            phase.variables, gradients, phase.slots,
            learning_rate=learning_rate, update=phase.updates + 1, settings=self._optimizer, scale=scale, skips=self._is_scaled,
        )  # fmt: skip
        result = jnp.stack([*sums, norm, phase.loss_scale.scale if self._is_scaled else jnp.float32(1.0), stops])
        if not self._is_scaled:
            return _Phase(variables, slots, phase.updates + 1, phase.loss_scale), result
        is_finite = jnp.isfinite(norm)
        loss_scale = LossScale(*(jnp.float32(each) for each in phase.loss_scale.after(is_finite, jnp.where)))
        return _Phase(variables, slots, phase.updates + is_finite, loss_scale), result

    def _gradients(self, variables: Weights, batch: Mapping[str, Array], scale: Array) -> tuple[Any, Any, Array]:
        """On a device: its parts of the summed gradients, float32, and the sums of losses and of wishes to stop."""
        batch = dict(batch)
        stops = jax.lax.psum(batch.pop("stop")[0, 0], DATA)
        totals = jax.lax.psum(self._heads.totals(batch), DATA)
        weights = self._weights(variables)

        def loss(weights: Weights, part: Mapping[str, Array]) -> tuple[Array, Sums]:
            sums = self._heads.sums(self._model, weights, part, part["dropout_key"][0])
            return self._heads.loss(sums, totals) * scale, sums

        def of_part(part: Mapping[str, Array]) -> tuple[dict[str, Array], Sums]:
            gradients, sums = jax.grad(loss, has_aux=True)(weights, part)
            return {name: gradient.astype(jnp.float32) for name, gradient in gradients.items()}, sums

        gradients, sums = _add_up(of_part, batch)
        return {name: self._add_over_devices(name, each) for name, each in gradients.items()}, jax.lax.psum(sums, DATA), stops

    def _add_over_devices(self, name: str, gradient: Array) -> Array:
        """This device's part of the sum, as moments are cut, or all of it."""
        if DATA not in self._cuts[name]:
            return jax.lax.psum(gradient, DATA)
        return jax.lax.psum_scatter(gradient, DATA, scatter_dimension=self._cuts[name].index(DATA), tiled=True)

    def _evaluate_on_all(self, variables: Weights, batch: Mapping[str, Array]) -> Array:
        def on_one(variables: Weights, batch: Mapping[str, Array]) -> Array:
            part = {name: values[0] for name, values in batch.items()}
            weights = self._weights(variables)
            return jax.lax.psum(jnp.stack(self._heads.sums(self._model, weights, part, None, part["row_weights"])), DATA)

        with self._products():
            return self._on_each(on_one, (_WHOLE, _ROWS), _WHOLE)(variables, batch)

    def _predict_on_all(self, variables: Weights, batch: Mapping[str, Array]) -> Any:
        """The logits of all devices' rows: devices are numbered through all ranks, as the rows of a global batch are."""

        def on_one(variables: Weights, batch: Mapping[str, Array]) -> Any:
            return self._heads.logits(self._model, self._weights(variables), {name: rows[0] for name, rows in batch.items()})

        with self._products():
            return self._on_each(on_one, (_WHOLE, _ROWS), Spec(DATA))(variables, batch)


def _cut(shape: tuple[int, ...], devices: int) -> Any:
    """How the moments of a variable are cut over the devices: along the first axis that they divide, if there is one."""
    for axis, size in enumerate(shape):
        if devices > 1 and size % devices == 0:
            return Spec(*[None] * axis, DATA)
    return _WHOLE


def _place(value: NDArray[np.float32], placement: NamedSharding) -> Array:
    """A copy of a value on the devices: a step overwrites it, and JAX takes a CPU's arrays as they are where it can."""
    return jax.make_array_from_callback(value.shape, placement, lambda index: np.array(value[index]))


def _add_up(compute: Callable[..., Any], batch: Mapping[str, Array]) -> Any:
    """What `compute` gives for each micro-batch, summed; one after another, for the memory of one."""
    first = {name: values[0] for name, values in batch.items()}
    if len(batch["input_ids"]) == 1:
        return compute(first)

    def add(total: Any, part: Mapping[str, Array]) -> tuple[Any, None]:
        return jax.tree_util.tree_map(jnp.add, total, compute(part)), None

    zeros = jax.tree_util.tree_map(lambda of: jnp.zeros(of.shape, of.dtype), jax.eval_shape(compute, first))
    return jax.lax.scan(add, zeros, batch)[0]

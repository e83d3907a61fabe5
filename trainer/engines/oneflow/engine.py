"""The step on OneFlow: gradients of every micro-batch, one sum over all processes, one update.

    process     for each of its micro-batches: its part of the global loss -> gradients, added up
    all         sums of gradients, losses and hits, and of the squared norms of all stages
    process     clip by the norm of the sum, update its own variables: the same sum makes the same update

A loss is divided by the totals of the whole global batch, so that nothing depends on how the batch is split. Sums are float32
in every precision. Where the loss is scaled, each step waits for its norm.
"""

from __future__ import annotations

import math
import platform
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
import oneflow as flow
from numpy.typing import NDArray

from bertprep.progress import say
from bertprep.records import Examples
from trainer.batches import features
from trainer.engines import Engine, LossScale, State, dropout_keys, heads_of, parts_factor
from trainer.engines.execution import choose_execution
from trainer.engines.oneflow.devices import Devices, open_devices
from trainer.engines.oneflow.dropout import draw
from trainer.engines.oneflow.model import INPUTS, draws_of_parts, place_model
from trainer.engines.oneflow.optimizers import clip_factor, make_slots, squared_norm, update_variables
from trainer.engines.oneflow.passes import Passes
from trainer.engines.oneflow.stages import WORDS, cut, describe
from trainer.metrics import StepResult
from trainer.model_config import ModelConfig
from trainer.settings import EngineSettings, OptimizerSettings
from trainer.tasks import Sums, Task
from trainer.tasks.pretraining import PRETRAINING
from trainer.weights import initial_values

Tensor: TypeAlias = Any
_COMPUTE_DTYPES = {"off": flow.float32, "fp16": flow.float16, "bf16": flow.bfloat16}


def open_engine(settings: EngineSettings) -> OneFlowEngine:
    """The engine on the device of this process; see `trainer.engines.Engine`."""
    return OneFlowEngine(settings, open_devices(settings))


class OneFlowEngine(Engine):
    """Steps of one model on the devices of all processes, each of which has one."""

    def __init__(self, settings: EngineSettings, devices: Devices) -> None:
        self._settings, self._local = settings, devices
        self.is_first = devices.process.rank == 0
        self.data_rank, self.data_world_size = devices.pipeline, len(devices.pipelines)
        self.devices = len(devices.pipelines)
        self.processes = devices.process.world_size
        self.device_name = devices.name if self.processes == 1 else f"{self.processes} x {devices.name}"
        if devices.stages > 1:
            self.device_name += f" in pipelines of {devices.stages}"
        self.has_accelerator = devices.kind == "cuda"
        self.execution = choose_execution(settings, [devices.processor])
        self.versions = {"oneflow": flow.__version__, "python": platform.python_version()}

    @property
    def _is_scaled(self) -> bool:
        return self.precision == "fp16"

    def build(self, model: ModelConfig, optimizer: OptimizerSettings, *, seed: int, task: Task = PRETRAINING) -> None:
        self._model, self._optimizer, self._seed = model, optimizer, seed
        self._task, self._heads = task, heads_of("oneflow", task)
        self._stages = cut(model, self._local.stages, task)
        if len(self._stages) > 1 and self.is_first:
            for line in describe(self._stages, self._local.pipelines):
                say(line)
        self._placed = place_model(
            model,
            initial_values(model, seed, task),
            self._local,
            task,
            self._heads,
            compute_dtype=_COMPUTE_DTYPES[self.precision],
            is_global=self._local.process.world_size > 1 and not self._settings.eager,
        )
        self._slots = {name: make_slots(value) for name, value in self._placed.own.items()}
        self.restart()

    def restart(self) -> None:
        for slots in self._slots.values():
            for slot in slots:
                slot.zero_()
        self._updates = 0
        self._loss_scale = LossScale(self._settings.loss_scale if self._is_scaled else 1.0, 0)
        self._passes = Passes(self._placed, self._local, self._settings)  # without the graphs of the phase before

    def train(
        self, examples: Examples, *, step: int, learning_rate: float, accumulation: int, stop: bool
    ) -> Callable[[], StepResult]:
        batch = {**features(examples), "row_weights": np.ones(len(examples), np.float32)}
        totals = self._totals(batch)
        scale, loss_scale = 1.0, self._loss_scale.scale
        if self._is_scaled:
            scale = loss_scale * parts_factor(accumulation * self.devices)
        draws = self._draw(examples, step, accumulation)
        sums, gradients = self._passes.gradients(batch, draws, scale / totals.clamp(min=1e-5), accumulation)
        flag = self._local.tensor(np.array([stop], np.float32))
        told = self._local.sum_over_all(flow.cat([sums, self._squared_norm(gradients), flag]))
        norm = flow.sqrt(told[-2:-1]) / scale
        self._update(gradients, clip_factor(norm, self._optimizer.clip_norm) / scale, norm, learning_rate)

        def wait() -> StepResult:
            *of_sums, _, stops = told.numpy().tolist()
            found = self._heads.to_sums(of_sums, totals.numpy().tolist())
            return StepResult(found, float(norm.numpy()[0]), loss_scale, is_stop_wanted=stops > 0)

        return wait

    def evaluate(self, examples: Examples, row_weights: NDArray[np.float32]) -> Sums:
        batch = {**features(examples), "row_weights": row_weights}
        totals = self._totals(batch)
        sums = self._local.sum_over_all(self._passes.sums(batch)).numpy().tolist()
        found: Sums = self._heads.to_sums(sums, totals.numpy().tolist())
        return found

    def predict(self, examples: Examples) -> dict[str, NDArray[np.float32]]:
        arrays = features(examples)
        batch = {**{name: arrays[name] for name in INPUTS}, "row_weights": np.ones(len(examples), np.float32)}
        return {name: rows.numpy() for name, rows in zip(self._heads.OUTPUTS, self._passes.outputs(batch), strict=True)}

    def state(self) -> State:
        counts = {"updates": self._updates, "loss_scale": self._loss_scale.scale, "good_steps": self._loss_scale.good_steps}
        arrays: dict[str, NDArray[np.float32]] = {name: np.array(value, np.float32) for name, value in counts.items()}
        kept = self._kept()
        for name, shape in self._task.variable_shapes(self._model).items():
            owner = next(number for number, stage in enumerate(self._stages) if name in stage.variables)
            for kept_name in (name, *_slot_names(name)):
                tensor = self._local.send_to_first(kept.get(kept_name), self._local.pipelines[0][owner], shape)
                if tensor is not None:
                    arrays[kept_name] = tensor.numpy()
        return arrays

    def restore(self, state: State) -> None:
        for name, tensor in self._kept().items():
            if name in state:
                tensor.copy_(self._local.tensor(state[name]))
        self._updates = int(state.get("updates", self._updates))
        self._loss_scale = LossScale(
            float(state.get("loss_scale", self._loss_scale.scale)), int(state.get("good_steps", self._loss_scale.good_steps))
        )

    def gather(self, number: int) -> list[int]:
        return self._local.gather(number)

    def peak_memory(self) -> None:
        return None  # which OneFlow does not tell

    def _kept(self) -> dict[str, Tensor]:
        """This process's variables and their moments, by the names that they have in a checkpoint."""
        named = dict(self._placed.own)
        for name, slots in self._slots.items():
            named.update(zip(_slot_names(name), slots, strict=True))
        return named

    def _totals(self, batch: Mapping[str, NDArray[Any]]) -> Tensor:
        """What the task divides its losses by, of the global batch, of which each pipeline has some rows."""
        return self._local.sum_over_all(self._local.tensor(self._heads.totals(batch) * (self._local.stage == 0)))

    def _draw(self, examples: Examples, step: int, accumulation: int) -> list[NDArray[np.float32]]:
        """The numbers that dropout's masks follow from, for each part of the model; each micro-batch has a key of its own."""
        sequences, seq = examples.input_ids.shape
        of_parts = draws_of_parts(self._model, seq, of_heads=self._heads.DROPS_OUT)
        if not of_parts:
            return []
        keys = dropout_keys(self._seed, step, range(self.data_rank * accumulation, (self.data_rank + 1) * accumulation))
        drawn = np.concatenate([draw(key, (sequences // accumulation, seq, sum(of_parts))) for key in keys])
        return np.split(drawn, np.cumsum(of_parts[:-1]), axis=2)

    def _squared_norm(self, gradients: Mapping[str, Tensor]) -> Tensor:
        """(1,): what this process adds to that of all gradients, where each is counted once."""
        is_counted_elsewhere = self._local.stage > 0
        counted = [gradient for name, gradient in gradients.items() if not (name == WORDS and is_counted_elsewhere)]
        return squared_norm(counted).reshape(1) * float(self._local.pipeline == 0)

    def _update(self, gradients: Mapping[str, Tensor], factor: Tensor, norm: Tensor, learning_rate: float) -> None:
        if self._is_scaled:
            is_finite = math.isfinite(float(norm.numpy()[0]))
            self._loss_scale = self._loss_scale.after(is_finite, lambda condition, one, other: one if condition else other)
            if not is_finite:
                return
        self._updates += 1
        update_variables(
            self._placed.own,
            gradients,
            self._slots,
            factor=factor,
            learning_rate=learning_rate,
            update=self._updates,
            settings=self._optimizer,
        )


def _slot_names(name: str) -> tuple[str, str]:
    return f"{name}/adam_m", f"{name}/adam_v"

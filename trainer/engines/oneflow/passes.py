"""Passes over this process's rows of a global batch: its sums, and with them gradients, summed over all processes.

They run eagerly or as graphs that OneFlow compiles, one for each shape of batch, which takes seconds. In one stage, backward is
a graph of one micro-batch, whose gradients come out and are added up here. (OneFlow's accumulation in a graph of one process
gives wrong gradients now and then.)

In a pipeline all micro-batches must be in one run of a graph, or stages would wait for each other, and such a graph gives out
nothing summed over them but what an optimizer changes. So it has SGD subtract the gradients from tensors of zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import oneflow as flow
from numpy.typing import NDArray

from trainer.engines.oneflow import pretraining as task
from trainer.engines.oneflow.devices import Devices
from trainer.engines.oneflow.model import INPUTS, Bert, PlacedModel
from trainer.engines.oneflow.stages import WORDS
from trainer.settings import EngineSettings

Tensor: TypeAlias = Any
Arrays: TypeAlias = Mapping[str, NDArray[Any]]


class GradientsGraph(flow.nn.Graph):  # type: ignore[misc]
    """(sums..., a gradient of each parameter...) of one micro-batch."""

    def __init__(self, model: Bert, parameters: Sequence[Tensor], *, checkpoint_activations: bool) -> None:
        super().__init__()
        self.model, self._leaves = model, list(parameters)
        self.config._train(True)  # what an optimizer would set
        if checkpoint_activations:
            _checkpoint_activations(self.model)

    def build(self, batch: Mapping[str, Tensor], draws: Sequence[Tensor], loss_weights: Sequence[Tensor]) -> list[Tensor]:
        sums = self.model(batch, draws)
        task.loss(sums, loss_weights).backward()
        gradients = [leaf.grad for leaf in self._leaves]
        for leaf in self._leaves:
            leaf.grad = None  # it is of the graph, and none outside
        return [*sums, *gradients]


class PipelineGraph(flow.nn.Graph):  # type: ignore[misc]
    """The sums of each micro-batch; gradients of all of them are subtracted from `gradients`, divided by their number."""

    def __init__(
        self, model: Bert, gradients: Sequence[Tensor], stages: Sequence[int], devices: Devices, *,
        micro_batches: int, checkpoint_activations: bool,
    ) -> None:  # fmt: skip
        super().__init__()
        self.model = model
        self.add_optimizer(flow.optim.SGD(list(gradients), lr=1.0))
        if micro_batches > 1:
            self.config.set_gradient_accumulation_steps(micro_batches)
        _set_stages(self.model, stages, devices)
        if checkpoint_activations:
            _checkpoint_activations(self.model)

    def build(self, batch: Mapping[str, Tensor], draws: Sequence[Tensor], loss_weights: Sequence[Tensor]) -> list[Tensor]:
        sums = self.model(batch, draws)
        task.loss(sums, loss_weights).backward()
        return list(sums)


class SumsGraph(flow.nn.Graph):  # type: ignore[misc]
    """The sums of a batch, without dropout."""

    def __init__(self, model: Bert, stages: Sequence[int], devices: Devices) -> None:
        super().__init__()
        self.model = model
        _set_stages(self.model, stages, devices)

    def build(self, batch: Mapping[str, Tensor]) -> list[Tensor]:
        return list(self.model(batch, []))


def _set_stages(model: Any, stages: Sequence[int], devices: Devices) -> None:
    if devices.stages > 1:
        for part, stage in zip(model.parts, stages, strict=True):
            part.to(flow.nn.graph.GraphModule).set_stage(stage, devices.placement(stage))


def _checkpoint_activations(model: Any) -> None:
    """Keep the input of each layer alone, and recompute the rest when backward comes to it."""
    for layer in list(model.parts)[1:-1]:
        layer.to(flow.nn.graph.GraphModule).activation_checkpointing = True


class Passes:
    """What one model on these devices computes of batches."""

    def __init__(self, placed: PlacedModel, devices: Devices, settings: EngineSettings) -> None:
        self._placed, self._devices, self._settings = placed, devices, settings
        self._is_global = devices.process.world_size > 1 and not settings.eager
        self._graphs: dict[Hashable, Any] = {}

    def sums(self, batch: Arrays) -> Tensor:
        """The sums of this process, without dropout; those of all processes add up to those of the global batch."""
        placed = self._place_batch(batch)
        if self._settings.eager:
            with flow.no_grad():
                return flow.stack(list(self._placed.bert(placed, [])))
        graph = self._graph(("sums", *_shapes(batch)), lambda: SumsGraph(self._placed.bert, self._placed.stages, self._devices))
        return self._own_sums(graph(placed))

    def gradients(
        self, batch: Arrays, draws: Sequence[NDArray[np.float32]], loss_weights: Tensor, micro_batches: int
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The sums of this process, and the gradients of its variables, summed over all pipelines.

        `loss_weights` (2,) is what the losses of a masked token and of a sequence count for.
        """
        if self._devices.stages > 1:
            return self._in_stages(batch, draws, loss_weights, micro_batches)
        size = len(batch["input_ids"]) // micro_batches
        sums, gradients = None, {}
        for start in range(0, size * micro_batches, size):
            rows = slice(start, start + size)
            part = {name: array[rows] for name, array in batch.items()}
            own, added = self._of_micro_batch(part, [array[rows] for array in draws], loss_weights)
            sums = own if sums is None else sums + own
            for name, gradient in added.items():
                if start == 0:
                    gradients[name] = gradient if micro_batches == 1 else gradient.clone()  # a graph writes its outputs again
                else:
                    gradients[name].add_(gradient)
        return sums, self._devices.sum_each_over_all(gradients)

    def _of_micro_batch(
        self, batch: Arrays, draws: Sequence[NDArray[np.float32]], loss_weights: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        leaves = self._placed.leaves
        inputs = self._place_batch(batch), self._place_draws(draws), self._place_loss_weights(loss_weights, 1)
        if self._settings.eager:
            sums = self._placed.bert(*inputs[:2])
            task.loss(sums, inputs[2]).backward()
            gradients = [leaf.grad for leaf in leaves.values()]
            for leaf in leaves.values():
                leaf.grad = None
            return flow.stack([each.detach() for each in sums]), dict(zip(leaves, gradients, strict=True))
        is_checkpointed = self._settings.checkpoint_activations
        graph = self._graph(
            ("gradients", *_shapes(batch)),
            lambda: GradientsGraph(self._placed.bert, list(leaves.values()), checkpoint_activations=is_checkpointed),
        )
        outputs = graph(*inputs)
        return self._own_sums(outputs[: task.SUMS]), dict(zip(leaves, map(self._own, outputs[task.SUMS :]), strict=True))

    def _in_stages(
        self, batch: Arrays, draws: Sequence[NDArray[np.float32]], loss_weights: Tensor, micro_batches: int
    ) -> tuple[Tensor, dict[str, Tensor]]:
        placed = self._placed
        for gradient in placed.own_gradients.values():
            gradient.zero_()
        graph = self._graph(
            ("stages", micro_batches, *_shapes(batch)),
            lambda: PipelineGraph(
                placed.bert,
                placed.gradients,
                placed.stages,
                self._devices,
                micro_batches=micro_batches,
                checkpoint_activations=self._settings.checkpoint_activations,
            ),
        )
        sums = graph(self._place_batch(batch), self._place_draws(draws), self._place_loss_weights(loss_weights, micro_batches))
        for leaf in placed.gradients:
            leaf.grad = None  # of the graph that was made, and in the way of the next
        for gradient in placed.own_gradients.values():
            gradient.mul_(-float(micro_batches))  # the graph has subtracted their mean
        if WORDS in placed.own_gradients:
            self._devices.add_of_ends(placed.own_gradients[WORDS])
        return self._own_sums(sums), placed.own_gradients

    def _graph(self, key: Hashable, make: Callable[[], Any]) -> Any:
        if key not in self._graphs:
            self._graphs[key] = make()
        return self._graphs[key]

    def _place_batch(self, batch: Arrays) -> dict[str, Tensor]:
        last = self._devices.stages - 1
        return {name: self._place(batch[name], last if name in task.LABELS else 0) for name in (*INPUTS, *task.LABELS)}

    def _place_draws(self, draws: Sequence[NDArray[np.float32]]) -> list[Tensor]:
        return [self._place(array, stage) for array, stage in zip(draws, self._placed.stages, strict=False)]

    def _place_loss_weights(self, loss_weights: Tensor, micro_batches: int) -> list[Tensor]:
        columns = [loss_weights[place : place + 1].repeat(micro_batches) for place in range(2)]
        return [self._to_stage(column, self._devices.stages - 1, flow.sbp.broadcast) for column in columns]

    def _place(self, array: NDArray[Any], stage: int) -> Tensor:
        return self._to_stage(self._devices.tensor(array), stage, flow.sbp.split(0))

    def _to_stage(self, own: Tensor, stage: int, sbp: Any) -> Tensor:
        """This process's rows as its part of the tensor of a stage; no time is spent on comparing shapes over processes."""
        return flow._C.to_global(own, self._devices.placement(stage), [sbp], [], False) if self._is_global else own

    def _own_sums(self, outputs: Sequence[Tensor]) -> Tensor:
        """This process's part of the sums of all micro-batches: nothing outside of the last stage."""
        own = [self._own(output) for output in outputs]
        if self._devices.stage < self._devices.stages - 1:
            return flow.zeros(task.SUMS, device=self._devices.device)
        return flow.stack([flow.sum(each) for each in own])

    def _own(self, output: Tensor) -> Tensor:
        """What this process adds to a sum over all."""
        return output.to_global(sbp=flow.sbp.partial_sum).to_local() if self._is_global else output


def _shapes(batch: Arrays) -> tuple[int, ...]:
    """What tells the shapes of a batch: sequences, their length, and that of predictions."""
    return (*batch["input_ids"].shape, batch["masked_lm_ids"].shape[1])

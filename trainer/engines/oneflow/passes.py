"""Passes over this process's rows of a global batch: its sums, and with them gradients, summed over all processes.

They run eagerly or as graphs that OneFlow compiles, one for each shape of batch, which takes seconds. In one stage, backward is
a graph of one micro-batch, whose gradients come out and are added up here. (OneFlow's accumulation in a graph of one process
gives wrong gradients now and then.)

In a pipeline all micro-batches must be in one run of a graph, or stages would wait for each other, and such a graph gives out
nothing summed over them but what an optimizer changes. So it has SGD subtract the gradients from tensors of zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import oneflow as flow
from numpy.typing import NDArray

from trainer.engines.oneflow.devices import Devices
from trainer.engines.oneflow.model import INPUTS, PlacedModel
from trainer.engines.oneflow.stages import WORDS
from trainer.settings import EngineSettings

Tensor: TypeAlias = Any
Arrays: TypeAlias = Mapping[str, NDArray[Any]]


class BatchGraph(flow.nn.Graph):  # type: ignore[misc]
    """(sums..., a gradient of each leaf...) of a batch, or in a pipeline the sums of each of its micro-batches.

    Given `micro_batches`, it goes backward: in a pipeline the gradients are subtracted from `placed.gradients`, divided by the
    number of micro-batches. Without, there are only sums.
    """

    def __init__(
        self, placed: PlacedModel, devices: Devices, *, micro_batches: int = 0, checkpoint_activations: bool = False
    ) -> None:
        super().__init__()
        self.model, self._loss = placed.bert, placed.heads.loss
        self._leaves = list(placed.leaves.values()) if micro_batches else []
        if self._leaves:
            self.config._train(True)  # what an optimizer would set
        elif micro_batches:
            self.add_optimizer(flow.optim.SGD(placed.gradients, lr=1.0))
        if micro_batches > 1:
            self.config.set_gradient_accumulation_steps(micro_batches)
        parts = [part.to(flow.nn.graph.GraphModule) for part in self.model.parts]
        if devices.stages > 1:
            for part, stage in zip(parts, placed.stages, strict=True):
                part.set_stage(stage, devices.placement(stage))
        if checkpoint_activations:  # keep the input of each layer alone, and recompute the rest when backward comes to it
            for part in parts[1:-1]:
                part.activation_checkpointing = True

    def build(self, batch: Mapping[str, Tensor], draws: Sequence[Tensor], loss_weights: Sequence[Tensor]) -> list[Tensor]:
        return compute(self.model, self._loss, self._leaves, batch, draws, loss_weights)


def compute(
    model: Any,
    loss: Callable[[Sequence[Tensor], Sequence[Tensor]], Tensor],
    leaves: Sequence[Tensor],
    batch: Mapping[str, Tensor],
    draws: Sequence[Tensor],
    loss_weights: Sequence[Tensor],
) -> list[Tensor]:
    """The sums of a batch, and with weights of the losses the gradients of leaves."""
    sums = model(batch, draws)
    if not loss_weights:
        return list(sums)
    loss(sums, loss_weights).backward()
    gradients = [leaf.grad for leaf in leaves]
    for leaf in leaves:
        leaf.grad = None  # in a graph it is the graph's, and none outside
    return [*sums, *gradients]


class Passes:
    """What one model on these devices computes of batches."""

    def __init__(self, placed: PlacedModel, devices: Devices, settings: EngineSettings) -> None:
        self._placed, self._devices, self._settings = placed, devices, settings
        self._is_global = devices.process.world_size > 1 and not settings.eager
        self._graphs: dict[tuple[Any, ...], BatchGraph] = {}  # one for each shape of batch

    def sums(self, batch: Arrays) -> Tensor:
        """The sums of this process, without dropout; those of all processes add up to those of the global batch."""
        placed = self._place_batch(batch)
        with flow.no_grad():
            return self._own_sums(self._pass(batch)(placed, [], []))

    def outputs(self, batch: Arrays) -> list[Tensor]:
        """What the heads give for the rows of all pipelines, without dropout, of a batch without labels."""
        placed, devices = self._place_batch(batch), self._devices
        with flow.no_grad():
            found = self._pass(batch)(placed, [], [])
        gathered = []
        for output in found:
            own = output.to_global(sbp=flow.sbp.split(0)).to_local() if self._is_global else output
            shape = (len(batch["input_ids"]), *output.shape[1:])
            of_all = flow.zeros(len(devices.pipelines), *shape, device=devices.device)  # of which each process adds its rows
            if devices.stage == devices.stages - 1:
                of_all[devices.pipeline] = own
            gathered.append(devices.sum_over_all(of_all).reshape(-1, *shape[1:]))
        return gathered

    def gradients(
        self, batch: Arrays, draws: Sequence[NDArray[np.float32]], loss_weights: Tensor, micro_batches: int
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The sums of this process, and the gradients of its variables, summed over all pipelines.

        `loss_weights` is what 1 is, divided by each of the task's totals.
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
        outputs = self._pass(batch, 1)(*inputs)
        count = len(outputs) - len(leaves)
        return self._own_sums(outputs[:count]), dict(zip(leaves, map(self._own, outputs[count:]), strict=True))

    def _in_stages(
        self, batch: Arrays, draws: Sequence[NDArray[np.float32]], loss_weights: Tensor, micro_batches: int
    ) -> tuple[Tensor, dict[str, Tensor]]:
        placed = self._placed
        for gradient in placed.own_gradients.values():
            gradient.zero_()
        inputs = self._place_batch(batch), self._place_draws(draws), self._place_loss_weights(loss_weights, micro_batches)
        sums = self._pass(batch, micro_batches)(*inputs)
        for leaf in placed.gradients:
            leaf.grad = None  # of the graph that was made, and in the way of the next
        for gradient in placed.own_gradients.values():
            gradient.mul_(-float(micro_batches))  # the graph has subtracted their mean
        if placed.shares_words and WORDS in placed.own_gradients:
            self._devices.add_of_ends(placed.own_gradients[WORDS])
        return self._own_sums(sums), placed.own_gradients

    def _pass(self, batch: Arrays, micro_batches: int = 0) -> Callable[..., list[Tensor]]:
        """What computes this batch, or micro-batches of these shapes with their gradients."""
        if self._settings.eager:
            return partial(compute, self._placed.bert, self._placed.heads.loss, list(self._placed.leaves.values()))
        key = (micro_batches, *(batch[name].shape for name in self._taken(batch)))
        if key not in self._graphs:
            is_checkpointed = micro_batches > 0 and self._settings.checkpoint_activations
            self._graphs[key] = BatchGraph(
                self._placed, self._devices, micro_batches=micro_batches, checkpoint_activations=is_checkpointed
            )
        return self._graphs[key]

    def _place_batch(self, batch: Arrays) -> dict[str, Tensor]:
        last = self._devices.stages - 1
        return {name: self._place(batch[name], 0 if name in INPUTS else last) for name in self._taken(batch)}

    def _taken(self, batch: Arrays) -> list[str]:
        """Of the names in a batch, those that the model takes."""
        return [name for name in (*INPUTS, *self._placed.heads.LABELS) if name in batch]

    def _place_draws(self, draws: Sequence[NDArray[np.float32]]) -> list[Tensor]:
        return [self._place(array, stage) for array, stage in zip(draws, self._placed.stages, strict=False)]

    def _place_loss_weights(self, loss_weights: Tensor, micro_batches: int) -> list[Tensor]:
        columns = [loss_weights[number : number + 1].repeat(micro_batches) for number in range(len(loss_weights))]
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
            return flow.zeros(len(outputs), device=self._devices.device)
        return flow.stack([flow.sum(each.detach()) for each in own])

    def _own(self, output: Tensor) -> Tensor:
        """What this process adds to a sum over all."""
        return output.to_global(sbp=flow.sbp.partial_sum).to_local() if self._is_global else output

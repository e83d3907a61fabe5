"""The passes over a model that OneFlow compiles: gradients of a micro-batch, of a whole batch in a pipeline, and sums alone.

In one stage, backward is a graph for one micro-batch, whose gradients come out and are added up by the engine; several devices
sum them once a step. (OneFlow's accumulation in a graph of one process gives wrong gradients now and then.)

In a pipeline all micro-batches must be in one run of a graph, or stages would wait for each other, and of all of them together
a graph gives out nothing but what an optimizer changes. So it has SGD subtract the gradients from tensors of zeros.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import oneflow as flow

from trainer.engines.oneflow.devices import Devices
from trainer.engines.oneflow.model import Bert

Tensor: TypeAlias = Any


def loss_of(sums: Sequence[Tensor], shares: Sequence[Tensor]) -> Tensor:
    """A part's share of the loss of its global batch; `shares` are what its masked-LM and its next-sentence loss count for."""
    return flow.sum(sums[0] * shares[0] + sums[2] * shares[1])


class GradientsGraph(flow.nn.Graph):  # type: ignore[misc]
    """(four sums..., a gradient of each parameter...) of one micro-batch."""

    def __init__(self, model: Bert, parameters: Sequence[Tensor], *, checkpoint_activations: bool) -> None:
        super().__init__()
        self.model, self._leaves = model, list(parameters)
        self.config._train(True)  # what an optimizer would set
        if checkpoint_activations:
            _checkpoint_activations(self.model)

    def build(self, batch: Mapping[str, Tensor], draws: Sequence[Tensor], shares: Sequence[Tensor]) -> list[Tensor]:
        sums = self.model(batch, draws)
        loss_of(sums, shares).backward()
        gradients = [leaf.grad for leaf in self._leaves]
        for leaf in self._leaves:
            leaf.grad = None  # it is of the graph, and none outside
        return [*sums, *gradients]


class PipelineGraph(flow.nn.Graph):  # type: ignore[misc]
    """The four sums of each micro-batch; gradients of all of them are subtracted from `gradients`, divided by their number."""

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

    def build(self, batch: Mapping[str, Tensor], draws: Sequence[Tensor], shares: Sequence[Tensor]) -> list[Tensor]:
        sums = self.model(batch, draws)
        loss_of(sums, shares).backward()
        return list(sums)


class SumsGraph(flow.nn.Graph):  # type: ignore[misc]
    """The four sums of a batch, without dropout."""

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
    """Keep of each layer what goes in, and compute the rest again when backward comes to it."""
    for layer in list(model.parts)[1:-1]:
        layer.to(flow.nn.graph.GraphModule).activation_checkpointing = True

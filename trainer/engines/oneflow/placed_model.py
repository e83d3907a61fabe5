"""A model on the devices of its stages: modules to compute with, and this process's variables to read and update.

In a graph over several processes each variable is a global tensor on the ranks of its stage, and what is updated is this
process's copy of it, in the same memory. Otherwise it is a tensor of this process.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import oneflow as flow
from numpy.typing import NDArray

from trainer.engines.oneflow.devices import Devices
from trainer.engines.oneflow.dropout import powers
from trainer.engines.oneflow.model import Bert, Embeddings, EncoderLayer, Heads, Held
from trainer.engines.oneflow.stages import WORDS, cut
from trainer.model_config import ModelConfig

Tensor: TypeAlias = Any
Arrays: TypeAlias = Mapping[str, NDArray[np.float32]]


@dataclass(frozen=True)
class PlacedModel:
    """Modules, and the tensors in them by the names of variables."""

    bert: Bert
    stages: list[int]  # of each part
    own: dict[str, Tensor]  # this process's variables
    leaves: dict[str, Tensor]  # of its stage, where backward leaves gradients; with several stages, nowhere
    own_gradients: dict[str, Tensor]  # with several stages: where a graph subtracts the gradients of `own`
    gradients: list[Tensor]  # the same of all stages, as an optimizer takes them


def place_model(config: ModelConfig, arrays: Arrays, devices: Devices, *, compute_dtype: Any, is_global: bool) -> PlacedModel:
    """The model with these values."""
    shelves = [_Shelf(devices, number, is_global) for number in range(devices.stages)]
    of_layers = [number for number, stage in enumerate(cut(config, devices.stages)) for _ in stage.layers]
    parts = [
        Embeddings(config, compute_dtype, shelves[0].hold(arrays, "bert/embeddings/")),
        *(
            EncoderLayer(config, compute_dtype, shelves[stage].hold(arrays, f"bert/encoder/layer_{number}/"), number)
            for number, stage in enumerate(of_layers)
        ),
        Heads(config, compute_dtype, shelves[-1].hold(arrays, "bert/pooler/", "cls/", WORDS)),
    ]
    shelf = shelves[devices.stage]
    return PlacedModel(
        bert=Bert(parts),
        stages=[0, *of_layers, devices.stages - 1],
        own={name: _own(value) for name, value in shelf.values.items()},
        leaves=shelf.values if devices.stages == 1 else {},
        own_gradients={name: _own(gradient) for name, gradient in shelf.gradients.items()},
        gradients=[gradient for each in shelves for gradient in each.gradients.values()],
    )


@dataclass
class _Shelf:
    """The tensors of one stage, each made once, whichever of its parts share it."""

    devices: Devices
    stage: int
    is_global: bool
    values: dict[str, Tensor] = field(default_factory=dict)
    gradients: dict[str, Tensor] = field(default_factory=dict)
    powers: Tensor | None = None

    def hold(self, arrays: Arrays, *prefixes: str) -> Held:
        """The variables of a part."""
        names = [name for name in arrays if name.startswith(prefixes)]
        for name in names:
            if name not in self.values:
                self.values[name] = self._make(arrays[name])
                if self.devices.stages > 1:
                    self.gradients[name] = flow.nn.Parameter(self._make(np.zeros_like(arrays[name])))
                else:
                    self.values[name] = flow.nn.Parameter(self.values[name])
        if self.powers is None:
            self.powers = self._make(powers())
        gradients = {name: self.gradients[name] for name in names if name in self.gradients}
        return Held({name: self.values[name] for name in names}, gradients, self.powers)

    def _make(self, array: NDArray[Any]) -> Tensor:
        if not self.is_global:
            return self.devices.tensor(array)
        made = flow.zeros(*array.shape, placement=self.devices.placement(self.stage), sbp=flow.sbp.broadcast)
        if self.stage == self.devices.stage:
            _own(made).copy_(self.devices.tensor(array))
        return made


def _own(tensor: Tensor) -> Tensor:
    """This process's part of a tensor, in the same memory."""
    data = tensor.data
    return data.to_local() if data.is_global else data

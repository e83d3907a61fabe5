"""BERT on OneFlow: what `trainer.engines.tensorflow.model` computes, as a chain of modules.

    Embeddings -> EncoderLayer 0 -> EncoderLayer 1 -> ... -> the heads of a task

The stages of a pipeline are made of these parts; without one, all of them run on one device. Between them goes
(sequences * seq, hidden). No operation mixes sequences, so data parallelism sums nothing but losses and gradients. OneFlow has
no fused LayerNorm for CPUs, so it is written out. Variables are float32. Products run in `compute_dtype`; LayerNorm, softmax,
logits and losses are always float32.

In a graph over several processes each variable is a global tensor on the ranks of its stage, and what is updated is this
process's copy of it, in the same memory. Otherwise it is a tensor of this process.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import oneflow as flow
from numpy.typing import NDArray

from trainer.engines.oneflow.devices import Devices
from trainer.engines.oneflow.dropout import coefficients_of, drop, powers
from trainer.engines.oneflow.stages import WORDS, cut, heads_variables
from trainer.model_config import LAYER_NORM_EPSILON, MASKED_OUT, ModelConfig
from trainer.tasks import Task

Tensor: TypeAlias = Any
Arrays: TypeAlias = Mapping[str, NDArray[np.float32]]
INPUTS = ("input_ids", "input_mask", "segment_ids")
"""Of a batch, what the encoder takes."""


@dataclass
class Shelf:
    """The tensors of one stage, each made once, whichever of its parts share it."""

    arrays: Arrays
    devices: Devices
    stage: int
    is_global: bool
    values: dict[str, Tensor] = field(default_factory=dict)
    gradients: dict[str, Tensor] = field(default_factory=dict)  # with several stages: where a graph subtracts gradients

    def __post_init__(self) -> None:
        self.powers = self._make(powers())  # of trainer.engines.oneflow.dropout

    def take(self, *prefixes: str) -> list[str]:
        """Make the variables of a part, where they are not made; returns their names."""
        names = [name for name in self.arrays if name.startswith(prefixes)]
        for name in names:
            if name not in self.values:
                self.values[name] = self._make(self.arrays[name])
                if self.devices.stages > 1:
                    self.gradients[name] = flow.nn.Parameter(self._make(np.zeros_like(self.arrays[name])))
                else:
                    self.values[name] = flow.nn.Parameter(self.values[name])
        return names

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


class Part(flow.nn.Module):  # type: ignore[misc]
    """A run of operations on one stage, and the variables that they use, whose names begin with the prefixes."""

    def __init__(self, config: ModelConfig, compute_dtype: Any, shelf: Shelf, *prefixes: str) -> None:
        super().__init__()
        self.bert, self.compute_dtype = config, compute_dtype
        self.has_gradients = shelf.devices.stages > 1
        for name in shelf.take(*prefixes):
            if self.has_gradients:
                self.register_buffer(_attribute(name), shelf.values[name])
                self.register_parameter(_gradient_of(name), shelf.gradients[name])
            else:
                self.register_parameter(_attribute(name), shelf.values[name])
        self.register_buffer("powers", shelf.powers)

    def variable(self, name: str) -> Tensor:
        value = getattr(self, _attribute(name))
        return _Through.apply(value, getattr(self, _gradient_of(name))) if self.has_gradients else value

    def dense(self, name: str, values: Tensor) -> Tensor:
        kernel, bias = (self.variable(f"{name}/{part}").to(self.compute_dtype) for part in ("kernel", "bias"))
        return flow.matmul(values, kernel) + bias

    def layer_norm(self, name: str, values: Tensor) -> Tensor:
        values = values.to(flow.float32)
        centred = values - _across(flow.mean(values, dim=-1, keepdim=True), values)
        variance = flow.mean(flow.square(centred), dim=-1, keepdim=True)
        scaled = centred * _across(flow.rsqrt(variance + LAYER_NORM_EPSILON), values)
        shifted = scaled * self.variable(f"{name}/LayerNorm/gamma") + self.variable(f"{name}/LayerNorm/beta")
        return shifted.to(self.compute_dtype)

    def add(self, name: str, hidden: Tensor, values: Tensor, draws: Tensor | None) -> Tensor:
        """What both halves of a layer end with."""
        values = self.drop(self.dense(f"{name}/dense", values), draws, self.bert.hidden_dropout_prob)
        return self.layer_norm(name, hidden + values)

    def drop(self, values: Tensor, draws: Tensor | None, dropout_rate: float) -> Tensor:
        return values if draws is None or dropout_rate == 0 else drop(values, draws, self.powers, dropout_rate)


class Heads(Part):
    """The last part, of a task: (hidden, the features that its module's `LABELS` name) -> sums, or outputs without labels."""

    def pool(self, hidden: Tensor, sequences: int) -> Tensor:
        """What the encoder says of each sequence as a whole, (sequences, hidden), by its first token."""
        size = self.bert.hidden_size
        first = flow.narrow(flow.reshape(hidden, (sequences, -1, size)), 1, 0, 1)
        return flow.tanh(self.dense("bert/pooler/dense", flow.reshape(first, (-1, size))))

    def multiply(self, name: str, values: Tensor) -> Tensor:
        """float32 products with `name`_weights (outputs, hidden), and `name`_bias added."""
        products = flow._C.matmul(values.to(flow.float32), self.variable(f"{name}_weights"), False, True)
        return products + self.variable(f"{name}_bias")


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """The loss of each row, in nats."""
    return flow._C.sparse_softmax_cross_entropy(logits, labels)


def hits(logits: Tensor, labels: Tensor) -> Tensor:
    """1 for each row whose highest logit is the label's, 0 for others."""
    return flow.eq(flow.argmax(logits, dim=-1).to(labels.dtype), labels).to(flow.float32)


class Embeddings(Part):
    """The sum of a token's three embeddings."""

    def forward(self, input_ids: Tensor, segment_ids: Tensor, draws: Tensor | None = None) -> Tensor:
        sequences, seq = input_ids.shape
        words = flow._C.gather(self.variable(WORDS), input_ids, 0)
        types = flow._C.gather(self.variable("bert/embeddings/token_type_embeddings"), segment_ids, 0)
        positions = flow.narrow(self.variable("bert/embeddings/position_embeddings"), 0, 0, seq)
        sums = flow.reshape(words + types + positions, (sequences * seq, self.bert.hidden_size))
        return self.drop(self.layer_norm("bert/embeddings", sums), draws, self.bert.hidden_dropout_prob)


class EncoderLayer(Part):
    """Attention over a sequence's tokens, then two products for each token."""

    def __init__(self, config: ModelConfig, compute_dtype: Any, shelf: Shelf, number: int) -> None:
        layer = f"bert/encoder/layer_{number}"
        super().__init__(config, compute_dtype, shelf, f"{layer}/")
        self.layer = layer

    def forward(self, hidden: Tensor, input_mask: Tensor, draws: Tensor | None = None) -> Tensor:
        attention, output, inner = self._cut(draws, input_mask.shape[1])
        context = self._attend(f"{self.layer}/attention/self", hidden, input_mask, attention)
        hidden = self.add(f"{self.layer}/attention/output", hidden, context, output)
        values = flow._C.gelu(self.dense(f"{self.layer}/intermediate/dense", hidden))
        return self.add(f"{self.layer}/output", hidden, values, inner)

    def _cut(self, draws: Tensor | None, seq: int) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """The numbers for the masks of attention weights, of what attention gives, and of what the layer gives."""
        if draws is None:
            return None, None, None
        attention, output = self.bert.num_attention_heads * coefficients_of(seq), coefficients_of(self.bert.hidden_size)
        starts = (0, attention, attention + output)
        return tuple(
            flow.narrow(draws, 2, start, size) for start, size in zip(starts, (attention, output, output), strict=True)
        )

    def _attend(self, name: str, hidden: Tensor, input_mask: Tensor, draws: Tensor | None) -> Tensor:
        config, (sequences, seq) = self.bert, input_mask.shape

        def heads(values: Tensor, *axes: int) -> Tensor:
            return flow.permute(flow.reshape(values, (sequences, seq, config.num_attention_heads, -1)), axes)

        query = heads(self.dense(f"{name}/query", hidden), 0, 2, 1, 3) * (1 / math.sqrt(config.head_size))
        key = heads(self.dense(f"{name}/key", hidden), 0, 2, 3, 1)
        masked_out = flow.reshape(1 - input_mask.to(flow.float32), (sequences, 1, 1, seq)) * MASKED_OUT
        scores = flow.matmul(query, key).to(flow.float32) + masked_out  # (sequences, heads, seq, seq)
        weights = flow.softmax(scores, dim=-1).to(self.compute_dtype)
        if draws is not None:
            weights = self.drop(weights, heads(draws, 0, 2, 1, 3), config.attention_probs_dropout_prob)
        context = flow.matmul(weights, heads(self.dense(f"{name}/value", hidden), 0, 2, 1, 3))
        return flow.reshape(flow.permute(context, (0, 2, 1, 3)), (sequences * seq, config.hidden_size))


class Bert(flow.nn.Module):  # type: ignore[misc]
    """The chain of parts; the last one is of a task, and takes those features of a batch that are among `labels`."""

    def __init__(self, parts: Sequence[Part], labels: Sequence[str]) -> None:
        super().__init__()
        self.parts, self.labels = flow.nn.ModuleList(parts), labels

    def forward(self, batch: Mapping[str, Tensor], draws: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """The task's sums of a batch; draws are (sequences, seq, numbers) of each part that drops anything, or none."""
        embeddings, *layers, heads = self.parts
        of_part = [[each] for each in draws] + [[] for _ in range(len(self.parts) - len(draws))]
        hidden = embeddings(batch["input_ids"], batch["segment_ids"], *of_part[0])
        for layer, own in zip(layers, of_part[1:-1], strict=True):
            hidden = layer(hidden, batch["input_mask"], *own)
        sums: tuple[Tensor, ...] = heads(hidden, *(batch[name] for name in self.labels if name in batch), *of_part[-1])
        return sums


def draws_of_parts(config: ModelConfig, seq: int, *, of_heads: bool) -> list[int]:
    """How many numbers a token's masks take in each part, the heads last where they drop anything; empty without dropout."""
    if config.hidden_dropout_prob == 0 and config.attention_probs_dropout_prob == 0:
        return []
    hidden, attention = coefficients_of(config.hidden_size), config.num_attention_heads * coefficients_of(seq)
    return [hidden, *[attention + 2 * hidden] * config.num_hidden_layers, *[hidden] * of_heads]


class _Through(flow.autograd.Function):  # type: ignore[misc]
    """The value of one tensor, and the gradient to another: a graph adds up gradients only in what an optimizer changes."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, gradient: Tensor) -> Tensor:  # noqa: ARG004
        return flow._C.identity(value)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[None, Tensor]:  # noqa: ARG004
        return None, upstream


def _across(column: Tensor, values: Tensor) -> Tensor:
    """A column in all columns of values; left to arithmetic, this takes a CPU three times as long."""
    return flow._C.broadcast_like(column, values)


def _attribute(name: str) -> str:
    return name.replace("/", "__")


def _gradient_of(name: str) -> str:
    return f"{_attribute(name)}__gradient"


@dataclass(frozen=True)
class PlacedModel:
    """A model on the devices of its stages: modules to compute with, and this process's variables to read and update."""

    bert: Bert
    stages: list[int]  # of each part
    own: dict[str, Tensor]  # this process's variables
    leaves: dict[str, Tensor]  # of its stage, where backward leaves gradients; with several stages, nowhere
    own_gradients: dict[str, Tensor]  # with several stages: where a graph subtracts the gradients of `own`
    gradients: list[Tensor]  # the same of all stages, as an optimizer takes them
    heads: Any  # the module of the task's heads
    shares_words: bool  # the first and the last of several stages both have the word embeddings


def place_model(
    config: ModelConfig, arrays: Arrays, devices: Devices, task: Task, heads: Any, *, compute_dtype: Any, is_global: bool
) -> PlacedModel:
    """The model with these values, ending in the heads of a task, which are those of the module `heads`."""
    shelves = [Shelf(arrays, devices, number, is_global) for number in range(devices.stages)]
    of_layers = [number for number, stage in enumerate(cut(config, devices.stages, task)) for _ in stage.layers]
    of_heads = heads_variables(config, task)
    parts = [
        Embeddings(config, compute_dtype, shelves[0], "bert/embeddings/"),
        *(EncoderLayer(config, compute_dtype, shelves[stage], number) for number, stage in enumerate(of_layers)),
        heads.Heads(config, compute_dtype, shelves[-1], *of_heads),
    ]
    shelf = shelves[devices.stage]
    return PlacedModel(
        bert=Bert(parts, heads.LABELS),
        stages=[0, *of_layers, devices.stages - 1],
        own={name: _own(value) for name, value in shelf.values.items()},
        leaves=shelf.values if devices.stages == 1 else {},
        own_gradients={name: _own(gradient) for name, gradient in shelf.gradients.items()},
        gradients=[gradient for each in shelves for gradient in each.gradients.values()],
        heads=heads,
        shares_words=devices.stages > 1 and WORDS in of_heads,
    )

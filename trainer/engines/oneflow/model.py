"""BERT with its two pretraining heads on OneFlow: what `trainer.engines.tensorflow.model` computes, as a chain of modules.

    Embeddings -> EncoderLayer 0 -> EncoderLayer 1 -> ... -> Heads

They are the parts that the stages of a pipeline are made of; where there is none, all of them run on one device. Between them
goes (sequences * seq, hidden). Each operation leaves sequences where they are, so that data parallelism sums nothing but
losses and gradients. OneFlow has no fused LayerNorm for CPUs, so it is written out.

Variables are float32. Products run in `compute_dtype`; LayerNorm, softmax, logits and losses are float32 always.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import oneflow as flow

from trainer.engines.oneflow.dropout import coefficients_of, drop
from trainer.model_config import LAYER_NORM_EPSILON, MASKED_OUT, ModelConfig

Tensor: TypeAlias = Any
INPUTS = ("input_ids", "input_mask", "segment_ids")
LABELS = ("masked_lm_positions", "masked_lm_ids", "masked_lm_weights", "next_sentence_labels", "row_weights")
"""Of a batch, what the first part takes and what the last one takes, in this order."""


@dataclass(frozen=True)
class Held:
    """The variables of a part, by name, as tensors on its devices."""

    values: Mapping[str, Tensor]
    gradients: Mapping[str, Tensor]  # what a pipeline adds gradients up in; empty where backward leaves them at the values
    powers: Tensor  # of trainer.engines.oneflow.dropout


class Part(flow.nn.Module):  # type: ignore[misc]
    """A run of operations on one stage, and the variables that they use."""

    def __init__(self, config: ModelConfig, compute_dtype: Any, held: Held) -> None:
        super().__init__()
        self.bert, self.compute_dtype = config, compute_dtype
        self.has_gradients = bool(held.gradients)
        for name, value in held.values.items():
            if self.has_gradients:
                self.register_buffer(_attribute(name), value)
                self.register_parameter(_gradient_of(name), held.gradients[name])
            else:
                self.register_parameter(_attribute(name), value)
        self.register_buffer("powers", held.powers)

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

    def drop(self, values: Tensor, draws: Tensor | None, rate: float) -> Tensor:
        return values if draws is None or rate == 0 else drop(values, draws, self.powers, rate)


class Embeddings(Part):
    """The sum of a token's three embeddings."""

    def forward(self, input_ids: Tensor, segment_ids: Tensor, draws: Tensor | None = None) -> Tensor:
        sequences, seq = input_ids.shape
        words = flow._C.gather(self.variable("bert/embeddings/word_embeddings"), input_ids, 0)
        types = flow._C.gather(self.variable("bert/embeddings/token_type_embeddings"), segment_ids, 0)
        positions = flow.narrow(self.variable("bert/embeddings/position_embeddings"), 0, 0, seq)
        sums = flow.reshape(words + types + positions, (sequences * seq, self.bert.hidden_size))
        return self.drop(self.layer_norm("bert/embeddings", sums), draws, self.bert.hidden_dropout_prob)


class EncoderLayer(Part):
    """Attention over a sequence's tokens, then two products for each token."""

    def __init__(self, config: ModelConfig, compute_dtype: Any, held: Held, number: int) -> None:
        super().__init__(config, compute_dtype, held)
        self.layer = f"bert/encoder/layer_{number}"

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


class Heads(Part):
    """The two predictions, their losses and their hits: (masked-LM loss, hits, next-sentence loss, hits), as sums."""

    def forward(self, hidden: Tensor, *labels: Tensor) -> tuple[Tensor, ...]:
        positions, tokens, weights, next_sentence, row_weights = labels
        masked_lm, of_rows = self.logits(hidden, positions)
        tokens, weights = flow.reshape(tokens, (-1,)), flow.reshape(weights, (-1,))
        return (
            flow.sum(flow._C.sparse_softmax_cross_entropy(masked_lm, tokens) * weights),
            flow.sum(_hits(masked_lm, tokens) * weights),
            flow.sum(flow._C.sparse_softmax_cross_entropy(of_rows, next_sentence) * row_weights),
            flow.sum(_hits(of_rows, next_sentence) * row_weights),
        )

    def logits(self, hidden: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """(sequences * pred, vocabulary) of the masked tokens, and (sequences, 2) of the next sentences."""
        size = self.bert.hidden_size
        tokens = flow.reshape(hidden, (positions.shape[0], -1, size))
        first = flow.reshape(flow.narrow(tokens, 1, 0, 1), (-1, size))
        masked = flow.reshape(flow._C.batch_gather(tokens, positions), (-1, size))
        return self._masked_lm(masked), self._next_sentence(flow.tanh(self.dense("bert/pooler/dense", first)))

    def _masked_lm(self, masked: Tensor) -> Tensor:
        values = flow._C.gelu(self.dense("cls/predictions/transform/dense", masked))
        values = self.layer_norm("cls/predictions/transform", values)
        words = self.variable("bert/embeddings/word_embeddings").to(self.compute_dtype)
        return flow._C.matmul(values, words, False, True).to(flow.float32) + self.variable("cls/predictions/output_bias")

    def _next_sentence(self, pooled: Tensor) -> Tensor:
        weights = self.variable("cls/seq_relationship/output_weights")
        return flow._C.matmul(pooled.to(flow.float32), weights, False, True) + self.variable("cls/seq_relationship/output_bias")


class Bert(flow.nn.Module):  # type: ignore[misc]
    """The chain of parts."""

    def __init__(self, parts: Sequence[Part]) -> None:
        super().__init__()
        self.parts = flow.nn.ModuleList(parts)

    def forward(self, batch: Mapping[str, Tensor], draws: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """The four sums of a batch; draws are (sequences, seq, numbers) of each part but the last, or none."""
        embeddings, *layers, heads = self.parts
        of_part = [[each] for each in draws] or [[] for _ in range(len(layers) + 1)]
        hidden = embeddings(batch["input_ids"], batch["segment_ids"], *of_part[0])
        for layer, own in zip(layers, of_part[1:], strict=True):
            hidden = layer(hidden, batch["input_mask"], *own)
        sums: tuple[Tensor, ...] = heads(hidden, *(batch[name] for name in LABELS))
        return sums


def draws_of_parts(config: ModelConfig, seq: int) -> list[int]:
    """How many numbers a token's masks take in each part but the last; none where nothing is dropped."""
    if config.hidden_dropout_prob == 0 and config.attention_probs_dropout_prob == 0:
        return []
    hidden, attention = coefficients_of(config.hidden_size), config.num_attention_heads * coefficients_of(seq)
    return [hidden] + [attention + 2 * hidden] * config.num_hidden_layers


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


def _hits(logits: Tensor, labels: Tensor) -> Tensor:
    return flow.eq(flow.argmax(logits, dim=-1).to(labels.dtype), labels).to(flow.float32)


def _attribute(name: str) -> str:
    return name.replace("/", "__")


def _gradient_of(name: str) -> str:
    return f"{_attribute(name)}__gradient"

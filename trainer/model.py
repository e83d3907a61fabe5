"""Compute BERT's encoder, written once for all frameworks as functions of their operations, the weights and a batch.

    embed     word + segment + position embeddings -> LayerNorm                          (sequences * seq, hidden)
    layer     attention -> dense -> + input -> LayerNorm -> dense -> GELU -> dense -> + -> LayerNorm
    pool      first token -> dense -> tanh                                               (sequences, hidden)

The heads of tasks are in `trainer.tasks`. Weights have the names of Google's checkpoints. Dense products run in the compute
precision, everything else in float32. GELU is exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

from trainer.model_config import ModelConfig

Array: TypeAlias = Any
"""A tensor of the framework that runs the model."""
Arrays: TypeAlias = Mapping[str, Array]
Operation: TypeAlias = Callable[..., Any]
WORDS = "bert/embeddings/word_embeddings"
MASKED_OUT = -10_000.0
"""Added to an attention score so that its weight becomes 0. Google's and NVIDIA's code use the same number."""
COMPUTE_DTYPES = {"off": "float32", "fp16": "float16", "bf16": "bfloat16"}
"""The data type of dense products, by the name of the precision."""


class Operations:
    """The operations of a framework from which model, losses and optimizer are composed. They work along the last axis."""

    has_fused_attention = False
    cast: Operation  # x, name of a dtype
    reshape: Operation  # x, shape
    permute: Operation  # x, axes
    where: Operation  # condition, x, y
    maximum: Operation  # x, least
    is_finite: Operation
    is_not_zero: Operation  # of a number; the result is a condition of `where`
    sqrt: Operation
    expm1: Operation
    tanh: Operation
    gelu: Operation  # exact, by the error function
    softmax: Operation
    argmax: Operation
    sum: Operation  # of all elements
    stack: Operation  # numbers -> an array of them
    square_sum: Operation  # of all elements
    product: Operation  # (..., n, in), (..., m, in) -> float32 (..., n, m)
    look_up: Operation  # (vocabulary, hidden), (n,) -> (n, hidden)
    look_up_small: Operation  # of a table with few rows
    gather_positions: Operation  # (n * seq, hidden), (n, pred) -> (n * pred, hidden)
    layer_norm: Operation  # x, gamma, beta; computed in float32, returned in the precision of x
    dropout: Operation  # x, dropout rate, key, index of the mask
    cross_entropy: Operation  # labels (n,), logits (n, classes) -> (n,), in nats
    fused_attention: Operation  # query, key and value (sequences, seq, heads, units), and a tensor to add to the scores

    def __init__(self, precision: str = "off") -> None:
        self.precision, self._dtype = precision, COMPUTE_DTYPES[precision]

    def compute(self, x: Array) -> Array:
        return self.cast(x, self._dtype)

    def float32(self, x: Array) -> Array:
        return self.cast(x, "float32")

    def add_bias(self, x: Array, bias: Array) -> Array:
        return x + bias

    def dense(self, x: Array, kernel: Array, bias: Array) -> Array:
        """Apply a dense layer: (rows, in), (in, out), (out,) -> (rows, out)."""
        return self.add_bias(x @ self.compute(kernel), self.compute(bias))

    def project(self, x: Array, kernels: Sequence[Array], biases: Sequence[Array]) -> Sequence[Array]:
        """Apply several dense layers to one input."""
        return [self.dense(x, kernel, bias) for kernel, bias in zip(kernels, biases, strict=True)]

    def recompute(self, layer: Operation) -> Operation:
        """Return the layer; if activations are checkpointed, its gradients recompute all but its inputs."""
        return layer


class Bert:
    """The network with its weights, applied to a batch. Each dropout mask depends on a key and the mask's index."""

    def __init__(self, ops: Operations, config: ModelConfig, weights: Arrays, batch: Arrays, key: Any = None) -> None:
        self.ops, self.config, self.weights, self.batch, self.key = ops, config, weights, batch, key
        self.sequences, self.seq = batch["input_mask"].shape
        self.masks = 0  # dropout masks drawn so far

    def dense(self, name: str, x: Array) -> Array:
        return self.ops.dense(x, self.weights[f"{name}/kernel"], self.weights[f"{name}/bias"])

    def norm(self, name: str, x: Array) -> Array:
        return self.ops.layer_norm(x, self.weights[f"{name}/LayerNorm/gamma"], self.weights[f"{name}/LayerNorm/beta"])

    def drop(self, x: Array, dropout_rate: float) -> Array:
        if self.key is None or dropout_rate == 0:
            return x
        self.masks += 1
        return self.ops.dropout(x, dropout_rate, self.key, self.masks)

    def logits(self, name: str, x: Array) -> Array:
        """Return the float32 logits of a small head, whose weights are (out, in)."""
        product = self.ops.product(self.ops.float32(x), self.weights[f"{name}_weights"])
        return self.ops.add_bias(product, self.weights[f"{name}_bias"])

    def embed(self) -> Array:
        """Return (sequences * seq, hidden): the sum of each token's word, segment and position embeddings."""
        ops, config, part = self.ops, self.config, "bert/embeddings"
        x = ops.look_up(self.weights[WORDS], ops.reshape(self.batch["input_ids"], (-1,)))
        segments = ops.reshape(self.batch["segment_ids"], (-1,))
        x = x + ops.look_up_small(self.weights[f"{part}/token_type_embeddings"], segments)
        positions = self.weights[f"{part}/position_embeddings"]
        if "position_ids" in self.batch:
            x = x + ops.look_up(positions, ops.reshape(self.batch["position_ids"], (-1,)))
        else:
            x = ops.reshape(x, (self.sequences, self.seq, config.hidden_size)) + positions[: self.seq]
        x = self.norm(part, ops.reshape(x, (-1, config.hidden_size)))
        return ops.compute(self.drop(x, config.hidden_dropout_prob))

    def masked_out(self) -> Array:
        """Return a mask to add to scores, by which no token attends to padding or, in packed rows, to another sequence.

        Its shape is (sequences, 1, 1, seq), or (sequences, 1, seq, seq) for packed rows, where padding is one more sequence.
        """
        ops = self.ops
        if "sequence_ids" not in self.batch:
            seen = ops.reshape(self.batch["input_mask"], (self.sequences, 1, 1, self.seq))
        else:
            ids = self.batch["sequence_ids"]
            own = ops.reshape(ids, (self.sequences, 1, self.seq, 1))
            others = ops.reshape(ids, (self.sequences, 1, 1, self.seq))
            seen = own == others
        return (1 - ops.float32(seen)) * MASKED_OUT

    def split_heads(self, x: Array) -> Array:
        """Split the heads: (sequences * seq, hidden) -> (sequences, seq, heads, units)."""
        return self.ops.reshape(x, (self.sequences, self.seq, self.config.num_attention_heads, self.config.head_size))

    def attend(self, query: Array, key: Array, value: Array) -> Array:
        """Return (sequences * seq, hidden): for each token the values of all tokens, weighted by query and keys."""
        ops, config = self.ops, self.config
        dropout_rate = config.attention_probs_dropout_prob
        is_dropped = self.key is not None and dropout_rate > 0
        if ops.has_fused_attention and not is_dropped:
            context = ops.fused_attention(*[self.split_heads(x) for x in (query, key, value)], self.masked_out())
        else:
            scaled = query * (1 / math.sqrt(config.head_size))
            query, key, value = [ops.permute(self.split_heads(x), (0, 2, 1, 3)) for x in (scaled, key, value)]
            weights = ops.compute(ops.softmax(ops.product(query, key) + self.masked_out()))  # (sequences, heads, seq, seq)
            context = ops.permute(self.drop(weights, dropout_rate) @ value, (0, 2, 1, 3))
        return ops.reshape(context, (-1, config.hidden_size))

    def layer(self, x: Array, number: int) -> Array:
        """Apply a layer, which is attention and then a feed-forward network for each token: (sequences * seq, hidden)."""
        name, dropout_rate = f"bert/encoder/layer_{number}", self.config.hidden_dropout_prob
        parts = [f"{name}/attention/self/{part}" for part in ("query", "key", "value")]
        kernels = [self.weights[f"{part}/kernel"] for part in parts]
        biases = [self.weights[f"{part}/bias"] for part in parts]
        context = self.attend(*self.ops.project(x, kernels, biases))
        output = self.drop(self.dense(f"{name}/attention/output/dense", context), dropout_rate)
        x = self.norm(f"{name}/attention/output", x + output)
        inner = self.ops.gelu(self.dense(f"{name}/intermediate/dense", x))
        output = self.drop(self.dense(f"{name}/output/dense", inner), dropout_rate)
        return self.norm(f"{name}/output", x + output)

    def encode(self) -> Array:
        """Return the last layer's output for every token, (sequences * seq, hidden)."""
        embed, *layers = encoder_parts(self.config)
        x = embed(self)
        for layer in layers:
            x = self.ops.recompute(partial(self._run_layer, layer, self.masks))(x)
        return x

    def _run_layer(self, layer: Operation, masks: int, x: Array) -> Array:
        """Run a layer after `masks` dropout masks, so that recomputing it draws the same masks again."""
        self.masks = masks
        return layer(self, x)

    def pool(self, hidden: Array) -> Array:
        """Return (sequences, hidden) from the first token of each sequence, or of each possible sequence of packed rows."""
        if "first_positions" in self.batch:
            first = self.ops.gather_positions(hidden, self.batch["first_positions"])
        else:
            first = self.ops.reshape(hidden, (self.sequences, self.seq, self.config.hidden_size))[:, 0]
        return self.ops.tanh(self.dense("bert/pooler/dense", first))


def encoder_parts(config: ModelConfig) -> list[Operation]:
    """Return the embeddings and the layers as functions of a `Bert` and, except the first, of the result of the one before."""
    return [Bert.embed, *(partial(Bert.layer, number=number) for number in range(config.num_hidden_layers))]

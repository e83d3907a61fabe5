"""The BERT encoder, as Google and Hugging Face define it: exact GELU, and LayerNorm after each residual.

A function of weights by name, a batch and a dropout key. Nothing but dense products and gathers, in shapes that depend on the
batch's shape alone, so XLA compiles it. What a task adds (heads, losses) stands beside it: pretraining.py.

Variables (trainer/weights.py) are float32. `prepare_weights` makes of them what products read, once for all micro-batches of
a step, and `gradients_of_variables` takes the gradients back. Products run in the precision of these weights; LayerNorm,
softmax, logits and losses are always float32. Activations are (sequences * seq, hidden): with a third dimension TensorFlow
would multiply each sequence on its own. No activation has more than two uses: gradients of more would be added in the order in
which TensorFlow finds their memory free, which differs from run to run in the last digit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypeAlias

import tensorflow as tf

from trainer.engines.tensorflow.fused_ops import add_bias, dropout, gelu, layer_norm, look_up
from trainer.model_config import MASKED_OUT, ModelConfig

Tensor: TypeAlias = Any
Batch: TypeAlias = Mapping[str, Tensor]  # features by their names, as in bertprep.records.Examples
Weights: TypeAlias = Mapping[str, Tensor]  # what `prepare_weights` makes of the variables
WORDS = "bert/embeddings/word_embeddings"
_JOINED = ("query", "key", "value")


def prepare_weights(config: ModelConfig, variables: Mapping[str, Any], compute_dtype: Any = tf.float32) -> Weights:
    """What a pass multiplies by and adds: weights of products in `compute_dtype`, those of query, key and value joined.

    Queries are divided by the root of the head size in their kernel and bias, which are smaller than they are.
    """
    weights = {name: tf.identity(variable) for name, variable in variables.items()}  # as tensors, which have gradients
    for name, axis in _joined(config):
        query, key, value = (weights.pop(name.format(each)) for each in _JOINED)
        weights[name.format("qkv")] = tf.concat([query * _query_scale(config), key, value], axis)
    return {
        name: tf.cast(weight, compute_dtype) if name.endswith(("/kernel", "/bias")) else weight
        for name, weight in weights.items()
    }


def gradients_of_variables(config: ModelConfig, gradients: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Gradients by the variables' names, from float32 ones of prepared weights."""
    separate = dict(gradients)
    for name, axis in _joined(config):
        query, key, value = tf.split(separate.pop(name.format("qkv")), 3, axis)
        for each, gradient in zip(_JOINED, (query * _query_scale(config), key, value), strict=True):
            separate[name.format(each)] = gradient
    return separate


def _joined(config: ModelConfig) -> list[tuple[str, int]]:
    """What is joined, as the pattern of its name, and along which axis."""
    layers = [f"bert/encoder/layer_{number}/attention/self" for number in range(config.num_hidden_layers)]
    return [(f"{layer}/{{}}/{part}", axis) for layer in layers for part, axis in (("kernel", 1), ("bias", 0))]


def _query_scale(config: ModelConfig) -> float:
    return 1 / math.sqrt(config.head_size)


class Encoder:
    """One forward pass with prepared weights; each method takes the name of the weights that it uses.

    Dropout draw 1, 2, 3 of the pass is seeded by the key plus its own number, so there is no state to keep, and a run that is
    resumed has the masks that it would have had. Without a key nothing is dropped.
    """

    def __init__(self, config: ModelConfig, weights: Weights, dropout_key: Tensor | None = None) -> None:
        self.config, self.weights = config, weights
        self.compute_dtype = weights["bert/encoder/layer_0/output/dense/kernel"].dtype
        self._dropout_key, self._draws = dropout_key, 0

    def encode(self, batch: Batch) -> Tensor:
        """The last layer's output for every token, (sequences * seq, hidden)."""
        config, (sequences, seq) = self.config, batch["input_ids"].shape
        types = tf.one_hot(tf.reshape(batch["segment_ids"], (-1,)), config.type_vocab_size)
        words = look_up(self.weights[WORDS], tf.reshape(batch["input_ids"], (-1,)))
        sums = words + tf.matmul(types, self.weights["bert/embeddings/token_type_embeddings"])
        sums = tf.reshape(sums, (sequences, seq, -1)) + self.weights["bert/embeddings/position_embeddings"][:seq]
        hidden = self.layer_norm("bert/embeddings", tf.reshape(sums, (-1, config.hidden_size)))
        hidden = self.dropout(hidden, config.hidden_dropout_prob)
        masked_out = (1 - tf.cast(batch["input_mask"], tf.float32))[:, None, None, :] * MASKED_OUT  # (sequences, 1, 1, seq)
        for number in range(config.num_hidden_layers):
            layer = f"bert/encoder/layer_{number}"
            context = self._attend(f"{layer}/attention/self/qkv", hidden, masked_out)
            hidden = self._add(f"{layer}/attention/output", hidden, context)
            inner = gelu(self.dense(f"{layer}/intermediate/dense", hidden))
            hidden = self._add(f"{layer}/output", hidden, inner)
        return hidden

    def pool(self, hidden: Tensor, sequences: int) -> Tensor:
        """What the encoder says of each sequence as a whole, (sequences, hidden), by its first token."""
        first = tf.reshape(hidden, (sequences, -1, self.config.hidden_size))[:, 0]
        return tf.tanh(self.dense("bert/pooler/dense", first))

    def dense(self, name: str, values: Tensor) -> Tensor:
        return add_bias(tf.matmul(values, self.weights[f"{name}/kernel"]), self.weights[f"{name}/bias"])

    def layer_norm(self, name: str, values: Tensor) -> Tensor:
        gamma, beta = (self.weights[f"{name}/LayerNorm/{part}"] for part in ("gamma", "beta"))
        return tf.cast(layer_norm(tf.cast(values, tf.float32), gamma, beta), self.compute_dtype)

    def dropout(self, values: Tensor, dropout_rate: float) -> Tensor:
        if self._dropout_key is None or dropout_rate == 0:
            return values
        self._draws += 1
        return dropout(values, dropout_rate, tf.add(self._dropout_key, [0, self._draws]))

    def _attend(self, name: str, hidden: Tensor, masked_out: Tensor) -> Tensor:
        config, (sequences, _, _, seq) = self.config, masked_out.shape
        together = tf.reshape(self.dense(name, hidden), (sequences, seq, 3, config.num_attention_heads, config.head_size))
        query, key, value = tf.unstack(tf.transpose(together, (2, 0, 3, 1, 4)))  # (sequences, heads, seq, units)
        scores = tf.cast(tf.matmul(query, key, transpose_b=True), tf.float32)  # (sequences, heads, seq, seq)
        weights = tf.cast(tf.nn.softmax(scores + masked_out), self.compute_dtype)
        context = tf.matmul(self.dropout(weights, config.attention_probs_dropout_prob), value)
        return tf.reshape(tf.transpose(context, (0, 2, 1, 3)), (-1, config.hidden_size))

    def _add(self, name: str, hidden: Tensor, values: Tensor) -> Tensor:
        """What both halves of a layer end with."""
        values = self.dropout(self.dense(f"{name}/dense", values), self.config.hidden_dropout_prob)
        return self.layer_norm(name, hidden + values)

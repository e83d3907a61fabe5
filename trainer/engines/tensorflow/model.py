"""BERT with its two pretraining heads, as Google and Hugging Face define it, on Keras' operations.

A function of variables by name (trainer/variables.py), a batch and a dropout key: exact GELU, LayerNorm after each residual,
the masked-LM head at the masked positions only, which makes a step three times cheaper than logits at all positions. Nothing
but dense products and gathers, in shapes that depend on the batch's shape alone, so XLA compiles it.

Variables are float32. Products run in `compute_dtype`; LayerNorm, softmax, logits and losses are float32 always. Activations
are (sequences * seq, hidden): with a third dimension TensorFlow would multiply each sequence on its own. No activation has
more than two uses: gradients of more would be added in the order in which TensorFlow finds their memory free, which differs
from run to run in the last digit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import keras
from keras import ops

from trainer.config import MASKED_OUT, ModelConfig
from trainer.engines.tensorflow.dropout import Dropout
from trainer.engines.tensorflow.few_passes import cross_entropy, gelu, layer_norm, look_up
from trainer.metrics import Sums

Tensor: TypeAlias = Any  # of whatever framework Keras runs on
Batch: TypeAlias = Mapping[str, Tensor]  # the seven features of bertprep.records.Examples, by their names


class Logits(NamedTuple):
    """What the two heads say."""

    masked_lm: Tensor  # (sequences * pred, vocabulary)
    next_sentence: Tensor  # (sequences, 2); of class 0, the next sentence, and 1, a random one


def make_variables(values: Mapping[str, Any]) -> dict[str, Any]:
    """New float32 variables of these values, by name."""
    return {name: keras.Variable(value, dtype="float32", name=name.replace("/", ".")) for name, value in values.items()}


def pretraining_logits(
    config: ModelConfig,
    variables: Mapping[str, Any],
    batch: Batch,
    *,
    compute_dtype: str = "float32",
    dropout_key: Tensor | None = None,
) -> Logits:
    """What the model says of a batch, float32; with no dropout unless there is a key for it."""
    return _Pass(config, variables, compute_dtype, Dropout(dropout_key)).logits(batch)


def pretraining_sums(
    config: ModelConfig,
    variables: Mapping[str, Any],
    batch: Batch,
    *,
    compute_dtype: str = "float32",
    dropout_key: Tensor | None = None,
    row_weights: Tensor | None = None,
) -> Sums:
    """Losses and hits of a batch or a part of one; with weights of rows, (sequences,), for their next-sentence labels."""
    logits = pretraining_logits(config, variables, batch, compute_dtype=compute_dtype, dropout_key=dropout_key)
    tokens = ops.reshape(batch["masked_lm_ids"], (-1,))
    weights = ops.cast(ops.reshape(batch["masked_lm_weights"], (-1,)), "float32")
    labels = batch["next_sentence_labels"]
    rows = ops.ones((ops.shape(labels)[0],), "float32") if row_weights is None else row_weights
    return Sums(
        masked_lm_loss=ops.sum(cross_entropy(tokens, logits.masked_lm) * weights),
        masked_lm_correct=ops.sum(_hits(tokens, logits.masked_lm) * weights),
        masked_lm_weight=ops.sum(weights),
        next_sentence_loss=ops.sum(cross_entropy(labels, logits.next_sentence) * rows),
        next_sentence_correct=ops.sum(_hits(labels, logits.next_sentence) * rows),
        sequences=ops.sum(rows),
    )


def loss_share(part: Sums, masked_lm_weight: Tensor, sequences: Tensor) -> Tensor:
    """A part's share of the loss of a global batch that has this weight and this many sequences in all."""
    weight = ops.maximum(masked_lm_weight, 1e-5)  # a batch without a masked token has a loss of 0 there
    return part.masked_lm_loss / weight + part.next_sentence_loss / sequences


def _hits(labels: Tensor, logits: Tensor) -> Tensor:
    return ops.cast(ops.equal(ops.cast(ops.argmax(logits, axis=-1), "int32"), labels), "float32")


@dataclass(frozen=True)
class _Pass:
    """One pass forward; each method takes the name of the variables it uses."""

    config: ModelConfig
    variables: Mapping[str, Any]
    compute_dtype: str
    dropout: Dropout

    def logits(self, batch: Batch) -> Logits:
        sequences, seq = ops.shape(batch["input_ids"])
        hidden = self._encode(batch)
        first = ops.reshape(hidden, (sequences, seq, self.config.hidden_size))[:, 0]
        pooled = ops.tanh(self._dense("bert/pooler/dense", first))
        starts = ops.expand_dims(ops.arange(sequences, dtype="int32") * seq, 1)
        masked = look_up(hidden, ops.reshape(batch["masked_lm_positions"] + starts, (-1,)))
        return Logits(self._masked_lm(masked), self._next_sentence(pooled))

    def _encode(self, batch: Batch) -> Tensor:
        sequences, seq = ops.shape(batch["input_ids"])
        config = self.config
        types = ops.one_hot(ops.reshape(batch["segment_ids"], (-1,)), config.type_vocab_size, dtype="float32")
        table = ops.copy(self._variable("bert/embeddings/word_embeddings"))  # a tensor, which has custom gradients
        words = look_up(table, ops.reshape(batch["input_ids"], (-1,)))
        positions = self._variable("bert/embeddings/position_embeddings")[:seq]
        sums = words + ops.matmul(types, self._variable("bert/embeddings/token_type_embeddings"))
        sums = ops.reshape(ops.reshape(sums, (sequences, seq, config.hidden_size)) + positions, (-1, config.hidden_size))
        hidden = self.dropout(self._layer_norm("bert/embeddings", sums), config.hidden_dropout_prob)
        masked_out = (1 - ops.cast(batch["input_mask"], "float32"))[:, None, None, :] * MASKED_OUT  # (sequences, 1, 1, seq)
        for number in range(config.num_hidden_layers):
            layer = f"bert/encoder/layer_{number}"
            context = self._attend(f"{layer}/attention/self", hidden, masked_out, sequences, seq)
            hidden = self._add(f"{layer}/attention/output", hidden, context)
            inner = gelu(self._dense(f"{layer}/intermediate/dense", hidden))
            hidden = self._add(f"{layer}/output", hidden, inner)
        return hidden

    def _attend(self, name: str, hidden: Tensor, masked_out: Tensor, sequences: Tensor, seq: Tensor) -> Tensor:
        config = self.config

        names = [f"{name}/{part}" for part in ("query", "key", "value")]
        kernel = ops.concatenate([self._variable(f"{each}/kernel") for each in names], axis=1)
        bias = ops.concatenate([self._variable(f"{each}/bias") for each in names], axis=0)
        together = ops.matmul(hidden, ops.cast(kernel, self.compute_dtype)) + ops.cast(bias, self.compute_dtype)
        together = ops.reshape(together, (sequences, seq, 3, config.num_attention_heads, config.head_size))
        query, key, value = ops.unstack(ops.transpose(together, (2, 0, 3, 1, 4)), axis=0)  # (sequences, heads, seq, units)
        query = query * (1 / math.sqrt(config.head_size))
        scores = ops.matmul(query, ops.transpose(key, (0, 1, 3, 2)))  # (sequences, heads, seq, seq)
        weights = ops.cast(ops.softmax(ops.cast(scores, "float32") + masked_out), self.compute_dtype)
        weights = self.dropout(weights, config.attention_probs_dropout_prob)
        context = ops.matmul(weights, value)  # (sequences, heads, seq, units)
        return ops.reshape(ops.transpose(context, (0, 2, 1, 3)), (-1, config.hidden_size))

    def _add(self, name: str, hidden: Tensor, values: Tensor) -> Tensor:
        """What both halves of a layer end with."""
        values = self.dropout(self._dense(f"{name}/dense", values), self.config.hidden_dropout_prob)
        return self._layer_norm(name, hidden + values)

    def _masked_lm(self, masked: Tensor) -> Tensor:
        values = gelu(self._dense("cls/predictions/transform/dense", masked))
        values = self._layer_norm("cls/predictions/transform", values)
        words = ops.cast(self._variable("bert/embeddings/word_embeddings"), self.compute_dtype)
        logits = ops.cast(ops.matmul(values, ops.transpose(words)), "float32")
        return ops.add(logits, self._variable("cls/predictions/output_bias"))

    def _next_sentence(self, pooled: Tensor) -> Tensor:
        weights = ops.transpose(self._variable("cls/seq_relationship/output_weights"))
        logits = ops.matmul(ops.cast(pooled, "float32"), weights)
        return ops.add(logits, self._variable("cls/seq_relationship/output_bias"))

    def _dense(self, name: str, values: Tensor) -> Tensor:
        kernel, bias = (ops.cast(self._variable(f"{name}/{part}"), self.compute_dtype) for part in ("kernel", "bias"))
        return ops.add(ops.matmul(values, kernel), bias)

    def _layer_norm(self, name: str, values: Tensor) -> Tensor:
        gamma, beta = (self._variable(f"{name}/LayerNorm/{part}") for part in ("gamma", "beta"))
        return ops.cast(layer_norm(ops.cast(values, "float32"), gamma, beta), self.compute_dtype)

    def _variable(self, name: str) -> Tensor:
        return ops.convert_to_tensor(self.variables[name])

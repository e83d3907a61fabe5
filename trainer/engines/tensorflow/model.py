"""BERT with its two pretraining heads, as Google and Hugging Face define it, on Keras' operations.

A function of weights by name, a batch and a dropout key: exact GELU, LayerNorm after each residual, the masked-LM head at the
masked positions only, which makes a step three times cheaper than logits at all positions. Nothing but dense products and
gathers, in shapes that depend on the batch's shape alone, so XLA compiles it.

Variables (trainer/weights.py) are float32. `prepare_weights` makes of them what products read, once for all micro-batches of
a step, and `gradients_of_variables` takes the gradients back. Products run in the precision of these weights; LayerNorm,
softmax, logits and losses are float32 always. Activations are (sequences * seq, hidden): with a third dimension TensorFlow
would multiply each sequence on its own. No activation has more than two uses: gradients of more would be added in the order in
which TensorFlow finds their memory free, which differs from run to run in the last digit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import keras
from keras import ops

from trainer.engines.tensorflow.dropout import Dropout
from trainer.engines.tensorflow.fused_ops import add_bias, cross_entropy, gelu, layer_norm, look_up
from trainer.model_config import MASKED_OUT, ModelConfig
from trainer.tasks.pretraining import PretrainingSums

Tensor: TypeAlias = Any  # of whatever framework Keras runs on
Batch: TypeAlias = Mapping[str, Tensor]  # the seven features of bertprep.records.Examples, by their names
Weights: TypeAlias = Mapping[str, Tensor]  # what `prepare_weights` makes of the variables
WORDS = "bert/embeddings/word_embeddings"
_WORDS_OF_LOGITS = "cls/predictions/word_embeddings"
_JOINED = ("query", "key", "value")


class Logits(NamedTuple):
    """What the two heads say."""

    masked_lm: Tensor  # (sequences * pred, vocabulary)
    next_sentence: Tensor  # (sequences, 2); of class 0, the next sentence, and 1, a random one


def make_variables(values: Mapping[str, Any]) -> dict[str, Any]:
    """New float32 variables of these values, by name."""
    return {name: keras.Variable(value, dtype="float32", name=name.replace("/", ".")) for name, value in values.items()}


def prepare_weights(config: ModelConfig, variables: Mapping[str, Any], compute_dtype: str = "float32") -> Weights:
    """What a pass multiplies by and adds: weights of products in `compute_dtype`, those of query, key and value joined.

    Queries are divided by the root of the head size in their kernel and bias, which are smaller than they are. The word
    embeddings are there twice in half precision: as float32 for the lookup, and for the logits.
    """
    weights = {name: ops.copy(variable) for name, variable in variables.items()}  # as tensors, which have gradients
    for name in _self_attentions(config):
        for part, axis in (("kernel", 1), ("bias", 0)):
            query, key, value = (weights.pop(f"{name}/{each}/{part}") for each in _JOINED)
            weights[f"{name}/{part}"] = ops.concatenate([query * _query_scale(config), key, value], axis=axis)
    for name, weight in weights.items():
        if name.endswith(("/kernel", "/bias")):
            weights[name] = ops.cast(weight, compute_dtype)
    if compute_dtype != "float32":
        weights[_WORDS_OF_LOGITS] = ops.cast(weights[WORDS], compute_dtype)
    return weights


def float32_gradients(gradients: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Those of prepared weights as they are summed over micro-batches: float32, those of the word embeddings added up."""
    exact = {name: ops.cast(gradient, "float32") for name, gradient in gradients.items()}
    if _WORDS_OF_LOGITS in exact:
        exact[WORDS] = exact[WORDS] + exact.pop(_WORDS_OF_LOGITS)
    return exact


def gradients_of_variables(config: ModelConfig, gradients: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Gradients by the variables' names, from float32 ones of prepared weights."""
    separate = dict(gradients)
    for name in _self_attentions(config):
        for part, axis in (("kernel", 1), ("bias", 0)):
            query, key, value = ops.split(separate.pop(f"{name}/{part}"), 3, axis=axis)
            for each, gradient in zip(_JOINED, (query * _query_scale(config), key, value), strict=True):
                separate[f"{name}/{each}/{part}"] = gradient
    return separate


def pretraining_logits(config: ModelConfig, weights: Weights, batch: Batch, *, dropout_key: Tensor | None = None) -> Logits:
    """What the model says of a batch, float32, with prepared weights; with no dropout unless there is a key for it."""
    return _Pass(config, weights, Dropout(dropout_key)).logits(batch)


def pretraining_sums(
    config: ModelConfig,
    weights: Weights,
    batch: Batch,
    *,
    dropout_key: Tensor | None = None,
    row_weights: Tensor | None = None,
) -> PretrainingSums:
    """Losses and hits of a batch or a part of one; with weights of rows, (sequences,), for their next-sentence labels."""
    logits = pretraining_logits(config, weights, batch, dropout_key=dropout_key)
    tokens = ops.reshape(batch["masked_lm_ids"], (-1,))
    counts = ops.cast(ops.reshape(batch["masked_lm_weights"], (-1,)), "float32")
    labels = batch["next_sentence_labels"]
    rows = ops.ones((ops.shape(labels)[0],), "float32") if row_weights is None else row_weights
    return PretrainingSums(
        masked_lm_loss_sum=ops.sum(cross_entropy(tokens, logits.masked_lm) * counts),
        masked_lm_correct_sum=ops.sum(_hits(tokens, logits.masked_lm) * counts),
        masked_lm_weight_sum=ops.sum(counts),
        next_sentence_loss_sum=ops.sum(cross_entropy(labels, logits.next_sentence) * rows),
        next_sentence_correct_sum=ops.sum(_hits(labels, logits.next_sentence) * rows),
        sequences=ops.sum(rows),
    )


def loss_share(part: PretrainingSums, masked_lm_weight: Tensor, sequences: Tensor) -> Tensor:
    """A part's share of the loss of a global batch that has this weight and this many sequences in all."""
    weight = ops.maximum(masked_lm_weight, 1e-5)  # a batch without a masked token has a loss of 0 there
    return part.masked_lm_loss_sum / weight + part.next_sentence_loss_sum / sequences


def _hits(labels: Tensor, logits: Tensor) -> Tensor:
    return ops.cast(ops.equal(ops.cast(ops.argmax(logits, axis=-1), "int32"), labels), "float32")


def _self_attentions(config: ModelConfig) -> list[str]:
    return [f"bert/encoder/layer_{number}/attention/self" for number in range(config.num_hidden_layers)]


def _query_scale(config: ModelConfig) -> float:
    return 1 / math.sqrt(config.head_size)


@dataclass(frozen=True)
class _Pass:
    """One pass forward; each method takes the name of the weights it uses."""

    config: ModelConfig
    weights: Weights
    dropout: Dropout

    @property
    def compute_dtype(self) -> str:
        return str(self.weights["bert/pooler/dense/kernel"].dtype.name)

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
        words = look_up(self.weights[WORDS], ops.reshape(batch["input_ids"], (-1,)))
        positions = self.weights["bert/embeddings/position_embeddings"][:seq]
        sums = words + ops.matmul(types, self.weights["bert/embeddings/token_type_embeddings"])
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
        together = ops.reshape(self._dense(name, hidden), (sequences, seq, 3, config.num_attention_heads, config.head_size))
        query, key, value = ops.unstack(ops.transpose(together, (2, 0, 3, 1, 4)), axis=0)  # (sequences, heads, seq, units)
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
        words = self.weights.get(_WORDS_OF_LOGITS, self.weights[WORDS])
        logits = ops.cast(ops.matmul(values, ops.transpose(words)), "float32")
        return add_bias(logits, self.weights["cls/predictions/output_bias"])

    def _next_sentence(self, pooled: Tensor) -> Tensor:
        weights = ops.transpose(self.weights["cls/seq_relationship/output_weights"])
        logits = ops.matmul(ops.cast(pooled, "float32"), weights)
        return add_bias(logits, self.weights["cls/seq_relationship/output_bias"])

    def _dense(self, name: str, values: Tensor) -> Tensor:
        return add_bias(ops.matmul(values, self.weights[f"{name}/kernel"]), self.weights[f"{name}/bias"])

    def _layer_norm(self, name: str, values: Tensor) -> Tensor:
        gamma, beta = (self.weights[f"{name}/LayerNorm/{part}"] for part in ("gamma", "beta"))
        return ops.cast(layer_norm(ops.cast(values, "float32"), gamma, beta), self.compute_dtype)

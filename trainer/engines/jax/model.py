"""BERT, as Google and Hugging Face define it: pure functions of weights by name, a batch, and a key of dropout.

    embed      word + position + segment -> LayerNorm                          (sequences, seq, hidden)
    layer      attention -> product -> + input -> LayerNorm -> two products with GELU between them -> + -> LayerNorm
    pool       the first token -> product -> tanh                              (sequences, hidden)

`encode` is the first with all layers; what a task adds (heads, losses) stands beside this: pretraining.py. Weights have the
names of Google's checkpoints (trainer/weights.py); a part is given its own, by the rest of their names. Products run in the
precision of their weights; LayerNorm, softmax, logits and losses are always float32. GELU is exact, by the error function.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp

from trainer.engines.jax.fused_ops import Array, dropout, float32_product, gelu, layer_norm, look_up
from trainer.model_config import MASKED_OUT, ModelConfig

Batch: TypeAlias = Mapping[str, Array]  # features by their names, as in bertprep.records.Examples
Weights: TypeAlias = Mapping[str, Array]
WORDS = "bert/embeddings/word_embeddings"
DRAWS = 3
"""Dropout masks of a layer; the embeddings' is number 0 of a pass, those of layer n begin with 1 + 3 n, a head's is last."""


class Model(NamedTuple):
    """What is computed, and how."""

    config: ModelConfig
    fused_attention: bool = False  # by cuDNN; for masks whose ones come first, and without dropout of attention
    recompute: bool = False  # keep only the input of each layer for the backward pass

    def without_dropout(self) -> Model:
        return self._replace(config=self.config.without_dropout())


def encode(model: Model, weights: Weights, batch: Batch, key: Array | None = None) -> Array:
    """The last layer's output for every token, (sequences, seq, hidden); without a key nothing is dropped."""
    hidden = embed(model, of_part(weights, "bert/embeddings"), batch, key)
    hidden = hidden.astype(weights["bert/encoder/layer_0/output/dense/kernel"].dtype)  # and all that follows
    of_layer: Callable[..., Array] = partial(layer, model)
    if model.recompute:
        of_layer = jax.checkpoint(of_layer)
    for number in range(model.config.num_hidden_layers):
        of_this = of_part(weights, f"bert/encoder/layer_{number}")
        hidden = of_layer(of_this, hidden, batch["input_mask"], nth_key(key, 1 + DRAWS * number))
    return hidden


def embed(model: Model, weights: Weights, batch: Batch, key: Array | None) -> Array:
    """What each token is, where it stands and in which segment, added up: (sequences, seq, hidden), float32."""
    tokens, segments = batch["input_ids"], batch["segment_ids"]
    sums = look_up(weights["word_embeddings"], tokens) + weights["position_embeddings"][: tokens.shape[1]]
    # of a product with so few rows the gradient is one too, instead of a sum in any order
    sums += jax.nn.one_hot(segments, model.config.type_vocab_size) @ weights["token_type_embeddings"]
    hidden = normalize(of_part(weights, "LayerNorm"), sums)
    return dropout(hidden, model.config.hidden_dropout_prob, key)


def layer(model: Model, weights: Weights, hidden: Array, mask: Array, key: Array | None) -> Array:
    """One layer: each token looks at the others, then is thought over by itself."""
    drop = model.config.hidden_dropout_prob
    context = attention(model, of_part(weights, "attention/self"), hidden, mask, key)
    output = dropout(dense(weights, "attention/output/dense", context), drop, nth_key(key, 1))
    hidden = normalize(of_part(weights, "attention/output/LayerNorm"), hidden + output)
    inner = gelu(dense(weights, "intermediate/dense", hidden))
    output = dropout(dense(weights, "output/dense", inner), drop, nth_key(key, 2))
    return normalize(of_part(weights, "output/LayerNorm"), hidden + output)


def attention(model: Model, weights: Weights, hidden: Array, mask: Array, key: Array | None) -> Array:
    """What each token takes from all that the mask, (sequences, seq), lets it see: (sequences, seq, hidden)."""
    config, (sequences, seq, _) = model.config, hidden.shape
    shape = (sequences, seq, config.num_attention_heads, -1)
    query, keys, values = (dense(weights, part, hidden).reshape(shape) for part in ("query", "key", "value"))
    if model.fused_attention and (key is None or not config.attention_probs_dropout_prob):
        lengths = jnp.maximum(mask.sum(axis=1, dtype=jnp.int32), 1)  # a row that only fills a batch up has no token
        context = jax.nn.dot_product_attention(query, keys, values, key_value_seq_lengths=lengths, implementation="cudnn")
    else:
        scores = float32_product("nqhu,nkhu->nhqk", query, keys) / math.sqrt(config.head_size)
        scores += jnp.where(mask, 0.0, MASKED_OUT)[:, None, None, :]
        probabilities = jax.nn.softmax(scores).astype(hidden.dtype)  # (sequences, heads, seq, seq)
        probabilities = dropout(probabilities, config.attention_probs_dropout_prob, key)
        context = jnp.einsum("nhqk,nkhu->nqhu", probabilities, values)
    return context.reshape(hidden.shape)


def normalize(weights: Weights, values: Array) -> Array:
    """LayerNorm of each row."""
    return layer_norm(values, weights["gamma"], weights["beta"])


def pool(weights: Weights, hidden: Array) -> Array:
    """What the encoder says of each sequence as a whole, (sequences, hidden), by its first token."""
    return jnp.tanh(dense(weights, "bert/pooler/dense", hidden[:, 0]))


def dense(weights: Weights, name: str, values: Array) -> Array:
    """A product and a bias; of all rows as one matrix, since with more axes a CPU takes a tenth longer for its gradients."""
    rows = values.reshape(-1, values.shape[-1]) @ weights[f"{name}/kernel"] + weights[f"{name}/bias"]
    return rows.reshape(*values.shape[:-1], -1)


def nth_key(key: Array | None, number: int) -> Array | None:
    """The key of a pass's dropout mask of this number, or of one that counts from another."""
    return None if key is None else key + jnp.array([0, number], key.dtype)


def of_part(weights: Weights, part: str) -> dict[str, Array]:
    """The weights of a part, by the rest of their names.

    >>> of_part({"bert/pooler/dense/bias": 0, "bert/embeddings/LayerNorm/beta": 1}, "bert/embeddings")
    {'LayerNorm/beta': 1}
    """
    return {name[len(part) + 1 :]: weight for name, weight in weights.items() if name.startswith(f"{part}/")}

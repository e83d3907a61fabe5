"""The variables of a model: their names, their shapes and their first values, which are the same for every engine.

The names are those of Google's checkpoints, and they are what checkpoints, optimizers and exports go by; they never change.
Kernels are (in, out). The masked-LM head multiplies by the word embeddings and has a bias of its own. Values are drawn by
NumPy, each variable from the seed and its place in the list: a normal distribution of the configuration's
`initializer_range`, cut at two standard deviations; biases and `beta` are 0, `gamma` is 1.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from trainer.config import ModelConfig


def variable_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Name and shape of every variable, in the order in which they are kept everywhere.

    >>> shapes = variable_shapes(ModelConfig.preset("tiny"))
    >>> shapes["bert/encoder/layer_1/intermediate/dense/kernel"]
    (128, 512)
    """
    return dict(_variables(config))


def _variables(config: ModelConfig) -> Iterator[tuple[str, tuple[int, ...]]]:
    hidden, inner = config.hidden_size, config.intermediate_size
    yield "bert/embeddings/word_embeddings", (config.vocab_size, hidden)
    yield "bert/embeddings/token_type_embeddings", (config.type_vocab_size, hidden)
    yield "bert/embeddings/position_embeddings", (config.max_position_embeddings, hidden)
    yield from _layer_norm("bert/embeddings", hidden)
    for number in range(config.num_hidden_layers):
        layer = f"bert/encoder/layer_{number}"
        for part in ("query", "key", "value"):
            yield from _dense(f"{layer}/attention/self/{part}", hidden, hidden)
        yield from _dense(f"{layer}/attention/output/dense", hidden, hidden)
        yield from _layer_norm(f"{layer}/attention/output", hidden)
        yield from _dense(f"{layer}/intermediate/dense", hidden, inner)
        yield from _dense(f"{layer}/output/dense", inner, hidden)
        yield from _layer_norm(f"{layer}/output", hidden)
    yield from _dense("bert/pooler/dense", hidden, hidden)
    yield from _dense("cls/predictions/transform/dense", hidden, hidden)
    yield from _layer_norm("cls/predictions/transform", hidden)
    yield "cls/predictions/output_bias", (config.vocab_size,)
    yield "cls/seq_relationship/output_weights", (2, hidden)  # (out, in), alone of all
    yield "cls/seq_relationship/output_bias", (2,)


def _dense(name: str, inputs: int, outputs: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield f"{name}/kernel", (inputs, outputs)
    yield f"{name}/bias", (outputs,)


def _layer_norm(name: str, size: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield f"{name}/LayerNorm/gamma", (size,)
    yield f"{name}/LayerNorm/beta", (size,)


def initial_values(config: ModelConfig, seed: int) -> dict[str, NDArray[np.float32]]:
    """First values of all variables, in 4 bytes a parameter."""
    return {
        name: _initial_value(name, shape, config.initializer_range, np.random.default_rng([seed, place]))
        for place, (name, shape) in enumerate(variable_shapes(config).items())
    }


def _initial_value(name: str, shape: tuple[int, ...], deviation: float, rng: np.random.Generator) -> NDArray[np.float32]:
    if name.endswith(("bias", "beta")):
        return np.zeros(shape, np.float32)
    if name.endswith("gamma"):
        return np.ones(shape, np.float32)
    values = rng.standard_normal(shape, np.float32)
    flat = values.reshape(-1)
    beyond = np.flatnonzero(np.abs(flat) > 2)
    while len(beyond):  # each is drawn again until it fits: 4.6% of them, then 4.6% of these
        flat[beyond] = rng.standard_normal(len(beyond), np.float32)
        beyond = beyond[np.abs(flat[beyond]) > 2]
    values *= np.float32(deviation)
    return values

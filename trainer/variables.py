"""The variables of a model: their names, their shapes and their first values, which are the same for every engine.

The names are those of Google's checkpoints (`bertprep.weights.google_names`), and they are what checkpoints, optimizers and
exports go by; they never change. Values are drawn by NumPy, each variable from the seed and its place in the list: a normal
distribution of the configuration's `initializer_range`, cut at two standard deviations; biases and `beta` are 0, `gamma` is 1.
"""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
from numpy.typing import NDArray

from bertprep.weights import google_names
from trainer.model_config import ModelConfig


def variable_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Name and shape of every variable, in the order in which they are kept everywhere.

    >>> shapes = variable_shapes(ModelConfig.preset("tiny"))
    >>> shapes["bert/encoder/layer_1/intermediate/dense/kernel"]
    (128, 512)
    """
    return google_names.variable_shapes(asdict(config))


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

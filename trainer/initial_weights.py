"""The weights that a run begins with, where they are not drawn anew: a checkpoint, or a model of Hugging Face's or Google's.

What a file is, its content says and not its name: a checkpoint has the settings of its run in it. Of a checkpoint the weights
alone are taken; moments, the loss scale and the position in the data are those of its own run, which going on with that run
keeps. Every variable must be there and fit: a model that is trained on in part is an accident that no loss would show.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bertprep.errors import BertprepError, UsageError
from bertprep.weights.google_names import check_variables
from bertprep.weights.hugging_face import hugging_face_name, load_weights, map_weights
from bertprep.weights.safetensors import map_safetensors
from bertprep.weights.tensor_bundle import INDEX_SUFFIX, TensorBundle, find_prefix
from bertprep.workspace.layout import GOOGLE_PREFIX
from trainer import checkpoint
from trainer.model_config import ModelConfig
from trainer.variables import variable_shapes

HUGGING_FACE_FILE = "model.safetensors"
_WORDS = "bert/embeddings/word_embeddings"


def read_initial_weights(path: Path, config: ModelConfig) -> dict[str, NDArray[np.float32]]:
    """Values of all variables by our names, from any file or folder that `find_weights` finds."""
    file = find_weights(path)
    shapes = variable_shapes(config)
    if find_prefix(file):
        bundle = TensorBundle(file)
        _check_vocabulary(file, bundle.shapes.get(_WORDS), config)
        check_variables(file, bundle.shapes, shapes)
        return {name: bundle.read(name) for name in shapes}
    if checkpoint.is_checkpoint(file):
        return take_weights(file, checkpoint.read(file).state, config)
    _check_words_of_hugging_face(file, config)
    return load_weights(file, shapes)


def check_initial_weights(path: Path, config: ModelConfig) -> None:
    """Raise what `read_initial_weights` would raise for names and shapes; no values are read."""
    file = find_weights(path)
    if find_prefix(file):
        found = TensorBundle(file).shapes
        _check_vocabulary(file, found.get(_WORDS), config)
        check_variables(file, found, variable_shapes(config))
    elif checkpoint.is_checkpoint(file):
        with map_safetensors(file) as state:
            take_weights(file, state, config)
    else:
        _check_words_of_hugging_face(file, config)
        with map_weights(file, variable_shapes(config)):
            pass


def find_weights(path: Path) -> Path:
    """What a user means by a file, by a prefix of Google's files, or by the folder of either.

    In a folder: a run's newest checkpoint, or else a model of Hugging Face's, or else Google's. Raises `UsageError`.
    """
    if prefix := find_prefix(path):
        return prefix
    if path.is_file():
        return path
    kinds = f"a checkpoint, a {HUGGING_FACE_FILE} or a {GOOGLE_PREFIX}"
    if not path.exists():
        raise UsageError(f"{path}: does not exist; name {kinds}, or a folder that holds one")
    found = checkpoint.newest(path)
    if found is None and (path / HUGGING_FACE_FILE).is_file():
        found = path / HUGGING_FACE_FILE
    if found := found or _newest_of_google(path):
        return found
    raise UsageError(f"{path}: holds neither a checkpoint nor a {HUGGING_FACE_FILE} nor a {GOOGLE_PREFIX}; name {kinds}")


def _newest_of_google(folder: Path) -> Path | None:
    """The prefix of the highest step in a folder, model.ckpt-300 as TensorFlow names them, or the one without a step."""
    prefixes = [index.with_name(index.name.removesuffix(INDEX_SUFFIX)) for index in folder.glob(f"*{INDEX_SUFFIX}")]
    steps = {int(match[1]): prefix for prefix in prefixes if (match := re.search(r"-(\d+)$", prefix.name))}
    if steps:
        return steps[max(steps)]
    released = folder / GOOGLE_PREFIX
    if released in prefixes or not prefixes:
        return released if prefixes else None
    if len(prefixes) > 1:
        names = ", ".join(sorted(ascii(prefix.name) for prefix in prefixes))
        raise UsageError(f"{folder}: holds several checkpoints of TensorFlow, {names}; name one of them")
    return prefixes[0]


def take_weights(file: Path, state: Mapping[str, NDArray[np.float32]], config: ModelConfig) -> dict[str, NDArray[np.float32]]:
    """The variables of a model out of all that a checkpoint holds, each of the shape that the model has for it."""
    found = {name: value.shape for name, value in state.items()}
    _check_vocabulary(file, found.get(_WORDS), config)
    shapes = variable_shapes(config)
    check_variables(file, found, shapes)
    return {name: state[name] for name in shapes}


def _check_words_of_hugging_face(file: Path, config: ModelConfig) -> None:
    with map_safetensors(file) as found:
        words = found.get(hugging_face_name(_WORDS))
        _check_vocabulary(file, None if words is None else words.shape, config)


def _check_vocabulary(file: Path, words: tuple[int, ...] | None, config: ModelConfig) -> None:
    """Raise where another number of words is all that is wrong, as where a trainer rounded its own up for its devices."""
    if words is None or len(words) != 2 or words[1] != config.hidden_size or words[0] == config.vocab_size:
        return
    tokens = f"{config.vocab_size:,} tokens"
    if words[0] > config.vocab_size:
        wrong = f"has {words[0]:,} word embeddings for a vocabulary of {tokens}: it is padded, or of another vocabulary"
    else:
        wrong = f"has {words[0]:,} word embeddings, too few for a vocabulary of {tokens}: it is of another vocabulary"
    raise BertprepError(
        f"{file}: {wrong}; give a bert_config.json with vocab_size {words[0]}, and records made with its vocabulary"
    )

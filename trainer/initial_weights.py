"""The weights that a run begins with, where they are not drawn anew: a checkpoint, or Hugging Face's model.

What a file is, its content says and not its name: a checkpoint has the settings of its run in it. Of a checkpoint the weights
alone are taken; moments, the loss scale and the position in the data are those of its own run, which going on with that run
keeps. Every variable must be there and fit: a model that is trained on in part is an accident that no loss would show.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bertprep.errors import BertprepError, UsageError
from trainer import checkpoint
from trainer.config import ModelConfig
from trainer.safetensors import read_safetensors
from trainer.variables import variable_shapes
from trainer.weights import hugging_face_name, load_weights, sizes

HUGGING_FACE_FILE = "model.safetensors"
_WORDS = "bert/embeddings/word_embeddings"


def read_initial_weights(path: Path, config: ModelConfig) -> dict[str, NDArray[np.float32]]:
    """Values of all variables by our names, from a checkpoint, a run's folder, a `model.safetensors`, or its folder."""
    file = find_weights(path)
    if checkpoint.is_checkpoint(file):
        return take_weights(file, checkpoint.read(file).state, config)
    values = read_safetensors(file)
    _check_vocabulary(file, values.get(hugging_face_name(_WORDS)), config)
    return load_weights(file, config)


def find_weights(path: Path) -> Path:
    """The file that a user means by it or by its folder: a run's newest checkpoint, or else a model of Hugging Face's."""
    if path.is_file():
        return path
    if not path.exists():
        raise UsageError(f"{path}: does not exist; name a checkpoint, the folder of a run, or a {HUGGING_FACE_FILE}")
    newest = checkpoint.newest(path)
    if newest is None and not (path / HUGGING_FACE_FILE).is_file():
        raise UsageError(f"{path}: holds neither a checkpoint nor a {HUGGING_FACE_FILE}; name a folder that does, or a file")
    return newest or path / HUGGING_FACE_FILE


def take_weights(file: Path, state: Mapping[str, NDArray[np.float32]], config: ModelConfig) -> dict[str, NDArray[np.float32]]:
    """The variables of a model out of all that a checkpoint holds, each of the shape that the model has for it."""
    _check_vocabulary(file, state.get(_WORDS), config)
    shapes = variable_shapes(config)
    missing = [name for name in shapes if name not in state]
    if missing:
        raise BertprepError(
            f"{file}: lacks {len(missing)} of the model's {len(shapes)} variables, the first is {missing[0]}; "
            "give the model that it was made with"
        )
    for name, shape in shapes.items():
        if state[name].shape != shape:
            raise BertprepError(
                f"{file}: {name}: the model has {sizes(shape)} for it, found {sizes(state[name].shape)}; "
                "give the model that it was made with"
            )
    return {name: state[name] for name in shapes}


def _check_vocabulary(file: Path, words: NDArray[np.float32] | None, config: ModelConfig) -> None:
    """Raise where another number of words is all that is wrong, as where a trainer rounded its own up for its devices."""
    if words is None or words.ndim != 2 or words.shape[1] != config.hidden_size or len(words) == config.vocab_size:
        return
    tokens = f"{config.vocab_size:,} tokens"
    if len(words) > config.vocab_size:
        wrong = f"has {len(words):,} word embeddings for a vocabulary of {tokens}: it is padded, or of another vocabulary"
    else:
        wrong = f"has {len(words):,} word embeddings, too few for a vocabulary of {tokens}: it is of another vocabulary"
    raise BertprepError(
        f"{file}: {wrong}; give a bert_config.json with vocab_size {len(words)}, and records made with its vocabulary"
    )

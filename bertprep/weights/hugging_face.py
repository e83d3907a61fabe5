"""Reads and writes files of weights for Hugging Face's BertForPreTraining and its classes for tasks.

Names correspond to Google's one to one. Dense layers are (out, in), not (in, out) as in Google's files:

    bert/encoder/layer_0/output/dense/kernel     bert.encoder.layer.0.output.dense.weight    transposed
    bert/encoder/layer_0/output/LayerNorm/gamma  bert.encoder.layer.0.output.LayerNorm.weight; LayerNorm.gamma in old files
    bert/embeddings/word_embeddings              bert.embeddings.word_embeddings.weight
    cls/predictions/output_bias                  cls.predictions.bias

In a file of BertModel alone, names do not begin with "bert.". The copy of the word embeddings that some files have as the
head's matrix is ignored. The heads of tasks may have other names, which the caller gives.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from bertprep.weights.google_names import Shapes, WeightFile, check_variables
from bertprep.weights.safetensors import open_safetensors, write_safetensors

Weights = Mapping[str, NDArray[np.float32]]
_THEIR_LAST_WORD = {
    "kernel": "weight",
    "gamma": "weight",
    "beta": "bias",
    "output_bias": "bias",
    "output_weights": "weight",
    "word_embeddings": "word_embeddings.weight",
    "token_type_embeddings": "token_type_embeddings.weight",
    "position_embeddings": "position_embeddings.weight",
}
_NO_HEADS: Mapping[str, str] = MappingProxyType({})
_COPIES = ("cls.predictions.decoder.weight", "cls.predictions.decoder.bias", "bert.embeddings.position_ids")


def hugging_face_name(name: str) -> str:
    """Return Hugging Face's name for a variable with this name of Google's.

    >>> hugging_face_name("bert/encoder/layer_3/attention/self/query/kernel")
    'bert.encoder.layer.3.attention.self.query.weight'
    """
    *path, last = name.replace("layer_", "layer/").split("/")
    return ".".join([*path, _THEIR_LAST_WORD.get(last, last)])


@contextmanager
def open_weights(path: Path, names: Collection[str], head_names: Mapping[str, str] = _NO_HEADS) -> Iterator[WeightFile]:
    """Open a `model.safetensors`: the variables in `names` get Google's names, all others their own with slashes for dots.

    `head_names` maps Google's names to Hugging Face's where these cannot be derived.
    """
    with open_safetensors(path) as file:
        of_bert_model = "embeddings.word_embeddings.weight" in file.shapes
        own_names = {f"bert.{each}" if of_bert_model else each: each for each in file.shapes}
        stored: dict[str, str] = {}
        for name in names:
            derived = hugging_face_name(name)
            of_old_files = f"{derived.rpartition('.')[0]}.{name.rpartition('/')[2]}"  # LayerNorm.gamma
            for theirs in (head_names.get(name, derived), of_old_files, derived):
                if theirs in own_names:
                    stored[name] = own_names.pop(theirs)
                    break
        stored |= {name.replace(".", "/"): each for name, each in own_names.items() if name not in _COPIES}

        def read(name: str) -> NDArray[np.float32]:
            values = file.read(stored[name])
            return values.T if name.endswith("kernel") else values

        shapes = {name: file.shapes[each][:: -1 if name.endswith("kernel") else 1] for name, each in stored.items()}
        yield WeightFile(shapes, read, lambda name: head_names.get(name) or hugging_face_name(name))


def read_weights(path: Path, shapes: Shapes, *, heads: bool = True) -> dict[str, NDArray[np.float32]]:
    """Read the variables in `shapes` from a `model.safetensors`, by Google's names.

    If `heads` is False, the heads may be missing.
    """
    with open_weights(path, shapes) as file:
        expected = {
            name: shape for name, shape in shapes.items() if heads or name in file.shapes or not name.startswith("cls/")
        }
        check_variables(path, file.shapes, expected, hugging_face_name)
        return {name: file.read(name) for name in expected}


def save_weights(path: Path, weights: Weights, head_names: Mapping[str, str] = _NO_HEADS) -> None:
    """Write variables with Google's names to a file that `from_pretrained` of the model's class reads."""
    names = {name: head_names.get(name) or hugging_face_name(name) for name in weights}
    theirs = {names[name]: value.T if name.endswith("kernel") else value for name, value in weights.items()}
    write_safetensors(path, theirs, {"format": "pt"})  # transformers requires it

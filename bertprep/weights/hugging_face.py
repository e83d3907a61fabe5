"""A model's weights in the files that Hugging Face's BertForPreTraining, and its classes for tasks, read and write.

The names are Google's in other words, and dense layers keep (out, in) where Google's keep (in, out):

    bert/encoder/layer_0/output/dense/kernel     bert.encoder.layer.0.output.dense.weight    transposed
    bert/encoder/layer_0/output/LayerNorm/gamma  bert.encoder.layer.0.output.LayerNorm.weight; LayerNorm.gamma in old files
    bert/embeddings/word_embeddings              bert.embeddings.word_embeddings.weight
    cls/predictions/output_bias                  cls.predictions.bias
    cls/squad/output_weights, output_weights     qa_outputs.weight, classifier.weight

A file of BertModel alone has no "bert." before its names.
The masked-LM head's matrix is the word embeddings, in both; a copy of it in a file is ignored.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bertprep.weights.google_names import Shapes, check_variables
from bertprep.weights.safetensors import map_safetensors, write_safetensors

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
_HEADS = {
    "cls/squad/output_weights": "qa_outputs.weight",
    "cls/squad/output_bias": "qa_outputs.bias",
    "output_weights": "classifier.weight",
    "output_bias": "classifier.bias",
}
_COPIES = ("cls.predictions.decoder.weight", "cls.predictions.decoder.bias", "bert.embeddings.position_ids")


def hugging_face_name(name: str) -> str:
    """What Hugging Face calls the variable of this name.

    >>> hugging_face_name("bert/encoder/layer_3/attention/self/query/kernel")
    'bert.encoder.layer.3.attention.self.query.weight'
    """
    if name in _HEADS:
        return _HEADS[name]
    *path, last = name.replace("layer_", "layer/").split("/")
    return ".".join([*path, _THEIR_LAST_WORD.get(last, last)])


@contextmanager
def map_weights(path: Path, shapes: Shapes, *, heads: bool = True) -> Iterator[dict[str, NDArray[np.float32]]]:
    """Values of all variables of these shapes, by Google's names, as views of a `model.safetensors`, which take no memory.

    Raises `BertprepError` where the file is not of this model, and after the block where it was cut short meanwhile; without
    `heads`, the heads' variables may be missing.
    """
    with map_named(path, shapes) as found:
        weights = {name: found[name] for name in shapes if name in found}
        expected = {name: shape for name, shape in shapes.items() if heads or name in weights or not name.startswith("cls/")}
        check_variables(path, {name: value.shape for name, value in found.items()}, expected, hugging_face_name)
        yield weights


@contextmanager
def map_named(path: Path, names: Collection[str]) -> Iterator[dict[str, NDArray[np.float32]]]:
    """All that a `model.safetensors` holds, as views: one of `names` by Google's name, the rest with slashes for dots."""
    with map_safetensors(path) as found:
        if "embeddings.word_embeddings.weight" in found:  # of BertModel
            found = {f"bert.{name}": value for name, value in found.items()}
        weights, known = {}, set(_COPIES)
        for name in names:
            theirs = hugging_face_name(name)
            for each in (theirs, ".".join([theirs.rpartition(".")[0], name.rpartition("/")[2]])):  # LayerNorm.gamma
                if each in found:
                    weights[name] = found[each].T if name.endswith("kernel") else found[each]
                    known.add(each)
        yield weights | {name.replace(".", "/"): value for name, value in found.items() if name not in known}


def save_weights(path: Path, weights: Weights) -> None:
    """Write values of variables, by Google's names, as the file that `from_pretrained` of their class reads."""
    theirs = {hugging_face_name(name): value.T if name.endswith("kernel") else value for name, value in weights.items()}
    write_safetensors(path, theirs, {"format": "pt"})  # which is what transformers wants to see

"""A model's weights in the files that Hugging Face's BertForPreTraining reads and writes.

Their names are ours with other words, and their dense layers keep (out, in) where ours keep (in, out):

    bert/encoder/layer_0/output/dense/kernel     bert.encoder.layer.0.output.dense.weight    transposed
    bert/encoder/layer_0/output/LayerNorm/gamma  bert.encoder.layer.0.output.LayerNorm.weight; LayerNorm.gamma in old files
    bert/embeddings/word_embeddings              bert.embeddings.word_embeddings.weight
    cls/predictions/output_bias                  cls.predictions.bias

The masked-LM head's matrix is the word embeddings, in both; a copy of it in a file is passed over.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bertprep.errors import BertprepError
from trainer.config import ModelConfig
from trainer.safetensors import read_safetensors, write_safetensors
from trainer.variables import variable_shapes

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


def hugging_face_name(name: str) -> str:
    """What Hugging Face calls the variable of this name.

    >>> hugging_face_name("bert/encoder/layer_3/attention/self/query/kernel")
    'bert.encoder.layer.3.attention.self.query.weight'
    """
    *path, last = name.replace("layer_", "layer/").split("/")
    return ".".join([*path, _THEIR_LAST_WORD.get(last, last)])


def load_weights(path: Path, config: ModelConfig) -> dict[str, NDArray[np.float32]]:
    """Values of all variables by our names, from a `model.safetensors` of Hugging Face's."""
    found = read_safetensors(path)
    weights, missing = {}, []
    for name, shape in variable_shapes(config).items():
        theirs = hugging_face_name(name)
        old = ".".join([theirs.rpartition(".")[0], name.rpartition("/")[2]])  # LayerNorm.gamma
        value = found.get(theirs, found.get(old))
        if value is None:
            missing.append(theirs)
            continue
        if name.endswith("kernel"):
            value = np.ascontiguousarray(value.T)
        if value.shape != shape:
            raise BertprepError(
                f"{path}: {theirs}: the model has {sizes(shape)} for it, found {sizes(value.shape)}; "
                "give the bert_config.json that belongs to the file"
            )
        weights[name] = value
    if missing:
        raise BertprepError(
            f"{path}: holds {len(weights)} of the model's {len(weights) + len(missing)} variables; missing are "
            f"{', '.join(missing[:3])}{' and others' if len(missing) > 3 else ''}; "
            "weights of BertForPreTraining, with both heads, are needed"
        )
    return weights


def save_weights(path: Path, weights: Weights) -> None:
    """Write values of variables, by our names, as a `model.safetensors` that `BertForPreTraining.from_pretrained` reads."""
    theirs = {hugging_face_name(name): value.T if name.endswith("kernel") else value for name, value in weights.items()}
    write_safetensors(path, theirs, {"format": "pt"})  # which is what transformers wants to see


def sizes(shape: tuple[int, ...]) -> str:
    """A shape as people read it: 8,000 x 128."""
    return " x ".join(f"{size:,}" for size in shape)

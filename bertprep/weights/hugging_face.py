"""Reads and writes files of weights for Hugging Face's BertForPreTraining and its classes for tasks.

Names correspond to Google's one to one. Dense layers are (out, in), not (in, out) as in Google's files:

    bert/encoder/layer_0/output/dense/kernel     bert.encoder.layer.0.output.dense.weight    transposed
    bert/encoder/layer_0/output/LayerNorm/gamma  bert.encoder.layer.0.output.LayerNorm.weight; LayerNorm.gamma in old files
    bert/embeddings/word_embeddings              bert.embeddings.word_embeddings.weight
    cls/predictions/output_bias                  cls.predictions.bias

In a file of BertModel alone, names do not begin with "bert.". What wraps a model adds to its names: DataParallel,
torch.compile, FSDP, or a module of Lightning; `_plain_names` removes that. The copy of the word embeddings that some files have
as the head's matrix is ignored. The heads of tasks may have other names, which the caller gives.

A model is one file, safetensors or PyTorch's, or several, which an index lists: {"weight_map": {"name of an array": "file"}}.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from bertprep.errors import BertprepError, reading
from bertprep.files.paths import open_head
from bertprep.untrusted import NAME, OBJECT, check_values, parse_json, read_bounded
from bertprep.weights.google_names import Shapes, WeightFile, check_variables
from bertprep.weights.pytorch import is_pytorch, open_pytorch
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
_WEIGHT_MAP = "weight_map"
_WORDS = "embeddings.word_embeddings.weight"
_WRAPPERS = ("_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module.")
"""What torch.compile, FSDP and activation checkpointing add to names, before any part of them."""
_HOLDERS = ("", "module", "model", "encoder", "backbone")
"""What programs call the BertModel that they hold, if it has a name. RoBERTa and other relatives have names of their own."""


def hugging_face_name(name: str) -> str:
    """Return Hugging Face's name for a variable with this name of Google's.

    >>> hugging_face_name("bert/encoder/layer_3/attention/self/query/kernel")
    'bert.encoder.layer.3.attention.self.query.weight'
    """
    *path, last = name.replace("layer_", "layer/").split("/")
    return ".".join([*path, _THEIR_LAST_WORD.get(last, last)])


@contextmanager
def open_weights(path: Path, names: Collection[str], head_names: Mapping[str, str] = _NO_HEADS) -> Iterator[WeightFile]:
    """Open the weights of a model: the variables in `names` get Google's names, all others their own with slashes for dots.

    `head_names` maps Google's names to Hugging Face's where these cannot be derived.
    """
    with open_arrays(path) as file:
        own_names = _plain_names(file.shapes)
        stored: dict[str, str] = {}
        for name in names:
            derived = hugging_face_name(name)
            of_old_files = f"{derived.rpartition('.')[0]}.{name.rpartition('/')[2]}"  # LayerNorm.gamma
            of_nvidia = derived.replace(".dense.", ".dense_act.")  # a dense layer with its activation
            for theirs in (head_names.get(name, derived), of_old_files, derived, of_nvidia):
                if theirs in own_names:
                    stored[name] = own_names.pop(theirs)
                    break
        stored |= {name.replace(".", "/"): each for name, each in own_names.items() if name not in _COPIES}

        def read(name: str) -> NDArray[np.float32]:
            values = file.read(stored[name])
            return values.T if name.endswith("kernel") else values

        shapes = {name: file.shapes[each][:: -1 if name.endswith("kernel") else 1] for name, each in stored.items()}
        yield WeightFile(shapes, read, lambda name: head_names.get(name) or hugging_face_name(name))


def _plain_names(names: Collection[str]) -> dict[str, str]:
    """Return the names of a file by the names that BertForPreTraining has for them, as far as one can tell.

    >>> _plain_names(["model._orig_mod.bert.embeddings.word_embeddings.weight", "model._orig_mod.cls.predictions.bias"]).keys()
    dict_keys(['bert.embeddings.word_embeddings.weight', 'cls.predictions.bias'])
    """
    plain = {_without_wrappers(name): name for name in names}
    words = [name.removesuffix(_WORDS) for name in plain if name.endswith(_WORDS)]
    if len(words) != 1 or len(plain) < len(names):
        return {name: name for name in names}  # none, or several models
    [before] = words
    *_, holder, _ = ["", *before.split(".")]
    old, new = "", ""
    if holder == "bert":
        old = before.removesuffix("bert.")
    elif holder in _HOLDERS:
        old, new = before, "bert."
    return {new + name.removeprefix(old) if name.startswith(old) else name: each for name, each in plain.items()}


def _without_wrappers(name: str) -> str:
    for wrapper in _WRAPPERS:
        name = name.replace(wrapper, "")
    return name


def open_arrays(path: Path) -> AbstractContextManager[WeightFile]:
    """Open the arrays of a safetensors file, of a file of PyTorch, or of the files that an index lists, by their own names."""
    if is_index(path):
        return _open_listed(path)
    return open_pytorch(path) if is_pytorch(path) else open_safetensors(path)


def is_index(path: Path) -> bool:
    """Return whether a file is JSON, and not safetensors, whose first 8 bytes are a length and so have zeros."""
    with reading(path), open_head(path) as file:
        head = file.read(8)
    return head.lstrip().startswith(b"{") and b"\0" not in head


@contextmanager
def _open_listed(index: Path) -> Iterator[WeightFile]:
    try:
        content = check_values(parse_json(read_bounded(index)), {_WEIGHT_MAP: OBJECT}, needed=(_WEIGHT_MAP,))
        file_of = check_values(content[_WEIGHT_MAP], dict.fromkeys(content[_WEIGHT_MAP], NAME), prefix=f"{_WEIGHT_MAP}.")
    except (OSError, ValueError) as error:
        raise BertprepError(f"{index}: is not an index of weights: {error}; download it again") from error
    with ExitStack() as opened:
        files: dict[str, WeightFile] = {}
        for name in sorted(set(file_of.values())):
            path = index.parent / name
            if not path.is_file() or is_index(path):
                raise BertprepError(f"{path}: is missing, but {index.name} lists it; download the model again")
            files[name] = opened.enter_context(open_arrays(path))
        shapes = {array: files[name].shapes[array] for array, name in file_of.items() if array in files[name].shapes}
        yield WeightFile(shapes, lambda array: files[file_of[array]].read(array))


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

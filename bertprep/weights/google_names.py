"""Lists the variables of BERT with their shapes, by Google's names, which all code here uses.

    bert/embeddings/{word,token_type,position}_embeddings, bert/embeddings/LayerNorm/{gamma,beta}
    bert/encoder/layer_0/attention/self/{query,key,value}/{kernel,bias}, .../attention/output/dense, .../intermediate/dense, ...
    bert/pooler/dense/{kernel,bias}
    cls/predictions/transform/..., cls/predictions/output_bias, cls/seq_relationship/{output_weights,output_bias}

Kernels are (in, out). The masked-LM head has no matrix of its own but uses the word embeddings; it has its own bias.
The heads of other tasks are in `trainer.tasks`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bertprep.errors import BertprepError

Shapes = Mapping[str, tuple[int, ...]]
WORD_EMBEDDINGS = "bert/embeddings/word_embeddings"
POOLER = "bert/pooler/"
NEXT_SENTENCE = (POOLER, "cls/seq_relationship/")
"""The prefixes of the variables that only exist to train on sentence pairs."""
_MAX_NAMED = 3
"""The maximum number of variables that an error names."""


class WeightFile(NamedTuple):
    """An open file of weights: shapes by name, a function that reads a variable, and one for the file's own name of it."""

    shapes: Shapes
    read: Callable[[str], NDArray[np.float32]]
    own_name: Callable[[str], str] = str


def variable_shapes(config: Mapping[str, Any], *, next_sentence: bool = True) -> dict[str, tuple[int, ...]]:
    """Return the name and shape of every variable of BERT for pretraining, in a fixed order.

    Without `next_sentence` there is no next-sentence head and no pooler.
    """
    return {**body_shapes(config, pooler=next_sentence), **pretraining_heads(config, next_sentence=next_sentence)}


def body_shapes(config: Mapping[str, Any], *, pooler: bool = True) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the variables of the embeddings, the layers and, if used, the pooler."""
    hidden = config["hidden_size"]
    of_pooler = dict(_dense("bert/pooler/dense", hidden, hidden)) if pooler else {}
    return {**dict(_encoder(config)), **of_pooler}


def pretraining_heads(config: Mapping[str, Any], *, next_sentence: bool = True) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the variables of the masked-LM head and, if used, the next-sentence head."""
    hidden = config["hidden_size"]
    shapes = {
        **dict(_dense("cls/predictions/transform/dense", hidden, hidden)),
        **dict(_layer_norm("cls/predictions/transform", hidden)),
        "cls/predictions/output_bias": (config["vocab_size"],),
    }
    if next_sentence:  # its matrix is (out, in), unlike all others
        shapes |= {"cls/seq_relationship/output_weights": (2, hidden), "cls/seq_relationship/output_bias": (2,)}
    return shapes


def _encoder(config: Mapping[str, Any]) -> Iterator[tuple[str, tuple[int, ...]]]:
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    yield WORD_EMBEDDINGS, (config["vocab_size"], hidden)
    yield "bert/embeddings/token_type_embeddings", (config["type_vocab_size"], hidden)
    yield "bert/embeddings/position_embeddings", (config["max_position_embeddings"], hidden)
    yield from _layer_norm("bert/embeddings", hidden)
    for index in range(config["num_hidden_layers"]):
        layer = f"bert/encoder/layer_{index}"
        for part in ("query", "key", "value"):
            yield from _dense(f"{layer}/attention/self/{part}", hidden, hidden)
        yield from _dense(f"{layer}/attention/output/dense", hidden, hidden)
        yield from _layer_norm(f"{layer}/attention/output", hidden)
        yield from _dense(f"{layer}/intermediate/dense", hidden, inner)
        yield from _dense(f"{layer}/output/dense", inner, hidden)
        yield from _layer_norm(f"{layer}/output", hidden)


def _dense(name: str, inputs: int, outputs: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield f"{name}/kernel", (inputs, outputs)
    yield f"{name}/bias", (outputs,)


def _layer_norm(name: str, size: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield f"{name}/LayerNorm/gamma", (size,)
    yield f"{name}/LayerNorm/beta", (size,)


PRETRAINING_ADVICE = "give the bert_config.json that belongs to it, and pretraining weights of BERT, with both heads"


def check_variables(
    file: Path, found: Shapes, expected: Shapes, called: Callable[[str], str] = str, advice: str = PRETRAINING_ADVICE
) -> None:
    """Raise `BertprepError` unless a file has exactly the variables of a model, with their shapes.

    Variables of optimizers (`.../kernel/adam_m`) and names outside `bert/` and `cls/` are allowed. `called` returns the file's
    name for a variable. `advice` is what the user should do about missing variables.
    """
    _check_vocabulary(file, found.get(WORD_EMBEDDINGS, ()), expected[WORD_EMBEDDINGS])
    missing = [called(name) for name in expected if name not in found]
    if missing:
        raise BertprepError(
            f"{file}: lacks {len(missing)} of the model's {len(expected)} variables: {_list(missing)}; {advice}"
        )
    unknown = [name for name in found if name not in expected and _is_model_variable(name, found)]
    if unknown:
        raise BertprepError(
            f"{file}: has {len(unknown)} variables that the model lacks: {_list([ascii(called(name)) for name in unknown])}; "
            "give the bert_config.json that belongs to the file"
        )
    for name, shape in expected.items():
        if found[name] != shape:
            raise BertprepError(
                f"{file}: {called(name)}: expected the shape {sizes(shape)} of the model, found {sizes(found[name])}; give the "
                "bert_config.json that belongs to the file"
            )


def _check_vocabulary(file: Path, found: tuple[int, ...], expected: tuple[int, ...]) -> None:
    if found == expected or len(found) != 2 or found[1] != expected[1]:
        return
    what = "fewer" if found[0] < expected[0] else "more"
    raise BertprepError(
        f"{file}: has {found[0]:,} word embeddings, {what} than the vocab_size {expected[0]:,} of the model; give the "
        f"bert_config.json that belongs to it, with vocab_size {found[0]}, and records made with its vocabulary"
    )


def _is_model_variable(name: str, found: Collection[str]) -> bool:
    return name.startswith(("bert/", "cls/")) and name.rpartition("/")[0] not in found


def _list(names: list[str]) -> str:
    others = len(names) - _MAX_NAMED
    return ", ".join(names[:_MAX_NAMED]) + (f" and {others} others" if others > 0 else "")


def sizes(shape: tuple[int, ...]) -> str:
    """Return a shape in readable form, such as 8,000 x 128."""
    return " x ".join(f"{size:,}" for size in shape)

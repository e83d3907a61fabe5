"""Write a model from the Hub as Google released it, in the folders where other programs' scripts look for it.

    download/google_pretrained_weights/uncased_L-12_H-768_A-12/
        bert_model.ckpt.{index,data-00000-of-00001}     converted from the model's safetensors
        model.ckpt.{index,data-00000-of-00001}          links to these: what NVIDIA's run_squad.sh and run_glue.sh open
        bert_config.json, vocab.txt                     links to the download
    download/nvidia_pretrained/bert_tf_pretraining_large_lamb/
        bert_config.json, vocab.txt                     links

Links are relative, since such scripts run in containers. Files that are already correct are kept.
"""

import filecmp
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bertprep.errors import BertprepError
from bertprep.files.atomic import explain_write_error, write_if_different
from bertprep.files.lock import locked
from bertprep.progress import print_message
from bertprep.sources.listing import make_link
from bertprep.terminal import warn
from bertprep.untrusted import TEXT, check_values, parse_json, read_bounded
from bertprep.weights.google_names import variable_shapes
from bertprep.weights.hugging_face import Weights, read_weights
from bertprep.weights.tensor_bundle import MissingTensorFlowError, bundle_files, holds, write_bundle
from bertprep.work.layout import GOOGLE_PREFIX, VOCABULARY

CONFIG, BERT_CONFIG = "config.json", "bert_config.json"

BERT_FIELDS = (
    "attention_probs_dropout_prob", "hidden_act", "hidden_dropout_prob", "hidden_size", "initializer_range",
    "intermediate_size", "max_position_embeddings", "num_attention_heads", "num_hidden_layers", "type_vocab_size",
    "vocab_size",
)  # fmt: skip
SAFETENSORS = "model.safetensors"
_NVIDIAS_PREFIX = "model.ckpt"
_SIZES = {
    "hidden_size": 1 << 20, "intermediate_size": 1 << 20, "max_position_embeddings": 1 << 20, "num_hidden_layers": 1000,
    "type_vocab_size": 1 << 20, "vocab_size": 1 << 24,
}  # fmt: skip
"""The sizes of a model and their upper limits. They are untrusted, and determine the number of variables."""


def write_bert_config(folder: Path) -> None:
    """Write `bert_config.json` from `config.json`. For a model that is not a BERT, only print a warning."""
    path = folder / CONFIG
    try:
        config = check_values(parse_json(read_bounded(path)), {"model_type": TEXT})
        missing = [field for field in BERT_FIELDS if field not in config]
        kind = config.get("model_type", "bert")
    except (OSError, ValueError) as error:
        raise BertprepError(f"{path}: is not the configuration of a model ({error}); download another --model") from error
    if kind != "bert" or missing:
        why = f"its model_type is {kind}" if kind != "bert" else f"it lacks {', '.join(missing)}"
        warn(f"{path}: does not belong to a BERT model ({why}), so {BERT_CONFIG} is not made")
        return
    content = json.dumps({field: config[field] for field in BERT_FIELDS}, indent=2) + "\n"
    write_if_different(folder / BERT_CONFIG, content.encode())


def write_release(source: Path, release: Path, namesakes: Iterable[Path]) -> None:
    """Fill `release` with the model downloaded to `source`, and `namesakes` with its configuration and vocabulary."""
    config = source / BERT_CONFIG
    if not config.is_file():  # not a BERT model: `write_bert_config` has warned
        return
    shapes = variable_shapes(_read_sizes(config))
    weights = read_weights(source / SAFETENSORS, shapes, heads=False)
    with locked(release):
        _write_checkpoint(release / GOOGLE_PREFIX, weights, lacking=len(shapes) - len(weights))
    for folder in (release, *namesakes):
        link_into(folder, config, source / VOCABULARY)


def _write_checkpoint(prefix: Path, weights: Weights, lacking: int) -> None:
    try:
        if not holds(prefix, weights):
            print_message(
                f"{prefix.parent}: writing {prefix.name}, {sum(values.nbytes for values in weights.values()) / 1e6:,.1f} MB"
            )
            write_bundle(prefix, weights)
            if lacking:
                warn(f"{prefix}: lacks {lacking} variables of the pretraining heads, as the download does")
    except MissingTensorFlowError:
        warn(f"{prefix}: not written, since it needs TensorFlow; pip install 'bertprep[tensorflow]' and run the command again")
        return
    for file, name in zip(bundle_files(prefix), bundle_files(Path(_NVIDIAS_PREFIX)), strict=True):
        _link(prefix.with_name(name.name), file)


def _read_sizes(path: Path) -> dict[str, Any]:
    config = parse_json(read_bounded(path))
    for name, most in _SIZES.items():
        if type(config[name]) is not int or not 1 <= config[name] <= most:
            raise BertprepError(f"{path}: {name} is {config[name]!r}, expected 1 to {most:,}; download another --model")
    return {name: config[name] for name in _SIZES}


def link_into(folder: Path, *targets: Path) -> None:
    """Make links in `folder` to the files `targets`, under their own names."""
    with locked(folder):
        for target in targets:
            _link(folder / target.name, target)


def _link(link: Path, target: Path) -> None:
    try:
        if link.is_file() and (link.samefile(target) or filecmp.cmp(link, target, shallow=False)):
            return
        to = os.path.relpath(target.resolve(), link.parent.resolve())
    except OSError as error:
        raise explain_write_error(link, error) from error
    make_link(link, Path(to))

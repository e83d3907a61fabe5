"""Writes a model of the Hub in the folders and files of Google's release, where the field's scripts look for it.

    download/google_pretrained_weights/uncased_L-12_H-768_A-12/
        bert_model.ckpt.{index,data-00000-of-00001}     written here, of the model's safetensors
        model.ckpt.{index,data-00000-of-00001}          links to these: what NVIDIA's run_squad.sh and run_glue.sh open
        bert_config.json, vocab.txt                     links to the download
    download/nvidia_pretrained/bert_tf_pretraining_large_lamb/
        bert_config.json, vocab.txt                     links; weights of NVIDIA's own training are not made of Google's

Links are relative, since such scripts run in containers, in which the workspace has another path. Correct files are kept, so a
repeated run repairs; memory is bounded by the largest variable.
"""

import filecmp
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bertprep.errors import BertprepError
from bertprep.files.atomic import explain_write_error
from bertprep.files.lock import locked
from bertprep.progress import say
from bertprep.sources.tasks.weights import BERT_CONFIG
from bertprep.sources.transfer.own_files import make_link
from bertprep.untrusted import parse_json, read_bounded
from bertprep.weights.google_names import variable_shapes
from bertprep.weights.hugging_face import map_weights
from bertprep.weights.tensor_bundle import bundle_files, holds, write_bundle
from bertprep.workspace.layout import GOOGLE_PREFIX, VOCABULARY

SAFETENSORS = "model.safetensors"
_NVIDIAS_PREFIX = "model.ckpt"
_MOST = {
    "hidden_size": 1 << 20, "intermediate_size": 1 << 20, "max_position_embeddings": 1 << 20, "num_hidden_layers": 1000,
    "type_vocab_size": 1 << 20, "vocab_size": 1 << 24,
}  # fmt: skip
"""The sizes of a model with their upper limits: they are untrusted, and determine the number of variables."""


def write_release(source: Path, release: Path, namesakes: Iterable[Path]) -> None:
    """Fill `release` with the model downloaded to `source`, and `namesakes` with its configuration and vocabulary."""
    config = source / BERT_CONFIG
    if not config.is_file():  # not a BERT model, which was reported
        return
    shapes = variable_shapes(_read_sizes(config))
    prefix = release / GOOGLE_PREFIX
    with map_weights(source / SAFETENSORS, shapes, heads=False) as weights, locked(release):
        if not holds(prefix, weights):
            say(f"{release}: writing {GOOGLE_PREFIX}, {sum(values.nbytes for values in weights.values()) / 1e6:,.1f} MB")
            write_bundle(prefix, weights)
            if lacking := [name for name in shapes if name not in weights]:
                say(f"  {source / SAFETENSORS} lacks {len(lacking)} variables of the heads of pretraining; so does that")
        for file, name in zip(bundle_files(prefix), bundle_files(Path(_NVIDIAS_PREFIX)), strict=True):
            _link(release / name, file)
    for folder in (release, *namesakes):
        link_into(folder, config, source / VOCABULARY)


def _read_sizes(path: Path) -> dict[str, Any]:
    config = parse_json(read_bounded(path))
    for name, most in _MOST.items():
        if type(config[name]) is not int or not 1 <= config[name] <= most:
            raise BertprepError(f"{path}: {name} is {config[name]!r}, expected 1 to {most:,}; download another --model")
    return {name: config[name] for name in _MOST}


def link_into(folder: Path, *targets: Path) -> None:
    """Link the files `targets` into `folder` under their names."""
    with locked(folder):
        for target in targets:
            _link(folder / target.name, target)


def _link(link: Path, target: Path) -> None:
    """Make a relative link to `target`, unless `link` already leads to the same bytes."""
    try:
        if link.is_file() and (link.samefile(target) or filecmp.cmp(link, target, shallow=False)):
            return
        to = os.path.relpath(target.resolve(), link.parent.resolve())
    except OSError as error:
        raise explain_write_error(link, error) from error
    make_link(link, Path(to))

"""Initialize the variables of a model from the seed, or read them from the weights that --init names.

Variables have the names of Google's checkpoints. The content of a file decides its kind. The encoder must be complete. A
missing pooler or head is initialized from the seed, and so is the head of a classifier unless its labels are known to be the
same.
"""

from __future__ import annotations

import glob
from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bertprep.errors import BertprepError, UsageError
from bertprep.files.paths import as_path, is_object
from bertprep.sources.release import BERT_CONFIG, CONFIG
from bertprep.untrusted import OBJECT, TEXT, check_values, parse_json, read_bounded
from bertprep.weights import google_names
from bertprep.weights.google_names import Shapes, WeightFile
from bertprep.weights.hugging_face import open_weights
from bertprep.weights.safetensors import open_safetensors
from bertprep.weights.tensor_bundle import INDEX_SUFFIX, find_prefix, newest_bundle, open_bundle
from bertprep.work.layout import GOOGLE_PREFIX, Workspace
from trainer import checkpoint
from trainer.checkpoint import is_checkpoint
from trainer.model_config import ModelConfig
from trainer.tasks.pretraining import Pretraining
from trainer.tasks.task import Task

HUGGING_FACE_FILE, PYTORCH_FILE = "model.safetensors", "pytorch_model.bin"
_FOREIGN = {  # weights that transformers wrote: their framework, the option that reads them, and what that needs
    "tf_model.h5": ("Keras", "from_tf", "'transformers<4.50' tf-keras torch"),
    "flax_model.msgpack": ("Flax", "from_flax", "'transformers<4.50' flax torch"),
}
_SUFFIXES = (".safetensors", ".ckpt", ".bin", ".pt", ".pth")  # of other files of weights, as programs name them
Weights = dict[str, NDArray[np.float32]]
_OUTPUT_BIAS = "cls/predictions/output_bias"
_DROPOUT = ModelConfig.hidden_dropout_prob  # also of attention weights


def initial_values(config: ModelConfig, seed: int, task: Task) -> Weights:
    """Return initial values of all variables, the same for every engine.

    They are drawn by the seed and the index of the variable, from a normal distribution with standard deviation
    `initializer_range` that is truncated at two standard deviations. Biases and `beta` are 0, `gamma` is 1.
    """
    return {
        name: _initial_value(name, shape, config.initializer_range, np.random.default_rng([seed, index]))
        for index, (name, shape) in enumerate(task.variable_shapes(config).items())
    }


def _initial_value(name: str, shape: tuple[int, ...], deviation: float, rng: np.random.Generator) -> NDArray[np.float32]:
    if name.endswith(("bias", "beta")):
        return np.zeros(shape, np.float32)
    if name.endswith("gamma"):
        return np.ones(shape, np.float32)
    values = rng.standard_normal(shape, np.float32)
    flat = values.reshape(-1)
    beyond = np.flatnonzero(np.abs(flat) > 2)
    while len(beyond):  # 4.6% are drawn again, then 4.6% of these, until all fit
        flat[beyond] = rng.standard_normal(len(beyond), np.float32)
        beyond = beyond[np.abs(flat[beyond]) > 2]
    values *= np.float32(deviation)
    return values


def find_weights(path: Path) -> Path:
    """Return the file of weights that a path names, or the prefix of Google's files.

    In a folder it is the newest checkpoint of a run, Hugging Face's file, or Google's files.
    """
    if prefix := find_prefix(path):
        return prefix
    if path.is_file():
        _refuse_foreign(path)
        return path
    _check_has_index(path)
    if not path.exists():
        raise UsageError(
            f"{path}: does not exist; name a checkpoint, a {HUGGING_FACE_FILE}, a {PYTORCH_FILE} or a {GOOGLE_PREFIX}, or a "
            "folder that contains one"
        )
    if checkpoint_file := checkpoint.newest(path):
        return checkpoint_file
    for name in (HUGGING_FACE_FILE, f"{HUGGING_FACE_FILE}.index.json"):
        if (path / name).is_file():
            return path / name
    if prefix := newest_bundle(path, GOOGLE_PREFIX):
        return prefix
    for name in (PYTORCH_FILE, f"{PYTORCH_FILE}.index.json"):
        if (path / name).is_file():
            return path / name
    for name in _FOREIGN:
        _refuse_foreign(path / name)
    others = sorted(each.name for each in path.glob("*") if each.suffix in _SUFFIXES)
    has = f", or the file {others[0]} itself" if others else ""
    raise UsageError(
        f"{path}: contains neither a checkpoint nor a {HUGGING_FACE_FILE}, a {PYTORCH_FILE} or a {GOOGLE_PREFIX}; name a "
        f"folder that does{has}"
    )


def _check_has_index(path: Path) -> None:
    """Raise `UsageError` if there is only the data file of a TensorFlow checkpoint, in a folder or with this prefix."""
    if is_object(path):
        return
    for found in (*path.glob("*.data-?????-of-?????"), *path.parent.glob(f"{glob.escape(path.name)}.data-*")):
        index = found.with_suffix(INDEX_SUFFIX)
        if not index.is_file():
            raise UsageError(f"{index}: is missing, but {found.name} exists; copy both files of the TensorFlow checkpoint")


def _refuse_foreign(path: Path) -> None:
    """Raise `UsageError` for weights of a framework that this trainer does not read, with the command that converts them."""
    if path.name in _FOREIGN and path.is_file():
        framework, option, packages = _FOREIGN[path.name]
        raise UsageError(
            f"{path}: is a model of {framework}, expected a {HUGGING_FACE_FILE}; convert it in an environment with pip install "
            f'{packages}: python -c "from transformers import BertForPreTraining as Bert; '
            f"Bert.from_pretrained('{path.parent}', {option}=True).save_pretrained('NEW')\""
        )


def resolve_weights(init: str, workdir: Path, *, named: str = "--init ") -> Path:
    """Return the file of weights that a path or the ID of a download names.

    Raises `UsageError`, whose message begins with `named`, if there is none.
    """
    workspace, path = Workspace(workdir), as_path(init)
    advice = ""
    if not (is_object(path) or path.exists() or find_prefix(path)):
        folder = workspace.download("weights")
        path = next((each for each in (folder / init, workspace.google_release(init)) if each.is_dir()), path)
        advice = f"; it is not in {folder} either, to which bertprep download weights --model ID downloads models"
    try:
        return find_weights(path)
    except UsageError as error:
        raise UsageError(f"{named}{error}{advice}") from error


def short_name(file: Path) -> str:
    """Return a name of weights for a run's folder: bert-base-uncased, or run_checkpoint-000001000 for a checkpoint."""
    folder = file.resolve().parent.name
    if file.name.removesuffix(".index.json") in (HUGGING_FACE_FILE, PYTORCH_FILE, GOOGLE_PREFIX):
        return folder
    return f"{folder}_{file.name.removesuffix('.safetensors')}"


def model_of(file: Path) -> ModelConfig:
    """Return the model's sizes from a checkpoint, or from the file next to weights.

    A checkpoint that was trained without dropout gets BERT's dropout rates.
    """
    if is_checkpoint(file):
        model = checkpoint.model_of(file)
        if model != model.without_dropout():
            return model
        return replace(model, hidden_dropout_prob=_DROPOUT, attention_probs_dropout_prob=_DROPOUT)
    for name in (BERT_CONFIG, CONFIG):
        if (file.parent / name).is_file():
            return ModelConfig.from_file(file.parent / name)
    raise UsageError(f"{file}: has no {BERT_CONFIG} or {CONFIG} next to it; name a file with its sizes by --model FILE")


def with_rows_of(file: Path, model: ModelConfig) -> ModelConfig:
    """Return the model with as many rows of word embeddings as weights have, if they have more.

    Many models are padded to a multiple of 8 or 64, and some have a configuration that does not say so.
    """
    with _open(file, (google_names.WORD_EMBEDDINGS,), Pretraining()) as found:
        shape = found.shapes.get(google_names.WORD_EMBEDDINGS, ())
    is_padded = shape[1:] == (model.hidden_size,) and shape[0] > model.vocab_size
    return replace(model, vocab_size=shape[0]) if is_padded else model


def read_weights(path: Path, config: ModelConfig, task: Task, *, any_head: bool = False) -> tuple[Weights, str]:
    """Return the variables of a task's model that a file or folder has, and a line on those that it lacks.

    The head of a task with labels is left out if the labels differ, except with `any_head`.
    """
    file, shapes = find_weights(path), task.variable_shapes(config)
    with _open(file, shapes, task) as found:
        fitting = names = _choose(file, found, shapes)
        own_labels = labels_of(file)
        is_for_labels = own_labels == task.labels or (own_labels is None and are_numbers(task.labels or ()))
        if task.labels is not None and not (any_head or is_for_labels):
            names = [name for name in fitting if name.startswith("bert/")]
        read = checkpoint.read(file).state.__getitem__ if is_checkpoint(file) else found.read  # which checks its sha256
        weights = {name: _padded(read(name), shapes[name]) for name in names}
    drawn = [name for name in shapes if name not in weights]
    if not drawn:
        return weights, ""
    lacks = "lacks"
    if names != fitting:
        labels = "without names" if own_labels is None else ", ".join(own_labels)[:200]
        lacks = f"has a head for other labels ({labels}), so it lacks"
    return weights, f"--init {file}: {lacks} {', '.join(drawn)}, which are initialized from the seed"


def are_numbers(labels: Sequence[str]) -> bool:
    """Return whether there are labels, and they are 0, 1 and so on; a head with only LABEL_0, LABEL_1, ... is for these."""
    return bool(labels) and list(labels) == [str(number) for number in range(len(labels))]


def check_weights(path: Path, config: ModelConfig, task: Task) -> None:
    """Check the names and shapes that `read_weights` needs, without reading values."""
    file, shapes = find_weights(path), task.variable_shapes(config)
    with _open(file, shapes, task) as found:
        _choose(file, found, shapes)


def _open(file: Path, names: Collection[str], task: Task) -> AbstractContextManager[WeightFile]:
    if prefix := find_prefix(file):
        return open_bundle(prefix)
    return open_safetensors(file) if is_checkpoint(file) else open_weights(file, names, task.head_names)


def _choose(file: Path, found: WeightFile, expected: Shapes) -> list[str]:
    advice = "give weights of a BERT with the sizes of its bert_config.json"
    google_names.check_variables(file, _body(found.shapes), _body(expected), found.own_name, advice)
    return [name for name, shape in expected.items() if _fits(name, found.shapes.get(name, ()), shape)]


def _fits(name: str, found: tuple[int, ...], expected: tuple[int, ...]) -> bool:
    """Return whether a variable has its shape; the output bias may lack the rows that pad the word embeddings."""
    return found == expected or (name == _OUTPUT_BIAS and len(found) == 1 and 0 < found[0] < expected[0])


def _padded(values: NDArray[np.float32], shape: tuple[int, ...]) -> NDArray[np.float32]:
    rows = [(0, wanted - size) for wanted, size in zip(shape, values.shape, strict=True)]
    return np.ascontiguousarray(np.pad(values, rows))


def _body(shapes: Shapes) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the encoder's variables, without the pooler."""
    names = [name for name in shapes if name.startswith("bert/") and not name.startswith(google_names.POOLER)]
    return {name: shapes[name] for name in names}


def labels_of(file: Path) -> tuple[str, ...] | None:
    """Return the labels of a model's classes from its checkpoint or `config.json`; a regression has none.

    None means unknown: there is no such file, or it has the default names LABEL_0, LABEL_1, ... of transformers.
    """
    if is_checkpoint(file):
        return checkpoint.task_of(file).labels
    path = file.parent / CONFIG
    try:
        settings = check_values(parse_json(read_bounded(path)), {"id2label": OBJECT})
        names = settings.get("id2label", {})
        check_values(names, dict.fromkeys(names, TEXT), prefix="id2label.")
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise BertprepError(f"{path}: its labels cannot be read: {error}") from error
    if settings.get("problem_type") == "regression":
        return ()
    labels = tuple(str(names.get(str(number))) for number in range(len(names)))
    return None if all(label == f"LABEL_{number}" for number, label in enumerate(labels)) else labels

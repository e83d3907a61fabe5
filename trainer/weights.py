"""The variables of a model: names, shapes and first values, which come from the seed or from a file.

The names are those of Google's checkpoints (`bertprep.weights.google_names`), and they are what checkpoints, optimizers and
exports go by; they never change. What a file is, its content says and not its name: a checkpoint has the settings of its run in
it. Of a checkpoint only the weights are taken; moments, the loss scale and the position in the data belong to its own run.
Every variable must be there and fit: a model that is loaded in part is an accident that no loss would show. To fine-tune, the
body alone must be, and heads come from the seed, unless the file has those of the same task with the same labels. Training
without sentence pairs has no use for a pooler and a next-sentence head: those of a file are left out. To fine-tune after it,
the pooler, which is missing then, is drawn from the seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bertprep.errors import BertprepError, UsageError
from bertprep.sources.tasks.weights import BERT_CONFIG, CONFIG
from bertprep.terminal import printable
from bertprep.untrusted import OBJECT, check_values, optional, parse_json, read_bounded
from bertprep.weights import google_names
from bertprep.weights.hugging_face import hugging_face_name, map_named
from bertprep.weights.safetensors import map_safetensors
from bertprep.weights.tensor_bundle import TensorBundle, find_prefix, newest_bundle
from bertprep.workspace.layout import GOOGLE_PREFIX
from trainer import checkpoint
from trainer.model_config import ModelConfig
from trainer.tasks import Task
from trainer.tasks.classification import Classification
from trainer.tasks.pretraining import MASKED_LM, PRETRAINING
from trainer.tasks.registry import task_of_checkpoint

_BODY, _CLASSIFIER = "bert/", "output_weights"
_SHOWN = 4  # names of labels in a message
HUGGING_FACE_FILE = "model.safetensors"
Weights = dict[str, NDArray[np.float32]]


def variable_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Name and shape of every variable of a model for pretraining, in the order in which they are kept everywhere.

    >>> shapes = variable_shapes(ModelConfig.preset("tiny"))
    >>> shapes["bert/encoder/layer_1/intermediate/dense/kernel"]
    (128, 512)
    """
    return PRETRAINING.variable_shapes(config)


def initial_values(config: ModelConfig, seed: int, task: Task = PRETRAINING) -> Weights:
    """Random values of all variables, the same for every engine, in 4 bytes a parameter.

    Each variable is drawn from the seed and its index in the list: a normal distribution of the configuration's
    `initializer_range`, truncated at two standard deviations; biases and `beta` are 0, `gamma` is 1.
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
    while len(beyond):  # each is drawn again until it fits: 4.6% of them, then 4.6% of these
        flat[beyond] = rng.standard_normal(len(beyond), np.float32)
        beyond = beyond[np.abs(flat[beyond]) > 2]
    values *= np.float32(deviation)
    return values


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
    if found := found or newest_bundle(path, GOOGLE_PREFIX):
        return found
    raise UsageError(f"{path}: holds neither a checkpoint nor a {HUGGING_FACE_FILE} nor a {GOOGLE_PREFIX}; name {kinds}")


def read_initial_weights(path: Path, config: ModelConfig, task: Task = PRETRAINING, *, heads: bool = True) -> Weights:
    """Values of variables by our names, from any file or folder that `find_weights` finds.

    For pretraining these are all. For another task they are those of the body, and with `heads` of the heads where the file
    has some of these names, whose shapes must be the task's.
    """
    file = find_weights(path)
    if not find_prefix(file) and checkpoint.is_checkpoint(file):
        state = checkpoint.read(file).state  # which checks their sha256
        return {name: state[name] for name in _choose(file, state, config, task, heads=heads)}
    with _open_weights(file, config, task, heads=heads) as (names, read):
        return {name: np.array(read(name), order="C") for name in names}


def check_initial_weights(path: Path, config: ModelConfig, task: Task = PRETRAINING) -> None:
    """Raise what `read_initial_weights` would raise for names and shapes to train on the task; no values are read."""
    with _open_weights(find_weights(path), config, task, heads=not describe_other_head(path, config, task)):
        pass


def describe_other_head(path: Path, config: ModelConfig, task: Task) -> str:
    """The line on the head of the weights where it is another task's, so that a new one is drawn; "" where it is not.

    Heads are the same if task and labels are: to start from what another task learned to call 0 and 1 is an accident. A
    checkpoint says both, a `config.json` may name the labels, and otherwise the number of outputs decides. It is also the line
    on a next-sentence head that training without sentence pairs leaves out, and on a pooler that is missing after it.
    """
    file, found = find_weights(path), ""
    if task.name == PRETRAINING.name:
        is_left = task == MASKED_LM and any(name.startswith(google_names.NEXT_SENTENCE) for name in _names_in(file, config))
        return f"--init {file}: its next-sentence head and pooler are left out, as the data have no sentence pairs" * is_left
    if isinstance(task, Classification) and not any(name.startswith(google_names.POOLER) for name in _names_in(file, config)):
        return (
            f"--init {file}: has no pooler, as after training without sentence pairs; that and the head are drawn from the seed"
        )
    if not find_prefix(file) and checkpoint.is_checkpoint(file):
        trained = task_of_checkpoint(checkpoint.read_header(file))
        if trained.name != PRETRAINING.name and not _have_same_head(trained, task):
            found = f"of {_describe(trained)}"
    elif isinstance(task, Classification):
        outputs, names = _outputs_of(file, config, task), _label_names(file)
        is_same = outputs == task.outputs and (not names or task.of.is_regression or names == task.of.labels)
        found = "" if outputs is None or is_same else f"with {_describe_labels(outputs, names)}"
    return f"--init {file}: the head {found} is not that of {_describe(task)}; drawn from the seed" if found else ""


def _names_in(file: Path, config: ModelConfig) -> set[str]:
    """The variables of a file, by Google's names."""
    if find_prefix(file):
        return set(TensorBundle(file).shapes)
    if checkpoint.is_checkpoint(file):
        with map_safetensors(file) as state:
            return set(state)
    with map_named(file, variable_shapes(config)) as found:
        return set(found)


def _have_same_head(one: Task, other: Task) -> bool:
    """Of any version of SQuAD it is the same."""
    if isinstance(one, Classification) and isinstance(other, Classification):
        return (one.of.name, one.of.labels) == (other.of.name, other.of.labels)
    return one.name == other.name


def _describe(task: Task) -> str:
    if isinstance(task, Classification):
        return f"{task.of.name} with {_describe_labels(task.outputs, task.of.labels)}"
    return "SQuAD"


def _describe_labels(outputs: int, names: Sequence[str]) -> str:
    number = f"{outputs:,} label{'s' if outputs != 1 else ''}" if names or outputs != 1 else "a score"
    shown = ", ".join([*names[:_SHOWN], "..."] if len(names) > _SHOWN else names)
    return f"{number} ({printable(shown)})" if names else number


def _outputs_of(file: Path, config: ModelConfig, task: Task) -> int | None:
    """How many outputs the head for classification has; None where there is none."""
    if find_prefix(file):
        shape = TensorBundle(file).shapes.get(_CLASSIFIER)
    else:
        with map_named(file, task.variable_shapes(config)) as found:
            shape = found[_CLASSIFIER].shape if _CLASSIFIER in found else None
    return shape[0] if shape else None


def _label_names(file: Path) -> tuple[str, ...]:
    """The names that a `config.json` beside weights gives to the outputs; none where it has only LABEL_0, LABEL_1."""
    path = file.parent / CONFIG
    if not path.is_file():
        return ()
    try:
        settings = check_values(parse_json(read_bounded(path)), {"id2label": optional(OBJECT)})
    except (OSError, ValueError) as error:
        raise BertprepError(f"{path}: is not the configuration of a model ({error})") from error
    by_number = settings.get("id2label") or {}
    names = tuple(str(by_number.get(str(number))) for number in range(len(by_number)))
    return () if names == tuple(f"LABEL_{number}" for number in range(len(names))) else names


@contextmanager
def _open_weights(
    file: Path, config: ModelConfig, task: Task, *, heads: bool
) -> Iterator[tuple[list[str], Callable[[str], NDArray[np.float32]]]]:
    """The variables to be taken of a file, and what reads one by its name."""
    if find_prefix(file):
        bundle = TensorBundle(file)
        yield _choose_named(file, bundle.shapes, config, task, heads=heads), bundle.read
    elif checkpoint.is_checkpoint(file):
        with map_safetensors(file) as state:
            yield _choose(file, state, config, task, heads=heads), state.__getitem__
    else:
        with map_named(file, {**variable_shapes(config), **task.variable_shapes(config)}) as found:
            shapes = {name: value.shape for name, value in found.items()}
            yield _choose_named(file, shapes, config, task, hugging_face_name, heads=heads), found.__getitem__


def take_weights(
    file: Path, state: Mapping[str, NDArray[np.float32]], config: ModelConfig, task: Task = PRETRAINING
) -> Weights:
    """The variables of a model out of all that its checkpoint holds, each of the shape that the model has for it."""
    shapes = task.variable_shapes(config)
    google_names.check_variables(file, {name: value.shape for name, value in state.items()}, shapes)
    return {name: state[name] for name in shapes}


def _choose(file: Path, state: Mapping[str, NDArray[np.float32]], config: ModelConfig, task: Task, *, heads: bool) -> list[str]:
    return _choose_named(file, {name: value.shape for name, value in state.items()}, config, task, heads=heads)


def _choose_named(
    file: Path, found: google_names.Shapes, config: ModelConfig, task: Task, called: Callable[[str], str] = str, *, heads: bool
) -> list[str]:
    """Which variables of a file a run starts from; raises where it has not the body that the model needs."""
    expected = task.variable_shapes(config)
    if task.name == PRETRAINING.name:
        of_pairs = [name for name in found if name.startswith(google_names.NEXT_SENTENCE)]
        if task == MASKED_LM:
            found = {name: shape for name, shape in found.items() if name not in of_pairs}
        elif not of_pairs:
            raise BertprepError(
                f"{file}: has neither a pooler nor a next-sentence head, as after training without sentence pairs, and "
                "the data have pairs; give data without (--pairs none), or weights of a BERT for pretraining with both heads"
            )
        google_names.check_variables(file, found, expected, called)
        return list(expected)
    if not any(name.startswith(google_names.POOLER) for name in found):
        expected = {name: shape for name, shape in expected.items() if not name.startswith(google_names.POOLER)}
    of_heads = {name: shape for name, shape in expected.items() if not name.startswith(_BODY)}
    if heads and all(name in found for name in of_heads):
        if wrong := next((name for name, shape in of_heads.items() if found[name] != shape), None):
            raise BertprepError(
                f"{file}: {called(wrong)}: is {google_names.sizes(found[wrong])}, the records need "
                f"{google_names.sizes(of_heads[wrong])}: it was trained for other labels; name a model of these labels"
            )
    else:
        expected = {name: shape for name, shape in expected.items() if name not in of_heads}
    body = {name: shape for name, shape in found.items() if name in expected or _is_of_body(name)}
    advice = "give weights of a BERT with the sizes of its bert_config.json"
    google_names.check_variables(file, body, expected, called, advice)
    return list(expected)


def _is_of_body(name: str) -> bool:
    """Whether a model of any task would need it; the pooler is some tasks' only, and other heads are never needed."""
    return name.startswith(_BODY) and not name.startswith("bert/pooler/")


def find_model(file: Path) -> ModelConfig:
    """The sizes of the model whose weights `find_weights` found: a checkpoint has them, other files lie beside them."""
    if not find_prefix(file) and checkpoint.is_checkpoint(file):
        return ModelConfig.from_settings(checkpoint.read_header(file).get("model", {}))
    for name in (BERT_CONFIG, CONFIG):
        if (file.parent / name).is_file():
            return ModelConfig.from_file(file.parent / name)
    raise UsageError(f"{file}: has no {BERT_CONFIG} or {CONFIG} beside it; name its sizes with --model FILE")

"""A run starts from exactly the weights of the file that it is given, whoever wrote it, or is refused.

One rule for all tasks: every variable of the right name and shape is taken, the body must be complete, and a head for
classification is taken only where it is known to be of the same labels.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertprep.errors import BertprepError, UsageError
from bertprep.tasks.glue import TASKS as GLUE
from bertprep.tasks.glue import own_task
from bertprep.weights.hugging_face import save_weights
from bertprep.weights.safetensors import read_safetensors, write_safetensors
from bertprep.weights.tensor_bundle import write_bundle
from bertprep.work.layout import Workspace
from tests.trainer.small_data import save_checkpoint as save
from tests.weights.tensorflow_checkpoints import CHECKPOINT, CONFIG
from trainer.checkpoint import RunState
from trainer.checkpoint import save as save_run
from trainer.model_config import ModelConfig
from trainer.tasks.classification import Classification
from trainer.tasks.pretraining import Pretraining
from trainer.tasks.squad import Squad
from trainer.tasks.task import Task
from trainer.weights import (
    Weights,
    check_weights,
    find_weights,
    initial_values,
    model_of,
    read_weights,
    resolve_weights,
    short_name,
)

PRETRAINING, SQUAD = Pretraining(), Squad()
THREE, MOOD, TURNED = (
    Classification(own_task(name, labels))
    for name, labels in {"three": ("a", "b", "c"), "mood": ("neg", "pos"), "turned": ("pos", "neg")}.items()
)
COLA, MRPC, MNLI, RTE, STSB = (Classification(GLUE[name]) for name in ("cola", "mrpc", "mnli", "rte", "stsb"))
COMPLETE = initial_values(CONFIG, seed=1, task=PRETRAINING)
BODY = {name: value for name, value in COMPLETE.items() if name.startswith("bert/")}


save_checkpoint = partial(save, config=CONFIG)


def write_checkpoint(folder: Path, weights: Weights) -> Path:
    save_run(folder / "run", RunState({"model": asdict(CONFIG), "schedule": {}, "examples": {}}, 10), weights, keep=1)
    return find_weights(folder / "run")


def write_hugging_face(folder: Path, weights: Weights) -> Path:
    save_weights(folder / "model.safetensors", weights)
    return folder / "model.safetensors"


def write_bert_model(folder: Path, weights: Weights) -> Path:
    """As transformers' BertModel, whose names have no prefix and which has no heads."""
    path = write_hugging_face(folder, weights)
    body = {name: value for name, value in read_safetensors(path).items() if name.startswith("bert.")}
    write_safetensors(path, {name.removeprefix("bert."): value for name, value in body.items()}, {"format": "pt"})
    return path


def write_google(folder: Path, weights: Weights) -> Path:
    write_bundle(folder / "bert_model.ckpt", {**weights, "global_step": np.array(1, np.float32)})
    return folder / "bert_model.ckpt"


Write = Callable[[Path, Weights], Path]
GOOGLE = pytest.param(write_google, marks=pytest.mark.tensorflow)
WRITERS = pytest.mark.parametrize("write", [write_checkpoint, write_hugging_face, GOOGLE])


def read(path: Path, task: Task = PRETRAINING, config: ModelConfig = CONFIG) -> Weights:
    check_weights(path, config, task)
    return read_weights(path, config, task)[0]


def check_equal(found: Weights, expected: Weights) -> None:
    assert list(found) == list(expected)
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value)


def test_a_folder_stands_for_its_newest_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_checkpoint(tmp_path, step=9)
    save_weights(tmp_path / "model.safetensors", initial_values(CONFIG, seed=3, task=PRETRAINING))
    expected = save_checkpoint(tmp_path, step=1000, seed=2)
    monkeypatch.chdir(tmp_path)
    for path in (tmp_path, Path(), tmp_path / "checkpoint-000001000.safetensors"):
        check_equal(read(path), expected)  # without the moments
    (tmp_path / "checkpoint-000001000.safetensors").rename(tmp_path / "any name")
    check_equal(read(tmp_path / "any name"), expected)


@pytest.mark.tensorflow
@pytest.mark.parametrize("named", ["model.ckpt-300", "model.ckpt-300.index", "."])
def test_googles_checkpoint_gives_its_weights_and_not_its_moments(named: str, tmp_path: Path) -> None:
    """As Google's and NVIDIA's scripts leave it in a folder of a run, next to older ones."""
    write_bundle(tmp_path / "model.ckpt-90", initial_values(CONFIG, seed=2, task=PRETRAINING))
    for file in CHECKPOINT.parent.glob(f"{CHECKPOINT.name}.[id]*-of-*"):
        (tmp_path / f"model.ckpt-300{file.suffix}").write_bytes(file.read_bytes())
    (tmp_path / "model.ckpt-300.index").write_bytes(CHECKPOINT.with_suffix(".index").read_bytes())
    check_equal(read(tmp_path / named), COMPLETE)


@pytest.mark.tensorflow
def test_a_release_of_google_is_found_in_its_folder(tmp_path: Path) -> None:
    for name in ("bert_model.ckpt", "model.ckpt"):
        write_bundle(tmp_path / name, COMPLETE)
    assert find_weights(tmp_path) == tmp_path / "bert_model.ckpt"
    for file in tmp_path.glob("bert_model.ckpt*"):
        file.unlink()
    assert find_weights(tmp_path) == tmp_path / "model.ckpt"
    write_bundle(tmp_path / "another.ckpt", COMPLETE)
    with pytest.raises(UsageError, match=r"'another\.ckpt', 'model\.ckpt'; name one"):
        find_weights(tmp_path)


def test_a_download_is_found_by_its_id(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    of_hub = workspace.download("weights") / "somebody" / "small-bert" / "model.safetensors"
    of_google = workspace.google_release("uncased_L-2_H-128_A-2") / "bert_model.ckpt"
    for file in (of_hub, of_google.with_suffix(".ckpt.index")):
        file.parent.mkdir(parents=True)
        file.touch()
    assert resolve_weights("somebody/small-bert", tmp_path) == of_hub
    assert resolve_weights("uncased_L-2_H-128_A-2", tmp_path) == of_google


@pytest.mark.parametrize("task", [SQUAD, THREE], ids=["squad", "classification"])
@pytest.mark.parametrize("write", [write_checkpoint, write_hugging_face, write_bert_model, GOOGLE])
@pytest.mark.parametrize("weights", [COMPLETE, BODY], ids=["complete", "body"])
def test_a_task_starts_from_the_body_of_any_weights(write: Write, weights: Weights, task: Task, tmp_path: Path) -> None:
    found, message = read_weights(write(tmp_path, weights), CONFIG, task)
    shapes = task.variable_shapes(CONFIG)
    check_equal(found, {name: BODY[name] for name in shapes if name in BODY})
    assert ", ".join(name for name in shapes if not name.startswith("bert/")) in message


def test_missing_variables_are_initial_but_for_the_body(tmp_path: Path) -> None:
    """A pooler is missing after training without sentence pairs; heads may always be."""
    without = {name: value for name, value in BODY.items() if "pooler" not in name}
    found, message = read_weights(write_hugging_face(tmp_path, without), CONFIG, PRETRAINING)
    check_equal(found, without)
    assert message.startswith(
        f"--init {tmp_path}/model.safetensors: lacks bert/pooler/dense/kernel, bert/pooler/dense/bias, cls/"
    )
    check_equal(read(tmp_path, SQUAD), without)
    del without["bert/embeddings/LayerNorm/beta"]
    write_hugging_face(tmp_path, without)
    with pytest.raises(BertprepError, match=r"lacks 1 of the model's 21 variables: bert\.embeddings\.LayerNorm\.bias"):
        read(tmp_path, SQUAD)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_position_embeddings": 64}, "position.embeddings.* 64 x 8 .*found 32 x 8"),
        ({"num_hidden_layers": 2}, "lacks 16 of .*: bert.encoder.layer.1.attention"),
        ({"vocab_size": 37, "hidden_size": 16}, "word.embeddings.* 37 x 16 .*found 40 x 8"),
        ({"vocab_size": 37}, "40 word embeddings, more .* 37 .*vocab_size 40"),  # unless the model gets the rows of the file
        ({"vocab_size": 41}, "40 word embeddings, fewer .* 41 .*vocab_size 40"),
    ],
)
@WRITERS
def test_a_body_that_does_not_fit_is_refused(write: Write, changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = write(tmp_path, COMPLETE)
    for task in (PRETRAINING, SQUAD):
        with pytest.raises(BertprepError, match=message):
            read(path, task, config=replace(CONFIG, **changes))


@WRITERS
def test_a_body_with_more_layers_is_refused(write: Write, tmp_path: Path) -> None:
    """It has all that the model needs, and would pass for it."""
    path = write(tmp_path, initial_values(replace(CONFIG, num_hidden_layers=2), 1, PRETRAINING))
    with pytest.raises(BertprepError, match=r"16 variables that the model lacks: 'bert.encoder.layer.1.* and 13 others"):
        read(path, SQUAD)


def test_files_that_are_not_weights_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match=r"empty: .*a checkpoint .*model\.safetensors, .*bert_model\.ckpt"):
        read(tmp_path / "empty")
    (tmp_path / "model.bin").write_bytes(b"PK\x03\x04 something else")
    with pytest.raises(BertprepError, match=r"model\.bin: .*PyTorch"):
        read(tmp_path / "model.bin")


@pytest.mark.parametrize(
    ("trained", "task", "is_taken"),
    [
        (MRPC, MRPC, True), (MOOD, MOOD, True), (Squad("v1.1"), Squad("v2.0"), True), (PRETRAINING, PRETRAINING, True),
        (PRETRAINING, MRPC, False), (MNLI, RTE, False), (MOOD, TURNED, False), (STSB, MRPC, False), (MRPC, SQUAD, False),
        (MRPC, PRETRAINING, False),
    ],
)  # fmt: skip
def test_a_checkpoints_head_is_for_the_same_task_and_labels(trained: Task, task: Task, is_taken: bool, tmp_path: Path) -> None:
    weights = save_checkpoint(tmp_path, trained, seed=3)
    found, message = read_weights(tmp_path, CONFIG, task)
    heads = [name for name in task.variable_shapes(CONFIG) if not name.startswith("bert/")]
    assert [name for name in heads if name in found] == (heads if is_taken else [])
    assert (message == "") == (list(found) == list(task.variable_shapes(CONFIG)))
    check_equal(found, {name: weights[name] for name in found})


@pytest.mark.parametrize(
    ("labels", "names", "is_taken"),
    [
        (2, {"0": "neg", "1": "pos"}, True),
        (2, {"1": "neg", "0": "pos"}, False),
        (2, {"0": "LABEL_0", "1": "LABEL_1"}, False),
        (2, None, False),
        (3, {"0": "neg", "1": "pos", "2": "none"}, False),
    ],
)
def test_a_head_of_hugging_face_is_known_by_its_labels(
    labels: int, names: dict[str, str] | None, is_taken: bool, tmp_path: Path
) -> None:
    trained = Classification(own_task("any", [str(number) for number in range(labels)]))
    write_hugging_face(tmp_path, initial_values(CONFIG, 3, trained))
    if names is not None:
        (tmp_path / "config.json").write_text(json.dumps({"id2label": names}))
    assert ("output_weights" in read(tmp_path, MOOD)) == is_taken
    if labels == 2:  # which `evaluate` takes, after a check of its own
        assert "output_weights" in read_weights(tmp_path, CONFIG, MOOD, any_head=True)[0]
    (tmp_path / "config.json").write_text("[")
    with pytest.raises(BertprepError, match=r"config\.json: its labels cannot be read: "):
        read(tmp_path, MOOD)


def test_a_head_of_hugging_face_is_for_regression_where_its_config_says_so(tmp_path: Path) -> None:
    """The one label of a regression is LABEL_0, as transformers names labels that nobody has named."""
    write_hugging_face(tmp_path, initial_values(CONFIG, 3, STSB))
    for problem_type, is_taken in (("regression", True), ("single_label_classification", False)):
        config = {"problem_type": problem_type, "id2label": {"0": "LABEL_0"}}
        (tmp_path / "config.json").write_text(json.dumps(config))
        assert ("output_weights" in read(tmp_path, STSB)) == is_taken


def test_first_values_are_googles() -> None:
    config = replace(CONFIG, vocab_size=2000, hidden_size=64)
    values = initial_values(config, 1, SQUAD)
    assert {name: value.shape for name, value in values.items()} == SQUAD.variable_shapes(config)
    words = values["bert/embeddings/word_embeddings"]
    assert (words.dtype, abs(words).max() <= 0.04) == ("float32", True)
    assert words.std() == pytest.approx(0.02 * 0.8796, rel=0.01)  # what truncation at two deviations leaves
    assert not values["cls/squad/output_bias"].any()
    assert (values["bert/embeddings/LayerNorm/gamma"] == 1).all()
    again, other = (initial_values(config, seed, SQUAD)["cls/squad/output_weights"] for seed in (1, 2))
    assert (again == values["cls/squad/output_weights"]).all()
    assert (other != again).any()


def test_the_sizes_of_a_model_come_with_its_weights(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "run")
    save_checkpoint(tmp_path / "undropped", model=asdict(CONFIG.without_dropout()))  # --no-dropout is a switch of each run
    (tmp_path / "google").mkdir()
    file = tmp_path / "google" / "bert_model.ckpt"
    (tmp_path / "google" / "bert_model.ckpt.index").touch()
    with pytest.raises(UsageError, match=r"bert_model\.ckpt: .*bert_config\.json or config\.json"):
        model_of(file)
    (tmp_path / "google" / "config.json").write_text(CONFIG.to_json())
    assert [model_of(find_weights(tmp_path / name)) for name in ("run", "undropped", "google")] == [CONFIG] * 3


def test_the_variables_of_pairs_are_left_out_without_pairs() -> None:
    left_out = PRETRAINING.variable_shapes(CONFIG).keys() - Pretraining(has_pairs=False).variable_shapes(CONFIG).keys()
    assert len(left_out) == 4
    assert all(name.startswith(("bert/pooler/", "cls/seq_relationship/")) for name in left_out)


def test_short_names_are_of_the_folder_where_the_file_is_called_as_all_are(tmp_path: Path) -> None:
    folder = tmp_path / "uncased_L-2"
    names = {"bert_model.ckpt": "uncased_L-2", "model.safetensors": "uncased_L-2", "mine.safetensors": "uncased_L-2_mine"}
    assert {name: short_name(folder / name) for name in names} == names
    assert short_name(folder / "checkpoint-000000010.safetensors") == "uncased_L-2_checkpoint-000000010"

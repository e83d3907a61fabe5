"""A run begins with exactly the weights of the file that it is given, whoever wrote it, or not at all."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertprep.errors import BertprepError, UsageError
from bertprep.tasks.glue import TASKS as GLUE
from bertprep.tasks.glue import own_task
from bertprep.weights.hugging_face import Weights, save_weights
from bertprep.weights.safetensors import read_safetensors, write_safetensors
from bertprep.weights.tensor_bundle import write_bundle
from tests.trainer.golden_model import WEIGHTS, read_golden
from tests.weights.tensorflow_checkpoints import CHECKPOINT, CONFIG
from tests.weights.test_hugging_face import load_weights
from trainer import checkpoint
from trainer.model_config import ModelConfig
from trainer.tasks import Task
from trainer.tasks.classification import Classification
from trainer.tasks.pretraining import PRETRAINING
from trainer.tasks.squad import Squad
from trainer.weights import (
    check_initial_weights,
    describe_other_head,
    find_model,
    find_weights,
    initial_values,
    read_initial_weights,
    variable_shapes,
)


def save_checkpoint(folder: Path, step: int, *, seed: int, config: ModelConfig = CONFIG, **made_with: Any) -> Weights:
    """A checkpoint as a run writes it, moments and all; returns its weights."""
    weights = initial_values(config, seed)
    moments = {f"{name}/adam_{slot}": np.full_like(value, 7) for name, value in weights.items() for slot in "mv"}
    counts = {name: np.array(7, np.float32) for name in ("updates", "loss_scale", "good_steps")}
    made_with = {"model": asdict(config), **made_with}
    state = {**weights, **moments, **counts}
    checkpoint.save(folder, checkpoint.RunState(made_with, step), state, keep=3)
    return weights


def check_equal(found: Weights, expected: Weights) -> None:
    assert list(found) == list(expected)
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value)


def test_a_checkpoint_gives_its_weights_alone(tmp_path: Path) -> None:
    expected = save_checkpoint(tmp_path, 10, seed=1)
    check_equal(read_initial_weights(tmp_path / "checkpoint-000000010.safetensors", CONFIG), expected)


def test_a_run_gives_those_of_its_newest_checkpoint(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, 9, seed=1)
    expected = save_checkpoint(tmp_path, 1000, seed=2)
    save_weights(tmp_path / "model.safetensors", initial_values(CONFIG, seed=3))
    check_equal(read_initial_weights(tmp_path, CONFIG), expected)


def test_the_folder_that_one_stands_in_may_be_meant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = save_checkpoint(tmp_path, 10, seed=1)
    monkeypatch.chdir(tmp_path)
    check_equal(read_initial_weights(Path(), CONFIG), expected)


def test_a_checkpoint_is_known_by_its_content(tmp_path: Path) -> None:
    expected = save_checkpoint(tmp_path, 10, seed=1)
    (tmp_path / "checkpoint-000000010.safetensors").rename(tmp_path / "model.safetensors")
    check_equal(read_initial_weights(tmp_path, CONFIG), expected)


def test_hugging_faces_model_as_a_file_and_as_a_folder(tmp_path: Path) -> None:
    config = read_golden()["config"]
    expected = load_weights(WEIGHTS, variable_shapes(config))
    check_equal(read_initial_weights(WEIGHTS, config), expected)
    (tmp_path / "model.safetensors").write_bytes(WEIGHTS.read_bytes())
    check_equal(read_initial_weights(tmp_path, config), expected)


@pytest.mark.parametrize("named", ["model.ckpt-300", "model.ckpt-300.index", "."])
def test_googles_checkpoint_gives_its_weights_and_not_its_moments(named: str, tmp_path: Path) -> None:
    """As Google's and NVIDIA's scripts leave it in a folder of a run, beside older ones."""
    write_bundle(tmp_path / "model.ckpt-90", initial_values(CONFIG, seed=2))
    for file in CHECKPOINT.parent.glob(f"{CHECKPOINT.name}.[id]*-of-*"):
        (tmp_path / f"model.ckpt-300{file.suffix}").write_bytes(file.read_bytes())
    (tmp_path / "model.ckpt-300.index").write_bytes(CHECKPOINT.with_suffix(".index").read_bytes())
    check_equal(read_initial_weights(tmp_path / named, CONFIG), initial_values(CONFIG, seed=1))


def test_a_release_of_google_is_found_in_its_folder(tmp_path: Path) -> None:
    weights = initial_values(CONFIG, seed=1)
    for name in ("bert_model.ckpt", "model.ckpt"):
        write_bundle(tmp_path / name, weights)
    assert find_weights(tmp_path) == tmp_path / "bert_model.ckpt"
    check_equal(read_initial_weights(tmp_path, CONFIG), weights)
    for file in tmp_path.glob("bert_model.ckpt*"):
        file.unlink()
    assert find_weights(tmp_path) == tmp_path / "model.ckpt"
    write_bundle(tmp_path / "another.ckpt", weights)
    with pytest.raises(UsageError, match=r"holds several checkpoints of TensorFlow, 'another\.ckpt', 'model\.ckpt'; name one"):
        find_weights(tmp_path)


@pytest.mark.parametrize("writer", ["checkpoint", "hugging face", "google"])
def test_more_than_the_model_has_is_refused(writer: str, tmp_path: Path) -> None:
    """A model of more layers holds all that one of fewer needs, and would pass for it."""
    deeper = replace(CONFIG, num_hidden_layers=2)
    weights = save_checkpoint(tmp_path / "run", 10, seed=1, config=deeper)
    path = tmp_path / "run"
    if writer == "hugging face":
        save_weights(path := tmp_path / "model.safetensors", weights)
    elif writer == "google":
        write_bundle(path := tmp_path / "bert_model.ckpt", {**weights, "bert/pooler/dense/bias/adam_m": np.ones(8, np.float32)})
    with pytest.raises(BertprepError, match=r"has 16 variables that the model lacks: 'bert.encoder.layer.1.* and 13 others"):
        read_initial_weights(path, CONFIG)


def test_googles_checkpoints_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    prefix = tmp_path / "bert_model.ckpt"
    weights = initial_values(CONFIG, seed=1)
    write_bundle(prefix, {name: value for name, value in weights.items() if name.startswith("bert/")})
    with pytest.raises(BertprepError, match=r"bert_model\.ckpt: lacks 7 of the model's 30 variables: cls/predictions"):
        read_initial_weights(prefix, CONFIG)
    write_bundle(prefix, weights)
    with pytest.raises(BertprepError, match=r"position_embeddings: the model has 64 x 8 for it, found 32 x 8; give the"):
        read_initial_weights(prefix, replace(CONFIG, max_position_embeddings=64))


def test_nothing_to_begin_with_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"absent: does not exist; name a checkpoint, a model\.safetensors or"):
        read_initial_weights(tmp_path / "absent", CONFIG)
    (tmp_path / "empty").mkdir()
    with pytest.raises(
        UsageError, match=r"empty: holds neither a checkpoint nor a model\.safetensors nor a bert_model\.ckpt; name"
    ):
        read_initial_weights(tmp_path / "empty", CONFIG)
    (tmp_path / "model.bin").write_bytes(b"PK\x03\x04 something else")
    with pytest.raises(BertprepError, match=r"model\.bin: is not a whole safetensors file"):
        read_initial_weights(tmp_path / "model.bin", CONFIG)


def test_a_model_of_another_shape_is_refused(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, 10, seed=1)
    other = replace(CONFIG, max_position_embeddings=64)
    with pytest.raises(
        BertprepError,
        match=r"010\.safetensors: bert/embeddings/position_embeddings: the model has 64 x 8 for it, found 32 x 8; give the",
    ):
        read_initial_weights(tmp_path, other)
    deeper = replace(CONFIG, num_hidden_layers=2)
    with pytest.raises(BertprepError, match=r"lacks 16 of the model's 46 variables: bert/encoder/layer_1/attention"):
        read_initial_weights(tmp_path, deeper)
    assert len(variable_shapes(deeper)) == 46


@pytest.mark.parametrize("writer", ["checkpoint", "hugging face", "google"])
def test_padded_word_embeddings_are_refused(writer: str, tmp_path: Path) -> None:
    """As models have them whose trainer wanted a multiple of 8: what a token is might be another one's row."""
    if writer == "checkpoint":
        save_checkpoint(tmp_path, 10, seed=1)
    elif writer == "google":
        write_bundle(tmp_path / "bert_model.ckpt", initial_values(CONFIG, seed=1))
    else:
        save_weights(tmp_path / "model.safetensors", initial_values(CONFIG, seed=1))
    with pytest.raises(
        BertprepError, match=r"has 40 word embeddings for a vocabulary of 37 tokens, it is padded, or of another"
    ):
        read_initial_weights(tmp_path, replace(CONFIG, vocab_size=37))
    with pytest.raises(BertprepError, match=r"has 40 word embeddings for a vocabulary of 41 tokens, too few.*vocab_size 40"):
        read_initial_weights(tmp_path, replace(CONFIG, vocab_size=41))


def test_a_hidden_size_is_not_taken_for_a_padded_vocabulary(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, 10, seed=1)
    wider = replace(CONFIG, vocab_size=37, hidden_size=16)
    with pytest.raises(BertprepError, match=r"word_embeddings: the model has 37 x 16 for it, found 40 x 8"):
        read_initial_weights(tmp_path, wider)


def test_a_model_without_heads_is_refused(tmp_path: Path) -> None:
    encoder = {name: value for name, value in read_safetensors(WEIGHTS).items() if name.startswith("bert")}
    write_safetensors(tmp_path / "model.safetensors", encoder, {"format": "pt"})
    with pytest.raises(BertprepError, match=r"lacks 7 of the model's 46 variables"):
        read_initial_weights(tmp_path, read_golden()["config"])


SQUAD, THREE = Squad(), Classification(own_task("three", ("a", "b", "c")))
BODY_OF_BERT = {name: value for name, value in initial_values(CONFIG, seed=1).items() if name.startswith("bert/")}


def pooled(task: Task) -> dict[str, Any]:
    """The body that a task takes."""
    return {name: BODY_OF_BERT[name] for name in task.variable_shapes(CONFIG) if name in BODY_OF_BERT}


@pytest.mark.parametrize("task", [SQUAD, THREE], ids=["squad", "classification"])
@pytest.mark.parametrize("writer", ["checkpoint", "hugging face", "BertModel", "google", "google, without heads"])
def test_a_task_starts_from_the_body_of_any_weights(writer: str, task: Task, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    if writer == "checkpoint":
        save_checkpoint(path := tmp_path / "run", 10, seed=1)
    elif writer == "hugging face":
        save_weights(path, initial_values(CONFIG, seed=1))
    elif writer == "BertModel":
        save_weights(path, BODY_OF_BERT)
        bare = {name.removeprefix("bert."): value for name, value in read_safetensors(path).items()}
        write_safetensors(path, bare, {"format": "pt"})
    else:
        weights = BODY_OF_BERT if "without" in writer else initial_values(CONFIG, seed=1)
        write_bundle(path := tmp_path / "bert_model.ckpt", {**weights, "global_step": np.array(1, np.float32)})
    check_equal(read_initial_weights(path, CONFIG, task), pooled(task))


@pytest.mark.parametrize("task", [SQUAD, THREE], ids=["SQuAD", "classification"])
def test_a_model_without_a_pooler_can_be_fine_tuned(task: Task, tmp_path: Path) -> None:
    """As after training without sentence pairs: see tests/trainer/test_unpaired.py."""
    without = {name: value for name, value in BODY_OF_BERT.items() if "pooler" not in name}
    save_weights(tmp_path / "model.safetensors", without)
    check_equal(read_initial_weights(tmp_path, CONFIG, task), without)
    del without["bert/embeddings/LayerNorm/beta"]
    save_weights(tmp_path / "model.safetensors", without)
    with pytest.raises(
        BertprepError, match=r"lacks 1 of the model's 21 variables: bert\.embeddings\.LayerNorm\.bias; give weights"
    ):
        read_initial_weights(tmp_path, CONFIG, task)


@pytest.mark.parametrize("writer", ["checkpoint", "hugging face", "google"])
def test_heads_are_taken_where_the_file_has_the_tasks_own(writer: str, tmp_path: Path) -> None:
    weights = initial_values(CONFIG, 3, THREE)
    path = tmp_path / "model.safetensors"
    if writer == "checkpoint":
        checkpoint.save(path := tmp_path / "run", checkpoint.RunState({"model": asdict(CONFIG)}, 10), weights, keep=1)
    elif writer == "hugging face":
        save_weights(path, weights)
    else:
        write_bundle(path := tmp_path / "bert_model.ckpt", weights)
    check_equal(read_initial_weights(path, CONFIG, THREE), weights)
    found = read_initial_weights(path, CONFIG, SQUAD)
    assert list(found) == list(pooled(SQUAD))  # another task's heads are left
    two = Classification(own_task("two", ("a", "b")))
    with pytest.raises(BertprepError, match=r"(output_weights|classifier\.weight): is 3 x 8, the records need 2 x 8: it was"):
        read_initial_weights(path, CONFIG, two)
    with pytest.raises(BertprepError, match=r"lacks 7 of the model's 30 variables: cls.predictions"):
        read_initial_weights(path, CONFIG)


COLA, MRPC, MNLI, RTE, STSB = (Classification(GLUE[name]) for name in ("cola", "mrpc", "mnli", "rte", "stsb"))
MOOD, TURNED = (Classification(own_task("mood", labels)) for labels in (("neg", "pos"), ("pos", "neg")))


@pytest.mark.parametrize(
    ("trained", "task", "says"),
    [
        (MRPC, MRPC, ""),
        (MOOD, MOOD, ""),
        (Squad("v1.1"), Squad("v2.0"), ""),
        (PRETRAINING, MRPC, ""),
        (COLA, MRPC, "the head of cola with 2 labels (0, 1) is not that of mrpc with 2 labels (0, 1); drawn from the seed"),
        (MNLI, RTE, "the head of mnli with 3 labels (contradiction, entailment, neutral) is not that of rte with 2 labels"),
        (MOOD, TURNED, "the head of mood with 2 labels (neg, pos) is not that of mood with 2 labels (pos, neg); drawn"),
        (STSB, MRPC, "the head of stsb with a score is not that of mrpc"),
        (MRPC, SQUAD, "the head of mrpc with 2 labels (0, 1) is not that of SQuAD; drawn from the seed"),
    ],
)
def test_a_run_keeps_the_head_of_its_own_task_alone(trained: Task, task: Task, says: str, tmp_path: Path) -> None:
    weights = initial_values(CONFIG, 3, trained)
    made_with = {"model": asdict(CONFIG), **trained.made_with()}
    file = checkpoint.save(tmp_path, checkpoint.RunState(made_with, 10), weights, keep=1)
    line = describe_other_head(tmp_path, CONFIG, task)
    assert line.startswith(f"--init {file}: {says}") if says else not line
    check_initial_weights(tmp_path, CONFIG, task)  # MNLI's head does not fit, and need not


@pytest.mark.parametrize(
    ("labels", "names", "says"),
    [
        (2, {"0": "neg", "1": "pos"}, ""),
        (2, {"0": "LABEL_0", "1": "LABEL_1"}, ""),
        (2, None, ""),
        (2, {"1": "neg", "0": "pos"}, "the head with 2 labels (pos, neg) is not that of mood with 2 labels (neg, pos); drawn"),
        (2, {"a": 1}, "the head with 2 labels (None) is not that of mood"),
        (3, {"0": "LABEL_0", "1": "LABEL_1", "2": "LABEL_2"}, "the head with 3 labels is not that of mood with 2 labels"),
        (6, dict(zip("012345", "abcdef", strict=True)), "the head with 6 labels (a, b, c, d, ...) is not that of mood"),
    ],
)
def test_a_head_of_hugging_face_is_known_by_its_labels(
    labels: int, names: dict[str, str] | None, says: str, tmp_path: Path
) -> None:
    trained = Classification(own_task("any", [str(number) for number in range(labels)]))
    save_weights(tmp_path / "model.safetensors", initial_values(CONFIG, 3, trained))
    (tmp_path / "config.json").write_text(json.dumps({"id2label": names}))
    line = describe_other_head(tmp_path, CONFIG, MOOD)
    assert line.startswith(f"--init {tmp_path}/model.safetensors: {says}") if says else not line
    check_initial_weights(tmp_path, CONFIG, MOOD)
    assert not describe_other_head(tmp_path, CONFIG, SQUAD)  # it has none for it
    (tmp_path / "config.json").write_text("[")
    with pytest.raises(BertprepError, match=r"config\.json: is not the configuration of a model \("):
        check_initial_weights(tmp_path, CONFIG, MOOD)


def test_a_head_of_google_is_known_by_the_number_of_its_labels(tmp_path: Path) -> None:
    write_bundle(tmp_path / "model.ckpt-9", initial_values(CONFIG, 3, THREE))
    assert not describe_other_head(tmp_path, CONFIG, MNLI)
    assert describe_other_head(tmp_path, CONFIG, STSB).endswith(
        "model.ckpt-9: the head with 3 labels is not that of stsb with a score; drawn from the seed"
    )
    check_initial_weights(tmp_path, CONFIG, STSB)


def test_a_body_that_does_not_fit_a_task_is_refused(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, 10, seed=1, config=replace(CONFIG, num_hidden_layers=2))
    with pytest.raises(BertprepError, match=r"has 16 variables that the model lacks: 'bert/encoder/layer_1"):
        read_initial_weights(tmp_path, CONFIG, SQUAD)
    save_checkpoint(tmp_path, 11, seed=1)
    with pytest.raises(BertprepError, match=r"has 40 word embeddings for a vocabulary of 41 tokens, too few"):
        read_initial_weights(tmp_path, replace(CONFIG, vocab_size=41), SQUAD)


def test_the_heads_of_a_task_are_drawn_as_googles() -> None:
    values = initial_values(replace(CONFIG, hidden_size=512, num_attention_heads=8), 1, SQUAD)
    weights, bias = values["cls/squad/output_weights"], values["cls/squad/output_bias"]
    assert weights.shape == (2, 512)
    assert weights.std() == pytest.approx(0.02 * 0.88, rel=0.1)  # a normal distribution cut off at two deviations
    assert abs(weights).max() <= 0.04
    assert not bias.any()


def test_the_sizes_of_a_model_come_with_its_weights(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "run", 10, seed=1)
    assert find_model(find_weights(tmp_path / "run")) == CONFIG
    write_bundle(tmp_path / "google" / "bert_model.ckpt", BODY_OF_BERT)
    with pytest.raises(UsageError, match=r"bert_model\.ckpt: has no bert_config\.json or config\.json beside it; name"):
        find_model(find_weights(tmp_path / "google"))
    (tmp_path / "google" / "config.json").write_text(CONFIG.to_json())
    assert find_model(find_weights(tmp_path / "google")) == CONFIG

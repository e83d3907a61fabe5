"""A run begins with exactly the weights of the file that it is given, whoever wrote it, or not at all."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertprep.errors import BertprepError, UsageError
from tests.trainer.golden_model import WEIGHTS, read_golden
from trainer import checkpoint
from trainer.config import ModelConfig
from trainer.initial_weights import read_initial_weights
from trainer.safetensors import read_safetensors, write_safetensors
from trainer.variables import initial_values, variable_shapes
from trainer.weights import Weights, load_weights, save_weights

CONFIG = ModelConfig(
    vocab_size=40, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, max_position_embeddings=32
)


def save_checkpoint(folder: Path, step: int, *, seed: int, config: ModelConfig = CONFIG, **made_with: Any) -> Weights:
    """A checkpoint as a run writes it, moments and all; returns its weights."""
    weights = initial_values(config, seed)
    moments = {f"{name}/adam_{slot}": np.full_like(value, 7) for name, value in weights.items() for slot in "mv"}
    counts = {name: np.array(7, np.float32) for name in ("updates", "loss_scale", "good_steps")}
    made_with = {"model": asdict(config), **made_with}
    state = {**weights, **moments, **counts}
    checkpoint.save(folder, step, skipped=0, state=state, made_with=made_with, keep=3)
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


def test_a_checkpoint_is_known_by_its_content(tmp_path: Path) -> None:
    expected = save_checkpoint(tmp_path, 10, seed=1)
    (tmp_path / "checkpoint-000000010.safetensors").rename(tmp_path / "model.safetensors")
    check_equal(read_initial_weights(tmp_path, CONFIG), expected)


def test_hugging_faces_model_as_a_file_and_as_a_folder(tmp_path: Path) -> None:
    config = read_golden()["config"]
    expected = load_weights(WEIGHTS, config)
    check_equal(read_initial_weights(WEIGHTS, config), expected)
    (tmp_path / "model.safetensors").write_bytes(WEIGHTS.read_bytes())
    check_equal(read_initial_weights(tmp_path, config), expected)


def test_nothing_to_begin_with_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"absent: does not exist; name a checkpoint, the folder of a run, or a model\.safet"):
        read_initial_weights(tmp_path / "absent", CONFIG)
    (tmp_path / "empty").mkdir()
    with pytest.raises(
        UsageError, match=r"empty: holds neither a checkpoint nor a model\.safetensors; name a folder that does"
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
    with pytest.raises(
        BertprepError, match=r"lacks 16 of the model's 46 variables, the first is bert/encoder/layer_1/attention"
    ):
        read_initial_weights(tmp_path, deeper)
    assert len(variable_shapes(deeper)) == 46


@pytest.mark.parametrize("writer", ["checkpoint", "hugging face"])
def test_padded_word_embeddings_are_refused(writer: str, tmp_path: Path) -> None:
    """As models have them whose trainer wanted a multiple of 8: what a token is might be another one's row."""
    if writer == "checkpoint":
        save_checkpoint(tmp_path, 10, seed=1)
    else:
        save_weights(tmp_path / "model.safetensors", initial_values(CONFIG, seed=1))
    with pytest.raises(
        BertprepError, match=r"has 40 word embeddings for a vocabulary of 37 tokens: it is padded, or of another"
    ):
        read_initial_weights(tmp_path, replace(CONFIG, vocab_size=37))
    with pytest.raises(BertprepError, match=r"has 40 word embeddings, too few for a vocabulary of 41 tokens.*vocab_size 40"):
        read_initial_weights(tmp_path, replace(CONFIG, vocab_size=41))


def test_a_hidden_size_is_not_taken_for_a_padded_vocabulary(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, 10, seed=1)
    wider = replace(CONFIG, vocab_size=37, hidden_size=16)
    with pytest.raises(BertprepError, match=r"word_embeddings: the model has 37 x 16 for it, found 40 x 8"):
        read_initial_weights(tmp_path, wider)


def test_a_model_without_heads_is_refused(tmp_path: Path) -> None:
    encoder = {name: value for name, value in read_safetensors(WEIGHTS).items() if name.startswith("bert")}
    write_safetensors(tmp_path / "model.safetensors", encoder, {"format": "pt"})
    with pytest.raises(BertprepError, match=r"holds 39 of the model's 46 variables"):
        read_initial_weights(tmp_path, read_golden()["config"])

"""Which model configurations are accepted, and which refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from bertprep.errors import BertprepError, UsageError
from trainer.model_config import PRESETS, ModelConfig
from trainer.weights import initial_values, variable_shapes

GOOGLE = {  # bert_config.json of uncased_L-12_H-768_A-12
    "attention_probs_dropout_prob": 0.1,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "hidden_size": 768,
    "initializer_range": 0.02,
    "intermediate_size": 3072,
    "max_position_embeddings": 512,
    "num_attention_heads": 12,
    "num_hidden_layers": 12,
    "type_vocab_size": 2,
    "vocab_size": 30522,
}
HUGGING_FACE = {
    **GOOGLE,
    "architectures": ["BertForMaskedLM"],
    "layer_norm_eps": 1e-12,
    "model_type": "bert",
    "pad_token_id": 0,
}


def config_file(folder: Path, content: str) -> Path:
    path = folder / "bert_config.json"
    path.write_text(content)
    return path


@pytest.mark.parametrize("settings", [GOOGLE, HUGGING_FACE], ids=["google", "hugging face"])
def test_both_kinds_of_configuration_give_base(settings: dict[str, Any], tmp_path: Path) -> None:
    path = config_file(tmp_path, json.dumps(settings))
    assert ModelConfig.load(str(path)) == ModelConfig.from_file(path) == ModelConfig.preset("base")


@pytest.mark.parametrize("name", PRESETS)
def test_a_written_file_reads_back(name: str, tmp_path: Path) -> None:
    config = ModelConfig.load(name, vocab_size=8000)
    assert config.vocab_size == 8000
    assert ModelConfig.from_file(config_file(tmp_path, config.to_json())) == config


@pytest.mark.parametrize(("name", "millions"), [("tiny", 4.43), ("base", 110.11), ("large", 336.23)])
def test_sizes_of_the_released_models(name: str, millions: float) -> None:
    sizes = {"tiny": (2, 128, 2), "base": (12, 768, 12), "large": (24, 1024, 16)}
    config = ModelConfig.preset(name)
    assert (config.num_hidden_layers, config.hidden_size, config.num_attention_heads) == sizes[name]
    parameters = 0
    for shape in variable_shapes(config).values():
        parameters += shape[0] * (shape[1] if len(shape) == 2 else 1)
    assert parameters / 1e6 == pytest.approx(millions, abs=0.005)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": 100}, "hidden_size 100: must be a multiple of num_attention_heads, 12"),
        ({"vocab_size": 0}, "vocab_size 0: must be an integer, at least 1"),
        ({"num_hidden_layers": 2.0}, "num_hidden_layers 2.0: must be an integer, at least 1"),
        ({"hidden_size": 10**30}, "hidden_size: must be at most 16,777,216, which no model comes near"),
        ({"num_hidden_layers": True}, "num_hidden_layers True: must be an integer, at least 1"),
        ({"hidden_dropout_prob": 1.0}, "hidden_dropout_prob 1.0: must be a number, at least 0 and below 1"),
        ({"initializer_range": "0.02"}, "initializer_range '0.02': must be a number, at least 0 and below 1"),
        ({"hidden_act": "relu"}, "hidden_act 'relu': only gelu, by the error function, can be trained here"),
        ({"layer_norm_eps": 1e-5}, "layer_norm_eps 1e-05: only 1e-12 can be trained here"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type 'relative_key': only 'absolute' can be"),
        ({"model_type": "roberta"}, "model_type 'roberta': only 'bert' can be trained here"),
    ],
)
def test_a_configuration_of_another_model_is_refused(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = config_file(tmp_path, json.dumps({**GOOGLE, **changes}))
    with pytest.raises(BertprepError, match=f"^{path}: {message}"):
        ModelConfig.from_file(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not JSON"),
        ("[" * 200_000, "is not JSON .it is nested too deeply.; expected"),
        ('{"hidden_size": NaN}', "is not JSON .it has the number NaN"),
        ('{"hidden_size": 1, "hidden_size": 2}', 'is not JSON .it names "hidden_size" twice'),
        ("[]", "is not an object of settings"),
        ('{"hidden_size": 128}', "intermediate_size, max_position_embeddings, num_attention_heads, .*: missing"),
    ],
)
def test_a_file_that_is_not_a_configuration_is_refused(content: str, message: str, tmp_path: Path) -> None:
    path = config_file(tmp_path, content)
    with pytest.raises(BertprepError, match=f"^{path}: {message}"):
        ModelConfig.from_file(path)


def test_unknown_names_and_missing_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--model huge: unknown; choose one of tiny, mini, small, base, large, or name a"):
        ModelConfig.load("huge")
    with pytest.raises(BertprepError, match=r"bert_config\.json: cannot be read: No such file"):
        ModelConfig.from_file(tmp_path / "bert_config.json")


def test_first_values() -> None:
    config = ModelConfig.preset("tiny", vocab_size=2000)
    values = initial_values(config, seed=1)
    assert {name: value.shape for name, value in values.items()} == variable_shapes(config)
    words = values["bert/embeddings/word_embeddings"]
    assert words.dtype == "float32"
    assert abs(words).max() <= 0.04
    assert words.std() == pytest.approx(0.02 * 0.8796, rel=0.01)  # 0.88: what the cut at two deviations leaves of one
    assert (values["bert/pooler/dense/bias"] == 0).all()
    assert (values["bert/embeddings/LayerNorm/gamma"] == 1).all()
    again, other = initial_values(config, seed=1), initial_values(config, seed=2)
    assert (again["bert/pooler/dense/kernel"] == values["bert/pooler/dense/kernel"]).all()
    assert (other["bert/pooler/dense/kernel"] != values["bert/pooler/dense/kernel"]).any()

"""Which model configurations are accepted, and which refused."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from bertprep.errors import BertprepError
from trainer.model_config import PRESETS, ModelConfig
from trainer.tasks.pretraining import Pretraining

GOOGLE = {  # bert_config.json of uncased_L-12_H-768_A-12
    "attention_probs_dropout_prob": 0.1, "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "hidden_size": 768,
    "initializer_range": 0.02, "intermediate_size": 3072, "max_position_embeddings": 512, "num_attention_heads": 12,
    "num_hidden_layers": 12, "type_vocab_size": 2, "vocab_size": 30522,
}  # fmt: skip
OF_TRANSFORMERS = {"architectures": ["BertForMaskedLM"], "layer_norm_eps": 1e-12, "model_type": "bert", "pad_token_id": 0}
HUGGING_FACE = {**GOOGLE, **OF_TRANSFORMERS}


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
    parameters = sum(math.prod(shape) for shape in Pretraining().variable_shapes(config).values())
    assert parameters / 1e6 == pytest.approx(millions, abs=0.005)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": 100}, "hidden_size 100: .*num_attention_heads, 12"),
        ({"vocab_size": 0}, "vocab_size 0: .* from 1 to 16,777,216"),
        ({"num_hidden_layers": 2.0}, "num_hidden_layers 2.0: must be a whole number"),
        ({"hidden_size": 10**30}, "hidden_size 10000000000000000000: must be a whole number from 1 to"),
        ({"num_hidden_layers": True}, "num_hidden_layers True: must be a whole number"),
        ({"hidden_dropout_prob": 1.0}, "hidden_dropout_prob 1.0: must be a number, at least 0 and below 1"),
        ({"initializer_range": "0.02"}, "initializer_range '0.02': must be a number, at least 0 and below 1"),
        ({"hidden_act": "relu"}, "hidden_act 'relu': only gelu"),
        ({"layer_norm_eps": 1e-5}, "layer_norm_eps 1e-05: only 1e-12"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type 'relative_key': only 'absolute'"),
        ({"model_type": "roberta"}, "model_type 'roberta': only 'bert'"),
    ],
)
def test_a_configuration_of_another_model_is_refused(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = config_file(tmp_path, json.dumps({**GOOGLE, **changes}))
    with pytest.raises(BertprepError, match=f"^{path}: {message}"):
        ModelConfig.from_file(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "Expecting property name .*; expected a bert_config.json"),
        ("[]", "it is .*, expected an object"),
        ('{"hidden_size": 128}', "vocab_size, num_hidden_layers, num_attention_heads, .*: missing"),
    ],
)
def test_a_file_that_is_not_a_configuration_is_refused(content: str, message: str, tmp_path: Path) -> None:
    path = config_file(tmp_path, content)
    with pytest.raises(BertprepError, match=f"^{path}: {message}"):
        ModelConfig.from_file(path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BertprepError, match=r"bert_config\.json: No such file"):
        ModelConfig.from_file(tmp_path / "bert_config.json")

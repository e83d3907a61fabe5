"""Read and write the configuration of a model, a `bert_config.json` as Google's and Hugging Face's BERT use it.

A setting that would make the model compute something that this trainer does not support is an error; unknown settings are
ignored.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from bertprep.errors import BertprepError, UsageError
from bertprep.files.paths import as_path
from bertprep.untrusted import check_values, parse_json, read_bounded

LAYER_NORM_EPSILON = 1e-12  # as in Google's and Hugging Face's code; Keras' default of 1e-3 changes the loss by 4e-3
MAX_SIZE = 1 << 24
"""The limit on every size of a model; a larger one is a mistake, or an attempt to exhaust memory. There are fewer layers."""
MAX_LAYERS = 1024
PRESETS = {  # layers and hidden size of Google's released models; heads have 64 units each
    "tiny": (2, 128),
    "mini": (4, 256),
    "small": (4, 512),
    "base": (12, 768),
    "large": (24, 1024),
}
_FIXED = {  # settings of Hugging Face's BERT that this trainer supports with one value only
    "model_type": "bert",
    "layer_norm_eps": LAYER_NORM_EPSILON,
    "position_embedding_type": "absolute",
    "tie_word_embeddings": True,
    "is_decoder": False,
    "add_cross_attention": False,
}


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The sizes of a BERT, with the names and defaults of `bert_config.json`.

    >>> config = ModelConfig.preset("tiny", vocab_size=8000)
    >>> config.num_hidden_layers, config.hidden_size, config.head_size
    (2, 128, 64)
    """

    vocab_size: int = 30522
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str = "gelu"  # exact, by the error function
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    initializer_range: float = 0.02

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            most = MAX_LAYERS if field.name == "num_hidden_layers" else MAX_SIZE
            if field.type == "int" and (type(value) is not int or not 1 <= value <= most):
                raise UsageError(f"{field.name} {str(value)[:20]}: must be a whole number from 1 to {most:,}")
            if field.type == "float" and (type(value) not in (int, float) or not 0 <= value < 1):
                raise UsageError(f"{field.name} {value!r}: must be a number, at least 0 and below 1")
        if self.hidden_size % self.num_attention_heads:
            raise UsageError(
                f"hidden_size {self.hidden_size}: must be a multiple of num_attention_heads, {self.num_attention_heads}"
            )
        if self.hidden_act != "gelu":
            raise UsageError(f"hidden_act {self.hidden_act!r}: only gelu, by the error function, is supported")

    @classmethod
    def preset(cls, name: str, *, vocab_size: int = 30522) -> ModelConfig:
        if name not in PRESETS:
            raise UsageError(f"--model {name}: unknown; choose one of {', '.join(PRESETS)}, or name a bert_config.json")
        layers, hidden = PRESETS[name]
        return cls(
            vocab_size=vocab_size, hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=hidden // 64,
            intermediate_size=4 * hidden,
        )  # fmt: skip

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> ModelConfig:
        """Return the model of a `bert_config.json` with these contents; all sizes but `type_vocab_size` are required."""
        for name, expected in _FIXED.items():
            if settings.get(name, expected) != expected:
                raise UsageError(f"{name} {settings[name]!r}: only {expected!r} is supported")
        known = {field.name: field.type for field in fields(cls)}
        missing = [name for name, kind in known.items() if kind == "int" and name not in settings and name != "type_vocab_size"]
        if missing:
            raise UsageError(f"{', '.join(missing)}: missing; a bert_config.json must have the size of every part")
        return cls(**{name: value for name, value in settings.items() if name in known})

    @classmethod
    def from_file(cls, path: Path) -> ModelConfig:
        try:
            return cls.from_settings(check_values(parse_json(read_bounded(path)), {}))
        except (OSError, ValueError, UsageError) as error:
            why = getattr(error, "strerror", None) or error
            raise BertprepError(f"{path}: {why}; expected a bert_config.json") from error

    @classmethod
    def load(cls, name_or_path: str, *, vocab_size: int = 30522) -> ModelConfig:
        """Return the model that `--model` names: a preset with the given vocabulary size, or a file."""
        if name_or_path not in PRESETS and (path := as_path(name_or_path)).is_file():
            return cls.from_file(path)
        return cls.preset(name_or_path, vocab_size=vocab_size)

    @property
    def head_size(self) -> int:
        return self.hidden_size // self.num_attention_heads

    def without_dropout(self) -> ModelConfig:
        return replace(self, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)

    def to_json(self) -> str:
        """Return the text of a `bert_config.json`, which this module and Hugging Face's tools read."""
        return json.dumps({**asdict(self), **_FIXED}, indent=2, sort_keys=True) + "\n"

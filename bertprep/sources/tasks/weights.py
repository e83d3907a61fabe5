"""Writes `bert_config.json`, the model configuration of BERT trainers, beside a model's `config.json`.

Google's `BertConfig` has eleven fields, which `config.json` has among others. A model of another family lacks some or uses them
differently, so it gets no such file.
"""

import json
from pathlib import Path

from bertprep.errors import BertprepError
from bertprep.files.atomic import atomic_file
from bertprep.progress import say
from bertprep.untrusted import TEXT, check_values, parse_json, read_bounded

CONFIG, BERT_CONFIG = "config.json", "bert_config.json"

BERT_FIELDS = (
    "attention_probs_dropout_prob", "hidden_act", "hidden_dropout_prob", "hidden_size", "initializer_range",
    "intermediate_size", "max_position_embeddings", "num_attention_heads", "num_hidden_layers", "type_vocab_size",
    "vocab_size",
)  # fmt: skip


def write_bert_config(folder: Path) -> None:
    """Write `bert_config.json` from `config.json`; for a model that is not a BERT, only print a line that says so."""
    path = folder / CONFIG
    try:
        config = check_values(parse_json(read_bounded(path)), {"model_type": TEXT})
        missing = [field for field in BERT_FIELDS if field not in config]
        kind = config.get("model_type", "bert")
    except (OSError, ValueError) as error:
        raise BertprepError(f"{path}: is not the configuration of a model ({error}); download another --model") from error
    if kind != "bert" or missing:
        why = f"its model_type is {kind}" if kind != "bert" else f"it lacks {', '.join(missing)}"
        say(f"{path}: is not a BERT model's ({why}); no {BERT_CONFIG} is made of it")
        return
    content = (json.dumps({field: config[field] for field in BERT_FIELDS}, indent=2) + "\n").encode()
    target = folder / BERT_CONFIG
    if not target.is_file() or target.read_bytes() != content:
        with atomic_file(target) as file:
            file.write(content)

"""A trained model as a folder that other tools read: what `BertForPreTraining.from_pretrained` and its tokenizer look for.

    config.json             the model's sizes
    model.safetensors       the weights, by Hugging Face's names; neither moments nor the loss scale
    vocab.txt               the vocabulary of the records that the model was trained on
    tokenizer_config.json   whether letters are made lower-case

The folder is made under a temporary name and appears whole; it is never made over one that has anything in it.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from bertprep.atomic import TEMPORARY_SUFFIX, atomic_file, explain_write_error, sync_folder
from bertprep.errors import BertprepError, UsageError
from bertprep.layout import VOCABULARY
from bertprep.progress import say
from trainer import checkpoint
from trainer.config import ModelConfig
from trainer.initial_weights import HUGGING_FACE_FILE, find_weights, take_weights
from trainer.weights import save_weights

TARGETS = ("transformers",)


def export_model(source: Path, target: Path, to: str = "transformers") -> None:
    """Write the model of a checkpoint, or of a run's newest, as a new folder `target`."""
    if to not in TARGETS:
        raise UsageError(f"--to {to}: unknown; choose one of {', '.join(TARGETS)}")
    _check_free(target)
    file = find_weights(source)
    if not checkpoint.is_checkpoint(file):
        raise UsageError(f"{file}: is no checkpoint of this trainer; name one, or the folder of a run")
    saved = checkpoint.read(file)
    config = ModelConfig.from_settings(saved.made_with["model"])
    weights = take_weights(file, saved.state, config)
    vocabulary = _read_vocabulary(file.parent / VOCABULARY, config)
    texts = {
        "config.json": _to_text({**json.loads(config.to_json()), "architectures": ["BertForPreTraining"]}),
        "tokenizer_config.json": _to_text(_tokenizer_settings(config, saved.made_with.get("cased"))),
    }
    place = target.resolve()
    unfinished = place.with_name(place.name + TEMPORARY_SUFFIX)
    try:
        shutil.rmtree(unfinished, ignore_errors=True)  # of a run that was killed
        unfinished.mkdir(parents=True)
        save_weights(unfinished / HUGGING_FACE_FILE, weights)
        for name, content in {**texts, VOCABULARY: vocabulary}.items():
            with atomic_file(unfinished / name) as made:
                made.write(content)
        unfinished.replace(place)
        sync_folder(place.parent)
    except OSError as error:
        raise explain_write_error(target, error) from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    parameters = sum(value.size for value in weights.values())
    say(f"{target}: {', '.join(sorted(path.name for path in place.iterdir()))}")
    say(f"  of {file}: step {saved.step:,}, {parameters:,} parameters; BertForPreTraining.from_pretrained reads it")
    if saved.made_with.get("cased") is None:
        say(
            "  whether its letters are lower-cased is not known; transformers will, unless tokenizer_config.json says otherwise"
        )


def _check_free(target: Path) -> None:
    try:
        is_taken = target.exists() and (not target.is_dir() or any(target.iterdir()))
    except OSError as error:
        raise explain_write_error(target, error) from error
    if is_taken:
        raise UsageError(f"{target}: is there already; name a folder that is empty or does not exist")


def _read_vocabulary(path: Path, config: ModelConfig) -> bytes:
    """The bytes of the vocabulary beside the checkpoint; raises where it cannot be the model's."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise BertprepError(
            f"{path}: cannot be read: {error.strerror or error}; a run keeps its vocabulary beside its checkpoints"
        ) from error
    tokens = len(content.splitlines())
    if tokens > config.vocab_size:
        raise BertprepError(
            f"{path}: has {tokens:,} tokens, the model has {config.vocab_size:,}; put the vocabulary of its records there"
        )
    return content


def _tokenizer_settings(config: ModelConfig, is_cased: bool | None) -> dict[str, Any]:
    settings: dict[str, Any] = {"tokenizer_class": "BertTokenizer", "model_max_length": config.max_position_embeddings}
    return settings if is_cased is None else {**settings, "do_lower_case": not is_cased}


def _to_text(settings: dict[str, Any]) -> bytes:
    return (json.dumps(settings, indent=2, sort_keys=True) + "\n").encode()

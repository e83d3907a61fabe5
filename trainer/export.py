"""Write a model to a new folder for other tools, atomically: `python -m trainer export`.

--to transformers       the files that `from_pretrained` of `BertForPreTraining`, or of the task's class, loads
    config.json, model.safetensors, vocab.txt or tokenizer.json
    tokenizer_config.json   whether text is lower-cased, or the names of the special tokens
--to google             the files that Google's and NVIDIA's scripts load with --init_checkpoint DIR/bert_model.ckpt
    bert_config.json, bert_model.ckpt.index, bert_model.ckpt.data-00000-of-00001, vocab.txt
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bertprep.errors import BertprepError, UsageError
from bertprep.files.atomic import atomic_file, atomic_folder
from bertprep.files.paths import as_local_path, as_path, path_arg
from bertprep.instances.tokenizer_files import TOKENIZER, TOKENIZER_CONFIG
from bertprep.progress import print_message
from bertprep.sources.release import BERT_CONFIG, CONFIG
from bertprep.untrusted import read_bounded
from bertprep.weights import google_names
from bertprep.weights.hugging_face import save_weights
from bertprep.weights.tensor_bundle import write_bundle
from bertprep.work.layout import GOOGLE_PREFIX, VOCABULARY
from trainer import checkpoint
from trainer.checkpoint import is_checkpoint
from trainer.model_config import ModelConfig
from trainer.weights import HUGGING_FACE_FILE, find_weights

TRANSFORMERS, GOOGLE = TARGETS = ("transformers", "google")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `export`."""
    parser.add_argument(
        "--to", default=TRANSFORMERS, choices=TARGETS, help="for which tools: transformers or google (default: %(default)s)"
    )
    parser.add_argument("source", type=path_arg, metavar="CHECKPOINT", help="a checkpoint, or the folder of a run (required)")
    parser.add_argument("target", type=path_arg, metavar="DIR", help="new local folder for the model (required)")


def run(namespace: argparse.Namespace) -> int:
    """Export the model; return the exit status."""
    export_model(namespace.source, namespace.target, to=namespace.to)
    return 0


def export_model(source: Path, target: Path, to: str = TRANSFORMERS) -> None:
    """Write the model of a checkpoint, or of the newest one in a run's folder, to a new folder; `source` may be a URL."""
    source, target = as_path(source), as_local_path("DIR", target)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UsageError(f"{target}: exists already; name a folder that is empty or does not exist")
    file = find_weights(source)
    if not is_checkpoint(file):
        raise UsageError(f"{file}: is not a checkpoint of this trainer; name one, or the folder of a run")
    saved, state = checkpoint.read(file)
    config, task = checkpoint.model_of(file), checkpoint.task_of(file)
    shapes, is_cased = task.variable_shapes(config), saved.settings.get("cased")
    google_names.check_variables(file, {name: value.shape for name, value in state.items()}, shapes)
    weights = {name: state[name] for name in shapes}
    settings: dict[str, Any] = {BERT_CONFIG: asdict(config)}
    if to == TRANSFORMERS and (file.parent / TOKENIZER).exists():
        name, (vocabulary, tokenizer, padding) = TOKENIZER, _read_tokenizer(file.parent / TOKENIZER)
    else:
        if (file.parent / TOKENIZER).exists() and not (file.parent / VOCABULARY).exists():
            raise UsageError(
                f"{file.parent}: has a {TOKENIZER}, but Google's scripts read only a {VOCABULARY}; export --to transformers"
            )
        name, vocabulary = VOCABULARY, _read_vocabulary(file.parent / VOCABULARY, config)
        tokenizer, padding = {"tokenizer_class": "BertTokenizer"}, _padding(vocabulary)
    if to == TRANSFORMERS:
        tokenizer["model_max_length"] = config.max_position_embeddings
        settings = {
            CONFIG: {
                **json.loads(config.to_json()),
                "architectures": [task.hugging_face_class],
                **task.hugging_face_settings(),
                **padding,
            },
            TOKENIZER_CONFIG: tokenizer if is_cased is None else {**tokenizer, "do_lower_case": not is_cased},
        }
    texts = {name: (json.dumps(each, indent=2, sort_keys=True) + "\n").encode() for name, each in settings.items()}
    with atomic_folder(target) as unfinished:
        if to == GOOGLE:
            write_bundle(unfinished / GOOGLE_PREFIX, weights)
        else:
            save_weights(unfinished / HUGGING_FACE_FILE, weights, task.head_names)
        for each, content in {**texts, name: vocabulary}.items():
            with atomic_file(unfinished / each) as made:
                made.write(content)
    parameters = sum(value.size for value in weights.values())
    reader = (
        f"--init_checkpoint={target / GOOGLE_PREFIX}" if to == GOOGLE else f"{task.hugging_face_class}.from_pretrained reads it"
    )
    print_message(f"{target}: {', '.join(sorted(path.name for path in target.iterdir()))}")
    print_message(f"  from {file}: step {saved.step:,}, {parameters:,} parameters; {reader}")
    if to == GOOGLE and is_cased is not None:
        print_message(f"  give --do_lower_case={not is_cased} to scripts that tokenize text")


def _read_tokenizer(path: Path) -> tuple[bytes, dict[str, Any], dict[str, int]]:
    """Return a tokenizer.json that adds special tokens like the rows, its settings for transformers, and its padding id."""
    from bertprep.instances.document_tokenizer import DocumentTokenizer

    tokenizer = DocumentTokenizer(path, path.parent.name)
    padding = {} if tokenizer.info.pad is None else {"pad_token_id": tokenizer.info.pad}
    if tokenizer.content != path.read_bytes():
        added = " and ".join(token for name, token in tokenizer.special_tokens.items() if name in ("cls", "sep"))
        print_message(
            f"{path.name}: got a template that puts {added} around a text, as in the rows; {path} has no such template"
        )
    return tokenizer.content, tokenizer.settings, padding


def _read_vocabulary(path: Path, config: ModelConfig) -> bytes:
    try:
        content = read_bounded(path)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise BertprepError(f"{path}: cannot be read: {why}; put the vocabulary of the run next to its checkpoints") from error
    tokens = len(content.splitlines())
    if tokens > config.vocab_size:
        raise BertprepError(
            f"{path}: has {tokens:,} tokens, but the model has {config.vocab_size:,}; put the vocabulary of its records there"
        )
    return content


def _padding(vocabulary: bytes) -> dict[str, int]:
    tokens = [token.strip() for token in vocabulary.split(b"\n")]
    return {"pad_token_id": tokens.index(b"[PAD]")} if b"[PAD]" in tokens[1:] else {}

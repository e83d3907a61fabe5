"""`python -m trainer export`: writes a model to a folder for other tools: sizes, weights, the vocabulary of its records.

    --to transformers       what `from_pretrained` of `BertForPreTraining`, or of the class for the run's task, looks for
        config.json, model.safetensors, vocab.txt
        tokenizer_config.json   whether text is lower-cased
    --to google             what Google's scripts, and NVIDIA's, take as --init_checkpoint DIR/bert_model.ckpt, and beside it
        bert_config.json, bert_model.ckpt.index, bert_model.ckpt.data-00000-of-00001, vocab.txt

The folder is made under a temporary name and appears whole; a folder that is not empty is never written to.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bertprep.errors import BertprepError, UsageError
from bertprep.files.atomic import atomic_file, atomic_folder, explain_write_error
from bertprep.files.places import local_place, place
from bertprep.options import path_or_url
from bertprep.progress import say
from bertprep.weights.hugging_face import save_weights
from bertprep.weights.tensor_bundle import find_prefix, write_bundle
from bertprep.workspace.layout import GOOGLE_PREFIX, VOCABULARY
from trainer import checkpoint
from trainer.model_config import ModelConfig
from trainer.tasks import Task
from trainer.tasks.classification import Classification
from trainer.tasks.pretraining import MASKED_LM, PRETRAINING
from trainer.tasks.registry import task_of_checkpoint
from trainer.tasks.squad import Squad
from trainer.weights import HUGGING_FACE_FILE, find_weights, take_weights

_CLASSES = {
    PRETRAINING.name: "BertForPreTraining",
    Squad.name: "BertForQuestionAnswering",
    Classification.name: "BertForSequenceClassification",
}
TRANSFORMERS, GOOGLE = TARGETS = ("transformers", "google")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What is exported, and where it goes."""
    parser.add_argument(
        "--to", default=TRANSFORMERS, choices=TARGETS, help="what is to load it: transformers or google (default: %(default)s)"
    )
    parser.add_argument("source", type=path_or_url, metavar="CHECKPOINT", help="a checkpoint, or the folder of a run (needed)")
    parser.add_argument("target", type=path_or_url, metavar="DIR", help="the folder to be made, of this machine (needed)")


def run(namespace: argparse.Namespace) -> int:
    """Export; returns the exit status."""
    export_model(namespace.source, namespace.target, to=namespace.to)
    return 0


def export_model(source: Path, target: Path, to: str = TRANSFORMERS) -> None:
    """Write the model of a checkpoint, or of a run's newest, as a new folder `target` on disk; `source` may be a URL."""
    source, target = place(source), local_place("DIR", target)
    _check_free(target)
    file = find_weights(source)
    if find_prefix(file) or not checkpoint.is_checkpoint(file):
        raise UsageError(f"{file}: is not a checkpoint of this trainer; name one, or the folder of a run")
    saved, state = checkpoint.read(file)
    config = ModelConfig.from_settings(saved.made_with.get("model", {}))
    task = task_of_checkpoint(saved.made_with)
    weights = take_weights(file, state, config, task)
    vocabulary = _read_vocabulary(file.parent / VOCABULARY, config)
    is_cased = saved.made_with.get("cased")
    if to == GOOGLE:
        texts = {"bert_config.json": _to_text(asdict(config))}
    else:
        texts = {
            "config.json": _to_text({**json.loads(config.to_json()), **_class_settings(task), **_padding(vocabulary)}),
            "tokenizer_config.json": _to_text(_tokenizer_settings(config, is_cased)),
        }
    with atomic_folder(target) as unfinished:
        if to == GOOGLE:
            write_bundle(unfinished / GOOGLE_PREFIX, weights)
        else:
            save_weights(unfinished / HUGGING_FACE_FILE, weights)
        for name, content in {**texts, VOCABULARY: vocabulary}.items():
            with atomic_file(unfinished / name) as made:
                made.write(content)
    parameters = sum(value.size for value in weights.values())
    reader = f"--init_checkpoint={target / GOOGLE_PREFIX}" if to == GOOGLE else f"{_class_of(task)}.from_pretrained reads it"
    say(f"{target}: {', '.join(sorted(path.name for path in target.iterdir()))}")
    say(f"  of {file}: step {saved.step:,}, {parameters:,} parameters; {reader}")
    if advice := _case_advice(to, is_cased):
        say(f"  {advice}")


def _class_of(task: Task) -> str:
    return "BertForMaskedLM" if task == MASKED_LM else _CLASSES[task.name]


def _class_settings(task: Task) -> dict[str, Any]:
    """What a `config.json` says of the class, and of what its outputs mean."""
    settings: dict[str, Any] = {"architectures": [_class_of(task)]}
    if not isinstance(task, Classification):
        return settings
    if task.of.is_regression:
        names: tuple[str, ...] = ("score",)
        settings["problem_type"] = "regression"
    else:
        names = task.of.labels
        settings["problem_type"] = "single_label_classification"
    numbers = {name: number for number, name in enumerate(names)}
    return {**settings, "label2id": numbers, "id2label": {str(number): name for name, number in numbers.items()}}


def _case_advice(to: str, is_cased: bool | None) -> str:
    """What to tell a reader that the files do not."""
    if is_cased is not None:
        return f"with --do_lower_case={not is_cased}, where a script tokenizes text" if to == GOOGLE else ""
    readers, otherwise = ("scripts", "--do_lower_case=False is given")
    if to == TRANSFORMERS:
        readers, otherwise = ("transformers", "tokenizer_config.json says otherwise")
    return f"whether its vocabulary is cased is not known; {readers} will lower-case text, unless {otherwise}"


def _check_free(target: Path) -> None:
    try:
        is_taken = target.exists() and (not target.is_dir() or any(target.iterdir()))
    except OSError as error:
        raise explain_write_error(target, error) from error
    if is_taken:
        raise UsageError(f"{target}: exists already; name a folder that is empty or does not exist")


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


def _padding(vocabulary: bytes) -> dict[str, Any]:
    """What a `config.json` says of [PAD] where it is not token 0, which transformers takes it to be."""
    tokens = [token.strip() for token in vocabulary.split(b"\n")]
    pad = tokens.index(b"[PAD]") if b"[PAD]" in tokens else 0
    return {"pad_token_id": pad} if pad else {}


def _to_text(settings: dict[str, Any]) -> bytes:
    return (json.dumps(settings, indent=2, sort_keys=True) + "\n").encode()

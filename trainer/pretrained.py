"""The weights that fine-tuning starts from: found by path or by the ID of a download, with the sizes of their model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from bertprep.errors import UsageError
from bertprep.files.places import is_object, place
from bertprep.instances import load_vocabulary
from bertprep.sources.tasks.weights import BERT_CONFIG, CONFIG
from bertprep.weights.tensor_bundle import find_prefix
from bertprep.workspace.layout import GOOGLE_PREFIX, VOCABULARY, Workspace
from trainer import checkpoint
from trainer.data import Data, load_model
from trainer.model_config import ModelConfig
from trainer.weights import HUGGING_FACE_FILE, find_model, find_weights


@dataclass(frozen=True)
class Pretrained:
    """A file of weights, or none, and the model that they are of; `name` is what the user called it."""

    file: Path | None
    model: ModelConfig
    name: str

    @property
    def short_name(self) -> str:
        """For the name of a folder: that of the model's folder, where its files are called as all models' are.

        bert-base-uncased for google-bert/bert-base-uncased or a model.safetensors in such a folder, uncased_L-12_H-768_A-12 for
        a bert_model.ckpt, and run_checkpoint-000001000 for a checkpoint, of which a run has several.
        """
        path = place(self.name)
        prefix = find_prefix(path)
        path = (prefix or path).resolve()
        if prefix is None and not path.is_file():
            return path.name
        if path.name in (BERT_CONFIG, CONFIG, HUGGING_FACE_FILE, GOOGLE_PREFIX):
            return path.parent.name
        is_numbered = prefix is not None or path.name.startswith("checkpoint-")
        return f"{path.parent.name}_{path.name.removesuffix('.safetensors')}" if is_numbered else path.stem


def find_pretrained(init: str | None, workdir: Path, model: str | None, data: Data) -> Pretrained:
    """What `--init` and `--model` name; a preset takes the size of its vocabulary from the data.

    Raises `UsageError` where it is not there, or of another vocabulary than the data.
    """
    if init is None:
        if model is None:
            raise UsageError(
                "--init: give the weights to start from, such as --init google-bert/bert-base-uncased after bertprep download "
                "weights; or --model, to train from random weights"
            )
        return Pretrained(None, _load(model, data), model)
    file = resolve_weights(init, workdir)
    check_vocabulary(file, data)
    config = _load(model, data) if model is not None else _with_dropout(file, find_model(file))
    return Pretrained(file, config, init)


def _load(model: str, data: Data) -> ModelConfig:
    return load_model(model, [data], advice="name a bert_config.json with --model")


def _with_dropout(file: Path, model: ModelConfig) -> ModelConfig:
    """The model with BERT's dropout where a checkpoint has none: `--no-dropout` was a choice of its run alone."""
    if model != model.without_dropout() or find_prefix(file) or not checkpoint.is_checkpoint(file):
        return model
    default = ModelConfig()
    return replace(
        model,
        hidden_dropout_prob=default.hidden_dropout_prob,
        attention_probs_dropout_prob=default.attention_probs_dropout_prob,
    )


def resolve_weights(init: str, workdir: Path) -> Path:
    """The file that a path, or the ID of a download, stands for; raises `UsageError`."""
    workspace = Workspace(workdir)
    named = place(init)
    downloads = () if is_object(named) else (workspace.download("weights") / init, workspace.google_release(init))
    is_path = is_object(named) or named.exists() or find_prefix(named) is not None
    path = named if is_path else next((each for each in downloads if each.is_dir()), named)
    try:
        return find_weights(path)
    except UsageError as error:
        searched = workspace.download("weights")
        advice = "" if is_path else f"; nor is it in {searched}, where bertprep download weights --model ID puts models"
        raise UsageError(f"--init {error}{advice}") from error


def check_vocabulary(file: Path, data: Data) -> None:
    """Raise where the vocabulary beside the weights is another than that of the records."""
    path = file.parent / VOCABULARY
    if not path.is_file() or data.vocabulary_sha256 is None:
        return
    found = load_vocabulary(path).sha256
    if found != data.vocabulary_sha256:
        raise UsageError(
            f"{path}: has sha256 {found[:16]}..., the records in {data.folders[0]} were made with a vocabulary of "
            f"{data.vocabulary_sha256[:16]}...; make records with the model's: bertprep create --vocab {path}"
        )

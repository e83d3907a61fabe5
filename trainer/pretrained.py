"""The weights that fine-tuning starts from: found by path or by the ID of a download, with the sizes of their model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bertprep.errors import UsageError
from bertprep.instances import load_vocabulary
from bertprep.sources.tasks.weights import BERT_CONFIG, CONFIG
from bertprep.weights.tensor_bundle import find_prefix
from bertprep.workspace.layout import VOCABULARY, Workspace
from trainer.data import Data
from trainer.model_config import PRESETS, ModelConfig
from trainer.weights import HUGGING_FACE_FILE, find_model, find_weights


@dataclass(frozen=True)
class Pretrained:
    """A file of weights, or none, and the model that they are of; `name` is what the user called it."""

    file: Path | None
    model: ModelConfig
    name: str

    @property
    def short_name(self) -> str:
        """For the name of a folder: of google-bert/bert-base-uncased, or of a file in such a folder, bert-base-uncased."""
        path = Path(self.name).resolve()
        if not path.is_file():
            return path.name
        return path.parent.name if path.name in (BERT_CONFIG, CONFIG, HUGGING_FACE_FILE) else path.stem


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
        return Pretrained(None, _load_model(model, data), model)
    file = resolve_weights(init, workdir)
    _check_vocabulary(file, data)
    config = _load_model(model, data) if model is not None else find_model(file)
    return Pretrained(file, config, init)


def resolve_weights(init: str, workdir: Path) -> Path:
    """The file that a path, or the ID of a download, stands for; raises `UsageError`."""
    workspace = Workspace(workdir)
    downloads = [workspace.download("weights") / init, workspace.google_release(init)]
    is_path = Path(init).exists() or find_prefix(Path(init)) is not None
    path = Path(init) if is_path else next((each for each in downloads if each.is_dir()), Path(init))
    try:
        return find_weights(path)
    except UsageError as error:
        searched = workspace.download("weights")
        advice = "" if is_path else f"; nor is it in {searched}, where bertprep download weights --model ID puts models"
        raise UsageError(f"--init {error}{advice}") from error


def _load_model(name: str, data: Data) -> ModelConfig:
    if name in PRESETS and data.vocabulary_size is None:
        raise UsageError(
            f"{data.folders[0]}: has no {VOCABULARY}, so the size of the vocabulary is not known; name a --model FILE"
        )
    return ModelConfig.load(name, vocab_size=data.vocabulary_size or 1)


def _check_vocabulary(file: Path, data: Data) -> None:
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

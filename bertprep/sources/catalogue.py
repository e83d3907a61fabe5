"""The Hub repository and revision of each download; no other file names a repository.

Every file is Parquet, safetensors or a small text file, so no downloaded code runs. docs/reference/sources.md lists contents,
licences and known faults.
"""

from dataclasses import dataclass

NAMES = ("wikipedia", "bookcorpus", "squad", "glue", "weights", "vocab")
"""The names that `bertprep download` accepts, apart from "all" and "dataset"."""

WIKIPEDIA_DATE = "20231101"
DEFAULT_MODEL = "google-bert/bert-base-uncased"
MODELS = (DEFAULT_MODEL, "google-bert/bert-large-uncased")

# Model on the Hub -> Google's release of it; the name gives casing, layers, hidden size and attention heads
GOOGLE_RELEASES = {
    "google-bert/bert-base-uncased": "uncased_L-12_H-768_A-12",
    "google-bert/bert-large-uncased": "uncased_L-24_H-1024_A-16",
    "google-bert/bert-large-uncased-whole-word-masking": "wwm_uncased_L-24_H-1024_A-16",
    "google-bert/bert-base-cased": "cased_L-12_H-768_A-12",
    "google-bert/bert-large-cased": "cased_L-24_H-1024_A-16",
    "google-bert/bert-large-cased-whole-word-masking": "wwm_cased_L-24_H-1024_A-16",
    "google-bert/bert-base-multilingual-cased": "multi_cased_L-12_H-768_A-12",
    "google-bert/bert-base-multilingual-uncased": "multilingual_L-12_H-768_A-12",
    "google-bert/bert-base-chinese": "chinese_L-12_H-768_A-12",
}

# Google's release -> folders in which NVIDIA's scripts look for the configuration and vocabulary of a model of that size
NVIDIA_MODELS = {
    "uncased_L-12_H-768_A-12": ("bert_tf_squad11_base_128",),
    "uncased_L-24_H-1024_A-16": ("bert_tf_pretraining_large_lamb",),
}


def releases_with_vocabulary_of(model: str) -> list[str]:
    """Return Google's releases that have the vocabulary of `model`: all sizes with the same casing.

    >>> releases_with_vocabulary_of(DEFAULT_MODEL)
    ['uncased_L-12_H-768_A-12', 'uncased_L-24_H-1024_A-16']
    """
    own = GOOGLE_RELEASES.get(model)
    return [name for name in GOOGLE_RELEASES.values() if own and name.split("_L-")[0] == own.split("_L-")[0]]


def is_repository(name: str) -> bool:
    """Return whether `name` is OWNER/NAME by huggingface_hub's rules.

    >>> [is_repository(name) for name in ("wikimedia/wikipedia", "you/a.b_c-d", "squad", "you/-a", "you/a--b", "../a")]
    [True, True, False, False, False, False]
    """
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

    try:
        validate_repo_id(name)
    except HFValidationError:
        return False
    return name.count("/") == 1


@dataclass(frozen=True)
class HubFiles:
    """The files of a repository that match one of `patterns`. With `keep_folders` they keep their paths below the download."""

    repo: str
    patterns: tuple[str, ...] = ("*",)
    kind: str = "dataset"  # or "model"
    revision: str = "main"
    keep_folders: bool = False


WIKIPEDIA = "wikimedia/wikipedia"
"""The data set on the Hub with the plain text of Wikipedias, which Wikimedia extracted."""


def wikipedia(language: str, date: str) -> HubFiles:
    return HubFiles(WIKIPEDIA, (f"{date}.{language}/*.parquet",))


# The main branch has only a loading script, whose host is gone; the Hub's own conversion to Parquet remains.
BOOKCORPUS = HubFiles("bookcorpus/bookcorpus", ("plain_text/train/*.parquet",), revision="refs/convert/parquet")

SQUAD = {"v1.1": HubFiles("rajpurkar/squad", ("*.parquet",)), "v2.0": HubFiles("rajpurkar/squad_v2", ("*.parquet",))}


def glue(task: str) -> HubFiles:
    """Return the files of one GLUE task, which are named TASK/SPLIT-00000-of-00001.parquet."""
    return HubFiles("nyu-mll/glue", (f"{task}/*.parquet",))


def weights(model: str) -> HubFiles:
    """Return the weights, configuration and vocabulary of a model, without the weights in other frameworks' formats."""
    return HubFiles(
        model, ("*.safetensors", "*.safetensors.index.json", "config.json", "vocab.txt", "tokenizer*.json"), "model"
    )


def vocab(model: str) -> HubFiles:
    return HubFiles(model, ("vocab.txt",), "model")


# (repository, path) -> sha256, which must be right whatever the Hub reports
KNOWN_SHA256 = {(DEFAULT_MODEL, "vocab.txt"): "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"}

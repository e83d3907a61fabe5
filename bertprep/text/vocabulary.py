"""Finds or trains a vocabulary: a file, a vocabulary of the workspace or of a downloaded model, or one trained on a text.

The name of a trained vocabulary contains the digest of its text, its size and its case. So it is trained only once, and a
different text never uses it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path

from bertprep.config import VocabularySettings
from bertprep.errors import UsageError
from bertprep.files.lock import locked
from bertprep.files.paths import as_path
from bertprep.progress import SILENT, Reporter
from bertprep.sources.catalogue import DEFAULT_MODEL
from bertprep.terminal import listed
from bertprep.work.layout import VOCABULARY, Workspace
from bertprep.work.ledger import Entry


def find_vocabulary(
    workspace: Workspace, given: Path | str | None, default: str = DEFAULT_MODEL, *, cased: bool = False
) -> Path:
    """Return the file `given`, or the vocabulary of that name in the workspace or of a downloaded model.

    With `cased`, the name `books_8000` means `books_8000_cased` if that exists. Without `given`, return the vocabulary of the
    model `default`. Raises `UsageError` if no or several vocabularies match.
    """
    vocab = default if given is None else given
    if (path := as_path(vocab)).exists():
        return path
    if not re.fullmatch(r"(\w[\w.-]*/)?\w[\w.-]*(?<!\.txt)", str(vocab)):
        raise UsageError(f"--vocab {vocab}: does not exist; name a vocab.txt, one token per line")
    of_case = workspace.vocabularies(f"{vocab}_cased")
    trained = of_case if cased and of_case else workspace.vocabularies(str(vocab))
    if len(trained) == 1:
        return trained[0]
    if trained:
        raise UsageError(f"--vocab {vocab}: names {len(trained)} vocabularies; choose one of {listed(list(map(str, trained)))}")
    for kind, model in product(("vocab", "weights"), (str(vocab), f"google-bert/{vocab}")):
        path = workspace.download(kind) / model / VOCABULARY
        if path.is_file():
            return path
    if of_case:
        raise UsageError(
            f"--vocab {vocab}: is in {workspace.root} only as {listed([path.stem for path in of_case])}; add --cased"
        )
    model = "" if str(vocab) in (DEFAULT_MODEL, DEFAULT_MODEL.partition("/")[2]) else f" --model {vocab}"
    command = f"bertprep download vocab{model}"
    if given is None:
        raise UsageError(
            f"the default vocabulary, of {default}, is not downloaded; fetch it with {command}, or name another with "
            "--vocab FILE"
        )
    names = [path.stem for path in workspace.vocabularies()]
    choice = f" (it has {listed(names)})" if names else ""
    raise UsageError(
        f"--vocab {vocab}: is neither a file nor a vocabulary in {workspace.root}{choice}; if it is the name of a model, "
        f"fetch its vocabulary with {command}"
    )


def digest_of_texts(texts: Mapping[Path, Entry | None], *, reads: bool = True) -> str:
    """Return the digest of texts that is part of their vocabularies' names.

    `texts` has the manifest entry of each text shard. Raises `BertprepError` if a file is not the text that its entry lists.
    If `reads` is False, a text is read only if it has no entry.
    """
    from bertprep.work.text_identity import check_text, identify_text

    checksums = []
    for path, entry in texts.items():
        if entry and not reads:
            checksums.append(entry["crc32c"])
            continue
        size_bytes, crc32c = identify_text(path)
        check_text(path, entry, {"bytes": size_bytes, "crc32c": crc32c})
        checksums.append(crc32c)
    return hashlib.sha256("".join(checksums).encode()).hexdigest()


def describe_unused(workspace: Workspace, corpus: str, text: str, *, cased: bool) -> str:
    """Return why a similar vocabulary of the workspace is not used, or "" if there is none.

    A vocabulary is similar if it is of the same corpus, or the only one of the workspace.
    """
    trained = workspace.trained_vocabularies()
    close = [each for each in trained if each.corpus == corpus] or (trained if len(trained) == 1 else [])
    if not close:
        return ""
    closest = max(close, key=lambda each: (each.is_of(corpus, text), each.is_cased == cased))
    reasons = []
    if closest.is_cased != cased:
        reasons.append("it is uncased, and upper case is kept" if cased else "it is cased, and --cased is not given")
    if not closest.is_of(corpus, text):
        reasons.append("it was trained on another text")
    return f"{closest.path} is not used: {', and '.join(reasons)}"


def train_once(
    texts: Sequence[Path], path: Path, settings: VocabularySettings, workers: int, reporter: Reporter, message: str
) -> list[str]:
    """Train a vocabulary of the workspace as `train` does, after `message`, unless it exists.

    If another run is training it, wait for that run. Stores have no locks, so there both train it, with the same result.
    """
    with locked(path.parent, f".{path.name}.lock", wait=True):
        if path.exists():
            return []
        reporter.message(message)
        return train(texts, path, settings, workers, reporter)


def train(
    texts: Sequence[Path], path: Path, settings: VocabularySettings, workers: int = 1, reporter: Reporter = SILENT
) -> list[str]:
    """Write a vocabulary trained on texts, and return warnings if much text becomes [UNK]."""
    from bertprep.text.train_vocabulary import train_vocabulary

    return train_vocabulary(texts, path, settings, workers=workers, reporter=reporter)


def why_fewer_tokens(path: Path, settings: VocabularySettings) -> str:
    """Return why a vocabulary that was trained with these settings has fewer tokens than their size; "" if it has not."""
    from bertprep.instances import load_vocabulary

    tokens = len(load_vocabulary(path))
    if tokens >= settings.size - 1:  # a character with its ## form may not fit into the last place
        return ""
    often = "twice" if settings.min_frequency == 2 else f"{settings.min_frequency:,} times (--min-frequency)"
    covered = "" if settings.coverage == 1 else f" in words within --coverage {settings.coverage:g}"
    return f"{path}: has {tokens:,} tokens, not {settings.size:,}: no other pair of pieces occurs {often}{covered}"

"""The text shards, the vocabulary and the folders that `create` would take, found by the same functions.

What is missing and `create` would make, the shards of a corpus that it knows and a vocabulary, is made now and kept: `create`
finds it there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bertprep.commands.create import (
    DEFAULT_VOCABULARY_SIZE,
    choose_corpus,
    ensure_shards,
    find_vocabulary,
    given_shards,
    homes_in_workspace,
    list_shards,
    train_vocabulary_of,
)
from bertprep.config import Dialect, InstanceSettings, RecordFormat
from bertprep.errors import BertprepError, UsageError
from bertprep.progress import Reporter
from bertprep.records.make import TextShard
from bertprep.sources.corpora import GIVEN, name_corpus
from bertprep.workspace.layout import Workspace
from bertprep.workspace.record_home import home_for

__all__ = ["DEFAULT_VOCABULARY_SIZE", "PlannedText", "find_text"]


@dataclass(frozen=True)
class PlannedText:
    """Text shards with their sizes in bytes, the vocabulary's file, each format's folder, and the one that holds them."""

    shards: list[TextShard]
    sizes: list[int]
    vocabulary: Path
    folders: dict[RecordFormat, Path]
    root: Path


def find_text(
    settings: InstanceSettings,
    dialect: Dialect,
    formats: tuple[RecordFormat, ...],
    *,
    vocab: Path | str | None,
    vocab_size: int,
    inputs: Sequence[Path | str],
    output: Path | str | None,
    workdir: Path,
    corpus: str | None,
    workers: int,
    reporter: Reporter,
) -> PlannedText:
    """What `create` with these arguments would work on; raises as `create` does where it could not."""
    if output is not None and not inputs:
        raise UsageError("--output goes with --input; the records of a corpus go to the workspace (--workdir)")
    workspace = Workspace(workdir)
    if inputs:
        corpus = name_corpus(GIVEN if corpus is None else corpus, workspace)
        root = Path(output or ".")
        homes = {name: home_for(root, name) for name in formats}
        shards = given_shards(inputs, corpus, homes, dialect)
    else:
        root = workspace.root
        corpus = choose_corpus(workspace, corpus, reporter)
        sharded = ensure_shards(workspace, corpus, workers, reporter)
        homes = homes_in_workspace(workspace, corpus, settings, dialect, sharded, formats)
        shards = list_shards(workspace, corpus, sharded, homes, dialect)
    vocabulary = (
        find_vocabulary(workspace, vocab)
        if vocab is not None
        else train_vocabulary_of(
            inputs, size=vocab_size, cased=settings.cased, workdir=workdir, corpus=corpus, progress=reporter.enabled
        )
    )
    folders = {name: home.records for name, home in homes.items()}
    return PlannedText(shards, [_size_of(shard.path) for shard in shards], vocabulary, folders, root)


def _size_of(path: Path) -> int:
    try:
        size_bytes = path.stat().st_size
    except OSError as error:
        raise BertprepError(f"{path}: cannot be read: {error.strerror}; expected a text shard") from error
    if not size_bytes:
        raise BertprepError(f"{path}: is empty; expected one sentence a line and a blank line after each document")
    return size_bytes

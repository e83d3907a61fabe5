"""The examples of a fine-tuning task as record files: which examples are in which file, and the maker of them.

A split is cut into files of `EXAMPLES_PER_FILE` in the order in which Google's scripts write the one that they make. For SQuAD
that is a number of windows, all of which are known beforehand; for labelled texts a number of lines, which a worker reads by
itself. So the files are the same for any number of workers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from bertprep import kernels
from bertprep.config import DEFAULT_DIALECT, Dialect, GlueSettings, RecordFormat, SquadSettings
from bertprep.errors import BertprepError
from bertprep.instances import Tokenizer, Vocabulary
from bertprep.records.convert import write_examples
from bertprep.records.examples import (
    ClassificationExamples,
    Examples,
    RegressionExamples,
    Shape,
    SquadEvalExamples,
    SquadExamples,
)
from bertprep.records.make import ShardResult, TextShard
from bertprep.tasks import EXAMPLES_PER_FILE
from bertprep.tasks.glue import GlueTask
from bertprep.tasks.glue_features import make_examples
from bertprep.tasks.glue_files import TextFile, count_rows, read_rows
from bertprep.tasks.squad import read_squad
from bertprep.tasks.squad_features import BLOCK_ROWS, SquadFeatures, make_features
from bertprep.workspace.layout import TRAINING


class Source(Protocol):
    """The examples of a task, in numbered blocks for each split; `counts` is what the manifest says of all of them."""

    @property
    def vocabulary(self) -> Vocabulary: ...

    @property
    def counts(self) -> dict[str, int]: ...

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the classes, in the order of their numbers, where there are some."""

    @property
    def blocks(self) -> dict[str, int]:
        """How many blocks each split has."""

    def shape(self, split: str) -> Shape:
        """What all examples of a split have in common."""

    def prepare(self) -> None:
        """Load all that workers share."""

    def examples(self, split: str, block: int) -> Iterable[Examples]:
        """The examples of a block, some at a time."""


@dataclass(frozen=True)
class GlueSource:
    """Files of labelled texts, by split."""

    files: Mapping[str, TextFile]
    task: GlueTask
    vocabulary: Vocabulary
    settings: GlueSettings

    @cached_property
    def counts(self) -> dict[str, int]:
        return {f"{split}_examples": count_rows(file, self.task) for split, file in self.files.items()}

    @property
    def labels(self) -> tuple[str, ...]:
        return self.task.labels

    @property
    def blocks(self) -> dict[str, int]:
        return {split: len(file.starts) for split, file in self.files.items()}

    def shape(self, split: str) -> Shape:  # noqa: ARG002 - all splits have the same
        return Shape(RegressionExamples if self.task.is_regression else ClassificationExamples, self.settings.seq, 0)

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        return Tokenizer(self.vocabulary, lower=not self.settings.cased)

    def __getstate__(self) -> dict[str, Any]:
        """Only what the tables are made of: a process builds its own."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def prepare(self) -> None:
        kernels.load()
        _ = self._tokenizer

    def examples(self, split: str, block: int) -> Iterable[Examples]:
        rows = read_rows(self.files[split], self.task, block)
        yield make_examples(rows, self._tokenizer, self.vocabulary, seq=self.settings.seq)


@dataclass(frozen=True)
class SquadSource:
    """The windows of SQuAD's questions, by split; all are known when it is built, which takes a second or two."""

    features: Mapping[str, SquadFeatures]
    vocabulary: Vocabulary
    labels: tuple[str, ...] = ()

    @property
    def counts(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for split, features in self.features.items():
            found[f"{split}_questions"] = len(features.data)
            if split == TRAINING:
                found[f"{split}_dropped"] = len(features.dropped)
                found[f"{split}_recovered"] = len(features.recovered)
        return found

    @property
    def blocks(self) -> dict[str, int]:
        return {split: -(-len(features) // EXAMPLES_PER_FILE) for split, features in self.features.items()}

    def shape(self, split: str) -> Shape:
        return Shape(SquadExamples if split == TRAINING else SquadEvalExamples, self.features[split].settings.seq, 0)

    def prepare(self) -> None:
        kernels.load()

    def examples(self, split: str, block: int) -> Iterable[Examples]:
        features = self.features[split]
        end = min(len(features), (block + 1) * EXAMPLES_PER_FILE)
        for start in range(block * EXAMPLES_PER_FILE, end, BLOCK_ROWS):
            yield features[start : min(start + BLOCK_ROWS, end)]


def make_squad_source(files: Mapping[str, Path], version: str, vocabulary: Vocabulary, settings: SquadSettings) -> SquadSource:
    """Read SQuAD's files, by split, and make their features."""
    features = {}
    for split, path in files.items():
        data = read_squad(path, version, training=split == TRAINING)
        features[split] = make_features(data, vocabulary, settings, training=split == TRAINING)
    return SquadSource(features, vocabulary)


@dataclass(frozen=True)
class TaskShard(TextShard):
    """A block of a split, and the names of its record files; `path` is the file that the split is made of."""

    split: str


@dataclass(frozen=True)
class TaskRecordMaker:
    """Makes the record files of one block after another."""

    source: Source
    dialect: Dialect = field(default=DEFAULT_DIALECT)

    @property
    def vocabulary(self) -> Vocabulary:
        return self.source.vocabulary

    @property
    def labels(self) -> tuple[str, ...]:
        return self.source.labels

    def shape(self, split: str) -> Shape:
        """What all examples of a split have in common."""
        return self.source.shape(split)

    def prepare(self) -> None:
        """Load all that workers share, so that a forked worker has it at once."""
        self.source.prepare()

    def task(self, shard: TextShard, paths: dict[str, Path]) -> tuple[TextShard, dict[str, Path]]:
        """What a worker needs to know."""
        return shard, paths

    def make(self, task: tuple[TaskShard, dict[str, Path]]) -> ShardResult:
        """Make the missing record files of a block."""
        shard, paths = task
        blocks = list(self.source.examples(shard.split, shard.number))  # once for all formats
        records = sum(map(len, blocks))
        if not records:
            raise BertprepError(f"{shard.path}: gives no example; see that nothing else writes there, and try again")
        facts = {}
        for name, path in paths.items():
            written = write_examples(blocks, path, RecordFormat(name), self.dialect, self.labels)
            facts[name] = {"examples": written.records, "bytes": written.bytes, "sha256": written.sha256}
        return ShardResult(shard, facts, records)

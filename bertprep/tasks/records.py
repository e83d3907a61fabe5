"""The examples of a fine-tuning task as record files.

A split is cut into files in the order in which Google's scripts write the one that they make: every `EXAMPLES_PER_FILE` windows
of SQuAD's questions, or lines of a file of labelled texts, its header included. So the files are the same for any number of
workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path

from bertprep import kernels
from bertprep.config import DEFAULT_DIALECT, Dialect, GlueSettings, RecordFormat
from bertprep.instances import Tokenizer, Vocabulary
from bertprep.records.examples import (
    ClassificationExamples,
    Examples,
    RegressionExamples,
    Shape,
    SquadEvalExamples,
    SquadExamples,
)
from bertprep.records.write import entry_of, write_examples
from bertprep.tasks import EXAMPLES_PER_FILE
from bertprep.tasks.glue import GlueTask
from bertprep.tasks.glue_features import make_examples
from bertprep.tasks.glue_files import Labels, Row, TextFile, label_ids
from bertprep.tasks.squad_features import BLOCK_ROWS, SquadFeatures
from bertprep.work.layout import TRAINING
from bertprep.work.ledger import Entry
from bertprep.work.run import Maker


@dataclass(frozen=True)
class TaskSource:
    """The examples of a task by split: their shape, the bounds of the record files, and what makes those of a file.

    `counts` are for the manifest; `labels` are the names of the classes, in the order of their ids, where there are some.
    """

    vocabulary: Vocabulary
    counts: dict[str, int]
    shapes: dict[str, Shape]
    bounds: dict[str, list[int]]
    examples: Callable[[str, int, int], Iterable[Examples]]  # (split, start, stop)
    labels: tuple[str, ...] = ()

    @property
    def blocks(self) -> dict[str, int]:
        """How many record files each split has."""
        return {split: len(bounds) - 1 for split, bounds in self.bounds.items()}


def glue_source(files: Mapping[str, TextFile], task: GlueTask, vocabulary: Vocabulary, settings: GlueSettings) -> TaskSource:
    """Return the examples of files of labelled texts; raises `BertprepError` for a wrong label."""
    shape = Shape(RegressionExamples if task.is_regression else ClassificationExamples, settings.seq, 0)
    rows = {split: (file.rows, label_ids(file, task)) for split, file in files.items()}
    return TaskSource(
        vocabulary,
        counts={f"{split}_examples": len(file.rows) for split, file in files.items()},
        shapes=dict.fromkeys(files, shape),
        bounds={split: _bounds(len(file.rows), file.first_line - 1) for split, file in files.items()},
        examples=partial(_glue_examples, rows, vocabulary, settings),
        labels=task.labels,
    )


def _glue_examples(
    rows: Mapping[str, tuple[list[Row], Labels]],
    vocabulary: Vocabulary,
    settings: GlueSettings,
    split: str,
    start: int,
    stop: int,
) -> Iterable[Examples]:
    texts, labels = rows[split]
    tokenizer = _tokenizer(vocabulary, lower=not settings.cased)
    yield make_examples(texts[start:stop], labels[start:stop], tokenizer, vocabulary, seq=settings.seq)


_tokenizer = cache(Tokenizer)  # each process builds its own


def squad_source(features: Mapping[str, SquadFeatures], vocabulary: Vocabulary) -> TaskSource:
    """Return the windows of SQuAD's questions."""
    counts: dict[str, int] = {}
    for split, each in features.items():
        counts[f"{split}_questions"] = len(each.data)
        if split == TRAINING:
            counts |= {f"{split}_dropped": len(each.dropped), f"{split}_recovered": len(each.recovered)}
    return TaskSource(
        vocabulary,
        counts,
        shapes={
            split: Shape(SquadExamples if split == TRAINING else SquadEvalExamples, each.settings.seq, 0)
            for split, each in features.items()
        },
        bounds={split: _bounds(len(each)) for split, each in features.items()},
        examples=partial(_squad_examples, features),
    )


def _squad_examples(features: Mapping[str, SquadFeatures], split: str, start: int, stop: int) -> Iterable[Examples]:
    for first in range(start, stop, BLOCK_ROWS):
        yield features[split][first : min(first + BLOCK_ROWS, stop)]


def _bounds(examples: int, header_lines: int = 0) -> list[int]:
    """Return where the record files of a split begin, and where the last one ends.

    >>> _bounds(20_000, header_lines=1)
    [0, 8191, 16383, 20000]
    """
    inner = range(EXAMPLES_PER_FILE - header_lines, examples, EXAMPLES_PER_FILE)
    return [0, *inner, examples]


@dataclass(frozen=True)
class TaskRecordMaker(Maker):
    """Makes the record files of one block after another; the argument of a task is its split, and the number of the block."""

    source: TaskSource
    dialect: Dialect = field(default=DEFAULT_DIALECT)
    label = "task"

    def prepare(self) -> None:
        kernels.load()

    def amounts(self, entries: Sequence[Entry]) -> dict[str, float]:
        return {"records": entries[0]["examples"]}

    def make(self, argument: tuple[str, int], paths: Mapping[str, Path]) -> dict[str, Entry]:
        split, number = argument
        blocks = self.source.examples(split, *self.source.bounds[split][number : number + 2])
        files = {RecordFormat(name): path for name, path in paths.items()}
        written = write_examples(blocks, files, self.dialect, self.source.labels, tidies=False)
        return {name: entry_of(file) for name, file in written.items()}

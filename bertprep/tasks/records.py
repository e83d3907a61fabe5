"""Writes the examples of a fine-tuning task to record files.

Each file covers `EXAMPLES_PER_FILE` windows or lines, in the order of Google's scripts, whatever the number of workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path

from bertprep import kernels
from bertprep.config import DEFAULT_VARIANT, GlueSettings, RecordFormat, Variant
from bertprep.instances import Tokenizer, Vocabulary
from bertprep.instances.vocabulary import fit_warnings
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
from bertprep.tasks.segments import text_tokens
from bertprep.tasks.squad_features import BLOCK_ROWS, SquadFeatures
from bertprep.work.layout import TRAINING
from bertprep.work.ledger import Entry
from bertprep.work.run import Maker, Task

_FIRST_EXAMPLES = 256  # the number of examples in which [UNK] is counted


@dataclass(frozen=True)
class Split:
    """The examples of a split: their shape, the bounds of its record files, and a function that makes a range of examples."""

    shape: Shape
    bounds: list[int]
    make: Callable[[int, int], Examples]

    @property
    def files(self) -> int:
        return len(self.bounds) - 1


@dataclass(frozen=True)
class TaskSource:
    """The examples of a task. The manifest gets `counts`; `labels` are the names of the classes in the order of their ids."""

    splits: dict[str, Split]
    counts: dict[str, int]
    labels: tuple[str, ...] = ()


def glue_source(files: Mapping[str, TextFile], task: GlueTask, vocabulary: Vocabulary, settings: GlueSettings) -> TaskSource:
    """Return the examples of files of labelled texts; raise `BertprepError` for an unknown label or score."""
    shape = Shape(RegressionExamples if task.is_regression else ClassificationExamples, settings.seq, 0)
    splits, counts = {}, {}
    for split, file in files.items():
        make = partial(_make_examples, file.rows, label_ids(file, task), vocabulary, settings)
        splits[split] = Split(shape, bounds_of(len(file.rows), file.first_line - 1), make)
        counts[f"{split}_examples"] = len(file.rows)
        if file.unlabelled:
            counts[f"{split}_unlabelled"] = file.unlabelled
    return TaskSource(splits, counts, task.labels)


def _make_examples(
    rows: Sequence[Row], labels: Labels, vocabulary: Vocabulary, settings: GlueSettings, start: int, stop: int
) -> Examples:
    tokenizer = _tokenizer(vocabulary, lower=not settings.cased)
    return make_examples(rows[start:stop], labels[start:stop], tokenizer, vocabulary, seq=settings.seq)


_tokenizer = cache(Tokenizer)  # each process builds its own


def squad_source(features: Mapping[str, SquadFeatures]) -> TaskSource:
    """Return the examples of SQuAD's files: the windows of each question."""
    splits, counts = {}, {}
    for split, each in features.items():
        kind = SquadExamples if split == TRAINING else SquadEvalExamples
        splits[split] = Split(Shape(kind, each.settings.seq, 0), bounds_of(len(each)), partial(_windows, each))
        counts[f"{split}_questions"] = len(each.data)
        if split == TRAINING:
            counts |= {
                f"{split}_dropped": len(each.dropped),
                f"{split}_misplaced": len(each.misplaced) - len(each.dropped),
                f"{split}_without_tokens": len(each.without_tokens),
                f"{split}_recovered": len(each.recovered),
            }
    return TaskSource(splits, counts)


def _windows(features: SquadFeatures, start: int, stop: int) -> Examples:
    return features[start:stop]


def bounds_of(examples: int, header_lines: int = 0) -> list[int]:
    """Return the index of the first example of each record file of a split, and the number of examples.

    Lines of a header count too, so they leave fewer examples for the first file.

    >>> bounds_of(20_000, header_lines=1)
    [0, 8191, 16383, 20000]
    """
    inner = range(EXAMPLES_PER_FILE - header_lines, examples, EXAMPLES_PER_FILE)
    return [0, *inner, examples]


@dataclass(frozen=True)
class TaskRecordMaker(Maker):
    """Makes the record files of a task. The argument of a job's task is a split and the index of a record file in it.

    `files` are the input files of the splits.
    """

    source: TaskSource
    vocabulary: Vocabulary
    files: Mapping[str, Path]
    variant: Variant = field(default=DEFAULT_VARIANT)
    label = "task"

    def prepare(self) -> None:
        kernels.load()

    def warnings(self, todo: Sequence[Task]) -> Iterator[str]:
        name = todo[0].argument[0]
        split = self.source.splits[name]
        first = split.make(0, min(_FIRST_EXAMPLES, split.bounds[-1]))
        tokens = text_tokens(first, (self.vocabulary.cls, self.vocabulary.sep))
        advice = "remove the output, then choose the vocabulary of your model with --vocab"
        yield from fit_warnings(tokens, self.vocabulary, self.files[name], advice)

    def amounts(self, entries: Sequence[Entry]) -> dict[str, float]:
        return {"records": entries[0]["examples"]}

    def make(self, argument: tuple[str, int], paths: Mapping[str, Path]) -> dict[str, Entry]:
        name, block = argument
        split = self.source.splits[name]
        start, stop = split.bounds[block : block + 2]
        blocks = (split.make(first, min(first + BLOCK_ROWS, stop)) for first in range(start, stop, BLOCK_ROWS))
        files = {RecordFormat(name): path for name, path in paths.items()}
        written = write_examples(blocks, files, self.variant, self.source.labels, tidies=False)
        return {name: entry_of(file) for name, file in written.items()}

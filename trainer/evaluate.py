"""`python -m trainer evaluate`: any weights on any records, by all devices.

pretraining records    masked-LM and next-sentence loss and accuracy, of a split or of its first sequences
token shards           the same, of the examples that are made of them as they are read
SQuAD                  exact match and F1; OUT/predictions.json, nbest_predictions.json and, for 2.0, null_odds.json
labelled texts         the task's metrics on each labelled split; OUT/SPLIT/predictions.tsv, and GLUE's files for submission
"""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from bertprep.errors import BertprepError, UsageError
from bertprep.options import add_options, check_options, option, read_options
from bertprep.progress import say
from bertprep.records.data_sets import DataSet, find_records, find_training_tokens
from bertprep.records.examples import kind_made_with
from bertprep.records.live import DEFAULT_GROUP, LiveExamples
from bertprep.records.record_set import RecordSet
from bertprep.tasks.glue import UNLABELLED
from bertprep.tasks.glue_metrics import check_metrics_installed
from bertprep.terminal import tell
from bertprep.workspace.layout import TEST, TRAINING, VOCABULARY
from trainer.batches import EvaluationBatches, GlobalBatch
from trainer.data import check_fits_model, data_of, holds_tokens
from trainer.engines import Engine, check_engine, check_installed, choose_engine, open_engine
from trainer.evaluation import evaluate, predict
from trainer.model_config import ModelConfig
from trainer.pretrained import check_vocabulary, resolve_weights
from trainer.settings import (
    EngineSettings,
    LiveSettings,
    OptimizerSettings,
    add_example_options,
    check_folder,
    read_live_settings,
    refuse_example_options,
)
from trainer.start import describe_engine
from trainer.tasks import Scored, Scorer, Task, name_of_split
from trainer.tasks.classification import Classification
from trainer.tasks.pretraining import pretraining_on
from trainer.tasks.registry import check_task_of_weights, task_of_records
from trainer.tasks.squad import Squad
from trainer.weights import find_model, read_initial_weights

_NOT_ASKED = ("loss_scale",)


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions:
    """What is evaluated, and how."""

    init: str | None = option(
        None, "weights: a checkpoint, a model.safetensors or Google's bert_model.ckpt, a folder with one of them, or the ID of "
        "a download (needed)",
        metavar="PATH|ID",
    )  # fmt: skip
    data: Path | None = option(None, "folder of records or token shards (needed)", metavar="DIR", urls=True)
    vocab: Path | None = option(
        None, "token shards: vocabulary (default: the vocab.txt beside them, or beside the weights)", metavar="FILE", urls=True
    )
    workdir: Path = option(Path("data"), "workspace, for the ID of a download", metavar="DIR", urls=True)
    model: str | None = option(None, "bert_config.json (default: that of the weights)", metavar="FILE")
    split: str = option(TEST, "pretraining records, token shards: split", choices=(TRAINING, TEST))
    sequences: int = option(0, "pretraining records, token shards: how many, the first of the split (default: all)", least=0)
    batch_size: int = option(32, "sequences of a device at a time", least=1)
    null_threshold: float | None = option(
        None, "SQuAD 2.0: predict no answer where score(no answer) - score(best answer) exceeds this (default: the value "
        "of the highest F1)",
    )  # fmt: skip
    n_best_size: int = option(20, "SQuAD: answers to a question in nbest_predictions.json", least=1)
    max_answer_length: int = option(30, "SQuAD: tokens of the longest answer", least=1)
    out: Path | None = option(None, "where predictions go (default: a folder beside the weights)", metavar="DIR")

    def __post_init__(self) -> None:
        check_options(self)
        for name in ("init", "data"):
            if getattr(self, name) is None:
                raise UsageError(f"--{name}: is needed; {'name weights' if name == 'init' else 'name a folder of records'}")
        if self.out is not None:
            check_folder("--out", self.out)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of evaluate."""
    add_options(parser, EvaluateOptions)
    add_options(parser, EngineSettings, without=_NOT_ASKED)
    add_example_options(parser, without=("repeat_epochs",))


def run(namespace: argparse.Namespace) -> int:
    """Evaluate, print what is found; returns the exit status."""
    options = read_options(EvaluateOptions, namespace)
    settings = choose_engine(read_options(EngineSettings, namespace))
    path = options.data or Path()
    live: LiveSettings | None = None
    if holds_tokens(path):
        data_set = find_training_tokens(path)
        path = data_set.folder if data_set.is_whole else path
        file = resolve_weights(options.init or "", options.workdir)
        live = read_live_settings(namespace, data_set, _vocabulary_for(data_set, file, options))
        task = pretraining_on(kind_made_with(live.instances))
    else:
        data_set = find_records(path)
        own = [name for name in ("seq", "pred", "vocab") if getattr(namespace, name, None) is not None]
        refuse_example_options(namespace, data_set.folder, also=own)
        task = _task_of(data_set, options)
        file = resolve_weights(options.init or "", options.workdir)
    check_task_of_weights(file, task, data_set.folder)
    model = find_model(file) if options.model is None else ModelConfig.load(options.model)
    check_engine(settings, model, task)
    check_installed(settings)
    out = options.out or file.parent / f"predictions_{data_set.folder.name}_{file.stem}"
    check_folder("--out", out)
    with ExitStack() as opened:
        splits = _splits_of(data_set, task, options)
        parts = [_open(data_set if live is None else live, path, split, task, model, opened) for split in splits]
        data = data_of(data_set, data_set.folder, parts[0].records, live.vocabulary if live else None)
        check_vocabulary(file, data)
        check_fits_model(data, model, options.model or str(file))
        weights = read_initial_weights(file, model, task)
        if missing := [name for name in task.variable_shapes(model) if name not in weights]:
            raise UsageError(f"{file}: lacks {missing[0]}, the head of {task.name}; name a model that was fine-tuned for it")
        engine = open_engine(settings)
        engine.build(model, OptimizerSettings(), seed=0, task=task)
        engine.restore(weights)
        if engine.is_first:
            say(f"{file}: {task.name} on {engine.device_name}, engine {describe_engine(settings)}")
        evaluation = _Evaluation(engine, task, options, out)
        for part in parts:
            evaluation.of_part(part)
    return 0


def _task_of(data_set: DataSet, options: EvaluateOptions) -> Task:
    task = task_of_records(data_set)
    if task.is_scored and (options.sequences or options.split != TEST):
        raise UsageError(
            f"{data_set.folder}: is of a task, which is scored on all of its splits; leave --sequences and --split out"
        )
    if isinstance(task, Squad):
        return replace(
            task,
            threshold=options.null_threshold,
            nbest_size=options.n_best_size,
            max_answer_length=options.max_answer_length,
        )
    return task


def _vocabulary_for(tokens: DataSet, weights: Path, options: EvaluateOptions) -> Path | None:
    """The vocabulary of token shards that is named, or where none is beside them the one beside the weights."""
    beside = weights.parent / VOCABULARY
    return options.vocab or (beside if tokens.vocabulary is None and beside.is_file() else None)


def _splits_of(data_set: DataSet, task: Task, options: EvaluateOptions) -> list[str]:
    """The split that is asked for, or of a task all but that for training."""
    if not task.is_scored:
        return [options.split]
    splits = [split for split in data_set.splits if split != TRAINING]
    if not splits:
        raise UsageError(f"{data_set.folder}: has no split to evaluate on; make one of a dev file")
    if isinstance(task, Classification) and not set(splits) <= set(UNLABELLED):
        check_metrics_installed()
    return splits


class _Part(NamedTuple):
    """A split, its opened records and, of a task that is scored, their scorer."""

    split: str
    records: RecordSet | LiveExamples
    scorer: Scorer | None


def _open(source: DataSet | LiveSettings, path: Path, split: str, task: Task, model: ModelConfig, opened: ExitStack) -> _Part:
    """A split; all ranks open all of them, with labels or questions, before any predicts, so that they fail together."""
    if isinstance(source, LiveSettings):
        examples = source.open([path], split, seed=0, shuffle_shards=DEFAULT_GROUP)
        return _Part(split, opened.enter_context(examples), None)
    records = opened.enter_context(task.open_records([source.folder], split, model))
    return _Part(split, records, task.scorer(source.folder, records, split) if task.is_scored else None)


@dataclass(frozen=True)
class _Evaluation:
    """An engine with weights, and what is done with each split."""

    engine: Engine
    task: Task
    options: EvaluateOptions
    out: Path

    def of_part(self, part: _Part) -> None:
        """Evaluate, print and write; raises in all processes where one could not."""
        engine = self.engine
        batch = GlobalBatch(self.options.batch_size * engine.devices, engine.data_world_size, engine.data_rank)
        batches = EvaluationBatches(part.records, batch, most=self.options.sequences)
        if part.scorer is None:
            found = evaluate(engine, self.task, batches)
            _check(batches, found.sequences)
            self._tell(part.split, found.sequences, Scored(found.metrics))
            return
        sequences, outputs = predict(engine, batches)
        _check(batches, sequences)
        fault: Exception | None = None
        try:
            if engine.is_first:
                self._tell(name_of_split(part.split), sequences, part.scorer.score(outputs, self.out))
        except Exception as error:  # whatever it is, the other processes would wait for this one in the next split
            fault = error
        if any(engine.gather(int(fault is not None))):
            raise fault or BertprepError(f"{part.split}: the first process could not score it; its message says why")

    def _tell(self, split: str, sequences: int, scored: Scored) -> None:
        if self.engine.is_first:
            numbers = ", ".join(f"{name} {value:.6g}" for name, value in scored.metrics.items())
            tell(f"{split}, {sequences:,} sequences: {numbers or 'predictions alone, it has no labels'}")
            for path in scored.files:
                tell(f"  {path}")


def _check(batches: EvaluationBatches, sequences: int) -> None:
    """Raise where a record could not be read, here or on another rank."""
    if batches.fault or batches.bad:
        raise batches.fault or batches.bad[0]
    if sequences != batches.sequences:
        raise BertprepError("another process could not read all records; its message says which")

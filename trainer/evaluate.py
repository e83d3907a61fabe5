"""`python -m trainer evaluate`: any weights on any records, by all devices.

pretraining records    masked-LM and next-sentence loss and accuracy, of a split or of its first sequences
SQuAD                  exact match and F1; OUT/predictions.json, nbest_predictions.json and, for 2.0, null_odds.json
labelled texts         the task's metrics on each labelled split; OUT/SPLIT/predictions.tsv, and GLUE's files for submission
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from bertprep.errors import BertprepError, UsageError
from bertprep.options import add_options, check_options, option, read_options
from bertprep.progress import say
from bertprep.records.data_sets import DataSet, find_records
from bertprep.records.record_set import RecordSet
from bertprep.tasks.glue_metrics import write_submission
from bertprep.terminal import tell
from bertprep.workspace.layout import DEV, SUBMISSION, SUBMISSION_MISMATCHED, TEST, TRAINING
from trainer.batches import EvaluationBatches, GlobalBatch
from trainer.engines import Engine, check_engine, check_installed, open_engine
from trainer.evaluation import evaluate, predict
from trainer.model_config import ModelConfig
from trainer.pretrained import resolve_weights
from trainer.settings import EngineSettings, OptimizerSettings, check_folder
from trainer.tasks import Task
from trainer.tasks.classification import Classification
from trainer.tasks.registry import task_of_records
from trainer.tasks.squad import Squad
from trainer.weights import find_model, read_initial_weights

_NOT_ASKED = ("loss_scale",)
_UNLABELLED = (SUBMISSION, SUBMISSION_MISMATCHED)


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions:
    """What is evaluated, and how."""

    init: str | None = option(
        None, "weights: a checkpoint, a model.safetensors or Google's bert_model.ckpt, a folder with one of them, or the ID of "
        "a download (needed)",
        metavar="PATH|ID",
    )  # fmt: skip
    data: Path | None = option(None, "folder of records (needed)", metavar="DIR")
    workdir: Path = option(Path("data"), "workspace, for the ID of a download", metavar="DIR")
    model: str | None = option(None, "bert_config.json (default: that of the weights)", metavar="FILE")
    split: str = option(TEST, "pretraining records: split", choices=(TRAINING, TEST))
    sequences: int = option(0, "pretraining records: how many, the first of the split (default: all)", least=0)
    batch_size: int = option(32, "sequences of a device at a time", least=1)
    null_threshold: float | None = option(
        None, "SQuAD 2.0: a difference of the scores of no answer and of the best one above which there is no answer (default: "
        "the one of the highest F1)",
    )  # fmt: skip
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


def run(namespace: argparse.Namespace) -> int:
    """Evaluate, print what is found; returns the exit status."""
    options = read_options(EvaluateOptions, namespace)
    settings = read_options(EngineSettings, namespace)
    data_set = find_records(Path(options.data or ""))
    task = _task_of(data_set, options)
    file = resolve_weights(options.init or "", options.workdir)
    model = find_model(file) if options.model is None else ModelConfig.load(options.model)
    check_engine(settings, model, task)
    weights = read_initial_weights(file, model, task)
    if missing := [name for name in task.variable_shapes(model) if name not in weights]:
        raise UsageError(f"{file}: lacks {missing[0]}, the head of {task.name}; name a model that was fine-tuned for it")
    check_installed(settings)
    engine = open_engine(settings)
    engine.build(model, OptimizerSettings(), seed=0, task=task)
    engine.restore(weights)
    if engine.is_first:
        say(f"{file}: {task.name} on {engine.device_name}")
    evaluation = _Evaluation(engine, task, model, data_set, options, options.out or file.parent / f"predictions_{file.stem}")
    evaluation.of_all_splits()
    return 0


def _task_of(data_set: DataSet, options: EvaluateOptions) -> Task:
    task = task_of_records(data_set)
    if task.is_scored and (options.sequences or options.split != TEST):
        raise UsageError(
            f"{data_set.folder}: is of a task, which is scored on all of its splits; leave --sequences and --split out"
        )
    if isinstance(task, Squad):
        return replace(task, threshold=options.null_threshold)
    return task


@dataclass(frozen=True)
class _Evaluation:
    """An engine with weights, and the records that it is evaluated on."""

    engine: Engine
    task: Task
    model: ModelConfig
    data_set: DataSet
    options: EvaluateOptions
    out: Path

    def of_all_splits(self) -> None:
        """Evaluate the split that is asked for, or of a task all but that for training."""
        if not self.task.is_scored:
            self._of_sums()
            return
        splits = [split for split in self.data_set.splits if split != TRAINING]
        if not splits:
            raise UsageError(f"{self.data_set.folder}: has no split to evaluate on; make one of a dev file")
        for split in splits:
            with self._open(split) as records:
                self._of_split(split, records)

    def _of_sums(self) -> None:
        with self._open(self.options.split) as records:
            batches = self._batches(records)
            found = evaluate(self.engine, self.task, batches)
            self._check(batches, found.sequences)
            self._tell(self.options.split, found.sequences, found.metrics)

    def _of_split(self, split: str, records: RecordSet) -> None:
        batches = self._batches(records)
        sequences, outputs = predict(self.engine, batches)
        self._check(batches, sequences)
        if not self.engine.is_first:
            return
        if isinstance(self.task, Classification) and split in _UNLABELLED:
            paths = [write_submission(self.task.of, split, outputs["logits"], self.out)]
            metrics: dict[str, float] = {}
        else:
            scorer = self.task.scorer(self.data_set.folder, records)
            paths = scorer.write(outputs, self.out / _called(split) if isinstance(self.task, Classification) else self.out)
            metrics = scorer.metrics(outputs)
        self._tell(_called(split), sequences, metrics)
        for path in paths:
            tell(f"  {path}")

    def _open(self, split: str) -> RecordSet:
        return self.task.open_records([self.data_set.folder], split, self.model)

    def _batches(self, records: RecordSet) -> EvaluationBatches:
        engine = self.engine
        batch = GlobalBatch(self.options.batch_size * engine.devices, engine.data_world_size, engine.data_rank)
        return EvaluationBatches(records, batch, most=self.options.sequences)

    def _check(self, batches: EvaluationBatches, sequences: int) -> None:
        """Raise where a record could not be read, here or on another rank."""
        if batches.fault or batches.bad:
            raise batches.fault or batches.bad[0]
        if sequences != batches.sequences:
            raise BertprepError("another process met records that it cannot read, and says which")

    def _tell(self, split: str, sequences: int, metrics: Mapping[str, float]) -> None:
        if self.engine.is_first:
            numbers = ", ".join(f"{name} {value:.6g}" for name, value in metrics.items())
            tell(f"{split}, {sequences:,} sequences: {numbers or 'predictions alone, it has no labels'}")


def _called(split: str) -> str:
    """What a task calls the split: its test split is the dev set."""
    return DEV if split == TEST else split

"""Evaluate weights on records: `python -m trainer evaluate`. Runs evaluate their model by `evaluate` too.

pretraining records    masked-LM and next-sentence loss and accuracy on a split or its first sequences; also on token shards
SQuAD                  exact match and F1; OUT/predictions.json, nbest_predictions.json and, for 2.0, null_odds.json
labelled texts         the task's metrics on each labelled split; OUT/SPLIT/predictions.tsv, and GLUE's files for submission
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bertprep.errors import BertprepError, UsageError, WriteError
from bertprep.files.atomic import write_if_different
from bertprep.files.outputs import check_output, marked_by
from bertprep.files.paths import local_path, path_arg
from bertprep.options import Settings, add_options, option, read_options
from bertprep.progress import Reporter, print_message
from bertprep.records.records import Records
from bertprep.sources.release import CONFIG
from bertprep.terminal import print_results, warn
from bertprep.work.choose import find_records, find_training_tokens
from bertprep.work.data_set import DataSet
from bertprep.work.find import find_data_sets
from bertprep.work.layout import TEST, TOKENS, TRAINING, VOCABULARY
from bertprep.work.manifest import RECORDS, TOKEN_SHARDS
from trainer.batches import EvaluationBatches, GlobalBatch
from trainer.checkpoint import is_checkpoint, read_header, task_of
from trainer.data import Data, ExampleSettings, check_fits_model, check_vocabulary, make_data, open_data
from trainer.engines import Engine
from trainer.engines.choice import check_engine, choose_engine, open_engine
from trainer.model_config import ModelConfig
from trainer.settings import EngineSettings, OptimizerSettings, check_folder
from trainer.tasks import TASKS, task_of_records
from trainer.tasks.pretraining import Pretraining, PretrainOptions
from trainer.tasks.task import Scorer, Task
from trainer.weights import are_numbers, labels_of, model_of, read_weights, resolve_weights, with_rows_of

EVALUATED = ".evaluated"
"""An empty file that marks predictions as written by an evaluation, which may replace them. Other tools use the same names."""


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions(Settings):
    """Options of `evaluate`."""

    weights: str | None = option(
        None, "a run's folder, a checkpoint, a model.safetensors or Google's bert_model.ckpt, a folder with one of them, or "
        "the ID of a download (required)",
        metavar="WEIGHTS", positional=True,
    )  # fmt: skip
    init: str | None = option(None, "another way to name the weights (default: WEIGHTS)", metavar="PATH|ID", rare=True)
    data: Path | None = option(None, "folder of records or token shards (required)", metavar="DIR", check=path_arg)
    workdir: Path = option(Path("data"), "workspace, for the ID of a download", metavar="DIR", check=path_arg)
    model: str | None = option(None, "bert_config.json (default: that of the weights)", metavar="FILE")
    vocab: Path | None = option(
        None, "pretraining records: vocabulary (default: the vocab.txt next to the records)", metavar="FILE", check=path_arg
    )
    split: str = option(TEST, "pretraining records: split", choices=(TRAINING, TEST))
    sequences: int = option(0, "pretraining records: number of sequences, from the start of the split (default: all)", least=0)
    batch_size: int = option(32, "sequences per device at a time", least=1)
    out: Path | None = option(
        None, "folder for predictions (default: a folder next to the weights)", metavar="DIR", check=local_path
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.weights is not None and self.init is not None:
            raise UsageError(f"{self.weights} and --init {self.init}: give the weights once")
        if self.weights is None and self.init is None:
            raise UsageError("which weights? name a run's folder, as in python -m trainer evaluate RUN --data DIR")
        if self.data is None:
            raise UsageError("--data: is needed; name a folder of records")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `evaluate`."""
    add_options(parser, EvaluateOptions)
    for task in TASKS.values():
        if task.scoring is not None:
            add_options(parser, task.scoring)
    add_options(parser, EngineSettings)


class Split(NamedTuple):
    """A split to evaluate on, with a scorer if the task is scored."""

    name: str
    data: Data
    scorer: Scorer | None = None


def run(namespace: argparse.Namespace) -> int:
    """Evaluate and print the metrics; return the exit status."""
    options = read_options(EvaluateOptions, namespace)
    settings = read_options(EngineSettings, namespace)
    with ExitStack() as opened:
        file = resolve_weights(options.weights or options.init or "", options.workdir, named="--init " if options.init else "")
        splits = _open_splits(options, namespace, file, opened)
        data = splits[0].data
        task = data.task
        settings, why = choose_engine(settings, packed=data.is_packed)
        check_engine(settings, packed=data.is_packed)
        _check_task(file, task, data.folders[0])
        warnings = filter(None, (check_vocabulary(file, data), _explain_unnamed_labels(file, task)))
        model = with_rows_of(file, model_of(file) if options.model is None else ModelConfig.load(options.model))
        for split in splits:
            check_fits_model(split.data, model, options.model or str(file))
        weights, drawn = read_weights(file, model, task, any_head=True)
        if drawn:
            raise UsageError(f"{drawn.removeprefix('--init ')}; name a model that was trained for {task.describe()}")
        out = options.out or file.parent / f"predictions_{data.folders[0].name}_{file.stem}"
        check_folder("--out", out)
        if options.out is not None:
            _check_predictions(out, splits)
        engine = open_engine(settings)
        engine.build(model, OptimizerSettings(), seed=0, task=task)
        engine.restore(weights)
        if engine.is_first:
            for warning in warnings:
                warn(warning)
            print_message(
                f"{file}: {task.describe()} on {engine.device_name}, engine {settings.engine}{f': {why}' if why else ''}"
            )
        for split in splits:
            _evaluate_split(engine, options, split, out)
    return 0


def _open_splits(options: EvaluateOptions, namespace: argparse.Namespace, file: Path, opened: ExitStack) -> list[Split]:
    folder = options.data or Path()
    kinds = {each.content for each in find_data_sets([folder])}
    if TOKEN_SHARDS in kinds and RECORDS not in kinds:
        return [_open_tokens(options, folder, file, opened)]
    data_set = find_records(folder)
    task = task_of_records(data_set)
    scoring = read_options(task.scoring, namespace) if task.scoring else None
    splits = []
    for name in _scored_splits(options, data_set, task) if task.is_scored else [options.split]:
        records = opened.enter_context(Records([data_set.folder], name))
        data = make_data([data_set], (data_set.folder,), task, records, None, options.vocab)
        splits.append(Split(name, data, task.scorer(data_set.folder, records, name, scoring)))
    return splits


def _open_tokens(options: EvaluateOptions, folder: Path, file: Path, opened: ExitStack) -> Split:
    """Open token shards with the settings of a checkpoint's run, so that it gets the examples of its own evaluations."""
    if not is_checkpoint(file):
        raise UsageError(
            f"{folder}: contains token shards, which are masked like the training data of a checkpoint, but {file} is not a "
            "checkpoint; name one, or records"
        )
    header = read_header(file)
    settings, manifest = dict(header["examples"]), find_training_tokens(folder).manifest
    if ("packed" in settings) != bool(manifest and manifest.tokenizer):
        settings = {}  # documents or sentences where the run had the other; comparing vocabularies reports that next
    settings["seed"] = settings.pop("data_seed", ExampleSettings.seed)
    settings.pop("temperature", None)  # a temperature mixes several folders
    pred = settings.pop("pred", None)
    made = {each.name: settings[each.name] for each in fields(ExampleSettings) if each.name in settings and each.name != "seq"}
    of_run = PretrainOptions(data=(folder,), format=TOKENS, seq=header.get("seq"), pred=pred, vocab=options.vocab)
    data = open_data(of_run, ExampleSettings(**made), opened)
    if options.split == TRAINING:
        return Split(TRAINING, data)
    if data.test is None:
        raise UsageError(f"{data.folders[0]}: has no test split; evaluate on its training split with --split training")
    return Split(TEST, replace(data, records=data.test))


def _scored_splits(options: EvaluateOptions, data_set: DataSet, task: Task) -> list[str]:
    if options.sequences or options.split != TEST:
        raise UsageError(f"{data_set.folder}: a task is scored on all of its splits; leave --sequences and --split out")
    if options.vocab is not None:
        raise UsageError(
            f"--vocab: applies to pretraining records, but {data_set.folder} contains records of a task; leave it out, and "
            f"copy the right {VOCABULARY} to that folder"
        )
    splits = [split for split in data_set.splits if split != TRAINING]
    if not splits:
        raise UsageError(f"{data_set.folder}: has no split to evaluate on; make one from a dev file with bertprep task")
    task.check_scoring(splits)
    return splits


def _check_task(file: Path, task: Task, data: Path) -> None:
    if is_checkpoint(file):
        trained = task_of(file)
        if trained != task.predicted_by and not isinstance(trained, Pretraining):
            raise UsageError(
                f"{file}: was trained for {trained.describe()}, but the records in {data} are for {task.describe()}; name "
                "weights and records of the same task"
            )
    elif task.labels and (names := labels_of(file)):
        found = [name.casefold() for name in names]
        wanted = [name.casefold() for name in task.labels]
        if set(wanted) & set(found) and found != wanted:
            raise UsageError(
                f"{file.parent}: its labels are {', '.join(names)}, but those of the records in {data} are "
                f"{', '.join(task.labels)}; make your own records with --labels in the model's order, or name another model"
            )


def _explain_unnamed_labels(file: Path, task: Task) -> str:
    """Return a warning if a published head does not name its labels, so that only their order gives them a meaning."""
    labels = task.labels or ()
    if not labels or are_numbers(labels) or is_checkpoint(file) or labels_of(file) is not None:
        return ""
    return (
        f"{file}: its labels have no names, so they are taken for {', '.join(labels)[:200]}, in this order; if the model was "
        f"trained with another order, name them in id2label of {file.parent / CONFIG}"
    )


def _check_predictions(out: Path, splits: Sequence[Split]) -> None:
    """Raise `UsageError` if predictions would replace files that no evaluation wrote."""
    for split in splits:
        for path in split.scorer.files(out) if split.scorer else ():
            check_output(path, marked_by(out / EVALUATED), "--out")


def _evaluate_split(engine: Engine, options: EvaluateOptions, split: Split, out: Path) -> None:
    batch = GlobalBatch(options.batch_size * engine.devices, engine.data_world_size, engine.data_rank)
    reporter = Reporter(engine.is_first)
    batches = EvaluationBatches(split.data.records, batch, most=options.sequences, reporter=reporter)
    error: Exception | None = None
    try:
        sequences, metrics, unwritten = evaluate(
            engine, split.data.task, batches, split.scorer, out if engine.is_first else None
        )
        error = batches.fault or next(iter(batches.bad), None)
        if error is None and split.scorer is None and not metrics:
            error = without_targets(batches)
    except Exception as failed:  # any error: otherwise the other processes would wait for this one in the next split
        error = failed
    if engine.is_on_any_rank(error is not None):
        raise error or BertprepError(f"{split.name}: another process could not evaluate this split; its message says why")
    if engine.is_first:
        name = split.data.task.name_of_split(split.name)
        numbers = ", ".join(f"{metric} {value:.6g}" for metric, value in metrics.items())
        print_results(f"{name}, {sequences:,} sequences: {numbers or 'predictions only, as it has no labels'}")
        if split.scorer is not None and unwritten is None:
            print_results(f"  predictions are in {out}")
        elif unwritten is not None and options.out is None:
            warn(f"the predictions are not written: {unwritten}, or name another folder with --out")
    if engine.is_on_any_rank(unwritten is not None and options.out is not None):
        raise unwritten or BertprepError(f"{split.name}: another process could not evaluate this split; its message says why")


class Evaluation(NamedTuple):
    """The number of valid sequences on all ranks, their metrics, and why predictions could not be written, if they could not.

    There are no metrics if no token is masked, or if a rank could not read all records of a scored task.
    """

    sequences: int
    metrics: dict[str, float]
    unwritten: WriteError | None = None


def evaluate(
    engine: Engine, task: Task, batches: EvaluationBatches, scorer: Scorer | None = None, out: Path | None = None
) -> Evaluation:
    """Evaluate a model, and write predictions to `out`, if given; a folder that cannot be written costs no metrics."""
    sums, own = np.zeros((len(task.outputs), 3)), 0.0
    outputs: dict[str, list[NDArray[np.float32]]] = {output.name: [] for output in task.outputs}
    for batch in batches:
        own += float(batch["row_weights"].sum())
        if scorer is None:
            sums += engine.evaluate(batch)
        else:
            for name, rows in engine.predict(batch).items():
                outputs[name].append(rows)
    sequences = engine.sum_over_data_ranks(round(own))
    if scorer is None:
        return Evaluation(sequences, task.metrics(sums))
    if engine.is_on_any_rank(bool(batches.bad or batches.fault)):
        return Evaluation(sequences, {})
    logits = {name: np.concatenate(rows)[: batches.sequences] for name, rows in outputs.items()}
    try:
        metrics = scorer.score(logits, out)
        if out is not None:
            write_if_different(out / EVALUATED, b"")
    except WriteError as error:
        return Evaluation(sequences, scorer.score(logits), error)
    return Evaluation(sequences, metrics)


def without_targets(batches: EvaluationBatches) -> BertprepError:
    """Return the error for a split without a token to predict."""
    path, record = batches.records.origin_of(0)
    return BertprepError(
        f"{path}: record {record}: neither it nor any other of {batches.sequences:,} records has a masked token (all "
        "masked_lm_weights are 0), so there is no loss; make the files again"
    )

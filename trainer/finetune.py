"""`python -m trainer squad` and `python -m trainer glue`: train a pretrained model on a task, and evaluate each epoch.

Records are those of `bertprep create --task`; what the task is, its version or its labels, their manifest says. The model's
sizes come with the weights. Defaults are those of the commands in Google's README: of `run_squad.py` for SQuAD 1.1, and of
`run_classifier.py` for MRPC.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertprep.config import RECORD_FORMATS
from bertprep.errors import UsageError
from bertprep.options import add_options, check_options, option, read_options
from bertprep.records.data_sets import DataSet, find_records
from bertprep.tasks.glue import TASKS, find_task
from bertprep.tasks.glue_metrics import check_metrics_installed
from bertprep.workspace.layout import MANIFEST
from bertprep.workspace.manifest import TASK_RECORDS
from trainer.data import check_fits_model, find_task_data, name_data
from trainer.engines import Engine, Machine, choose_engine
from trainer.pretrained import find_pretrained
from trainer.schedule import Schedule
from trainer.settings import EngineSettings, OptimizerSettings, Phase, RunSettings
from trainer.start import describe_engine, describe_model, describe_phase, start
from trainer.tasks import Task
from trainer.tasks.classification import Classification
from trainer.tasks.registry import describe_task, task_of_records
from trainer.tasks.squad import Squad

_MOST_EPOCHS = 100_000
_NOT_ASKED = ("init", "eval_every", "eval_sequences", "keep_best")
"""Settings of a run that are no options here: each epoch ends with an evaluation on all records, and the best is kept."""


@dataclass(frozen=True, kw_only=True)
class FinetuneOptions:
    """What is asked of a task's run beside the settings of its parts."""

    data: Path | None = option(
        None, "folder of records, with training/ and dev/ below it (default: the newest of the task in the workspace)",
        metavar="DIR", urls=True,
    )  # fmt: skip
    format: str | None = option(None, "record format (default: that of the newest records)", choices=RECORD_FORMATS)
    workdir: Path = option(Path("data"), "workspace", metavar="DIR")
    init: str | None = option(
        None, "weights to start from: a checkpoint, a model.safetensors or Google's bert_model.ckpt, a folder with one, or the "
        "ID of a download, as google-bert/bert-base-uncased (needed, or --model)",
        metavar="PATH|ID",
    )  # fmt: skip
    model: str | None = option(
        None, "bert_config.json, or a preset to train from random weights (default: the sizes beside the weights)",
        metavar="FILE|NAME",
    )  # fmt: skip
    dropout: bool = option(True, "train without dropout, to compare runs (default: with dropout)")
    epochs: float = option(3.0, "passes over the training records", above=0, most=_MOST_EPOCHS)
    steps: int | None = option(None, "updates of the run (default: those of the epochs)", least=1)
    batch_size: int = option(32, "sequences of a device in a micro-batch", least=1)
    accumulation: int = option(1, "micro-batches in a step", name="--accumulate", also=("--grad-acc-steps",), least=1)
    learning_rate: float = option(2e-5, "peak learning rate", name="--lr", above=0)
    warmup: float = option(0.1, "fraction of the steps in which the learning rate rises", least=0, most=1)
    out: Path | None = option(
        None, "checkpoints, log and plot; a run that is there is resumed (default: in WORKDIR/models, named by what it trains)",
        metavar="DIR",
    )  # fmt: skip

    def __post_init__(self) -> None:
        check_options(self)

    @property
    def records(self) -> str:
        """What the workspace calls the task's records."""
        raise NotImplementedError

    @property
    def make(self) -> str:
        """The command that makes them."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class SquadOptions(FinetuneOptions):
    """Those of `squad`."""

    version: str = option("1.1", "version of SQuAD", choices=("1.1", "2.0"))
    epochs: float = option(2.0, "passes over the training records", above=0, most=_MOST_EPOCHS)
    batch_size: int = option(12, "sequences of a device in a micro-batch", least=1)
    learning_rate: float = option(3e-5, "peak learning rate", name="--lr", above=0)

    @property
    def records(self) -> str:
        return f"squad_v{self.version}"

    @property
    def make(self) -> str:
        return f"bertprep create --task squad --version {self.version}"


@dataclass(frozen=True, kw_only=True)
class GlueOptions(FinetuneOptions):
    """Those of `glue`."""

    name: str | None = option(
        None,
        f"task: {', '.join(name for name in TASKS if name != 'ax')}, or one of your own (needed, or --data)",
        metavar="NAME",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.name is None and self.data is None:
            raise UsageError("which task? give --name, such as --name mrpc, or the folder of its records with --data")

    @property
    def task_name(self) -> str | None:
        """The name as manifests have it: that of one of GLUE's tasks may be written in other ways."""
        if self.name is None:
            return None
        try:
            return find_task(self.name).name
        except UsageError:
            return self.name

    @property
    def records(self) -> str:
        return f"glue_{self.task_name}"

    @property
    def make(self) -> str:
        return "bertprep create --task glue" + (f" --name {self.task_name}" if self.task_name else "")


class _Request:
    """See `trainer.start.Request`."""

    def __init__(self, options: FinetuneOptions, kind: type, namespace: argparse.Namespace) -> None:
        """`kind` is the class of the tasks that the command trains."""
        self._namespace, self._options = namespace, options
        self.engine = choose_engine(read_options(EngineSettings, namespace))
        self._optimizer = read_options(OptimizerSettings, namespace)
        self._data = (
            find_task_data(options.workdir, options.records, options.format, make=options.make)
            if options.data is None
            else name_data([options.data], None, options.format, kind=None)
        )
        self._data_set = find_records(self._data.folders[0])
        self._task = _task_of(self._data_set, kind, options)
        if isinstance(self._task, Classification) and self._data.has_test:
            check_metrics_installed()
        self._pretrained = find_pretrained(options.init, options.workdir, options.model, self._data)
        check_fits_model(self._data, self._pretrained.model, self._pretrained.name)

    def needs_engine(self, machine: Machine) -> bool:
        return machine.devices is None

    def settings_on(self, machine: Engine | Machine) -> RunSettings:
        options, data, model = self._options, self._data, self._pretrained.model
        phase, per_epoch = self._make_phase(machine.devices or 1)
        return read_options(
            RunSettings,
            self._namespace,
            task=self._task,
            model=model if options.dropout else model.without_dropout(),
            phases=(phase,),
            optimizer=self._optimizer,
            out=options.out or self._default_out(),
            vocabulary=data.vocabulary,
            cased=data.cased,
            init=self._pretrained.file,
            eval_every=per_epoch,
            eval_sequences=0,
            keep_best=data.has_test,
        )

    def _make_phase(self, devices: int) -> tuple[Phase, int]:
        """The run's only phase, and the steps of an epoch, the last of which may be shorter."""
        options, data = self._options, self._data
        global_batch = options.batch_size * devices * options.accumulation
        steps = options.steps or max(1, int(data.records / global_batch * options.epochs))
        schedule = Schedule(peak=options.learning_rate, steps=steps, warmup_steps=int(steps * options.warmup))
        if schedule.learning_rate(1) == 0:
            more = "--steps" if options.steps else "--epochs"
            raise UsageError(
                f"{data.folders[0]}: the run has one step, of {global_batch:,} sequences where there are {data.records:,} "
                f"records; the last step has a learning rate of 0, so nothing would be learned; give more {more}"
            )
        phase = Phase(
            data=data.folders,
            seq=data.seq,
            schedule=schedule,
            batch_size=options.batch_size,
            accumulation=options.accumulation,
            has_test=data.has_test,
        )
        return phase, math.ceil(data.records / global_batch)

    def _default_out(self) -> Path:
        """WORKDIR/models/squad_v1.1_bert-base-uncased."""
        return self._options.workdir / "models" / f"{self._data_set.corpus}_{self._pretrained.short_name}"

    def describe(self, settings: RunSettings, machine: Engine | Machine) -> list[tuple[str, str]]:
        pretrained = self._pretrained
        start_from = str(pretrained.file) if pretrained.file else "random weights; --init names pretrained ones"
        return [
            ("task", describe_task(self._task)),
            ("model", describe_model(pretrained.name, settings.model, self._task)),
            ("init", start_from),
            *describe_phase(settings.phases[0], self._data, machine.devices or 1),
            ("optimizer", settings.optimizer.describe()),
            ("engine", describe_engine(self.engine)),
            ("out", str(settings.out)),
        ]


def _task_of(data_set: DataSet, kind: type, options: FinetuneOptions) -> Task:
    """The task of the records, which must be the command's."""
    folder, manifest = data_set.folder, data_set.manifest
    if manifest is None or manifest.kind != TASK_RECORDS:
        raise UsageError(
            f"{folder}: its {MANIFEST} is missing or names no task, so what the records are for is not known; name records "
            f"that {options.make} makes"
        )
    task = task_of_records(data_set)
    if not isinstance(task, kind) or (isinstance(options, SquadOptions) and task != Squad(f"v{options.version}")):
        raise UsageError(f"{folder}: has records of {describe_task(task)}; name records that {options.make} makes")
    if isinstance(task, Classification) and isinstance(options, GlueOptions) and options.task_name not in (None, task.of.name):
        raise UsageError(
            f"--name {options.name}: the records in {folder} are of {task.of.name}; leave it out, or name records that "
            f"{options.make} makes"
        )
    return task


@dataclass(frozen=True)
class _Command:
    """A command of the trainer, as `trainer.cli` takes it."""

    options: type[FinetuneOptions]
    kind: type

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        groups: tuple[tuple[str, type, tuple[str, ...]], ...] = (
            ("task and steps", self.options, ()),
            ("optimizer", OptimizerSettings, ()),
            ("devices", EngineSettings, ()),
            ("run", RunSettings, _NOT_ASKED),
        )
        for title, settings, without in groups:
            add_options(parser.add_argument_group(title), settings, without=without)

    def run(self, namespace: argparse.Namespace) -> int:
        options: Any = read_options(self.options, namespace)
        return start(_Request(options, self.kind, namespace))


SQUAD = _Command(SquadOptions, Squad)
GLUE = _Command(GlueOptions, Classification)

"""One training run: everything that its numbers depend on, the plan that is printed, and the settings in its checkpoints."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

from bertprep.errors import UsageError
from bertprep.records.records import Records
from bertprep.terminal import counted
from bertprep.tokens.live import DEFAULT_GROUP, LiveExamples
from bertprep.tokens.order import FileOrder, Order
from bertprep.work.layout import MODELS
from trainer.data import Data, ExampleSettings
from trainer.model_config import ModelConfig
from trainer.optimizers import Schedule
from trainer.settings import OPTIMIZERS, OptimizerSettings, RunOptions
from trainer.tasks import Task
from trainer.token_records import TokenRecords
from trainer.weights import short_name

_SECTIONS = {"model": ModelConfig, "optimizer": OptimizerSettings, "schedule": Schedule, "examples": ExampleSettings}
"""The sections of a checkpoint's header, each with the dataclass that has the defaults of its settings."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """Everything that the numbers of a run depend on, and where it writes."""

    options: RunOptions
    optimizer: OptimizerSettings
    data: Data
    model: ModelConfig
    model_name: str
    devices: int
    init: Path | None  # a file of weights, or the folder of the phase before
    is_last: bool = True  # of the phases

    def __post_init__(self) -> None:
        if self.schedule.learning_rate(1) == 0:
            raise UsageError(
                f"{self.data.folders[0]}: the run has one step, of {self.global_batch:,} sequences where there are "
                f"{len(self.data.records):,} records, and the last step has a learning rate of 0; give more --steps, or a "
                "smaller --batch-size"
            )

    @property
    def task(self) -> Task:
        return self.data.task

    @property
    def global_batch(self) -> int:
        return self.options.batch_size * self.options.accumulation * self.devices

    @cached_property
    def schedule(self) -> Schedule:
        options, optimizer = self.options, self.optimizer.name
        epochs = options.epochs or options.default_epochs
        steps = options.steps or max(1, int(len(self.data.records) / self.global_batch * epochs))
        warmup_steps = int(steps * options.warmup) if options.warmup_steps is None else options.warmup_steps
        peak = options.learning_rate or OPTIMIZERS[optimizer].learning_rate
        if options.schedule == "nvidia" or (options.schedule is None and optimizer == "lamb"):
            return Schedule.nvidia(optimizer, peak=peak, steps=steps, warmup_steps=warmup_steps)
        return Schedule(peak=peak, steps=steps, warmup_steps=warmup_steps)

    @property
    def eval_every(self) -> int:
        return math.ceil(len(self.data.records) / self.global_batch) if self.task.is_scored else self.options.eval_every

    @property
    def eval_sequences(self) -> int:
        """Sequences of an evaluation; 0: all, of which a score is."""
        return 0 if self.task.is_scored else self.options.eval_sequences

    @property
    def keep_best(self) -> bool:
        return self.data.test is not None and (self.task.is_scored or self.options.keep_best)

    @cached_property
    def out(self) -> Path:
        """Return --out, or WORKDIR/models/tiny_sample_ofrecord_seq_128_adam_3454_steps; of a scored task squad_v1.1_MODEL."""
        options, records = self.options, self.data.records
        model = short_name(self.init) if self.init and not options.model else Path(self.model_name).stem
        corpora = dict.fromkeys(each.corpus for each in self.data.sets)
        names = [*corpora, model]
        if not self.task.is_scored:
            run = f"seq_{records.seq}_{self.optimizer.name}_{self.schedule.steps}_steps"
            names = [model, *corpora, *records.formats, run]
        return options.out or options.workdir / MODELS / "_".join(names)

    def plan(self) -> dict[str, str]:
        model, records, steps = self.model, len(self.data.records), self.schedule.steps
        parameters = sum(math.prod(shape) for shape in self.task.variable_shapes(model).values())
        sizes = f"{model.num_hidden_layers} layers of {model.hidden_size}, a vocabulary of {model.vocab_size:,}"
        dropout = "" if self.options.dropout else ", no dropout"
        factors = f"{self.options.batch_size:,} x {self.devices:,} (devices) x {self.options.accumulation:,} (accumulated)"
        if records < self.global_batch:
            factors += f"; the {counted(records, 'record')} are fewer, so a step has some more than once"
        warmup = counted(self.schedule.warmup_steps, "step")
        return {
            "task": self.task.describe(),
            "model": f"{self.model_name}: {sizes}, {parameters:,} parameters{dropout}",
            "init": str(self.init or "random weights"),
            "data": self.data.describe(),
            "global batch": f"{self.global_batch:,} sequences: {factors}",
            "steps": f"{steps:,}; epochs: {steps * self.global_batch / records:.3g}",
            "learning rate": f"{self.schedule.peak:g} after {warmup} of warmup",
            "optimizer": self.optimizer.describe(),
            "out": str(self.out),
        }

    def is_finished(self, step: int, evaluated: int) -> bool:
        """Return whether nothing is left to do after this step, with the last evaluation at step `evaluated`."""
        return step == self.schedule.steps and (self.data.test is None or evaluated == step)

    def header(self, *, precision: str | None) -> dict[str, Any]:
        """Return the settings in the checkpoints' header; a run resumes only where they agree. None is unknown."""
        data, records = self.data, self.data.records
        examples: dict[str, Any] = {"on_the_fly": not isinstance(records, Records)}
        if isinstance(records, LiveExamples):
            examples |= {**asdict(records.settings), "repeat_epochs": records.repeat_epochs}
        if isinstance(records, TokenRecords):
            examples |= records.settings
        if "seed" in examples:
            examples["data_seed"] = examples.pop("seed")
        return {
            "model": asdict(self.model), "schedule": asdict(self.schedule),
            "optimizer": {**asdict(self.optimizer), "beta_2": self.optimizer.second_decay},
            "seq": records.seq, "pred": records.pred, "examples": examples, "records": len(records),
            "data": self._data_sha256(), "shuffle_shards": self.shuffle_shards, "global_batch": self.global_batch,
            "precision": precision, "seed": self.options.seed, "cased": data.cased,
            "vocabulary_sha256": data.vocabulary_sha256, **self.task.metadata(),
        }  # fmt: skip

    def _data_sha256(self) -> str | None:
        if not isinstance(self.data.records, Records):
            return self.data.records.sha256
        made_of: list[Any] = []
        for each in self.data.sets:
            texts = [entry.get("text") for _, entry in sorted(each.manifest.files.items())] if each.manifest else [None]
            if each.manifest is None or None in texts:
                return None
            made_of.append([each.manifest.made_with, texts])
        return sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()

    @property
    def shuffle_shards(self) -> int:
        """Shards whose records are permuted together; 0 where all records of an epoch are."""
        default = DEFAULT_GROUP if isinstance(self.data.records, LiveExamples) else 0
        return self.options.shuffle_shards or default

    @property
    def order(self) -> Order | None:
        records = self.data.records
        if not isinstance(records, Records) or not self.shuffle_shards:
            return None
        return FileOrder(records.file_records, seed=self.options.seed, group=self.shuffle_shards)


def with_defaults(header: Mapping[str, Any]) -> dict[str, Any]:
    """Return a checkpoint's header with the default of each setting that it lacks, as that of an earlier version may."""
    filled = {"examples": {"on_the_fly": False}, **header}
    for section, settings in _SECTIONS.items():
        if section not in header:
            continue
        defaults = {each.name: each.default for each in fields(settings) if each.default is not MISSING}
        if section == "examples":
            if not header[section].get("on_the_fly"):  # records, which have no such settings
                continue
            defaults["data_seed"] = defaults.pop("seed")
        filled[section] = {**json.loads(json.dumps(defaults)), **header[section]}  # lists, as JSON has them
    return filled

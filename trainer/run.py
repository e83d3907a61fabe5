"""Describe a training run and prepare it for its first step.

A `Run` has everything that the numbers of a run depend on, and the plan that is printed. `prepare` checks options, data,
weights and most settings of an existing checkpoint before a framework is loaded, so most mistakes are reported at once.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from bertprep.errors import BertprepError, UsageError
from bertprep.files.lock import locked
from bertprep.files.outputs import check_output, marked_by
from bertprep.instances.tokenizer_files import TOKENIZER_CONFIG
from bertprep.progress import print_message
from bertprep.records.records import Records
from bertprep.terminal import counted, warn
from bertprep.tokens.live import LiveExamples
from bertprep.work.layout import MODELS, TOKENIZER, VOCABULARY
from trainer import checkpoint
from trainer.batches import GlobalBatch, TrainingBatches
from trainer.data import Data, ExampleSettings, check_fits_model, check_vocabulary, load_model, open_data
from trainer.engines import Engine
from trainer.engines import oneflow_pipeline as pipeline
from trainer.engines.choice import check_engine, choose_engine, explain_collision, is_first_process, known_devices, open_engine
from trainer.log import LOG, PICTURE
from trainer.model_config import PRESETS, ModelConfig
from trainer.optimizers import Schedule
from trainer.settings import AUTO, OPTIMIZERS, PRECISIONS, EngineSettings, OptimizerSettings, RunOptions
from trainer.tasks.pretraining import Pretraining, PretrainOptions
from trainer.tasks.task import Task, entropy
from trainer.token_records import TokenRecords
from trainer.weights import check_weights, model_of, resolve_weights, short_name, with_rows_of

MODEL_CONFIG = "bert_config.json"
FEW_STEPS = 50
"""A plan of fine-tuning with fewer steps says what to do if the scores stay low."""
GUESSED_FROM = 10_000
"""The number of training records whose label frequencies give the loss of guessing by frequency."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """Everything that the numbers of a run depend on, and the folder that it writes to."""

    options: RunOptions
    optimizer: OptimizerSettings
    data: Data
    model: ModelConfig
    model_name: str
    devices: int
    init: Path | None  # a file of weights

    def __post_init__(self) -> None:
        if self.schedule.learning_rate(1) == 0:
            advice = "give more --steps"
            if self.options.steps is None:
                advice = (
                    f"the global batch is {self.global_batch:,} sequences, and there are {len(self.data.records):,} records; "
                    "give more --epochs, or a smaller --batch-size"
                )
            raise UsageError(
                f"{self.data.folders[0]}: the run has only one step, and the last step has a learning rate of 0; {advice}"
            )

    @property
    def task(self) -> Task:
        return self.data.task

    @property
    def global_batch(self) -> int:
        return self.options.batch_size * self.options.accumulation * self.devices

    @property
    def packed_into(self) -> int:
        """The number of micro-batches that a step's packed rows are split into; 0 if rows are not packed."""
        packs = isinstance(self.options, PretrainOptions) and self.options.pack
        return self.options.accumulation * self.devices if packs else 0

    @cached_property
    def schedule(self) -> Schedule:
        options, optimizer = self.options, self.optimizer.name
        epochs = options.epochs or options.default_epochs
        steps = options.steps or max(1, int(len(self.data.records) / self.global_batch * epochs))
        warmup_steps = int(steps * options.warmup) if options.warmup_steps is None else options.warmup_steps
        peak = options.learning_rate or OPTIMIZERS[optimizer]
        if options.schedule == "nvidia" or (options.schedule is None and optimizer == "lamb"):
            return Schedule.nvidia(optimizer, peak=peak, steps=steps, warmup_steps=warmup_steps)
        return Schedule(peak=peak, steps=steps, warmup_steps=warmup_steps)

    @property
    def log_every(self) -> int:
        """The number of steps between lines of the log. By default a run of 40 steps or more has at least 40 lines."""
        return self.options.log_every or next((each for each in (100, 50, 20, 10, 5, 2) if each * 40 <= self.schedule.steps), 1)

    @property
    def eval_every(self) -> int:
        return math.ceil(len(self.data.records) / self.global_batch) if self.task.is_scored else self.options.eval_every

    @property
    def eval_sequences(self) -> int:
        """The number of sequences per evaluation; 0 means all, which a score needs."""
        return 0 if self.task.is_scored else self.options.eval_sequences

    @property
    def keep_best(self) -> bool:
        return self.data.test is not None and (self.task.is_scored or self.options.keep_best)

    @cached_property
    def out(self) -> Path:
        """Return --out, or a folder in WORKDIR/models.

        It is named like tiny_sample_ofrecord_seq_128_adam_3454_steps, or like squad_v1.1_MODEL for a scored task.
        """
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
            factors += f"; there are only {counted(records, 'record')}, so a step repeats some"
        warmup = counted(self.schedule.warmup_steps, "step")
        return {
            "task": self.task.describe(),
            "model": f"{self.model_name}: {sizes}, {parameters:,} parameters{dropout}",
            "init": str(self.init or "random weights"),
            "data": self.data.describe(),
            **self._plan_of_mixture(),
            "global batch": f"{self.global_batch:,} sequences: {factors}",
            **self._plan_of_packing(),
            "steps": f"{steps:,}; epochs: {steps * self.global_batch / records:.3g}{self._advice_on_few_steps()}",
            "learning rate": f"{self.schedule.peak:g} after {warmup} of warmup",
            "optimizer": self.optimizer.describe(),
            "out": str(self.out),
        }

    def _advice_on_few_steps(self) -> str:
        if not self.task.is_scored or self.schedule.steps >= FEW_STEPS:
            return ""
        more = "--epochs" if self.options.steps is None else "--steps"
        return f"; these are few: if the scores stay low, give more {more} and a larger --lr"

    def mixture(self, step: int) -> list[dict[str, Any]]:
        """Return the rows and epochs that the run reads from each folder of token shards by `step`, if there are several."""
        records = self.data.records
        return records.describe_mixture(step * self.global_batch) if isinstance(records, TokenRecords) else []

    def _plan_of_mixture(self) -> dict[str, str]:
        """Return the plan's line on the rows that the run reads from each folder."""
        sets = [
            f"{Path(each['folder']).name} {each['weight']:.3g}, {counted(each['rows'], 'row')}, {each['epochs']:.3g} epochs"
            for each in self.mixture(self.schedule.steps)
        ]
        return {"mixture": "; ".join(sets)} if sets else {}

    def _plan_of_packing(self) -> dict[str, str]:
        """Return the plan's line on the padding that packing saves, measured on the first step."""
        if not self.packed_into:
            return {}
        settings: dict[str, Any] = {"seed": self.options.seed, "shuffle_shards": self.shuffle_shards}
        batches = TrainingBatches(self.data.records, GlobalBatch(self.global_batch), packed_into=self.packed_into, **settings)
        is_token = batches.read(0).arrays["sequence_ids"] > 0
        unpacked, tokens = self.global_batch * self.data.records.seq, is_token.sum()
        padding = f"padding {1 - tokens / unpacked:.0%} -> {1 - tokens / is_token.size:.0%}"
        fewer = f"{unpacked / is_token.size:.1f} times fewer rows"
        return {"packing": f"{len(is_token):,} rows in the first step; {padding}: {fewer}"}

    def guessed_losses(self) -> dict[str, float]:
        """Return the loss of guessing each masked token by its frequency, for pretraining records only.

        It is the entropy of the labels of 10,000 evenly spaced training records, or of all if there are fewer.
        """
        records = self.data.records
        if not isinstance(records, Records) or not isinstance(self.task, Pretraining):
            return {}
        indices = np.linspace(0, len(records) - 1, min(len(records), GUESSED_FROM)).astype(np.int64)
        examples = records.kind.empty(len(indices), seq=records.seq, pred=records.pred)
        try:
            bad = records.gather_good(examples, indices)
        except BertprepError:  # a file cannot be read; the step that needs it reports that
            return {}
        is_label = examples.masked_lm_weights > 0
        is_label[[error.row for error in bad]] = False
        loss = entropy(examples.masked_lm_ids[is_label])
        return {} if loss is None else {"masked_lm_loss": loss}

    def is_finished(self, step: int, evaluated: int) -> bool:
        """Return whether nothing is left to do after this step, with the last evaluation at step `evaluated`."""
        return step == self.schedule.steps and (self.data.test is None or evaluated == step)

    def settings(self, *, precision: str | None) -> dict[str, Any]:
        """Return everything that decides the run's numbers. Checkpoints store it, and a resumed run must agree with it.

        None means unknown.
        """
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
            "optimizer": asdict(self.optimizer),
            "seq": records.seq, "pred": records.pred, "examples": examples, "records": len(records),
            "data": self._data_sha256(), "files": data.fingerprints, "shuffle_shards": self.shuffle_shards,
            "global_batch": self.global_batch, "precision": precision, "seed": self.options.seed, "cased": data.cased,
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
        """The number of shards whose records are permuted together; 0 means all records of an epoch."""
        records = self.data.records
        return records.shuffle_shards if isinstance(records, LiveExamples) else self.options.shuffle_shards or 0

    def settings_resumed_from(self, newest: Path, *, precision: str | None) -> dict[str, Any]:
        """Return the settings of this run as it resumes from a checkpoint; raises `UsageError` where the saved ones differ."""
        saved, settings = checkpoint.read_header(newest), self.settings(precision=precision)
        return checkpoint.check_resumable(
            newest, saved, settings, lengthen=self.options.lengthen, options={**checkpoint.OPTIONS, **self._names_of_steps()}
        )

    def _names_of_steps(self) -> dict[str, str]:
        """Return the names in errors for numbers of steps that were not given, and so follow from other options."""
        names = {}
        if self.options.steps is None:
            names["schedule.steps"] = "steps" if self.options.epochs is None else "--epochs: steps"
        if self.options.warmup_steps is None:
            names["schedule.warmup_steps"] = "warmup steps"
        return names

    def files(self) -> dict[str, bytes]:
        """Return the names and contents of the files that describe the model next to its checkpoints: sizes and vocabulary."""
        files = {MODEL_CONFIG: self.model.to_json().encode()}
        if self.data.vocabulary:
            name = TOKENIZER if self.data.vocabulary.name == TOKENIZER else VOCABULARY
            files[name] = self.data.vocabulary.read_bytes()
            config = self.data.vocabulary.with_name(TOKENIZER_CONFIG)  # exists if it has to name the mask token
            if name == TOKENIZER and config.is_file():
                files[TOKENIZER_CONFIG] = config.read_bytes()
        return files

    def check_out(self) -> None:
        """Raise `UsageError` if a new run would replace files that no run wrote, such as another tool's model."""
        is_of_run = marked_by(self.out / LOG)
        for name, content in self.files().items():
            path = self.out / name
            if not (path.is_file() and path.read_bytes() == content):
                check_output(path, is_of_run, "--out")
        check_output(self.out / PICTURE, is_of_run, "--out")


def prepare(
    options: RunOptions, settings: EngineSettings, optimizer: OptimizerSettings, examples: ExampleSettings, opened: ExitStack
) -> tuple[Run, Engine] | None:
    """Check a run, print its plan and open its engine; return None if the run is finished already.

    Files and locks are registered with `opened`, which closes them.
    """
    init = resolve_weights(options.init, options.workdir) if options.init else None
    data = open_data(options, examples, opened)
    warning = check_vocabulary(init, data) if init else ""
    packs = isinstance(options, PretrainOptions) and options.pack
    if packs and data.is_packed:
        raise UsageError(f"--pack: the rows of {data.folders[0]} are packed already; leave it out")
    settings, why_engine = choose_engine(settings, packed=packs or data.is_packed)
    check_engine(settings, packed=packs or data.is_packed)
    engine: Engine | None = None
    devices, has_accelerator = known_devices(settings)
    if devices is None or (has_accelerator is None and init is None and options.model is None):
        engine = open_engine(settings)
        devices, has_accelerator = engine.devices, engine.has_accelerator
    name, model = _choose_model(options, data, init, has_accelerator=bool(has_accelerator))
    if settings.engine == "oneflow":
        pipeline.check(settings, model, data.task, has_accelerator=has_accelerator)
    run = Run(options=options, optimizer=optimizer, data=data, model=model, model_name=name, devices=devices, init=init)
    if has_accelerator is False:
        _check_memory(run)
    if is_finished(run, settings):
        print_message(f"{run.out}: is finished, with {counted(run.schedule.steps, 'step')}; --init {run.out} trains it further")
        return None
    if engine.is_first if engine else is_first_process(settings):
        try:
            opened.enter_context(locked(run.out))
        except BertprepError as error:
            raise explain_collision(error, settings) from error
        engine_line = f"{settings.engine}: {why_engine}" if why_engine else settings.engine
        _show({**run.plan(), "engine": engine_line})
        if warning:
            warn(f"--init {warning}")
    engine = engine or open_engine(settings)
    take_saved_precision(run, settings, engine)
    _show_devices(engine)
    return run, engine


def _choose_model(options: RunOptions, data: Data, init: Path | None, *, has_accelerator: bool) -> tuple[str, ModelConfig]:
    if init and options.model is None:
        name, model = str(init), model_of(init)
    else:
        name = options.model or ("base" if has_accelerator else "tiny")
        model = load_model(name, data)
        if name in PRESETS:
            positions = max(model.max_position_embeddings, data.records.seq)
            model = replace(model, max_position_embeddings=positions)
    if init:
        model = with_rows_of(init, model)
    check_fits_model(data, model, name)
    if options.attention_dropout is not None:
        model = replace(model, attention_probs_dropout_prob=options.attention_dropout)
    return name, model if options.dropout else model.without_dropout()


def _show_devices(engine: Engine) -> None:
    if not engine.is_first:
        print_message(f"one of {engine.processes} processes; the first one reports progress")
        return
    processes = f", {engine.processes} processes" if engine.processes > 1 else ""
    _show({"precision": engine.execution.describe(), "devices": engine.device_name + processes})


def _show(rows: Mapping[str, str]) -> None:
    """Print lines of the plan."""
    for title, text in rows.items():
        print_message(f"{title:<13}  {text}")


def _check_memory(run: Run) -> None:
    """Raise `UsageError` if attention alone needs more memory than a machine without a GPU has."""
    batch_size, seq = run.options.batch_size, run.data.records.seq
    scores = 4 * batch_size * run.model.num_attention_heads * seq**2
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if scores > memory:
        raise UsageError(
            f"{run.data.folders[0]}: the attention scores of {batch_size:,} sequences of {seq:,} tokens need "
            f"{scores / 1e9:,.0f} GB in each layer, but this machine has {memory / 1e9:,.0f} GB of memory; give a smaller "
            "--seq or --batch-size"
        )


def take_saved_precision(run: Run, settings: EngineSettings, engine: Engine) -> None:
    """Make a run without `--amp` resume in the precision of its checkpoint. OneFlow on CPUs has float32 only."""
    newest = checkpoint.newest(run.out)
    saved = checkpoint.read_header(newest).get("precision") if newest else None
    has_choice = settings.amp == AUTO and (settings.engine != "oneflow" or engine.has_accelerator)
    if has_choice and saved in PRECISIONS and saved != engine.precision:
        engine.execution = engine.execution._replace(precision=saved, why="the checkpoint's")


def is_finished(run: Run, settings: EngineSettings) -> bool:
    """Return whether nothing is left to do; raises `BertprepError` if --out has another run, or --init cannot be used."""
    newest = checkpoint.newest(run.out)
    if newest is None:
        run.check_out()
        if run.init:
            check_weights(run.init, run.model, run.task)
        return False
    if not run.options.resume:
        raise UsageError(f"{newest}: exists from an earlier run; leave --no-resume out to resume it, or name another --out")
    header = checkpoint.read_header(newest)
    precision = None if settings.amp == AUTO else settings.amp  # with auto it is not known yet
    run.settings_resumed_from(newest, precision=precision)
    if not run.is_finished(header["step"], header["evaluated"]):
        return False
    checkpoint.read(newest)  # verifies the checksum even when nothing is left to do
    return True

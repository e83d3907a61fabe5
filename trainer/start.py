"""A training run from its options to its end: data, weights, the checkpoint that is there, the engine, the plan, the steps.

Options, data and weights are checked before a framework is loaded, which takes seconds; so are the settings of the newest
checkpoint, unless they depend on GPUs that only the framework can count.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from bertprep.errors import UsageError
from bertprep.files.lock import locked
from bertprep.progress import say
from bertprep.terminal import counted
from trainer import checkpoint
from trainer.data import Data, ExampleSettings, check_fits_model, check_vocabulary, load_model, open_data
from trainer.engines import Engine, check_engine, choose_engine, known_devices, open_engine
from trainer.engines import oneflow_pipeline as pipeline
from trainer.loop import train
from trainer.model_config import ModelConfig
from trainer.run import Run
from trainer.settings import AUTO, AnyOptions, EngineSettings, OptimizerSettings
from trainer.weights import check_weights, model_of, resolve_weights

FINISHED, STOPPED = 0, 3
"""Exit statuses; a run that was stopped has saved a checkpoint and can be resumed."""


def start(options: AnyOptions, settings: EngineSettings, optimizer: OptimizerSettings, examples: ExampleSettings) -> int:
    """Check, open the engine, train; returns the exit status."""
    settings, why_engine = choose_engine(settings)
    init = resolve_weights(options.init, options.workdir) if options.init else None
    with ExitStack() as opened:
        data = open_data(options, examples, opened)
        if init:
            check_vocabulary(init, data)
        check_engine(settings)
        devices, has_accelerator = known_devices(settings)
        engine: Engine | None = None
        if devices is None or (has_accelerator is None and init is None and options.model is None):
            engine = open_engine(settings)
            devices, has_accelerator = engine.devices, engine.has_accelerator
        name, model = _choose_model(options, data, init, has_accelerator=bool(has_accelerator))
        if settings.engine == "oneflow":
            pipeline.check(settings, model, data.task, has_accelerator=has_accelerator)
        run = Run(options=options, optimizer=optimizer, data=data, model=model, model_name=name, devices=devices, init=init)
        if is_finished(run, settings):
            steps = counted(run.schedule.steps, "step")
            say(f"{run.out}: is finished, with {steps}; --init {run.out} trains it further")
            return FINISHED
        engine = engine or open_engine(settings)
        if not engine.is_first:
            say(f"one of {engine.processes} processes; the first one reports progress")
        else:
            opened.enter_context(locked(run.out))
            rows = {
                **run.plan(),
                "engine": f"{settings.engine}: {why_engine}" if why_engine else settings.engine,
                "precision": engine.execution.describe(),
                "devices": engine.device_name + (f", {engine.processes} processes" if engine.processes > 1 else ""),
            }
            for title, text in rows.items():
                say(f"{title:<13}  {text}")
        return FINISHED if train(run, engine) else STOPPED


def _choose_model(options: AnyOptions, data: Data, init: Path | None, *, has_accelerator: bool) -> tuple[str, ModelConfig]:
    """Return the model that `--model` names, that of the weights, or the one that suits the machine; the data must fit it."""
    if init and options.model is None:
        name, model = str(init), model_of(init)
    else:
        name = options.model or ("base" if has_accelerator else "tiny")
        model = load_model(name, data)
    check_fits_model(data, model, name)
    if options.attention_dropout is not None:
        model = replace(model, attention_probs_dropout_prob=options.attention_dropout)
    return name, model if options.dropout else model.without_dropout()


def is_finished(run: Run, settings: EngineSettings) -> bool:
    """Whether nothing is left to do; raises where --out holds another run, or --init what the run cannot start from."""
    newest = checkpoint.newest(run.out)
    if newest is None:
        if run.init:
            check_weights(run.init, run.model, run.task)
        return False
    if not run.options.resume:
        raise UsageError(f"{newest}: is there from an earlier run; leave --no-resume out to resume it, or name another --out")
    header = checkpoint.read_header(newest)
    precision = None if settings.amp == AUTO else settings.amp  # of auto it is not known yet
    checkpoint.compare(newest, header, run.header(precision=precision), lengthen=run.options.lengthen)
    if not run.is_finished(header["step"], header.get("evaluated", 0)):
        return False
    checkpoint.read(newest)  # by its checksum: who starts it again may have a reason to
    return True

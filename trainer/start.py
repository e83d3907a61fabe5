"""Training runs from their options to their end: data, weights, the existing checkpoint, the engine, the plan, the steps.

Options, data, weights and most settings of the checkpoint are checked before a framework is loaded. Phases are runs in
sequence; finished ones are skipped.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from bertprep.errors import UsageError
from bertprep.files.lock import locked
from bertprep.progress import print_message
from bertprep.terminal import counted
from trainer import checkpoint
from trainer.data import Data, ExampleSettings, agree, check_fits_model, check_vocabulary, load_model, open_data
from trainer.engines import Engine, check_engine, choose_engine, is_first_process, known_devices, open_engine
from trainer.engines import oneflow_pipeline as pipeline
from trainer.loop import check_out, train
from trainer.model_config import PRESETS, ModelConfig
from trainer.run import Run, with_defaults
from trainer.settings import AUTO, PRECISIONS, AnyOptions, EngineSettings, OptimizerSettings
from trainer.weights import check_weights, model_of, resolve_weights

FINISHED, STOPPED = 0, 3
"""Exit statuses; a run that was stopped has saved a checkpoint and can be resumed."""


def start(
    phases: Sequence[AnyOptions], settings: EngineSettings, optimizer: OptimizerSettings, examples: Sequence[ExampleSettings]
) -> int:
    """Check all phases, open the engine, train one after the other; returns the exit status."""
    options = phases[0]
    init = resolve_weights(options.init, options.workdir) if options.init else None
    with ExitStack() as opened:
        data = [open_data(phase, of_phase, opened) for phase, of_phase in zip(phases, examples, strict=True)]
        agree((each.folders[0], each.traits) for each in data)
        if init:
            check_vocabulary(init, data[0])
        is_packed = any(each.is_packed for each in data)
        settings, why_engine = choose_engine(settings, packed=is_packed)
        check_engine(settings, packed=is_packed)
        devices, has_accelerator = known_devices(settings)
        engine: Engine | None = None
        if devices is None or (has_accelerator is None and init is None and options.model is None):
            engine = open_engine(settings)
            devices, has_accelerator = engine.devices, engine.has_accelerator
        name, model = _choose_model(options, data, init, has_accelerator=bool(has_accelerator))
        if settings.engine == "oneflow":
            pipeline.check(settings, model, data[0].task, has_accelerator=has_accelerator)
        runs = [
            Run(options=phase, optimizer=optimizer, data=of_phase, model=model, model_name=name, devices=devices, init=init)
            for phase, of_phase in zip(phases, data, strict=True)
        ]
        if has_accelerator is False:
            for run in runs:
                _check_memory(run)
        name_of_engine = f"{settings.engine}: {why_engine}" if why_engine else settings.engine
        precision: str | None = None  # of the newest checkpoint of this phase, or of those before
        for run in _chain(runs) if len(runs) > 1 else runs:
            precision = saved_precision(run) or precision
            if is_finished(run, settings):
                steps = counted(run.schedule.steps, "step")
                print_message(f"{run.out}: is finished, with {steps}; --init {run.out} trains it further")
                continue
            is_first = engine.is_first if engine else is_first_process(settings)
            if is_first:
                opened.enter_context(locked(run.out))
                _show({**run.plan(), "engine": name_of_engine})
            engine = engine or open_engine(settings)
            take_precision(precision, settings, engine)
            _show_devices(engine)
            if not train(run, engine):
                return STOPPED
    return FINISHED


def _choose_model(
    options: AnyOptions, data: Sequence[Data], init: Path | None, *, has_accelerator: bool
) -> tuple[str, ModelConfig]:
    if init and options.model is None:
        name, model = str(init), model_of(init)
    else:
        name = options.model or ("base" if has_accelerator else "tiny")
        model = load_model(name, data[0])
        if name in PRESETS:
            longest = max(each.records.seq for each in data)
            model = replace(model, max_position_embeddings=max(model.max_position_embeddings, longest))
    for each in data:
        check_fits_model(each, model, name)
    if options.attention_dropout is not None:
        model = replace(model, attention_probs_dropout_prob=options.attention_dropout)
    return name, model if options.dropout else model.without_dropout()


def _chain(runs: Sequence[Run]) -> list[Run]:
    first, *others = runs
    lengths = [f"seq_{run.data.records.seq}_{run.schedule.steps}_steps" for run in others]
    out = first.options.out or first.out.parent / "_".join([first.out.name, *lengths])
    folders = [out / f"phase-{number}" for number in range(1, len(runs) + 1)]
    return [
        replace(run, options=replace(run.options, out=folder), init=before, is_last=run is runs[-1])
        for run, folder, before in zip(runs, folders, [first.init, *folders], strict=False)
    ]


def _show_devices(engine: Engine) -> None:
    if not engine.is_first:
        print_message(f"one of {engine.processes} processes; the first one reports progress")
        return
    processes = f", {engine.processes} processes" if engine.processes > 1 else ""
    _show({"precision": engine.execution.describe(), "devices": engine.device_name + processes})


def _show(rows: Mapping[str, str]) -> None:
    """Print rows of the plan, as a title and a text each."""
    for title, text in rows.items():
        print_message(f"{title:<13}  {text}")


def _check_memory(run: Run) -> None:
    """Raise `UsageError` where attention alone takes more memory than a machine without a GPU has."""
    batch_size, seq = run.options.batch_size, run.data.records.seq
    scores = 4 * batch_size * run.model.num_attention_heads * seq**2
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if scores > memory:
        raise UsageError(
            f"{run.data.folders[0]}: {batch_size:,} sequences of {seq:,} tokens have attention scores of "
            f"{scores / 1e9:,.0f} GB in each layer, this machine has {memory / 1e9:,.0f} GB of memory; give a smaller --seq or "
            "--batch-size"
        )


def saved_precision(run: Run) -> str | None:
    newest = checkpoint.newest(run.out)
    return checkpoint.read_header(newest).get("precision") if newest else None


def take_precision(precision: str | None, settings: EngineSettings, engine: Engine) -> None:
    """Let a run without `--amp` go on in the precision of its checkpoints; OneFlow on a CPU has float32 only.

    So phases have the precision of the first one, wherever and however often they are stopped.
    """
    is_open = settings.amp == AUTO and (settings.engine != "oneflow" or engine.has_accelerator)
    if precision in PRECISIONS and precision != engine.precision and is_open:
        engine.execution = engine.execution._replace(precision=precision, why="the checkpoint's")


def is_finished(run: Run, settings: EngineSettings) -> bool:
    """Return whether nothing is left to do; raises if --out holds another run, or --init is unusable."""
    newest = checkpoint.newest(run.out)
    if newest is None:
        check_out(run)
        if run.init:
            check_weights(run.init, run.model, run.task)
        return False
    if not run.options.resume:
        raise UsageError(f"{newest}: is there from an earlier run; leave --no-resume out to resume it, or name another --out")
    header = checkpoint.read_header(newest)
    precision = None if settings.amp == AUTO else settings.amp  # of auto it is not known yet
    checkpoint.compare(newest, with_defaults(header), run.header(precision=precision), lengthen=run.options.lengthen)
    if not run.is_finished(header["step"], header.get("evaluated", 0)):
        return False
    checkpoint.read(newest)  # by its checksum: who starts it again may have a reason to
    return True

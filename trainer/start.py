"""A training run from its options to its end: data, weights, the checkpoint that is there, the engine, the plan, the steps.

Options, data and weights are checked before a framework is loaded, which takes seconds; so are the settings of the newest
checkpoint, unless they depend on GPUs that only the framework can count. `--phases` are runs one after the other, each from the
weights of the one before: a finished one returns at once, so a chain that was killed resumes like any run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from bertprep.errors import UsageError
from bertprep.files.lock import locked
from bertprep.progress import say
from bertprep.terminal import counted
from bertprep.workspace.layout import MODELS
from trainer import checkpoint
from trainer.data import Data, ExampleSettings, agree, check_fits_model, check_vocabulary, load_model, open_data
from trainer.engines import Engine, check_engine, choose_engine, known_devices, open_engine
from trainer.engines import oneflow_pipeline as pipeline
from trainer.loop import train
from trainer.model_config import ModelConfig
from trainer.run import Run
from trainer.settings import AUTO, PER_PHASE, AnyOptions, EngineSettings, OptimizerSettings, PretrainOptions
from trainer.weights import check_weights, model_of, resolve_weights, short_name

FINISHED, STOPPED = 0, 3
"""Exit statuses; a run that was stopped has saved a checkpoint and can be resumed."""


def start(options: AnyOptions, settings: EngineSettings, optimizer: OptimizerSettings, examples: ExampleSettings) -> int:
    """Check, open the engine, train; returns the exit status."""
    settings, why_engine = choose_engine(settings)
    phases = read_phases(options)
    init = resolve_weights(options.init, options.workdir) if options.init else None
    with ExitStack() as opened:
        data = [open_data(phase, examples, opened) for phase in phases]
        agree((each.folders[0], each.traits) for each in data)
        if init:
            check_vocabulary(init, data[0])
        check_engine(settings)
        devices, has_accelerator = known_devices(settings)
        engine: Engine | None = None
        if devices is None or (has_accelerator is None and init is None and options.model is None):
            engine = open_engine(settings)
            devices, has_accelerator = engine.devices, engine.has_accelerator
        name, model = _choose_model(options, data, init, has_accelerator=bool(has_accelerator))
        if settings.engine == "oneflow":
            pipeline.check(settings, model, data[0].task, has_accelerator=has_accelerator)
        runs = [
            Run(
                options=phase, optimizer=optimizer, data=of_phase, model=model, model_name=name, devices=devices, init=init,
                out=options.out or Path(),
            )
            for phase, of_phase in zip(phases, data, strict=True)
        ]  # fmt: skip
        for run in _chain(runs, options.out or _default_out(runs)):
            if is_finished(run, settings):
                steps = counted(run.schedule.steps, "step")
                say(f"{run.out}: is finished, with {steps}; --init {run.out} trains it further")
                continue
            engine = engine or open_engine(settings)
            if not _train(run, engine, settings, why_engine):
                return STOPPED
    return FINISHED


def _choose_model(
    options: AnyOptions, data: Sequence[Data], init: Path | None, *, has_accelerator: bool
) -> tuple[str, ModelConfig]:
    """Return the model that `--model` names, that of the weights, or the one that suits the machine; all data must fit it."""
    if init and options.model is None:
        name, model = str(init), model_of(init)
    else:
        name = options.model or ("base" if has_accelerator else "tiny")
        model = load_model(name, next((each for each in data if each.vocabulary_size is not None), data[0]))
    for each in data:
        check_fits_model(each, model, name)
    if init is None and options.model is None and not has_accelerator:
        name += " (there is no accelerator; --model takes another)"
    if options.attention_dropout is not None:
        model = replace(model, attention_probs_dropout_prob=options.attention_dropout)
    return name, model if options.dropout else model.without_dropout()


def _chain(runs: Sequence[Run], out: Path) -> list[Run]:
    """Return runs that start from the weights of the one before, each with a folder of its own where there are several."""
    folders = [out / f"phase-{number}" for number in range(1, len(runs) + 1)] if len(runs) > 1 else [out]
    inits = [runs[0].init, *folders]
    return [
        replace(run, out=folder, init=init, is_last=folder == folders[-1])
        for run, folder, init in zip(runs, folders, inits, strict=False)
    ]


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
    precision = None if settings.amp == AUTO else settings.amp  # else that of the checkpoint
    checkpoint.compare(newest, header, run.header(precision=precision), lengthen=run.options.lengthen)
    if not run.is_finished(header["step"], header.get("evaluated", 0)):
        return False
    checkpoint.read(newest)  # by its checksum: who asks again may have a reason to
    return True


def _train(run: Run, engine: Engine, settings: EngineSettings, why_engine: str) -> bool:
    """Print the plan and train; returns whether the next run may start."""
    with ExitStack() as opened:
        if engine.is_first:
            opened.enter_context(locked(run.out))
        if settings.amp == AUTO:
            engine.execution = engine.execution.resumed(checkpoint.precision_of(run.out))
        if not engine.is_first:
            say(f"one of {engine.processes} processes; the first one reports progress")
            return train(run, engine)
        processes = f", {engine.processes} processes" if engine.processes > 1 else ""
        rows = [
            *run.plan(),
            ("engine", f"{settings.engine}: {why_engine}" if why_engine else settings.engine),
            ("precision", engine.execution.describe()),
            ("devices", engine.device_name + processes),
        ]
        for name, text in rows:
            say(f"{name:<13}  {text}")
        return train(run, engine)


def _default_out(runs: Sequence[Run]) -> Path:
    """Return WORKDIR/models/tiny_sample_ofrecord_seq_128_adam_3454_steps; phases ..._seq_128_512_...; squad_v1.1_MODEL.

    Corpus and steps are in the name, so that a trial run and the real one get different folders.
    """
    options, data = runs[0].options, [run.data for run in runs]
    model = Path(runs[0].model_name.split(" (")[0]).stem
    if options.init and not options.model:
        model = short_name(options.init)
    corpora = dict.fromkeys(each.corpus for of_run in data for each in of_run.sets)
    names = [*corpora, model]
    if not runs[0].task.is_scored:
        formats = dict.fromkeys(name for of_run in data for name in of_run.records.formats)
        lengths = [str(of_run.records.seq) for of_run in data]  # of phases of one length too: a plain run has another folder
        steps = sum(run.schedule.steps for run in runs)
        names = [model, *corpora, *formats, "seq", *lengths, runs[0].optimizer.name, str(steps), "steps"]
    return options.workdir / MODELS / "_".join(names)


def read_phases(options: AnyOptions) -> list[AnyOptions]:
    """Return the options of each run of `--phases`, or those of the only run."""
    phases: list[dict[str, Any]] = [{}]
    names: tuple[str, ...] = PER_PHASE
    if isinstance(options, PretrainOptions) and options.phases is not None:
        phases = _seq_and_steps_of_phases(options, options.phases)
        names = (*PER_PHASE, "data")
    for name in names:
        values = getattr(options, name, ())
        if len(values) not in (0, 1, len(phases)):
            raise UsageError(
                f"{name.replace('_', ' ')}: has {len(values)} values for {counted(len(phases), 'phase')}; give one for all, or "
                "one for each"
            )
        if len(values) > 1:
            for phase, value in zip(phases, values, strict=True):
                phase[name] = (value,)
    return [replace(options, **phase) for phase in phases]


def _seq_and_steps_of_phases(options: PretrainOptions, text: str) -> list[dict[str, Any]]:
    """Return seq and steps of each phase of 128:0.9,512:0.1 (fractions of --steps) or 128:900,512:100."""
    if options.seq is not None:
        raise UsageError(f"--seq {options.seq} does not go with --phases {text}, which gives the sequence length of each phase")
    try:
        seqs, lengths = zip(*(item.split(":") for item in text.split(",")), strict=True)
        fractions = [float(length) for length in lengths]
        if "." in text:
            passed = [0.0, *accumulate(fractions)]
            if options.steps is None or min(fractions) <= 0 or not math.isclose(passed[-1], 1, abs_tol=1e-6):
                raise UsageError(f"--phases {text}: fractions must be above 0 and add up to 1, and need --steps N")
            steps = [round(options.steps * end) - round(options.steps * begin) for begin, end in pairwise(passed)]
        else:
            steps = [int(length) for length in lengths]
        phases = [{"phases": None, "seq": int(seq), "steps": of_phase} for seq, of_phase in zip(seqs, steps, strict=True)]
    except ValueError:
        raise UsageError(
            f"--phases {text}: expected SEQ:FRACTION,... or SEQ:STEPS,..., such as 128:0.9,512:0.1 or 128:900,512:100"
        ) from None
    if options.steps not in (None, sum(steps)):
        raise UsageError(f"--steps {options.steps}: the phases have {sum(steps)} steps; leave --steps out")
    return phases

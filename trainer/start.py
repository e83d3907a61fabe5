"""A run from its request to its end: check what is asked for, open the engine, train.

All that can be wrong without the engine's framework, which takes seconds to load, is found before that.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Protocol

from bertprep.files.lock import locked
from bertprep.files.places import is_object
from bertprep.progress import say
from trainer import checkpoint
from trainer.data import Data
from trainer.engines import Engine, Machine, check_engine, check_installed, look_at_machine, open_engine
from trainer.model_config import ModelConfig
from trainer.resume import check_init, check_resume, describe_finished
from trainer.settings import EngineSettings, Phase, RunSettings
from trainer.signals import exit_on_sigterm
from trainer.tasks import Task

FINISHED, STOPPED = 0, 3
"""Exit statuses: STOPPED is for a run that was told to stop, wrote a checkpoint, and can be resumed."""


class Request(Protocol):
    """What a command line asks for, with the data that it names; what depends on the devices is open."""

    engine: EngineSettings

    def needs_engine(self, machine: Machine) -> bool:
        """Whether the settings depend on what only the engine's framework can tell."""

    def settings_on(self, machine: Engine | Machine) -> RunSettings:
        """The whole run on this machine; of one device, and no accelerator, where these are unknown."""

    def describe(self, settings: RunSettings, machine: Engine | Machine) -> list[tuple[str, str]]:
        """What will be done, as names and texts; how it is executed is the engine's to say."""


@exit_on_sigterm(STOPPED)
def start(request: Request) -> int:
    """Check, open the engine, train; returns the exit status."""
    machine = look_at_machine(request.engine)
    settings = request.settings_on(machine)
    check_engine(request.engine, settings.model, settings.task)
    check_installed(request.engine)
    engine: Engine | None = None
    if request.needs_engine(machine):
        engine = open_engine(request.engine)  # only the framework can tell what the settings depend on
        settings = request.settings_on(engine)
    check_init(settings)
    with ExitStack() as opened:
        if machine.is_first:
            opened.enter_context(locked(settings.out))
        if engine is None:
            saved_precision = checkpoint.precision_of(settings.out) or "off"
            precision = saved_precision if request.engine.amp == "auto" else request.engine.amp
            step = check_resume(settings, devices=machine.devices or 1, precision=precision)
            if step == settings.steps:
                if (newest := checkpoint.newest(settings.out)) and not is_object(newest):
                    checkpoint.read(newest)  # by its checksum: who asks again may have a reason to
                say(describe_finished(settings))
                return FINISHED
        rows = request.describe(settings, engine or machine)
        width = max(len(name) for name, _ in rows)
        if machine.is_first:
            _say_rows(rows, width)
        engine = engine or open_engine(request.engine)
        if settings.resume:
            engine.execution = engine.execution.resumed(checkpoint.precision_of(settings.out))
        if engine.is_first:
            processes = f", {engine.processes} processes" if engine.processes > 1 else ""
            _say_rows([*engine.execution.describe(), ("devices", engine.device_name + processes)], width)
        else:
            say(f"one of {engine.processes} processes; the first one reports progress")
        from trainer.loop import train

        return FINISHED if train(settings, engine) else STOPPED


def _say_rows(rows: Sequence[tuple[str, str]], width: int) -> None:
    for name, text in rows:
        say(f"{name:<{width}}  {text}")


def describe_engine(settings: EngineSettings) -> str:
    """One line: which engine, and why where none was asked for."""
    return f"{settings.engine}: {settings.why_engine}" if settings.why_engine else settings.engine


def describe_model(name: str, model: ModelConfig, task: Task) -> str:
    """One line: which model, of which sizes."""
    has_dropout = model != model.without_dropout()
    parameters = sum(math.prod(shape) for shape in task.variable_shapes(model).values())
    return (
        f"{name}: {model.num_hidden_layers} layers of {model.hidden_size}, a vocabulary of {model.vocab_size:,}, "
        f"{parameters:,} parameters" + ("" if has_dropout else ", no dropout")
    )


def describe_phase(phase: Phase, data: Data, devices: int) -> Iterator[tuple[str, str]]:
    """What a phase does, as names and texts."""
    yield "data", data.describe()
    global_batch = phase.batch_size * devices * phase.accumulation
    repeated = f"; the {data.records:,} records are fewer, so a step has some more than once" * (data.records < global_batch)
    yield (
        "global batch",
        f"{global_batch:,} sequences: {phase.batch_size:,} x {devices:,} (devices) x {phase.accumulation:,} (accumulated)"
        + repeated,
    )
    yield "steps", f"{phase.steps:,}, which is {phase.steps * global_batch / data.records:.3g} epochs"
    yield "learning rate", f"{phase.schedule.peak:g} after {phase.schedule.warmup_steps:,} steps of warmup"

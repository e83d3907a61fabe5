"""`python -m trainer pretrain`: check what is asked for, open the engine, train.

All that can be wrong without the engine's framework, which takes seconds to load, is found before that. What was not asked
for is chosen, and said.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from bertprep.config import RECORD_FORMATS
from bertprep.errors import UsageError
from bertprep.files.lock import locked
from bertprep.options import add_options, check_options, option, read_options
from bertprep.progress import say
from trainer import checkpoint
from trainer.data import DEFAULT_SEQ, Data, check_fits_model, check_same_vocabulary, find_data, name_data
from trainer.engines import Engine, Machine, check_engine, check_installed, look_at_machine, open_engine
from trainer.model_config import PRESETS, ModelConfig
from trainer.phases import Entry, PhaseOptions, check_learning, make_phases, read_phases
from trainer.resume import check_init, check_resume, describe_finished
from trainer.settings import EngineSettings, OptimizerSettings, Phase, RunSettings
from trainer.signals import exit_on_sigterm
from trainer.weights import find_weights, variable_shapes

FINISHED, STOPPED = 0, 3
"""Exit statuses: STOPPED is for a run that was told to stop, wrote a checkpoint, and can be resumed."""


@dataclass(frozen=True, kw_only=True)
class PretrainOptions:
    """What is asked of a run beside its phases and the settings of its parts."""

    format: str | None = option(None, "record format (default: that of the newest records)", choices=RECORD_FORMATS)
    workdir: Path = option(Path("data"), "workspace", metavar="DIR")
    vocab: Path | None = option(None, "vocabulary (default: the vocab.txt beside the records)", metavar="FILE")
    model: str | None = option(
        None, f"{', '.join(PRESETS)}, or a bert_config.json (default: base with an accelerator, else tiny)", metavar="NAME|FILE"
    )
    dropout: bool = option(True, "train without dropout, to compare runs (default: with dropout)")
    out: Path | None = option(
        None, "checkpoints, log and plot; a run that is there is resumed (default: in WORKDIR/models, named by what it trains)",
        metavar="DIR",
    )  # fmt: skip

    def __post_init__(self) -> None:
        check_options(self)


_GROUPS: tuple[tuple[str, str | None, type], ...] = (
    ("data and steps", "With --phases, options of N[,N...] take one value for all phases, or one for each.", PhaseOptions),
    ("workspace and model", None, PretrainOptions),
    ("optimizer", None, OptimizerSettings),
    ("devices", None, EngineSettings),
    ("run", None, RunSettings),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of pretrain, in groups."""
    for title, description, settings in _GROUPS:
        add_options(parser.add_argument_group(title, description), settings)


class _Request:
    """What the command line asks for, with the data that it names; what depends on the devices is open."""

    def __init__(self, namespace: argparse.Namespace) -> None:
        """Raises `UsageError` where the options are wrong, do not go together, or name what is not there."""
        self._namespace = namespace
        self.options = read_options(PretrainOptions, namespace)
        self.engine = read_options(EngineSettings, namespace)
        self._phases = read_options(PhaseOptions, namespace)
        self._optimizer = read_options(OptimizerSettings, namespace)
        if namespace.init is not None:
            try:
                find_weights(namespace.init)
            except UsageError as error:
                raise UsageError(f"--init {error}") from error
        self._entries = read_phases(self._phases)
        self.data = _find_data(self._entries, self.options)

    def settings_on(self, machine: Engine | Machine) -> RunSettings:
        """The whole run on this machine; of one device, and no accelerator, where these are unknown."""
        devices, options = machine.devices or 1, self.options
        name = options.model if options.model is not None else "base" if machine.has_accelerator else "tiny"
        model = _load_model(name, self.data)
        phases = make_phases(self._entries, self.data, self._phases, devices=devices, optimizer=self._optimizer.name)
        settings = read_options(
            RunSettings,
            self._namespace,
            model=model if options.dropout else model.without_dropout(),
            phases=phases,
            optimizer=self._optimizer,
            out=options.out or _default_out(options.workdir, name, phases, self._optimizer.name),
            vocabulary=next((each.vocabulary for each in self.data if each.vocabulary is not None), None),
            cased=next((each.cased for each in self.data if each.cased is not None), None),
        )
        check_learning(phases, self.data, devices=devices)
        return settings

    def describe(self, settings: RunSettings, machine: Engine | Machine) -> list[tuple[str, str]]:
        """What will be done, as names and texts; how it is executed is the engine's to say."""
        rows = [("model", self._describe_model(settings.model, has_accelerator=bool(machine.has_accelerator)))]
        for number, (phase, data) in enumerate(zip(settings.phases, self.data, strict=True), 1):
            prefix = f"phase {number} " if len(self.data) > 1 else ""
            rows += [(prefix + name, text) for name, text in _describe_phase(phase, data, machine.devices or 1)]
        return [*rows, ("optimizer", settings.optimizer.describe()), ("engine", self.engine.engine), ("out", str(settings.out))]

    def _describe_model(self, model: ModelConfig, *, has_accelerator: bool) -> str:
        name = self.options.model or ("base" if has_accelerator else "tiny (there is no accelerator; --model takes another)")
        parameters = sum(math.prod(shape) for shape in variable_shapes(model).values())
        dropout = "" if self.options.dropout else ", no dropout"
        return (
            f"{name}: {model.num_hidden_layers} layers of {model.hidden_size}, a vocabulary of {model.vocab_size:,}, "
            f"{parameters:,} parameters{dropout}"
        )


@exit_on_sigterm(STOPPED)
def run(namespace: argparse.Namespace) -> int:
    """Check, open the engine, train; returns the exit status."""
    request = _Request(namespace)
    machine = look_at_machine(request.engine)
    settings = request.settings_on(machine)
    check_engine(request.engine, settings.model)
    check_installed(request.engine)
    engine: Engine | None = None
    if machine.devices is None or (machine.has_accelerator is None and request.options.model is None):
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


def _find_data(phases: Sequence[Entry], options: PretrainOptions) -> list[Data]:
    """The records of each phase, which go together."""
    data: list[Data] = []
    for phase in phases:
        if "data" in phase:
            data.append(name_data(phase["data"], phase.get("seq"), options.format, vocabulary=options.vocab))
            continue
        # `create` makes both formats in one go, so which is newer says nothing: all phases have that of the first
        record_format = options.format or next((each.format for each in data if each.format in RECORD_FORMATS), None)
        data.append(find_data(options.workdir, phase.get("seq", DEFAULT_SEQ), record_format, vocabulary=options.vocab))
    check_same_vocabulary(data)
    return data


def _load_model(name: str, data: Sequence[Data]) -> ModelConfig:
    """The model of that name, checked against the data; a preset takes the size of its vocabulary from them."""
    size = next((each.vocabulary_size for each in data if each.vocabulary_size is not None), None)
    if size is None and name in PRESETS:
        raise UsageError(
            f"{data[0].folders[0]}: has no vocab.txt beside its records, so the size of the model's vocabulary is not known; "
            "name the file with --vocab, or a bert_config.json with --model"
        )
    model = ModelConfig.load(name, vocab_size=size or 1)
    for each in data:
        check_fits_model(each, model, name)
    return model


def _default_out(workdir: Path, model: str, phases: Sequence[Phase], optimizer: str) -> Path:
    """WORKDIR/models/tiny_seq_128_adam_3454_steps; with phases .../tiny_seq_128_512_adam_3454_steps.

    A run for trying things is shorter than the one that is meant, so the steps keep them apart.
    """
    if model not in PRESETS:
        path = Path(model).resolve()
        model = path.parent.name if path.stem in ("bert_config", "config") else path.stem
    lengths, steps = "_".join(str(phase.seq) for phase in phases), sum(phase.steps for phase in phases)
    return workdir / "models" / f"{model}_seq_{lengths}_{optimizer}_{steps}_steps"


def _describe_phase(phase: Phase, data: Data, devices: int) -> Iterator[tuple[str, str]]:
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

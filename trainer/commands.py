"""What each command does: check what is asked for, open the engine, call one function.

All that can be wrong without the engine's framework, which takes seconds to load, is found before that. What was not asked
for is chosen, and said.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from bertprep.config import RECORD_FORMATS
from bertprep.errors import UsageError
from bertprep.files.lock import locked
from bertprep.progress import say
from trainer import checkpoint
from trainer.data import DEFAULT_SEQ, Data, check_fits_model, check_same_vocabulary, find_data, name_data
from trainer.engines import Engine, Machine, check_engine, look_at_machine, open_engine
from trainer.execution import Execution, choose_execution, this_cpu
from trainer.initial_weights import find_weights
from trainer.model_config import PRESETS, ModelConfig
from trainer.optimizer import FIXED, OptimizerSettings
from trainer.phases import PhaseOptions, PhaseRequest, check_learning, make_phases, read_phases
from trainer.resume import check_init, check_resume, describe_finished
from trainer.settings import EngineSettings, Phase, RunSettings
from trainer.signals import exit_on_sigterm
from trainer.variables import variable_shapes

FINISHED, STOPPED = 0, 3
"""Exit statuses of pretrain: STOPPED is for a run that was told to stop, wrote a checkpoint, and can be continued."""


def pretrain_command(options: argparse.Namespace) -> int:
    """`python -m trainer pretrain`; returns the exit status."""
    phases = read_phases(
        options.phases,
        PhaseOptions(
            data=tuple(options.data),
            seq=options.seq,
            batch_size=options.batch_size,
            accumulate=options.accumulate,
            lr=options.lr,
            warmup_steps=options.warmup_steps,
        ),
    )
    engine_settings = read_engine_settings(options)
    if options.init is not None:
        try:
            find_weights(options.init)
        except UsageError as error:
            raise UsageError(f"--init {error}") from error
    data = _data_of(phases, options)
    check_engine(engine_settings, run_settings(options, phases, data, devices=1, has_accelerator=False).model)
    machine = look_at_machine(engine_settings)
    expected = run_settings(options, phases, data, devices=machine.devices or 1, has_accelerator=bool(machine.has_accelerator))
    execution = _execution_on(machine, engine_settings, expected)
    unknown = _unknown(options, phases, machine)
    if execution is None and options.amp == "auto":
        unknown.add("precision")
    check_init(expected, unknown=unknown)
    with ExitStack() as opened:
        opened.enter_context(exit_on_sigterm(STOPPED))
        out = expected.out if machine.is_first and "out" not in unknown else None
        if out:
            opened.enter_context(locked(out))
        precision = execution.precision if execution else options.amp
        step = check_resume(expected, devices=machine.devices or 1, precision=precision, unknown=unknown)
        if not unknown and step == expected.steps:
            say(describe_finished(expected))
            return FINISHED
        shown = describe(options, expected, data, machine, execution, unknown) if machine.is_first else []
        _say_rows(shown)
        engine = open_engine(engine_settings)
        settings = run_settings(options, phases, data, devices=engine.devices, has_accelerator=engine.has_accelerator)
        if settings.resume:
            engine.execution = engine.execution.resumed(checkpoint.precision_of(settings.out))
        if engine.is_first:
            _say_rows([row for row in describe(options, settings, data, engine, engine.execution) if row not in shown])
            if settings.out != out:
                opened.enter_context(locked(settings.out))
        else:
            say(f"one of {engine.processes} processes: training; the first tells how it goes")
        from trainer.loop import train

        outcome = train(settings, engine)
    return FINISHED if outcome.is_finished else STOPPED


def _execution_on(machine: Machine, engine: EngineSettings, expected: RunSettings) -> Execution | None:
    """How steps will be executed, where the machine is known to have no accelerator."""
    if machine.has_accelerator is not False:
        return None
    execution = choose_execution(engine, [this_cpu()])
    return execution.resumed(checkpoint.precision_of(expected.out)) if expected.resume else execution


def _unknown(options: argparse.Namespace, phases: Sequence[PhaseRequest], machine: Machine) -> set[str]:
    """The settings that depend on devices which only the framework can find."""
    unknown = set()
    if options.model is None and machine.has_accelerator is None:
        unknown |= {"model", "out"}
    if machine.devices is None:
        unknown.add("global_batch")
        if options.steps is None and phases[0].steps is None:
            unknown |= {"schedule", "out"}
    return unknown - {"out"} if options.out else unknown


def export_command(options: argparse.Namespace) -> None:
    """`python -m trainer export`."""
    from trainer.export import export_model

    export_model(options.source, options.target, to=options.to)


def bench_command(options: argparse.Namespace) -> None:
    """`python -m trainer bench`."""
    from trainer.bench import run as bench

    bench.bench_command(options)


def read_engine_settings(options: argparse.Namespace) -> EngineSettings:
    """What runs the steps, as options say it."""
    hosts = tuple(options.hosts.split(",")) if options.hosts else ()
    for host in hosts:
        name, _, port = host.rpartition(":")
        if not name or not port.isdecimal():
            raise UsageError(f"--hosts {options.hosts}: {host!r} is no HOST:PORT, such as node0:12345")
    if hosts and options.host_rank is None:
        raise UsageError(f"--hosts {options.hosts}: needs --host-rank, the place of this process among them, from 0")
    if options.host_rank is not None and not hosts:
        raise UsageError(f"--host-rank {options.host_rank}: needs --hosts, which names all processes")
    return EngineSettings(
        engine=options.engine,
        devices=options.devices,
        hosts=hosts,
        host_rank=options.host_rank or 0,
        amp=options.amp,
        xla=options.xla,
        deterministic=options.deterministic,
        loss_scale=options.loss_scale,
        stages=options.stages,
        strategy=options.strategy,
        checkpoint_activations=options.checkpoint_activations,
        eager=options.eager,
    )


def _data_of(phases: Sequence[PhaseRequest], options: argparse.Namespace) -> list[Data]:
    """The records of each phase, which go together."""
    if options.format not in (None, *RECORD_FORMATS):
        raise UsageError(f"--format {options.format}: unknown; choose one of {', '.join(RECORD_FORMATS)}")
    data: list[Data] = []
    for phase in phases:
        if phase.data:
            data.append(name_data(phase.data, phase.seq, options.format, vocabulary=options.vocab))
            continue
        # `create` makes both formats in one go, so which is newer says nothing: phases have that of the first
        record_format = options.format or next((each.format for each in data if each.format in RECORD_FORMATS), None)
        data.append(find_data(options.workdir, phase.seq or DEFAULT_SEQ, record_format, vocabulary=options.vocab))
    check_same_vocabulary(data)
    return data


def run_settings(
    options: argparse.Namespace, phases: Sequence[PhaseRequest], data: Sequence[Data], *, devices: int, has_accelerator: bool
) -> RunSettings:
    """The whole run on so many devices; raises `UsageError` where parts of it do not go together."""
    name = options.model if options.model is not None else "base" if has_accelerator else "tiny"
    model = _model(name, data)
    made_phases = make_phases(
        phases, data, steps=options.steps, devices=devices, optimizer=options.optimizer, schedule=options.schedule
    )
    vocabularies = [each.vocabulary for each in data if each.vocabulary is not None]
    settings = RunSettings(
        model=model if options.dropout else model.without_dropout(),
        optimizer=OptimizerSettings(
            name=options.optimizer,
            bias_correction=options.bias_correction,
            **{name: getattr(options, name) for name in FIXED},
        ),
        phases=made_phases,
        out=options.out or _default_out(options.workdir, name, made_phases, options.optimizer),
        seed=options.seed,
        init=options.init,
        resume=options.resume,
        lengthen=options.lengthen,
        log_every=options.log_every,
        eval_every=options.eval_every,
        save_every=options.save_every,
        keep=options.keep,
        keep_best=options.keep_best,
        eval_sequences=options.eval_sequences,
        skip_bad_records=options.skip_bad_records,
        vocabulary=vocabularies[0] if vocabularies else None,
        cased=next((each.cased for each in data if each.cased is not None), None),
    )
    check_learning(made_phases, data, devices=devices)
    return settings


def _model(name: str, data: Sequence[Data]) -> ModelConfig:
    """The model of that name, to which the data fit; a preset has the vocabulary's size of the data."""
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


def describe(
    options: argparse.Namespace,
    settings: RunSettings,
    data: Sequence[Data],
    engine: Engine | Machine,
    execution: Execution | None,
    unknown: Collection[str] = (),
) -> list[tuple[str, str]]:
    """What will be done, as names and texts; of a machine that the framework has not looked at yet, without what is unknown."""
    rows = []
    if "model" not in unknown:
        rows.append(("model", _describe_model(options, settings.model, has_accelerator=bool(engine.has_accelerator))))
    for number, each in enumerate(data):
        rows += _describe_phase(settings, number, each, engine.devices, unknown)
    rows += [
        ("optimizer", settings.optimizer.describe()),
        *(execution.describe() if execution else ()),
        ("engine", options.engine),
    ]
    if "out" not in unknown:
        rows.append(("out", str(settings.out)))
    if not isinstance(engine, Machine):
        rows.append(("devices", engine.device_name + (f", {engine.processes} processes" if engine.processes > 1 else "")))
    width = len(_prefix(settings, 0) + "learning rate")
    return [(f"{name:<{width}}", text) for name, text in rows]


def _say_rows(rows: Sequence[tuple[str, str]]) -> None:
    for name, text in rows:
        say(f"{name}  {text}")


def _describe_model(options: argparse.Namespace, model: ModelConfig, *, has_accelerator: bool) -> str:
    name = options.model or ("base" if has_accelerator else "tiny (there is no accelerator; --model takes another)")
    parameters = sum(math.prod(shape) for shape in variable_shapes(model).values())
    dropout = "" if options.dropout else ", no dropout"
    return (
        f"{name}: {model.num_hidden_layers} layers of {model.hidden_size}, a vocabulary of {model.vocab_size:,}, "
        f"{parameters:,} parameters{dropout}"
    )


def _prefix(settings: RunSettings, number: int) -> str:
    return f"phase {number + 1} " if len(settings.phases) > 1 else ""


def _describe_phase(
    settings: RunSettings, number: int, data: Data, devices: int | None, unknown: Collection[str]
) -> Iterator[tuple[str, str]]:
    phase = settings.phases[number]
    prefix = _prefix(settings, number)
    yield f"{prefix}data", data.describe()
    if devices is not None:
        global_batch = phase.batch_size * devices * phase.accumulation
        repeated = f"; the {data.records:,} records are fewer, a step has some more than once" * (data.records < global_batch)
        yield (
            f"{prefix}global batch",
            f"{global_batch:,} sequences: {phase.batch_size:,} x {devices:,} (devices) x {phase.accumulation:,} (accumulated)"
            + repeated,
        )
        yield f"{prefix}steps", f"{phase.steps:,}, which is {phase.steps * global_batch / data.records:.3g} epochs"
    if "schedule" not in unknown:
        schedule = phase.schedule
        yield f"{prefix}learning rate", f"{schedule.peak:g} after {schedule.warmup_steps:,} steps of warmup"

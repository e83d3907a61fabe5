"""What each command does: check what is asked for, open the engine, call one function.

All that can be wrong without the engine's framework, which takes seconds to load, is found before that. What was not asked
for is chosen, and said.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from bertprep.config import RECORD_FORMATS
from bertprep.errors import UsageError
from bertprep.progress import say
from trainer.config import PRESETS, ModelConfig
from trainer.data import DEFAULT_SEQ, Data, check_fits_model, check_same_vocabulary, find_data, name_data
from trainer.engines import Engine, check_engine, open_engine
from trainer.optimizer import OptimizerSettings
from trainer.phases import PhaseOptions, PhaseRequest, make_phases, read_phases
from trainer.settings import EngineSettings, Phase, RunSettings
from trainer.variables import variable_shapes

FINISHED, STOPPED = 0, 3
"""Exit statuses of pretrain: STOPPED is for a run that was told to stop, wrote a checkpoint, and can be continued."""
_PRECISIONS = {"off": "float32", "fp16": "fp16 with loss scaling", "bf16": "bf16"}


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
    if options.init is not None and not options.init.exists():
        raise UsageError(f"--init {options.init}: does not exist; name a checkpoint, a folder of them, or a model.safetensors")
    data = _data_of(phases, options)
    expected = run_settings(options, phases, data, devices=options.devices or 1, has_accelerator=False)  # for what it refuses
    check_engine(engine_settings, expected.model)
    engine = open_engine(engine_settings)
    settings = run_settings(options, phases, data, devices=engine.devices, has_accelerator=engine.has_accelerator)
    if engine.is_first:
        for line in describe(options, settings, data, engine):
            say(line)
    else:
        say(f"one of {engine.processes} processes: training; the first tells how it goes")
    from trainer.loop import train

    outcome = train(settings, engine)
    return FINISHED if outcome.is_finished else STOPPED


def export_command(options: argparse.Namespace) -> None:
    """`python -m trainer export`."""
    from trainer.export import export_model

    export_model(options.source, options.target, to=options.to)


def bench_command(options: argparse.Namespace) -> None:
    """`python -m trainer bench`."""
    from trainer import bench

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
    name = options.model or ("base" if has_accelerator else "tiny")
    model = _model(name, data)
    made_phases = make_phases(
        phases, data, steps=options.steps, devices=devices, optimizer=options.optimizer, schedule=options.schedule
    )
    vocabularies = [each.vocabulary for each in data if each.vocabulary is not None]
    return RunSettings(
        model=model if options.dropout else model.without_dropout(),
        optimizer=OptimizerSettings(name=options.optimizer, bias_correction=options.bias_correction),
        phases=made_phases,
        out=options.out or _default_out(options.workdir, name, made_phases, options.optimizer),
        seed=options.seed,
        init=options.init,
        resume=options.resume,
        log_every=options.log_every,
        eval_every=options.eval_every,
        save_every=options.save_every,
        keep=options.keep,
        eval_sequences=options.eval_sequences,
        vocabulary=vocabularies[0] if vocabularies else None,
        cased=next((each.cased for each in data if each.cased is not None), None),
    )


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


def describe(options: argparse.Namespace, settings: RunSettings, data: Sequence[Data], engine: Engine) -> list[str]:
    """What will be done, in aligned lines."""
    rows = [("model", _describe_model(options, settings.model, has_accelerator=engine.has_accelerator))]
    for number, each in enumerate(data):
        rows += _describe_phase(settings, number, each, engine.devices)
    slow = "" if engine.has_accelerator or (options.amp == "off" and not options.xla) else ": slower than without, on a CPU"
    optimizer = settings.optimizer.name + (" with bias correction" if settings.optimizer.bias_correction else "")
    rows += [
        ("optimizer", optimizer),
        ("precision", _PRECISIONS[options.amp] + (", XLA" if options.xla else "") + slow),
        ("engine", options.engine),
        ("devices", engine.device_name + (f", {engine.processes} processes" if engine.processes > 1 else "")),
        ("out", str(settings.out)),
    ]
    width = max(len(name) for name, _ in rows)
    return [f"{name:<{width}}  {text}" for name, text in rows]


def _describe_model(options: argparse.Namespace, model: ModelConfig, *, has_accelerator: bool) -> str:
    name = options.model or ("base" if has_accelerator else "tiny (there is no accelerator; --model takes another)")
    parameters = sum(math.prod(shape) for shape in variable_shapes(model).values())
    dropout = "" if options.dropout else ", no dropout"
    return (
        f"{name}: {model.num_hidden_layers} layers of {model.hidden_size}, a vocabulary of {model.vocab_size:,}, "
        f"{parameters:,} parameters{dropout}"
    )


def _describe_phase(settings: RunSettings, number: int, data: Data, devices: int) -> Iterator[tuple[str, str]]:
    phase = settings.phases[number]
    prefix = f"phase {number + 1} " if len(settings.phases) > 1 else ""
    global_batch = phase.batch_size * devices * phase.accumulation
    yield f"{prefix}data", data.describe()
    yield (
        f"{prefix}global batch",
        f"{global_batch:,} sequences: {phase.batch_size:,} x {devices:,} (devices) x {phase.accumulation:,} (accumulated)",
    )
    yield f"{prefix}steps", f"{phase.steps:,}, which is {phase.steps * global_batch / data.records:.3g} epochs"
    schedule = phase.schedule
    yield f"{prefix}learning rate", f"{schedule.peak:g} after {schedule.warmup_steps:,} steps of warmup"

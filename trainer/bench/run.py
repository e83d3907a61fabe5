"""How many sequences a second a machine trains: skip steps, time steps, repeat, take the median, as reports in the field do.

The batches are made up, full and in memory, so that steps alone are measured; with --data they are read as in training. As
there, an accelerator is given each step before the one before it is waited for; the clock is read when all are done.
"""

from __future__ import annotations

import argparse
import shlex
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np

from bertprep.errors import UsageError
from bertprep.progress import say
from bertprep.records import Examples
from bertprep.records.record_set import RecordSet
from bertprep.terminal import tell
from trainer.batches import GlobalBatch, TrainingBatches
from trainer.bench.largest_batch import LARGEST, arguments_of, find_largest, fits
from trainer.bench.synthetic import make_up_records
from trainer.bench.table import TABLE, Row, keep_row, to_markdown
from trainer.data import check_fits_model, name_data
from trainer.engines import Engine, check_engine, open_engine, steps_ahead
from trainer.execution import this_cpu
from trainer.metrics import training_flops
from trainer.model_config import ModelConfig
from trainer.optimizer import OptimizerSettings
from trainer.settings import EngineSettings, check_folder

_HELD = 2  # batches in use: that of the step that runs, and that of the one begun behind it
_MADE_UP = 4  # batches in memory, taken in turn
_LEARNING_RATE = 1e-6  # a learning rate that leads nowhere
_SEED = 12345
_PRECISIONS = {"off": "fp32", "fp16": "fp16", "bf16": "bf16"}


def bench_command(options: argparse.Namespace) -> None:
    """`python -m trainer bench`."""
    settings = read_settings(options)
    if options.batch_size == LARGEST:
        options.batch_size = find_largest(lambda size: fits(options, size))
        say(f"the largest batch that fits: {options.batch_size:,} sequences of a device")
    command = shlex.join(["python", "-m", "trainer", *arguments_of(options)])
    check_engine(settings.engine, settings.model)
    engine = open_engine(settings.engine)
    row = measure(engine, settings, batch_size=options.batch_size, command=command)
    if engine.is_first:
        rows = keep_row(options.out, row)
        tell(*to_markdown([row]).splitlines())
        say(f"{options.out / TABLE}: {len(rows):,} row{'s' if len(rows) > 1 else ''}")


@dataclass(frozen=True, kw_only=True)
class BenchSettings:
    """What is measured; the batch size may have to be found first."""

    model_name: str
    model: ModelConfig
    engine: EngineSettings
    optimizer: OptimizerSettings
    data: tuple[Path, ...]  # none: made up
    seq: int
    pred: int
    accumulation: int
    steps: int
    skip: int
    repeats: int


def read_settings(options: argparse.Namespace) -> BenchSettings:
    """What the options ask for, checked without an engine."""
    for name in ("seq", "pred", "accumulate", "steps", "repeats"):
        if getattr(options, name) < 1:
            raise UsageError(f"--{name} {getattr(options, name)}: must be at least 1")
    check_folder("--out", options.out)
    if options.skip < 0:
        raise UsageError(f"--skip {options.skip}: must be at least 0")
    if options.batch_size != LARGEST and options.batch_size < 1:
        raise UsageError(f"--batch-size {options.batch_size}: must be at least 1")
    if options.data:
        data = name_data(options.data)
        seq, pred, known_vocabulary = data.seq, data.pred, data.vocabulary_size
        model = ModelConfig.load(options.model, **({"vocab_size": known_vocabulary} if known_vocabulary else {}))
        check_fits_model(data, model, options.model)
    else:
        seq, pred, model = options.seq, options.pred, ModelConfig.load(options.model)
        if seq > model.max_position_embeddings or pred > seq:
            raise UsageError(
                f"--seq {seq} --pred {pred}: the model has {model.max_position_embeddings} positions, and a sequence has at "
                "most as many predictions as tokens"
            )
    return BenchSettings(
        model_name=options.model,
        model=model,
        engine=EngineSettings(
            engine=options.engine,
            devices=options.devices,
            amp=options.amp,
            xla=options.xla,
            deterministic=options.deterministic,
            stages=options.stages,
            strategy=options.strategy,
            checkpoint_activations=options.checkpoint_activations,
            eager=options.eager,
        ),
        optimizer=OptimizerSettings(name=options.optimizer),
        data=tuple(options.data),
        seq=seq,
        pred=pred,
        accumulation=options.accumulate,
        steps=options.steps,
        skip=options.skip,
        repeats=options.repeats,
    )


def measure(engine: Engine, settings: BenchSettings, *, batch_size: int, command: str) -> Row:
    """Time steps on an engine; `command` is what asked for it."""
    global_batch = batch_size * engine.devices * settings.accumulation
    batch = GlobalBatch(global_batch, engine.data_world_size, engine.data_rank, settings.accumulation)
    engine.build(settings.model, settings.optimizer, seed=_SEED)
    seconds, cpu_seconds = [], []  # of a step, in each repeat
    with _open_batches(settings, batch) as batches:
        for repeat in range(settings.repeats):
            first = repeat * (settings.skip + settings.steps)
            _run_steps(engine, batches, first, settings.skip, settings.accumulation)
            wall, cpu = time.perf_counter(), time.process_time()
            _run_steps(engine, batches, first + settings.skip, settings.steps, settings.accumulation)
            seconds.append((time.perf_counter() - wall) / settings.steps)
            cpu_seconds.append((time.process_time() - cpu) / settings.steps)
            if engine.is_first:
                say(f"repeat {repeat + 1} of {settings.repeats}: {global_batch / seconds[-1]:,.1f} sequences/s")
    rates = [global_batch / each for each in seconds]
    rate = statistics.median(rates)
    return Row(
        engine=settings.engine.engine,
        device=engine.device_name,
        devices=engine.devices,
        has_accelerator=engine.has_accelerator,
        processor=this_cpu().name,
        processes=engine.processes,
        execution=_execution(settings.engine),
        model=settings.model_name,
        vocab_size=settings.model.vocab_size,
        optimizer=settings.optimizer.name,
        precision=_PRECISIONS[engine.execution.precision],
        xla=engine.execution.xla,
        batch_size=batch_size,
        accumulation=settings.accumulation,
        seq=settings.seq,
        pred=settings.pred,
        data="read" if settings.data else "made up",
        skipped_steps=settings.skip,
        timed_steps=settings.steps,
        sequences_per_second=rate,
        sequences_per_second_of_repeats=rates,
        tokens_per_second=rate * settings.seq,
        flops_per_second=rate * training_flops(settings.model, seq=settings.seq, pred=settings.pred),
        milliseconds_per_step=1000 * statistics.median(seconds),
        cpu_seconds_per_step=statistics.median(cpu_seconds),
        date=str(date.today()),
        versions=dict(engine.versions),
        command=command,
    )


def _execution(settings: EngineSettings) -> str:
    """What of a step's execution the settings change, for people."""
    asked = {
        "eager": settings.eager,
        "activations computed again": settings.checkpoint_activations,
        settings.strategy: settings.stages > 1,
        "not deterministic": settings.deterministic == "off",
    }
    return ", ".join(name for name, is_asked in asked.items() if is_asked)


def _run_steps(engine: Engine, batches: Iterator[Examples], first: int, count: int, accumulation: int) -> None:
    """Make `count` steps, and wait for the last of them."""
    begun: deque[Callable[[], Any]] = deque()
    for step in range(first, first + count):
        begun.append(
            engine.train(next(batches), step=step, learning_rate=_LEARNING_RATE, accumulation=accumulation, stop=False)
        )
        if len(begun) > steps_ahead(engine):
            begun.popleft()()
    for wait in begun:
        wait()


@contextmanager
def _open_batches(settings: BenchSettings, batch: GlobalBatch) -> Iterator[Iterator[Examples]]:
    """This rank's shares of batches, without end."""
    if settings.data:
        sizes = settings.model
        records = RecordSet(settings.data, vocab_size=sizes.vocab_size, type_vocab_size=sizes.type_vocab_size)
        with records, TrainingBatches(records, batch, seed=_SEED).from_step(0, held=_HELD) as ready:
            yield ready
        return
    rng = np.random.default_rng([_SEED, batch.data_rank])
    shape = {"seq": settings.seq, "pred": settings.pred, "vocab_size": settings.model.vocab_size}
    yield cycle([make_up_records(rng, batch.rank_size, **shape) for _ in range(_MADE_UP)])

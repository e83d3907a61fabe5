"""`python -m trainer bench`: skip steps, time steps, repeat, take the median, as reports in the field do.

The batches are synthetic, full and in memory, so that only steps are measured; with --data they are read as in training. As in
training, each step is queued on an accelerator before the previous one is awaited; the clock is read when all are done.
"""

from __future__ import annotations

import argparse
import resource
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np

from bertprep.config import NEXT_SENTENCE, PAIRS, InstanceSettings
from bertprep.errors import BertprepError, UsageError
from bertprep.options import add_options, check_options, command_line, option, read_options, whole_number
from bertprep.progress import say
from bertprep.records import Examples, PretrainingExamples
from bertprep.records.data_sets import DataSet, find_token_shards, load_vocabulary_of
from bertprep.records.live import DEFAULT_GROUP, LiveExamples, is_cased
from bertprep.records.record_set import RecordSet
from bertprep.terminal import tell
from bertprep.workspace.layout import TRAINING
from trainer.batches import GlobalBatch, TrainingBatches
from trainer.bench.peaks import peak_of
from trainer.bench.table import TABLE, Row, keep_row, read_rows, to_markdown
from trainer.data import check_fits_model, holds_tokens, name_data, name_tokens
from trainer.engines import Engine, check_engine, check_installed, choose_engine, open_engine, steps_ahead
from trainer.engines.execution import this_cpu
from trainer.model_config import PRESETS, ModelConfig
from trainer.settings import OPTIMIZERS, EngineSettings, LiveSettings, OptimizerSettings, check_folder
from trainer.start import describe_engine
from trainer.tasks import Task
from trainer.tasks.pretraining import PRETRAINING, pretraining_on

LARGEST = "largest"
_NOT_MEASURED = ("hosts", "host_rank", "loss_scale")  # of the engine's settings
_MOST_SEQUENCES = 1 << 16  # most sequences per device to try; more was not intended
_HELD = 2  # batches in use: those of the current and the next step
_SYNTHETIC = 4  # batches in memory, used in turn
_LEARNING_RATE = 1e-6  # an --out that is never written
_SEED = 12345
_PRECISIONS = {"off": "fp32", "fp16": "fp16", "bf16": "bf16"}


def _batch_size(text: str) -> int | str:
    return text if text == LARGEST else whole_number(text)


@dataclass(frozen=True, kw_only=True)
class BenchSettings:
    """The settings of a measurement."""

    model: str = option("base", f"{', '.join(PRESETS)}, or a bert_config.json", metavar="NAME|FILE")
    seq: int = option(128, "tokens in a sequence", least=1)
    pred: int = option(20, "predictions in a sequence", least=1)
    data: tuple[Path, ...] = option(
        (), "folders of records, or of token shards, of which examples of --seq and --pred are made as they are read (default: "
        "synthetic batches in memory)",
        metavar="DIR", urls=True,
    )  # fmt: skip
    vocab: Path | None = option(
        None, "token shards: vocabulary (default: the vocab.txt beside them)", metavar="FILE", urls=True
    )
    pairs: str = option(NEXT_SENTENCE, "token shards: as in create", choices=PAIRS)
    batch_size: int | str = option(
        32, "sequences per device in a micro-batch, or the most that fit", metavar="INT|largest", parse=_batch_size, least=1
    )
    accumulation: int = option(1, "micro-batches per step", name="--accumulate", least=1)
    optimizer: str = option("adam", "optimizer", choices=OPTIMIZERS)
    attention_dropout: float | None = option(None, "as in pretrain (default: the model's)", metavar="FLOAT", least=0, below=1)
    steps: int = option(100, "steps that are timed", least=1)
    skip: int = option(20, "steps skipped before these", least=0)
    repeats: int = option(3, "repeats, for the median", least=1)
    out: Path = option(Path("data/bench"), "folder for the table", metavar="DIR")

    def __post_init__(self) -> None:
        check_options(self)
        check_folder("--out", self.out)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of bench."""
    add_options(parser, BenchSettings)
    add_options(parser, EngineSettings, without=_NOT_MEASURED)


def run(namespace: argparse.Namespace) -> int:
    """Measure, store the row and print it; returns the exit status."""
    engine_settings = choose_engine(read_options(EngineSettings, namespace))
    settings, model, task = resolve(read_options(BenchSettings, namespace))
    check_engine(engine_settings, model, task)
    check_installed(engine_settings)
    batch_size = settings.batch_size
    if isinstance(batch_size, str):
        batch_size = find_largest(lambda size: fits(settings, engine_settings, size))
        say(f"the largest batch that fits: {batch_size:,} sequences of a device")
    if engine_settings.why_engine:
        say(f"engine {describe_engine(engine_settings)}")
    engine = open_engine(engine_settings)
    if engine.is_first:
        precision = _PRECISIONS[engine.execution.precision]
        shown = f"{settings.model}, {batch_size:,} sequences of {settings.seq}/{settings.pred}, {precision}"
        say(f"{shown}, on {engine.device_name}: {settings.repeats} times {settings.steps} steps, after {settings.skip} each")
    row = measure(engine, engine_settings, replace(settings, batch_size=batch_size), model, task)
    if engine.is_first:
        rows = keep_row(settings.out, row)
        tell(*to_markdown([row]).splitlines())
        say(f"{settings.out / TABLE}: {len(rows):,} row{'s' if len(rows) > 1 else ''}")
    return 0


def resolve(settings: BenchSettings) -> tuple[BenchSettings, ModelConfig, Task]:
    """The settings with the lengths of the given records, the model and its task; raises if they are inconsistent."""
    asked = settings.attention_dropout
    dropout: dict[str, Any] = {} if asked is None else {"attention_probs_dropout_prob": asked}
    if (settings.vocab or settings.pairs != NEXT_SENTENCE) and not _of_tokens(settings):
        raise UsageError(
            f"--{'vocab' if settings.vocab else 'pairs'}: is for token shards; leave it out, or name some by --data"
        )
    if settings.data:
        data = name_tokens(settings.data, partial(_live_of, settings)) if _of_tokens(settings) else name_data(settings.data)
        model = ModelConfig.load(settings.model, **({"vocab_size": data.vocabulary_size} if data.vocabulary_size else {}))
        check_fits_model(data, model, settings.model)
        return replace(settings, seq=data.seq, pred=data.pred), replace(model, **dropout), pretraining_on(data.kind)
    model = replace(ModelConfig.load(settings.model), **dropout)
    if settings.seq > model.max_position_embeddings or settings.pred > settings.seq:
        raise UsageError(
            f"--seq {settings.seq} --pred {settings.pred}: the model has {model.max_position_embeddings} positions, and a "
            "sequence has at most as many predictions as tokens"
        )
    return settings, model, PRETRAINING


def _of_tokens(settings: BenchSettings) -> bool:
    return bool(settings.data) and holds_tokens(settings.data[0])


def _live_of(settings: BenchSettings, tokens: DataSet) -> LiveSettings:
    """How examples are made of token shards: with create's defaults, but for the shape and pairs."""
    instances = InstanceSettings(seq=settings.seq, pred=settings.pred, pairs=settings.pairs, cased=is_cased(tokens))
    return LiveSettings(instances=instances, vocabulary=load_vocabulary_of(tokens, settings.vocab).path)


def bench_arguments(settings: BenchSettings, engine: EngineSettings) -> list[str]:
    """The arguments of `python -m trainer` for these settings."""
    return ["bench", *command_line(engine, settings)]


def find_largest(fits: Callable[[int], bool], *, unit: int = 8) -> int:
    """The largest multiple of `unit` that fits, by doubling and then bisection; below `unit`, any number.

    Memory has too many consumers to be predicted.

    >>> tried = []
    >>> find_largest(lambda size: tried.append(size) or size <= 100), tried
    (96, [8, 16, 32, 64, 128, 96, 112, 104])
    """
    low, high = 0, unit
    while high <= _MOST_SEQUENCES and fits(high):
        low, high = high, 2 * high
    if not low:
        unit = 1
    while high - low > unit:
        middle = (low + high) // 2 // unit * unit
        low, high = (middle, high) if fits(middle) else (low, middle)
    if not low:
        raise BertprepError(
            "not even a batch of 1 sequence fits; see what the tries above say, or take a smaller --model or --seq"
        )
    return low


def fits(settings: BenchSettings, engine: EngineSettings, size: int) -> bool:
    """Whether a few steps run with this batch size.

    They run in a separate process: one that ran out of memory cannot try again, and is killed if the system runs out.
    """
    with tempfile.TemporaryDirectory() as folder:
        few = replace(settings, batch_size=size, steps=2, skip=2, repeats=1, out=Path(folder))
        command = [sys.executable, "-m", "trainer", *bench_arguments(few, engine)]
        tried = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        rows = read_rows(Path(folder))
    last_line = (tried.stderr.strip().splitlines() or ["it said nothing"])[-1]
    if tried.returncode == UsageError.exit_status:
        raise UsageError(last_line.removeprefix("trainer: error: "))
    if rows and not rows[0]["has_accelerator"]:
        raise UsageError(
            f"--batch-size {LARGEST}: there is no accelerator here, whose memory would be the limit; give a number"
        )
    does_fit = tried.returncode == 0
    say(f"a batch of {size:,}: " + ("fits" if does_fit else f"does not fit ({last_line[:200]})"))
    return does_fit


def measure(
    engine: Engine, engine_settings: EngineSettings, settings: BenchSettings, model: ModelConfig, task: Task = PRETRAINING
) -> Row:
    """Time steps on an engine, with a batch size that is a number."""
    batch_size = int(settings.batch_size)
    global_batch = batch_size * engine.devices * settings.accumulation
    batch = GlobalBatch(global_batch, engine.data_world_size, engine.data_rank)
    engine.build(model, OptimizerSettings(name=settings.optimizer), seed=_SEED, task=task)
    seconds, cpu_seconds = [], []  # of a step, in each repeat
    with _open_batches(settings, model, batch) as batches:
        for repeat in range(settings.repeats):
            first = repeat * (settings.skip + settings.steps)
            _run_steps(engine, batches, first, settings.skip, settings.accumulation)
            wall, cpu = time.perf_counter(), time.process_time()
            _run_steps(engine, batches, first + settings.skip, settings.steps, settings.accumulation)
            seconds.append((time.perf_counter() - wall) / settings.steps)
            cpu_seconds.append((time.process_time() - cpu) / settings.steps)
            if engine.is_first:
                say(f"repeat {repeat + 1} of {settings.repeats}: {global_batch / seconds[-1]:,.1f} sequences/s")
    throughputs = [global_batch / each for each in seconds]
    throughput = statistics.median(throughputs)
    flops = throughput * task.flops(model, seq=settings.seq, pred=settings.pred)  # the model's, a second
    peak = peak_of(engine.device_name)
    return {
        "engine": engine_settings.engine,
        "device": engine.device_name,  # all of them, readable
        "devices": engine.devices,
        "has_accelerator": engine.has_accelerator,
        "processor": this_cpu().name,
        "processes": engine.processes,
        "execution": _describe_execution(engine_settings),
        "model": settings.model,  # as requested
        "vocab_size": model.vocab_size,
        "optimizer": settings.optimizer,
        "precision": _PRECISIONS[engine.execution.precision],
        "xla": engine.execution.xla,
        "batch_size": batch_size,  # sequences per device in a micro-batch
        "accumulation": settings.accumulation,  # micro-batches per step
        "seq": settings.seq,
        "pred": settings.pred,
        "data": "read" if settings.data else "synthetic",
        "skipped_steps": settings.skip,  # before each repeat
        "timed_steps": settings.steps,  # of each repeat
        "sequences_per_second": throughput,  # the median of the repeats, like the others
        "sequences_per_second_of_repeats": throughputs,
        "tokens_per_second": throughput * settings.seq,
        "flops_per_second": flops,
        "mfu": flops / (peak * engine.devices) if peak else None,  # of the devices' dense bf16, in any precision
        "peak_memory_bytes": engine.peak_memory() if engine.has_accelerator else _peak_resident_bytes(),
        "milliseconds_per_step": 1000 * statistics.median(seconds),
        "cpu_seconds_per_step": statistics.median(cpu_seconds),  # of this process only
        "date": str(date.today()),
        "versions": dict(engine.versions),
        "command": shlex.join(["python", "-m", "trainer", *bench_arguments(settings, engine_settings)]),
    }


def _peak_resident_bytes() -> int:
    """The most memory that this process had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _describe_execution(settings: EngineSettings) -> str:
    """A description of the non-default execution settings of a step."""
    asked = {
        "eager": settings.eager,
        "activations recomputed": settings.checkpoint_activations,
        settings.strategy: settings.stages > 1,
        "not deterministic": settings.deterministic == "off",
    }
    return ", ".join(name for name, is_asked in asked.items() if is_asked)


def _run_steps(engine: Engine, batches: Iterator[Examples], first: int, count: int, accumulation: int) -> None:
    """Run `count` steps, and wait for the last one."""
    started: deque[Callable[[], Any]] = deque()
    for step in range(first, first + count):
        examples = next(batches)
        started.append(engine.train(examples, step=step, learning_rate=_LEARNING_RATE, accumulation=accumulation, stop=False))
        if len(started) > steps_ahead(engine):
            started.popleft()()
    for wait in started:
        wait()


@contextmanager
def _open_batches(settings: BenchSettings, model: ModelConfig, batch: GlobalBatch) -> Iterator[Iterator[Examples]]:
    """This rank's rows of an endless sequence of batches."""
    if settings.data:
        with _open_data(settings, model) as records:
            order = records.order if isinstance(records, LiveExamples) else None
            with TrainingBatches(records, batch, seed=_SEED, order=order).from_step(0, held=_HELD) as ready:
                yield ready
        return
    rng = np.random.default_rng([_SEED, batch.data_rank])
    shape = {"seq": settings.seq, "pred": settings.pred, "vocab_size": model.vocab_size}
    yield cycle([synthetic_records(rng, batch.rank_size, **shape) for _ in range(_SYNTHETIC)])


def _open_data(settings: BenchSettings, model: ModelConfig) -> RecordSet | LiveExamples:
    if _of_tokens(settings):
        live = _live_of(settings, find_token_shards(settings.data[:1]))
        return live.open(settings.data, TRAINING, seed=_SEED, shuffle_shards=DEFAULT_GROUP)
    return RecordSet(settings.data, vocab_size=model.vocab_size, type_vocab_size=model.type_vocab_size)


def synthetic_records(rng: np.random.Generator, count: int, *, seq: int, pred: int, vocab_size: int) -> PretrainingExamples:
    """Records of random tokens without padding, each with the maximum number of predictions."""
    shape = (count, seq)
    is_second = np.arange(seq, dtype=np.int32) >= seq // 2  # (seq,): half of the tokens are each sentence's
    return PretrainingExamples(
        input_ids=rng.integers(0, vocab_size, shape, np.int32),
        input_mask=np.ones(shape, np.int32),
        segment_ids=np.tile(is_second.astype(np.int32), (count, 1)),
        masked_lm_positions=np.sort(rng.random(shape).argsort(axis=1)[:, :pred], axis=1).astype(np.int32),
        masked_lm_ids=rng.integers(0, vocab_size, (count, pred), np.int32),
        masked_lm_weights=np.ones((count, pred), np.float32),
        next_sentence_labels=rng.integers(0, 2, count, np.int32),
    )

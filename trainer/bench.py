"""Measure the speed of training steps: `python -m trainer bench`.

It skips some steps, times some steps, repeats this, and reports the median. Batches are random tokens in memory. Steps are
queued as in training. The result is appended to OUT/bench.jsonl, and printed as the last line.
"""

from __future__ import annotations

import argparse
import json
import resource
import shlex
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import date
from itertools import cycle
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bertprep.errors import UsageError
from bertprep.files.atomic import atomic_file
from bertprep.files.paths import local_path
from bertprep.options import Settings, add_options, command_line, option, read_options
from bertprep.progress import Progress, print_message
from bertprep.records import PretrainingExamples
from bertprep.terminal import counted, print_results
from trainer.batches import features
from trainer.engines import Engine, StepResult
from trainer.engines.choice import check_engine, choose_engine, open_engine
from trainer.model_config import PRESETS, ModelConfig
from trainer.settings import OPTIMIZERS, EngineSettings, OptimizerSettings, check_folder
from trainer.tasks.pretraining import DEFAULT_SEQ, Pretraining

Batches: TypeAlias = Iterator[Mapping[str, NDArray[Any]]]
"""An endless stream of this rank's rows of global batches."""
RESULTS = "bench.jsonl"
_SEED = 12345
_PEAKS = {  # dense bf16 TFLOP/s from the vendors' data sheets
    "A100-SXM4-40GB": 312.0, "A100-SXM4-80GB": 312.0, "A100 80GB PCIe": 312.0, "L4": 121.0, "L40S": 362.0,
    "H100 PCIe": 756.5, "H100 80GB HBM3": 989.4, "H200": 989.4, "GH200 480GB": 989.4,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class BenchOptions(Settings):
    """Options of `bench`."""

    model: str | None = option(
        None, f"{', '.join(PRESETS)}, or a bert_config.json (default: base with an accelerator, else tiny)", metavar="NAME|FILE"
    )
    seq: int = option(DEFAULT_SEQ, "tokens in a sequence", least=1)
    pred: int = option(20, "predictions in a sequence", least=1)
    batch_size: int = option(32, "sequences per device in a micro-batch", least=1)
    accumulation: int = option(1, "micro-batches per step", name="--accumulate", least=1)
    optimizer: str = option("adam", "optimizer", choices=tuple(OPTIMIZERS))
    attention_dropout: float | None = option(None, "as in pretrain (default: the model's)", metavar="FLOAT", least=0, below=1)
    steps: int = option(100, "steps that are timed", least=1)
    skip: int = option(20, "untimed steps before them", least=0)
    repeats: int = option(3, "number of measurements, of which the median is reported", least=1)
    out: Path = option(Path("data/bench"), "folder for the results", metavar="DIR", check=local_path)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_folder("--out", self.out)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `bench`."""
    add_options(parser, BenchOptions)
    add_options(parser, EngineSettings, without=("hosts", "host_rank"))


def run(namespace: argparse.Namespace) -> int:
    """Measure, print one line and append it to OUT/bench.jsonl; return the exit status."""
    settings, why = choose_engine(read_options(EngineSettings, namespace))
    options = read_options(BenchOptions, namespace)
    check_engine(settings)
    load_fitting(options)  # find mistakes before an engine is opened
    engine = open_engine(settings)
    options = replace(options, model=options.model or ("base" if engine.has_accelerator else "tiny"))
    model, task = load_fitting(options), Pretraining()
    engine.build(model, OptimizerSettings(name=options.optimizer), seed=_SEED, task=task)
    size = options.batch_size * engine.devices * options.accumulation
    if engine.is_first:
        what = f"{options.model}, {counted(options.batch_size, 'sequence')} of {options.seq}/{options.pred}"
        where = f"{engine.execution.describe()}, {settings.engine}{f' ({why})' if why else ''} on {engine.device_name}"
        print_message(f"{what}, {where}: {options.repeats} times {options.steps} steps, each after {options.skip} others")
    seconds, cpu_seconds = measure(engine, options, synthetic_batches(engine, options, size, model.vocab_size))
    if not engine.is_first:
        return 0
    step, peak = statistics.median(seconds), peak_of(engine.device_name)
    flops_per_second = size * task.flops(model, seq=options.seq, pred=options.pred) / step
    process_peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    result = {
        "date": str(date.today()), "device": engine.device_name, "devices": engine.devices, "versions": engine.versions,
        **asdict(options), "vocab_size": model.vocab_size, "engine": settings.engine, "precision": engine.precision,
        "xla": engine.execution.xla,
        "command": shlex.join(["python", "-m", "trainer", "bench", *command_line(settings, options)]),
        "sequences_per_second": size / step,
        "sequences_per_second_of_repeats": [size / each for each in seconds],
        "milliseconds_per_step": 1000 * step,
        "cpu_seconds_per_step": statistics.median(cpu_seconds),  # of this process
        "flops_per_second": flops_per_second,  # the model's
        "mfu": flops_per_second / (peak * engine.devices) if peak else None,  # of dense bf16, in any precision
        "peak_memory_bytes": engine.peak_memory() if engine.has_accelerator else process_peak,
    }  # fmt: skip
    path = options.out / RESULTS
    before = path.read_bytes() if path.is_file() else b""
    with atomic_file(path, replace=True) as file:
        file.write(before + json.dumps(result, default=str).encode() + b"\n")
    print_message(f"{path}: added a line")
    print_results(summarize(result))
    return 0


def load_fitting(options: BenchOptions) -> ModelConfig:
    """Return the model; raises `UsageError` if it cannot have sequences or predictions of these lengths."""
    model = ModelConfig.load(options.model or "tiny")  # all presets have the same number of positions
    if options.seq > model.max_position_embeddings or options.pred > options.seq:
        raise UsageError(
            f"--seq {options.seq} --pred {options.pred}: the model has {model.max_position_embeddings} positions, and a "
            "sequence has at most as many predictions as tokens; give smaller numbers"
        )
    dropout_rate = options.attention_dropout
    return model if dropout_rate is None else replace(model, attention_probs_dropout_prob=dropout_rate)


def measure(engine: Engine, options: BenchOptions, batches: Batches) -> tuple[list[float], list[float]]:
    """Return the wall-clock and CPU seconds per step of a built engine, for each repeat."""
    seconds, cpu_seconds = [], []
    total = options.repeats * (options.skip + options.steps)
    with Progress("bench", total, "steps", enabled=engine.is_first) as progress:
        for _ in range(options.repeats):
            _run_steps(engine, batches, options.skip, options.accumulation, progress)
            wall, cpu = time.perf_counter(), time.process_time()
            _run_steps(engine, batches, options.steps, options.accumulation, progress)
            seconds.append((time.perf_counter() - wall) / options.steps)
            cpu_seconds.append((time.process_time() - cpu) / options.steps)
    return seconds, cpu_seconds


def _run_steps(engine: Engine, batches: Batches, count: int, accumulation: int, progress: Progress) -> None:
    in_flight: deque[Callable[[], StepResult]] = deque()
    for step in range(1, count + 1):
        in_flight.append(engine.train(next(batches), step=step, learning_rate=1e-6, accumulation=accumulation, stop=False))
        if len(in_flight) > engine.has_accelerator:
            in_flight.popleft()()
            progress.advance()
    for wait in in_flight:
        wait()
        progress.advance()


def summarize(result: Mapping[str, Any]) -> str:
    """Return the numbers of a result in one line."""
    repeats, memory = result["sequences_per_second_of_repeats"], result["peak_memory_bytes"]
    mfu = f", MFU {result['mfu']:.1%}" if result["mfu"] else ""
    peak = f", peak memory {memory / 2**30:,.2f} GiB" if memory else ""
    return (
        f"median {result['sequences_per_second']:,.1f} sequences/s, repeats {min(repeats):,.1f} - {max(repeats):,.1f}; "
        f"{result['milliseconds_per_step']:,.1f} ms a step, {result['cpu_seconds_per_step']:,.3f} CPU s, "
        f"{result['flops_per_second'] / 1e12:,.3f} model TFLOP/s{mfu}{peak}"
    )


def peak_of(device: str) -> float | None:
    """Return the peak FLOP/s of one device with this name; None if unknown.

    >>> peak_of("8 x NVIDIA H100 80GB HBM3"), peak_of("NVIDIA A10G"), peak_of("CPU")
    (989400000000000.0, None, None)
    """
    tera = _PEAKS.get(device.rpartition(" x ")[2].removeprefix("NVIDIA "))
    return None if tera is None else tera * 1e12


def synthetic_batches(engine: Engine, options: BenchOptions, size: int, vocab_size: int) -> Batches:
    """Yield this rank's rows of global batches of `size` random sequences, the same four batches again and again."""
    rng, rows = np.random.default_rng([_SEED, engine.data_rank]), size // engine.data_world_size
    records = [synthetic_records(rng, rows, seq=options.seq, pred=options.pred, vocab_size=vocab_size) for _ in range(4)]
    return cycle([features(each) for each in records])


def synthetic_records(rng: np.random.Generator, count: int, *, seq: int, pred: int, vocab_size: int) -> PretrainingExamples:
    """Return records of random tokens without padding, each with the maximum number of predictions."""
    shape = (count, seq)
    is_second = np.arange(seq, dtype=np.int32) >= seq // 2  # (seq,): each sentence has half of the tokens
    return PretrainingExamples(
        input_ids=rng.integers(0, vocab_size, shape, np.int32),
        input_mask=np.ones(shape, np.int32),
        segment_ids=np.tile(is_second.astype(np.int32), (count, 1)),
        masked_lm_positions=np.sort(rng.random(shape).argsort(axis=1)[:, :pred], axis=1).astype(np.int32),
        masked_lm_ids=rng.integers(0, vocab_size, (count, pred), np.int32),
        masked_lm_weights=np.ones((count, pred), np.float32),
        next_sentence_labels=rng.integers(0, 2, count, np.int32),
    )

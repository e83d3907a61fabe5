"""How many sequences a second a machine trains: skip steps, time steps, repeat, take the median, as reports in the field do.

The batches are made up, full and in memory, so that steps alone are measured; with --data they are read as in training. As
there, each step is begun before the one before it is waited for; the clock is read when all are done.

The largest batch that fits is found by trying. Each try is a process of its own, because one that ran out of memory has none
left to try again with. All results stay in OUT/bench.json, by what was measured, and OUT/bench.md shows them as a table.
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import subprocess
import sys
import tempfile
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

from bertprep.atomic import atomic_file
from bertprep.errors import BertprepError, UsageError
from bertprep.progress import say
from bertprep.records import Examples
from trainer.batches import GlobalBatch, TrainingBatches
from trainer.config import ModelConfig
from trainer.data import check_fits_model, name_data
from trainer.engines import Engine, open_engine
from trainer.metrics import training_flops
from trainer.optimizer import OptimizerSettings
from trainer.record_set import RecordSet
from trainer.settings import EngineSettings

LARGEST = "largest"
_BEGUN = 2  # steps at most that are not waited for, as in training
_MADE_UP = 4  # batches in memory, taken in turn
_RATE = 1e-6  # a learning rate that leads nowhere
_SEED = 12345
_MOST_SEQUENCES = 1 << 16  # of a device; whatever fits beyond was not meant
_PRECISIONS = {"off": "fp32", "fp16": "fp16", "bf16": "bf16"}


def bench_command(options: argparse.Namespace) -> None:
    """`python -m trainer bench`."""
    settings = read_settings(options)
    if options.batch_size == LARGEST:
        options.batch_size = find_largest(lambda size: _fits(options, size))
        say(f"the largest batch that fits: {options.batch_size:,} sequences of a device")
    engine = open_engine(settings.engine)
    row = measure(engine, settings, batch_size=options.batch_size)
    if engine.rank == 0:
        row["command"] = shlex.join(["python", "-m", "trainer", *arguments_of(options)])
        rows = keep_row(options.out, row)
        print(to_markdown({"": row}), end="")
        say(f"{options.out / 'bench.md'}: {len(rows):,} rows")


@dataclass(frozen=True, kw_only=True)
class BenchSettings:
    """What is measured; the batch size may have to be found first."""

    model_name: str
    model: ModelConfig
    engine: EngineSettings
    optimizer: OptimizerSettings
    data: tuple[Path, ...]
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
    if options.skip < 0:
        raise UsageError(f"--skip {options.skip}: must be at least 0")
    if options.batch_size != LARGEST and options.batch_size < 1:
        raise UsageError(f"--batch-size {options.batch_size}: must be at least 1")
    seq, pred, vocabulary_size = options.seq, options.pred, None
    if options.data:
        data = name_data(options.data)
        seq, pred, vocabulary_size = data.seq, data.pred, data.vocabulary_size
    model = ModelConfig.load(options.model, **({"vocab_size": vocabulary_size} if vocabulary_size else {}))
    if options.data:
        check_fits_model(data, model, options.model)
    elif seq > model.max_position_embeddings or pred > seq:
        raise UsageError(
            f"--seq {seq} --pred {pred}: the model has {model.max_position_embeddings} positions, and a sequence has at most "
            "as many predictions as tokens"
        )
    return BenchSettings(
        model_name=options.model,
        model=model,
        engine=EngineSettings(engine=options.engine, devices=options.devices, amp=options.amp, xla=options.xla),
        optimizer=OptimizerSettings(name=options.optimizer),
        data=tuple(options.data),
        seq=seq,
        pred=pred,
        accumulation=options.accumulate,
        steps=options.steps,
        skip=options.skip,
        repeats=options.repeats,
    )


def measure(engine: Engine, settings: BenchSettings, *, batch_size: int) -> dict[str, Any]:
    """Time steps on an engine: the row of the table, without the command."""
    global_batch = batch_size * engine.devices * settings.accumulation
    batch = GlobalBatch(global_batch, engine.world_size, engine.rank, settings.accumulation)
    engine.build(settings.model, settings.optimizer, seed=_SEED)
    seconds, cpu_seconds = [], []
    with _open_batches(settings, batch) as batches:
        for repeat in range(settings.repeats):
            first = repeat * (settings.skip + settings.steps)
            _run_steps(engine, batches, first, settings.skip, settings.accumulation)
            wall, cpu = time.perf_counter(), time.process_time()
            _run_steps(engine, batches, first + settings.skip, settings.steps, settings.accumulation)
            seconds.append((time.perf_counter() - wall) / settings.steps)
            cpu_seconds.append((time.process_time() - cpu) / settings.steps)
            if engine.rank == 0:
                say(f"repeat {repeat + 1} of {settings.repeats}: {global_batch / seconds[-1]:,.1f} sequences/s")
    rates = [global_batch / each for each in seconds]
    rate = statistics.median(rates)
    return {
        "engine": settings.engine.engine,
        "device": engine.device_name,
        "has_accelerator": engine.has_accelerator,
        "processor": _processor(),
        "devices": engine.devices,
        "processes": engine.world_size,
        "model": settings.model_name,
        "vocab_size": settings.model.vocab_size,
        "optimizer": settings.optimizer.name,
        "precision": _PRECISIONS[settings.engine.amp],
        "xla": settings.engine.xla,
        "batch_size": batch_size,
        "accumulation": settings.accumulation,
        "seq": settings.seq,
        "pred": settings.pred,
        "data": "read" if settings.data else "made up",
        "skipped_steps": settings.skip,
        "timed_steps": settings.steps,
        "sequences_per_second": rate,
        "sequences_per_second_of_repeats": rates,
        "tokens_per_second": rate * settings.seq,
        "flops_per_second": rate * training_flops(settings.model, seq=settings.seq, pred=settings.pred),
        "milliseconds_per_step": 1000 * statistics.median(seconds),
        "cpu_seconds_per_step": statistics.median(cpu_seconds),
        "date": str(date.today()),
        "versions": dict(engine.versions),
    }


def _run_steps(engine: Engine, batches: Iterator[Examples], first: int, count: int, accumulation: int) -> None:
    """Make `count` steps, and wait for the last of them."""
    begun: deque[Callable[[], Any]] = deque()
    for step in range(first, first + count):
        begun.append(engine.train(next(batches), step=step, rate=_RATE, accumulation=accumulation, stop=False))
        if len(begun) == _BEGUN:
            begun.popleft()()
    for wait in begun:
        wait()


@contextmanager
def _open_batches(settings: BenchSettings, batch: GlobalBatch) -> Iterator[Iterator[Examples]]:
    """This rank's shares of batches, without end; the arrays of one hold until `_BEGUN` steps later."""
    if settings.data:
        records = RecordSet(settings.data)
        with records, TrainingBatches(records, batch, seed=_SEED).from_step(0, held=_BEGUN) as ready:
            yield ready
        return
    rng = np.random.default_rng([_SEED, batch.rank])
    size, vocabulary = batch.rank_size, settings.model.vocab_size
    yield cycle([make_up(rng, size, seq=settings.seq, pred=settings.pred, vocab_size=vocabulary) for _ in range(_MADE_UP)])


def make_up(rng: np.random.Generator, count: int, *, seq: int, pred: int, vocab_size: int) -> Examples:
    """Records without padding, of random tokens, each with all of its predictions."""
    shape = (count, seq)
    return Examples(
        input_ids=rng.integers(0, vocab_size, shape, np.int32),
        input_mask=np.ones(shape, np.int32),
        segment_ids=np.broadcast_to((np.arange(seq) >= seq // 2).astype(np.int32), shape).copy(),
        masked_lm_positions=np.sort(rng.random(shape).argsort(axis=1)[:, :pred], axis=1).astype(np.int32),
        masked_lm_ids=rng.integers(0, vocab_size, (count, pred), np.int32),
        masked_lm_weights=np.ones((count, pred), np.float32),
        next_sentence_labels=rng.integers(0, 2, count, np.int32),
    )


def find_largest(fits: Callable[[int], bool], *, first: int = 8) -> int:
    """The largest number that fits, by doubling and then halving what is between; above 8, the largest multiple of 8.

    >>> tried = []
    >>> find_largest(lambda size: tried.append(size) or size <= 100), tried
    (96, [8, 16, 32, 64, 128, 96, 112, 104])
    """
    low, high = 0, first
    while high <= _MOST_SEQUENCES and fits(high):
        low, high = high, 2 * high
    unit = first if low else 1
    while high - low > unit:
        middle = (low + high) // 2 // unit * unit
        low, high = (middle, high) if fits(middle) else (low, middle)
    if not low:
        raise BertprepError(
            "not even a batch of 1 sequence fits; see what the tries above say, or take a smaller --model or --seq"
        )
    return low


def _fits(options: argparse.Namespace, size: int) -> bool:
    """Whether a few steps of that batch go through, in a process of their own."""
    with tempfile.TemporaryDirectory() as folder:
        few = argparse.Namespace(
            **{**vars(options), "batch_size": size, "steps": 2, "skip": 2, "repeats": 1, "out": Path(folder)}
        )
        tried = subprocess.run(
            [sys.executable, "-m", "trainer", *arguments_of(few)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        if tried.returncode == UsageError.exit_status:
            raise UsageError(_last_line(tried.stderr).removeprefix("trainer: error: "))
        if tried.returncode == 0 and not next(iter(_read_rows(Path(folder) / "bench.json").values()))["has_accelerator"]:
            raise UsageError(
                f"--batch-size {LARGEST}: there is no accelerator here, whose memory would be the limit; give a number"
            )
    say(f"a batch of {size:,}: " + ("fits" if tried.returncode == 0 else f"does not fit ({_last_line(tried.stderr)[:200]})"))
    return tried.returncode == 0


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["it said nothing"])[-1]


def arguments_of(options: argparse.Namespace) -> list[str]:
    """The command line that asks for the same."""
    arguments = ["bench"]
    for name, value in vars(options).items():
        option = f"--{name.replace('_', '-')}"
        if value is True:
            arguments.append(option)
        elif isinstance(value, list) and value:
            arguments += [option, *map(str, value)]
        elif isinstance(value, (str, int, Path)) and value is not False:
            arguments += [option, str(value)]
    return arguments


def keep_row(out: Path, row: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Enter a row in OUT/bench.json, in the place of an older one of the same, and write the table anew; returns all rows."""
    named = (
        "engine",
        "device",
        "processes",
        "model",
        "optimizer",
        "precision",
        "xla",
        "batch_size",
        "accumulation",
        "seq",
        "data",
    )
    rows = _read_rows(out / "bench.json")
    rows[", ".join(f"{name} {row[name]}" for name in named)] = row
    for name, text in (("bench.json", json.dumps(rows, indent=1) + "\n"), ("bench.md", to_markdown(rows))):
        with atomic_file(out / name) as file:
            file.write(text.encode())
    return rows


def _read_rows(path: Path) -> dict[str, dict[str, Any]]:
    try:
        rows = json.loads(path.read_bytes())
        to_markdown(rows)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BertprepError(
            f"{path}: holds no results of this command ({error!r}); choose another --out, or remove it"
        ) from error
    return dict(rows)


def to_markdown(rows: dict[str, dict[str, Any]]) -> str:
    """The rows as a table, and what each was measured with."""
    head = (
        "| | engine | devices | model | optimizer | precision | XLA | batch | accumulated | seq | sequences/s | from - to "
        "| tokens/s | model TFLOP/s | ms a step | CPU s a step |\n|" + "---|" * 16 + "\n"
    )
    lines, notes = [], []
    for number, row in enumerate(rows.values(), 1):
        rates = row["sequences_per_second_of_repeats"]
        cells = (
            number, row["engine"], row["device"], row["model"], row["optimizer"], row["precision"],
            "on" if row["xla"] else "off", row["batch_size"], row["accumulation"], row["seq"],
            f"{row['sequences_per_second']:,.1f}", f"{min(rates):,.1f} - {max(rates):,.1f}", f"{row['tokens_per_second']:,.0f}",
            f"{row['flops_per_second'] / 1e12:,.3f}", f"{row['milliseconds_per_step']:,.1f}",
            f"{row['cpu_seconds_per_step']:,.3f}",
        )  # fmt: skip
        lines.append(f"| {' | '.join(map(str, cells))} |\n")
        versions = ", ".join(f"{name} {version}" for name, version in row["versions"].items())
        notes.append(
            f"{number}. `{row.get('command', '')}`: {row['date']}, {row['processor']}; {versions}; median of {len(rates)} "
            f"times {row['timed_steps']} steps, {row['skipped_steps']} skipped before each; batches {row['data']}\n"
        )
    return head + "".join(lines) + "\n" + "".join(notes)


def _processor() -> str:
    """The processor's name, where the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "a processor without a name"
    )

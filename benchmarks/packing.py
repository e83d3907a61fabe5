"""Measure what `--pack` gains: for each engine, sequences per CPU second on records of short documents.

The text is the sample corpus with a new document after every few sentences (log-normal, median 10), so that records of 512
tokens are half padding. Every measurement runs in its own process, and those of an engine take turns. A process reads, packs,
and trains the same steps twice; the second time counts, since by then all shapes are compiled.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import bertprep
from benchmarks.harness import describe_machine
from bertprep.records.records import Records
from trainer.batches import GlobalBatch, TrainingBatches
from trainer.engines.choice import open_engine
from trainer.model_config import ModelConfig
from trainer.settings import EngineSettings, OptimizerSettings
from trainer.tasks.pretraining import Pretraining

ROOT = Path(__file__).resolve().parents[1]
PLAIN, PACKED = ROWS = ("one a row", "packed")
MEDIAN, SIGMA = 10, 0.7  # of the sentences of a document


def make_records(folder: Path, options: argparse.Namespace) -> Path:
    """Return the folder of the records of short documents."""
    rng = np.random.default_rng(1)
    text = bertprep.shard(workdir=folder, workers=options.workers).folder
    sentences = [line for path in sorted((text / "training").iterdir()) for line in path.read_text().splitlines() if line]
    short = folder / "short.txt"
    with short.open("w") as file:
        while sentences:
            count = max(2, round(float(rng.lognormal(np.log(MEDIAN), SIGMA))))
            file.write("\n".join(sentences[:count]) + "\n\n")
            del sentences[:count]
    made = bertprep.create(
        inputs=[short], output=folder / "records", seq=options.seq, pred=options.pred, workdir=folder, formats="tfrecord"
    )
    return made.folders["tfrecord"]


def measure(options: argparse.Namespace) -> dict[str, float]:
    """Return the CPU seconds of the steps, and the fraction of the tokens that are computed."""
    if options.engine == "torch":
        import torch

        torch.set_num_threads(1)
    else:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
    with Records([options.records]) as records:
        packed_into = int(options.rows == PACKED)
        batches = TrainingBatches(records, GlobalBatch(options.batch_size), seed=1, packed_into=packed_into)
        vocabulary = len((options.records / "vocab.txt").read_bytes().splitlines())
        engine = open_engine(EngineSettings(engine=options.engine, devices=1, amp=options.precision))
        model = ModelConfig.preset(options.model, vocab_size=vocabulary)
        engine.build(model, OptimizerSettings(), seed=1, task=Pretraining())
        for _ in range(2):
            started, tokens = time.process_time(), 0
            for step in range(options.steps):
                arrays = batches.read(step).arrays
                tokens += arrays["input_ids"].size
                engine.train(arrays, step=step + 1, learning_rate=1e-6, accumulation=1, stop=False)()
            seconds = time.process_time() - started
    return {"seconds": seconds, "tokens": tokens / (options.steps * options.batch_size * options.seq)}


def measure_apart(options: argparse.Namespace, records: Path, engine: str, rows: str) -> dict[str, float]:
    given = {name: value for name, value in vars(options).items() if name not in ("measure", "folder", "engines")}
    settings = json.dumps({**given, "records": str(records), "engine": engine, "rows": rows})
    command = [sys.executable, "-m", "benchmarks", "packing", "--measure", settings]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
    run = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if run.returncode:
        raise SystemExit(run.stderr)
    found: dict[str, float] = json.loads(run.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Make the records, measure the engines, print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engines", default="tensorflow,torch", metavar="NAMES", help="(default: %(default)s)")
    parser.add_argument("--model", default="mini", help="(default: %(default)s)")
    parser.add_argument("--precision", default="off", choices=("off", "bf16"), help="(default: off)")
    parser.add_argument("--seq", type=int, default=512, help="(default: %(default)s)")
    parser.add_argument("--pred", type=int, default=80, help="(default: %(default)s)")
    parser.add_argument("--batch-size", type=int, default=32, help="(default: %(default)s)")
    parser.add_argument("--steps", type=int, default=4, help="(default: %(default)s)")
    parser.add_argument("--runs", type=int, default=3, help="(default: %(default)s)")
    parser.add_argument("--workers", type=int, default=2, help="(default: %(default)s)")
    parser.add_argument("--measure", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        given = argparse.Namespace(**options.measure)
        given.records = Path(given.records)
        print(json.dumps(measure(given)))
        return
    print(describe_machine("tensorflow-cpu", "torch"))
    print("\n| sequences per CPU second | rows | | ratio | tokens computed |\n|---|---|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as folder:
        records = make_records(Path(folder), options)
        for engine in options.engines.split(","):
            runs = [{rows: measure_apart(options, records, engine, rows) for rows in ROWS} for _ in range(options.runs)]
            sequences = options.steps * options.batch_size
            for rows in ROWS:
                speed = statistics.median(sequences / run[rows]["seconds"] for run in runs)
                ratio = statistics.median(run[PLAIN]["seconds"] / run[rows]["seconds"] for run in runs)
                print(f"| {engine} | {rows} | {speed:.2f} | {ratio:.2f} | {runs[0][rows]['tokens']:.0%} |", flush=True)

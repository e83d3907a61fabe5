"""A model, batches, engines and processes so small that a real run takes seconds, most of them to load its framework."""

import json
import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertprep.records import (
    ClassificationExamples,
    Examples,
    MaskedExamples,
    PretrainingExamples,
    RegressionExamples,
    SquadExamples,
)
from bertprep.tasks.glue import TASKS as GLUE
from tests.golden import GOLDEN
from trainer.batches import features
from trainer.cli import main
from trainer.engines import Engine, StepResult
from trainer.engines.choice import open_engine
from trainer.log import LOG
from trainer.model_config import ModelConfig
from trainer.settings import ENGINES, EngineSettings, OptimizerSettings
from trainer.tasks.classification import Classification
from trainer.tasks.pretraining import Pretraining
from trainer.tasks.squad import Squad
from trainer.tasks.task import Task

VOCABULARY = GOLDEN / "vocab.txt"
WEIGHTS = GOLDEN / "hugging_face.safetensors"
SEQ, PRED = 32, 5
BATCH, SEED = 16, 5
MODEL = ModelConfig(
    vocab_size=len(VOCABULARY.read_bytes().splitlines()),
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=64,
    max_position_embeddings=64,
)
TASKS: dict[str, Task] = {  # one of each kind of heads
    "pretraining": Pretraining(),
    "unpaired": Pretraining(has_pairs=False),
    "squad": Squad("1.1"),
    "classification": Classification(GLUE["mnli"]),
    "regression": Classification(GLUE["stsb"]),
}


def read_golden() -> dict[str, Any]:
    """What Hugging Face's BertForPreTraining computes for a batch, the numbers as arrays (golden/README.md)."""
    golden = json.loads((GOLDEN / "hugging_face.json").read_bytes())
    floats = ("masked_lm_weights",)
    batch = {name: np.array(values, np.float32 if name in floats else np.int32) for name, values in golden["batch"].items()}
    return {**golden, "batch": batch, "config": ModelConfig.from_settings(golden["config"])}


def make_batch(step: int, *, sequences: int = BATCH, seq: int = SEQ, pred: int = PRED) -> PretrainingExamples:
    """Sequences of different lengths with different numbers of masked tokens, so that no mean of means is right."""
    rng = np.random.default_rng([SEED, step])
    masked = rng.integers(0, pred + 1, (sequences, 1))
    length = rng.integers(pred + 1, seq + 1, (sequences, 1))
    return PretrainingExamples(
        input_ids=rng.integers(0, MODEL.vocab_size, (sequences, seq), np.int32),
        input_mask=(np.arange(seq) < length).astype(np.int32),
        segment_ids=(np.arange(seq) > length // 2).astype(np.int32),
        masked_lm_positions=np.sort(rng.integers(0, pred, (sequences, pred), np.int32)),
        masked_lm_ids=rng.integers(0, MODEL.vocab_size, (sequences, pred), np.int32),
        masked_lm_weights=(np.arange(pred) < masked).astype(np.float32),
        next_sentence_labels=rng.integers(0, 2, sequences, np.int32),
    )


def make_task_batch(task: Task, step: int, *, sequences: int = BATCH) -> Examples:
    """Sequences for any task, with random labels."""
    if isinstance(task, Pretraining):
        batch = make_batch(step, sequences=sequences)
        return batch if task.has_pairs else MaskedExamples(*batch.arrays[:-1])
    rng = np.random.default_rng([SEED, step, 1])
    length = rng.integers(4, SEQ + 1, (sequences, 1))
    inputs: dict[str, Any] = {
        "input_ids": rng.integers(0, MODEL.vocab_size, (sequences, SEQ), np.int32),
        "input_mask": (np.arange(SEQ) < length).astype(np.int32),
        "segment_ids": ((np.arange(SEQ) > length // 2) & (np.arange(SEQ) < length)).astype(np.int32),
    }
    if isinstance(task, Squad):
        ends = rng.integers(0, length[:, 0], dtype=np.int32)
        starts = rng.integers(0, ends + 1, dtype=np.int32)
        ids, impossible = np.arange(sequences, dtype=np.int32), (ends == 0).astype(np.int32)
        return SquadExamples(ids, **inputs, start_positions=starts, end_positions=ends, is_impossible=impossible)
    inputs["is_real_example"] = (np.arange(sequences) != 1).astype(np.int32)  # one only fills up the batch
    if task == TASKS["regression"]:
        return RegressionExamples(**inputs, label_ids=rng.random(sequences, np.float32) * 5)
    return ClassificationExamples(**inputs, label_ids=rng.integers(0, 3, sequences, np.int32))


def on_engines(*names: str) -> pytest.MarkDecorator:
    """Run a test on these engines, each in the suite of its framework; "tensorflow-xla" is one of TensorFlow's."""
    return pytest.mark.parametrize("engine", [pytest.param(name, marks=mark_of(name)) for name in names])


def on_engines_with(parameter: str, values: Mapping[str, Iterable[Any]]) -> pytest.MarkDecorator:
    """Run a test on these engines, each with its own values of another parameter: not all pairs, where a graph is compiled."""
    pairs = [(name, value) for name, of_engine in values.items() for value in of_engine]
    return pytest.mark.parametrize(("engine", parameter), [pytest.param(*pair, marks=mark_of(pair[0])) for pair in pairs])


def mark_of(engine: str) -> pytest.MarkDecorator:
    mark: pytest.MarkDecorator = getattr(pytest.mark, engine.partition("-")[0])
    return mark


on_each_engine = on_engines(*ENGINES)


def build(
    engine: str, model: ModelConfig = MODEL, *, optimizer: str = "adam", task: Task = TASKS["pretraining"], **settings: Any
) -> Engine:
    """An engine with a model's initial weights."""
    opened = open_engine(EngineSettings(engine=engine, **settings))
    opened.build(model, OptimizerSettings(name=optimizer), seed=SEED, task=task)
    return opened


def train_step(
    engine: Engine, batch: Any, step: int, *, learning_rate: float = 0.01, accumulation: int = 1, stop: bool = False
) -> StepResult:
    """Make the step that comes after `step` others, on examples or on their features."""
    batch = features(batch) if isinstance(batch, Examples) else batch
    return engine.train(batch, step=step + 1, learning_rate=learning_rate, accumulation=accumulation, stop=stop)()


def loss_of(result: StepResult, task: Task = TASKS["pretraining"]) -> float:
    return task.metrics(result.sums)["loss"]


def command(workdir: Path, out: Path, *options: str) -> list[str]:
    """A run of the small model, as a process."""
    return [sys.executable, "-m", "trainer", *arguments_of(workdir, out, *options)]


def arguments_of(workdir: Path, out: Path, *options: str) -> list[str]:
    """A run of the small model: 10 steps of 16 sequences with a log entry for each, unless options differ.

    An evaluation is of 100 sequences, the last batch not full: all of the test split's would take longer than the steps.
    """
    model = workdir / "bert_config.json"
    model.write_text(MODEL.to_json())
    run = ["--workdir", str(workdir), "--out", str(out), "--model", str(model), "--seq", str(SEQ), "--format", "ofrecord"]
    settings = ["--steps", "10", "--batch-size", "16", "--lr", "0.01", "--warmup-steps", "2", "--log-every", "1"]
    return [*run, *settings, "--eval-sequences", "100", *options]


def train_here(workdir: Path, out: Path, *options: str) -> list[dict[str, Any]]:
    """Run to the end in this process; returns the log's entries of training."""
    assert main(arguments_of(workdir, out, *options)) == 0
    return training_log(out)


def training_log(out: Path) -> list[dict[str, Any]]:
    entries = [json.loads(line) for line in (out / LOG).read_text().splitlines()]
    return [entry for entry in entries if entry["kind"] == "train"]


def losses(log: Sequence[dict[str, Any]]) -> list[float]:
    return [entry["loss"] for entry in log]


def start(arguments: Sequence[str]) -> "subprocess.Popen[str]":
    """A run as the leader of a process group, which a kill reaches as a whole."""
    # Where OneFlow was loaded it has set its rank in the environment, which is not that of the run
    of_this_process = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
    environment = {name: value for name, value in os.environ.items() if name not in of_this_process}
    return subprocess.Popen(
        arguments,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env={**environment, "TF_CPP_MIN_LOG_LEVEL": "3"},
    )


def finish(*runs: "subprocess.Popen[str]", status: int = 0) -> str:
    """Wait for runs to end with this status, which wait for each other; returns what they printed."""
    try:
        printed = [run.communicate(timeout=3600)[0] for run in runs]
    finally:
        kill_groups(*runs)
    assert [run.returncode for run in runs] == [status] * len(runs), "\n".join(printed)
    return "".join(printed)


def kill_groups(*runs: "subprocess.Popen[str]") -> None:
    """Kill all processes that runs have started, at once."""
    for run in runs:
        if run.poll() is None:
            os.killpg(run.pid, signal.SIGKILL)
            run.communicate()


def wait_for(condition: Callable[[], bool], run: "subprocess.Popen[str]") -> None:
    """Wait until a condition holds; a run that ended before that is a failure."""
    while not condition():
        with suppress(subprocess.TimeoutExpired):
            run.wait(timeout=0.02)
            pytest.fail(f"ended before it could be stopped: {run.communicate()[0]}")


def free_ports(count: int) -> list[int]:
    """Ports below those that the OS gives to connections, so that nobody takes one before its run listens there."""
    ports: set[int] = set()
    while len(ports) < count:
        port = random.SystemRandom().randrange(10_000, 32_000)
        with suppress(OSError), socket.socket() as opened:
            opened.bind(("127.0.0.1", port))
            ports.add(port)
    return [*ports]

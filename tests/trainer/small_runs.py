"""A model, batches and records so small that a real run of the trainer takes seconds, most of them to load its framework."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
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
from bertprep.records.record_index import index_records
from bertprep.records.record_set import RecordSet
from bertprep.tasks.glue import TASKS
from bertprep.workspace.layout import TRAINING
from tests.golden import GOLDEN
from trainer.batches import GlobalBatch, TrainingBatches
from trainer.cli import main
from trainer.log import LOG
from trainer.model_config import ModelConfig
from trainer.settings import EngineSettings, RunSettings
from trainer.tasks import Task
from trainer.tasks.classification import Classification
from trainer.tasks.pretraining import MASKED_LM, PRETRAINING
from trainer.tasks.squad import Squad

VOCABULARY = GOLDEN / "vocab.txt"
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


FINE_TUNING: dict[str, Task] = {
    "squad": Squad("1.1"),
    "classification": Classification(TASKS["mnli"]),
    "regression": Classification(TASKS["stsb"]),
}
"""A task of each kind of heads."""


def make_task_batch(task: Task, step: int, *, sequences: int = BATCH, seq: int = SEQ) -> Examples:
    """The same for any task: labels by chance."""
    if task in (PRETRAINING, MASKED_LM):
        batch = make_batch(step, sequences=sequences, seq=seq)
        return batch if task == PRETRAINING else MaskedExamples(*batch.arrays[:-1])
    rng = np.random.default_rng([SEED, step, 1])
    length = rng.integers(4, seq + 1, (sequences, 1))
    inputs: dict[str, Any] = {
        "input_ids": rng.integers(0, MODEL.vocab_size, (sequences, seq), np.int32),
        "input_mask": (np.arange(seq) < length).astype(np.int32),
        "segment_ids": ((np.arange(seq) > length // 2) & (np.arange(seq) < length)).astype(np.int32),
    }
    if task.examples is SquadExamples:
        ends = rng.integers(0, length[:, 0], dtype=np.int32)
        starts = rng.integers(0, ends + 1, dtype=np.int32)
        impossible = (ends == 0).astype(np.int32)
        return SquadExamples(
            np.arange(sequences, dtype=np.int32), **inputs, start_positions=starts, end_positions=ends, is_impossible=impossible
        )
    is_real = (np.arange(sequences) != 1).astype(np.int32)  # one that only fills the batch up
    if task.examples is RegressionExamples:
        return RegressionExamples(**inputs, label_ids=rng.random(sequences, np.float32) * 5, is_real_example=is_real)
    return ClassificationExamples(**inputs, label_ids=rng.integers(0, 3, sequences, np.int32), is_real_example=is_real)


@cache
def open_devices_once(devices: int) -> Any:
    """TensorFlow's devices of this process: two strategies over the same ones would mistake each other's sums."""
    from trainer.engines.tensorflow.devices import open_devices

    return open_devices(EngineSettings(devices=devices))


def make_records(corpus: Path, workdir: Path, *, seq: int = SEQ, pred: int = PRED) -> None:
    """Both formats of the golden corpus, with a test split, in a workspace."""
    places = ["--workdir", str(workdir), "--corpus", "golden"]
    if not (workdir / "sharded").exists():
        bertprep("shard", "--input", str(corpus), "--splitter", "lines", "--shards", "2", *places)
    bertprep("create", "--seq", str(seq), "--pred", str(pred), "--vocab", str(VOCABULARY), *places)


def bertprep(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "bertprep", *arguments], check=True, capture_output=True)


def command(workdir: Path, out: Path, *options: str) -> list[str]:
    """A run of the small model, as a process."""
    return [sys.executable, "-m", "trainer", *arguments_of(workdir, out, *options)]


def arguments_of(workdir: Path, out: Path, *options: str) -> list[str]:
    """A run of the small model: 10 steps of 16 sequences with a log entry for each, unless options say otherwise.

    An evaluation is of 100 sequences, the last batch not full: all of the test split's would take longer than the steps.
    """
    model = workdir / "bert_config.json"
    model.write_text(MODEL.to_json())
    run = ["--workdir", str(workdir), "--out", str(out), "--model", str(model), "--seq", str(SEQ), "--format", "ofrecord"]
    settings = ["--steps", "10", "--batch-size", "16", "--lr", "0.01", "--warmup-steps", "2", "--log-every", "1"]
    return [*run, *settings, "--eval-sequences", "100", *options]


def start(arguments: Sequence[str]) -> "subprocess.Popen[str]":
    """A run as the leader of a process group, which a kill reaches as a whole."""

    def heed_ctrl_c() -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell's background jobs, and so our tests there, ignore it

    # Where OneFlow was loaded it has told itself its rank, which is not that of the run
    of_this_process = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
    environment = {name: value for name, value in os.environ.items() if name not in of_this_process}
    return subprocess.Popen(
        arguments,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        preexec_fn=heed_ctrl_c,
        env={**environment, "TF_CPP_MIN_LOG_LEVEL": "3"},
    )


def finish(*runs: "subprocess.Popen[str]", status: int = 0) -> str:
    """Wait for runs to end with this status; returns what they said."""
    said = [run.communicate(timeout=300)[0] for run in runs]
    assert [run.returncode for run in runs] == [status] * len(runs), "\n".join(said)
    return "".join(said)


def train(workdir: Path, out: Path, *options: str) -> list[dict[str, Any]]:
    """Run to the end; returns the log's entries of training."""
    finish(start(command(workdir, out, *options)))
    return training_log(out)


def train_here(workdir: Path, out: Path, *options: str) -> list[dict[str, Any]]:
    """The same without a process of its own, for tests that have its framework loaded."""
    assert main(arguments_of(workdir, out, *options)) == 0
    return training_log(out)


def training_log(out: Path) -> list[dict[str, Any]]:
    entries = [json.loads(line) for line in (out / LOG).read_text().splitlines()]
    return [entry for entry in entries if entry["kind"] == "train"]


def damage_record_of(step: int, workdir: Path, record_format: str) -> str:
    """Spoil, in place, a record that a run of `command` first meets at a step; returns how errors name it."""
    (training,) = workdir.glob(f"{record_format}/*seq_len_{SEQ}_*/*/{TRAINING}")
    with RecordSet([training.parent]) as records:
        batches = TrainingBatches(records, GlobalBatch(BATCH), seed=RunSettings.seed)
        number = next(number for number in batches.numbers(step - 1).tolist() if records.place_of(number)[1] > 0)
        path, record = records.place_of(number)
    offsets = index_records([path], workdir / "offsets").offsets[0]
    begin, end = offsets[record : record + 2].tolist()
    with path.open("r+b") as file:
        file.seek(begin + 12)
        file.write(b"\xff" * (end - begin - 16))
    return f"{path}: record {record}: "


def losses(log: Sequence[dict[str, Any]]) -> list[float]:
    return [entry["loss"] for entry in log]


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for opened in sockets:
        opened.bind(("127.0.0.1", 0))
    ports = [opened.getsockname()[1] for opened in sockets]
    for opened in sockets:
        opened.close()
    return ports


def wait_for(condition: Callable[[], bool], run: "subprocess.Popen[str]") -> None:
    """Until it holds; a run that ended before that is a failure."""
    while not condition():
        with suppress(subprocess.TimeoutExpired):
            run.wait(timeout=0.02)
            pytest.fail(f"ended before it could be stopped: {run.communicate()[0]}")

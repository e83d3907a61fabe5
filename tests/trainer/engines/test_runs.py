"""Whole runs as users start them, in their processes; what the loop does in them is in tests/trainer/test_loop.py."""

import json
import os
import signal
import subprocess
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import bertprep
from tests.golden import GOLDEN
from tests.object_store import Fault, Store, store
from tests.records.test_arriving import upload
from tests.trainer.numpy_engine import checkpoints
from tests.trainer.small_runs import (
    MODEL,
    PRED,
    SEQ,
    VOCABULARY,
    arguments_of,
    command,
    finish,
    free_ports,
    losses,
    start,
    train_here,
    training_log,
    wait_for,
)
from trainer.checkpoint import find_checkpoints, read
from trainer.cli import main

__all__ = ["store"]  # a fixture
STOPPED = 3
LOSSES = json.loads((GOLDEN / "losses_tiny.json").read_bytes())
on_each_engine = pytest.mark.parametrize(
    "engine", [pytest.param(name, marks=getattr(pytest.mark, name)) for name in ("tensorflow", "jax")]
)


@pytest.mark.parametrize("optimizer", ["adam", "lamb"])
@pytest.mark.parametrize(
    ("engine", "tolerance"),
    [pytest.param("jax", 1e-5, marks=pytest.mark.jax), pytest.param("oneflow", 1e-4, marks=pytest.mark.oneflow)],
)
def test_the_losses_are_tensorflows(engine: str, tolerance: float, optimizer: str, workdir: Path, tmp_path: Path) -> None:
    """Of the same weights and records, as scripts/make_loss_golden has trained on them."""
    golden = LOSSES[optimizer]
    options = ["--no-dropout", "--steps", str(len(golden["losses"])), "--optimizer", optimizer, "--lr", str(golden["lr"])]
    found = losses(train_here(workdir, tmp_path, "--engine", engine, *options))
    assert len(found) == 20
    np.testing.assert_allclose(found, golden["losses"], rtol=0, atol=tolerance)
    assert min(found) < found[0] - 0.05


@pytest.fixture(scope="module")
def one_layer(workdir: Path) -> list[str]:
    """The options of a model of one layer, whose steps are traced in half the time, in every process anew."""
    path = workdir / "one_layer.json"
    path.write_text(replace(MODEL, num_hidden_layers=1).to_json())
    return ["--model", str(path)]


def start_two(workdir: Path, out: Path, *options: str) -> "list[subprocess.Popen[str]]":
    """Two processes on this host, which stand for two hosts."""
    hosts = ",".join(f"127.0.0.1:{port}" for port in free_ports(2))
    return [start(command(workdir, out, *options, "--hosts", hosts, "--host-rank", str(rank))) for rank in range(2)]


@on_each_engine
def test_two_processes_are_as_one(engine: str, workdir: Path, one_layer: list[str], tmp_path: Path) -> None:
    """As are two micro-batches, which both have in common with both processes' four."""
    options = ["--engine", engine, "--no-dropout", "--lr", "0.003", *one_layer]
    one = train_here(workdir, tmp_path / "one", *options)
    finish(*start_two(workdir, tmp_path / "two", *options, "--batch-size", "4", "--accumulate", "2"))
    two = training_log(tmp_path / "two")
    np.testing.assert_allclose(losses(two), losses(one), rtol=0, atol=1e-5)
    assert losses(one)[-1] < losses(one)[0] - 0.01
    evaluated = [json.loads((tmp_path / name / "log.jsonl").read_text().splitlines()[-1]) for name in ("one", "two")]
    assert evaluated[0]["kind"] == "evaluation"
    assert evaluated[1]["loss"] == pytest.approx(evaluated[0]["loss"], abs=1e-5)
    assert evaluated[1]["sequences"] == evaluated[0]["sequences"]


@pytest.mark.tensorflow
def test_a_run_in_a_bucket_is_that_of_the_disk(workdir: Path, tmp_path: Path, store: Store) -> None:
    """Records, vocabulary, model and results are objects; what dies and fails there is in test_store_runs.py."""
    whole = train_here(workdir, tmp_path / "whole", "--steps", "20", "--save-every", "10")
    there = upload(workdir, store)
    given = dict(pairwise(arguments_of(workdir, tmp_path, "--steps", "20", "--save-every", "10")))
    del given["--out"]
    given |= {"--workdir": str(there), "--model": str(there / "bert_config.json"), "--cache-size": "1GB", "--steps": "20"}
    store.faults += [
        Fault("GET", ".*part-.*", times=2, cut_after=1000),
        Fault("PUT", ".*checkpoint.*", times=3, status=503, code="SlowDown"),
        Fault("PUT", ".*checkpoint.*", lose=True),
    ]
    assert main([word for name, value in given.items() if name.startswith("--") for word in (name, value)]) == 0
    assert not any(fault.times for fault in store.faults)
    (out,) = (there / "models").iterdir()
    assert losses(training_log(out)) == losses(whole)
    assert checkpoints(out) == checkpoints(tmp_path / "whole")


@pytest.mark.tensorflow
def test_token_shards_train_as_the_records_made_of_them(workdir: Path, tmp_path: Path) -> None:
    """With dropout, to the bit; what else such runs do is in tests/trainer/test_live_runs.py."""
    bertprep.tokenize(workdir=workdir, corpus="golden", vocab=VOCABULARY, workers=1)
    shuffled = ["--steps", "6", "--shuffle-shards", "1"]
    records = train_here(workdir, tmp_path / "records", "--shuffle", "shards", *shuffled)
    live = train_here(workdir, tmp_path / "tokens", "--format", "tokens", "--pred", str(PRED), *shuffled)
    assert losses(live) == losses(records)
    assert [entry["gradient_norm"] for entry in live] == [entry["gradient_norm"] for entry in records]


@on_each_engine
def test_the_death_of_a_process_is_a_line_in_the_other(
    engine: str, workdir: Path, one_layer: list[str], tmp_path: Path
) -> None:
    options = ["--no-dropout", *one_layer, "--batch-size", "4", "--accumulate", "2"]  # as above, since that is compiled
    runs = start_two(workdir, tmp_path / "out", "--engine", engine, *options, "--steps", "100000")
    log = tmp_path / "out" / "log.jsonl"
    wait_for(lambda: log.exists() and len(log.read_bytes().splitlines()) > 3, runs[0])
    os.killpg(runs[1].pid, signal.SIGKILL)
    said = finish(runs[0], status=1)
    runs[1].communicate()
    assert "trainer: error: process 0 of 2: another one is gone" in said.splitlines()[-1]


@pytest.mark.jax
def test_a_process_that_waits_for_the_others_heeds_ctrl_c(workdir: Path, tmp_path: Path) -> None:
    run = start(command(workdir, tmp_path, "--engine", "jax", "--hosts", "127.0.0.1:1,127.0.0.1:2", "--host-rank", "1"))
    assert run.stdout is not None
    while "process 1 of 2: waiting for the others" not in run.stdout.readline():
        assert run.poll() is None
    os.kill(run.pid, signal.SIGINT)
    finish(run, status=130)


@on_each_engine
def test_a_run_that_is_stopped_and_killed_ends_with_the_same_bytes(
    engine: str, workdir: Path, one_layer: list[str], tmp_path: Path
) -> None:
    """With dropout, fp16, accumulation and two phases."""
    phases = ["--phases", f"{SEQ}:12,{2 * SEQ}:8", "--batch-size", "8,4", "--warmup-steps", "2,1", "--lr", "0.01,0.005"]
    hard = [*phases, "--engine", engine, "--accumulate", "2", "--amp", "fp16", "--save-every", "4", "--optimizer", "lamb"]
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"

    def start_hard(out: Path) -> "subprocess.Popen[str]":
        words = command(workdir, out, *hard, *one_layer)
        return start([word for word in words if word not in ("--seq", str(SEQ), "--steps", "10")])

    assert finish(start_hard(whole)).count("test split") == 2
    log = stopped / "log.jsonl"
    run = start_hard(stopped)
    wait_for(lambda: log.exists() and log.read_bytes().count(b'"train"') >= 5, run)
    os.kill(run.pid, signal.SIGTERM)
    said = finish(run, status=STOPPED)
    step = read(find_checkpoints(stopped)[-1]).run.step
    assert "SIGTERM: stopping after this step" in said
    assert said.endswith(f"stopped after step {step} of 20; the same command resumes from {stopped}\n")
    assert len(training_log(stopped)) == step < 20
    run = start_hard(stopped)
    wait_for(lambda: log.read_bytes().count(b'"train"') >= min(step + 6, 19), run)
    os.killpg(run.pid, signal.SIGKILL)
    run.communicate()
    finish(start_hard(stopped))
    found, expected = (find_checkpoints(out) for out in (stopped, whole))
    assert [path.name for path in found] == [path.name for path in expected]
    for path, of_whole in zip(found, expected, strict=True):
        assert path.read_bytes() == of_whole.read_bytes()
    assert losses(training_log(stopped)) == losses(training_log(whole))
    assert not list(stopped.rglob("*.tmp"))

"""Complete runs as users start them, in their processes; what the loop does in them is in tests/trainer/test_loop.py."""

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.golden import GOLDEN
from tests.trainer.numpy_engine import assert_same_run, read_entries
from tests.trainer.small_runs import (
    MODEL,
    arguments_of,
    command,
    finish,
    free_ports,
    kill_groups,
    losses,
    on_engines,
    on_engines_with,
    start,
    train_here,
    training_log,
    wait_for,
)
from trainer.checkpoint import find_checkpoints, read_header

LOSSES = json.loads((GOLDEN / "losses_tiny.json").read_bytes())
with_hosts = on_engines("tensorflow", "torch")


@on_engines_with("optimizer", {"torch": ["adam", "lamb"], "oneflow": ["adam"]})
def test_the_losses_are_tensorflows(engine: str, optimizer: str, workdir: Path, tmp_path: Path) -> None:
    """Of the same weights and records, as tests/golden/make_loss_golden.py has trained on them."""
    golden = LOSSES[optimizer]
    options = f"--no-dropout --steps {len(golden['losses'])} --optimizer {optimizer} --lr {golden['lr']}"
    found = losses(train_here(workdir, tmp_path, "--engine", engine, *options.split()))
    assert len(found) == 20
    np.testing.assert_allclose(found, golden["losses"], rtol=0, atol=1e-4 if engine == "oneflow" else 1e-5)
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


@with_hosts
def test_two_processes_are_as_one(engine: str, workdir: Path, one_layer: list[str], tmp_path: Path) -> None:
    """As are two micro-batches, which both have in common with both processes' four, and packed rows."""
    options = ["--engine", engine, "--no-dropout", "--lr", "0.003", *one_layer]
    one = train_here(workdir, tmp_path / "one", *options)
    finish(*start_two(workdir, tmp_path / "two", *options, "--batch-size", "4", "--accumulate", "2", "--pack"))
    two = training_log(tmp_path / "two")
    np.testing.assert_allclose(losses(two), losses(one), rtol=0, atol=1e-5)
    assert losses(one)[-1] < losses(one)[0] - 0.01
    evaluations = [read_entries(tmp_path / name, "evaluation")[-1] for name in ("one", "two")]
    assert evaluations[1] == pytest.approx(evaluations[0], abs=1e-5)


@pytest.mark.torch
@pytest.mark.skipif(importlib.util.find_spec("tensorflow") is None, reason="TensorFlow is not installed")
def test_two_processes_resume_what_two_processes_of_another_engine_have_saved(
    workdir: Path, one_layer: list[str], tmp_path: Path
) -> None:
    """PyTorch's, each with its shard of the moments, go on as TensorFlow's, which have all of them, and these as PyTorch's."""
    options = ["--no-dropout", "--lr", "0.003", *one_layer, "--batch-size", "8", "--save-every", "4"]
    one = train_here(workdir, tmp_path / "one", "--engine", "torch", *options, "--batch-size", "16")
    two = tmp_path / "two"
    for engine, kept, resumed in (("torch", 1, ""), ("tensorflow", 2, "4"), ("torch", 3, "8")):
        printed = finish(*start_two(workdir, two, *options, "--engine", engine))
        assert re.findall(r"resuming after step (\d+)", printed) == [*resumed]
        for path in find_checkpoints(two)[kept:]:
            path.unlink()
    np.testing.assert_allclose(losses(training_log(two)), losses(one), rtol=0, atol=1e-5)


@with_hosts
def test_the_death_of_a_process_is_a_line_in_the_other(
    engine: str, workdir: Path, one_layer: list[str], tmp_path: Path
) -> None:
    options = ["--no-dropout", *one_layer, "--batch-size", "4", "--accumulate", "2"]  # as above, since that is compiled
    runs = start_two(workdir, tmp_path / "out", "--engine", engine, *options, "--steps", "100000")
    log = tmp_path / "out" / "log.jsonl"
    wait_for(lambda: log.exists() and len(log.read_bytes().splitlines()) > 3, runs[0])
    kill_groups(runs[1])
    assert "trainer: error: process 0 of 2: another one is gone" in finish(runs[0], status=1).splitlines()[-1]


@pytest.mark.torch
def test_a_process_that_waits_for_the_others_heeds_ctrl_c(workdir: Path, tmp_path: Path) -> None:
    run = start(command(workdir, tmp_path, "--engine", "torch", "--hosts", "127.0.0.1:1,127.0.0.1:2", "--host-rank", "1"))
    assert run.stdout is not None
    while "process 1 of 2: waiting for the others" not in run.stdout.readline():
        assert run.poll() is None
    os.kill(run.pid, signal.SIGINT)
    finish(run, status=130)


KILLED = """
import os, runpy, signal, sys
from trainer.engines import Engine

at = int(sys.argv.pop(1))
train = Engine.train

def train_or_die(engine, *batch, step, **settings):
    if step == at:
        os.kill(os.getpid(), signal.SIGKILL)
    return train(engine, *batch, step=step, **settings)

Engine.train = train_or_die
runpy.run_module("trainer", run_name="__main__")
"""
"""A run that is killed as it starts a step."""


@on_engines("tensorflow", "torch")
def test_a_run_that_is_killed_ends_with_the_same_bytes(
    engine: str, workdir: Path, one_layer: list[str], tmp_path: Path
) -> None:
    """With dropout, LAMB, fp16, accumulation and packed rows; on PyTorch with the processes of two devices."""
    hard = ["--accumulate", "2", "--amp", "fp16", "--optimizer", "lamb", "--save-every", "4", "--steps", "16", "--pack"]
    size = ["--batch-size", "4", "--devices", "2"] if engine == "torch" else ["--batch-size", "8"]
    options = ["--engine", engine, *size, *hard, *one_layer]
    uninterrupted, killed = tmp_path / "uninterrupted", tmp_path / "killed"

    train_here(workdir, uninterrupted, *options)
    killed_at_step = [sys.executable, "-c", KILLED, "11"]
    finish(start([*killed_at_step, *arguments_of(workdir, killed, *options)]), status=-signal.SIGKILL)
    assert len(training_log(killed)) == 10
    assert read_header(find_checkpoints(killed)[-1])["step"] == 8
    train_here(workdir, killed, *options)
    assert_same_run(killed, uninterrupted)

"""Whole runs on OneFlow as users start them: TensorFlow's losses, a pipeline killed and gone on with, a plan that is told."""

import json
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.golden import GOLDEN
from tests.trainer.engines.oneflow.launching import finish_in_time, kill, launch
from tests.trainer.small_runs import SEQ, command, damage_record_of, finish, losses, start, train, training_log, wait_for
from trainer.checkpoint import find_checkpoints, read

pytestmark = pytest.mark.oneflow
LOSSES = json.loads((GOLDEN / "losses_tiny.json").read_bytes())


@pytest.mark.parametrize("optimizer", ["adam", "lamb"])
def test_the_losses_are_tensorflows(optimizer: str, workdir: Path, tmp_path: Path) -> None:
    """Of the same weights and records, as scripts/make_loss_golden has trained on them."""
    golden = LOSSES[optimizer]
    options = ["--no-dropout", "--steps", str(len(golden["losses"])), "--optimizer", optimizer, "--lr", str(golden["lr"])]
    found = losses(train(workdir, tmp_path, "--engine", "oneflow", *options))
    assert len(found) == 20
    np.testing.assert_allclose(found, golden["losses"], rtol=0, atol=1e-4)
    assert min(found) < found[0] - 0.05


def run_pipeline(workdir: Path, out: Path) -> "list[subprocess.Popen[str]]":
    """Two phases, of longer sequences in the second, in two stages."""
    phases = ["--phases", f"{SEQ}:6,{2 * SEQ}:20", "--batch-size", "4", "--grad-acc-steps", "2", "--save-every", "4"]
    arguments = command(workdir, out, "--engine", "oneflow", "--nums-split", "2", "--checkpoint-activations", *phases)
    place = arguments.index("--seq")
    options = [word for word in (*arguments[:place], *arguments[place + 2 :]) if word not in ("--steps", "10")]
    return launch(options[1:], 2, out.with_name("logs"))


def test_a_pipeline_that_is_killed_goes_on_to_the_same_losses(workdir: Path, tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    said = finish_in_time(run_pipeline(workdir, whole))
    assert re.search("devices +2 x CPU in pipelines of 2, 2 processes\n", said)
    assert "stage  layers         parameters  ranks\n0      embeddings, 0" in said
    runs, log = run_pipeline(workdir, killed), killed / "log.jsonl"
    try:
        wait_for(lambda: log.exists() and log.read_bytes().count(b'"train"') >= 8, runs[0])
    finally:
        kill(runs)
    step = read(find_checkpoints(killed)[-1]).step
    assert 6 <= step < 26
    said = finish_in_time(run_pipeline(workdir, killed))
    assert said.count(f"resuming after step {step}\n") == 1  # one process speaks
    assert losses(training_log(killed)) == losses(training_log(whole))
    assert find_checkpoints(killed)[-1].read_bytes() == find_checkpoints(whole)[-1].read_bytes()


def test_a_run_that_is_told_to_stop_goes_on_eagerly(workdir: Path, tmp_path: Path) -> None:
    """With the masks that a graph would have had."""
    options = ["--engine", "oneflow", "--steps", "12", "--accumulate", "2", "--batch-size", "8"]
    train(workdir, tmp_path / "whole", *options)
    out = tmp_path / "stopped"
    run, log = start(command(workdir, out, *options)), out / "log.jsonl"
    wait_for(lambda: log.exists() and log.read_bytes().count(b'"train"') >= 4, run)
    os.kill(run.pid, signal.SIGTERM)
    finish(run, status=3)
    finish(start(command(workdir, out, *options, "--eager")))
    np.testing.assert_allclose(losses(training_log(out)), losses(training_log(tmp_path / "whole")), rtol=0, atol=1e-5)


def test_a_damaged_record_costs_no_step(workdir: Path, tmp_path: Path) -> None:
    """Neither in one process nor in two, which skip it alike."""
    shutil.copytree(workdir, data := tmp_path / "data")
    name = damage_record_of(7, data, "ofrecord")
    out, options = tmp_path / "one", ["--engine", "oneflow", "--no-dropout"]
    said = finish(start(command(data, out, *options)), status=1).splitlines()[-1]
    assert said.startswith(f"trainer: error: {name}")
    assert said.endswith("; step 6 is saved, and the same command goes on from there")
    assert [read(path).step for path in find_checkpoints(out)] == [6]
    assert f"step 7: without a bad record: {name}" in finish(start(command(data, out, *options, "--skip-bad-records", "1")))

    def launch_two(*more: str) -> "list[subprocess.Popen[str]]":
        return launch(command(data, tmp_path / "two", *options, "--batch-size", "8", *more)[1:], 2, tmp_path / "logs")

    runs = launch_two()
    try:
        said = "".join(run.communicate(timeout=60)[0] for run in runs)
    finally:
        kill(runs)
    assert all(run.returncode != 0 for run in runs)
    assert f"trainer: error: {name}" in said
    assert [read(path).step for path in find_checkpoints(tmp_path / "two")] == [6]
    finish_in_time(launch_two("--skip-bad-records", "1"))
    np.testing.assert_allclose(losses(training_log(tmp_path / "two")), losses(training_log(out)), rtol=0, atol=1e-5)


def test_half_precision_needs_a_gpu(workdir: Path, tmp_path: Path) -> None:
    said = finish(start(command(workdir, tmp_path, "--engine", "oneflow", "--amp", "fp16")), status=2)
    assert said.splitlines()[-1] == (
        "trainer: error: --amp fp16: OneFlow has no half-precision kernels for CPUs; leave --amp out, or take GPUs"
    )

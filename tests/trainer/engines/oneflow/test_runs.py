"""Whole runs on OneFlow as users start them: a pipeline killed and resumed, a plan that is printed."""

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.trainer.engines.oneflow.launching import SECONDS, finish_in_time, kill, launch
from tests.trainer.small_runs import (
    SEQ,
    arguments_of,
    command,
    damage_record_of,
    losses,
    train_here,
    training_log,
    wait_for,
)
from trainer.checkpoint import find_checkpoints, read
from trainer.cli import main

pytestmark = pytest.mark.oneflow


def run_pipeline(workdir: Path, out: Path) -> "list[subprocess.Popen[str]]":
    """Two phases, of longer sequences in the second, in two stages."""
    phases = ["--phases", f"{SEQ}:6,{2 * SEQ}:20", "--batch-size", "4", "--grad-acc-steps", "2", "--save-every", "4"]
    arguments = command(workdir, out, "--engine", "oneflow", "--nums-split", "2", "--checkpoint-activations", *phases)
    place = arguments.index("--seq")
    options = [word for word in (*arguments[:place], *arguments[place + 2 :]) if word not in ("--steps", "10")]
    return launch(options[1:], 2, out.with_name("logs"))


def test_a_pipeline_that_is_killed_resumes_to_the_same_losses(workdir: Path, tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    said = finish_in_time(run_pipeline(workdir, whole))
    assert re.search("devices +2 x CPU in pipelines of 2, 2 processes\n", said)
    assert "stage  layers         parameters  ranks\n0      embeddings, 0" in said
    runs, log = run_pipeline(workdir, killed), killed / "log.jsonl"
    try:
        wait_for(lambda: log.exists() and log.read_bytes().count(b'"train"') >= 8, runs[0])
    finally:
        kill(runs)
    step = read(find_checkpoints(killed)[-1]).run.step
    assert 6 <= step < 26
    said = finish_in_time(run_pipeline(workdir, killed))
    assert said.count(f"resuming after step {step}\n") == 1  # one process speaks
    assert losses(training_log(killed)) == losses(training_log(whole))
    assert find_checkpoints(killed)[-1].read_bytes() == find_checkpoints(whole)[-1].read_bytes()


def test_a_run_resumes_eagerly(workdir: Path, tmp_path: Path) -> None:
    """With the masks that a graph would have had."""
    options = ["--engine", "oneflow", "--steps", "12", "--accumulate", "2", "--batch-size", "8", "--save-every", "6"]
    whole = losses(train_here(workdir, tmp_path, *options))
    find_checkpoints(tmp_path)[-1].unlink()
    np.testing.assert_allclose(losses(train_here(workdir, tmp_path, *options, "--eager")), whole, rtol=0, atol=1e-5)


def test_a_damaged_record_ends_both_processes_with_the_step_before_saved(workdir: Path, tmp_path: Path) -> None:
    """They give up their graphs at the same moment, without which one would wait for the other."""
    shutil.copytree(workdir, data := tmp_path / "data")
    name = damage_record_of(7, data, "ofrecord")
    out, options = tmp_path / "out", ["--engine", "oneflow", "--no-dropout", "--batch-size", "8"]
    runs = launch(command(data, out, *options)[1:], 2, tmp_path / "logs")
    try:
        said = "".join(run.communicate(timeout=SECONDS)[0] for run in runs)
    finally:
        kill(runs)
    assert all(run.returncode != 0 for run in runs)
    assert f"trainer: error: {name}" in said
    assert [read(path).run.step for path in find_checkpoints(out)] == [6]


def test_half_precision_needs_a_gpu(workdir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments_of(workdir, tmp_path, "--engine", "oneflow", "--amp", "fp16")) == 2
    assert capsys.readouterr().err.splitlines()[-1] == (
        "trainer: error: --amp fp16: OneFlow has no half-precision kernels for CPUs; leave --amp out, or take GPUs"
    )

"""The originals' arguments, in their order, become the trainer's options with the same meaning."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parent.parent.parent / "scripts"


def run(script: str, *arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    clean = {name: value for name, value in os.environ.items() if name not in ("DRY_RUN", "PYTHON")}
    command = ["bash", str(SCRIPTS / script), *arguments]
    return subprocess.run(command, env={**clean, **environment}, capture_output=True, text=True)


def printed_options(script: str, call: str = "") -> str:
    """What the script would call the trainer with."""
    done = run(script, "--dry-run", *call.split())
    assert (done.returncode, done.stderr) == (0, "")
    (line,) = done.stdout.splitlines()
    return line.partition(" -m trainer ")[2]


def test_adam_by_its_defaults() -> None:
    """A learning rate of 1e-4 for each of 8 GPUs."""
    assert printed_options("pretrain_adam") == (
        "--format tfrecord --model large --optimizer adam --schedule nvidia --seq 128 --steps 1144000 --batch-size 14 "
        "--accumulate 1 --lr 0.0008 --warmup-steps 10000 --amp fp16 --xla --devices 8 --save-every 5000"
    )


def test_adam_with_every_argument() -> None:
    assert printed_options("pretrain_adam", "32 8 5e-5 fp32 false 4 100 2000 500 2 512 80") == (
        "--format tfrecord --model large --optimizer adam --schedule nvidia --seq 512 --steps 2000 --batch-size 32 "
        "--accumulate 2 --lr 0.0002 --warmup-steps 100 --amp off --xla off --devices 4 --save-every 500"
    )


def test_adam_with_a_model_as_tenth_argument() -> None:
    nine = "32 8 5e-5 fp32 false 4 100 2000 500"
    assert printed_options("pretrain_adam", f"{nine} large 2 512 80") == printed_options("pretrain_adam", f"{nine} 2 512 80")
    of_base = printed_options("pretrain_adam", f"{nine} base")
    assert "--model base " in of_base
    assert "--seq 512 " in of_base
    assert "--accumulate 1 " in of_base


def test_lamb_by_its_defaults_is_the_published_run() -> None:
    """65,536 sequences a step (64 x 128 x 8 GPUs); then half as many, in 1564 steps instead of NVIDIA's 782."""
    assert printed_options("pretrain_lamb") == (
        "--format tfrecord --model large --optimizer lamb --schedule nvidia --phases 128:7038,512:1564 --batch-size 64,8 "
        "--accumulate 128,512 --lr 0.006,0.004 --warmup-steps 2000,200 --amp fp16 --xla --devices 8 --save-every 100"
    )


def test_lamb_with_every_argument() -> None:
    call = "16 4 8 7.5e-4 5e-4 manual_fp16 false 4 2000 200 7829 50 128 256 base"
    assert printed_options("pretrain_lamb", call) == (
        "--format tfrecord --model base --optimizer lamb --schedule nvidia --phases 128:7046,512:1564 --batch-size 16,4 "
        "--accumulate 128,256 --lr 0.003,0.002 --warmup-steps 2000,200 --amp fp16 --xla off --devices 4 --save-every 50"
    )


@pytest.mark.parametrize("script", ["pretrain_adam", "pretrain_lamb"])
def test_what_is_printed_is_what_is_run(script: str, tmp_path: Path) -> None:
    """A stand-in for Python writes its arguments down; the printed line, read by a shell's rules, has the same."""
    stand_in = tmp_path / "python"
    stand_in.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/arguments\nexit 7\n')
    stand_in.chmod(0o755)
    done = run(script, "8", "--", "--format", "ofrecord", "--out", "a run", PYTHON=str(stand_in))
    assert done.returncode == 7
    arguments = (tmp_path / "arguments").read_text().splitlines()
    assert shlex.split(done.stdout) == [str(stand_in), *arguments]
    assert arguments[:2] == ["-m", "trainer"]
    assert arguments[-4:] == ["--format", "ofrecord", "--out", "a run"]


@pytest.mark.parametrize("script", ["pretrain_adam", "pretrain_lamb"])
def test_the_environment_asks_for_a_dry_run_too(script: str) -> None:
    done = run(script, DRY_RUN="1", PYTHON="false")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("false -m trainer ")


@pytest.mark.parametrize("script", ["pretrain_adam", "pretrain_lamb"])
def test_the_help_tells_arguments_with_their_defaults(script: str) -> None:
    done = run(script, "--help", PYTHON=sys.executable)
    assert done.returncode == 0
    assert "PER GPU: the learning rate is this times num_gpus" in done.stdout
    assert "set -euo" not in done.stdout


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("pretrain_adam many", "pretrain_adam: error: batch many: must be a whole number"),
        ("pretrain_adam 14 8 fast", "pretrain_adam: error: rate fast: must be a number, such as 1e-4"),
        ("pretrain_adam 14 8 1e-4 fp8", "pretrain_adam: error: precision fp8: must be fp16,"),
        ("pretrain_adam 14 8 1e-4 fp16 yes", "pretrain_adam: error: use_xla yes: must be true or false"),
        ("pretrain_adam 1 2 3 fp16 true 6 7 8 9 10 11 12 13", "pretrain_adam: error: 13 arguments, expected at most 12"),
        ("pretrain_adam --fast", "pretrain_adam: error: --fast: unknown option"),
        ("pretrain_lamb 16 4 8 7.5e-4 5e-4 fp16 true 4.5", "pretrain_lamb: error: gpus 4.5: must be a whole number"),
        ("pretrain_lamb 16 0", "pretrain_lamb: error: batch2 0: must be at least 1"),
        ("pretrain_lamb 16 4 8 7.5e-4 5e-4 fp16 true 4 0 0 9", "pretrain_lamb: error: train_steps 9: leaves a phase without"),
    ],
)
def test_mistakes_are_one_line(command: str, message: str) -> None:
    done = run(*command.split(), DRY_RUN="1")
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith(message)

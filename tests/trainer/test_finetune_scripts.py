"""The arguments of NVIDIA's run_squad.sh and run_glue.sh, in their order, become two commands: records, then training."""

import os
import shlex
import subprocess
from pathlib import Path

import pytest

from bertprep.config import GlueSettings, SquadSettings
from bertprep.workspace.layout import task_settings_name
from trainer.cli import make_parser

SCRIPTS = Path(__file__).parents[2] / "scripts"


def run(script: str, *arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    clean = {name: value for name, value in os.environ.items() if name not in ("DRY_RUN", "PYTHON", "WORKDIR")}
    command = ["bash", str(SCRIPTS / script), *arguments]
    return subprocess.run(command, env={**clean, **environment}, capture_output=True, text=True, check=False)


def printed(script: str, call: str = "") -> list[str]:
    """What is called for the records, and then for the training."""
    done = run(script, "--dry-run", *call.split())
    assert (done.returncode, done.stderr) == (0, "")
    return [line.partition(" -m ")[2] for line in done.stdout.splitlines()]


def test_squad_by_its_defaults_is_nvidias_run() -> None:
    """A learning rate of 5e-6 for each of 8 GPUs."""
    records = f"data/tfrecord/{task_settings_name(SquadSettings())}/squad_v1.1"
    assert printed("run_squad") == [
        "bertprep create --workdir data --task squad --version 1.1 --seq 384 --doc-stride 128 "
        "--vocab google-bert/bert-large-uncased",
        f"trainer squad --workdir data --version 1.1 --data {records} --init google-bert/bert-large-uncased --batch-size 8 "
        "--lr 4e-05 --epochs 2.0 --amp fp16 --xla on --devices 8",
    ]


def test_squad_with_every_argument() -> None:
    records = f"data/tfrecord/{task_settings_name(SquadSettings(seq=256, doc_stride=64))}/squad_v2.0"
    assert printed("run_squad", "32 1e-5 bf16 false 4 256 64 base 2.0 runs/mine 3 -- --engine oneflow") == [
        "bertprep create --workdir data --task squad --version 2.0 --seq 256 --doc-stride 64 "
        "--vocab google-bert/bert-base-uncased",
        f"trainer squad --workdir data --version 2.0 --data {records} --init runs/mine --batch-size 32 --lr 4e-05 --epochs 3 "
        "--amp bf16 --xla off --devices 4 --engine oneflow",
    ]


def test_glue_by_its_defaults_is_nvidias_run() -> None:
    records = f"data/tfrecord/{task_settings_name(GlueSettings())}/glue_mrpc"
    assert printed("run_glue") == [
        "bertprep create --workdir data --task glue --name mrpc --seq 128 --vocab google-bert/bert-large-uncased",
        f"trainer glue --workdir data --name mrpc --data {records} --init google-bert/bert-large-uncased --batch-size 16 "
        "--lr 2.4e-05 --epochs 3.0 --warmup 0.1 --amp fp16 --xla on --devices 8",
    ]


def test_glue_with_every_argument() -> None:
    records = f"data/tfrecord/{task_settings_name(GlueSettings(seq=64))}/glue_sst2"
    assert printed("run_glue", "SST-2 32 3e-5 fp32 false 1 64 32 base 2 0.06 runs/mine") == [
        "bertprep create --workdir data --task glue --name sst2 --seq 64 --vocab google-bert/bert-base-uncased",
        f"trainer glue --workdir data --name sst2 --data {records} --init runs/mine --batch-size 32 --lr 3e-05 --epochs 2 "
        "--warmup 0.06 --amp off --xla off --devices 1",
    ]


@pytest.mark.parametrize("script", ["run_squad", "run_glue"])
def test_the_trainer_knows_what_it_is_given(script: str) -> None:
    """By its own parser, which refuses an unknown option."""
    command, *arguments = shlex.split(printed(script)[1].removeprefix("trainer "))
    options = make_parser(command).parse_args([command, *arguments])
    assert options.devices == 8


@pytest.mark.parametrize("script", ["run_squad", "run_glue"])
def test_what_is_printed_is_what_is_run(script: str, tmp_path: Path) -> None:
    """A stand-in for Python writes its arguments down; the printed lines, read by a shell's rules, have the same."""
    stand_in = tmp_path / "python"
    stand_in.write_text(f'#!/bin/sh\nprintf "%s\\n" "$0" "$@" >> {tmp_path}/arguments\n')
    stand_in.chmod(0o755)
    done = run(script, "--", "--out", "a run", PYTHON=str(stand_in), WORKDIR="my data")
    assert done.returncode == 0
    arguments = (tmp_path / "arguments").read_text().splitlines()
    assert [word for line in done.stdout.splitlines() for word in shlex.split(line)] == arguments
    assert arguments[-2:] == ["--out", "a run"]
    assert arguments.count("my data") == 2


@pytest.mark.parametrize("script", ["run_squad", "run_glue"])
def test_no_training_without_records(script: str) -> None:
    done = run(script, PYTHON="false")
    assert done.returncode == 1
    assert len(done.stdout.splitlines()) == 1


@pytest.mark.parametrize("script", ["run_squad", "run_glue"])
def test_the_help_tells_arguments_with_their_defaults(script: str) -> None:
    done = run(script, "--help")
    assert done.returncode == 0
    assert "PER GPU: the learning rate is this times num_gpus" in done.stdout
    assert "set -euo" not in done.stdout


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("run_squad many", "run_squad: error: batch_size many: must be a whole number"),
        ("run_squad 0", "run_squad: error: batch_size 0: must be at least 1"),
        ("run_squad 8 fast", "run_squad: error: learning_rate fast: must be a number, such as 5e-6"),
        ("run_squad 8 5e-6 fp8", "run_squad: error: precision fp8: must be fp16,"),
        ("run_squad 8 5e-6 fp16 yes", "run_squad: error: use_xla yes: must be true or false"),
        ("run_squad 8 5e-6 fp16 true 8 384 128 huge", "run_squad: error: bert_model huge: must be large or base"),
        ("run_squad 8 5e-6 fp16 true 8 384 128 large 1.2", "run_squad: error: squad_version 1.2: must be 1.1 or 2.0"),
        ("run_squad 1 2 3 4 5 6 7 8 9 10 11 12", "run_squad: error: 12 arguments, expected at most 11"),
        ("run_glue --fast", "run_glue: error: --fast: is no option"),
        ("run_glue MR/PC", "run_glue: error: task_name MR/PC: must be a task of GLUE"),
        ("run_glue MRPC 16 3e-6 fp16 true 8 128 64 large 3 much", "run_glue: error: warmup much: must be a number"),
    ],
)
def test_mistakes_are_one_line(command: str, message: str) -> None:
    done = run(*command.split(), DRY_RUN="1")
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith(message)

"""scripts/pretrain_*, run_*: the arguments of NVIDIA's and OneFlow's trainers become commands with the same meaning."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from bertprep.config import GlueSettings, SquadSettings
from bertprep.work.layout import task_settings_name
from tests.golden import GOLDEN
from tests.records.test_records import write_folder
from trainer.cli import make_parser

SCRIPTS = Path(__file__).parents[2] / "scripts"
PRETRAIN, FINETUNE = ["pretrain_adam", "pretrain_lamb"], ["run_squad", "run_glue"]
ALL = [*PRETRAIN, *FINETUNE]
SQUAD, SQUAD_64 = (task_settings_name(each) for each in (SquadSettings(), SquadSettings(seq=256, doc_stride=64)))
GLUE, GLUE_64 = (task_settings_name(each) for each in (GlueSettings(), GlueSettings(seq=64)))
ADAM = "trainer --format tfrecord --model {} --optimizer adam --schedule nvidia"
LAMB = "trainer --format tfrecord --model {} --optimizer lamb --schedule nvidia"
LARGE, BASE = "data/models/lamb_large", "data/models/lamb_base"
OF_LARGE, OF_BASE = "google-bert/bert-large-uncased", "google-bert/bert-base-uncased"
# Each call with what is run: NVIDIA's defaults, whose learning rates are for each of 8 GPUs, and every argument
COMMANDS = {
    "pretrain_adam": [
        f"{ADAM.format('large')} --amp fp16 --xla on --devices 8 --save-every 5000 --seq 128 --steps 1144000 --batch-size 14 "
        "--accumulate 1 --lr 0.0008 --warmup-steps 10000"
    ],
    "pretrain_adam 32 8 5e-5 fp32 false 4 100 2000 500 2 512 80": [
        f"{ADAM.format('large')} --amp off --xla off --devices 4 --save-every 500 --seq 512 --steps 2000 --batch-size 32 "
        "--accumulate 2 --lr 0.0002 --warmup-steps 100"
    ],
    "pretrain_adam 32 8 5e-5 fp32 false 4 100 2000 500 base": [  # the tenth argument may be a model
        f"{ADAM.format('base')} --amp off --xla off --devices 4 --save-every 500 --seq 512 --steps 2000 --batch-size 32 "
        "--accumulate 1 --lr 0.0002 --warmup-steps 100"
    ],
    "pretrain_adam -- --epochs=2": [
        f"{ADAM.format('large')} --amp fp16 --xla on --devices 8 --save-every 5000 --seq 128 --batch-size 14 --accumulate 1 "
        "--lr 0.0008 --warmup-steps 10000 --epochs=2"
    ],
    # 65,536 sequences a step (64 x 128 x 8 GPUs); then half as many, in 1564 steps instead of NVIDIA's 782
    "pretrain_lamb": [
        f"{LAMB.format('large')} --amp fp16 --xla on --devices 8 --save-every 100 --seq 128 --steps 7038 --batch-size 64 "
        f"--accumulate 128 --lr 0.006 --warmup-steps 2000 --out {LARGE}/phase-1",
        f"{LAMB.format('large')} --amp fp16 --xla on --devices 8 --save-every 100 --seq 512 --steps 1564 --batch-size 8 "
        f"--accumulate 512 --lr 0.004 --warmup-steps 200 --init {LARGE}/phase-1 --out {LARGE}/phase-2",
    ],
    "pretrain_lamb 16 4 8 7.5e-4 5e-4 manual_fp16 false 4 2000 200 7829 50 128 256 base -- --keep 1": [
        f"{LAMB.format('base')} --amp fp16 --xla off --devices 4 --save-every 50 --seq 128 --steps 7046 --batch-size 16 "
        f"--accumulate 128 --lr 0.003 --warmup-steps 2000 --out {BASE}/phase-1 --keep 1",
        f"{LAMB.format('base')} --amp fp16 --xla off --devices 4 --save-every 50 --seq 512 --steps 1564 --batch-size 4 "
        f"--accumulate 256 --lr 0.002 --warmup-steps 200 --init {BASE}/phase-1 --out {BASE}/phase-2 --keep 1",
    ],
    "run_squad": [
        f"bertprep task squad --version 1.1 --workdir data --seq 384 --doc-stride 128 --vocab {OF_LARGE}",
        f"trainer squad --workdir data --version 1.1 --data data/tfrecord/{SQUAD}/squad_v1.1 --init {OF_LARGE} --batch-size 8 "
        "--lr 4e-05 --epochs 2.0 --amp fp16 --xla on --devices 8",
    ],
    "run_squad 32 1e-5 bf16 false 4 256 64 base 2.0 runs/mine 3 -- --engine oneflow": [
        f"bertprep task squad --version 2.0 --workdir data --seq 256 --doc-stride 64 --vocab {OF_BASE}",
        f"trainer squad --workdir data --version 2.0 --data data/tfrecord/{SQUAD_64}/squad_v2.0 --init runs/mine "
        "--batch-size 32 --lr 4e-05 --epochs 3 --amp bf16 --xla off --devices 4 --engine oneflow",
    ],
    "run_squad -- --steps 5": [  # the user's length replaces the script's: the trainer refuses both
        f"bertprep task squad --version 1.1 --workdir data --seq 384 --doc-stride 128 --vocab {OF_LARGE}",
        f"trainer squad --workdir data --version 1.1 --data data/tfrecord/{SQUAD}/squad_v1.1 --init {OF_LARGE} --batch-size 8 "
        "--lr 4e-05 --amp fp16 --xla on --devices 8 --steps 5",
    ],
    "run_glue": [
        f"bertprep task glue mrpc --workdir data --seq 128 --vocab {OF_LARGE}",
        f"trainer glue --workdir data --name mrpc --data data/tfrecord/{GLUE}/glue_mrpc --init {OF_LARGE} --batch-size 16 "
        "--lr 2.4e-05 --epochs 3.0 --amp fp16 --xla on --devices 8 --warmup 0.1",
    ],
    "run_glue SST-2 32 3e-5 fp32 false 1 64 32 base 2 0.06 runs/mine": [
        f"bertprep task glue sst2 --workdir data --seq 64 --vocab {OF_BASE}",
        f"trainer glue --workdir data --name sst2 --data data/tfrecord/{GLUE_64}/glue_sst2 --init runs/mine --batch-size 32 "
        "--lr 3e-05 --epochs 2 --amp off --xla off --devices 1 --warmup 0.06",
    ],
}


def run(script: str, *arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    clean = {name: value for name, value in os.environ.items() if name not in ("DRY_RUN", "PYTHON", "WORKDIR")}
    command = ["bash", str(SCRIPTS / script), *arguments]
    return subprocess.run(command, env={**clean, **environment}, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("call", COMMANDS)
def test_a_call_becomes_commands(call: str) -> None:
    script, *arguments = call.split()
    done = run(script, "--dry-run", *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.partition(" -m ")[2] for line in done.stdout.splitlines()] == COMMANDS[call]
    given = shlex.split(COMMANDS[call][-1].removeprefix("trainer "))
    command = given if script in FINETUNE else ["pretrain", *given]
    assert make_parser(command[0]).parse_args(command).devices in (1, 4, 8)  # which refuses an unknown option


@pytest.mark.parametrize("script", ALL)
def test_what_is_printed_is_run(script: str, tmp_path: Path) -> None:
    """A stand-in for Python writes its arguments down; the printed lines, read by a shell's rules, have the same."""
    stand_in = tmp_path / "python"
    stand_in.write_text(f'#!/bin/sh\nprintf "%s\\n" "$0" "$@" >> {tmp_path}/arguments\n')
    stand_in.chmod(0o755)
    done = run(script, "--", "--out", "a run", PYTHON=str(stand_in), WORKDIR="my data")
    assert done.returncode == 0
    arguments = (tmp_path / "arguments").read_text().splitlines()
    assert [word for line in done.stdout.splitlines() for word in shlex.split(line)] == arguments
    assert arguments[-2:] == ["--out", "a run"]
    assert arguments.count("my data") == (2 if script in FINETUNE else 0)


@pytest.mark.parametrize("script", ALL)
def test_dry_runs_failures_and_help(script: str) -> None:
    dry = run(script, DRY_RUN="1", PYTHON="false")
    assert (dry.returncode, dry.stderr) == (0, "")
    assert dry.stdout.startswith("false -m ")
    failed = run(script, PYTHON="false")
    assert (failed.returncode, len(failed.stdout.splitlines())) == (1, 1)  # no training without records
    helped = run(script, "--help")
    assert helped.returncode == 0
    assert "PER GPU: the learning rate is this times num_gpus" in helped.stdout
    assert "set -euo" not in helped.stdout


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("pretrain_adam 14 8 fast", "pretrain_adam: error: learning_rate fast: must be a number, such as 1e-4"),
        ("pretrain_adam 14 8 1e-4 fp8", "pretrain_adam: error: precision fp8: must be one of fp16,"),
        ("pretrain_adam 14 8 1e-4 fp16 yes", "pretrain_adam: error: use_xla yes: must be one of true, false"),
        ("pretrain_adam 1 2 3 fp16 true 6 7 8 9 10 11 12 13", "pretrain_adam: error: 13 arguments, expected at most 12"),
        ("pretrain_adam --fast", "pretrain_adam: error: --fast: unknown option"),
        ("pretrain_lamb 16 4 8 7.5e-4 5e-4 fp16 true 4.5", "pretrain_lamb: error: num_gpus 4.5: must be a whole number"),
        ("pretrain_lamb 16 0", "pretrain_lamb: error: batch_size_phase2 0: must be a whole number, at least 1"),
        ("pretrain_lamb 16 4 8 7.5e-4 5e-4 fp16 true 4 0 0 9", "pretrain_lamb: error: train_steps 9: leaves a phase without"),
        ("run_squad 8 5e-6 fp16 true 8 384 128 huge", "run_squad: error: bert_model huge: must be one of large, base"),
        ("run_glue 1 2 3 4 5 6 7 8 9 10 11 12 13", "run_glue: error: 13 arguments, expected at most 12"),
    ],
)
def test_mistakes_are_one_line(command: str, message: str) -> None:
    done = run(*command.split(), DRY_RUN="1")
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith(message)


def run_pipeline(folder: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    records = folder / "records"
    if not records.exists():
        write_folder(records, (8,), "ofrecord")
        (records / "vocab.txt").write_bytes((GOLDEN / "vocab.txt").read_bytes())
    arguments = ["--ofrecord_path", str(records), "--seq_length", "8", "--out", str(folder / "out"), "--dry-run", *options]
    return subprocess.run(
        [sys.executable, SCRIPTS / "run_pipeline", "1", *arguments], capture_output=True, text=True, check=False
    )


def test_the_command_of_a_pipelines_host(tmp_path: Path) -> None:
    layout = ["--nnodes", "2", "--gpu_num_per_node", "4", "--nums_split", "4", "--strategy", "inter_first"]
    batch = ["--grad-acc-steps", "8", "--train-global-batch-size", "64", "--learning_rate", "2e-4", "--num_hidden_layers", "48"]
    done = run_pipeline(tmp_path, *layout, *batch)
    assert done.returncode == 0, done.stderr
    assert "oneflow.distributed.launch --nnodes 2 --nproc_per_node 4 --node_rank 1 " in done.stdout
    assert " -m trainer --engine oneflow --stages 4 --strategy inter_first --data " in done.stdout
    assert " --format ofrecord " in done.stdout
    assert " --steps 1000 --batch-size 4 --accumulate 8 --lr 0.0002 --seq 8\n" in done.stdout  # 64 over 2 x 8
    in_epochs = run_pipeline(tmp_path, *layout, *batch, "--", "--epochs", "2")
    assert "--steps" not in in_epochs.stdout
    assert in_epochs.stdout.endswith(" --epochs 2\n")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--nnodes", "1"], "node rank 1: must be from 0 to --nnodes - 1, which is 0"),
        (["--nnodes", "2", "--strategy", "other"], "--strategy other: unknown"),
        (["--nnodes", "2", "--nums_split", "4"], "--stages 4: must divide the number of processes, which is 2"),
        (["--nnodes", "2", "--nums_split", "2", "--num_hidden_layers", "1"], "--stages 2: the model has 1 layers"),
        (["--nnodes", "2", "--train-global-batch-size", "3"], "--train-global-batch-size 3: must be a multiple of 2 pipelines"),
        (["--nnodes", "2", "--grad-acc-steps", "0"], "grad_acc_steps 0: must be at least 1"),
    ],
)
def test_a_pipeline_that_cannot_be_is_one_line(options: list[str], message: str, tmp_path: Path) -> None:
    done = run_pipeline(tmp_path, *options)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"run_pipeline: error: {message}")
    assert done.stderr.count("\n") == 1

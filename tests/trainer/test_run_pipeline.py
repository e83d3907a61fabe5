"""scripts/run_pipeline: the launcher's command for the arguments of OneFlow's trainers, and refused requests."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.golden import GOLDEN
from tests.records.test_record_set import write_folder

SCRIPT = Path(__file__).parents[2] / "scripts" / "run_pipeline"


def run(folder: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    records = folder / "records"
    if not records.exists():
        write_folder(records, (8,), "ofrecord")
        (records / "vocab.txt").write_bytes((GOLDEN / "vocab.txt").read_bytes())
    arguments = ["--ofrecord_path", str(records), "--seq_length", "8", "--out", str(folder / "out"), "--dry-run", *options]
    return subprocess.run([sys.executable, SCRIPT, "1", *arguments], capture_output=True, text=True, check=False)


def test_the_command_of_a_host(tmp_path: Path) -> None:
    layout = ["--nnodes", "2", "--gpu_num_per_node", "4", "--nums_split", "4", "--strategy", "inter_first"]
    batch = ["--grad-acc-steps", "8", "--train-global-batch-size", "64", "--learning_rate", "2e-4", "--num_hidden_layers", "48"]
    done = run(tmp_path, *layout, *batch)
    assert done.returncode == 0, done.stderr
    assert "oneflow.distributed.launch --nnodes 2 --nproc_per_node 4 --node_rank 1 " in done.stdout
    assert " -m trainer --engine oneflow --stages 4 --strategy inter_first --data " in done.stdout
    assert " --steps 1000 --batch-size 4 --accumulate 8 --lr 0.0002 --format ofrecord " in done.stdout  # 64 over 2 x 8
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
def test_what_cannot_be_is_one_line(options: list[str], message: str, tmp_path: Path) -> None:
    done = run(tmp_path, *options)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"run_pipeline: error: {message}")
    assert done.stderr.count("\n") == 1

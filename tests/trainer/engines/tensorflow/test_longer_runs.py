"""Runs that are lengthened, and the best checkpoint, whatever kills come between."""

import json
import os
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest

from tests.trainer.small_runs import command, finish, start, wait_for
from trainer.checkpoint import BEST, find_checkpoints, read, read_header

pytestmark = pytest.mark.tensorflow
OPTIONS = ["--warmup-steps", "6", "--save-every", "5", "--keep-best", "--eval-every", "2", "--eval-sequences", "32"]


def run(workdir: Path, out: Path, steps: int, *options: str) -> str:
    return finish(start(command(workdir, out, *OPTIONS, "--steps", str(steps), *options)))


@pytest.fixture(scope="module")
def short(workdir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("short")
    assert f"kept as {out / BEST}" in run(workdir, out, 8)
    return out


def bytes_of(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in [*find_checkpoints(out), out / BEST]}


def test_a_run_lengthened_in_its_warmup_is_as_if_it_always_was_that_long(short: Path, workdir: Path, tmp_path: Path) -> None:
    shutil.copytree(short, tmp_path / "lengthened")
    (tmp_path / "lengthened" / "checkpoint-000000008.safetensors").unlink()  # back to step 5, in the warmup
    assert "lengthened from 8 to 12 steps after step 5: " in run(workdir, tmp_path / "lengthened", 12)
    run(workdir, tmp_path / "long", 12)
    lengthened, always = bytes_of(tmp_path / "lengthened"), bytes_of(tmp_path / "long")
    assert {name for name in always if lengthened[name] != always[name]} == {"checkpoint-000000005.safetensors"}  # of 8 steps


def test_a_lengthened_run_that_was_killed_ends_with_the_same_bytes(short: Path, workdir: Path, tmp_path: Path) -> None:
    for name in ("undisturbed", "killed"):
        shutil.copytree(short, tmp_path / name)
    said = run(workdir, tmp_path / "undisturbed", 30, "--lengthen")
    assert "lengthened from 8 to 30 steps after step 8: from here on the schedule is that of 30 steps" in said
    killed, log = tmp_path / "killed", tmp_path / "killed" / "log.jsonl"
    process = start(command(workdir, killed, *OPTIONS, "--steps", "30", "--lengthen"))
    wait_for(lambda: log.read_bytes().count(b'"train"') >= 18, process)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert read(find_checkpoints(killed)[-1]).step < 30
    run(workdir, killed, 30, "--lengthen")
    assert bytes_of(killed) == bytes_of(tmp_path / "undisturbed")
    made_with = read(find_checkpoints(killed)[-1]).made_with
    [lengthened] = made_with["lengthened"]
    assert (lengthened["step"], lengthened["schedules"][0]["steps"]) == (8, 8)
    assert made_with["phases"][0]["schedule"]["steps"] == 30


def test_the_best_is_that_of_the_lowest_loss_and_begins_another_run(short: Path, workdir: Path, tmp_path: Path) -> None:
    entries = [json.loads(line) for line in (short / "log.jsonl").read_text().splitlines()]
    losses = {entry["step"]: entry["loss"] for entry in entries if entry["kind"] == "evaluation"}
    best = read(short / BEST)
    assert losses[best.step] == min(losses.values()) == read_header(short / BEST)["test"]["loss"]
    run(workdir, tmp_path, 6, "--init", str(short / BEST), "--lr", "1e-9")
    begun = read(find_checkpoints(tmp_path)[0])
    np.testing.assert_allclose(
        begun.state["bert/pooler/dense/kernel"], best.state["bert/pooler/dense/kernel"], rtol=0, atol=1e-7
    )

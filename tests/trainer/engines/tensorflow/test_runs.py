"""Whole runs as users start them: several processes, both formats, phases, killed and stopped and gone on with."""

import json
import os
import random
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.trainer.small_runs import (
    SEQ,
    command,
    damage_record_of,
    finish,
    free_ports,
    losses,
    start,
    train,
    training_log,
    wait_for,
)
from trainer.checkpoint import find_checkpoints, read

pytestmark = pytest.mark.tensorflow
STOPPED = 3


def start_two(workdir: Path, out: Path, *options: str) -> "list[subprocess.Popen[str]]":
    """Two processes on this host, which stand for two hosts."""
    hosts = ",".join(f"127.0.0.1:{port}" for port in free_ports(2))
    return [start(command(workdir, out, *options, "--hosts", hosts, "--host-rank", str(rank))) for rank in range(2)]


@pytest.mark.parametrize("optimizer", ["adam", "lamb"])
def test_two_processes_are_as_one(optimizer: str, workdir: Path, tmp_path: Path) -> None:
    """As are two micro-batches, which both have in common with both processes' four."""
    options = ["--optimizer", optimizer, "--no-dropout"]
    one = train(workdir, tmp_path / "one", *options)
    finish(*start_two(workdir, tmp_path / "two", *options, "--batch-size", "4", "--accumulate", "2"))
    two = training_log(tmp_path / "two")
    np.testing.assert_allclose(losses(two), losses(one), rtol=0, atol=1e-5)
    assert losses(one)[-1] < losses(one)[0] - 0.01
    evaluated = [json.loads((tmp_path / name / "log.jsonl").read_text().splitlines()[-1]) for name in ("one", "two")]
    assert evaluated[0]["kind"] == "evaluation"
    assert evaluated[1]["loss"] == pytest.approx(evaluated[0]["loss"], abs=1e-5)
    assert evaluated[1]["sequences"] == evaluated[0]["sequences"]


def test_an_overflow_is_skipped_in_both_processes(workdir: Path, tmp_path: Path) -> None:
    """The first steps overflow until the scale is small enough, as in one process that has both parts of the batch."""
    options = ["--no-dropout", "--amp", "fp16", "--loss-scale", str(2**24), "--batch-size", "8"]
    one = train(workdir, tmp_path / "one", *options, "--accumulate", "2")
    finish(*start_two(workdir, tmp_path / "two", *options))
    two = training_log(tmp_path / "two")
    assert 0 < one[-1]["skipped"] < 10
    assert [entry["loss_scale"] for entry in two] == [entry["loss_scale"] for entry in one]
    assert [entry["skipped"] for entry in two] == [entry["skipped"] for entry in one]
    np.testing.assert_allclose(losses(two), losses(one), rtol=0, atol=0.01)


def test_the_death_of_a_process_is_a_line_in_the_other(workdir: Path, tmp_path: Path) -> None:
    runs = start_two(workdir, tmp_path / "out", "--steps", "100000")
    log = tmp_path / "out" / "log.jsonl"
    wait_for(lambda: log.exists() and len(log.read_bytes().splitlines()) > 3, runs[0])
    os.killpg(runs[1].pid, signal.SIGKILL)
    said = finish(runs[0], status=1)
    runs[1].communicate()
    assert "trainer: error: process 0 of 2: another one is gone" in said.splitlines()[-1]


def test_both_formats_give_the_same_losses_to_the_bit(workdir: Path, tmp_path: Path) -> None:
    ofrecord = train(workdir, tmp_path / "ofrecord")
    tfrecord = train(workdir, tmp_path / "tfrecord", "--format", "tfrecord")
    assert losses(tfrecord) == losses(ofrecord)


HARD = ["--steps", "40", "--batch-size", "8", "--accumulate", "2", "--amp", "fp16", "--save-every", "5", "--optimizer", "lamb"]


@pytest.fixture(scope="module")
def undisturbed(workdir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with dropout, fp16 and accumulation that nothing stopped."""
    out = tmp_path_factory.mktemp("undisturbed")
    train(workdir, out, *HARD)
    return out


def test_a_run_killed_three_times_ends_with_the_same_bytes(undisturbed: Path, workdir: Path, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    for kill in range(3):
        run = start(command(workdir, tmp_path, *HARD))
        made = 10 * kill + random.Random(kill).randint(6, 10)  # a moment when it is some steps past its last checkpoint
        wait_for(lambda made=made: log.exists() and log.read_bytes().count(b'"train"') >= made, run)
        os.killpg(run.pid, signal.SIGKILL)
        run.communicate()
    finish(start(command(workdir, tmp_path, *HARD)))
    names = [path.name for path in find_checkpoints(undisturbed)]
    assert [path.name for path in find_checkpoints(tmp_path)] == names
    for name in names:
        assert (tmp_path / name).read_bytes() == (undisturbed / name).read_bytes()
    assert losses(training_log(tmp_path)) == losses(training_log(undisturbed))
    assert not list(tmp_path.rglob("*.tmp"))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_run_that_is_told_to_stop_leaves_a_checkpoint_to_go_on_from(
    number: signal.Signals, undisturbed: Path, workdir: Path, tmp_path: Path
) -> None:
    log = tmp_path / "log.jsonl"
    run = start(command(workdir, tmp_path, *HARD))
    wait_for(lambda: log.exists() and log.read_bytes().count(b'"train"') >= 7, run)
    os.kill(run.pid, number)
    said = finish(run, status=STOPPED)
    assert f"{number.name}: stopping after this step" in said
    step = read(find_checkpoints(tmp_path)[-1]).step
    assert len(training_log(tmp_path)) == step < 40
    said = finish(start(command(workdir, tmp_path, *HARD)))
    assert f"resuming after step {step}" in said
    last = find_checkpoints(undisturbed)[-1]
    assert (tmp_path / last.name).read_bytes() == last.read_bytes()


def test_a_finished_run_is_left_alone_and_other_settings_are_refused(undisturbed: Path, workdir: Path) -> None:
    out = undisturbed
    before = {path: path.read_bytes() for path in [*find_checkpoints(out), out / "log.jsonl"]}
    assert "is finished, with 40 steps" in finish(start(command(workdir, out, *HARD)))
    said = finish(start(command(workdir, out, *HARD, "--seed", "1")), status=2)
    assert "was made with seed 12345, now it is 1" in said.splitlines()[-1]
    said = finish(start(command(workdir, out, *HARD, "--no-resume")), status=2)
    assert "is there from a run before" in said.splitlines()[-1]
    assert {path: path.read_bytes() for path in before} == before


def test_a_run_that_another_is_making_is_refused(workdir: Path, tmp_path: Path) -> None:
    first = start(command(workdir, tmp_path, "--steps", "100000"))
    wait_for(lambda: (tmp_path / "log.jsonl").exists(), first)
    said = finish(start(command(workdir, tmp_path, "--steps", "100000")), status=1)
    assert said.splitlines()[-1] == f"trainer: error: {tmp_path}: another run is writing here; wait for it, or stop it first"
    os.killpg(first.pid, signal.SIGTERM)
    finish(first, status=STOPPED)


def test_a_loss_that_is_no_number_names_step_and_records(workdir: Path, tmp_path: Path) -> None:
    said = finish(start(command(workdir, tmp_path, "--lr", "1e30", "--warmup-steps", "0")), status=1)
    error = said.splitlines()[-1]
    assert error.startswith("trainer: error: step 2: the loss is nan")
    named = (tmp_path / "not_finite.txt").read_text().splitlines()
    assert len(named) == 16
    assert named[0] in error
    assert not find_checkpoints(tmp_path)


@pytest.mark.parametrize("record_format", ["tfrecord", "ofrecord"])
def test_a_damaged_record_costs_no_step(record_format: str, workdir: Path, tmp_path: Path) -> None:
    """Neither one that was damaged before the run, nor one that is damaged during it."""
    shutil.copytree(workdir, data := tmp_path / "data")
    out, options = tmp_path / "out", ["--format", record_format, "--save-every", "100"]
    name = damage_record_of(7, data, record_format)
    said = finish(start(command(data, out, *options)), status=1).splitlines()[-1]
    assert said.startswith(f"trainer: error: {name}")
    assert said.endswith("; step 6 is saved, and the same command goes on from there")
    assert [read(path).step for path in find_checkpoints(out)] == [6]
    skipping = [*options, "--skip-bad-records", "1"]
    assert f"step 7: without a bad record: {name}" in finish(start(command(data, out, *skipping)))
    whole = tmp_path / "whole"
    assert losses(train(data, whole, *skipping)) == losses(training_log(out))
    assert find_checkpoints(out)[-1].read_bytes() == find_checkpoints(whole)[-1].read_bytes()


def test_a_record_damaged_during_a_run_of_two_processes_ends_both(workdir: Path, tmp_path: Path) -> None:
    shutil.copytree(workdir, data := tmp_path / "data")
    out, options = tmp_path / "out", ["--steps", "2000", "--batch-size", "8", "--save-every", "10000"]
    runs = start_two(data, out, *options)
    log = out / "log.jsonl"
    wait_for(lambda: log.exists() and log.read_bytes().count(b'"train"') >= 3, runs[0])
    name = damage_record_of(1, data, "ofrecord")  # which a later epoch meets again
    ends = [finish(run, status=1).splitlines()[-1] for run in runs]
    (checkpoint,) = find_checkpoints(out)
    step = read(checkpoint).step
    assert training_log(out)[-1]["step"] == step
    assert sum(end.startswith(f"trainer: error: {name}") for end in ends) == 1
    assert sum("of 2: another one met data that it cannot take, and says which; " in end for end in ends) == 1
    assert all(end.endswith(f"; step {step:,} is saved, and the same command goes on from there") for end in ends)


def test_two_phases(workdir: Path, tmp_path: Path) -> None:
    """The second has longer sequences, and begins anew with the first one's weights."""
    options = ["--phases", f"{SEQ}:6,{2 * SEQ}:4", "--batch-size", "16,8", "--warmup-steps", "2,1", "--lr", "0.01,0.005"]
    said = finish(
        start([word for word in command(workdir, tmp_path, "--amp", "fp16", *options) if word not in ("--seq", str(SEQ))])
    )
    assert said.count("test split") == 2
    log = training_log(tmp_path)
    assert [entry["phase"] for entry in log] == [1] * 6 + [2] * 4
    np.testing.assert_allclose(
        [entry["learning_rate"] for entry in log],
        [0.005, 0.01 * 4 / 6, 0.005, 0.01 * 2 / 6, 0.01 / 6, 0, 0.005 * 3 / 4, 0.0025, 0.00125, 0],
    )
    end: dict[str, Any] = dict(read(find_checkpoints(tmp_path)[-1]).state)
    assert end["updates"] == 4
    first = read(find_checkpoints(tmp_path)[0])
    assert (first.step, first.state["updates"]) == (6, 6)
    assert losses(log)[6] == pytest.approx(losses(log)[5], abs=0.7)  # and not what an untrained model has


def test_a_run_begins_with_the_weights_of_another(workdir: Path, tmp_path: Path) -> None:
    train(workdir, tmp_path / "first")
    train(
        workdir, tmp_path / "second", "--init", str(tmp_path / "first"), "--lr", "1e-9", "--steps", "2", "--warmup-steps", "0"
    )
    first, second = (read(find_checkpoints(tmp_path / name)[-1]).state for name in ("first", "second"))
    assert second["updates"] == 2
    np.testing.assert_allclose(second["bert/pooler/dense/kernel"], first["bert/pooler/dense/kernel"], rtol=0, atol=1e-7)

"""PyTorch's engine alone: the processes of its devices, what each holds, and their ends."""

import os
import signal
import socket
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.trainer.small_runs import (
    MODEL,
    build,
    command,
    finish,
    free_ports,
    loss_of,
    make_batch,
    start,
    train_step,
    training_log,
    wait_for,
)

pytestmark = pytest.mark.torch


@pytest.mark.parametrize(("amp", "tolerance"), [("off", 1e-5), ("fp16", 1e-4)])
def test_moments_are_sharded_over_the_devices_and_variables_are_not(amp: str, tolerance: float) -> None:
    """The state of three devices is that of a single one, of variables too that three does not divide."""
    one, three = build("torch", amp=amp), build("torch", amp=amp, devices=3)
    batches = [make_batch(number, sequences=12) for number in range(4)]

    def compare_step(number: int) -> None:
        expected = train_step(one, batches[number], number, accumulation=6)
        found = train_step(three, batches[number], number, accumulation=2)
        assert loss_of(found) == pytest.approx(loss_of(expected), abs=tolerance)
        assert found.gradient_norm == pytest.approx(expected.gradient_norm, rel=10 * tolerance)

    for number in range(3):
        compare_step(number)
    expected, state = one.state(), three.state()
    assert {name: value.shape for name, value in state.items()} == {name: value.shape for name, value in expected.items()}
    for name in (name for name in state if name.endswith("adam_m")):
        np.testing.assert_allclose(state[name], expected[name], rtol=0, atol=1e-5, err_msg=name)
    one.restore(state)
    compare_step(3)

    replica: Any = vars(three)["_replica"]
    name = "bert/embeddings/word_embeddings"
    assert len(replica._state[f"{name}/adam_v"]) == -(-MODEL.vocab_size * MODEL.hidden_size // 3)
    assert replica._weights[name].shape == (MODEL.vocab_size, MODEL.hidden_size)


def test_activations_that_are_recomputed_have_the_same_dropout() -> None:
    """The same bytes, and the encoder's layers run twice."""
    from trainer.engines.torch_operations import Ops

    states, calls = [], []
    for recompute in (False, True):
        engine: Any = build("torch", checkpoint_activations=recompute)
        gelu, number = Ops.gelu, 0

        def count(x: Any, gelu: Any = gelu) -> Any:
            nonlocal number
            number += 1
            return gelu(x)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Ops, "gelu", staticmethod(count))
            for step in range(2):
                train_step(engine, make_batch(step, sequences=4), step, accumulation=2)
        states.append(engine.state())
        calls.append(number)
    layers = MODEL.num_hidden_layers
    assert calls == [4 * (layers + 1), 4 * (2 * layers + 1)]  # of each micro-batch; the head is not recomputed
    for name, value in states[0].items():
        np.testing.assert_array_equal(states[1][name], value, err_msg=name)


def processes_of_devices(parent: int) -> list[int]:
    children = [int(child) for child in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]
    return [child for child in children if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()]


def is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except OSError:
        return False


def test_the_death_of_a_devices_process_is_a_line(workdir: Path, tmp_path: Path) -> None:
    """The process before it in order is running, or reports that it has lost it."""
    run = start(command(workdir, tmp_path, "--engine", "torch", "--devices", "3", "--batch-size", "8", "--steps", "100000"))
    log = tmp_path / "log.jsonl"
    wait_for(lambda: log.exists() and len(log.read_bytes().splitlines()) > 3, run)
    _, process = processes_of_devices(run.pid)
    os.kill(process, signal.SIGKILL)
    last = finish(run, status=1).splitlines()[-1]
    assert last == (
        f"trainer: error: device 2 of this host: its process {process} has ended; start the run again; it resumes from the "
        "newest checkpoint"
    )


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 3), (signal.SIGKILL, -9)])
def test_a_devices_process_ends_with_the_run(number: signal.Signals, status: int, workdir: Path, tmp_path: Path) -> None:
    run = start(command(workdir, tmp_path, "--engine", "torch", "--devices", "2", "--batch-size", "8", "--steps", "100000"))
    log = tmp_path / "log.jsonl"
    wait_for(lambda: log.exists() and len(log.read_bytes().splitlines()) > 3, run)
    [process] = processes_of_devices(run.pid)
    os.kill(run.pid, number)
    finish(run, status=status)  # which reads to the end of a pipe that both processes write to
    assert not is_running(process)
    assert len(training_log(tmp_path)) > 2


def test_hosts_with_different_numbers_of_devices_are_refused(workdir: Path, tmp_path: Path) -> None:
    hosts = ",".join(f"127.0.0.1:{port}" for port in free_ports(2))
    options = ["--engine", "torch", "--batch-size", "4", "--hosts", hosts]
    runs = [
        start(command(workdir, tmp_path, *options, "--host-rank", str(rank), "--devices", devices))
        for rank, devices in enumerate("21")
    ]
    for run, devices in zip(runs, "21", strict=True):
        message = f"--devices {devices}: each host must have this many devices, but they have 2, 1"
        assert message in finish(run, status=2).splitlines()[-1]


def test_a_port_in_use_is_a_line(workdir: Path, tmp_path: Path) -> None:
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        hosts = f"127.0.0.1:{port},127.0.0.1:{port}"
        printed = finish(start(command(workdir, tmp_path, "--engine", "torch", "--hosts", hosts, "--host-rank", "0")), status=1)
    assert f"process 0: cannot reach the others at 127.0.0.1:{port}" in printed.splitlines()[-1]

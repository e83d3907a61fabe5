"""The trainer under schedulers and launchers: signals, several processes, tasks that share a folder, links in a run."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from bertprep.files.lock import locked
from tests.trainer.numpy_engine import RecordFolder, at_step, checkpoints, refuse, run_command, saved_steps
from tests.trainer.small_data import make_records, save_checkpoint
from tests.trainer.small_runs import command, finish, start, wait_for
from trainer.cli import FINISHED, STOPPED
from trainer.engines import STOP_SIGNALS
from trainer.engines.choice import check_engine
from trainer.settings import EngineSettings

RUN = "pretrain --engine tensorflow --data a --model a/model.json --out out --steps 10 --batch-size 8"
SIGNALS = ("SIGTERM", "SIGUSR1", "SIGUSR2", "SIGXCPU")


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", SIGNALS)
def test_a_schedulers_signal_stops_a_run_with_a_checkpoint(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Slurm's --signal=USR1@120, the default of submitit, the notice of SGE, and the CPU limit; the run then goes on."""
    RecordFolder(Path("a"))
    number = signal.Signals[name]
    assert run_command(*RUN.replace("--out out", "--out other").split()) == FINISHED
    assert run_command(*RUN.split(), on_step=at_step(4, lambda: os.kill(os.getpid(), number))) == STOPPED
    assert saved_steps(Path("out"))[-1] < 10
    assert f"{name}: stopping after this step" in capfd.readouterr().err
    assert run_command(*RUN.split()) == FINISHED
    last = "checkpoint-000000010.safetensors"
    assert checkpoints(Path("out"))[last] == checkpoints(Path("other"))[last]


def test_repeated_signals_are_reported_once(capfd: pytest.CaptureFixture[str]) -> None:
    """SIGCONT and SIGTERM come together, and the signal of the CPU limit every second."""
    RecordFolder(Path("a"))

    def preempt() -> None:
        for number in (signal.SIGCONT, signal.SIGTERM, signal.SIGXCPU, signal.SIGXCPU, signal.SIGUSR1):
            os.kill(os.getpid(), number)

    assert run_command(*RUN.split(), on_step=at_step(4, preempt)) == STOPPED
    assert capfd.readouterr().err.count("stopping after this step") == 1


def blocked_signals(process: str) -> set[signal.Signals]:
    [line] = [line for line in Path(f"/proc/{process}/status").read_text().splitlines() if line.startswith("SigBlk:")]
    mask = int(line.split()[1], 16)
    return {number for number in signal.Signals if mask >> (number - 1) & 1}


@pytest.mark.torch
@pytest.mark.parametrize("name", ["SIGUSR1", "SIGTERM"])
def test_a_signal_to_all_processes_of_a_job_stops_it_with_a_checkpoint(name: str, golden_corpus: Path, tmp_path: Path) -> None:
    """Slurm sends it to each process of a step, also to those that the trainer has started."""
    make_records(golden_corpus, tmp_path)
    out = tmp_path / "run"
    words = command(tmp_path, out, "--engine", "torch", "--devices", "2", "--steps", "400", "--eval-every", "0")
    run = start(words)
    log = out / "log.jsonl"
    wait_for(lambda: log.is_file() and '"train"' in log.read_text(), run)
    started = Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()
    spawned = [child for child in started if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()]
    assert [blocked_signals(child) >= {*STOP_SIGNALS} for child in spawned] == [True]  # from their beginning
    os.killpg(run.pid, signal.Signals[name])
    printed = finish(run, status=STOPPED)
    assert printed.count("stopping after this step") == 1
    [step] = saved_steps(out)
    assert f"stopped after step {step:,} of 400; the same command resumes from {out}" in printed


TORCHRUN = {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "none"}


@pytest.mark.parametrize("line", [RUN, "evaluate out --data a", "bench --engine tensorflow"])
def test_torchrun_is_refused_with_the_trainers_own_way(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    RecordFolder(Path("a"))
    if line.startswith("evaluate"):
        save_checkpoint(Path("out"))
    for name, value in TORCHRUN.items():
        monkeypatch.setenv(name, value)
    status, error = refuse(line)
    assert status == 2
    assert "torchrun started 2 processes" in error
    assert "--devices 2" in error


@pytest.mark.parametrize(
    ("engine", "environment", "hosts"),
    [
        ("torch", {"RANK": "0", "WORLD_SIZE": "1"}, ()),  # torchrun --nproc-per-node 1
        ("torch", {"RANK": "1", "WORLD_SIZE": "2"}, ("a:1", "b:1")),  # one process a host, as Kubeflow starts them
        ("tensorflow", {"SLURM_NTASKS": "8", "SLURM_PROCID": "0"}, ()),  # a script of sbatch, which runs once
        ("torch", {"SLURM_STEP_NUM_TASKS": "8"}, ()),  # eight runs of a search, each with its own --out
        ("oneflow", {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1"}, ()),  # its own launcher
        ("torch", {"WORLD_SIZE": "many", "RANK": "0"}, ()),
    ],
)
def test_other_launchers_are_not_refused(
    engine: str, environment: dict[str, str], hosts: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("trainer.engines.choice.importlib.util.find_spec", lambda _: True)
    check_engine(EngineSettings(engine=engine, hosts=hosts, host_rank=0 if hosts else None))


@pytest.mark.parametrize("variable", ["SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"])
def test_tasks_that_collide_are_told_how_to_start(
    variable: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    RecordFolder(Path("a"))
    monkeypatch.setenv(variable, "4")
    with locked(Path("out")):
        assert run_command(*RUN.split()) == 1
    [error] = [line for line in capsys.readouterr().err.splitlines() if "error: " in line]
    assert "another run is writing here" in error
    assert "srun or mpirun started 4 processes" in error
    assert "--devices 4" in error
    monkeypatch.delenv(variable)
    with locked(Path("out")):
        assert run_command(*RUN.split()) == 1
    assert "srun" not in capsys.readouterr().err


@pytest.mark.parametrize("name", ["log.jsonl", "tensorboard"])
def test_a_run_writes_through_no_link_in_its_folder(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    RecordFolder(Path("a"))
    Path("elsewhere").mkdir()
    Path("real").mkdir()
    Path("out").symlink_to("real")  # the whole folder may be one
    Path("out", name).symlink_to(Path("elsewhere/new").resolve() if "." in name else Path("elsewhere").resolve())
    assert run_command(*RUN.split()) == 2
    assert f"out/{name}: is a link" in capsys.readouterr().err
    assert not list(Path("elsewhere").iterdir())
    Path("out", name).unlink()
    assert run_command(*RUN.split()) == FINISHED

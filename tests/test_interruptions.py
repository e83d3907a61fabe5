"""Whatever stops a run, the same command ends with the same bytes: real processes, really killed."""

import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bertprep import kernels
from tests.corpora import deal, sums
from tests.golden import GOLDEN

KILLS = 20


@pytest.fixture(scope="module")
def inputs(golden_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    kernels.load()  # compiled once, not in each of the processes below
    return deal(golden_corpus, tmp_path_factory.mktemp("text"), 6)


def command(inputs: list[Path], output: Path, workers: int = 2) -> list[str]:
    texts = [str(path) for path in inputs]
    settings = ["--dupe", "40", "--vocab", str(GOLDEN / "vocab.txt"), "--workers", str(workers)]
    return [sys.executable, "-m", "bertprep", "create", "--input", *texts, "--output", str(output), *settings]


def start(arguments: list[str], *, file_size_limit: int = resource.RLIM_INFINITY) -> subprocess.Popen[str]:
    """The command as the leader of a process group of its own."""

    def prepare() -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell's background jobs, and so our tests there, ignore Ctrl-C
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_size_limit, resource.RLIM_INFINITY))

    return subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True, preexec_fn=prepare
    )


@pytest.fixture(scope="module")
def undisturbed(inputs: list[Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, str], float]:
    """The sums of a run that nothing stopped, and its seconds."""
    output = tmp_path_factory.mktemp("undisturbed")
    started = time.monotonic()
    assert start(command(inputs, output)).wait() == 0
    return sums(output), time.monotonic() - started


@pytest.mark.parametrize("kill", range(KILLS))
def test_a_run_killed_at_any_moment_is_finished_by_the_same_command(
    kill: int, inputs: list[Path], undisturbed: tuple[dict[str, str], float], tmp_path: Path
) -> None:
    expected, seconds = undisturbed
    run = start(command(inputs, tmp_path / "out"))
    try:
        run.wait(timeout=random.Random(kill).uniform(0, seconds))
    except subprocess.TimeoutExpired:
        os.killpg(run.pid, signal.SIGKILL)
    run.communicate()
    # another number of workers goes on where two were
    assert start(command(inputs, tmp_path / "out", workers=1 + kill % 3)).wait() == 0
    assert sums(tmp_path / "out") == expected  # no .tmp and no journal among them


@pytest.mark.parametrize("kill", range(3))
def test_so_is_one_that_compresses(kill: int, inputs: list[Path], tmp_path: Path) -> None:
    gzip = ["--format", "tfrecord", "--compress", "gzip"]
    started = time.monotonic()
    assert start([*command(inputs, tmp_path / "whole"), *gzip]).wait() == 0
    seconds = time.monotonic() - started
    run = start([*command(inputs, tmp_path / "out"), *gzip])
    try:
        run.wait(timeout=random.Random(kill).uniform(seconds / 2, seconds))
    except subprocess.TimeoutExpired:
        os.killpg(run.pid, signal.SIGKILL)
    run.communicate()
    assert start([*command(inputs, tmp_path / "out", workers=1), *gzip]).wait() == 0
    assert sums(tmp_path / "out") == sums(tmp_path / "whole")


def wait_for_a_finished_shard(run: subprocess.Popen[str], output: Path) -> None:
    journal = output / "manifest.json.journal"
    while run.poll() is None:
        try:
            if journal.read_bytes().count(b"\n") > 1:
                return
        except FileNotFoundError:
            continue
    pytest.fail(f"ended before it could be stopped: {run.communicate()}")


def test_ctrl_c_leaves_a_state_that_continues(inputs: list[Path], tmp_path: Path) -> None:
    output = tmp_path / "out"
    many = inputs * 60  # seconds of work, so that a busy machine does not finish it before we look
    run = start(command(many, output))
    wait_for_a_finished_shard(run, output)
    os.killpg(run.pid, signal.SIGINT)
    _, complaint = run.communicate()
    assert run.returncode == 130, complaint
    assert complaint.splitlines()[-1] == "bertprep: stopped; finished files are kept, and the same command resumes"
    assert not list(output.rglob("*.tmp"))
    _, *entries = (output / "manifest.json.journal").read_text().splitlines()
    finished = {name: (output / name).stat().st_mtime_ns for name in (json.loads(entry)["name"] for entry in entries)}
    assert 0 < len(finished) < 2 * len(many)
    assert start(command(many, output)).wait() == 0
    assert all((output / name).stat().st_mtime_ns == made for name, made in finished.items())


def test_a_parent_that_is_killed_alone_takes_its_workers_along(inputs: list[Path], tmp_path: Path) -> None:
    run = start(command(inputs * 60, tmp_path / "out"))
    wait_for_a_finished_shard(run, tmp_path / "out")
    run.kill()
    run.communicate()  # ends when the last process that holds the pipes is gone
    assert start(command(inputs * 60, tmp_path / "out")).wait() == 0
    assert not list((tmp_path / "out").rglob("*.tmp"))


def test_two_runs_do_not_write_in_one_folder(inputs: list[Path], tmp_path: Path) -> None:
    first = start(command(inputs * 60, tmp_path / "out"))
    wait_for_a_finished_shard(first, tmp_path / "out")
    second = start(command(inputs * 60, tmp_path / "out"))
    _, complaint = second.communicate()
    os.killpg(first.pid, signal.SIGKILL)
    first.communicate()
    assert second.returncode == 1
    assert "another run is writing here" in complaint


@pytest.mark.parametrize("workers", [1, 2])
def test_a_limit_on_file_sizes_is_one_clear_line(inputs: list[Path], workers: int, tmp_path: Path) -> None:
    run = start(command(inputs, tmp_path / "out", workers), file_size_limit=1_000_000)
    _, complaint = run.communicate()
    assert run.returncode == 1
    last = complaint.splitlines()[-1]
    assert last.startswith(f"bertprep: error: {tmp_path}/out/")
    assert "cannot be written: File too large; a limit on the size of files is in force" in last
    assert "Traceback" not in complaint
    left = {path.name for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert left <= {"manifest.json.journal", "vocab.txt"}


def test_a_disk_without_room_for_a_line_is_one_clear_line(inputs: list[Path], tmp_path: Path) -> None:
    run = start(command(inputs, tmp_path / "out"), file_size_limit=0)
    _, complaint = run.communicate()
    assert run.returncode == 1
    assert complaint.splitlines()[-1].startswith(f"bertprep: error: {tmp_path}/out/")
    assert "manifest.json.journal: cannot be written: File too large" in complaint
    assert "Traceback" not in complaint

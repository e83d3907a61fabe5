"""However a run is interrupted, the same command ends with the same bytes: real processes, really killed."""

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
from bertprep.work.layout import LEDGER
from bertprep.work.manifest import read_manifest
from bertprep.work.run import FAIL_AFTER
from tests.corpora import deal, sums
from tests.golden import GOLDEN

KILLS = 3  # at random, between and within the steps below
FILES = 12  # of a run: six text shards, in both formats


@pytest.fixture(scope="module")
def inputs(golden_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    kernels.load()  # compiled once, not in each of the processes below
    return deal(golden_corpus, tmp_path_factory.mktemp("text"), FILES // 2)


def command(inputs: list[Path], output: Path, workers: int = 2, *, formats: str = "tfrecord,ofrecord") -> list[str]:
    texts = [str(path) for path in inputs]
    settings = ["--dupe", "5", "--vocab", str(GOLDEN / "vocab.txt"), "--workers", str(workers), "--format", formats]
    return [sys.executable, "-m", "bertprep", "create", "--input", *texts, "--output", str(output), *settings]


def start(
    arguments: list[str], *, fail_after: str = "", file_size_limit: int = resource.RLIM_INFINITY
) -> subprocess.Popen[str]:
    """The command as the leader of a process group of its own."""

    def prepare() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_size_limit, resource.RLIM_INFINITY))

    return subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True, preexec_fn=prepare,
        env={**os.environ, FAIL_AFTER: fail_after},
    )  # fmt: skip


def start_and_stop(arguments: list[str], after: int) -> subprocess.Popen[str]:
    """The command, stopped where it has just finished its `after`-th file; its workers are not."""
    run = start(arguments, fail_after=f"{after} SIGSTOP")
    _, status = os.waitpid(run.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status), f"ended before it could be stopped: {run.communicate()}"
    return run


def finished_files(output: Path) -> list[Path]:
    """The files of a run that have a completion marker, or are listed in a manifest."""
    found = []
    for folder in output.iterdir():
        manifest, ledger = read_manifest(folder), folder / LEDGER
        marked = [path.relative_to(ledger).as_posix().removesuffix(".json") for path in ledger.glob("*/*.json")]
        found += [folder / name for name in (manifest.files if manifest else marked)]
    return found


@pytest.fixture(scope="module")
def undisturbed(inputs: list[Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, str], float]:
    """The checksums of a run that nothing stopped, and its seconds."""
    output = tmp_path_factory.mktemp("undisturbed")
    started = time.monotonic()
    assert start(command(inputs, output)).wait() == 0
    return sums(output), time.monotonic() - started


@pytest.mark.parametrize("after", [1, 2, 5, FILES - 1, FILES])
def test_a_run_killed_after_any_file_is_finished_by_the_same_command(
    after: int, inputs: list[Path], undisturbed: tuple[dict[str, str], float], tmp_path: Path
) -> None:
    expected, _ = undisturbed
    run = start(command(inputs, tmp_path), fail_after=f"{after} SIGKILL")
    run.communicate()  # ends when the workers, which hold the pipes too, are gone
    assert run.returncode == -signal.SIGKILL
    assert len(finished_files(tmp_path)) >= after
    # another number of workers resumes what two began
    assert start(command(inputs, tmp_path, workers=1 + after % 3)).wait() == 0
    assert sums(tmp_path) == expected  # no .tmp and no ledger among them


@pytest.mark.parametrize("kill", range(KILLS))
def test_a_run_killed_at_a_random_moment_is_finished_by_the_same_command(
    kill: int, inputs: list[Path], undisturbed: tuple[dict[str, str], float], tmp_path: Path
) -> None:
    expected, seconds = undisturbed
    run = start(command(inputs, tmp_path / "out"))
    try:
        run.wait(timeout=random.Random(kill).uniform(0, seconds))
    except subprocess.TimeoutExpired:
        os.killpg(run.pid, signal.SIGKILL)
    run.communicate()
    assert start(command(inputs, tmp_path / "out")).wait() == 0
    assert sums(tmp_path / "out") == expected


@pytest.mark.parametrize(("formats", "options"), [("tfrecord", ["--compress", "gzip"]), ("arrow,parquet", [])])
def test_a_killed_run_of_another_form_is_finished_by_the_same_command(
    formats: str, options: list[str], inputs: list[Path], tmp_path: Path
) -> None:
    whole, killed = ([*command(inputs, tmp_path / name, formats=formats), *options] for name in ("whole", "killed"))
    assert start(whole).wait() == 0
    start(killed, fail_after="3 SIGKILL").communicate()
    assert len(finished_files(tmp_path / "killed")) >= 3
    assert start(killed).wait() == 0
    assert sums(tmp_path / "killed") == sums(tmp_path / "whole")


@pytest.mark.parametrize("moment", ["raise KeyboardInterrupt", "os.kill(os.getpid(), signal.SIGINT)"])
def test_ctrl_c_outside_of_the_command_is_one_line(moment: str) -> None:
    """As a second one does while the first is told, or one that comes after the command."""
    program = f"""
import os, signal, sys
from bertprep.terminal import run_program
def main():
    {moment}
    return 0
os._exit(run_program(main, "bertprep"))
"""
    run = start([sys.executable, "-c", program])
    assert (run.communicate(), run.returncode) == (("", "bertprep: stopped\n"), 130)


def test_ctrl_c_leaves_a_state_that_can_be_resumed(inputs: list[Path], tmp_path: Path) -> None:
    run = start_and_stop(command(inputs, tmp_path), after=2)
    os.killpg(run.pid, signal.SIGINT)
    os.killpg(run.pid, signal.SIGCONT)
    _, complaint = run.communicate()
    assert run.returncode == 130, complaint
    assert complaint.splitlines()[-1] == "bertprep: stopped; finished files are kept, and the same command resumes"
    assert not list(tmp_path.rglob("*.tmp"))
    finished = {path: path.stat().st_mtime_ns for path in finished_files(tmp_path)}
    assert 2 <= len(finished) < FILES
    assert start(command(inputs, tmp_path)).wait() == 0
    assert all(path.stat().st_mtime_ns == made for path, made in finished.items())


def test_workers_die_with_their_killed_parent(inputs: list[Path], tmp_path: Path) -> None:
    run = start_and_stop(command(inputs, tmp_path), after=1)
    run.kill()
    run.communicate()  # ends when the last process that holds the pipes is gone
    assert start(command(inputs, tmp_path)).wait() == 0
    assert not list(tmp_path.rglob("*.tmp"))


@pytest.mark.parametrize(("workers", "formats"), [(1, "tfrecord,ofrecord"), (2, "tfrecord,ofrecord"), (1, "parquet")])
def test_a_limit_on_file_sizes_is_one_clear_line(inputs: list[Path], workers: int, formats: str, tmp_path: Path) -> None:
    run = start(command(inputs, tmp_path / "out", workers, formats=formats), file_size_limit=100_000)
    _, complaint = run.communicate()
    assert run.returncode == 1
    last = complaint.splitlines()[-1]
    assert last.startswith(f"bertprep: error: {tmp_path}/out/")
    assert "cannot be written: File too large; a limit on the size of files is in force" in last
    assert "Traceback" not in complaint
    assert not [path for path in (tmp_path / "out").rglob("*") if path.is_file()]


def test_a_disk_full_to_the_last_line_is_one_clear_line(inputs: list[Path], tmp_path: Path) -> None:
    run = start(command(inputs, tmp_path / "out"), file_size_limit=0)
    _, complaint = run.communicate()
    assert run.returncode == 1
    assert complaint.splitlines()[-1].startswith(f"bertprep: error: {tmp_path}/out/")
    assert "settings.json: cannot be written: File too large" in complaint
    assert "Traceback" not in complaint

"""Ctrl-C, the death of a parent, limits on files: real processes, whose files are complete and whose complaint is one line.

What killed runs leave is in tests/test_same_bytes.py.
"""

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bertprep import kernels
from bertprep.work.layout import LEDGER
from bertprep.work.run import FAIL_AFTER
from tests.corpora import deal
from tests.golden import GOLDEN

FILES = 12  # of a run: six text shards, in both formats


@pytest.fixture(scope="module")
def inputs(golden_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    kernels.load()  # compiled once, not in each of the processes below
    return deal(golden_corpus, tmp_path_factory.mktemp("text"), FILES // 2)


def command(inputs: list[Path], output: Path, workers: int = 2, formats: str = "tfrecord,ofrecord") -> list[str]:
    texts = [str(path) for path in inputs]
    settings = ["--dupe", "1", "--vocab", str(GOLDEN / "vocab.txt"), "--workers", str(workers), "--format", formats]
    return [sys.executable, "-m", "bertprep", "create", "--input", *texts, "--output", str(output), *settings]


def start(arguments: list[str], fail_after: str = "", file_size_limit: int = resource.RLIM_INFINITY) -> subprocess.Popen[str]:
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


def test_ctrl_c_keeps_finished_files(inputs: list[Path], tmp_path: Path) -> None:
    run = start_and_stop(command(inputs, tmp_path), after=2)
    os.killpg(run.pid, signal.SIGINT)
    os.killpg(run.pid, signal.SIGCONT)
    _, complaint = run.communicate()
    assert run.returncode == 130, complaint
    assert complaint.splitlines()[-1] == "bertprep: stopped; finished files are kept, and the same command resumes"
    assert not list(tmp_path.rglob("*.tmp"))
    assert 2 <= len(list(tmp_path.glob(f"*/{LEDGER}/*/*.json"))) < FILES


def test_workers_die_with_their_killed_parent(inputs: list[Path], tmp_path: Path) -> None:
    run = start_and_stop(command(inputs, tmp_path), after=1)
    run.kill()
    run.communicate()  # ends when the last process that holds the pipes is gone


def shard(inputs: list[Path], workdir: Path) -> list[str]:
    texts = [str(path) for path in inputs]
    return [sys.executable, "-m", "bertprep", "shard", "--input", *texts, "--corpus", "c", "--workdir", str(workdir)]


@pytest.mark.parametrize(
    ("workers", "formats", "limit"),
    [(2, "tfrecord,ofrecord", 50_000), (1, "parquet", 20_000), (1, "tfrecord", 0), (2, "shard", 20_000), (1, "shard", 100)],
)
def test_a_limit_on_file_sizes_is_one_clear_line(
    inputs: list[Path], workers: int, formats: str, limit: int, tmp_path: Path
) -> None:
    create = command(inputs, tmp_path / "out", workers, formats)
    asked = [*shard(inputs, tmp_path / "out"), "--workers", str(workers)] if formats == "shard" else create
    run = start(asked, file_size_limit=limit)
    _, complaint = run.communicate()
    assert run.returncode == 1
    last = complaint.splitlines()[-1]
    assert last.startswith(f"bertprep: error: {tmp_path}/out/")
    assert "cannot be written: File too large; the size of files is limited (ulimit -f)" in last
    assert "Traceback" not in complaint
    assert not [path for path in (tmp_path / "out").rglob("*") if path.is_file()]

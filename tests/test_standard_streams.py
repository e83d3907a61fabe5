"""Wherever a command's standard streams lead: one line if possible, the right exit status, complete files."""

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.corpora import sums
from tests.golden import GOLDEN

PYTHON = f'"{sys.executable}" -m'
NO_SPACE = "standard output: cannot be written: No space left on device; redirect it elsewhere"
CLOSED = "standard output: cannot be written: it is closed; redirect it elsewhere"


def run(command: str, folder: Path, *, files: int | None = None) -> tuple[int, list[str]]:
    """(exit status, lines on standard error) of a command line of the shell, in which so many files may be open."""

    def limit() -> None:
        if files is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))

    settings = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True, "timeout": 900}
    ended = subprocess.run(command, shell=True, cwd=folder, check=False, preexec_fn=limit, **settings)
    assert "Traceback" not in ended.stderr
    assert "Exception ignored" not in ended.stderr
    return ended.returncode, ended.stderr.splitlines()


@pytest.fixture(scope="module")
def create(golden_corpus: Path) -> str:
    settings = "--dupe 1 --seq 32 --pred 5 --workers 1"
    return f"{PYTHON} bertprep create --input {golden_corpus} --output made --vocab {GOLDEN / 'vocab.txt'} {settings}"


@pytest.fixture(scope="module")
def whole(create: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What the command leaves where nothing is the matter."""
    folder = tmp_path_factory.mktemp("whole")
    assert run(create, folder)[0] == 0
    return sums(folder)


@pytest.mark.parametrize(
    ("streams", "status", "message"),
    [(">/dev/full", 1, NO_SPACE), (">&-", 1, CLOSED), ("<&- >&- 2>&-", 1, None), ("2>/dev/full", 0, None), ("2>&-", 0, None)],
)
def test_records_are_made_with_broken_streams(
    streams: str, status: int, message: str | None, create: str, whole: dict[str, str], tmp_path: Path
) -> None:
    found, lines = run(f"{create} {streams}", tmp_path)
    assert found == status
    assert [line for line in lines if "error" in line] == ([f"bertprep: error: {message}"] if message else [])
    assert sums(tmp_path) == whole


@pytest.mark.parametrize("program", ["bertprep", "trainer"])
def test_both_command_lines_report_it(program: str, tmp_path: Path) -> None:
    assert run(f"{PYTHON} {program} --version >/dev/full", tmp_path) == (1, [f"{program}: error: {NO_SPACE}"])
    assert run(f"{PYTHON} {program} --version >&-", tmp_path) == (1, [f"{program}: error: {CLOSED}"])


def test_a_reader_that_closes_early_is_not_an_error(tmp_path: Path) -> None:
    status = "PIPESTATUS"
    command = f"{PYTHON} bertprep create --help | true; exit ${{{status}[0]}}"
    assert run(f"bash -c '{command}'", tmp_path) == (0, [])


@pytest.mark.parametrize("command", ["shard --input {}/text.txt --corpus c --workdir data", "create"])
def test_a_folder_that_was_removed_under_the_command_is_one_line(command: str, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("One sentence.\nAnother one.\n\n" * 20)
    status, lines = run(f"mkdir gone; cd gone; rmdir ../gone; {PYTHON} bertprep {command.format(tmp_path)}", tmp_path)
    assert (status, lines[-1]) == (
        1,
        "bertprep: error: the folder in which this command was started was removed; change to another one (cd)",
    )


def test_a_low_limit_on_open_files_is_one_line(create: str, golden_corpus: Path, tmp_path: Path) -> None:
    for name in ("1.txt", "2.txt"):
        (tmp_path / name).write_text("One sentence.\nAnother one.\n\n" * 20)
    more = f"{create} --workers 2".replace(f"--input {golden_corpus}", "--input 1.txt 2.txt")
    assert run(more, tmp_path, files=8) == (
        1,
        ["bertprep: error: Too many open files: raise the limit (ulimit -n), or use fewer --workers"],
    )
    assert run(more, tmp_path)[0] == 0

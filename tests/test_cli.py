"""The command line: errors are one line and an exit status, results are tables."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from bertprep.cli import COMMANDS, EXAMPLES, main, make_command_parser
from tests.golden import GOLDEN

ROOT = Path(__file__).parents[1]
VOCABULARY = str(GOLDEN / "vocab.txt")


def test_shard_create_and_inspect_turn_text_into_examples(
    golden_corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = ["--workdir", str(tmp_path / "data"), "--corpus", "gold"]
    assert main(["shard", "--input", str(golden_corpus), "--splitter", "lines", *place]) == 0
    head, row, *_ = capsys.readouterr().out.splitlines()
    assert head.split() == ["format", "split", "shards", "documents", "sentences", "words", "MB"]
    assert row.split()[:3] == ["text", "training", "4"]
    assert main(["create", "--dupe", "1", "--vocab", VOCABULARY, *place]) == 0
    out, err = capsys.readouterr()
    assert [line.split()[:3] for line in out.splitlines()[:5]] == [
        ["format", "split", "files"],
        ["tfrecord", "training", "4"],
        ["tfrecord", "test", "1"],
        ["ofrecord", "training", "4"],
        ["ofrecord", "test", "1"],
    ]
    assert "create: 5/5 shards" in err
    records = next((tmp_path / "data/ofrecord").rglob("training/part-0"))
    assert main(["inspect", str(records), "--records", "2"]) == 0
    shown = capsys.readouterr().out
    assert "record 0: " in shown
    assert "record 1: " in shown
    assert "[CLS] " in shown
    assert "\nmade in " in out
    assert main(["create", "--dupe", "1", "--vocab", VOCABULARY, "--workdir", str(tmp_path / "data")]) == 0
    out, err = capsys.readouterr()
    assert err.startswith("using the corpus gold (choose another with --corpus)\n")
    assert "all 5 shards exist already" in err
    assert "made in" not in out


def test_the_lines_of_an_earlier_step_name_no_other_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tokenize", "--vocab", VOCABULARY, "--workdir", str(tmp_path)]) == 0
    err = capsys.readouterr().err
    assert "using the sample corpus, " in err
    assert "create" not in err


def test_a_vocabulary_smaller_than_requested_is_reported(
    golden_corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "vocab.txt"
    assert main(["vocab", "--input", str(golden_corpus), "--size", "90000", "--output", str(path)]) == 0
    tokens = len(path.read_text(encoding="utf-8").splitlines())
    assert f"has {tokens:,} tokens, not 90,000: no other pair of pieces occurs twice" in capsys.readouterr().err


@pytest.mark.parametrize("command", sorted(COMMANDS.keys() - {"train"}))
def test_help_begins_with_an_example_that_is_understood(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([command, "--help"])
    assert f"\nexample: {EXAMPLES[command]}\n" in capsys.readouterr().out
    program, *arguments = shlex.split(EXAMPLES[command])
    assert (program, arguments[0]) == ("bertprep", command)
    make_command_parser(arguments).parse_args(arguments)  # which refuses an unknown option


def test_help_loads_nothing_slow() -> None:
    program = """
import sys
from bertprep.cli import COMMANDS, main
for command in set(COMMANDS) - {"train"}:
    try:
        main([command, "--help"])
    except SystemExit as end:
        assert not end.code
print(*sys.modules)
"""
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    slow = {"numpy", "numba", "llvmlite", "pyarrow", "httpx2", "huggingface_hub", "rich", "yaml", "ray", "obstore", "datasets"}
    assert not slow & set(shown.splitlines()[-1].split())
    helped = {line.split()[2] for line in shown.splitlines() if line.startswith("usage: ")}
    assert helped == set(COMMANDS) - {"train"}
    letters = "".join(shown.split())  # lines may end after any hyphen
    assert [name for name in helped if "".join(COMMANDS[name].split()) not in letters] == []
    assert "trainer" not in shown.splitlines()[-1].split()


def run_bertprep(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bertprep", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd, env=environment)


def test_train_is_the_trainer(tmp_path: Path) -> None:
    helped = run_bertprep("train", "squad", "--help", cwd=tmp_path)
    assert (helped.returncode, helped.stderr) == (0, "")
    assert helped.stdout.startswith("usage: bertprep train squad [OPTIONS]")
    refused = run_bertprep("train", "--data", "nowhere", cwd=tmp_path)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith("trainer: error: nowhere: does not exist")


def test_another_package_of_the_name_is_not_run_as_the_trainer(tmp_path: Path) -> None:
    (tmp_path / "trainer.py").write_text("print('mine')\n", encoding="utf-8")
    refused = run_bertprep("train", "--help", cwd=tmp_path)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.endswith(f"but Python finds {tmp_path / 'trainer.py'} instead\n")


def test_the_program_alone_prints_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match=r"^0$"):
        main([])
    out = capsys.readouterr().out
    assert out.startswith("usage: bertprep COMMAND [OPTIONS]")
    assert all(f"\n    {name} " in out for name in COMMANDS)


@pytest.mark.parametrize(("program", "package"), [("bertprep create", "numpy"), ("trainer --data a", "numpy")])
def test_a_missing_package_is_one_line(program: str, package: str, tmp_path: Path) -> None:
    hidden = f"import sys, runpy; sys.modules[{package!r}] = None; sys.argv = {program.split()!r}"
    ended = subprocess.run(
        [sys.executable, "-c", f"{hidden}; runpy.run_module({program.split()[0]!r}, run_name='__main__')"],
        capture_output=True, text=True, check=False, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    name = program.split()[0]
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1] == (
        f"{name}: error: the Python package {package} is not installed; install it with pip install bertprep"
    )
    assert "Traceback" not in ended.stderr

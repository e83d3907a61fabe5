"""The command line: errors are one line and an exit status, results are tables."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bertprep.cli import COMMANDS, main
from tests.corpora import deal
from tests.golden import GOLDEN

ROOT = Path(__file__).parents[1]
VOCABULARY = str(GOLDEN / "vocab.txt")


def complaint(capsys: pytest.CaptureFixture[str]) -> str:
    """The one line on standard error that is the error."""
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("bertprep: error: ")]
    assert len(lines) == 1
    return lines[0].removeprefix("bertprep: error: ")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--seq 7", "--seq 7: must be at least 8"),
        ("--seq 128 --pred 126", "--pred 126: must be at least 1 and at most 125"),
        ("--masked-lm-prob 1.5", "--masked-lm-prob 1.5: must be above 0 and at most 1"),
        ("--masked-lm-prob nan", "--masked-lm-prob nan: must be above 0"),
        ("--short-seq-prob -0.1", "--short-seq-prob -0.1: must be at least 0 and at most 1"),
        ("--format hdf5", "--format hdf5: unknown; choose one of tfrecord, ofrecord"),
        ("--input text.txt", "--input and --output go together"),
        ("--json f.json", "--json: is for the forecast of --dry-run"),
        ("--compress gzip", "--compress gzip: is for TFRecord only"),
    ],
)
def test_an_impossible_request_is_a_usage_error(options: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["create", *options.split()]) == 2
    assert complaint(capsys).startswith(message)


@pytest.mark.parametrize(
    ("content", "status", "message"),
    [
        (None, 2, "does not exist"),
        (b"", 1, "is empty; expected one sentence a line"),
        (b"\n\n \n", 1, "holds no document"),
        (b"good\nline \xff\n", 1, "byte 10 (0xff) is not UTF-8"),
    ],
    ids=["missing", "empty", "no document", "not UTF-8"],
)
def test_invalid_text_is_named(
    content: bytes | None, status: int, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = tmp_path / "text.txt"
    if content is not None:
        text.write_bytes(content)
    out = tmp_path / "out"
    assert main(["create", "--input", str(text), "--output", str(out), "--vocab", VOCABULARY]) == status
    line = complaint(capsys)
    assert str(text) in line
    assert message in line
    assert not [path for path in out.rglob("*") if path.name != "vocab.txt" and path.is_file()]


def test_a_folder_made_with_other_settings_is_left_alone(
    golden_corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    create = ["create", "--input", str(golden_corpus), "--output", str(tmp_path / "out"), "--vocab", VOCABULARY, "--dupe", "1"]
    assert main(create) == 0
    assert main([*create, "--seq", "64"]) == 1
    assert "was made with --seq 128, asked for is --seq 64; choose another --output, or remove this folder" in complaint(capsys)


def test_shard_create_and_inspect_turn_text_into_examples(
    golden_corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = ["--workdir", str(tmp_path / "data"), "--corpus", "gold"]
    assert main(["shard", "--input", str(golden_corpus), "--splitter", "lines", *place]) == 0
    assert capsys.readouterr().out.splitlines()[0].split() == ["split", "shards", "documents", "sentences", "words", "MB"]
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
    assert main(["create", "--dupe", "1", "--vocab", VOCABULARY, *place]) == 0
    out, err = capsys.readouterr()
    assert "all 5 shards are made already" in err
    assert "made in" not in out


def test_the_lines_of_an_earlier_step_name_no_other_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tokenize", "--vocab", VOCABULARY, "--workdir", str(tmp_path)]) == 0
    err = capsys.readouterr().err
    assert "using the sample corpus, " in err
    assert "create" not in err


def test_more_shards_than_documents(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = tmp_path / "text.txt"
    text.write_text("One sentence. Another.\n\nA second document.\n\nA third one.\n")
    place = ["--workdir", str(tmp_path / "data"), "--corpus", "small"]
    assert main(["shard", "--input", str(text), "--shards", "10", *place]) == 2
    assert "documents" in complaint(capsys)


def test_vocab_train_writes_the_requested_file(golden_corpus: Path, tmp_path: Path) -> None:
    path = tmp_path / "vocab.txt"
    assert main(["vocab", "--input", str(golden_corpus), "--size", "400", "--output", str(path)]) == 0
    tokens = path.read_text(encoding="utf-8").splitlines()
    assert tokens[:5] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert len(tokens) == 400


@pytest.mark.parametrize("record", ["99999", "-1"])
def test_inspecting_a_record_number_past_the_end(
    golden_corpus: Path, record: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    [text] = deal(golden_corpus, tmp_path / "text", 1)
    create = ["create", "--input", str(text), "--output", str(tmp_path), "--vocab", VOCABULARY, "--dupe", "1"]
    assert main([*create, "--format", "ofrecord"]) == 0
    capsys.readouterr()
    [records] = (tmp_path / "ofrecord").rglob("part-0")
    assert main(["inspect", str(records), "--record", record]) == 2
    assert complaint(capsys).startswith(f"--record {record}: ")


def test_a_closed_pipe_is_not_an_error() -> None:
    shown = subprocess.run(
        f"{sys.executable} -m bertprep --help | head -1", shell=True, capture_output=True, text=True, check=True
    )
    assert shown.stdout.startswith("usage: bertprep")
    assert shown.stderr == ""


def test_a_vocabulary_smaller_than_requested_is_reported(
    golden_corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "vocab.txt"
    assert main(["vocab", "--input", str(golden_corpus), "--size", "90000", "--output", str(path)]) == 0
    tokens = len(path.read_text(encoding="utf-8").splitlines())
    assert f"has {tokens:,} tokens, all that this text gives; 90,000 were asked for" in capsys.readouterr().err


@pytest.mark.parametrize("command", COMMANDS)
def test_help_loads_nothing_slow(command: str) -> None:
    program = "import sys; from bertprep.cli import COMMANDS, main; main(sys.argv[1:])"
    shown = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", program, command, "--help"], capture_output=True, text=True, check=True
    )
    assert shown.stdout.startswith(f"usage: bertprep {command}")
    loaded = {line.rpartition("|")[2].strip() for line in shown.stderr.splitlines()}
    assert (
        loaded
        & {"numpy", "numba", "llvmlite", "pyarrow", "httpx2", "huggingface_hub", "rich", "yaml", "ray", "obstore", "datasets"}
        == set()
    )
    commands = {name for name in loaded if name.startswith("bertprep.commands.")}
    assert commands <= {f"bertprep.commands.{name}" for name in (command, "request", *NEEDED_BY.get(command, ()))}


NEEDED_BY = {"create": ("forecast", "shard", "vocab"), "vocab": ("shard",)}
"""The commands that run others first."""


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
        f"{name}: error: the Python package {package} is not installed; pip install . in a clone installs it"
    )
    assert "Traceback" not in ended.stderr

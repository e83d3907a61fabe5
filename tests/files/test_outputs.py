"""What a user names for a result is replaced only where bertprep wrote it; every command that takes such a name is here."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import bertprep
from bertprep.cli import main
from bertprep.sources.task_files import evaluation_program
from tests.golden import GOLDEN
from tests.records.handmade import FIRST, SECOND, file_of

BOOK = b"Call me Ishmael.\nSome years ago.\n\n" * 20
COMMANDS = {
    "vocab --input text.txt --size {} --output FILE.txt": (40, 50),
    "create --dry-run --input text.txt --output out --vocab vocab.txt --dupe {} --json FILE.json": (1, 2),
    "validate {}.tfrecord --vocab vocab.txt --json FILE.json": ("a", "b"),
    "validate {}.tfrecord --vocab vocab.txt --html FILE.html": ("a", "b"),
}
"""Commands, and two values each that give different files."""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a text, a vocabulary and records."""
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_bytes(BOOK)
    Path("a.tfrecord").write_bytes(file_of(FIRST, SECOND))
    Path("b.tfrecord").write_bytes(file_of(SECOND))
    Path("vocab.txt").write_bytes((GOLDEN / "vocab.txt").read_bytes())
    return tmp_path


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_replaces_its_own_file_alone(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = (shlex.split(command.format(value)) for value in COMMANDS[command])
    file = Path(first[-1])
    expected = f"{file}: exists, and this option did not write it; name another file, or move this one away\n"
    for content in (BOOK, b"{}", (GOLDEN / "vocab.txt").read_bytes(), b"<!DOCTYPE html>\n<title>Mine</title>\n"):
        file.write_bytes(content)
        assert main(first) == 2
        assert expected in capsys.readouterr().err
        assert file.read_bytes() == content
    file.write_bytes(b"")
    main(first)
    made = file.read_bytes()
    main(second)
    assert file.read_bytes() not in (b"", made)


def test_a_vocabulary_of_another_trainer_is_not_replaced() -> None:
    """One by `tokenizers` begins alike: the special tokens, then the characters, those within words after all others."""
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abc", "##a", "##b", "ab"]
    Path("theirs.txt").write_text("\n".join(tokens))
    with pytest.raises(bertprep.UsageError, match=r"--output theirs\.txt: exists"):
        bertprep.train_vocabulary(["text.txt"], output="theirs.txt")


def test_records_are_replaced_by_the_same_alone(here: Path) -> None:
    first = bertprep.convert("a.tfrecord", "part-0").manifest
    assert bertprep.convert("a.tfrecord", "part-0").manifest == first
    before = Path("part-0").read_bytes()
    with pytest.raises(
        bertprep.UsageError, match=r"^part-0: exists with other content than this conversion's; name another file"
    ):
        bertprep.convert("b.tfrecord", "part-0")
    assert Path("part-0").read_bytes() == before
    assert not list(here.glob("part-0.*"))


def test_the_metric_of_squad_replaces_scores_alone() -> None:
    Path("evaluate.py").write_text(evaluation_program("v2.0"))
    question = {"id": "q", "question": "?", "answers": [{"text": "x", "answer_start": 0}]}
    Path("data.json").write_text(json.dumps({"data": [{"paragraphs": [{"context": "x", "qas": [question]}]}]}))
    Path("predictions.json").write_text('{"q": "x"}')

    def evaluate(out: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "evaluate.py", "data.json", "predictions.json", "-o", out]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    refused = evaluate("data.json")
    assert refused.returncode == 1
    assert "data.json: exists and is not a file of scores; name another" in refused.stderr
    for _ in range(2):
        assert evaluate("scores.json").returncode == 0
    assert json.loads(Path("scores.json").read_text())["exact"] == 100.0

"""Results never overwrite data, and an unwritable path is reported before the work."""

import os
from pathlib import Path

import pytest

from bertprep.cli import main
from bertprep.commands.create import create
from tests.corpora import sums
from tests.golden import GOLDEN


@pytest.fixture(scope="module")
def records(golden_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("records")
    create(inputs=[golden_corpus], output=output, vocab=GOLDEN / "vocab.txt", workers=1)
    return output


@pytest.mark.parametrize(
    "arguments",
    [
        ["validate", "OUT", "--json", "OUT/ofrecord/training/part-0"],
        ["validate", "OUT", "--json", "OUT/ofrecord/manifest.json"],
        ["validate", "OUT", "--json", "OUT"],
        ["validate", "OUT", "--json", "-"],
        ["validate", "OUT", "--json", "OUT/none/found.json"],
        ["validate", "OUT", "--html", "OUT/ofrecord/training/part-0"],
        ["create", "--dry-run", "--json", "OUT/ofrecord/vocab.txt"],
    ],
)
def test_nothing_is_written_over_data(arguments: list[str], records: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sums(records)
    assert main([argument.replace("OUT", str(records)) for argument in arguments]) == 2
    option, target = (argument.replace("OUT", str(records)) for argument in arguments[-2:])
    assert capsys.readouterr().err.splitlines()[-1].startswith(f"bertprep: error: {option} {target}: ")
    assert sums(records) == before


def test_what_a_command_wrote_before_is_written_again(records: Path, tmp_path: Path) -> None:
    for arguments in (
        ["validate", str(records), "--json", str(tmp_path / "found.json")],
        ["validate", str(records / "ofrecord"), "--html", str(tmp_path / "page.html")],
    ):
        assert main(arguments) == main(arguments) == 0


@pytest.mark.parametrize("command", ["validate", "inspect"])
def test_a_pipe_is_no_record_file(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert main([command, str(tmp_path / "pipe")]) in (1, 2)
    assert "is not a plain file" in "".join(capsys.readouterr())


def test_inspect_takes_no_vocabulary_that_the_manifest_disproves(
    records: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = (GOLDEN / "vocab.txt").read_text().splitlines()
    lines[-1], lines[-2] = lines[-2], lines[-1]
    (tmp_path / "swapped.txt").write_text("\n".join(lines) + "\n")
    assert main(["inspect", str(records / "ofrecord/training/part-0"), "--vocab", str(tmp_path / "swapped.txt")]) == 1
    assert "swapped.txt: is not the vocabulary that" in capsys.readouterr().err

"""A log is read as it was written, without an incomplete last line, and cut where a run resumes."""

import json
from pathlib import Path
from typing import Any

import pytest

from bertprep.errors import BertprepError
from trainer.log_file import cut_log, log_line, read_log

ENTRIES: list[dict[str, Any]] = [
    {"kind": "run", "step": 0, "seed": 1},
    {"kind": "train", "step": 100, "loss": 8.0},
    {"kind": "train", "step": 200, "loss": 7.0},
    {"kind": "evaluation", "step": 200, "loss": 7.25},
    {"kind": "train", "step": 300, "loss": 6.5},
]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log.jsonl"
    path.write_bytes(b"".join(map(log_line, ENTRIES)))
    return path


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
def test_nan_and_infinity_are_null(value: float) -> None:
    assert log_line({"kind": "train", "step": 7, "loss": value}) == b'{"kind": "train", "step": 7, "loss": null}\n'


def test_a_path_is_its_name() -> None:
    assert json.loads(log_line({"kind": "run", "step": 0, "out": Path("a/b")})) == {"kind": "run", "step": 0, "out": "a/b"}


def test_entries_are_read_as_they_were_written(log: Path) -> None:
    assert read_log(log) == ENTRIES


def test_an_incomplete_last_line_is_skipped(log: Path) -> None:
    with log.open("a") as file:
        file.write('{"kind": "train", "st')
    assert read_log(log) == ENTRIES


@pytest.mark.parametrize("line", ["loss 7.2", "[1, 2]", '{"kind": "train"}'])
def test_an_invalid_line_is_reported_and_skipped(line: str, log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, *others = log.read_text().splitlines(keepends=True)
    log.write_text(first + line + "\n" + "".join(others))
    assert read_log(log) == ENTRIES
    assert capsys.readouterr().err == f"{log}: line 2: left out, it is no entry of a log: {line!r}\n"
    cut_log(log, 1000)
    capsys.readouterr()
    assert read_log(log) == ENTRIES
    assert capsys.readouterr().err == ""  # it is gone


def test_a_file_that_is_not_a_log_is_refused(log: Path) -> None:
    log.write_text("my notes\non losses\n")
    with pytest.raises(BertprepError, match=r"log\.jsonl: line 1: expected an entry .* remove it$"):
        read_log(log)


def test_a_missing_log_is_named(tmp_path: Path) -> None:
    with pytest.raises(BertprepError, match=r"none\.jsonl: cannot be read: No such file"):
        read_log(tmp_path / "none.jsonl")


@pytest.mark.parametrize(("step", "kept"), [(0, 1), (199, 2), (200, 4), (1000, 5)])
def test_a_log_is_cut_after_a_step(step: int, kept: int, log: Path) -> None:
    cut_log(log, step)
    assert read_log(log) == ENTRIES[:kept]


def test_an_incomplete_line_is_removed_and_the_rest_kept(log: Path) -> None:
    whole = log.read_bytes()
    log.write_bytes(whole + b'{"kind": "train", "st')
    cut_log(log, 300)
    assert log.read_bytes() == whole


def test_cutting_a_missing_log_does_nothing(tmp_path: Path) -> None:
    cut_log(tmp_path / "log.jsonl", 100)
    assert list(tmp_path.iterdir()) == []

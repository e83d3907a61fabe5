"""The result of a command: what Python shows of it is what the shell prints."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import bertprep
from bertprep.cli import main
from bertprep.work.made import Made, files_table
from bertprep.work.manifest import MDS, RECORDS, TEXT_SHARDS, TOKEN_SHARDS, Manifest

GOLDEN = Path(__file__).parents[1] / "golden"


def test_a_result_shows_its_files_by_format_and_split_and_where_they_are() -> None:
    entry = {"bytes": 2_000_000, "examples": 1200, "documents": 3}
    records = Manifest(RECORDS, {}, {"test/part-0": entry, "training/part-0": entry, "training/part-1": entry})
    folders = {name: Path("out") / name for name in ("tfrecord", "ofrecord")}
    made = Made(folders, dict.fromkeys(folders, records), made=2, kept=1, seconds=1.26)
    assert repr(made).split("\n") == [
        "format    split     files  documents  records   MB",
        "tfrecord  training      2          6    2,400  4.0",
        "tfrecord  test          1          3    1,200  2.0",
        "ofrecord  training      2          6    2,400  4.0",
        "ofrecord  test          1          3    1,200  2.0",
        "made in 1.3 s, 1 existed:",
        "  out/tfrecord",
        "  out/ofrecord",
    ]
    assert made.folder == Path("out/tfrecord")
    assert made.manifest == records


def test_a_token_shard_of_several_files_is_one_shard_of_training_data() -> None:
    files = {f"c_training_00000.{end}": {"bytes": 500_000} for end in ("bin", "idx", "words")}
    files["c_training_00000.bin"] |= {"documents": 7, "tokens": 90}
    tokens = Manifest(TOKEN_SHARDS, {}, files)
    rows = Manifest(MDS, {}, {"train/shard.00000.mds": {"bytes": 400_000, "samples": 11}})
    assert files_table({"tokens": tokens, "mds": rows}) == [
        ("format", "split", "shards", "documents", "tokens", "rows", "MB"),
        ("tokens", "training", "1", "7", "90", "", "1.5"),
        ("mds", "train", "1", "", "", "11", "0.4"),
    ]


def test_a_result_of_which_nothing_is_made_yet_has_no_table() -> None:
    made = Made({"text": Path("t")}, {"text": Manifest(TEXT_SHARDS, {}, {})}, made=0, kept=0, seconds=0, is_complete=False)
    unfinished = "the data is not complete until the other parts are made:\n  t"
    assert repr(made) == f"nothing to do in this part; {unfinished}"
    assert repr(replace(made, made=2, seconds=1.26)) == f"made this part in 1.3 s; {unfinished}"


def test_the_shell_prints_what_python_shows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = tmp_path / "a.txt"
    text.write_text("One sentence.\nAnother one.\n\n" * 20)
    asked: dict[str, Any] = {"inputs": [text], "output": tmp_path / "out", "vocab": GOLDEN / "vocab.txt", "seq": 32, "pred": 4}
    made = bertprep.create(**asked, workers=1, formats="tfrecord")
    assert (made.made, made.kept, made.is_complete) == (1, 0, True)
    capsys.readouterr()
    options = ["--seq", "32", "--pred", "4", "--vocab", str(GOLDEN / "vocab.txt"), "--format", "tfrecord"]
    assert main(["create", "--input", str(text), "--output", str(tmp_path / "out"), *options]) == 0
    shown = repr(made).split("\n")
    assert capsys.readouterr().out.split("\n")[: len(shown)] == [
        *shown[:2],
        "nothing to do, all files exist:",
        f"  {tmp_path / 'out' / 'tfrecord'}",
    ]


def test_seconds_count_what_a_command_prepares() -> None:
    made = Made({"text": Path("t")}, {"text": Manifest(TEXT_SHARDS, {}, {})}, made=1, kept=0, seconds=0)
    assert 100 < made.since(time.monotonic() - 100).seconds < 200

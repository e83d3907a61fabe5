"""Forecasts against the records and bytes then made; docs/contribute/benchmarks.md compares times."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import bertprep
from bertprep.cli import main
from bertprep.commands import forecast as forecasts
from bertprep.commands.create import create, forecast
from bertprep.commands.shard import shard
from bertprep.errors import BertprepError
from bertprep.work.made import Made
from tests.corpora import deal, sums
from tests.golden import GOLDEN

VOCABULARY = GOLDEN / "vocab.txt"


def total(created: Made, record_format: str, key: str, split: str = "") -> int:
    """The sum of a value over the files of one format."""
    files = created.manifests[record_format].files
    return sum(int(entry[key]) for name, entry in files.items() if name.startswith(split))


def test_a_small_text_is_made_as_a_whole_so_that_its_numbers_are_exact(golden_corpus: Path, tmp_path: Path) -> None:
    asked: dict[str, Any] = {
        "inputs": deal(golden_corpus, tmp_path / "text", 3), "output": tmp_path / "out", "vocab": VOCABULARY,
        "dupe": 2, "seq": 64, "pred": 10, "whole_word": True, "seed": 7,
    }  # fmt: skip
    before = sums(tmp_path)
    found = bertprep.forecast(**asked, workers=2)
    assert sums(tmp_path) == before
    created = create(**asked, workers=1)
    assert (found.training_records, found.test_records) == (total(created, "tfrecord", "examples"), 0)
    assert found.size_bytes == {name: total(created, name, "bytes") for name in ("tfrecord", "ofrecord")}
    assert found.sample_bytes == found.text_bytes == sum(path.stat().st_size for path in asked["inputs"])
    assert found.wall_seconds > 0


def test_a_vocabulary_is_trained_and_splits_are_numbered_as_by_create(golden_corpus: Path, tmp_path: Path) -> None:
    shard([golden_corpus], splitter="lines", shards=2, workdir=tmp_path, corpus="gold", workers=1)
    before = sums(tmp_path)
    asked: dict[str, Any] = {"formats": "tfrecord", "dupe": 1, "corpus": "gold", "workdir": tmp_path, "workers": 2}
    found = forecast(**asked)
    assert sums(tmp_path) == before
    created = create(**asked)
    counts = {split: total(created, "tfrecord", "examples", split) for split in ("training", "test")}
    assert counts == {"training": found.training_records, "test": found.test_records}


def test_the_vocabulary_of_a_forecast_is_the_one_that_create_takes(
    golden_corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One of another size, which was trained on the corpus, and for cased text one that is trained first."""
    data = tmp_path / "data"
    shard([golden_corpus], splitter="lines", shards=2, workdir=data, corpus="gold", workers=1)
    small = bertprep.train_vocabulary(corpus="gold", size=400, workdir=data)
    before = sums(tmp_path)
    where = {"corpus": "gold", "workdir": data, "workers": 1}
    command = ["create", "--dry-run", "--corpus", "gold", "--workdir", str(data), "--workers", "1", "--format", "tfrecord"]
    for cased in (False, True):
        assert main([*command, *(["--cased"] if cased else [])]) == 0
        printed = capsys.readouterr()
        found = forecast(**where, formats="tfrecord", cased=cased, dupe=1)
        assert sums(tmp_path) == before
        assert (found.vocabulary == small, found.trains_vocabulary) == (not cased, cased)
        assert f"\nvocabulary: {found.vocabulary}{', which create trains first' if cased else ''}\n" in printed.out
        assert (f"{small} is not used: it is uncased, and upper case is kept" in printed.err) == cased
    made = create(**where, formats="tfrecord", dupe=1)
    assert made.manifest.made_with["vocabulary"]["tokens"] == len(small.read_text().splitlines())
    found = forecast(**where, formats="tfrecord", dupe=1)
    counts = {split: total(made, "tfrecord", "examples", split) for split in ("training", "test")}
    assert counts == {"training": found.training_records, "test": found.test_records}
    create(**where, formats="tfrecord", dupe=1, cased=True)
    assert found.vocabulary.parent == small.parent
    assert sorted(path.name for path in small.parent.iterdir()) == sorted(
        [small.name, forecast(**where, formats="tfrecord", cased=True, dupe=1).vocabulary.name]
    )


def test_a_sample_forecasts_all_records_and_bytes_within_a_tenth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shard(workdir=tmp_path, workers=1)
    before = sums(tmp_path)
    monkeypatch.setattr(forecasts, "SAMPLE_BYTES", 2_000_000)
    asked: dict[str, Any] = {"workdir": tmp_path, "vocab": VOCABULARY, "formats": "tfrecord", "workers": 1}
    found = forecast(**asked)
    assert sums(tmp_path) == before
    assert found.sample_bytes < 0.2 * found.text_bytes
    created = create(**asked)
    for split, records in (("training", found.training_records), ("test", found.test_records)):
        assert records == pytest.approx(total(created, "tfrecord", "examples", split), rel=0.2)
    all_records = found.training_records + found.test_records
    assert all_records == pytest.approx(total(created, "tfrecord", "examples"), rel=0.1)
    assert found.size_bytes == {"tfrecord": pytest.approx(total(created, "tfrecord", "bytes"), rel=0.1)}


def test_a_sample_of_a_document_that_is_longer_than_it_ends_with_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forecasts, "SAMPLE_BYTES", 20_000)
    sentence = "the of and in to was\n"
    texts = [tmp_path / "a.txt", tmp_path / "b.txt"]
    for path in texts:
        path.write_text(sentence * 5000)
    asked: dict[str, Any] = {"inputs": texts, "output": tmp_path / "out", "vocab": VOCABULARY, "formats": "tfrecord"}
    found = forecast(**asked, lines_are_sentences=True, dupe=1, workers=1)
    assert found.sample_bytes == 2 * (10_000 // len(sentence)) * len(sentence)
    assert found.training_records > 100


def test_too_small_a_disk_is_reported(
    golden_corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    usage = shutil.disk_usage(tmp_path)
    small = usage._replace(free=1_000)  # of all but the folder of the sample
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage if "bertprep-forecast" in str(path) else small)
    command = ["create", "--dry-run", "--input", golden_corpus, "--output", tmp_path / "out", "--vocab", VOCABULARY]
    assert main([*map(str, command), "--workers", "1", "--json", str(tmp_path / "plan.json")]) == 0
    assert "NOT ENOUGH" in capsys.readouterr().out
    assert json.loads((tmp_path / "plan.json").read_text())["disks"][0]["free_bytes"] == 1_000
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]


def test_a_disk_that_takes_no_sample_is_passed_over(
    golden_corpus: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of /proc nobody can write to; if there is no other disk, one line says so."""
    command = ["create", "--dry-run", "--input", str(golden_corpus), "--lines-are-sentences", "--output", "/proc/nothing/out"]
    command += ["--vocab", str(VOCABULARY), "--format", "tfrecord", "--workers", "1"]
    assert main(command) == 0
    printed = capsys.readouterr()
    assert "create: the disk of /proc has no space for a sample" in printed.err
    assert "training records" in printed.out
    assert "disk of /proc: " in printed.out
    monkeypatch.setattr(forecasts, "_find_disks", lambda _: [Path("/proc"), Path("/proc/self")])
    assert main(command) == 1
    [line] = [line for line in capsys.readouterr().err.splitlines() if "error: " in line]
    assert line.startswith("bertprep: error: --dry-run: cannot write a sample of the text to any of /proc, /proc/self; free")


def test_invalid_text_is_reported_as_by_create(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.txt"
    wrong.write_bytes(b"One sentence.\nAnother \xff one.\n\n")
    messages = []
    for function in (forecast, create):
        with pytest.raises(BertprepError) as error:
            function(inputs=[wrong], output=tmp_path / "out", vocab=VOCABULARY, workers=1)
        messages.append(str(error.value))
    assert messages[0] == messages[1]

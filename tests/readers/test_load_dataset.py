"""Records of any form become data sets of `datasets`: real ones, opened by its own code."""

from __future__ import annotations

import gzip
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bertprep
from bertprep import records
from bertprep.cli import main
from bertprep.config import RecordFormat
from bertprep.errors import BertprepError, UsageError
from bertprep.records import Examples, RecordDataset
from bertprep.records.write import write_examples
from tests.records.handmade import FIRST, SECOND, file_of
from tests.records.task_records import TASK_KINDS, task_examples

COUNT = 1100  # more than a record batch has


@pytest.fixture(scope="module", autouse=True)
def library() -> Any:
    import datasets  # takes 2 s, which collecting the tests need not pay

    return datasets


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two splits of records, in both formats, one file compressed."""
    folder = tmp_path_factory.mktemp("records") / "sample"
    for split in ("training", "test"):
        (folder / split).mkdir(parents=True)
    (folder / "training" / "part-0").write_bytes(file_of(*[FIRST, SECOND] * (COUNT // 2)))
    (folder / "training" / "part-1").write_bytes(gzip.compress(file_of(SECOND, FIRST)))
    (folder / "test" / "part-0").write_bytes(file_of(SECOND))
    return folder


def assert_same(dataset: Any, expected: RecordDataset) -> None:
    assert dataset.column_names == expected.column_names
    assert len(dataset) == len(expected)
    found = dataset.with_format("numpy")[:]
    for name, array in expected[:].items():
        np.testing.assert_array_equal(found[name], array, name)


def files_of(dataset: Any) -> list[Path]:
    return [Path(each["filename"]) for each in dataset.cache_files]


def inodes(folder: Path) -> Iterator[tuple[int, int]]:
    for path in sorted(folder.rglob("*.arrow")):
        yield path.stat().st_ino, path.stat().st_mtime_ns


def test_a_folder_is_converted_once_to_the_cache(folder: Path, tmp_path: Path, library: Any) -> None:
    loaded = bertprep.load_dataset(folder, cache_dir=tmp_path)
    assert isinstance(loaded, library.DatasetDict)
    assert list(loaded) == ["train", "test"]
    for split, dataset in loaded.items():
        assert_same(dataset, RecordDataset(folder, split))
        assert all(path.is_relative_to(tmp_path / "bertprep") for path in files_of(dataset))
    assert loaded["train"].features["next_sentence_label"].names == ["is_next", "random"]
    made = list(inodes(tmp_path))
    for split in ("train", "training"):
        assert bertprep.load_dataset(folder, split, cache_dir=tmp_path)._fingerprint == loaded["train"]._fingerprint
    assert list(inodes(tmp_path)) == made
    assert len(list((tmp_path / "bertprep").iterdir())) == 1  # and no lock or unfinished folder
    os.utime(folder / "test" / "part-0", ns=(1, 1))
    bertprep.load_dataset(folder, "test", cache_dir=tmp_path)
    assert len(list((tmp_path / "bertprep").iterdir())) == 2


def test_an_arrow_folder_is_opened_where_it_is(folder: Path, tmp_path: Path) -> None:
    bertprep.convert(folder, tmp_path / "arrow", to="arrow", workers=1)
    before = sorted(path for path in tmp_path.rglob("*") if ".record-index" not in path.name)
    train = bertprep.load_dataset(tmp_path / "arrow", "train", cache_dir=tmp_path / "cache")
    assert_same(train, RecordDataset(folder))
    assert {path.parent for path in files_of(train)} == {tmp_path / "arrow" / "train"}
    assert sorted(path for path in tmp_path.rglob("*") if ".record-index" not in path.name) == before
    train.map(lambda row: row, keep_in_memory=True).save_to_disk(tmp_path / "saved")  # of datasets' own making
    assert_same(bertprep.load_dataset(tmp_path / "saved", cache_dir=tmp_path / "cache"), RecordDataset(folder))
    assert not (tmp_path / "cache").exists()


def test_a_parquet_folder_a_split_and_a_file(folder: Path, tmp_path: Path) -> None:
    bertprep.convert(folder, tmp_path / "parquet", to="parquet", workers=1)
    loaded = bertprep.load_dataset(tmp_path / "parquet", cache_dir=tmp_path / "cache")
    assert_same(loaded["train"], RecordDataset(folder))
    for part in (folder / "training", folder / "training" / "part-1", tmp_path / "parquet" / "test"):
        assert_same(bertprep.load_dataset(part, cache_dir=tmp_path / "cache"), RecordDataset(part))


@pytest.mark.parametrize("form", ["saved", "Parquet", "Parquet files"])
def test_validation_and_test_are_two_splits(
    form: str, folder: Path, tmp_path: Path, library: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    with records.open(folder / "training" / "part-0") as file:
        every = file.to_dataset()
    rows = {"train": [0, 1, 0], "validation": [1, 1, 0, 0], "test": [0, 1]}
    splits = library.DatasetDict({name: every.select(numbers) for name, numbers in rows.items()})
    made = tmp_path / "made"
    made.mkdir()
    if form == "saved":
        splits.save_to_disk(made)
    for name, dataset in splits.items() if form != "saved" else ():
        (made / name).mkdir()
        dataset.to_parquet(made / (f"{name}/0.parquet" if form == "Parquet" else f"{name}-00000-of-00001.parquet"))
    loaded = bertprep.load_dataset(made, cache_dir=tmp_path / "cache")
    assert sorted(loaded) == sorted(rows)
    for name, dataset in splits.items():
        expected = np.array(dataset["input_ids"])
        found = [loaded[name], bertprep.load_dataset(made, name, cache_dir=tmp_path / "cache"), RecordDataset(made, name)]
        if form != "Parquet files":
            found += [RecordDataset(made / name), RecordDataset(made / name, name)]
        for each in found:
            np.testing.assert_array_equal(np.array(list(each[:]["input_ids"])), expected, name)
    for load in (lambda: bertprep.load_dataset(made, "dev", cache_dir=tmp_path), lambda: RecordDataset(made, "dev")):
        with pytest.raises(UsageError, match=f"^{made}: has no split dev; it has train, (test, validation|validation, test)$"):
            load()
    assert main(["convert", str(made), str(tmp_path / "to"), "--workers", "1"]) == 0
    assert ": left out, as test is the test split; name it to read it\n" in capsys.readouterr().err
    assert [len(RecordDataset(tmp_path / "to", split)) for split in ("train", "test")] == [3, 2]


def test_several_may_ask_at_once(folder: Path, tmp_path: Path) -> None:
    with ThreadPoolExecutor(3) as threads:
        loaded = list(threads.map(lambda _: bertprep.load_dataset(folder, "train", cache_dir=tmp_path), range(3)))
    assert len({files_of(dataset)[0].stat().st_ino for dataset in loaded}) == 1
    assert len(list((tmp_path / "bertprep").iterdir())) == 1


@pytest.mark.parametrize("kind", TASK_KINDS, ids=[kind.title for kind in TASK_KINDS])
def test_a_file_of_each_kind_in_memory(kind: type[Examples], tmp_path: Path) -> None:
    examples = task_examples(kind, 40)
    write_examples([examples], {RecordFormat.OFRECORD: tmp_path / "part-0"})
    with records.open(tmp_path / "part-0") as file:
        assert_same(file.to_dataset(), RecordDataset(tmp_path / "part-0"))


def test_a_file_of_many_batches_in_memory(folder: Path) -> None:
    with records.open(folder / "training" / "part-0") as file:
        dataset = file.to_dataset()
        assert dataset._fingerprint == file.to_dataset()._fingerprint
    assert_same(dataset, RecordDataset(folder / "training" / "part-0"))
    assert files_of(dataset) == []
    assert dataset.train_test_split(0.1, seed=1)["test"].num_rows == COUNT // 10


def test_what_is_wrong_is_said_in_one_line(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"^{folder}: has no split dev; it has test$"):
        bertprep.load_dataset(folder / "test", "dev", cache_dir=tmp_path)
    with pytest.raises(UsageError, match=f"^{folder}: has no split validation; it has training, test$"):
        bertprep.load_dataset(folder, "validation", cache_dir=tmp_path)
    bad = tmp_path / "part-0"
    bad.write_bytes(file_of(*[FIRST] * COUNT, {**FIRST, "masked_lm_weights": [1.0, 1.0]}))
    for load in (lambda: bertprep.load_dataset(bad, cache_dir=tmp_path / "cache"), lambda: records.open(bad).to_dataset()):
        with pytest.raises(BertprepError, match=f"^{bad}: record {COUNT}: predictions do not fit the column labels"):
            load()
    assert not (tmp_path / "cache" / "bertprep").exists()


def test_without_datasets_the_line_says_what_to_install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    for load in (lambda: bertprep.load_dataset(folder), lambda: records.open(folder / "test" / "part-0").to_dataset()):
        with pytest.raises(UsageError, match=r"; install it with pip install 'bertprep\[datasets\]'$"):
            load()

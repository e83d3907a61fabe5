"""`datasets` opens our Arrow and Parquet files by every way that it has, and finds the values of the TFRecords."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt
import pytest

import bertprep
from bertprep import records
from bertprep.config import ShardSettings
from bertprep.records.columns import NEXT_SENTENCE_NAMES
from tests.golden import GOLDEN

SETTINGS = bertprep.InstanceSettings(seq=64, pred=10, dupe=1)
FORMATS = "tfrecord", "arrow", "parquet"
SPLITS = {"train": "training", "test": "test"}
Columns = dict[str, npt.NDArray[np.generic]]


@pytest.fixture(scope="module")
def folders(golden_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The data set in each format: three files for training and one for testing."""
    workdir = tmp_path_factory.mktemp("made")
    shards = ShardSettings(shards=3, splitter="lines")
    bertprep.shard([golden_corpus], **vars(shards), workdir=workdir, corpus="gold", workers=1)
    asked = {"workdir": workdir, "corpus": "gold", "vocab": GOLDEN / "vocab.txt", "workers": 1}
    return bertprep.create(**vars(SETTINGS), formats=FORMATS, **asked).folders


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Nothing of these tests in the user's cache, and nothing from the network."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        patch.setenv("HF_HOME", str(tmp_path_factory.mktemp("cache")))
        import datasets

        patch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path_factory.mktemp("datasets"))
        datasets.disable_progress_bars()
        yield


def expected(folder: Path, split: str) -> Columns:
    """The columns of the TFRecords of a split, as bertprep reads these."""
    read = [records.open(path)[:] for path in sorted((folder / SPLITS[split]).iterdir())]
    names = [feature.name for feature in records.PretrainingExamples.features]
    values = {name: np.concatenate([getattr(examples, name) for examples in read]) for name in names}
    labels = np.full(values["input_ids"].shape, -100)
    row, number = np.nonzero(values["masked_lm_weights"])
    labels[row, values["masked_lm_positions"][row, number]] = values["masked_lm_ids"][row, number]
    return {
        "input_ids": values["input_ids"],
        "token_type_ids": values["segment_ids"],
        "attention_mask": values["input_mask"],
        "labels": labels,
        "next_sentence_label": values["next_sentence_labels"],
    }


def assert_same(found: Iterable[dict[str, Any]], columns: Columns) -> None:
    rows = list(found)
    assert {name: type(rows[0][name]) for name in rows[0]}.keys() == columns.keys()
    for name, values in columns.items():
        np.testing.assert_array_equal([row[name] for row in rows], values, err_msg=name)


def files_of(folder: Path, split: str) -> list[str]:
    return [str(path) for path in sorted((folder / split).iterdir()) if path.suffix != ".json"]


def test_a_folder_of_arrow_is_a_dataset_dict(folders: dict[str, Path]) -> None:
    import datasets

    found = datasets.load_from_disk(folders["arrow"])
    assert list(found) == ["train", "test"]
    for split, data in found.items():
        assert str(data.split) == split
        assert data.features["next_sentence_label"].names == list(NEXT_SENTENCE_NAMES)
        assert data.features["input_ids"] == datasets.List(datasets.Value("int32"), length=64)
        assert data.features["attention_mask"] == datasets.List(datasets.Value("int8"), length=64)
        assert data.info.description.endswith("max_seq_length=64, max_predictions_per_seq=10.")
        assert data.info.splits[split].num_examples == len(data)
        batch = data.with_format("numpy")[:]
        for name, values in expected(folders["tfrecord"], split).items():
            np.testing.assert_array_equal(batch[name], values, err_msg=name)
    again = datasets.load_from_disk(folders["arrow"])  # what was computed of the one is found for the other
    assert [data._fingerprint for data in again.values()] == [data._fingerprint for data in found.values()]
    assert [Path(file["filename"]).parent for file in found["train"].cache_files] == [folders["arrow"] / "train"] * 3  # mapped


@pytest.mark.parametrize("name", ["arrow", "parquet"])
@pytest.mark.parametrize("streaming", [False, True])
def test_files_are_loaded_by_name(name: str, streaming: bool, folders: dict[str, Path]) -> None:
    import datasets

    files = {split: files_of(folders[name], split) for split in SPLITS}
    found = datasets.load_dataset(name, data_files=files, streaming=streaming)
    for split, data in found.items():
        assert data.features["next_sentence_label"].names == list(NEXT_SENTENCE_NAMES)
        assert_same(data, expected(folders["tfrecord"], split))


@pytest.mark.parametrize("name", ["arrow", "parquet"])
def test_a_folder_is_loaded_with_its_splits(name: str, folders: dict[str, Path]) -> None:
    import datasets

    found = datasets.load_dataset(str(folders[name]))
    assert list(found) == ["train", "test"]
    assert_same(found["test"], expected(folders["tfrecord"], "test"))


def test_duckdb_reads_parquet(folders: dict[str, Path]) -> None:
    found = duckdb.sql(f"FROM '{folders['parquet']}/train/*.parquet'").fetchall()
    columns = expected(folders["tfrecord"], "train")
    for values, ours in zip(zip(*found, strict=True), columns.values(), strict=True):
        np.testing.assert_array_equal(np.array(values), ours)

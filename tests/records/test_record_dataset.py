"""Records as a map-style data set: what `DataLoader` asks of it, without PyTorch."""

from __future__ import annotations

import gzip
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bertprep
from bertprep import records
from bertprep.errors import BertprepError, UsageError
from bertprep.records import PretrainingExamples, RecordDataset
from tests.records.handmade import FIRST, Dialect, Record, file_of

SEQ, PRED, COUNT = 8, 2, 60


def pretraining_record(rng: np.random.Generator) -> Record:
    """A record whose predictions are in order, as a generator makes them: none to two."""
    made = int(rng.integers(0, PRED + 1))
    positions = sorted(rng.choice(SEQ, made, replace=False).tolist())
    return {
        "input_ids": rng.integers(0, 30522, SEQ).tolist(),
        "input_mask": [1] * 6 + [0] * 2,
        "segment_ids": [0] * 4 + [1] * 4,
        "masked_lm_positions": positions + [0] * (PRED - made),
        "masked_lm_ids": rng.integers(0, 30522, made).tolist() + [0] * (PRED - made),
        "masked_lm_weights": [1.0] * made + [0.0] * (PRED - made),
        "next_sentence_labels": [int(rng.integers(0, 2))],
    }


def row_of(record: Record) -> dict[str, Any]:
    """What transformers takes, of one record, plainly."""
    labels = [-100] * SEQ
    for position, token, weight in zip(
        record["masked_lm_positions"], record["masked_lm_ids"], record["masked_lm_weights"], strict=True
    ):
        if weight:
            labels[int(position)] = int(token)
    return {
        "input_ids": record["input_ids"],
        "token_type_ids": record["segment_ids"],
        "attention_mask": record["input_mask"],
        "labels": labels,
        "next_sentence_label": record["next_sentence_labels"][0],
    }


def assert_row(found: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    assert list(found) == list(expected)
    for name, value in expected.items():
        assert found[name].dtype == np.int64
        assert np.array_equal(found[name], value), name


@pytest.fixture(scope="module")
def rows() -> list[Record]:
    rng = np.random.default_rng(0)
    return [pretraining_record(rng) for _ in range(COUNT)]


@pytest.fixture(scope="module")
def folder(rows: list[Record], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three files of training records in both formats, one of them compressed, and one of test records."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "training").mkdir()
    (folder / "test").mkdir()
    (folder / "training" / "part-0").write_bytes(file_of(*rows[:7], dialect=Dialect("ofrecord")))
    (folder / "training" / "part-1").write_bytes(file_of(*rows[7:50]))
    (folder / "training" / "part-2").write_bytes(gzip.compress(file_of(*rows[50:])))
    (folder / "test" / "part-0").write_bytes(file_of(FIRST))
    return folder


def test_a_row_is_what_transformers_takes(folder: Path, rows: list[Record]) -> None:
    with RecordDataset(folder) as data:
        assert (len(data), data.seq, data.kind) == (COUNT, SEQ, PretrainingExamples)
        assert data.column_names == ["input_ids", "token_type_ids", "attention_mask", "labels", "next_sentence_label"]
        for number in (0, 7, 59, -1, -60, np.int64(8), np.array(9)):
            assert_row(data[number], row_of(rows[int(number)]))
        for number, row in enumerate(data):
            assert_row(row, row_of(rows[number]))
    assert_row(RecordDataset(folder, "test")[0], row_of(FIRST))
    assert_row(RecordDataset([folder / "training" / "part-1", folder])[43], row_of(rows[0]))
    assert bertprep.RecordDataset is records.RecordDataset is RecordDataset


@pytest.mark.parametrize("to", ["tfrecord", "ofrecord", "arrow", "parquet"])
def test_every_format_gives_the_same_rows(to: str, folder: Path, rows: list[Record], tmp_path: Path) -> None:
    bertprep.convert(folder, tmp_path / to, to=to, workers=1)
    with RecordDataset(tmp_path / to) as data:
        for row, number in zip(data.__getitems__(range(COUNT)[::-1]), range(COUNT)[::-1], strict=True):
            assert_row(row, row_of(rows[number]))
    with RecordDataset(tmp_path / to, "test") as data:
        assert len(data) == 1


def test_many_records_at_once_are_columns(folder: Path, rows: list[Record]) -> None:
    data = RecordDataset(folder)
    some: list[tuple[Any, list[int]]] = [
        (slice(3, 9), list(range(3, 9))),
        (slice(None, None, -7), list(range(59, -1, -7))),
        (slice(-2, None), [58, 59]),
        (slice(9, 3), []),
        ([59, -1, 0, 0], [59, 59, 0, 0]),
        (np.array([5, -5]), [5, 55]),
        (range(50, 53), [50, 51, 52]),
        (np.arange(COUNT) % 20 == 3, [3, 23, 43]),
        ((1, 2), [1, 2]),
        ([], []),
    ]
    for wanted, numbers in some:
        columns = data[wanted]
        for name, array in columns.items():
            assert array.shape == ((len(numbers),) if name == "next_sentence_label" else (len(numbers), SEQ))
            assert array.dtype == np.int64
            assert array.tolist() == [row_of(rows[number])[name] for number in numbers], name


def test_a_batch_is_a_sequence_of_rows_that_share_its_arrays(folder: Path, rows: list[Record]) -> None:
    batch = RecordDataset(folder).__getitems__([59, 7, -60])
    assert len(batch) == 3
    for row, number in zip(batch, (59, 7, 0), strict=True):
        assert type(row) is dict  # which Trainer asks for where it drops columns
        assert_row(row, row_of(rows[number]))
    assert_row(batch[-1], row_of(rows[0]))
    assert np.shares_memory(batch[1]["labels"], batch.columns["labels"])
    assert [row["input_ids"].tolist() for row in batch[1:]] == batch.columns["input_ids"][1:].tolist()
    with pytest.raises(IndexError):
        batch[3]
    assert_row(pickle.loads(pickle.dumps(batch))[1], row_of(rows[7]))


def test_what_names_no_records(folder: Path) -> None:
    data = RecordDataset(folder)
    wrong: list[Any] = ["labels", 1.0, [1.0], None, [[1]], [True]]
    for each in wrong:
        with pytest.raises((TypeError, IndexError), match=f"^{folder}: "):
            data[each]
    with pytest.raises(UsageError, match=rf"^{folder}: has no split validation, it has training, test$"):
        RecordDataset(folder, "validation")
    with pytest.raises(TypeError, match=r"^data is 3, expected the path of a folder or file of records, or a list of them$"):
        RecordDataset(3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^collate: the batch has no records$"):
        RecordDataset.collate([])
    with pytest.raises(UsageError, match="no data; name at least one folder"):
        RecordDataset([])


def first_ids(data: RecordDataset) -> list[int]:
    return data[::-1]["input_ids"][:, 0].tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_worker_processes_open_the_files_themselves(method: str, folder: Path) -> None:
    with RecordDataset(folder) as data:
        expected = first_ids(data)
        with ProcessPoolExecutor(1, multiprocessing.get_context(method), initializer=take, initargs=(data,)) as pool:
            assert pool.submit(read_taken).result() == expected
            assert pool.submit(first_ids, data).result() == expected  # pickled
    assert first_ids(pickle.loads(pickle.dumps(data))) == expected


_taken: list[RecordDataset] = []


def take(data: RecordDataset) -> None:
    _taken.append(data)


def read_taken() -> list[int]:
    return first_ids(_taken[0])


def test_a_worker_notices_that_the_data_were_changed(rows: list[Record], tmp_path: Path) -> None:
    path = tmp_path / "part-0"
    path.write_bytes(file_of(*rows))
    pickled = pickle.dumps(RecordDataset(path))
    path.write_bytes(file_of(*rows[:9]))
    with pytest.raises(BertprepError, match=f"^{path}: has 9 records, expected 60 as when the data set was made; leave"):
        pickle.loads(pickled)[0]


def test_threads_share_a_data_set(folder: Path, rows: list[Record]) -> None:
    data = RecordDataset(folder)

    def read(seed: int) -> bool:
        numbers = np.random.default_rng(seed).integers(0, COUNT, 500)
        found: list[list[int]] = data.__getitems__(numbers.tolist()).columns["input_ids"].tolist()
        return found == [rows[number]["input_ids"] for number in numbers]

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(read, range(20)))


def test_nothing_is_said_when_the_interpreter_ends_with_files_open(folder: Path) -> None:
    program = f"import bertprep; data = bertprep.RecordDataset({str(folder)!r}); data[0]"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr == ""


def test_a_forked_child_leaves_the_lock_of_its_parent_alone(folder: Path) -> None:
    data = RecordDataset(folder)
    assert data._records is not None
    with data._records._lock:
        child = os.fork()
        if child == 0:
            signal.alarm(600)
            data.close()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0

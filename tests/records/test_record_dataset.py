"""Records as a map-style data set: what `DataLoader` asks of it, without PyTorch."""

from __future__ import annotations

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
from bertprep.config import RecordFormat, Variant
from bertprep.errors import BertprepError, UsageError
from bertprep.records import PretrainingExamples, RecordDataset
from bertprep.records.write import write_examples
from tests.records.columns import column_examples, table_of

SEQ, PRED, COUNT = 8, 2, 60


def assert_row(found: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    assert list(found) == list(expected)
    for name, value in expected.items():
        assert found[name].dtype == np.int64
        assert np.array_equal(found[name], value), name


EXAMPLES = column_examples(PretrainingExamples, COUNT, seq=SEQ, pred=PRED)
ROWS = table_of(EXAMPLES).to_pylist()  # what transformers takes


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three files of training records in both formats, one of them compressed, and one of test records."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "training").mkdir()
    (folder / "test").mkdir()
    write_examples([EXAMPLES[:7]], {RecordFormat.OFRECORD: folder / "training" / "part-0"})
    write_examples([EXAMPLES[7:50]], {RecordFormat.TFRECORD: folder / "training" / "part-1"})
    write_examples([EXAMPLES[50:]], {RecordFormat.TFRECORD: folder / "training" / "part-2"}, Variant(compress="gzip"))
    write_examples([EXAMPLES[:1]], {RecordFormat.TFRECORD: folder / "test" / "part-0"})
    return folder


def test_a_row_is_what_transformers_takes(folder: Path) -> None:
    with RecordDataset(folder) as data:
        assert (len(data), data.seq, data.kind) == (COUNT, SEQ, PretrainingExamples)
        assert data.column_names == ["input_ids", "token_type_ids", "attention_mask", "labels", "next_sentence_label"]
        for number in (0, 7, 59, -1, -60, np.int64(8), np.array(9)):
            assert_row(data[number], ROWS[int(number)])
        for number, row in enumerate(data):
            assert_row(row, ROWS[number])
    assert_row(RecordDataset(folder, "test")[0], ROWS[0])
    assert_row(RecordDataset([folder / "training" / f"part-{part}" for part in (1, 0)])[43], ROWS[0])
    assert bertprep.RecordDataset is records.RecordDataset is RecordDataset


@pytest.mark.parametrize("to", ["tfrecord", "ofrecord", "arrow", "parquet"])
def test_every_format_gives_the_same_rows(to: str, folder: Path, tmp_path: Path) -> None:
    bertprep.convert(folder, tmp_path / to, to=to, workers=1)
    with RecordDataset(tmp_path / to) as data:
        for row, number in zip(data.__getitems__(range(COUNT)[::-1]), range(COUNT)[::-1], strict=True):
            assert_row(row, ROWS[number])
    with RecordDataset(tmp_path / to, "test") as data:
        assert len(data) == 1


def test_many_records_at_once_are_columns(folder: Path) -> None:
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
            assert array.tolist() == [ROWS[number][name] for number in numbers], name


def test_a_batch_is_a_sequence_of_rows_that_share_its_arrays(folder: Path) -> None:
    batch = RecordDataset(folder).__getitems__([59, 7, -60])
    assert len(batch) == 3
    for row, number in zip(batch, (59, 7, 0), strict=True):
        assert type(row) is dict  # which Trainer asks for where it drops columns
        assert_row(row, ROWS[number])
    assert_row(batch[-1], ROWS[0])
    assert np.shares_memory(batch[1]["labels"], batch.columns["labels"])
    assert [row["input_ids"].tolist() for row in batch[1:]] == batch.columns["input_ids"][1:].tolist()
    with pytest.raises(IndexError):
        batch[3]
    assert_row(pickle.loads(pickle.dumps(batch))[1], ROWS[7])


def test_what_names_no_records(folder: Path) -> None:
    data = RecordDataset(folder)
    wrong: list[Any] = ["labels", 1.0, [1.0], None, [[1]], [True]]
    for each in wrong:
        with pytest.raises((TypeError, IndexError), match=f"^{folder / 'training'}: "):
            data[each]
    with pytest.raises(UsageError, match=rf"^{folder}: has no split validation; it has training, test$"):
        RecordDataset(folder, "validation")
    with pytest.raises(TypeError, match=r"^data is 3, expected the path of a folder or file of records, or a list of paths$"):
        RecordDataset(3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^collate: the batch is empty, expected at least one record$"):
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


def test_a_worker_notices_that_the_data_were_changed(tmp_path: Path) -> None:
    path = tmp_path / "part-0"
    write_examples([EXAMPLES], {RecordFormat.TFRECORD: path})
    pickled = pickle.dumps(RecordDataset(path))
    write_examples([EXAMPLES[:9]], {RecordFormat.TFRECORD: path})
    with pytest.raises(
        BertprepError,
        match=f"^{path}: has 9 pretraining .*, expected 60 pretraining .* as when the data set was opened; start",
    ):
        pickle.loads(pickled)[0]


def test_threads_share_a_data_set(folder: Path) -> None:
    data = RecordDataset(folder)

    def read(seed: int) -> bool:
        numbers = np.random.default_rng(seed).integers(0, COUNT, 500)
        found: list[list[int]] = data.__getitems__(numbers.tolist()).columns["input_ids"].tolist()
        return found == [ROWS[number]["input_ids"] for number in numbers]

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

"""The batch of a step is a function of data, seed, step and global batch, however it is split and wherever reading starts."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from bertprep.errors import BertprepError
from bertprep.progress import SILENT, Reporter
from bertprep.records import BadRecordError, ClassificationExamples, Examples, PretrainingExamples
from bertprep.records.records import Records
from bertprep.tokens.order import FileOrder, RecordOrder
from tests.records.test_records import write_folder
from tests.trainer.numpy_engine import RecordFolder
from trainer.batches import READ_AHEAD, EvaluationBatches, GlobalBatch, TrainingBatches, features

RECORDS = 37


@pytest.fixture
def records(tmp_path: Path) -> Iterator[Records]:
    write_folder(tmp_path / "a", (20, 1, 16))
    with Records([tmp_path / "a"]) as opened:
        yield opened
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("batches")] == []


def assert_equal(found: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    assert list(found) == list(expected)
    for name, array in found.items():
        np.testing.assert_array_equal(array, expected[name], err_msg=name)


def joined(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


@pytest.mark.parametrize("world_size", [2, 3, 24])
def test_a_global_batch_is_the_same_however_it_is_split(records: Records, world_size: int) -> None:
    for step in (0, 1, 5):
        complete = TrainingBatches(records, GlobalBatch(24), seed=1)
        ranks = [TrainingBatches(records, GlobalBatch(24, world_size, rank), seed=1) for rank in range(world_size)]
        assert_equal(joined([of_rank.read(step).arrays for of_rank in ranks]), complete.read(step).arrays)
        assert [location for of_rank in ranks for location in of_rank.locations(step)] == complete.locations(step)
    assert complete.locations(0) == [records.origin_of(index) for index in complete.indices(0).tolist()]
    in_order = RecordOrder(RECORDS, 1).indices(np.arange(4 * 24))  # over the ends of epochs
    np.testing.assert_array_equal(np.concatenate([complete.indices(step) for step in range(4)]), in_order)


@pytest.mark.parametrize("together", [1, 2, 3])
def test_the_records_of_so_many_files_are_permuted_together(together: int, records: Records) -> None:
    batches = TrainingBatches(records, GlobalBatch(RECORDS), seed=1, shuffle_shards=together)
    in_order = FileOrder(records.file_records, seed=1, group=together).indices(np.arange(RECORDS))
    np.testing.assert_array_equal(batches.indices(0), in_order)


def test_reading_ahead_from_any_step_gives_the_same_batches(records: Records) -> None:
    batches = TrainingBatches(records, GlobalBatch(8), seed=1)
    for first in (0, 7, 18):
        with batches.from_step(first, 20) as ready:
            for step, batch in zip(range(first, 20), ready, strict=True):
                assert_equal(batch.arrays, batches.read(step).arrays)


def test_the_thread_ends_with_its_block(records: Records) -> None:
    batches = TrainingBatches(records, GlobalBatch(8), seed=1)
    with pytest.raises(KeyboardInterrupt), batches.from_step(0) as ready:  # noqa: PT012 - the block is what is tested
        next(ready)
        raise KeyboardInterrupt
    with batches.from_step(0):
        pass
    for _ in EvaluationBatches(records, GlobalBatch(8)):
        break
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("batches")]


@pytest.mark.parametrize("record_format", ["tfrecord", "ofrecord"])
def test_a_bad_record_is_a_row_of_weight_0(record_format: str, tmp_path: Path) -> None:
    data = RecordFolder(tmp_path / "data", record_format)
    data.corrupt(5)
    with Records([data.folder]) as records:
        batches = TrainingBatches(records, GlobalBatch(33), seed=1)
        arrays, bad = batches.read(0)
        [row] = np.flatnonzero(batches.indices(0) == 5)
        assert [(each.index, each.row) for each in bad] == [(5, row)]
        assert str(bad[0]).startswith(f"{data.folder}/training/part-0: record 5: ")
        assert np.flatnonzero(arrays["row_weights"] != 1).tolist() == [row]
        for name, array in arrays.items():
            assert not array[row].any(), name
        for other, index in enumerate(batches.indices(0).tolist()):
            assert other == row or arrays["input_ids"][other].tolist() == data.records[index]["input_ids"]


def test_a_row_that_only_fills_up_has_no_weight() -> None:
    examples = ClassificationExamples.empty(3, seq=8, pred=0)
    examples.is_real_example[...] = [1, 0, 1]
    arrays = features(examples, np.array([1, 1, 0], np.float32))
    assert {array.dtype for array in arrays.values()} == {np.dtype(np.int32), np.dtype(np.float32)}  # masks too
    assert "is_real_example" not in arrays
    assert arrays["row_weights"].tolist() == [1, 0, 0]


@pytest.mark.parametrize(("world_size", "most"), [(1, 0), (2, 100), (4, 0), (2, 21)])
def test_an_evaluation_has_the_first_records_once_in_order(records: Records, world_size: int, most: int) -> None:
    ranks = [EvaluationBatches(records, GlobalBatch(8, world_size, rank), most=most) for rank in range(world_size)]
    count = min(most or RECORDS, RECORDS)
    assert {batches.sequences for batches in ranks} == {count}
    found = joined([batch for of_step in zip(*ranks, strict=True) for batch in of_step])
    expected = PretrainingExamples.empty(count, seq=8, pred=2)
    records.gather_into(expected, np.arange(count))
    assert found["row_weights"].tolist() == [1] * count + [0] * (-count % 8)
    for name, array in features(expected).items():
        np.testing.assert_array_equal(found[name][:count], array)
        assert not found[name][count:].any()


class RecordsUntil20(Records):
    """Records that cannot be read from id 20 on, as those of a token shard that was removed."""

    def gather_good(self, examples: Examples, records: NDArray[np.int64]) -> list[BadRecordError]:
        if records.max() >= 20:
            raise BertprepError("part-1: cannot be read")
        return super().gather_good(examples, records)


def test_an_evaluation_ends_with_all_its_batches_after_a_fault(tmp_path: Path) -> None:
    """The other ranks are in the midst of the same evaluation."""
    write_folder(tmp_path / "a", (20, 17))
    with RecordsUntil20([tmp_path / "a"]) as records:
        batches = EvaluationBatches(records, GlobalBatch(8))
        weights = [batch["row_weights"].sum() for batch in batches]
    assert weights == [8, 8, 0, 0, 0]
    assert isinstance(batches.fault, BertprepError)
    assert "part-1" in str(batches.fault)


def test_a_long_evaluation_reports_its_progress(
    records: Records, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("bertprep.progress.SECONDS_BETWEEN_LINES", 0)
    for reporter in (SILENT, Reporter()):
        list(EvaluationBatches(records, GlobalBatch(16), reporter=reporter))
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("evaluation: 1/3 batches, 16 sequences (")
    assert second.startswith("evaluation: 2/3 batches, 32 sequences (")


def test_so_many_batches_are_read_while_a_step_runs(records: Records, monkeypatch: pytest.MonkeyPatch) -> None:
    batches, read = TrainingBatches(records, GlobalBatch(4), seed=1), []
    monkeypatch.setattr(batches, "read", read.append)
    with batches.from_step(0, 100) as steps:
        next(steps)
        next(steps)
    assert 2 <= len(read) <= 2 + READ_AHEAD

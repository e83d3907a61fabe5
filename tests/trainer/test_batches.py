"""The batch of a step is a function of data, seed, step and global batch, however it is cut and wherever reading begins."""

import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from bertprep.errors import BertprepError, UsageError
from bertprep.records import Examples
from bertprep.records.record_set import RecordSet
from tests.records.test_record_set import write_folder
from trainer.batches import EvaluationBatches, GlobalBatch, TrainingBatches

RECORDS = 37


@pytest.fixture
def records(tmp_path: Path) -> Iterator[RecordSet]:
    write_folder(tmp_path / "a", (20, 1, 16))
    with RecordSet([tmp_path / "a"]) as opened:
        yield opened
    assert [thread.name for thread in threading.enumerate() if thread.name == "batches"] == []


def copy_of(examples: Examples) -> Examples:
    return Examples(*(array.copy() for array in examples.arrays))  # type: ignore[arg-type]


def assert_equal(found: Examples, expected: Examples) -> None:
    for one, other in zip(found.arrays, expected.arrays, strict=True):
        np.testing.assert_array_equal(one, other)


def test_both_formats_give_the_same_batches(tmp_path: Path) -> None:
    batches = []
    for record_format in ("tfrecord", "ofrecord"):
        write_folder(tmp_path / record_format, (20, 1, 16), record_format)
        with RecordSet([tmp_path / record_format]) as opened:
            batches.append([TrainingBatches(opened, GlobalBatch(8), seed=1).batch_of(step) for step in range(10)])
    for tfrecord, ofrecord in zip(*batches, strict=True):
        assert_equal(ofrecord, tfrecord)


@pytest.mark.parametrize("size", [1, 8, 24, 37, 100])
def test_an_epoch_has_every_record_once(records: RecordSet, size: int) -> None:
    batches = TrainingBatches(records, GlobalBatch(size), seed=1)
    places = np.concatenate([batches.numbers(step) for step in range(3 * RECORDS // size + 1)])
    for epoch in range(3):
        assert sorted(places[epoch * RECORDS : (epoch + 1) * RECORDS].tolist()) == list(range(RECORDS))
    assert places[:RECORDS].tolist() != places[RECORDS : 2 * RECORDS].tolist()
    assert [batches.epoch(step) for step in (0, (RECORDS - 1) // size, -(-RECORDS // size))] == [
        0,
        0,
        -(-RECORDS // size) * size // RECORDS,
    ]


@pytest.mark.parametrize(("world_size", "accumulation"), [(1, 1), (1, 24), (2, 3), (3, 2), (4, 2), (24, 1)])
def test_a_global_batch_is_the_same_however_it_is_cut(records: RecordSet, world_size: int, accumulation: int) -> None:
    for step in (0, 1, 5):
        whole = TrainingBatches(records, GlobalBatch(24), seed=1).batch_of(step)
        parts = []
        for rank in range(world_size):
            batches = TrainingBatches(records, GlobalBatch(24, world_size, rank, accumulation), seed=1)
            parts += batches.micro_batches(batches.batch_of(step))
        assert [len(part) for part in parts] == [24 // world_size // accumulation] * (world_size * accumulation)
        for found, expected in zip(zip(*(part.arrays for part in parts), strict=True), whole.arrays, strict=True):
            np.testing.assert_array_equal(np.concatenate(found), expected)


def test_seeds_give_different_batches(records: RecordSet) -> None:
    numbers = [TrainingBatches(records, GlobalBatch(24), seed=seed).numbers(0).tolist() for seed in (1, 2, 1)]
    assert numbers[0] != numbers[1]
    assert numbers[0] == numbers[2]


def test_resuming_is_as_having_gone_on(records: RecordSet) -> None:
    batches = TrainingBatches(records, GlobalBatch(8), seed=1)
    with batches.from_step(0, 20) as ready:
        whole = [copy_of(examples) for examples in ready]
    assert len(whole) == 20
    with batches.from_step(7) as ready:
        for step in range(7, 20):
            assert_equal(next(ready), whole[step])


def test_arrays_hold_until_they_are_given_back(records: RecordSet) -> None:
    batches = TrainingBatches(records, GlobalBatch(8), seed=1)
    with batches.from_step(0, 30, held=3) as ready:
        given: list[Examples] = []
        for step, examples in enumerate(ready):
            given = [*given, examples][-3:]
            for behind, held in enumerate(reversed(given)):
                assert_equal(held, batches.batch_of(step - behind))
    with batches.from_step(0, 30) as ready:
        assert len({examples.input_ids.ctypes.data for examples in ready}) == 3  # one with the caller, two ready


def test_places_are_those_of_the_rows(records: RecordSet) -> None:
    batches = TrainingBatches(records, GlobalBatch(8, data_world_size=2, data_rank=1), seed=1)
    numbers = batches.numbers(3)
    assert batches.places(3) == [records.place_of(number) for number in numbers.tolist()]
    assert {path.name for path, _ in batches.places(3)} <= {"part-0", "part-1", "part-2"}


def test_an_error_comes_where_its_batch_would_have(tmp_path: Path) -> None:
    write_folder(tmp_path / "a", (20,))
    path = tmp_path / "a" / "training" / "part-0"
    content = bytearray(path.read_bytes())
    content[-5] ^= 1  # in the data of its last record
    path.write_bytes(content)
    with RecordSet([tmp_path / "a"]) as opened:
        batches = TrainingBatches(opened, GlobalBatch(1), seed=1)
        wrong = next(step for step in range(20) if batches.numbers(step)[0] == 19)
        with batches.from_step(0) as ready:
            for _ in range(wrong):
                next(ready)
            for _ in range(2):
                with pytest.raises(BertprepError, match=f"^{path}: record 19: the checksum of its data should be "):
                    next(ready)


def test_the_thread_ends_with_its_block(records: RecordSet) -> None:
    batches = TrainingBatches(records, GlobalBatch(8), seed=1)
    with pytest.raises(KeyboardInterrupt), batches.from_step(0) as ready:  # noqa: PT012 - the block is what is tested
        next(ready)
        raise KeyboardInterrupt
    with batches.from_step(0):
        pass
    with batches.from_step(0, 2) as ready:
        assert len(list(ready)) == 2
        with pytest.raises(StopIteration):
            next(ready)
    with pytest.raises(ValueError, match="behind the end of their block"):
        next(ready)
    for _ in EvaluationBatches(records, GlobalBatch(8)):
        break
    assert not [thread for thread in threading.enumerate() if thread.name == "batches"]


@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_evaluation_has_every_record_once_in_order(records: RecordSet, world_size: int) -> None:
    expected = Examples.empty(RECORDS, seq=8, pred=2)
    records.gather_into(expected, np.arange(RECORDS))
    rows: list[list[Examples]] = []
    weights = []
    for rank in range(world_size):
        batches = EvaluationBatches(records, GlobalBatch(8, world_size, rank))
        assert len(batches) == 5
        of_rank = [(copy_of(examples), row_weights) for examples, row_weights in batches]
        rows.append([examples for examples, _ in of_rank])
        weights.append([row_weights for _, row_weights in of_rank])
    in_order = [weights[rank][step] for step in range(5) for rank in range(world_size)]
    assert np.concatenate(in_order).tolist() == [1] * RECORDS + [0] * 3
    parts = [rows[rank][step].arrays for step in range(5) for rank in range(world_size)]
    for found, wanted in zip(zip(*parts, strict=True), expected.arrays, strict=True):
        np.testing.assert_array_equal(np.concatenate(found)[:RECORDS], wanted)
    predictions = np.concatenate([part[5] for part in parts])
    assert predictions.shape == (40, 2)
    assert not predictions[RECORDS:].any()


def test_global_batches_that_cannot_be_cut() -> None:
    with pytest.raises(UsageError) as error:
        GlobalBatch(100, data_world_size=8, accumulation=4)
    assert str(error.value) == "a global batch of 100 cannot be cut into 8 ranks x 4 micro-batches; choose a multiple of 32"
    for wrong in ((0,), (8, 0), (8, 2, 2), (8, 2, -1), (8, 1, 0, 0)):
        with pytest.raises(UsageError, match="expected 1 or more of each, and ranks counted from 0"):
            GlobalBatch(*wrong)

"""The batch of a step is a function of data, seed, step and global batch, however it is cut and wherever reading begins."""

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from bertprep.config import RECORD_FORMATS, RecordFormat
from bertprep.errors import BertprepError
from bertprep.records import PretrainingExamples
from bertprep.records.convert import write_examples
from bertprep.records.record_set import RecordSet
from bertprep.workspace.layout import record_file_name
from tests.records.columns import column_examples
from tests.records.test_record_set import write_folder
from trainer.batches import EvaluationBatches, GlobalBatch, PhaseData, TrainingBatches, empty_for, open_phase
from trainer.model_config import ModelConfig
from trainer.schedule import Schedule
from trainer.settings import Phase
from trainer.tasks.pretraining import PRETRAINING, PretrainingSums
from trainer.tasks.unigram import unigram_loss

RECORDS = 37
MODEL = ModelConfig.preset("tiny", vocab_size=100_000)


@pytest.fixture
def records(tmp_path: Path) -> Iterator[RecordSet]:
    write_folder(tmp_path / "a", (20, 1, 16))
    with RecordSet([tmp_path / "a"]) as opened:
        yield opened
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("batches")] == []


def copy_of(examples: PretrainingExamples) -> PretrainingExamples:
    return PretrainingExamples(*(array.copy() for array in examples.arrays))


def read(batches: TrainingBatches, step: int) -> PretrainingExamples:
    examples = empty_for(batches.records, batches.batch.rank_size)
    batches.read_into(examples, step)
    return examples


def assert_equal(found: PretrainingExamples, expected: PretrainingExamples) -> None:
    for one, other in zip(found.arrays, expected.arrays, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("record_format", RECORD_FORMATS[1:])
def test_all_formats_give_the_same_batches(tmp_path: Path, record_format: RecordFormat) -> None:
    batches = []
    for name in (RECORD_FORMATS[0], record_format):
        (tmp_path / name).mkdir()
        for number, size in enumerate((20, 1, 16)):
            examples = column_examples(PretrainingExamples, size, seed=number)
            write_examples([examples], tmp_path / name / record_file_name(name, "c", "training", number), name)
        with RecordSet([tmp_path / name]) as opened:
            assert opened.formats == [name]
            batches.append([read(TrainingBatches(opened, GlobalBatch(8), seed=1), step) for step in range(10)])
    for expected, found in zip(*batches, strict=True):
        assert_equal(found, expected)


@pytest.mark.parametrize("size", [1, 8, 24, 37, 100])
def test_an_epoch_has_every_record_once(records: RecordSet, size: int) -> None:
    batches = TrainingBatches(records, GlobalBatch(size), seed=1)
    places = np.concatenate([batches.numbers(step) for step in range(3 * RECORDS // size + 1)])
    for epoch in range(3):
        assert sorted(places[epoch * RECORDS : (epoch + 1) * RECORDS].tolist()) == list(range(RECORDS))
    assert places[:RECORDS].tolist() != places[RECORDS : 2 * RECORDS].tolist()


@pytest.mark.parametrize("world_size", [1, 2, 3, 4, 24])
def test_a_global_batch_is_the_same_however_it_is_cut(records: RecordSet, world_size: int) -> None:
    for step in (0, 1, 5):
        whole = read(TrainingBatches(records, GlobalBatch(24), seed=1), step)
        cut = [read(TrainingBatches(records, GlobalBatch(24, world_size, rank), seed=1), step) for rank in range(world_size)]
        assert [len(of_rank) for of_rank in cut] == [24 // world_size] * world_size
        for found, expected in zip(zip(*(of_rank.arrays for of_rank in cut), strict=True), whole.arrays, strict=True):
            np.testing.assert_array_equal(np.concatenate(found), expected)


def test_seeds_give_different_batches(records: RecordSet) -> None:
    numbers = [TrainingBatches(records, GlobalBatch(24), seed=seed).numbers(0).tolist() for seed in (1, 2, 1)]
    assert numbers[0] != numbers[1]
    assert numbers[0] == numbers[2]


def test_resuming_is_as_never_having_stopped(records: RecordSet) -> None:
    batches = TrainingBatches(records, GlobalBatch(8), seed=1)
    with batches.from_step(0, 20) as ready:
        whole = [copy_of(examples) for examples in ready]
    assert len(whole) == 20
    with batches.from_step(7) as ready:
        for step in range(7, 20):
            assert_equal(next(ready), whole[step])


def test_arrays_are_valid_until_they_are_returned(records: RecordSet) -> None:
    batches = TrainingBatches(records, GlobalBatch(8), seed=1)
    with batches.from_step(0, 30, held=3) as ready:
        given: list[PretrainingExamples] = []
        for step, examples in enumerate(ready):
            given = [*given, examples][-3:]
            for behind, held in enumerate(reversed(given)):
                assert_equal(held, read(batches, step - behind))
    with batches.from_step(0, 30) as ready:
        assert len({examples.input_ids.ctypes.data for examples in ready}) == 3  # one with the caller, two ready


def test_places_are_those_of_the_rows(records: RecordSet) -> None:
    batches = TrainingBatches(records, GlobalBatch(8, data_world_size=2, data_rank=1), seed=1)
    numbers = batches.numbers(3)
    assert batches.places(3) == [records.place_of(number) for number in numbers.tolist()]
    assert {path.name for path, _ in batches.places(3)} <= {"part-0", "part-1", "part-2"}


def test_an_error_is_raised_in_place_of_its_batch(tmp_path: Path) -> None:
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
    for _ in EvaluationBatches(records, GlobalBatch(8)):
        break
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("batches")]


@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_evaluation_has_every_record_once_in_order(records: RecordSet, world_size: int) -> None:
    expected = PretrainingExamples.empty(RECORDS, seq=8, pred=2)
    records.gather_into(expected, np.arange(RECORDS))
    rows: list[list[PretrainingExamples]] = []
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
        rows_found = np.concatenate(found)
        np.testing.assert_array_equal(rows_found[:RECORDS], wanted)
        assert len(rows_found) == 40
        assert not rows_found[RECORDS:].any()


@pytest.mark.parametrize("wrong", [(0,), (8, 0), (8, 2, 2), (8, 2, -1), (9, 2)])
def test_global_batches_that_cannot_be_cut(wrong: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="cannot be cut"):
        GlobalBatch(*wrong)


class Counter:
    """An engine that counts: each sequence, and the first token of each as its loss."""

    data_world_size, devices = 2, 2

    def __init__(self, rank: int) -> None:
        self.data_rank = rank

    def evaluate(self, examples: PretrainingExamples, row_weights: NDArray[np.float32]) -> PretrainingSums:
        loss = float(examples.input_ids[: len(row_weights), 0] @ row_weights)
        return PretrainingSums(next_sentence_loss_sum=loss, sequences=float(row_weights.sum()))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """30 training records and 11 test records, the first 4 of which are in training too."""
    write_folder(tmp_path / "data", (20, 10))
    (tmp_path / "data" / "test").mkdir()
    for number, (size, seed) in enumerate([(4, 0), (7, 1)]):
        write_folder(tmp_path / f"{seed}", (size,), seed=seed)
        (tmp_path / f"{seed}" / "training" / "part-0").rename(tmp_path / "data" / "test" / f"part-{number}")
    return tmp_path / "data"


def open_data(
    folder: Path, *, rank: int = 0, eval_sequences: int = 0, has_test: bool = True
) -> AbstractContextManager[PhaseData]:
    schedule = Schedule(peak=1e-4, steps=10, warmup_steps=1)
    phase = Phase(data=(folder,), seq=8, batch_size=3, accumulation=2, schedule=schedule, has_test=has_test)
    settings: Any = SimpleNamespace(task=PRETRAINING, model=MODEL, seed=1, eval_sequences=eval_sequences, skip_bad_records=0)
    engine: Any = Counter(rank)
    return open_phase(settings, phase, engine)


def test_a_global_batch_is_all_devices_micro_batches(folder: Path) -> None:
    with open_data(folder, rank=1) as data:
        assert data.batch.size == 3 * 2 * 2
        assert (data.batch.rank_size, data.batch.rows) == (6, range(6, 12))
        assert data.flops == 12 * PRETRAINING.flops(MODEL, seq=8, pred=2)
        assert data.test is not None
        assert (len(data.records), len(data.test)) == (30, 11)


@pytest.mark.parametrize(("eval_sequences", "expected"), [(0, 11), (11, 11), (7, 7), (100, 11)])
def test_an_evaluation_is_of_the_first_sequences_each_once(eval_sequences: int, expected: int, folder: Path) -> None:
    sums = PretrainingSums()
    for rank in range(2):
        engine: Any = Counter(rank)
        with open_data(folder, rank=rank, eval_sequences=eval_sequences) as data:
            for batch in data.evaluation_batches:
                sums = sums.plus(engine.evaluate(*batch))  # an engine adds up those of all ranks
    with RecordSet([folder], "test") as records:
        first = PretrainingExamples.empty(expected, seq=8, pred=2)
        records.gather_into(first, np.arange(expected))
    assert (sums.sequences, sums.next_sentence_loss_sum) == (expected, first.input_ids[:, 0].sum())


def test_the_unigram_loss_is_of_the_same_sequences(folder: Path) -> None:
    with open_data(folder, eval_sequences=4) as data, RecordSet([folder], "test") as test:
        of_four, of_all = (unigram_loss(data.records, test, vocab_size=100_000, test_sequences=count) for count in (4, 0))
        assert data.baseline == {"unigram_loss": of_four}
        assert of_four != of_all


def test_without_a_test_split_there_is_nothing_to_evaluate_on(folder: Path) -> None:
    with open_data(folder, has_test=False) as data:
        assert data.test is None
        with pytest.raises(ValueError, match="no test split"):
            _ = data.evaluation_batches

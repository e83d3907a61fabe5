"""Records come back as they were written, in order, in blocks, in any order, and into room made before."""

import os
import random
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertprep import records
from bertprep.records import PretrainingExamples
from tests.records.handmade import FIRST, PRED, SECOND, SEQ, Dialect, Record, file_of, random_record


def write(folder: Path, content: bytes) -> Path:
    path = folder / "records"
    path.write_bytes(content)
    return path


def assert_holds(examples: PretrainingExamples, expected: list[Record]) -> None:
    assert len(examples) == len(expected)
    for name in records.FEATURES:
        values = np.array([record[name] for record in expected])
        np.testing.assert_array_equal(getattr(examples, name), values[:, 0] if name == "next_sentence_labels" else values)


@pytest.fixture(params=["tfrecord", "ofrecord"])
def record_format(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def many(record_format: str, tmp_path: Path) -> tuple[Path, list[Record]]:
    """A file of 300 random records, and the records."""
    rng = random.Random(1)
    expected = [random_record(rng) for _ in range(300)]
    return write(tmp_path, file_of(*expected, dialect=Dialect(record_format))), expected


def test_two_records(record_format: str, tmp_path: Path) -> None:
    path = write(tmp_path, file_of(FIRST, SECOND, dialect=Dialect(record_format)))
    with records.open(path) as file:
        assert (file.format, file.seq, file.pred, len(file)) == (record_format, SEQ, PRED, 2)
        examples = file[:]
    assert examples.input_ids.tolist() == [
        [101, 1996, 103, 30521, 102, 2054, 102, 0],
        [101, 7, 102, 200, 20000, 102, 0, 0],
    ]
    assert examples.input_mask[0].tolist() == [1, 1, 1, 1, 1, 1, 1, 0]
    assert examples.segment_ids[0].tolist() == [0, 0, 0, 0, 0, 1, 1, 0]
    assert examples.masked_lm_positions[0].tolist() == [2, 0]
    assert examples.masked_lm_ids[0].tolist() == [4937, 0]
    assert examples.masked_lm_weights[0].tolist() == [1.0, 0.0]
    assert examples.next_sentence_labels.tolist() == [1, 0]
    assert [array.dtype for array in examples.arrays] == [np.int32] * 5 + [np.float32, np.int32]


def test_slices(many: tuple[Path, list[Record]]) -> None:
    path, expected = many
    with records.open(str(path)) as file:
        assert_holds(file[100:200], expected[100:200])
        assert_holds(file[-3:], expected[-3:])
        assert_holds(file[::-7], expected[::-7])
        assert_holds(file[:][10:20], expected[10:20])
        assert len(file[400:500]) == len(file[5:5]) == 0


def test_records_are_named_by_whole_numbers_or_a_mask(many: tuple[Path, list[Record]]) -> None:
    path, expected = many
    mask = np.arange(300) % 7 == 0
    with records.open(path) as file:
        for kind in (np.int8, np.uint8, np.int32, np.uint64):
            assert_holds(file[np.array([3, 0, 3], kind)], [expected[3], expected[0], expected[3]])
        assert_holds(file[[5, 299]], [expected[5], expected[299]])
        assert_holds(file[range(10, 0, -3)], expected[10:0:-3])
        assert_holds(file[mask], expected[::7])
        assert len(file[[]]) == len(file[np.zeros(300, bool)]) == len(file[range(0)]) == 0
        assert_holds(file[[-1, -300]], [expected[299], expected[0]])


def test_anything_else_names_no_records(many: tuple[Path, list[Record]]) -> None:
    path, _ = many
    room = PretrainingExamples.empty(10, seq=SEQ, pred=PRED)
    wrong: list[Any] = [
        5, 1.0, None, "1", (1, 2), [1.0, 2.0], [1.5], [[1], [2]], [[1], [2, 3]], np.array([[1, 2]]), np.array(1),
        np.array([1.0]), np.array(["1"]), np.array([None]), [10**30], {1: 2}, {1, 2},
    ]  # fmt: skip
    beyond: list[Any] = [[300], [-301], np.array([2**63], np.uint64), [True], np.ones(299, bool), range(301), range(-301, -299)]
    with records.open(path) as file:
        for error, selections in ((TypeError, wrong), (IndexError, beyond)):
            for records_named in selections:
                for read in (file.__getitem__, partial(file.gather_into, room)):
                    with pytest.raises(error, match=f"^{path}: ") as raised:
                        read(records_named)
                    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("size", [1, 7, 100, 300, 1000])
def test_blocks_are_all_records_in_order(many: tuple[Path, list[Record]], size: int) -> None:
    path, expected = many
    with records.open(path) as file:
        start = 0
        for examples in file.blocks(size):
            assert_holds(examples, expected[start : start + size])
            start += size
        assert start >= 300 == len(file)


def test_reading_into_room_made_before(many: tuple[Path, list[Record]]) -> None:
    path, expected = many
    room = PretrainingExamples.empty(10, seq=SEQ, pred=PRED)
    with records.open(path) as file:
        file.gather_into(room, range(250, 256))
        file.gather_into(room, range(298, 300), row=6)
        file.gather_into(room, np.array([0, 299]), row=8)
    assert_holds(room, [*expected[250:256], *expected[298:], expected[0], expected[299]])


def test_what_is_asked_for_must_exist(many: tuple[Path, list[Record]]) -> None:
    path, _ = many
    room = PretrainingExamples.empty(10, seq=SEQ, pred=PRED)
    with records.open(path) as file:
        for numbers in ([-301], [300]):
            with pytest.raises(IndexError, match="of 300"):
                file.gather_into(room, np.array(numbers))
        with pytest.raises(IndexError, match="record 301 of 300"):
            file.gather_into(room, range(300, 302))
        with pytest.raises(
            ValueError, match="room for 10 pretraining records of 8/2, needed for 4 pretraining records of 8/2 from row 7"
        ):
            file.gather_into(room, range(4), row=7)
        with pytest.raises(ValueError, match="room for 10 pretraining records of 9/2"):
            file.gather_into(PretrainingExamples.empty(10, seq=9, pred=PRED), range(4))


def test_after_close_examples_stay_and_the_file_is_shut(many: tuple[Path, list[Record]]) -> None:
    path, expected = many
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0  # noqa: PTH208, PTH112
    with records.open(path) as file:
        examples = file[:5]
    file.close()
    assert_holds(examples, expected[:5])
    with pytest.raises(ValueError, match="is closed"):
        file[:5]
    if before:
        assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208

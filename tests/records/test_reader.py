"""Which records of a file are named, and into what room they are read; test_formats.py has the ways of reading."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertprep import records
from bertprep.errors import BertprepError
from bertprep.records import PretrainingExamples, Records
from tests.records.handmade import FIRST, PRED, SECOND, SEQ, Record, file_of, random_record


def assert_holds(examples: PretrainingExamples, expected: Sequence[Record]) -> None:
    assert len(examples) == len(expected)
    for name in records.FEATURES:
        values = np.array([record[name] for record in expected])
        np.testing.assert_array_equal(getattr(examples, name), values[:, 0] if name == "next_sentence_labels" else values)


def test_a_person_can_check_two_records(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(file_of(FIRST, SECOND))
    examples = records.open(str(tmp_path / "a"))[:]
    assert examples.input_ids.tolist() == [[101, 1996, 103, 30521, 102, 2054, 102, 0], [101, 7, 102, 200, 20000, 102, 0, 0]]
    assert examples.input_mask[0].tolist() == [1, 1, 1, 1, 1, 1, 1, 0]
    assert examples.segment_ids[0].tolist() == [0, 0, 0, 0, 0, 1, 1, 0]
    assert examples.masked_lm_positions[0].tolist() == [2, 0]
    assert examples.masked_lm_ids[0].tolist() == [4937, 0]
    assert examples.masked_lm_weights[0].tolist() == [1.0, 0.0]
    assert examples.next_sentence_labels.tolist() == [1, 0]


@pytest.fixture
def expected() -> list[Record]:
    rng = random.Random(1)
    return [random_record(rng) for _ in range(300)]


@pytest.fixture
def file(expected: list[Record], tmp_path: Path) -> Records:
    path = tmp_path / "records"
    path.write_bytes(file_of(*expected))
    return records.open(path)


def test_records_are_named_by_a_slice_whole_numbers_or_a_mask(file: Records, expected: list[Record]) -> None:
    for some in (slice(100, 200), slice(-3, None), slice(None, None, -7)):
        assert_holds(file[some], expected[some])
    for kind in (np.int8, np.uint8, np.int32, np.uint64):
        assert_holds(file[np.array([3, 0, 3], kind)], [expected[3], expected[0], expected[3]])
    assert_holds(file[range(10, 0, -3)], expected[10:0:-3])
    assert_holds(file[[-1, 5, -300]], [expected[299], expected[5], expected[0]])
    assert_holds(file[np.arange(300) % 7 == 0], expected[::7])
    assert len(file[400:500]) == len(file[5:5]) == len(file[[]]) == len(file[np.zeros(300, bool)]) == len(file[range(0)]) == 0


def test_anything_else_names_no_records(file: Records) -> None:
    room = PretrainingExamples.empty(10, seq=SEQ, pred=PRED)
    wrong: list[Any] = [
        1.0, None, "1", (1, 2), [1.0, 2.0], [1.5], [[1], [2]], [[1], [2, 3]], np.array([[1, 2]]),
        np.array([1.0]), np.array(["1"]), np.array([None]), {1: 2}, {1, 2},
    ]  # fmt: skip
    beyond: list[Any] = [
        [300], [-301], [10**30], [0, -(2**70)], np.array([2**63], np.uint64), [True], np.ones(299, bool), range(301),
        range(-301, -299),
    ]  # fmt: skip
    for error, selections in ((TypeError, wrong), (IndexError, beyond)):
        for records_named in selections:
            for read in (file.__getitem__, partial(file.gather_into, room)):
                with pytest.raises(error, match=f"^{file.path}: ") as raised:
                    read(records_named)
                assert "\n" not in str(raised.value)


def test_one_record_is_named_by_its_id(file: Records, expected: list[Record]) -> None:
    for index in (0, -1, np.int64(7), np.array(7)):
        record = file[index]
        assert {name: np.atleast_1d(record[name]).tolist() for name in records.FEATURES} == expected[index]
    for beyond in (300, -301):
        with pytest.raises(IndexError, match=f"^{file.path}: there is no record {beyond}, expected -300 to 299$"):
            file[beyond]
    with pytest.raises(TypeError, match=r"found int; \[\[5\]\] selects one record$"):
        file.gather_into(PretrainingExamples.empty(1, seq=SEQ, pred=PRED), 5)  # type: ignore[arg-type]


def test_records_must_fit_into_the_room(file: Records) -> None:
    room = PretrainingExamples.empty(10, seq=SEQ, pred=PRED)
    with pytest.raises(IndexError, match="there is no record 301, expected"):
        file.gather_into(room, range(300, 302))
    shape = "pretraining records of 8 tokens and 2 predictions"
    needed = f"4 {shape} do not fit from row 7 on into a block of 10 {shape}"
    with pytest.raises(ValueError, match=needed):
        file.gather_into(room, range(4), row=7)
    with pytest.raises(ValueError, match="into a block of 10 pretraining records of 9 tokens"):
        file.gather_into(PretrainingExamples.empty(10, seq=9, pred=PRED), range(4))


def test_records_are_found_however_many_there_are(
    file: Records, expected: list[Record], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bertprep.records.open_file._FIRST_OFFSETS", 5)  # which doubles until all have a place
    again = records.open(file.path)
    assert again.offsets.tolist() == file.offsets.tolist()
    assert_holds(again[:], expected)


def test_after_close_examples_stay_and_the_file_is_shut(file: Records, expected: list[Record]) -> None:
    examples = file[:5]
    before = len(os.listdir("/dev/fd"))  # noqa: PTH208
    again = records.open(file.path)
    again.close()
    file.close()
    assert_holds(examples, expected[:5])
    with pytest.raises(ValueError, match="is closed"):
        file[:5]
    assert len(os.listdir("/dev/fd")) <= before  # noqa: PTH208


def test_a_corrupt_record_is_named_wherever_it_is_read_to(file: Records) -> None:
    data = bytearray(file.path.read_bytes())
    data[int(file.offsets[7]) + 20] ^= 1
    damaged = file.path.with_name("damaged")
    damaged.write_bytes(data)
    room = PretrainingExamples.empty(20, seq=SEQ, pred=PRED)
    for some in (range(3, 10), np.arange(3, 10)):  # read in one run, and gathered
        for row in (0, 5, 13):
            with records.open(damaged) as opened, pytest.raises(BertprepError, match=f"^{damaged}: record 7: the checksum"):
                opened.gather_into(room, some, row=row)

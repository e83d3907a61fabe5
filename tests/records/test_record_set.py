"""Data folders are one sequence of records, whose places are found once and kept beside them."""

import gzip
import os
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from bertprep.errors import BertprepError, UsageError
from bertprep.records import PretrainingExamples, record_set
from bertprep.records.record_index import INDEX
from bertprep.records.record_set import BadRecordError, RecordSet
from tests.records.handmade import FIRST, Dialect, Record, file_of, random_record
from tests.records.test_reader import assert_holds


def write_folder(folder: Path, sizes: tuple[int, ...], record_format: str = "tfrecord", seed: int = 0) -> list[Record]:
    """A data set of training files with so many records each; returns these."""
    rng = random.Random(seed)
    records = []
    (folder / "training").mkdir(parents=True)
    for number, size in enumerate(sizes):
        shard = [random_record(rng) for _ in range(size)]
        path = folder / "training" / f"part-{number}"
        path.write_bytes(file_of(*shard, dialect=Dialect(record_format)))
        records += shard
    return records


def gather(records: RecordSet, numbers: Sequence[int] | NDArray[np.int64]) -> PretrainingExamples:
    examples = PretrainingExamples.empty(len(numbers), seq=records.seq, pred=records.pred)
    records.gather_into(examples, np.array(numbers, np.int64))
    return examples


def test_folders_of_both_formats_are_one_sequence(tmp_path: Path) -> None:
    expected = write_folder(tmp_path / "a", (5, 1, 30)) + write_folder(tmp_path / "b", (7, 2), "ofrecord", seed=1)
    numbers = np.random.default_rng(0).permutation(45)
    with RecordSet([tmp_path / "a", tmp_path / "b"]) as records:
        assert (len(records), records.seq, records.pred) == (45, 8, 2)
        assert_holds(gather(records, numbers), [expected[number] for number in numbers])
        assert records.place_of(37) == (tmp_path / "b" / "training" / "part-0", 1)


def test_records_are_named_by_whole_numbers(tmp_path: Path) -> None:
    write_folder(tmp_path / "a", (5, 4))
    room = PretrainingExamples.empty(9, seq=8, pred=2)
    wrong: list[tuple[Any, type[Exception]]] = [
        ([9], IndexError), ([-10], IndexError), ([1.0], TypeError), ((1, 2), TypeError), (np.array([[1]]), TypeError),
    ]  # fmt: skip
    with RecordSet([tmp_path / "a"]) as records:
        for numbers, error in wrong:
            with pytest.raises(error, match=f"^{tmp_path / 'a' / 'training'}: record"):
                records.gather_into(room, numbers)


def test_few_files_are_open_at_a_time(tmp_path: Path) -> None:
    expected = write_folder(tmp_path / "a", (2,) * 20)
    open_before = len(list(Path("/dev/fd").iterdir()))
    rng = np.random.default_rng(0)
    with RecordSet([tmp_path / "a"], max_open=3) as records:
        for _ in range(10):
            numbers = rng.integers(0, 40, 15)
            assert_holds(gather(records, numbers), [expected[number] for number in numbers])
            assert len(list(Path("/dev/fd").iterdir())) <= open_before + 3


def edit_index(folder: Path, edit: Callable[[bytes], bytes]) -> None:
    index = folder / f"{INDEX}.training"
    index.write_bytes(edit(index.read_bytes()))


CHANGES: dict[str, Callable[[Path], object]] = {
    "nothing": Path.exists,
    "size": lambda folder: (path := folder / "training" / "part-1").write_bytes(path.read_bytes() + file_of(FIRST)),
    "time": lambda folder: os.utime(folder / "training" / "part-1", ns=(1, 1)),
    "name": lambda folder: (folder / "training" / "part-1").rename(folder / "training" / "part-2"),
    "offset": lambda folder: edit_index(folder, lambda data: data[:-1] + b"\1"),
    "count": lambda folder: edit_index(folder, lambda data: data.replace(b'"records": 3', b'"records": 4')),
    "cut": lambda folder: edit_index(folder, lambda data: data[:-8]),
    "garbage": lambda folder: edit_index(folder, lambda _: b"\0\xff" * 100),
    "version": lambda folder: edit_index(folder, lambda data: data.replace(b'"version": ', b'"version": 1')),
}


@pytest.mark.parametrize("what", CHANGES)
def test_an_index_is_kept_until_it_is_not_that_of_the_files(tmp_path: Path, what: str) -> None:
    expected = write_folder(tmp_path / "a", (3, 4))
    RecordSet([tmp_path / "a"])
    index = tmp_path / "a" / f"{INDEX}.training"
    CHANGES[what](tmp_path / "a")
    before = index.stat().st_ino
    for _ in range(2):
        with RecordSet([tmp_path / "a"]) as records:
            assert len(records) == 7 + (what == "size")
            assert_holds(gather(records, range(7)), expected)
    assert (index.stat().st_ino == before) == (what == "nothing")


def test_where_no_index_can_be_kept_the_records_are_found_again(tmp_path: Path) -> None:
    expected = write_folder(tmp_path / "a", (3,))
    (tmp_path / "a" / f"{INDEX}.training").mkdir()  # in whose place no file can be written
    for _ in range(2):
        with RecordSet([tmp_path / "a"]) as records:
            assert_holds(gather(records, [2]), [expected[2]])


def test_single_files_and_the_test_split(tmp_path: Path) -> None:
    expected = write_folder(tmp_path / "a", (3, 4))
    (tmp_path / "a" / "test").mkdir()
    (tmp_path / "a" / "test" / "part-0").write_bytes(file_of(FIRST))
    with RecordSet([tmp_path / "a"], "test") as records:
        assert_holds(gather(records, [0]), [FIRST])
    with RecordSet([tmp_path / "a" / "training" / "part-1"]) as records:
        assert_holds(gather(records, [1]), [expected[4]])
    with RecordSet([tmp_path / "a" / "training"]) as records:
        assert len(records) == 7


def test_gzip_files_are_held_decompressed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = write_folder(tmp_path / "a", (3, 4, 5))
    for name in ("part-0", "part-2"):
        path = tmp_path / "a" / "training" / name
        path.write_bytes(gzip.compress(path.read_bytes()))
    with RecordSet([tmp_path / "a"], max_open=1) as records:
        assert_holds(gather(records, [11, 4, 0, 5, 2]), [expected[number] for number in (11, 4, 0, 5, 2)])
    monkeypatch.setattr(record_set, "_MAX_REWRITTEN_BYTES", 1000)
    with pytest.raises(
        BertprepError,
        match=r"part-0: is one of 2 gzip, Parquet or foreign Arrow files of .*; bertprep convert makes files",
    ):
        RecordSet([tmp_path / "a"])


@pytest.mark.parametrize("record_format", ["tfrecord", "ofrecord"])
@pytest.mark.parametrize(
    ("feature", "place", "value", "said"),
    [
        ("input_ids", 3, 30522, "has the value 30,522, expected 0 to 30,521; train with the vocabulary that the data was made"),
        ("input_mask", 7, 2, "has the value 2, expected 0 to 1; make the file again"),
        ("segment_ids", 0, 7, "has the value 7, expected 0 to 1; make the file again"),
        ("masked_lm_positions", 1, 8, "has the value 8, expected 0 to 7; make the file again"),
        ("masked_lm_ids", 1, 2**31 - 1, "has the value 2,147,483,647, expected 0 to 30,521; train with the vocabulary"),
        ("masked_lm_weights", 0, -1.0, "has the value -1.0, expected 0 to 1; make the file again"),
        ("masked_lm_weights", 1, float("nan"), "has the value nan, expected 0 to 1; make the file again"),
        ("masked_lm_weights", 1, float("inf"), "has the value inf, expected 0 to 1; make the file again"),
        ("masked_lm_weights", 0, 1e30, "has the value 1e+30, expected 0 to 1; make the file again"),
        ("next_sentence_labels", 0, 2, "has the value 2, expected 0 to 1; make the file again"),
    ],
)
def test_a_value_that_the_model_cannot_take_is_named(
    feature: str, place: int, value: float, said: str, record_format: str, tmp_path: Path
) -> None:
    highest = {**FIRST, "masked_lm_positions": [2, 7], "masked_lm_weights": [0.5, -0.0], "input_ids": [30521] * 8}
    wrong = {name: [*values] for name, values in highest.items()}
    wrong[feature][place] = value
    path = tmp_path / "part-0"
    path.write_bytes(file_of(*[highest] * 40, wrong, FIRST, wrong, dialect=Dialect(record_format)))
    with RecordSet([path], vocab_size=30522) as records:
        assert_holds(gather(records, [*range(40), 41]), [highest] * 40 + [FIRST])
        with pytest.raises(BadRecordError) as error:
            gather(records, [*range(20), 40, 41])
        assert str(error.value).startswith(f"{path}: record 40: feature {feature} {said}")
        assert (error.value.number, error.value.row) == (40, 20)
        room = PretrainingExamples.empty(4, seq=8, pred=2)
        assert [bad.row for bad in records.gather_good(room, np.array([40, 41, 42, 0]))] == [0, 2]
        assert [row.any() for row in room.input_ids] == [False, True, False, True]
    with RecordSet([path]) as records:
        gather(records, [40])  # without a model's sizes


def test_a_file_that_changes_under_way_is_noticed_when_it_is_opened(tmp_path: Path) -> None:
    write_folder(tmp_path / "a", (3, 4))
    path = tmp_path / "a" / "training" / "part-1"
    with RecordSet([tmp_path / "a"]) as records:
        path.write_bytes(file_of(FIRST))
        gather(records, [2])
        with pytest.raises(BertprepError, match=f"^{path}: was changed since its records were found; leave the data alone"):
            gather(records, [3])
        path.unlink()
        with pytest.raises(BertprepError, match=f"^{path}: cannot be read: No such file"):
            gather(records, [3])


def test_folders_must_agree(tmp_path: Path) -> None:
    write_folder(tmp_path / "a", (3,))
    long = tmp_path / "b"
    long.write_bytes(file_of(random_record(random.Random(0), 16, 4)))
    with pytest.raises(BertprepError) as error:
        RecordSet([tmp_path / "a", long])
    first = tmp_path / "a" / "training" / "part-0"
    assert str(error.value) == (
        f"{long}: has records of 16 tokens and 4 predictions, expected 8 and 2 as {first} has; "
        "give data that was made with the same settings"
    )


def test_requests_that_cannot_be_met(tmp_path: Path) -> None:
    write_folder(tmp_path / "a", (3,))
    with pytest.raises(UsageError, match="no data; name at least one folder"):
        RecordSet([])
    with pytest.raises(UsageError, match="a: has no test split; bertprep shard holds one out"):
        RecordSet([tmp_path / "a"], "test")
    with RecordSet([tmp_path / "a"]) as records:
        with pytest.raises(IndexError, match="record 3 of 3"):
            gather(records, [2, 3])
        with pytest.raises(
            ValueError, match="room for 1 pretraining records of 8/2, needed for 2 pretraining records of 8/2 from row 0"
        ):
            records.gather_into(PretrainingExamples.empty(1, seq=8, pred=2), np.arange(2))

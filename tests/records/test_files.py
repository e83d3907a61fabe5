"""Several files are one sequence of records, from which any are gathered at once."""

import random
from pathlib import Path

import numpy as np
import pytest

from bertprep.errors import BertprepError
from bertprep.records import Examples, RecordFiles
from tests.records.handmade import FIRST, PRED, SEQ, Dialect, Record, file_of, random_record
from tests.records.test_reader import assert_holds

SIZES = (5, 1, 300, 2)


@pytest.fixture
def shards(tmp_path: Path) -> tuple[list[Path], list[Record]]:
    """Files of both formats, and all their records."""
    rng = random.Random(2)
    paths, expected = [], []
    for number, size in enumerate(SIZES):
        shard = [random_record(rng) for _ in range(size)]
        path = tmp_path / f"{number}"
        path.write_bytes(file_of(*shard, dialect=Dialect(("tfrecord", "ofrecord")[number % 2])))
        paths.append(path)
        expected += shard
    return paths, expected


def test_any_order(shards: tuple[list[Path], list[Record]]) -> None:
    paths, expected = shards
    numbers = np.random.default_rng(0).permutation(sum(SIZES))
    with RecordFiles(paths) as files:
        assert (len(files), files.seq, files.pred) == (sum(SIZES), SEQ, PRED)
        assert_holds(files[numbers], [expected[number] for number in numbers])
        room = Examples.empty(4, seq=SEQ, pred=PRED)
        files.gather_into(room, np.array([0, 5, 6, 307]))
        files.gather_into(room, np.array([4]), row=2)
    assert_holds(room, [expected[0], expected[5], expected[4], expected[307]])
    with pytest.raises(ValueError, match="are closed"):
        files[numbers]


def test_what_is_asked_for_must_exist(shards: tuple[list[Path], list[Record]]) -> None:
    with RecordFiles(shards[0]) as files:
        for number in (-1, 308):
            with pytest.raises(
                IndexError, match=f"^{shards[0][0]} and 3 more: records {number} to {number} of 308; they are numbered from 0"
            ):
                files[np.array([number])]


def test_a_fault_names_its_file(shards: tuple[list[Path], list[Record]]) -> None:
    path = shards[0][2]
    content = bytearray(path.read_bytes())
    content[-5] ^= 1  # in the data of its last record
    path.write_bytes(content)
    with RecordFiles(shards[0]) as files:
        files[np.arange(305)]
        with pytest.raises(BertprepError, match=f"^{path}: record 299: the checksum of its data should be "):
            files[np.arange(308)]


def test_files_must_agree(tmp_path: Path) -> None:
    short, long = tmp_path / "short", tmp_path / "long"
    short.write_bytes(file_of(FIRST))
    long.write_bytes(file_of(random_record(random.Random(0), 16, 4)))
    with pytest.raises(BertprepError) as error:
        RecordFiles([short, long])
    assert str(error.value) == (
        f"{long}: has records of 16 tokens and 4 predictions, expected 8 and 2 as {short} has; "
        "give files that were made with the same settings"
    )


def test_no_files() -> None:
    with pytest.raises(BertprepError, match="no record files; name at least one"):
        RecordFiles([])

"""Repeated records: within a split, across splits, in whole files; lawful ones are let pass."""

import numpy as np
from numpy.typing import NDArray

from bertprep.check.duplicates import HashedFile, find_duplicates, find_identical_files

RNG = np.random.default_rng(1)


def hashes(count: int, *, certain: bool = True) -> NDArray[np.uint64]:
    made = RNG.integers(0, 2**63, (count, 2)).astype(np.uint64) * np.uint64(2)
    made[:, 1] |= np.uint64(certain)
    return made


def test_records_of_their_own() -> None:
    files = [HashedFile("a", "training", hashes(1000)), HashedFile("b", "test", hashes(100))]
    assert find_duplicates(files) == ([], {"training": 0, "test": 0, "across": 0})
    assert find_identical_files(files) == []


def test_no_records() -> None:
    assert find_duplicates([]) == ([], {})
    assert find_duplicates([HashedFile("a", "", hashes(0))]) == ([], {"": 0})
    assert find_identical_files([HashedFile("a", "", hashes(0)), HashedFile("b", "", hashes(0))]) == []


def test_one_unmistakable_record_that_came_before_is_a_warning() -> None:
    made = hashes(20_000)
    made[12_345] = made[678]
    (finding,), counts = find_duplicates([HashedFile("a", "", made[:10_000]), HashedFile("b", "", made[10_000:])])
    assert counts == {"": 1}
    assert (finding.level, finding.code, finding.file, finding.record) == ("warning", "duplicate-records", "b", 2345)
    assert "a, record 678" in finding.found


def test_many_are_an_error() -> None:
    made = hashes(20_000)
    made[10_000:10_010] = made[5]
    (finding,), counts = find_duplicates([HashedFile("a", "", made)])
    assert (finding.level, finding.count, counts) == ("error", 10, {"": 10})


def test_short_records_repeat_by_chance() -> None:
    made = hashes(1000, certain=False)
    made[1:4] = made[0]
    assert find_duplicates([HashedFile("a", "", made)]) == ([], {"": 3})
    made[1:20] = made[0]
    assert find_duplicates([HashedFile("a", "", made)])[0][0].level == "warning"
    made[1:200] = made[0]
    assert find_duplicates([HashedFile("a", "", made)])[0][0].level == "error"


def test_a_test_record_in_training_is_an_error() -> None:
    training, test = hashes(5000), hashes(500)
    test[7] = training[4000]
    test[8] = training[4000]
    (crossing,), counts = find_duplicates([HashedFile("training/a", "training", training), HashedFile("test/a", "test", test)])
    assert (crossing.level, crossing.code, crossing.file, crossing.record) == ("error", "test-in-training", "test/a", 7)
    assert counts == {"training": 0, "test": 1, "across": 2}


def test_equal_first_halves_are_no_duplicates() -> None:
    made = hashes(10)
    made[1, 0] = made[0, 0]
    assert find_duplicates([HashedFile("a", "", made)]) == ([], {"": 0})


def test_identical_files_in_any_order() -> None:
    made = hashes(100)
    (finding,) = find_identical_files([HashedFile("a", "", made), HashedFile("b", "", made[::-1])])
    assert (finding.level, finding.code, finding.file) == ("error", "identical-files", "b")

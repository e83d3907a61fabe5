"""What repeats among the rows of several files, by two hashes of each."""

import numpy as np
from numpy.typing import NDArray

from bertprep.check.duplicates import find_duplicates
from bertprep.check.outcome import CheckedFile
from bertprep.check.repeats import Repeats, find_repeated_documents


def hashed(name: str, rows: list[tuple[int, int]], split: str = "training") -> CheckedFile:
    hashes: NDArray[np.uint64] = np.array(rows, np.uint64).reshape(-1, 2)
    return CheckedFile(name, split, hashes=hashes, lines=np.arange(len(rows)) * 10 + 1)


A = hashed("a", [(7, 1), (3, 4), (7, 2)])
EMPTY = hashed("empty", [])
B = hashed("b", [(5, 5), (7, 1), (9, 9), (7, 2)])


def test_rows_with_an_equal_first_hash_know_the_first_like_them() -> None:
    repeats = Repeats([A, EMPTY, B])
    assert repeats.ids.tolist() == [0, 2, 4, 6]  # over all files
    assert repeats.file.tolist() == [0, 0, 2, 2]
    assert repeats.hashes.tolist() == [[7, 1], [7, 2], [7, 1], [7, 2]]
    assert repeats.first.tolist() == [0, 2, 0, 2]
    assert repeats.first_alike.tolist() == [0, 0, 0, 0]
    assert repeats.row_of(6) == (B, 3)


def test_nothing_repeats_where_there_is_nothing() -> None:
    assert Repeats([]).ids.tolist() == Repeats([EMPTY]).ids.tolist() == []
    assert list(find_repeated_documents([EMPTY], "error", "line")) == []


def test_a_document_with_one_equal_hash_is_another_one() -> None:
    [found] = find_repeated_documents([A, hashed("c", [(7, 3), (3, 4)])], "warning", "line")
    assert (found.file, found.record, found.level, found.count) == ("c", 11, "warning", 1)
    assert found.found == "the document of a, line 11"


def test_documents_in_both_splits_are_errors_whatever_those_within_one_are() -> None:
    test = hashed("t", [(3, 4), (3, 4)], "test")
    found = [(each.code, each.level, each.count) for each in find_repeated_documents([A, test], "warning", "line")]
    assert found == [("document-in-both-splits", "error", 2)]


def test_repeats_by_chance_are_expected_of_the_later_records() -> None:
    """Of a text of one choice, masked alike each time: the first is no repeat, those of the test split all are."""
    text = [(2, 0)]  # no certain text, and 2**0 choices
    files = [hashed("training/a", [*text, *((2 * n, 40) for n in range(5, 1000))]), hashed("test/a", text * 3, "test")]
    findings, counts = find_duplicates(files)
    assert findings == []
    assert counts == {"training": 0, "test": 2, "across": 3}

"""The door of the kernels: an array of another type, in pieces, or smaller than the numbers next to it say goes no further."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from bertprep import kernels
from bertprep.records import PretrainingExamples

ROWS, SEQ, PRED = 3, 8, 2


def contents(*sizes: int) -> kernels.Table:
    of_files = [{"data": np.arange(size, dtype=np.uint8), "size": size} for size in sizes]
    return kernels.load().copy_rows.table("files", of_files)


def arguments_of_copy_rows() -> dict[str, Any]:
    of_rows = {"numbers": np.zeros(ROWS, np.int64), "starts": np.zeros(ROWS, np.int64)}
    return {"files": contents(SEQ), **of_rows, "count": ROWS, "size": SEQ, "out": np.zeros(ROWS * SEQ, np.uint8)}


def not_aligned(array: NDArray[Any]) -> NDArray[Any]:
    moved = np.frombuffer(bytes(array.nbytes + 1), array.dtype, array.size, 1)
    return moved if not moved.flags.aligned else array.astype(np.float32)


def test_arrays_are_of_their_type_in_one_piece_and_large_enough() -> None:
    given = arguments_of_copy_rows()
    kernel = kernels.load().copy_rows
    assert kernel(*given.values()) == ROWS
    for name in ("numbers", "starts", "out"):
        array = given[name]
        for wrong in (array.astype(np.int16), array.astype(">i4"), array.repeat(2)[::2], not_aligned(array), None, [[1]]):
            with pytest.raises(TypeError, match=rf"^copy_rows: {name} must be a contiguous array of u?int"):
                kernel(*{**given, name: wrong}.values())
        least = array.size
        with pytest.raises(ValueError, match=rf"^copy_rows: {name} has {least - 1} values, expected at least {least}$"):
            kernel(*{**given, name: array[:-1]}.values())
    with pytest.raises(ValueError, match="values, expected at least"):
        kernel(*{**given, "count": 2**62}.values())


def test_records_are_an_array_in_one_piece_whose_fields_are_features() -> None:
    block = PretrainingExamples.empty(ROWS, seq=SEQ, pred=PRED)
    block[:] = 0
    labels, kernel = np.zeros((ROWS, SEQ), np.int32), kernels.load().make_labels
    assert kernel(block, ROWS, labels) == ROWS
    for wrong, fault in (
        (block.input_ids, "block must be a record array"),
        (block[::2], "block must be a contiguous record array; give a copy of it"),
        (block.reshape(1, ROWS), "block must be a record array"),
        (block.view(block.dtype.newbyteorder(">")), "found the field input_ids"),
        (np.zeros(ROWS, [("input_ids", np.int64, SEQ)]), "found the field input_ids"),
        (np.zeros(ROWS, [("ids", np.int32, SEQ)]), "found the field ids"),
        (None, "block must be a record array"),
    ):
        with pytest.raises(TypeError, match=fault):
            kernel(wrong, ROWS, labels)
    with pytest.raises(ValueError, match=r"^make_labels: expected rows <= len\(block\)$"):
        kernel(block, ROWS + 1, np.zeros((ROWS + 1, SEQ), np.int32))
    with pytest.raises(ValueError, match=r"^make_labels: labels has 23 values, expected at least 24$"):
        kernel(block, ROWS, labels.reshape(-1)[:-1])


@pytest.mark.parametrize(
    ("name", "least"),
    [("is_special", 5), ("begins_word", 5), ("span_below", 1), ("words", 27), ("state", 1), ("before", 1), ("after", 2)],
)
def test_the_arrays_of_structs_are_as_large_as_the_numbers_next_to_them_say(name: str, least: int) -> None:
    settings: dict[str, Any] = {
        "seq": SEQ, "pad": 2, "mask": 3, "first_position": 0, "is_causal": 0, "is_pair": 0, "width": 5,
        "before": np.zeros(1, np.int64), "before_size": 1, "after": np.zeros(2, np.int64), "after_size": 2,
        "is_special": np.zeros(5, np.uint8), "whole_words": 0, "begins_word": np.zeros(5, np.uint8), "longest_word": 4,
        "rounds_up": 0, "is_spanbert": 0, "keeps_spans": 0, "mask_below": 0, "random_below": 0, "longest_span": 1,
        "span_below": np.zeros(1, np.int64), "words": np.zeros(3 * (SEQ + 1), np.int32), "state": np.zeros(1, np.uint64),
    }  # fmt: skip
    none, kernel = np.zeros(0, np.int64), kernels.load().fill_rows
    others = none, none, none, np.zeros(0, np.uint64), np.zeros(0), 0, none, none, none, none
    assert kernel(settings, *others) == 0
    settings[name] = settings[name][:-1]
    with pytest.raises(ValueError, match=rf"^fill_rows: {name} has {least - 1} values, expected at least {least}$"):
        kernel(settings, *others)
    with pytest.raises(ValueError, match=rf"^fill_rows: {name} has {least - 1} values, expected at least {least}$"):
        kernel.bind(settings)(*others)


def test_bound_arguments_are_checked_too() -> None:
    kernel = kernels.load().pack
    scratch = np.zeros(2, np.uint64), np.empty(101, np.int32), np.empty(9, np.int32), np.empty(9, np.int32)
    bound = kernel.bind(np.full(9, 7, np.int32), np.arange(9))
    assert bound(9, 100, *scratch) == 1
    with pytest.raises(ValueError, match=r"^pack: sizes has 9 values, expected at least 10$"):
        bound(10, 100, *scratch)
    with pytest.raises(ValueError, match=r"^pack: expected .*sizes.max"):
        kernel(np.full(9, 101, np.int32), np.arange(9), 9, 100, *scratch)


def test_records_are_written_to_rows_that_a_block_has() -> None:
    block = PretrainingExamples.empty(ROWS, seq=SEQ, pred=PRED)
    notes, indices = np.zeros(64, np.int64), np.zeros(ROWS, np.int64)
    gather = kernels.load().gather
    files = gather.table("files", [described(np.zeros(100, np.uint8), np.array([0, 100]))])
    for row in (-1, 1, 2**40):
        with pytest.raises(ValueError, match=r"^gather: expected 0 <= row <= len"):
            gather(files, indices, indices, ROWS, block, row, notes)
    with pytest.raises(ValueError, match=r"^gather: files has 1 values, expected at least 2$"):
        gather(files, indices + 1, indices, ROWS, block, 0, notes)


def described(data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> dict[str, Any]:
    return {"data": data, "size": data.size, "format": 1, "offsets": offsets, "records": len(offsets) - 1}


def test_the_rows_of_a_table_are_checked_and_its_arrays_held() -> None:
    gather, copy_rows = kernels.load().gather, kernels.load().copy_rows
    good = described(np.zeros(100, np.uint8), np.array([0, 100]))
    for name, wrong, fault in (
        ("size", 101, "gather: files.data has 100 values, expected at least 101"),
        ("records", 2, "gather: files.offsets has 2 values, expected at least 3"),
    ):
        with pytest.raises(ValueError, match=f"^{fault}$"):
            gather.table("files", [good, {**good, name: wrong}])
    for array in (np.zeros(100, np.int8), np.zeros(200, np.uint8)[::2], None):
        with pytest.raises(TypeError, match=r"^gather: files.data must be a contiguous array of uint8$"):
            gather.table("files", [{**good, "data": array}])
    given = arguments_of_copy_rows()
    for wrong in (np.zeros((1, 2), np.int64), gather.table("files", [good]), None):
        with pytest.raises(TypeError, match=r"^copy_rows: files must be a table of such structs$"):
            copy_rows(*{**given, "files": wrong}.values())
    of_rows = {"numbers": np.array([1, 0, 1]), "starts": np.array([1, 0, 2])}
    assert copy_rows(*{**given, "files": contents(SEQ, SEQ + 2), **of_rows}.values()) == ROWS
    assert given["out"].reshape(ROWS, SEQ)[:, 0].tolist() == [1, 0, 2]
    for starts, wrong in (([1, 0, 3], 2), ([-1, 0, 0], 0), ([1, 2**62, 0], 1)):  # a row outside its file
        others = {**of_rows, "starts": np.array(starts)}
        assert copy_rows(*{**given, "files": contents(SEQ, SEQ + 2), **others}.values()) == wrong

"""Blocks of examples: what they are made of, and what of it can be written and read into."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertprep import records
from bertprep.config import RecordFormat
from bertprep.errors import BertprepError
from bertprep.records import KINDS, ClassificationExamples, Examples, PretrainingExamples, Records, write_examples

FORMATS = list(RecordFormat)


def zeros(kind: type[Examples] = PretrainingExamples, count: int = 3, *, seq: int = 8, pred: int = 2) -> Examples:
    examples = kind.empty(count, seq=seq, pred=pred)
    for array in examples.arrays:
        array[...] = 0
    return examples


@pytest.fixture
def file(tmp_path: Path) -> Records:
    write_examples([zeros(count=300)], {RecordFormat.TFRECORD: tmp_path / "a"})
    return records.open(tmp_path / "a")


@pytest.mark.parametrize("kind", KINDS)
def test_a_block_has_one_array_of_its_shape_for_each_feature(kind: type[Examples]) -> None:
    arrays = zeros(kind).arrays
    for wrong in ((), arrays[:-1], (*arrays, arrays[-1]), (None, *arrays[1:]), (arrays[0][:, None], *arrays[1:])):
        with pytest.raises(TypeError, match=kind.__name__):
            kind(*wrong)
    with pytest.raises(TypeError, match="input_ids"):
        kind(*arrays, input_ids=arrays[0])
    with pytest.raises(ValueError, match=r"has shape \(2.*expected \(3"):
        kind(*arrays[:-1], arrays[-1][:2])
    named = dict(zip([feature.name for feature in kind.features], arrays, strict=True))
    with pytest.raises(ValueError, match=r"input_mask has shape \(3, 1\), expected \(3, 8\)"):
        kind(**{**named, "input_mask": named["input_mask"][:, :1]})


def test_a_value_is_set_where_kernels_read_and_write_it(file: Records) -> None:
    block = PretrainingExamples.empty(300, seq=8, pred=2)
    file.gather_into(block, range(300))
    block.input_ids = np.ones((300, 8), np.int32)  # the memory stays: no kernel writes to what is gone
    assert block.input_ids.sum() == 2400
    file.gather_into(block, range(300))
    assert not block.input_ids.any()
    with pytest.raises(ValueError, match="broadcast"):
        block.input_ids = np.ones((300, 9), np.int32)
    with pytest.raises(AttributeError, match="input_word_ids"):
        block.input_word_ids = np.ones((300, 8), np.int32)
    with pytest.raises(AttributeError, match="input_ids"):
        del block.input_ids


def test_records_are_read_into_a_block_in_one_piece_that_can_be_written(file: Records) -> None:
    read_only = zeros(count=300)
    read_only.flags.writeable = False
    for wrong in (read_only, zeros(count=600)[::2]):
        with pytest.raises(
            TypeError, match="expected a writable, contiguous block to read records into; give a copy of this one"
        ):
            file.gather_into(wrong, range(300))
    swapped = zeros(count=300).view(zeros().dtype.newbyteorder(">"))
    with pytest.raises(TypeError, match="expected records with features of uint8, int32 or float32, found the field input_ids"):
        file.gather_into(swapped, range(300))


def test_a_block_is_a_record_array() -> None:
    """Slices are views, records have the features as attributes, and a copy by pickle needs no code of ours."""
    block = zeros(count=5)
    block[3:].input_ids = np.arange(8)
    block[1].next_sentence_labels = 1
    assert block.input_ids.sum(1).tolist() == [0, 0, 0, 28, 28]
    again = pickle.loads(pickle.dumps(block[1:4]))
    assert (type(again), again.sizes, len(again)) == (PretrainingExamples, block.sizes, 3)
    assert again.next_sentence_labels.tolist() == [1, 0, 0]
    assert block[[4, 1]].input_ids[:, 7].tolist() == [7, 0]


def test_read_only_blocks_are_written(tmp_path: Path) -> None:
    block = zeros()
    block.flags.writeable = False
    write_examples([block], {name: tmp_path / name for name in FORMATS})
    assert all(len(records.open(tmp_path / name)) == 3 for name in FORMATS)


def refusal(tmp_path: Path, name: RecordFormat, *blocks: Any) -> str:
    """Return the line with which blocks are refused, which must leave no file behind."""
    path = tmp_path / name
    with pytest.raises((BertprepError, TypeError)) as raised:
        write_examples(blocks, {name: path})
    assert not list(tmp_path.iterdir())
    found = str(raised.value)
    assert "\n" not in found
    assert found.startswith(f"{path}: ")
    return found.removeprefix(f"{path}: ")


def block_with(feature: str, value: int) -> Examples:
    block = zeros()
    block[feature][1] = value
    return block


@pytest.mark.parametrize("name", FORMATS)
def test_a_value_that_no_record_holds_is_named(name: RecordFormat, tmp_path: Path) -> None:
    for block, fault in (
        (block_with("input_ids", -5), "input_ids[0] is -5, expected 0 to 2,147,483,647"),
        (block_with("masked_lm_ids", -1), "masked_lm_ids[0] is -1, expected 0 to 2,147,483,647"),
        (block_with("masked_lm_positions", -1), "masked_lm_positions[0] is -1, expected 0 to 2,147,483,647"),
    ):
        assert refusal(tmp_path, name, zeros(), block) == f"block 1: record 1: {fault}"


@pytest.mark.parametrize("name", FORMATS)
def test_blocks_of_a_file_are_of_one_shape(name: RecordFormat, tmp_path: Path) -> None:
    wide = zeros(count=1, seq=512, pred=80)
    expected = "block 1 has pretraining records of 512 tokens and 80 predictions, expected pretraining records of 8 tokens"
    assert refusal(tmp_path, name, zeros(), wide).startswith(expected)
    found = refusal(tmp_path, name, zeros(), zeros(ClassificationExamples))
    assert found.startswith("block 1 has classification records of 8 tokens, expected pretraining")
    assert "of 0 tokens and 2 predictions, expected 1 to 65,535" in refusal(tmp_path, name, zeros(seq=0))
    assert "of 65536 tokens" in refusal(tmp_path, name, zeros(count=1, seq=65_536))
    assert refusal(tmp_path, name, [[1, 2]]) == "block 0 is list, expected Examples"
    with pytest.raises(TypeError, match="found one block; give it in a list"):
        write_examples(zeros(), {name: tmp_path / name})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", FORMATS)
def test_a_record_of_the_most_values_is_written_and_read(name: RecordFormat, tmp_path: Path) -> None:
    write_examples([zeros(count=1, seq=65_535)], {name: tmp_path / "a"})
    assert records.open(tmp_path / "a")[:].seq == 65_535


def test_arrays_of_another_type_are_refused() -> None:
    for dtype in (np.int64, np.float32, np.uint32, np.float64):
        with pytest.raises(
            TypeError, match=f"input_ids is an array of {np.dtype(dtype)}, expected int32; convert it with astype"
        ):
            PretrainingExamples(np.zeros((3, 8), dtype), *zeros().arrays[1:])
    for dtype in (np.uint8, np.bool_, ">i4"):
        assert PretrainingExamples(np.ones((3, 8), dtype), *zeros().arrays[1:]).input_ids.tolist() == [[1] * 8] * 3


def test_a_value_beyond_a_byte_is_refused_where_it_is_given() -> None:
    """NumPy would take the lowest eight bits of 300, which is 44."""
    arrays = [array.astype(np.float32 if array.dtype == np.float32 else np.int32) for array in zeros().arrays]
    assert PretrainingExamples(*arrays).input_mask.dtype == np.uint8
    for value in (-1, 300):
        wrong = arrays[1].copy()
        wrong[1, 2] = value
        with pytest.raises(ValueError, match=f"PretrainingExamples: input_mask has the value {value}, expected 0 to 255"):
            PretrainingExamples(arrays[0], wrong, *arrays[2:])
        block = zeros()
        with pytest.raises(ValueError, match=f"PretrainingExamples: input_mask has the value {value}, expected 0 to 255"):
            block.input_mask = wrong
        assert not block.input_mask.any()

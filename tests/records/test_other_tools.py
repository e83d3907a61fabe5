"""Files of other tools give the records that our own files of the same give, and become these when they are converted.

Protobuf lets a writer say the same in many ways; Arrow and Parquet have columns of many types.
"""

from __future__ import annotations

import gzip
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import bertprep
from bertprep import records
from bertprep.errors import BertprepError
from bertprep.records import Examples, PretrainingExamples, RegressionExamples
from bertprep.records.records import Records
from bertprep.records.write import write_examples
from bertprep.work.choose import find_records
from tests.records.columns import (
    assert_same,
    column_examples,
    rows_of,
    table_of,
    with_types,
    write_arrow_file,
    write_parquet,
    write_stream,
)
from tests.records.handmade import Record, Variant, file_of, frame, message

EXAMPLES = column_examples(PretrainingExamples, 23)
TABLE = table_of(EXAMPLES)
BARE = TABLE.replace_schema_metadata(None)
Write = Callable[[Path], object]


def as_records(examples: Examples) -> list[Record]:
    """The same as lists of numbers by feature."""
    return [
        {f.name: np.atleast_1d(array[row]).tolist() for f, array in zip(examples.features, examples.arrays, strict=True)}
        for row in range(len(examples))
    ]


def by_hand(variant: Variant) -> Write:
    """Protobuf: the first record plain, since its first byte tells an OFRecord, and the others in a variant."""
    first, *others = as_records(EXAMPLES)
    content = file_of(first, variant=Variant(variant.record_format)) + file_of(*others, variant=variant, rng=random.Random(7))
    return lambda path: path.write_bytes(content)


def two_gzip_members(path: Path) -> None:
    content = file_of(*as_records(EXAMPLES))
    path.write_bytes(gzip.compress(content[:100]) + gzip.compress(content[100:]) + bytes(1000))  # and padding, as on tapes


def features_in_two_halves(path: Path) -> None:
    """Protobuf joins messages of the same field."""
    halves = [[dict(list(each.items())[:3]), dict(list(each.items())[3:])] for each in as_records(EXAMPLES)]
    path.write_bytes(b"".join(frame(message(head, Variant()) + message(tail, Variant())) for head, tail in halves))


def features_of_two_kinds(path: Path) -> None:
    """A record is of the kind that it has most features of."""
    extra = {"unique_ids": [7], "label_ids": [1], "is_real_example": [1]}
    path.write_bytes(file_of(*({**each, **extra} for each in as_records(EXAMPLES))))


def uneven(path: Path) -> None:
    """Batches of many sizes, some empty."""
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, BARE.schema) as writer:
        for start, stop in ((0, 0), (0, 3), (3, 11), (11, 11), (11, 20), (20, 23), (23, 23)):
            for batch in BARE[start:stop].combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], BARE.schema)]:
                writer.write_batch(batch)


def others_between(path: Path) -> None:
    """Columns that are not ours, and ours in another order."""
    more = BARE.append_column("text", pa.array(["Text."] * 23)).append_column("idx", pa.array(range(23)))
    ours = ["labels", "attention_mask", "idx", "next_sentence_label", "token_type_ids", "input_ids"]
    write_stream(more.select(["text", *ours]), path)


def columns(write: Callable[..., None], of_values: Any = lambda kind: kind, as_list: Any = pa.list_, **how: Any) -> Write:
    return lambda path: write(with_types(TABLE, of_values, as_list), path, **how)


def unsized(kind: pa.DataType, _: int) -> pa.DataType:
    return pa.list_(kind)


def masks_as(mask: pa.DataType) -> Callable[[pa.DataType], pa.DataType]:
    return lambda kind: mask if kind == pa.int8() else kind


FORMS: dict[str, tuple[bool, Write]] = {  # whether it is held in memory to be read
    "features in any order": (False, by_hand(Variant(any_order=True))),
    "numbers one by one": (False, by_hand(Variant(packed=False))),
    "numbers packed or not": (False, by_hand(Variant(packed=None))),
    "names of TensorFlow 2": (False, by_hand(Variant(new_names=True))),
    "unknown features": (False, by_hand(Variant(extras=True))),
    "all at once": (False, by_hand(Variant(packed=None, any_order=True, new_names=True, extras=True))),
    "OFRecord of int64": (False, by_hand(Variant("ofrecord", int64=True))),
    "OFRecord of doubles": (False, by_hand(Variant("ofrecord", doubles=True))),
    "OFRecord, doubles one by one": (False, by_hand(Variant("ofrecord", doubles=True, packed=False))),
    "OFRecord, features in any order": (False, by_hand(Variant("ofrecord", any_order=True))),
    "OFRecord, all at once": (
        False, by_hand(Variant("ofrecord", packed=None, int64=True, any_order=True, new_names=True, extras=True))
    ),
    "features in two halves": (False, features_in_two_halves),
    "features of two kinds": (False, features_of_two_kinds),
    "gzip of two members": (True, two_gzip_members),
    "a stream": (False, columns(write_stream)),
    "one batch": (False, columns(write_stream, rows=100)),
    "one row a batch": (False, columns(write_stream, rows=1)),
    "uneven batches": (False, uneven),
    "other columns between": (False, others_between),
    "int64": (True, columns(write_stream, lambda _: pa.int64())),
    "lists without a length": (True, columns(write_stream, as_list=unsized)),
    "large lists of int64": (True, columns(write_stream, lambda _: pa.int64(), lambda kind, _: pa.large_list(kind))),
    "masks of bool": (True, columns(write_stream, masks_as(pa.bool_()))),
    "masks of uint16": (True, columns(write_stream, masks_as(pa.uint16()))),
    "zstd": (True, columns(write_stream, compression="zstd")),
    "lz4": (True, columns(write_stream, compression="lz4")),
    "an Arrow file": (True, columns(write_arrow_file)),
    "an Arrow file of int64": (True, columns(write_arrow_file, lambda _: pa.int64(), unsized)),
    "Parquet": (True, columns(write_parquet)),
    "Parquet of int64": (True, columns(write_parquet, lambda _: pa.int64(), unsized)),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_any_form_is_read_and_converted_to_ours(form: str, tmp_path: Path) -> None:
    is_held, write = FORMS[form]
    write(tmp_path / "a")
    with records.open(tmp_path / "a") as file:
        assert (file.held_bytes > 0, file.shape) == (is_held, EXAMPLES.sizes)
        assert_same(file[:], EXAMPLES)
        assert_same(file[[22, 0, 9]], rows_of(EXAMPLES, [22, 0, 9]))
        says_pred = file.format in ("tfrecord", "ofrecord")
    with records.open(tmp_path / "a", pred=5) as file:  # for a file that does not give it
        assert file.pred == (3 if says_pred else 5)
    with Records([tmp_path / "a"]) as opened:
        room = PretrainingExamples.empty(23, seq=16, pred=3)
        opened.gather_into(room, np.arange(22, -1, -1))
        assert_same(room, rows_of(EXAMPLES, slice(None, None, -1)))
    for to, names in (("tfrecord", "google"), ("tfrecord", "tf2"), ("ofrecord", "google")):
        bertprep.convert(tmp_path / "a", tmp_path / f"{names}.{to}", to=to, feature_names=names)
        expected = file_of(*as_records(EXAMPLES), variant=Variant(to, new_names=names == "tf2"))
        assert (tmp_path / f"{names}.{to}").read_bytes() == expected


@pytest.mark.parametrize("variant", [Variant(packed=False), Variant("ofrecord", packed=False, int64=True)], ids=str)
def test_any_values_one_by_one(variant: Variant, tmp_path: Path) -> None:
    rng, path = np.random.default_rng(0), tmp_path / "a"
    examples = PretrainingExamples.empty(40, seq=128, pred=20)
    for row, most in enumerate([1, 127, 128, 200, 2**14, 30_000, 2**21, 2**31 - 1] * 5):
        for array in examples.arrays:
            array[row] = rng.integers(0, most, array[row].shape, endpoint=True)
    first, *others = as_records(examples)
    path.write_bytes(file_of(first, variant=Variant(variant.record_format)) + file_of(*others, variant=variant))
    with records.open(path) as file:
        assert_same(file[:], examples)


def test_floats_of_other_sizes(tmp_path: Path) -> None:
    table = table_of(column_examples(RegressionExamples, 9))
    number = table.schema.get_field_index("labels")
    for kind in (pa.float16(), pa.float64()):
        wide = table["labels"].cast(kind)
        write_stream(table.set_column(number, "labels", wide), tmp_path / "a")
        with records.open(tmp_path / "a") as file:
            assert file.kind is RegressionExamples
            np.testing.assert_array_equal(file[:].label_ids, wide.cast(pa.float32()).to_numpy())


def test_files_that_do_not_say_their_predictions_have_room_for_the_most(tmp_path: Path) -> None:
    few = table_of(column_examples(PretrainingExamples, 8, pred=2)).replace_schema_metadata(None)
    for folder in ("a/train", "a/test", "b"):
        (tmp_path / folder).mkdir(parents=True)
    write_stream(few, tmp_path / "a/train/data-00000-of-00002.arrow")
    write_stream(BARE, tmp_path / "a/train/data-00001-of-00002.arrow")
    write_stream(few, tmp_path / "a/test/data-00000-of-00001.arrow")
    write_stream(few, tmp_path / "b/data-00000-of-00001.arrow")
    with Records([tmp_path / "a", tmp_path / "b"]) as both, Records([tmp_path / "a"], "test") as test:
        assert (both.pred, len(both), test.pred, len(test)) == (3, 39, 2, 8)
        room = PretrainingExamples.empty(39, seq=16, pred=3)
        both.gather_into(room, np.arange(39))
        assert_same(room[8:31], EXAMPLES)
        assert not room.masked_lm_positions[[*range(8), *range(31, 39)], 2].any()
    with Records([tmp_path / "a"], "test", pred=3) as test:
        assert (test.pred, test[:].pred) == (3, 3)
    (outcome,) = bertprep.validate([tmp_path / "a"], workers=1)
    assert (outcome.pred, "mixed-shape" in {finding.code for finding in outcome.findings}) == (3, False)
    bertprep.convert(tmp_path / "a", tmp_path / "c", to="tfrecord", workers=1)
    with Records([tmp_path / "c"]) as opened:
        assert (opened.pred, len(opened)) == (3, 31)
    write_examples([column_examples(PretrainingExamples, 4, pred=5)], {"arrow": tmp_path / "b" / "x.arrow"})
    with Records([tmp_path / "a", tmp_path / "b"]) as opened:
        assert opened.pred == 5
    write_examples([column_examples(PretrainingExamples, 4, pred=6)], {"arrow": tmp_path / "b" / "y.arrow"})
    for read in (lambda: Records([tmp_path / "b"]), lambda: bertprep.convert(tmp_path / "b", tmp_path / "d", to="tfrecord")):
        with pytest.raises(BertprepError, match="expected 16 and"):  # both say it, and differently
            read()


@pytest.mark.parametrize(("described", "found"), [("20", 2), ("5", 5), (None, 2)])  # 20 are more than the 16 tokens
def test_the_description_next_to_a_file_may_say_its_predictions(described: str | None, found: int, tmp_path: Path) -> None:
    write_stream(table_of(column_examples(PretrainingExamples, 8, pred=2)).replace_schema_metadata(None), tmp_path / "a.arrow")
    if described:
        info = f'{{"description": "Records: max_predictions_per_seq={described}, ..."}}'
        (tmp_path / "dataset_info.json").write_text(info)
    with records.open(tmp_path / "a.arrow") as file:
        assert file.pred == found
    with records.open(tmp_path / "a.arrow", pred=7) as file:
        assert file.pred == (5 if found == 5 else 7)


def test_what_datasets_writes_is_read(tmp_path: Path) -> None:
    import datasets

    (tmp_path / "made").mkdir()
    write_examples([EXAMPLES], {"tfrecord": tmp_path / "made" / "x_training_00000.tfrecord"})
    bertprep.convert(tmp_path / "made", tmp_path / "arrow", to="arrow", workers=1)
    loaded = datasets.load_from_disk(str(tmp_path / "arrow"))["train"]
    changed = loaded.add_column("row", list(range(23))).shuffle(seed=1).filter(lambda row: row["row"] % 3 > 0)
    expected = rows_of(EXAMPLES, changed["row"])
    changed.save_to_disk(str(tmp_path / "saved"), num_shards=2)
    changed.to_parquet(str(tmp_path / "hub" / "data" / "train-00000-of-00001.parquet"))
    loaded.select(range(5)).to_parquet(str(tmp_path / "hub" / "data" / "test-00000-of-00001.parquet"))
    for folder in ("saved", "hub"):
        with Records([tmp_path / folder]) as opened:
            assert (opened.shape, len(opened)) == (EXAMPLES.sizes, len(expected))
            room = PretrainingExamples.empty(len(expected), seq=16, pred=3)
            opened.gather_into(room, np.arange(len(expected)))
            assert_same(room, expected)
    assert find_records(tmp_path / "hub").splits == ["training", "test"]
    with Records([tmp_path / "hub"], "test") as opened:
        assert len(opened) == 5


def test_space_for_more_predictions_is_named(tmp_path: Path) -> None:
    """Columns of another tool have labels, which fit records of any number of predictions from their own on."""
    (tmp_path / "a").mkdir()
    examples = column_examples(PretrainingExamples, 8, pred=2)
    write_stream(table_of(examples).replace_schema_metadata(None), tmp_path / "a" / "x.arrow")
    [outcome] = bertprep.validate([tmp_path / "a"], pred=7)
    assert outcome.pred == 7
    for target, source in (("b.tfrecord", tmp_path / "a" / "x.arrow"), ("c", tmp_path / "a")):
        bertprep.convert(source, tmp_path / target, to="tfrecord", pred=7)
        with Records([tmp_path / target]) as opened:
            assert opened.pred == 7
            assert opened[:].masked_lm_ids[:, :2].tolist() == examples.masked_lm_ids.tolist()

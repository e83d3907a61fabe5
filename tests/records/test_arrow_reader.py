"""Arrow and Parquet files, bertprep's and those of other tools, give the records that a TFRecord file of the same gives."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable, Iterable
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

import bertprep
from bertprep import records
from bertprep.check.record_scan import RecordScan
from bertprep.errors import BertprepError
from bertprep.records import KINDS, Examples, PretrainingExamples, record_index
from bertprep.records.data_sets import find_records
from bertprep.records.file_bytes import masked_checksum
from bertprep.records.record_set import RecordSet
from bertprep.records.write import write_examples
from tests.records.columns import (
    column_examples,
    table_of,
    with_types,
    write_any,
    write_arrow_file,
    write_parquet,
    write_stream,
)
from tests.records.test_kinds import assert_same

EXAMPLES = column_examples(PretrainingExamples, 23)
TABLE = table_of(EXAMPLES)
BARE = TABLE.replace_schema_metadata(None)


def rows_of(examples: Examples, rows: Any) -> Examples:
    return type(examples)(*(array[rows] for array in examples.arrays))


@pytest.mark.parametrize("record_format", ["arrow", "parquet"])
@pytest.mark.parametrize("kind", KINDS, ids=[kind.title for kind in KINDS])
def test_every_kind_comes_back(tmp_path: Path, kind: type[Examples], record_format: str) -> None:
    examples = column_examples(kind, 2500)
    path = tmp_path / "a"
    write_examples([examples[:7], examples[7:]], {record_format: path})
    order = np.random.default_rng(1).permutation(2500)
    with records.open(path) as file:
        assert (file.format, file.shape, len(file)) == (record_format, examples.shape, 2500)
        assert_same(file[:], examples)
        assert_same(file[-3:], examples[2497:])
        assert_same(file[order], rows_of(examples, order))
        for number, block in enumerate(file.blocks(300)):
            assert_same(block, examples[300 * number : 300 * number + 300])
        assert number == 8
        room = kind.empty(10, seq=16, pred=file.pred)
        file.gather_into(room, range(2495, 2500), row=5)
        assert_same(room[5:], examples[2495:])
        with pytest.raises(IndexError):
            file.gather_into(room, range(2500, 2501))


def uneven(path: Path) -> None:
    """Batches of many sizes, some empty."""
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, BARE.schema) as writer:
        for start, stop in ((0, 0), (0, 3), (3, 11), (11, 11), (11, 20), (20, 23), (23, 23)):
            for batch in BARE[start:stop].combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], BARE.schema)]:
                writer.write_batch(batch)


def others_between(path: Path) -> None:
    """Columns that are not ours, and ours in another order."""
    more = BARE.append_column("text", pa.array(["Text."] * 23)).append_column("idx", pa.array(range(23)))
    write_stream(
        more.select(["text", "labels", "attention_mask", "idx", *("next_sentence_label", "token_type_ids", "input_ids")]), path
    )


def written(write: Callable[..., None], of_values: Any = None, as_list: Any = pa.list_, **how: Any) -> Callable[[Path], None]:
    values = of_values or (lambda kind: kind)
    return lambda path: write(with_types(TABLE, values, as_list), path, **how)


def unsized(kind: pa.DataType, _: int) -> pa.DataType:
    return pa.list_(kind)


def masks_as(mask: pa.DataType) -> Callable[[pa.DataType], pa.DataType]:
    return lambda kind: mask if kind == pa.int8() else kind


FOREIGN: dict[str, tuple[bool, Callable[[Path], None]]] = {  # whether it must be rewritten
    "a stream": (False, written(write_stream)),
    "one batch": (False, written(write_stream, rows=100)),
    "one row a batch": (False, written(write_stream, rows=1)),
    "int64": (True, written(write_stream, lambda _: pa.int64())),
    "others between": (False, others_between),
    "lists without a length": (True, written(write_stream, as_list=unsized)),
    "large lists of int64": (True, written(write_stream, lambda _: pa.int64(), lambda kind, _: pa.large_list(kind))),
    "masks of bool": (True, written(write_stream, masks_as(pa.bool_()))),
    "masks of uint16": (True, written(write_stream, masks_as(pa.uint16()))),
    "zstd": (True, written(write_stream, compression="zstd")),
    "lz4": (True, written(write_stream, compression="lz4")),
    "uneven batches": (False, uneven),
    "an Arrow file": (True, written(write_arrow_file)),
    "an Arrow file of int64": (True, written(write_arrow_file, lambda _: pa.int64(), unsized)),
    "Parquet": (True, written(write_parquet)),
    "Parquet of int64": (True, written(write_parquet, lambda _: pa.int64(), unsized)),
}


@pytest.mark.parametrize("form", FOREIGN)
def test_what_other_tools_write_is_read(form: str, tmp_path: Path) -> None:
    is_rewritten, write = FOREIGN[form]
    write(tmp_path / "a")
    with records.open(tmp_path / "a") as file:
        assert (file.is_rewritten, file.shape, file.knows_pred) == (is_rewritten, EXAMPLES.shape, False)
        assert_same(file[:], EXAMPLES)
        assert_same(file[[22, 0, 9]], rows_of(EXAMPLES, [22, 0, 9]))
    with RecordSet([tmp_path / "a"]) as found, RecordSet([tmp_path / "a"]) as kept:
        for each in (found, kept):
            room = PretrainingExamples.empty(23, seq=16, pred=3)
            each.gather_into(room, np.arange(22, -1, -1))
            assert_same(room, rows_of(EXAMPLES, slice(None, None, -1)))


def test_floats_of_other_sizes(tmp_path: Path) -> None:
    examples = column_examples(records.RegressionExamples, 9)
    table = table_of(examples)
    number = table.schema.get_field_index("labels")
    for kind in (pa.float16(), pa.float64()):
        wide = table.set_column(number, "labels", table["labels"].cast(kind))
        write_stream(wide, tmp_path / "a")
        with records.open(tmp_path / "a") as file:
            assert file.kind is records.RegressionExamples
            expected = table["labels"].cast(kind).cast(pa.float32()).to_numpy()
            np.testing.assert_array_equal(file[:].label_ids, expected)


def set_value(name: str, value: Any, row: int = 7, place: int | None = 4, table: pa.Table = TABLE) -> pa.Table:
    """The table with another value in one record, or in place of its list."""
    values = table[name].to_pylist()
    if isinstance(values[row], list) and place is not None:
        values[row][place] = value
    else:
        values[row] = value
    number = table.schema.get_field_index(name)
    return table.set_column(number, table.schema.field(name), pa.array(values, table.schema.field(name).type))


WIDE = with_types(TABLE, lambda _: pa.int64(), unsized).replace_schema_metadata(TABLE.schema.metadata)
NEGATIVE = "has a value that is negative or above 2,147,483,647; make the file again"
NO_BYTE = "has a value that is negative or above 127; make the file again"
BAD_LABEL = (
    "column labels has a value that is neither -100, where nothing is predicted, nor 0 to 2,147,483,647; make the file again"
)
BAD_RECORDS: dict[str, tuple[pa.Table, str]] = {
    "a token below 0": (set_value("input_ids", -1), f"column input_ids {NEGATIVE}"),
    "a mask below 0": (set_value("attention_mask", -128), f"column attention_mask {NO_BYTE}"),
    "a label below 0": (set_value("labels", -1), BAD_LABEL),
    "a next sentence below 0": (set_value("next_sentence_label", -1), f"column next_sentence_label {NEGATIVE}"),
    "one beyond int32": (set_value("next_sentence_label", 2**31), f"column next_sentence_label {NEGATIVE}"),
    "one that wraps to 1": (set_value("next_sentence_label", 2**32 + 1), f"column next_sentence_label {NEGATIVE}"),
    "too many labels": (
        set_value("labels", [5] * 4 + [-100] * 12, place=None),
        "column labels predicts 4 tokens, expected 3 at most; make the file again",
    ),
}


@pytest.mark.parametrize("fault", BAD_RECORDS)
def test_a_bad_record_is_named_and_the_others_are_read(fault: str, tmp_path: Path) -> None:
    table, words = BAD_RECORDS[fault]
    path = tmp_path / "a"
    write_stream(table, path)
    good = [row for row in range(23) if row != 7]
    with records.open(path) as file:
        assert_same(file[good], rows_of(EXAMPLES, good))
        for read in (lambda: file[:], lambda: file[[3, 7]]):
            with pytest.raises(BertprepError) as caught:
                read()
            assert str(caught.value) == f"{path}: record 7: {words}"
    with RecordSet([path], vocab_size=30_522) as opened:
        room = PretrainingExamples.empty(23, seq=16, pred=3)
        assert [bad.number for bad in opened.gather_good(room, np.arange(23))] == [7]
    scan = RecordScan(path, "a")
    assert list(chain.from_iterable(numbers.tolist() for _, numbers in scan.intact_blocks(None))) == good
    assert [(finding.record, finding.count) for finding in scan.findings] == [(7, 1)]
    scan.close()


def of_text(path: Path) -> None:
    write_parquet(pa.table({"text": ["One."]}), path)


def table_with(name: str, values: Iterable[Any], kind: Any = None) -> Callable[[Path], None]:
    number = BARE.schema.get_field_index(name)
    return lambda path: write_stream(BARE.set_column(number, name, pa.array(list(values), kind)), path)


def packed(path: Path) -> None:
    write_stream(TABLE, path)
    path.write_bytes(gzip.compress(path.read_bytes()))


def longer(path: Path) -> None:
    write_stream(TABLE, path)
    path.write_bytes(path.read_bytes() + bytes(16))


NOT_LABELS = "record 7: column labels cannot be fixed_size_list<item: int32>[16]: "
SCORES = table_of(column_examples(records.RegressionExamples, 9))
REFUSED: dict[str, tuple[Callable[[Path], None], str]] = {
    "text": (of_text, "has no column input_ids, so it holds no records; give a file that bertprep create or a tool like it has "
             "made; bertprep shard --input reads text"),
    "a column missing": (lambda path: write_stream(BARE.drop_columns(["token_type_ids"]), path),
                         "column token_type_ids is missing; give a file of pretraining records"),
    "a column twice": (lambda path: write_stream(BARE.append_column("labels", BARE["labels"]), path),
                       "column labels occurs in it more than once; give a file of pretraining records"),
    "tokens as text": (table_with("input_ids", ["1 2"] * 23), "column input_ids has the type string, expected lists of 1 to "
                       "65,535 integers; give a file that bertprep create or a tool like it has made"),
    "tokens as floats": (table_with("input_ids", [[0.5]] * 23), "column input_ids has the type list<item: double>, expected "
                         "lists of 1 to 65,535 integers; give a file that bertprep create or a tool like it has made"),
    "lists in lists": (table_with("input_ids", [[[1]]] * 23), "column input_ids has the type list<item: list<item: int64>>, "
                       "expected lists of 1 to 65,535 integers; give a file that bertprep create or a tool like it has made"),
    "lengths that differ by their type": (table_with("labels", [[1] * 9] * 23, pa.list_(pa.int32(), 9)),
                                          "record 0: column labels cannot be fixed_size_list<item: int32>[16]: "),
    "a record of another length": (table_with("labels", [[1] * 16] * 7 + [[1] * 15] + [[1] * 16] * 15), NOT_LABELS),
    "a null list": (table_with("labels", [[1] * 16] * 7 + [None] + [[1] * 16] * 15), f"{NOT_LABELS}a value is null; "),
    "a null in a list": (table_with("labels", [[1] * 16] * 7 + [[None] * 16] + [[1] * 16] * 15),
                         f"{NOT_LABELS}a value is null; "),
    "a null": (table_with("next_sentence_label", [1] * 7 + [None] * 16),
               "record 7: column next_sentence_label cannot be int64: a value is null; "),
    "a token that wraps to 1": (lambda path: write_stream(set_value("input_ids", 2**32 + 1, table=WIDE), path),
                                "record 7: column input_ids cannot be fixed_size_list<item: int32>[16]: Integer value "
                                "4294967297 not in range: -2147483648 to 2147483647; "),
    "a mask that wraps to 1": (lambda path: write_stream(set_value("attention_mask", 2**32 + 1, table=WIDE), path),
                               "record 7: column attention_mask cannot be fixed_size_list<item: int8>[16]: "),
    "a label that wraps to -100": (lambda path: write_stream(set_value("labels", 2**32 - 100, table=WIDE), path), NOT_LABELS),
    "a label that wraps to -100 in 64 bits": (table_with("labels", [[1] * 16] * 7 + [[2**64 - 100] * 16] + [[1] * 16] * 15,
                                              pa.list_(pa.uint64())), NOT_LABELS),
    "a score beyond float32": (lambda path: write_stream(SCORES.set_column(
                                   3, "labels", pa.array([0.5] * 7 + [1e300, np.inf])), path),
                               "record 7: column labels cannot be float: a value is beyond any float32; "),
    "lists without end": (lambda path: write_parquet(BARE.drop_columns(["labels"]).append_column(
                              "labels", pa.array([[0] * 2_000_000] + [[]] * 22)), path),
                          "record 0: column labels cannot be fixed_size_list<item: int32>[16]: "),
    "no records": (lambda path: write_stream(TABLE[:0], path), "holds no records; make it again"),
    "no records in Parquet": (lambda path: write_parquet(TABLE[:0], path), "holds no records; make it again"),
    "gzip": (packed, "is a compressed Arrow file, which no trainer reads; decompress it"),
    "more after the end": (longer, "after 23 records: after the end of the stream come 16 more bytes; appended to or damaged, "
                           "make the file again"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_what_holds_no_sound_records_is_refused_in_one_line(what: str, tmp_path: Path) -> None:
    write, words = REFUSED[what]
    write(tmp_path / "a")
    with pytest.raises(BertprepError) as caught:
        records.open(tmp_path / "a")
    assert str(caught.value).startswith(f"{tmp_path / 'a'}: {words}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("suffix", [".arrow", ".parquet"])
def test_any_truncation_is_found(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"a{suffix}"
    write_any(EXAMPLES, path)
    content = path.read_bytes()
    for size in [*range(0, len(content), 97), *range(len(content) - 24, len(content))]:
        path.write_bytes(content[:size])
        with pytest.raises(BertprepError):
            records.open(path)


def test_the_whole_batches_of_a_file_that_was_cut_are_validated(tmp_path: Path) -> None:
    path = tmp_path / "a"
    write_stream(TABLE, path)
    os.truncate(path, path.stat().st_size - 100)
    scan = RecordScan(path, "a")
    assert [len(numbers) for _, numbers in scan.intact_blocks(None)] == [20]
    (finding,) = scan.findings
    assert (finding.code, finding.record) == ("truncated", 20)
    scan.close()


def test_formats_are_mixed_and_their_index_is_kept(tmp_path: Path) -> None:
    folder = tmp_path / "training"
    folder.mkdir()
    parts = [column_examples(PretrainingExamples, count, seed=count) for count in (30, 1, 12, 7)]
    for number, (examples, name) in enumerate(zip(parts, ("arrow", "tfrecord", "parquet", "ofrecord"), strict=True)):
        write_examples([examples], {name: folder / f"x_training_0000{number}.{name}"})
    whole = PretrainingExamples(*map(np.concatenate, zip(*(part.arrays for part in parts), strict=True)))
    numbers = np.random.default_rng(0).permutation(50)
    index = tmp_path / ".record-index.training"
    kept = []
    for _ in range(2):  # found, and then from the index
        with RecordSet([tmp_path], vocab_size=30_522, max_open=1) as opened:
            assert (len(opened), opened.formats) == (50, ["arrow", "ofrecord", "parquet", "tfrecord"])
            room = PretrainingExamples.empty(50, seq=16, pred=3)
            opened.gather_into(room, numbers)
            assert_same(room, rows_of(whole, numbers))
        kept.append((index.stat().st_ino, index.read_bytes()))
    assert kept[0] == kept[1]


FORGERIES: dict[str, Callable[[dict[str, Any], NDArray[np.int64]], Any]] = {
    "more records than offsets": lambda file, _: file.update(records=29),
    "no records": lambda file, _: file.update(records=-1),
    "an offset beyond the file": lambda _, offsets: np.put(offsets, -3, 10**12),
    "an offset before the file": lambda _, offsets: np.put(offsets, -3, -(10**12)),
    "an offset before the one before it": lambda _, offsets: np.put(offsets, -3, 0),
    "more tokens than any record has": lambda file, _: file.update(seq=10**12),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_forged_index_is_not_believed(forgery: str, tmp_path: Path) -> None:
    """Its checksum is right; what it says of 23 records of Arrow, then of TFRecord, would be read at any address."""
    for name in ("arrow", "tfrecord"):
        write_examples([EXAMPLES], {name: tmp_path / f"a.{name}"})
    RecordSet([tmp_path]).close()
    place, paths = record_index.index_path(tmp_path), [tmp_path / "a.arrow", tmp_path / "a.tfrecord"]
    line, _, content = place.read_bytes().partition(b"\n")
    header, offsets = json.loads(line), np.frombuffer(content, np.int64).copy()
    assert record_index._read(place, paths) is not None
    FORGERIES[forgery](header["files"][1], offsets)
    header["checksum"] = masked_checksum(offsets.view(np.uint8))
    line = json.dumps(header).encode()
    place.write_bytes(line + b" " * (-len(line) % 8 + 7) + b"\n" + offsets.tobytes())
    assert record_index._read(place, paths) is None
    with RecordSet([tmp_path]) as opened:
        room = PretrainingExamples.empty(46, seq=16, pred=3)
        opened.gather_into(room, np.arange(46))
        assert_same(room[23:], EXAMPLES)


def test_files_that_do_not_say_their_predictions_have_room_for_the_most(tmp_path: Path) -> None:
    few = column_examples(PretrainingExamples, 8, pred=2)
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        write_stream(table_of(few).replace_schema_metadata(None), tmp_path / folder / "data-00000-of-00002.arrow")
        write_stream(BARE, tmp_path / folder / "data-00001-of-00002.arrow")
    for _ in range(2):
        with RecordSet([tmp_path / "a"]) as opened:
            assert (opened.pred, len(opened)) == (3, 31)
            room = PretrainingExamples.empty(31, seq=16, pred=3)
            opened.gather_into(room, np.arange(31))
            assert room.masked_lm_positions[:8, 2].tolist() == [0] * 8
    (outcome,) = bertprep.validate([tmp_path / "a"], workers=1)
    assert (outcome.pred, "mixed-shape" in {finding.code for finding in outcome.findings}) == (3, False)
    bertprep.convert(tmp_path / "a", tmp_path / "c", to="tfrecord", workers=1)
    with RecordSet([tmp_path / "c"]) as opened:
        assert (opened.pred, len(opened)) == (3, 31)
    with records.open(tmp_path / "b" / "data-00000-of-00002.arrow") as file:
        assert (file.pred, file.knows_pred) == (2, False)
    (tmp_path / "b" / "dataset_info.json").write_text('{"description": "Records: max_predictions_per_seq=20, ..."}')
    with records.open(tmp_path / "b" / "data-00000-of-00002.arrow") as file:
        assert (file.pred, file.knows_pred) == (2, False)  # 20 are more than its 16 tokens
    (tmp_path / "b" / "dataset_info.json").write_text('{"description": "Records: max_predictions_per_seq=5, ..."}')
    with RecordSet([tmp_path / "b"]) as opened:
        assert opened.pred == 5


def test_folders_and_splits_that_do_not_say_their_predictions_agree(tmp_path: Path) -> None:
    few = table_of(column_examples(PretrainingExamples, 8, pred=2)).replace_schema_metadata(None)
    for folder, table in (("a/train", BARE), ("a/test", few), ("b/train", few)):
        (tmp_path / folder).mkdir(parents=True)
        write_stream(table, tmp_path / folder / "data-00000-of-00001.arrow")
    for _ in range(2):  # found, and then from the index
        with RecordSet([tmp_path / "a", tmp_path / "b"]) as opened, RecordSet([tmp_path / "a"], "test") as test:
            assert (opened.pred, len(opened), test.pred, len(test)) == (3, 31, 3, 8)
            room = PretrainingExamples.empty(31, seq=16, pred=3)
            opened.gather_into(room, np.arange(31))
            assert_same(room[:23], EXAMPLES)
            assert room.masked_lm_positions[23:, 2].tolist() == [0] * 8
    write_examples([column_examples(PretrainingExamples, 4, pred=5)], {"arrow": tmp_path / "b" / "train" / "x.arrow"})
    with RecordSet([tmp_path / "a", tmp_path / "b"]) as opened:
        assert opened.pred == 5


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
        with RecordSet([tmp_path / folder]) as opened:
            assert (opened.shape, len(opened)) == (EXAMPLES.shape, len(expected))
            room = PretrainingExamples.empty(len(expected), seq=16, pred=3)
            opened.gather_into(room, np.arange(len(expected)))
            assert_same(room, expected)
    assert find_records(tmp_path / "hub").splits == ["training", "test"]
    with RecordSet([tmp_path / "hub"], "test") as opened:
        assert len(opened) == 5

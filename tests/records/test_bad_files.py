"""Files that are not as they must be: each fault has its one line, and no bytes whatever crash the reader or deceive it.

tests/test_fuzzing.py damages files of all formats at random.
"""

from __future__ import annotations

import gzip
import os
import struct
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bertprep import records
from bertprep.check.record_scan import RecordScan
from bertprep.errors import BertprepError
from bertprep.records import ClassificationExamples, PretrainingExamples, RegressionExamples, SquadEvalExamples, SquadExamples
from bertprep.records.records import Records
from bertprep.records.write import write_examples
from tests.records.columns import assert_same, column_examples, rows_of, table_of, write_any, write_parquet, write_stream
from tests.records.handmade import FIRST, SECOND, Record, Variant, field, file_of, frame, masked, message, serialize, varint
from tests.records.task_records import task_examples

TFRECORD, OFRECORD = Variant(), Variant("ofrecord")
TWO, TWO_OF = file_of(FIRST, SECOND), file_of(FIRST, SECOND, variant=OFRECORD)
SIZE, SIZE_OF = len(file_of(FIRST)), len(file_of(FIRST, variant=OFRECORD))  # of the first of the two
AGAIN = "; remove it and make it again"
DAMAGED, CUT = (
    f"; the file is corrupt{AGAIN}",
    f"; the file is truncated or corrupt{AGAIN}",
)


def changed(content: bytes, at: int) -> bytes:
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


def without(name: str) -> Record:
    return {key: values for key, values in FIRST.items() if key != name}


def checksum_fault(what: str, content: bytes, start: int, stop: int) -> tuple[str, bytes, str]:
    stored, computed = content[stop : stop + 4], masked(content[start:stop])
    line = f"record 1: the checksum of its {what} is {stored[::-1].hex()}, expected {computed[::-1].hex()}{DAMAGED}"
    return f"checksum of the {what}", content, line


def with_feature(variant: Variant, name: str, feature: bytes, record: Record = FIRST) -> bytes:
    """A valid record, and the same with something else for a feature."""
    entry = field(1, field(1, name.encode()) + field(2, feature))
    others = message({key: values for key, values in record.items() if key != name}, variant)
    body = others + (field(1, entry) if variant.record_format == "tfrecord" else entry)
    return file_of(record, variant=variant) + frame(body, variant.record_format)


def faults() -> Iterator[tuple[str, bytes, str]]:
    """(what is wrong, a file, what the reader says of it)."""
    yield "empty", b"", "is empty; make it again"
    yield "empty gzip", gzip.compress(b""), "is empty; make it again"
    for content in (b"x", b"[CLS] is text", b'{"input_ids": [101, 2054]}', bytes(100), b"\xfe" * 100):
        line = f"is neither TFRecord, OFRecord, Arrow nor Parquet: it has {len(content)} bytes and begins with "
        line += f"{content[:12].hex(' ')}; give a file that bertprep create or a similar tool has made"
        yield f"no records: {content[:5]!r}", content, line
    packed, gone = gzip.compress(TWO), "cannot be decompressed: "
    ended = f"{gone}Compressed file ended before the end-of-stream marker was reached{DAMAGED}"
    yield "gzip cut off", packed[:-20], ended
    yield "gzip with another checksum", changed(packed, len(packed) - 5), gone
    for end in (b"x", b"garbage", b"\x1f\x8b"):
        yield f"gzip followed by {end!r}", packed + end, gone
    line = "is OFRecord compressed by gzip, which trainers do not read; decompress it"
    yield "gzip of OFRecord", gzip.compress(TWO_OF), line

    yield checksum_fault("data", changed(TWO, SIZE + 52), SIZE + 12, len(TWO) - 4)
    yield checksum_fault("length", changed(TWO, SIZE), SIZE, SIZE + 8)
    data, data_of = len(TWO) - SIZE - 16, len(TWO_OF) - SIZE_OF - 8
    must = "its length says that {} more bytes follow, found {}" + CUT
    yield "cut off", TWO[:-1], f"record 1: {must.format(data + 4, data + 3)}"
    yield "cut off, OFRecord", TWO_OF[:-1], f"record 1: {must.format(data_of, data_of - 1)}"
    yield "cut off in the first", TWO_OF[:20], f"record 0: {must.format(SIZE_OF - 8, 12)}"
    huge, impossible = struct.pack("<Q", 2**63 - 1), f"its length is impossibly large{DAMAGED}"
    yield "a huge length", TWO + huge + masked(huge) + bytes(100), f"record 2: {impossible}"
    yield "a negative length", TWO_OF + struct.pack("<q", -1) + bytes(100), f"record 2: {impossible}"
    left = "bytes for it, expected {} or more; the file was truncated or appended to; remove it and make it again"
    yield "bytes left", TWO + b"\n", f"record 2: found 1 {left.format(16)}"
    yield "bytes left, OFRecord", TWO_OF + b"1234567", f"record 2: found 7 {left.format(8)}"
    line = "record 0: feature segment_ids has 9 values, expected 8 like input_ids in record 0; make the file again"
    yield "a first record that disagrees with itself", file_of({**FIRST, "segment_ids": [0] * 9}), line
    line = "record 0: feature input_ids has 0 values, expected 1 or more; make the file again"
    yield "a first record without tokens", file_of({name: [] for name in FIRST}), line
    line = "record 1: feature input_ids occurs more than once; make the file again"
    yield "a feature twice", file_of(FIRST, {**FIRST, "input_word_ids": FIRST["input_ids"]}), line

    for variant, title in ((TFRECORD, "tf.train.Example"), (OFRECORD, "OFRecord")):
        name, first = variant.record_format, file_of(FIRST, variant=variant)
        line = f"record 1: it is not a valid {title} message; the file is corrupt, or has no such records{AGAIN}"
        for content in (b"\x0a", b"\x0a\x05", b"\x07", b"\x00\x00", b"\x0a\x01\x0a", b"\x08" + b"\xff" * 12):
            yield f"message {content.hex()}, {name}", first + frame(content, name), line
        number = 3 if name == "tfrecord" else 5
        cut_list = with_feature(variant, "input_mask", field(number, b"\x0a\x05"))  # of five bytes, none of which is there
        yield f"a list cut off, {name}", cut_list, line
        yield f"a list cut off in the first, {name}", cut_list[len(first) :], line.replace("record 1", "record 0")
        for feature, values in FIRST.items():
            line = f"feature {feature} is missing; give a file of BERT pretraining records"
            yield f"no {feature}, {name}", first + file_of(without(feature), variant=variant), f"record 1: {line}"
            if feature != "next_sentence_labels":  # without these in any record, they are records without sentence pairs
                yield f"never {feature}, {name}", file_of(without(feature), variant=variant), f"record 0: {line}"
            reason = {8: " like input_ids in record 0", 2: " like masked_lm_positions in record 0", 1: ""}[len(values)]
            for wrong in (values[:-1], [*values, 0]):
                line = f"has {len(wrong)} values, expected {len(values)}{reason}; make the file again"
                for packed_or_not in (variant, Variant(name, packed=False)):
                    content = first + file_of({**FIRST, feature: wrong}, variant=packed_or_not)
                    yield f"{len(wrong)} {feature}, {packed_or_not}", content, f"record 1: feature {feature} {line}"
        for feature, values, highest in (
            ("masked_lm_ids", (-1, 2**31, -(2**31), 2**63 - 1), "2,147,483,647"),
            ("input_mask", (-1, 256, 300, 2**31, -(2**63)), "255"),
            ("next_sentence_labels", (-1, 256, 65_536), "255"),
        ):
            for value, is_packed in product(values, (True, False)):
                changed_values = [*FIRST[feature][:-1], value]
                content = first + file_of({**FIRST, feature: changed_values}, variant=Variant(name, packed=is_packed))
                line = f"record 1: feature {feature} has the value {value:,}, expected 0 to {highest}; make the file again"
                yield f"{feature} {value}, {name} {is_packed}", content, line
        lists, floats, unknown = {
            "tfrecord": ("int64_list", "float_list", "an unknown list"),
            "ofrecord": ("int32_list or int64_list", "float_list or double_list", "an int64_list"),
        }[name]
        advice = "give a file of BERT pretraining records"
        for number, found in ((b"", "no list"), (field(1, b""), "a bytes_list"), (field(2, b""), "a float_list")):
            line = f"record 1: feature input_mask is {found}, expected {lists}; {advice}"
            yield f"{found}, {name}", with_feature(variant, "input_mask", number), line
        line = f"record 1: feature masked_lm_weights is {unknown}, expected {floats}; {advice}"
        yield f"weights of {unknown}", with_feature(variant, "masked_lm_weights", field(5, b"")), line

    for kind, feature, missing, title in (
        (SquadExamples, "end_positions", "end_positions", "SQuAD"),
        (SquadEvalExamples, "input_mask", "input_mask", "SQuAD"),
        (SquadEvalExamples, "unique_ids", "masked_lm_positions", "BERT pretraining"),
        (ClassificationExamples, "is_real_example", "is_real_example", "classification"),
        (RegressionExamples, "segment_ids", "segment_ids", "regression"),
    ):
        content = frame(serialize(task_examples(kind, 1), 0, "tfrecord", without=feature))
        line = f"record 0: feature {missing} is missing; give a file of {title} records"
        yield f"{kind.title} without {feature}", content, line
    both = (serialize(task_examples(kind, 1), 0, "tfrecord") for kind in (ClassificationExamples, RegressionExamples))
    line = "record 1: feature label_ids is a float_list, expected int64_list; give a file of classification records"
    yield "labels of another type", b"".join(map(frame, both)), line


FAULTS = {name: each for name, *each in faults()}


WAYS = lambda file: file[:], lambda file: list(file.blocks(1)), lambda file: file[np.arange(len(file))]


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_has_its_line_whatever_the_way_of_reading(fault: str, tmp_path: Path) -> None:
    path, (content, line) = tmp_path / "records", FAULTS[fault]
    path.write_bytes(content)
    for read in WAYS:
        with pytest.raises(BertprepError) as caught:
            read(records.open(path))
        said = str(caught.value)
        assert said == f"{path}: {line}" or (line.endswith(": ") and said.startswith(f"{path}: {line}"))
        assert "\n" not in said


def test_what_is_no_file_is_named(tmp_path: Path) -> None:
    for path, line in (
        (tmp_path / "none", "No such file or directory"),
        (tmp_path, "it is not a plain file"),
    ):
        with pytest.raises(BertprepError) as caught:
            records.open(path)
        assert str(caught.value) == f"{path}: cannot be read: {line}; name a record file"


numbers = st.integers(0, 127) | st.integers(0, 2**21) | st.integers(0, 2**31 - 1)
runs = st.lists(st.tuples(numbers, st.integers(1, 40)), min_size=1, max_size=12)
edits = st.just((0, b"")) | st.tuples(st.integers(0, 500), st.binary(min_size=1, max_size=9))


@given(runs=runs, edit=edits, more=st.sampled_from([0, 0, 0, 1, -1]))
@example(runs=[(300, 200)], edit=(99, varint(-1)[:9]), more=0)
@example(runs=[(300, 200)], edit=(391, b"\x80" * 9), more=0)
@example(runs=[(7, 200)], edit=(0, b""), more=-1)
def test_packed_numbers_are_those_of_the_definition(
    runs: list[tuple[int, int]], edit: tuple[int, bytes], more: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A fault where they do not end, are too many or too few, or too large for an int32; and nothing is written after them."""
    content = b"".join(varint(value) * repeats for value, repeats in runs)
    expected = max(1, sum(repeats for _, repeats in runs) + more)
    start = edit[0] % len(content)
    content = content[:start] + edit[1] + content[start + len(edit[1]) :]
    values: list[int] = []
    at = 0
    while at < len(content) and (not values or 0 <= values[-1] < 2**31):
        size = next((k + 1 for k, byte in enumerate(content[at : at + 9]) if byte < 0x80), 0)
        values.append(sum((byte & 0x7F) << 7 * k for k, byte in enumerate(content[at : at + size])) if size else -1)
        at += size
    is_good = len(values) == expected and 0 <= values[-1] < 2**31
    path, record = tmp_path_factory.getbasetemp() / "packed", {**FIRST}
    record |= dict.fromkeys(("input_ids", "input_mask", "segment_ids"), [0] * expected)
    two = with_feature(OFRECORD, "input_ids", field(4, field(1, content)), record)
    room = PretrainingExamples.empty(3, seq=expected, pred=2)
    for behind in (0, 9):  # at the end of the file, and before more of it
        path.write_bytes(two + behind * file_of(record, variant=OFRECORD))
        room.input_ids[...] = -7
        with records.open(path) as file:
            if is_good:
                file.gather_into(room, range(2))
                assert room.input_ids[1].tolist() == values
            else:
                with pytest.raises(BertprepError, match=f"^{path}: record 1: "):
                    file.gather_into(room, range(2))
        assert (room.input_ids[2] == -7).all()


# --- Arrow and Parquet


EXAMPLES = column_examples(PretrainingExamples, 23)
TABLE = table_of(EXAMPLES)
BARE = TABLE.replace_schema_metadata(None)
WIDE = TABLE.cast(pa.schema([pa.field(f.name, pa.list_(pa.int64()) if "list" in str(f.type) else f.type) for f in BARE.schema]))
Write = Callable[[Path], None]


def set_value(name: str, value: Any, table: pa.Table = TABLE) -> pa.Table:
    """The table with another value in record 7, or another list in its place."""
    values = table[name].to_pylist()
    if isinstance(values[7], list) and not isinstance(value, list):
        values[7][4] = value
    else:
        values[7] = value
    number = table.schema.get_field_index(name)
    return table.set_column(number, table.schema.field(number), pa.array(values, table.schema.field(number).type))


BAD_LABEL = (
    "column labels has the value -1, expected 0 to 2,147,483,647, or -100 where nothing is predicted; make the file again"
)
BAD_RECORDS: dict[str, tuple[pa.Table, str]] = {
    "a token below 0": (
        set_value("input_ids", -1), "column input_ids has the value -1, expected 0 to 2,147,483,647; make the file again"
    ),
    "a mask below 0": (
        set_value("attention_mask", -128),
        "column attention_mask has the value -128, expected 0 to 127; make the file again",
    ),
    "a label below 0": (set_value("labels", -1), BAD_LABEL),
    "a label beyond a byte": (
        set_value("next_sentence_label", 2**31),
        "column next_sentence_label has the value 2,147,483,648, expected 0 to 255; make the file again",
    ),
    "too many labels": (
        set_value("labels", [5] * 4 + [-100] * 12), "column labels predicts 4 tokens, expected at most 3; make the file again"
    ),
}  # fmt: skip


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
    with Records([path], vocab_size=30_522) as opened:
        room = PretrainingExamples.empty(23, seq=16, pred=3)
        assert [bad.index for bad in opened.gather_good(room, np.arange(23))] == [7]
    scan = RecordScan(path, "a")
    assert list(chain.from_iterable(numbers.tolist() for _, numbers in scan.intact_blocks(None))) == good
    assert [(finding.record, finding.count) for finding in scan.findings] == [(7, 1)]
    scan.close()


def table_with(name: str, values: Iterable[Any], kind: Any = None) -> Write:
    number = BARE.schema.get_field_index(name)
    return lambda path: write_stream(BARE.set_column(number, name, pa.array(list(values), kind)), path)


def labels(seventh: Any, kind: Any = None) -> Write:
    return table_with("labels", [[1] * 16] * 7 + [seventh] + [[1] * 16] * 15, kind)


def stream_of(table: pa.Table, change: Callable[[bytes], bytes] = bytes) -> Write:
    def write(path: Path) -> None:
        write_stream(table, path)
        path.write_bytes(change(path.read_bytes()))

    return write


def endless(path: Path) -> None:
    longest = pa.array([[0] * 2_000_000] + [[]] * 22)
    write_parquet(BARE.drop_columns(["labels"]).append_column("labels", longest), path)


GIVE = "; give a file from bertprep create or a similar tool"
LISTS = f"expected lists of 1 to 65,535 integers{GIVE}"
NOT_LABELS = "record 7: column labels cannot be converted to fixed_size_list<item: int32>[16]: "
SCORES = table_of(column_examples(RegressionExamples, 9))
BEYOND = SCORES.set_column(3, "labels", pa.array([0.5] * 7 + [1e300, np.inf]))
ENDED = f"after 23 records: 16 bytes follow the end of the stream; the file was appended to or is corrupt{AGAIN}"
REFUSED: dict[str, tuple[Write, str]] = {
    "text": (lambda path: write_parquet(pa.table({"text": ["One."]}), path),
             f"has no column input_ids, so it contains no records{GIVE}; if it is text, use bertprep shard --input"),
    "a column missing": (stream_of(BARE.drop_columns(["token_type_ids"])),
                         "column token_type_ids is missing; give a file of pretraining records"),
    "a column twice": (stream_of(BARE.append_column("labels", BARE["labels"])),
                       "column labels occurs more than once; give a file of pretraining records"),
    "tokens as text": (table_with("input_ids", ["1 2"] * 23), f"column input_ids has the type string, {LISTS}"),
    "tokens as floats": (table_with("input_ids", [[0.5]] * 23), f"column input_ids has the type list<item: double>, {LISTS}"),
    "a record of another length": (labels([1] * 15), NOT_LABELS),
    "a null list": (labels(None), f"{NOT_LABELS}a value is null; "),
    "a null in a list": (labels([None] * 16), f"{NOT_LABELS}a value is null; "),
    "a null": (table_with("next_sentence_label", [1] * 7 + [None] * 16),
               "record 7: column next_sentence_label cannot be converted to int64: a value is null; "),
    "a token that wraps to 1": (stream_of(set_value("input_ids", 2**32 + 1, WIDE)),
                                "record 7: column input_ids cannot be converted to fixed_size_list<item: int32>[16]: Integer "
                                "value 4294967297 not in range: -2147483648 to 2147483647; "),
    "a label that wraps to -100 in 64 bits": (labels([2**64 - 100] * 16, pa.list_(pa.uint64())), NOT_LABELS),
    "a score beyond float32": (stream_of(BEYOND),
                               "record 7: column labels cannot be converted to float: a value is too large for float32; "),
    "lists without end": (endless, "record 0: column labels cannot be converted to fixed_size_list<item: int32>[16]: "),
    "no records": (stream_of(TABLE[:0]), "contains no records; remove it and make it again"),
    "no records in Parquet": (lambda path: write_parquet(TABLE[:0], path), "contains no records; remove it and make it again"),
    "gzip": (stream_of(TABLE, gzip.compress), "is Arrow compressed by gzip, which trainers do not read; decompress it"),
    "more after the end": (stream_of(TABLE, lambda content: content + bytes(16)), ENDED),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_columns_that_hold_no_records_are_refused_in_one_line(what: str, tmp_path: Path) -> None:
    write, words = REFUSED[what]
    write(tmp_path / "a")
    with pytest.raises(BertprepError) as caught:
        records.open(tmp_path / "a")
    assert str(caught.value).startswith(f"{tmp_path / 'a'}: {words}")
    assert "\n" not in str(caught.value)


# --- all formats


@pytest.mark.parametrize("name", ["a.tfrecord", "a.ofrecord", "a.gz", "a.arrow", "a.parquet"])
def test_any_truncation_is_found_or_leaves_whole_records(name: str, tmp_path: Path) -> None:
    path, some = tmp_path / name, EXAMPLES[:7]
    if path.suffix in (".arrow", ".parquet"):
        write_any(some, path)
    else:
        write_examples([some], {"ofrecord" if path.suffix == ".ofrecord" else "tfrecord": path})
    ends = {} if path.suffix == ".gz" else {size: count for count, size in enumerate(records.open(path).offsets.tolist())}
    content = gzip.compress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    for size in {*ends, *range(0, len(content), 97), *range(len(content) - 24, len(content))}:
        path.write_bytes(content[:size])
        if ends.get(size):
            assert_same(records.open(path)[:], some[: ends[size]])
            continue
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

"""Each kind of record in each format: the bytes are the format's, and every value comes back, also through a conversion."""

from __future__ import annotations

import gzip
import io
import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bertprep
from bertprep import records
from bertprep.cli import main
from bertprep.config import RECORD_FORMATS, RecordFormat, Variant
from bertprep.errors import BertprepError
from bertprep.files.checksums import digest
from bertprep.kernels.numbers import MAX_BYTE
from bertprep.records import KINDS, Examples, MaskedExamples, PretrainingExamples, SquadExamples, TokenClassificationExamples
from bertprep.records.columns import NoColumnsError, schema_of
from bertprep.records.dataset_info import DatasetFolder
from bertprep.records.examples import Shape
from bertprep.records.open_file import MIN_RECORD_BYTES
from bertprep.records.write import write_examples
from bertprep.work.layout import is_saved
from tests.records.columns import assert_same, column_examples, rows_of, table_of
from tests.records.handmade import FIRST, SECOND, Record, file_of, frame, serialize

OTHER = {"tfrecord": "ofrecord", "ofrecord": "tfrecord"}
SEQ, PRED = 37, 5  # so that no column of bytes ends where the next may begin
by_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.title)


@by_kind
@pytest.mark.parametrize("formats", [["tfrecord"], ["ofrecord"], ["tfrecord", "ofrecord"]], ids=str)
def test_protobuf_is_written_as_it_is_by_hand(formats: list[str], kind: type[Examples], tmp_path: Path) -> None:
    examples = column_examples(kind, 30, seq=SEQ, pred=PRED)
    written = write_examples([examples[:7], examples[7:]], {name: tmp_path / name for name in formats})
    for name in formats:
        expected = b"".join(frame(serialize(examples, row, name), name) for row in range(30))
        assert (tmp_path / name).read_bytes() == expected
        assert vars(written[name]) == {"records": 30, "bytes": len(expected), "blake3": digest(expected)}


@pytest.mark.parametrize("seq", [*range(120, 132), *range(16_376, 16_388)])
def test_the_length_of_a_list_may_take_a_byte_more_than_that_of_its_values(seq: int, tmp_path: Path) -> None:
    """A list of 126 values of a byte has a length of 128 with what is around them, which is a varint of two bytes."""
    examples = PretrainingExamples.empty(2, seq=seq, pred=1)
    examples[:] = 0
    written = [RecordFormat.TFRECORD, RecordFormat.OFRECORD]
    write_examples([examples], {name: tmp_path / name for name in written})
    for name in written:
        expected = b"".join(frame(serialize(examples, row, name), name) for row in range(2))
        assert (tmp_path / name).read_bytes() == expected


@by_kind
@pytest.mark.parametrize("count", [1, 2100])
def test_arrow_is_written_as_pyarrow_writes_it(count: int, kind: type[Examples], tmp_path: Path) -> None:
    examples = column_examples(kind, count, seq=SEQ, pred=PRED)
    blocks = [examples[start : start + 300] for start in range(0, count, 300)]
    write_examples(blocks, {"arrow": tmp_path / "file.arrow"})
    theirs, table = io.BytesIO(), table_of(examples)
    with pa.ipc.new_stream(theirs, table.schema) as writer:
        writer.write_table(table, max_chunksize=1024)
    assert (tmp_path / "file.arrow").read_bytes() == theirs.getvalue()


@by_kind
def test_parquet_has_the_same_columns(kind: type[Examples], tmp_path: Path) -> None:
    examples = column_examples(kind, 8200, seq=9, pred=2)
    write_examples([examples[:7], examples[7:]], {"parquet": tmp_path / "file.parquet"})
    with pq.ParquetFile(tmp_path / "file.parquet") as file:
        assert [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)] == [8192, 8]
        assert file.schema_arrow.metadata == schema_of(examples.sizes).metadata
        found = file.read(use_threads=False)
    assert found.cast(schema_of(examples.sizes)).equals(table_of(examples))
    lists = [field.type.list_size for field in found.schema if pa.types.is_fixed_size_list(field.type)]
    assert lists == [9] * (3 + issubclass(kind, MaskedExamples | TokenClassificationExamples))


@by_kind
@pytest.mark.parametrize("record_format", RECORD_FORMATS)
def test_records_come_back_by_every_way_of_reading(record_format: str, kind: type[Examples], tmp_path: Path) -> None:
    examples, path = column_examples(kind, 2500), tmp_path / "a"
    write_examples([examples[:7], examples[7:]], {record_format: path})
    order = np.random.default_rng(1).permutation(2500)
    with records.open(path) as file:
        assert (file.format, file.shape, len(file)) == (record_format, examples.sizes, 2500)
        assert_same(file[:], examples)
        assert_same(file[order], rows_of(examples, order))
        for number, block in enumerate(file.blocks(300)):
            assert_same(block, examples[300 * number : 300 * number + 300])
        assert number == 8
        room = kind.empty(12, seq=16, pred=file.pred)
        file.gather_into(room, range(2495, 2500), row=5)
        file.gather_into(room, np.array([0, -1]), row=10)
        assert_same(room[5:], rows_of(examples, [*range(2495, 2500), 0, 2499]))
    assert_same(pickle.loads(pickle.dumps(room))[5:10], examples[2495:])


@settings(max_examples=60)
@given(
    kind=st.sampled_from(KINDS),
    seq=st.integers(1, 200) | st.just(4000),
    pred=st.integers(1, 30) | st.just(600),
    most=st.sampled_from([1, 127, 128, 2**14, 2**21 - 1, 2**21, 2**28 - 1, 2**28, 2**31 - 1]),
    seed=st.integers(0, 99),
)
def test_protobuf_holds_any_values(
    tmp_path_factory: pytest.TempPathFactory, kind: type[Examples], seq: int, pred: int, most: int, seed: int
) -> None:
    """Also what the generator never makes, and lengths of records that take one byte, two and three."""
    rng = np.random.default_rng(seed)
    examples = kind.empty(9, seq=seq, pred=pred)
    for array in examples.arrays:
        values = rng.integers(0, min(most, MAX_BYTE if array.dtype == np.uint8 else most), array.shape, endpoint=True)
        array[...] = np.where(values % 7, values * -1e28, np.nan) if array.dtype == np.float32 else values
    examples.input_ids[5:] = 5
    folder = tmp_path_factory.mktemp("records")
    written = write_examples([examples[:4], examples[4:]], {name: folder / name for name in OTHER})
    for name, other in OTHER.items():
        assert written[name].blake3 == digest((folder / name).read_bytes())
        with records.open(folder / name) as file:
            assert_same(file[:], examples)
            assert_same(file[[4, 0]], rows_of(examples, [4, 0]))
        bertprep.convert(folder / name, folder / f"{name}_as_{other}", to=other)
        assert (folder / f"{name}_as_{other}").read_bytes() == (folder / other).read_bytes()


@pytest.mark.parametrize("to", RECORD_FORMATS)
@pytest.mark.parametrize("source", RECORD_FORMATS)
def test_any_format_becomes_any_other(source: str, to: str, tmp_path: Path) -> None:
    examples = column_examples(PretrainingExamples, 3000)
    for name, path in ((source, tmp_path / "source"), (to, tmp_path / "expected")):
        write_examples([examples], {name: path})
    bertprep.convert(tmp_path / "source", tmp_path / "converted", to=to)
    assert (tmp_path / "converted").read_bytes() == (tmp_path / "expected").read_bytes()


@pytest.mark.parametrize(("compress", "formats"), [("none", ["tfrecord", "ofrecord"]), ("gzip", ["tfrecord"])])
def test_bytes_do_not_depend_on_the_blocks(compress: str, formats: list[str], tmp_path: Path) -> None:
    """Of more than the megabyte that is written, hashed and compressed at a time."""
    examples = PretrainingExamples.empty(3000, seq=64, pred=10)
    rng = np.random.default_rng(0)
    for array in examples.arrays:
        array[...] = rng.integers(0, MAX_BYTE if array.dtype == np.uint8 else 2**31 - 1, array.shape, endpoint=True)
    made: dict[str, set[bytes]] = {name: set() for name in formats}
    for size in (7, 1000, 3000):
        blocks = (examples[start : start + size] for start in range(0, 3000, size))
        written = write_examples(blocks, {name: tmp_path / name for name in formats}, Variant(compress=compress))
        for name in formats:
            made[name].add(content := (tmp_path / name).read_bytes())
            assert (written[name].bytes, written[name].blake3) == (len(content), digest(content))
            assert_same(records.open(tmp_path / name)[:], examples)
    assert [len(contents) for contents in made.values()] == [1] * len(formats)
    if compress == "gzip":
        assert content.startswith(bytes.fromhex("1f8b08000000000000ff"))  # no time, no name, no system
        write_examples([examples], {"tfrecord": tmp_path / "plain"})
        assert gzip.decompress(content) == (tmp_path / "plain").read_bytes()


def test_no_example_is_an_error_and_leaves_no_file(tmp_path: Path) -> None:
    for blocks in ([], [PretrainingExamples.empty(0, seq=8, pred=2)]):
        with pytest.raises(BertprepError, match=r"part-0: there are no examples to write"):
            write_examples(blocks, {RecordFormat.OFRECORD: tmp_path / "part-0"})
        assert not list(tmp_path.iterdir())


HOLES = (
    "predictions do not fit the column labels, which has one per token: expected masked_lm_positions that ascend below 8 with "
    "weight 1, then 0 in positions, ids and weights, found "
)
BYTES = "expected 0 to 127, found"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"masked_lm_positions": [2, 1], "masked_lm_weights": [1, 1]}, f"{HOLES}[2, 1], [4937, 0], [1.0, 1.0]"),
        ({"masked_lm_positions": [2, 2], "masked_lm_weights": [1, 1]}, HOLES),
        ({"masked_lm_positions": [8, 0]}, HOLES),
        ({"masked_lm_weights": [0.5, 0]}, HOLES),
        ({"masked_lm_positions": [2, 3]}, HOLES),
        ({"masked_lm_ids": [4937, 1]}, HOLES),
        ({"masked_lm_weights": [1, -0.0]}, HOLES),
        ({"masked_lm_weights": [0, 1]}, HOLES),
        ({"input_mask": [1, 1, 128, 1, 1, 1, 1, 0]}, f"input_mask does not fit the column attention_mask: {BYTES} 128"),
        ({"segment_ids": [0, 0, 0, 0, 255, 1, 1, 0]}, f"segment_ids does not fit the column token_type_ids: {BYTES} 255"),
    ],
)
def test_what_columns_do_not_hold_is_refused(
    change: Record, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(file_of(FIRST, SECOND) * 600 + file_of({**FIRST, **change}, SECOND))
    for to, some in (("arrow", []), ("parquet", ["--pick", "601"])):
        assert main(["convert", str(source), str(target), "--to", to, *some]) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"bertprep: error: {source}: record 1200: {message}")
        assert line.endswith("; convert to TFRecord or OFRecord")
        assert not target.exists()


@pytest.mark.parametrize(("feature", "value"), [("is_impossible", 200), ("segment_ids", 128)])
def test_a_byte_is_not_exceeded_in_a_column_of_any_width(feature: str, value: int, tmp_path: Path) -> None:
    examples = column_examples(SquadExamples, 5)
    examples[feature][3] = value
    with pytest.raises(NoColumnsError, match=f"^{feature} does not fit the column .*: {BYTES} {value}$") as raised:
        write_examples([examples], {"arrow": tmp_path / "file.arrow"})
    assert raised.value.row == 3
    assert not list(tmp_path.iterdir())


def test_a_folder_is_known_to_be_saved_once_all_of_it_is(tmp_path: Path) -> None:
    (tmp_path / "dataset_info.json").mkdir()  # in whose place no file can be written
    folder = DatasetFolder(tmp_path, {"": Shape(PretrainingExamples, 16, 3)})
    for _ in range(2):
        with pytest.raises(BertprepError):
            folder.write({"a.arrow": {"bytes": 1, "examples": 1, "blake3": "0" * 64}})
        assert not is_saved(tmp_path)


@by_kind
def test_no_record_is_smaller_than_the_smallest(kind: type[Examples]) -> None:
    examples = kind(*(np.zeros_like(array) for array in kind.empty(1, seq=1, pred=1).arrays))
    assert len(frame(serialize(examples, 0, "ofrecord"), "ofrecord")) >= MIN_RECORD_BYTES

"""Records as Arrow and Parquet: the bytes that pyarrow writes, every value, and a refusal of what columns do not hold."""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bertprep.cli import main
from bertprep.errors import BertprepError
from bertprep.records import KINDS, Examples, PretrainingExamples
from bertprep.records.columns import rows_in_batch, schema_of
from bertprep.records.dataset_info import DatasetFolder
from bertprep.records.examples import Shape
from bertprep.records.write import write_examples
from bertprep.work.layout import is_saved
from tests.records.columns import column_examples, table_of
from tests.records.handmade import FIRST, SECOND, Record, file_of

SEQ, PRED = 37, 5  # so that no column of bytes ends where the next may begin


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.title)
@pytest.mark.parametrize("count", [1, 1024, 2100])
def test_the_bytes_are_those_of_pyarrow(kind: type[Examples], count: int, tmp_path: Path) -> None:
    examples = column_examples(kind, count, seq=SEQ, pred=PRED)
    blocks = [examples[start : start + 300] for start in range(0, count, 300)]
    written = write_examples(blocks, {"arrow": tmp_path / "file.arrow"})["arrow"]
    theirs = io.BytesIO()
    table = table_of(examples)
    assert rows_in_batch(examples.shape) == 1024
    with pa.ipc.new_stream(theirs, table.schema) as writer:
        writer.write_table(table, max_chunksize=1024)
    assert (tmp_path / "file.arrow").read_bytes() == theirs.getvalue()
    assert (written.records, written.bytes) == (count, len(theirs.getvalue()))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.title)
def test_parquet_has_the_same_columns(kind: type[Examples], tmp_path: Path) -> None:
    examples = column_examples(kind, 10_000, seq=SEQ, pred=PRED)
    write_examples([examples[:7], examples[7:]], {"parquet": tmp_path / "file.parquet"})
    with pq.ParquetFile(tmp_path / "file.parquet") as file:
        assert [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)] == [8192, 1808]
        assert file.schema_arrow.metadata == schema_of(examples.shape).metadata
        found = file.read(use_threads=False)
    assert found.cast(schema_of(examples.shape)).equals(table_of(examples))
    assert found.schema.types == [
        pa.list_(pa.field("element", field.type.value_type), SEQ) if pa.types.is_fixed_size_list(field.type) else field.type
        for field in schema_of(examples.shape)
    ]


HOLES = (
    "predictions cannot be the column labels, which has one a token: expected masked_lm_positions that ascend below 8 with "
    "weight 1, then 0 in positions, ids and weights, found "
)
BYTES = "which has bytes: expected 0 to 127, found"


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
        ({"input_mask": [1, 1, 128, 1, 1, 1, 1, 0]}, f"input_mask cannot be the column attention_mask, {BYTES} 128"),
        ({"segment_ids": [0, 0, 0, 0, 300, 1, 1, 0]}, f"segment_ids cannot be the column token_type_ids, {BYTES} 300"),
    ],
)
@pytest.mark.parametrize("to", ["arrow", "parquet"])
def test_what_columns_do_not_hold_is_refused(
    to: str, change: Record, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(file_of(FIRST, SECOND) * 1000 + file_of({**FIRST, **change}, SECOND))
    assert main(["convert", str(source), str(target), "--to", to]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"bertprep: error: {source}: record 2000: {message}")
    assert line.endswith("; convert to TFRecord or OFRecord")
    assert not target.exists()


def test_a_record_that_was_picked_is_named_by_its_number(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "source"
    source.write_bytes(file_of(*[FIRST] * 6, {**FIRST, "masked_lm_weights": [2.0, 0.0]}, FIRST))
    assert main(["convert", str(source), str(tmp_path / "target"), "--to", "arrow", "--pick", "4"]) == 1
    assert f"{source}: record 6: predictions cannot be the column labels" in capsys.readouterr().err


def test_a_folder_is_known_to_be_saved_once_all_of_it_is(tmp_path: Path) -> None:
    (tmp_path / "dataset_info.json").mkdir()  # in whose place no file can be written
    folder = DatasetFolder(tmp_path, {"": Shape(PretrainingExamples, 16, 3)})
    for _ in range(2):
        with pytest.raises(BertprepError):
            folder.write({"a.arrow": {"bytes": 1, "examples": 1, "sha256": "0" * 64}})
        assert not is_saved(tmp_path)

"""Records and gzip files that ask for more memory than there is: read a few at a time, or refused in one line."""

import gzip
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from bertprep import records
from bertprep.commands.validate import validate
from bertprep.errors import BertprepError
from bertprep.records import PretrainingExamples, open_file
from bertprep.records.convert import RecordConverter, Span
from tests.records.columns import column_examples, table_of, write_parquet
from tests.records.handmade import FIRST, Variant, field, file_of, frame, message

OFRECORD = Variant("ofrecord")


def long_record(seq: int) -> bytes:
    """An OFRecord of `seq` zeros in each of the first three features."""
    zeros = field(4, field(1, bytes(seq)))
    entries = [field(1, field(1, name.encode()) + field(2, zeros)) for name in ("input_ids", "input_mask", "segment_ids")]
    others = {name: values for name, values in FIRST.items() if name.startswith(("masked", "next"))}
    return frame(b"".join(entries) + message(others, OFRECORD), "ofrecord")


def traced_peak(read: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        read()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_record_longer_than_any_of_berts_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "part-0"
    path.write_bytes(long_record(1_000_000))
    with pytest.raises(BertprepError) as error:
        records.open(path)
    assert str(error.value) == (
        f"{path}: record 0: feature input_ids has 1,000,000 values, expected at most 65,535; "
        "give a file of BERT pretraining records"
    )
    (outcome,) = validate([path], workers=1)
    (finding,) = [finding for finding in outcome.findings if finding.code == "feature-shape"]
    assert finding.expected == "1 to 65,535 values in input_ids and masked_lm_positions"
    assert finding.found == "1,000,000 and 2"


def test_long_records_are_looked_at_a_few_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "part-0"
    path.write_bytes(4 * long_record(60_000))
    assert traced_peak(lambda: validate([path], workers=1)) < 32_000_000  # 256 of them would take 184 MB
    converter = RecordConverter("tfrecord")
    assert traced_peak(lambda: converter.convert([Span(path)], tmp_path / "part-1")) < 32_000_000
    converter.close()


def test_a_file_of_records_without_content_takes_no_memory_for_each(tmp_path: Path) -> None:
    path = tmp_path / "part-0"
    path.write_bytes(file_of(FIRST, variant=OFRECORD) + bytes(8) * 66_000)
    with pytest.raises(BertprepError, match=r"the records before it have \d+ bytes on average, expected"):
        records.open(path)
    (outcome,) = validate([path], workers=1)
    assert "records of 64 bytes or more" in {finding.expected for finding in outcome.findings}


def test_a_bomb_is_known_by_its_beginning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_file, "BUFFER_BYTES", 1000)
    path = tmp_path / "part-0"
    path.write_bytes(gzip.compress(bytes(64 << 20)))

    def read() -> None:
        line = r"is neither TFRecord, OFRecord, Arrow nor Parquet: it has more than 1,000 bytes and begins"
        with pytest.raises(BertprepError, match=line):
            records.open(path)

    assert traced_peak(read) < 8_000_000


def test_more_than_is_held_in_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bertprep.records.records.MAX_HELD_BYTES", 2 << 20)
    path = tmp_path / "part-0"
    path.write_bytes(gzip.compress(12_000 * file_of(FIRST)))

    def read() -> None:
        with pytest.raises(BertprepError, match=f"^{path}: needs too much memory; .*; decompress them, or name fewer files$"):
            records.open(path)

    assert traced_peak(read) < 16_000_000
    foreign = tmp_path / "foreign.parquet"
    write_parquet(table_of(column_examples(PretrainingExamples, 20_000)), foreign)
    with pytest.raises(
        BertprepError, match=f"^{foreign}: needs too much memory; .*; convert them to Arrow with bertprep convert"
    ):
        records.open(foreign)

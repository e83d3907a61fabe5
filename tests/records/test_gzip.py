"""Gzip files are what zlib takes, and depend on the records alone, not on the blocks that they came in."""

import gzip
import hashlib
from pathlib import Path

import numpy as np

from bertprep import records
from bertprep.config import Dialect, RecordFormat
from bertprep.records import PretrainingExamples
from bertprep.records.write import write_examples

GZIP = Dialect(compress="gzip")
RECORDS = 3000  # of 64 tokens with the longest varints: more than a megabyte, which is compressed at a time


def test_the_records_come_back_and_the_bytes_do_not_depend_on_the_blocks(tmp_path: Path) -> None:
    examples = PretrainingExamples.empty(RECORDS, seq=64, pred=10)
    rng = np.random.default_rng(0)
    for array in examples.arrays:
        array[...] = rng.integers(0, 2**31 - 1, array.shape, endpoint=True)
    path = tmp_path / "x.tfrecord.gz"
    (written,) = write_examples([examples[:100], examples[100:]], {RecordFormat.TFRECORD: path}, GZIP).values()
    assert (written.records, written.bytes) == (RECORDS, path.stat().st_size)
    assert written.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert path.read_bytes()[:10] == bytes.fromhex("1f8b08000000000000ff")  # no time, no name, no system
    for size in (7, 1000, RECORDS):
        again = tmp_path / f"{size}.tfrecord.gz"
        blocks = (examples[start : start + size] for start in range(0, RECORDS, size))
        write_examples(blocks, {RecordFormat.TFRECORD: again}, GZIP)
        assert again.read_bytes() == path.read_bytes()
    write_examples([examples], {RecordFormat.TFRECORD: tmp_path / "plain"})
    assert gzip.decompress(path.read_bytes()) == (tmp_path / "plain").read_bytes()
    for found, expected in zip(records.open(path)[:].arrays, examples.arrays, strict=True):
        np.testing.assert_array_equal(found, expected)

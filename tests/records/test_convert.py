"""Examples become record files, of either format and whoever wrote them, and no value is lost."""

from pathlib import Path

import numpy as np
import pytest

import bertprep
from bertprep import records
from bertprep.config import RecordFormat
from bertprep.errors import BertprepError
from bertprep.records import PretrainingExamples
from bertprep.records.write import write_examples
from tests.records.handmade import FIRST, SECOND, Dialect, Record, file_of

OTHER = {"tfrecord": "ofrecord", "ofrecord": "tfrecord"}


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("most", [1, 127, 128, 2**14, 2**21 - 1, 2**21, 2**28 - 1, 2**28, 2**31 - 1])
@pytest.mark.parametrize(("seq", "pred"), [(1, 1), (17, 3), (128, 20), (4000, 600)])
def test_any_value_at_any_place(tmp_path: Path, seq: int, pred: int, most: int) -> None:
    """Also what the generator never makes, and records as long as a length of another size asks."""
    rng = np.random.default_rng(most % 1000 + seq)
    examples = PretrainingExamples.empty(20, seq=seq, pred=pred)
    for array in examples.arrays:
        array[...] = rng.integers(0, most, array.shape, endpoint=True)
    examples.masked_lm_weights[...] = rng.normal(size=(20, pred)) * 1e30
    examples.masked_lm_weights[0, 0] = np.nan
    examples.input_ids[7:] = 5  # so that records of many sizes come
    files = {name: tmp_path / name for name in OTHER}
    for name, path in files.items():
        written = write_examples([examples[:13], examples[13:]], {name: path})[name]
        assert written.records == 20
        assert written.bytes == path.stat().st_size
        for found, expected in zip(records.open(path)[:].arrays, examples.arrays, strict=True):
            np.testing.assert_array_equal(found.view(np.int32), expected.view(np.int32))
    for name, path in files.items():
        bertprep.convert(path, tmp_path / "back")
        assert (tmp_path / "back").read_bytes() == files[OTHER[name]].read_bytes()


def test_more_records_than_a_buffer_holds(tmp_path: Path) -> None:
    expected: list[Record] = [FIRST, SECOND] * 4000
    path = write(tmp_path / "source", file_of(FIRST, SECOND) * 4000)
    bertprep.convert(path, tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == file_of(FIRST, SECOND, dialect=Dialect("ofrecord")) * (len(expected) // 2)


def test_no_example_is_an_error_and_leaves_no_file(tmp_path: Path) -> None:
    examples = PretrainingExamples.empty(0, seq=8, pred=2)
    for blocks in ([], [examples]):
        with pytest.raises(BertprepError, match=r"part-0: there is no example to write"):
            write_examples(blocks, {RecordFormat.OFRECORD: tmp_path / "part-0"})
        assert not list(tmp_path.iterdir())

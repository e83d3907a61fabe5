"""Files of other tools: protobuf lets a writer say the same in many ways, and the reader takes all of them."""

import gzip
import random
from pathlib import Path

import pytest

import bertprep
from bertprep import records
from bertprep.errors import BertprepError
from tests.records.handmade import FIRST, Dialect, file_of, frame, message, random_record
from tests.records.test_reader import assert_holds, write

DIALECTS = {
    "TFRecord as we write it": Dialect(),
    "OFRecord as we write it": Dialect("ofrecord"),
    "features in any order": Dialect(any_order=True),
    "numbers one by one": Dialect(packed=False),
    "both ways": Dialect(packed=None),
    "names of TensorFlow 2": Dialect(new_names=True),
    "unknown features": Dialect(extras=True),
    "all at once": Dialect(packed=None, any_order=True, new_names=True, extras=True),
    "OFRecord of int64": Dialect("ofrecord", int64=True),
    "OFRecord of doubles": Dialect("ofrecord", doubles=True),
    "OFRecord, doubles one by one": Dialect("ofrecord", doubles=True, packed=False),
    "OFRecord, features in any order": Dialect("ofrecord", any_order=True),
    "OFRecord, all at once": Dialect("ofrecord", packed=None, int64=True, any_order=True, new_names=True, extras=True),
}


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
def test_dialects_are_read_and_converted_to_our_layout(dialect: Dialect, tmp_path: Path) -> None:
    rng = random.Random(7)
    expected = [random_record(rng, 128, 20, most=rng.choice([1, 200, 30000, 2**31 - 1])) for _ in range(40)]
    if dialect.record_format == "ofrecord":  # the format is told by the first byte of the data
        content = file_of(expected[0], dialect=Dialect("ofrecord")) + file_of(*expected[1:], dialect=dialect, rng=rng)
    else:
        content = file_of(*expected, dialect=dialect, rng=rng)
    source = write(tmp_path, content)
    with records.open(source) as file:
        assert_holds(file[:], expected)
    for name in ("tfrecord", "ofrecord"):
        bertprep.convert(source, tmp_path / name, to=name)
        assert (tmp_path / name).read_bytes() == file_of(*expected, dialect=Dialect(name))
    bertprep.convert(source, tmp_path / "tf2", to="tfrecord", feature_names="tf2")
    assert (tmp_path / "tf2").read_bytes() == file_of(*expected, dialect=Dialect(new_names=True))


def test_features_in_several_parts(tmp_path: Path) -> None:
    """Protobuf joins messages of the same field: an Example may hold its features in two halves."""
    head, tail = dict(list(FIRST.items())[:3]), dict(list(FIRST.items())[3:])
    data = message(head, Dialect()) + message(tail, Dialect())
    with records.open(write(tmp_path, frame(data))) as file:
        assert_holds(file[:], [FIRST])


def test_gzip_holds_tfrecords(tmp_path: Path) -> None:
    path = write(tmp_path, gzip.compress(file_of(FIRST, FIRST)[:100]) + gzip.compress(file_of(FIRST, FIRST)[100:]))
    with records.open(path) as file:
        assert file.format == "tfrecord"
        assert_holds(file[:], [FIRST, FIRST])


def test_gzip_holds_no_ofrecords(tmp_path: Path) -> None:
    path = write(tmp_path, gzip.compress(file_of(FIRST, dialect=Dialect("ofrecord"))))
    with pytest.raises(BertprepError) as error:
        records.open(path)
    assert str(error.value) == f"{path}: is a compressed OFRecord file, which no trainer reads; decompress it"

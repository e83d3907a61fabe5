"""TensorFlow reads what was converted to TFRecord with the reference generator's values, and what it wrote converts."""

from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import bertprep
from tests.readers.reader_checks import FEATURES, Created, assert_equal, read_with_bertprep
from tests.readers.test_tensorflow_reads import SOME, features_of, read_with_tensorflow

pytestmark = pytest.mark.tensorflow


@pytest.fixture(scope="module")
def tf() -> ModuleType:
    import tensorflow

    return tensorflow  # type: ignore[no-any-return]


def test_tensorflow_reads_a_converted_file(tf: Any, created: Created, tmp_path: Path) -> None:
    bertprep.convert(created.ofrecord, tmp_path / "converted")
    created.assert_golden(read_with_tensorflow(tf, replace(created, tfrecord=tmp_path / "converted")))


def test_tensorflow_reads_dealt_files(tf: Any, created: Created, tmp_path: Path) -> None:
    files = bertprep.convert(created.ofrecord, tmp_path / "dealt", shards=3, workers=1).files
    parts = [read_with_tensorflow(tf, replace(created, tfrecord=tmp_path / "dealt" / name)) for name in files]
    assert_equal({name: np.concatenate([part[name] for part in parts]) for name in FEATURES}, created.values)


@pytest.mark.parametrize("compression", ["", "GZIP"])
def test_what_tensorflow_writes_converts(tf: Any, created: Created, tmp_path: Path, compression: str) -> None:
    """Its protobuf leaves the order of features open; the result is our own layout all the same."""
    theirs = tmp_path / "theirs.tfrecord"
    with tf.io.TFRecordWriter(str(theirs), options=compression) as writer:
        for i in range(SOME):
            features = {name: tf.train.Feature.FromString(f) for name, f in features_of(tf, created.values, i).items()}
            writer.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())
    bertprep.convert(theirs, tmp_path / "part-0")
    assert_equal(read_with_bertprep(tmp_path / "part-0"), {name: array[:SOME] for name, array in created.values.items()})
    size_bytes = (tmp_path / "part-0").stat().st_size
    assert (tmp_path / "part-0").read_bytes() == created.ofrecord.read_bytes()[:size_bytes]

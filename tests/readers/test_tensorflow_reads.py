"""TensorFlow reads our TFRecords with the reference generator's values, and we read what TensorFlow writes."""

import random
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tests.readers.protobuf_bytes import feature_map, field, unpacked_integers
from tests.readers.reader_checks import FEATURES, Created, Values, assert_equal, read_with_bertprep

pytestmark = pytest.mark.tensorflow
SOME = 200  # records of a file that TensorFlow writes


@pytest.fixture(scope="module")
def tf() -> ModuleType:
    import tensorflow

    return tensorflow  # type: ignore[no-any-return]


def read_with_tensorflow(tf: Any, created: Created) -> Values:
    schema = {
        name: tf.io.FixedLenFeature([width], tf.float32 if name == "masked_lm_weights" else tf.int64)
        for name, width in created.widths.items()
    }
    dataset = tf.data.TFRecordDataset(str(created.tfrecord)).batch(500)
    batches = [tf.io.parse_example(serialized, schema) for serialized in dataset]
    values = {name: np.concatenate([batch[name].numpy() for batch in batches]) for name in FEATURES}
    return {**values, "next_sentence_labels": values["next_sentence_labels"][:, 0]}


def features_of(tf: Any, values: Values, i: int) -> dict[str, bytes]:
    """Record i as serialized `tf.train.Feature`s by name."""
    features = {}
    for name in FEATURES:
        numbers = np.atleast_1d(values[name][i]).tolist()
        if name == "masked_lm_weights":
            feature = tf.train.Feature(float_list=tf.train.FloatList(value=numbers))
        else:
            feature = tf.train.Feature(int64_list=tf.train.Int64List(value=numbers))
        features[name] = feature.SerializeToString()
    return features


def shuffled(features: dict[str, bytes], rng: random.Random) -> dict[str, bytes]:
    return dict(rng.sample(list(features.items()), len(features)))


def test_tensorflow_reads_what_we_write(tf: Any, created: Created) -> None:
    values = read_with_tensorflow(tf, created)
    created.assert_golden(values)
    assert_equal(created.values, values)


@pytest.mark.parametrize("compression", ["", "GZIP"])
def test_we_read_what_tensorflow_writes(tf: Any, created: Created, tmp_path: Path, compression: str) -> None:
    path = tmp_path / ("tensorflow.tfrecord" + (".gz" if compression else ""))
    with tf.io.TFRecordWriter(str(path), options=compression) as writer:
        for i in range(SOME):
            features = {name: tf.train.Feature.FromString(f) for name, f in features_of(tf, created.values, i).items()}
            writer.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())
    assert_equal(read_with_bertprep(path), {name: array[:SOME] for name, array in created.values.items()})


def test_we_read_features_in_any_order(tf: Any, created: Created, tmp_path: Path) -> None:
    """Protobuf leaves the order of a map's entries open, and writers make use of that."""
    path, rng = tmp_path / "any_order.tfrecord", random.Random(0)
    with tf.io.TFRecordWriter(str(path)) as writer:
        for i in range(SOME):
            example = field(1, feature_map(shuffled(features_of(tf, created.values, i), rng)))
            assert len(tf.train.Example.FromString(example).features.feature) == len(FEATURES)
            writer.write(example)
    assert_equal(read_with_bertprep(path), {name: array[:SOME] for name, array in created.values.items()})


def test_we_read_unpacked_lists(tf: Any, created: Created, tmp_path: Path) -> None:
    """Protobuf lets a writer put a tag before each number; parsers must take it."""
    path = tmp_path / "unpacked.tfrecord"
    with tf.io.TFRecordWriter(str(path)) as writer:
        for i in range(SOME):
            features = features_of(tf, created.values, i)
            for name in FEATURES:
                if name != "masked_lm_weights":
                    features[name] = field(3, unpacked_integers(np.atleast_1d(created.values[name][i]).tolist()))
            example = field(1, feature_map(features))
            assert tf.train.Example.FromString(example).features.feature["input_ids"].int64_list.value
            writer.write(example)
    assert_equal(read_with_bertprep(path), {name: array[:SOME] for name, array in created.values.items()})

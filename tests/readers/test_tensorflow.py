"""TensorFlow reads our TFRecords with the reference generator's values; we read, validate and convert what it writes."""

from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import bertprep
from bertprep.config import Dialect
from tests.golden import GOLDEN
from tests.readers.reader_checks import FEATURES, Created, Values, assert_equal, read_with_bertprep

pytestmark = pytest.mark.tensorflow
NEW_NAMES = {"input_ids": "input_word_ids", "segment_ids": "input_type_ids"}  # TensorFlow 2's models read these


@pytest.fixture(scope="module")
def tf() -> ModuleType:
    import tensorflow

    return tensorflow  # type: ignore[no-any-return]


def read(tf: Any, paths: Iterable[Path], created: Created, dialect: Dialect) -> Values:
    """As the Model Garden's BertPretrainDataLoader does, with or without use_v2_feature_names and compression."""
    names = {name: NEW_NAMES.get(name, name) if dialect.feature_names == "tf2" else name for name in FEATURES}
    schema = {
        names[name]: tf.io.FixedLenFeature([width], tf.float32 if name == "masked_lm_weights" else tf.int64)
        for name, width in created.widths.items()
    }
    compression = "GZIP" if dialect.compress == "gzip" else ""
    dataset = tf.data.TFRecordDataset([str(path) for path in paths], compression_type=compression).batch(500)
    batches = [tf.io.parse_example(serialized, schema) for serialized in dataset]
    values = {name: np.concatenate([batch[names[name]].numpy() for batch in batches]) for name in FEATURES}
    return {**values, "next_sentence_labels": values["next_sentence_labels"][:, 0]}


DIALECTS = [Dialect(feature_names=names, compress=compress) for names in ("google", "tf2") for compress in ("none", "gzip")]


@pytest.mark.parametrize("dialect", DIALECTS, ids=str)
def test_tensorflow_reads_what_create_and_convert_write(
    tf: Any, dialect: Dialect, created: Created, golden_corpus: Path, tmp_path: Path
) -> None:
    made = bertprep.create(
        inputs=[golden_corpus], output=tmp_path / "made", vocab=GOLDEN / "vocab.txt", seq=created.seq, pred=created.pred,
        formats="tfrecord", workers=1, **vars(dialect),
    )  # fmt: skip
    bertprep.convert(created.ofrecord, tmp_path / "several", to="tfrecord", shards=3, workers=1, **vars(dialect))
    for folder in (made.folders["tfrecord"], tmp_path / "several"):
        created.assert_golden(read(tf, sorted(folder.glob("training/*.tfrecord*")), created, dialect))


@pytest.mark.parametrize("compression", ["", "GZIP"])
def test_what_tensorflow_writes_is_read_validated_and_converted_to_our_layout(
    tf: Any, created: Created, tmp_path: Path, compression: str
) -> None:
    path = tmp_path / ("theirs.tfrecord" + (".gz" if compression else ""))
    with tf.io.TFRecordWriter(str(path), options=compression) as writer:
        for i in range(len(created.values["input_ids"])):
            features = {}
            for name in FEATURES:
                numbers = np.atleast_1d(created.values[name][i]).tolist()
                if name == "masked_lm_weights":
                    features[name] = tf.train.Feature(float_list=tf.train.FloatList(value=numbers))
                else:
                    features[name] = tf.train.Feature(int64_list=tf.train.Int64List(value=numbers))
            writer.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())
    assert_equal(read_with_bertprep(path), created.values)
    (outcome,) = bertprep.validate([path], vocab=GOLDEN / "vocab.txt", workers=1)
    assert outcome.findings == []
    bertprep.convert(path, tmp_path / "part-0")
    assert (tmp_path / "part-0").read_bytes() == created.ofrecord.read_bytes()

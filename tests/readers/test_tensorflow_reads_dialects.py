"""TensorFlow reads our gzip files and TensorFlow 2's names as the Model Garden does, with the reference generator's values."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bertprep
from bertprep.config import Dialect
from tests.golden import GOLDEN
from tests.readers.reader_checks import FEATURES, Created, Values

pytestmark = pytest.mark.tensorflow


def read_as_the_model_garden(paths: list[Path], *, seq: int, pred: int, v2: bool, gzip: bool) -> Values:
    """As its BertPretrainDataLoader does with use_v2_feature_names, and file_type tfrecord or tfrecord_compressed."""
    import tensorflow as tf

    ids, segments = ("input_word_ids", "input_type_ids") if v2 else ("input_ids", "segment_ids")
    schema = {
        ids: tf.io.FixedLenFeature([seq], tf.int64),
        "input_mask": tf.io.FixedLenFeature([seq], tf.int64),
        segments: tf.io.FixedLenFeature([seq], tf.int64),
        "masked_lm_positions": tf.io.FixedLenFeature([pred], tf.int64),
        "masked_lm_ids": tf.io.FixedLenFeature([pred], tf.int64),
        "masked_lm_weights": tf.io.FixedLenFeature([pred], tf.float32),
        "next_sentence_labels": tf.io.FixedLenFeature([1], tf.int64),
    }
    dataset = tf.data.TFRecordDataset([str(path) for path in paths], compression_type="GZIP" if gzip else "")
    batches = [tf.io.parse_example(serialized, schema) for serialized in dataset.batch(500)]
    values = [np.concatenate([batch[name].numpy() for batch in batches]) for name in schema]
    found: dict[str, Any] = dict(zip(FEATURES, values, strict=True))
    return {**found, "next_sentence_labels": found["next_sentence_labels"][:, 0]}


@pytest.mark.parametrize(("feature_names", "compress"), [("tf2", "none"), ("google", "gzip"), ("tf2", "gzip")])
def test_tensorflow_reads_what_create_and_convert_write(
    feature_names: str, compress: str, created: Created, golden_corpus: Path, tmp_path: Path
) -> None:
    dialect = Dialect(feature_names=feature_names, compress=compress)
    made = bertprep.create(
        inputs=[golden_corpus],
        output=tmp_path / "made",
        vocab=GOLDEN / "vocab.txt",
        seq=created.seq,
        pred=created.pred,
        **vars(dialect),
        formats="tfrecord",
        workers=1,
    )
    bertprep.convert(created.ofrecord, tmp_path / "dealt", to="tfrecord", **vars(dialect), shards=3, workers=1)
    asked: dict[str, Any] = {
        "seq": created.seq, "pred": created.pred, "v2": feature_names == "tf2", "gzip": compress == "gzip",
    }  # fmt: skip
    for folder in (made.folders["tfrecord"], tmp_path / "dealt" / "tfrecord"):
        paths = sorted(folder.glob("*.tfrecord*"))
        created.assert_golden(read_as_the_model_garden(paths, **asked))

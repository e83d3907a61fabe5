"""TensorFlow and OneFlow read our records of fine-tuning tasks, TensorFlow with the feature lists of Google's programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertprep.records import (
    ClassificationExamples,
    Examples,
    RegressionExamples,
    SquadEvalExamples,
    SquadExamples,
)
from bertprep.records.write import write_examples
from tests.records.task_records import TASK_KINDS, task_examples

RECORDS, SEQ, BATCH = 100, 384, 20
by_title = pytest.mark.parametrize("kind", TASK_KINDS, ids=[kind.title for kind in TASK_KINDS])


def feature_spec(tf: Any, kind: type[Examples]) -> dict[str, Any]:
    """`name_to_features` of google-research/bert eedf5716, run_squad.py and run_classifier.py."""
    tokens = ("input_ids", "input_mask", "segment_ids")
    spec = {name: tf.io.FixedLenFeature([SEQ], tf.int64) for name in tokens}
    if kind in (SquadExamples, SquadEvalExamples):
        spec["unique_ids"] = tf.io.FixedLenFeature([], tf.int64)
    if kind is SquadExamples:
        spec |= {name: tf.io.FixedLenFeature([], tf.int64) for name in ("start_positions", "end_positions")}
    if kind is ClassificationExamples:
        spec["label_ids"] = tf.io.FixedLenFeature([], tf.int64)
    if kind is RegressionExamples:  # Google's program has no regression; the public ones for STS-B differ in this line
        spec["label_ids"] = tf.io.FixedLenFeature([], tf.float32)
    if kind in (ClassificationExamples, RegressionExamples):
        spec["is_real_example"] = tf.io.FixedLenFeature([], tf.int64)
    return spec


@pytest.mark.tensorflow
@by_title
def test_tensorflow_reads_them_as_google_does(tmp_path: Path, kind: type[Examples]) -> None:
    import tensorflow as tf

    examples, path = task_examples(kind, RECORDS, seq=SEQ), tmp_path / "part-0"
    write_examples([examples], {"tfrecord": path})
    (batch,) = tf.data.TFRecordDataset(str(path)).batch(RECORDS)
    for name, found in tf.io.parse_example(batch, feature_spec(tf, kind)).items():
        np.testing.assert_array_equal(found.numpy(), getattr(examples, name), name)


@pytest.mark.oneflow
@by_title
def test_oneflow_reads_them(tmp_path: Path, kind: type[Examples]) -> None:
    import oneflow as flow

    examples = task_examples(kind, RECORDS, seq=SEQ)
    write_examples([examples], {"ofrecord": tmp_path / "part-0"})
    reader = flow.nn.OFRecordReader(
        str(tmp_path), batch_size=BATCH, data_part_num=1, random_shuffle=False, shuffle_after_epoch=False
    )
    decoders = {
        feature.name: flow.nn.OFRecordRawDecoder(
            feature.name,
            (SEQ if feature.width == "seq" else 1,),
            flow.float32 if feature.dtype == np.float32 else flow.int32,
        )
        for feature in kind.features
    }
    for start in range(0, RECORDS, BATCH):
        batch = reader()
        for name, decode in decoders.items():
            expected = getattr(examples, name)[start : start + BATCH]
            np.testing.assert_array_equal(decode(batch).numpy().reshape(expected.shape), expected, name)

"""TensorFlow, OneFlow and PyTorch find in our records of all kinds the values that we find, and we in theirs.

How whole programs of the field open our folders is in test_trainers_read.py.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import bertprep
from bertprep import RecordDataset
from bertprep.config import Variant
from bertprep.records import (
    ClassificationExamples,
    Examples,
    PretrainingExamples,
    RegressionExamples,
    SquadEvalExamples,
    SquadExamples,
    TokenClassificationExamples,
)
from bertprep.records.write import write_examples
from tests.golden import GOLDEN
from tests.records.task_records import TASK_KINDS, task_examples

SEQ, PRED, BATCH = 128, 20, 100
DIGEST = "0ce3ce54abd086e1a0cf8f1831c81fde82ed73eddc3c052b4a6b8d60b21d9d6e"
"""Of what Google's generator makes of the golden corpus: tests/golden/README.md."""
TF2_NAMES = {"input_ids": "input_word_ids", "segment_ids": "input_type_ids"}
Values = Mapping[str, npt.NDArray[np.generic]]

by_kind = pytest.mark.parametrize("kind", TASK_KINDS, ids=[kind.title for kind in TASK_KINDS])


@pytest.fixture(scope="module")
def created(golden_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The file of the golden corpus in TFRecord and OFRecord, and as TFRecord with TensorFlow 2's names and gzip."""
    folder, made = tmp_path_factory.mktemp("created"), {}
    for name, variant in (("google", Variant()), ("tf2", Variant(feature_names="tf2", compress="gzip"))):
        formats = ("tfrecord", "ofrecord") if name == "google" else ("tfrecord",)
        asked = {"inputs": [golden_corpus], "output": folder / name, "vocab": GOLDEN / "vocab.txt", "workers": 1}
        folders = bertprep.create(**asked, formats=formats, **vars(variant)).folders
        made |= {f"{name} {key}": next((path / "training").iterdir()) for key, path in folders.items()}
    return made


def digest(values: Values) -> str:
    """The sha256 of all values, record by record, as of the reference generator's."""
    found = hashlib.sha256()
    for row in range(len(values["input_ids"])):
        for name in (feature.name for feature in PretrainingExamples.features):
            found.update(values[name][row].astype("<f4" if name == "masked_lm_weights" else "<i8").tobytes())
    return found.hexdigest()


def widths(kind: type[Examples], seq: int, pred: int = 0) -> dict[str, int]:
    examples = kind.empty(1, seq=seq, pred=pred)
    return {each.name: getattr(examples, each.name).size for each in kind.features}


def read_with_tensorflow(paths: Iterable[Path], names: Mapping[str, str], compression: str) -> Values:
    """All records, as the Model Garden's BertPretrainDataLoader reads them."""
    import tensorflow as tf

    schema = {
        names.get(name, name): tf.io.FixedLenFeature([width], tf.float32 if name == "masked_lm_weights" else tf.int64)
        for name, width in widths(PretrainingExamples, SEQ, PRED).items()
    }
    dataset = tf.data.TFRecordDataset([str(path) for path in paths], compression_type=compression).batch(500)
    batches = [tf.io.parse_example(serialized, schema) for serialized in dataset]
    ours = (feature.name for feature in PretrainingExamples.features)
    return {name: np.concatenate([batch[names.get(name, name)].numpy() for batch in batches]) for name in ours}


def read_with_oneflow(folder: Path, kind: type[Examples], records: int, seq: int, pred: int = 0, files: int = 1) -> Values:
    """The first records of a folder, by a reader that starts anew at the end and looks for names by itself."""
    import oneflow as flow

    reader = flow.nn.OFRecordReader(
        str(folder), batch_size=BATCH, data_part_num=files, random_shuffle=False, shuffle_after_epoch=False
    )
    floats = {each.name for each in kind.features if each.dtype == np.float32}
    decoders = {
        name: flow.nn.OFRecordRawDecoder(name, (width,), flow.float32 if name in floats else flow.int32)
        for name, width in widths(kind, seq, pred).items()
    }
    batches = [reader() for _ in range(0, records, BATCH)]
    return {name: np.concatenate([decode(batch).numpy() for batch in batches])[:records] for name, decode in decoders.items()}


@pytest.mark.tensorflow
@pytest.mark.parametrize("names", ["google", "tf2"])
def test_tensorflow_reads_what_create_and_convert_write(names: str, created: dict[str, Path], tmp_path: Path) -> None:
    variant = Variant(feature_names="tf2", compress="gzip") if names == "tf2" else Variant()
    theirs, compression = (TF2_NAMES, "GZIP") if names == "tf2" else ({}, "")
    bertprep.convert(created["google ofrecord"], tmp_path / "several", to="tfrecord", shards=3, workers=1, **vars(variant))
    several = sorted((tmp_path / "several" / "training").iterdir())
    for paths in ([created[f"{names} tfrecord"]], several):
        assert digest(read_with_tensorflow(paths, theirs, compression)) == DIGEST


@pytest.mark.tensorflow
@pytest.mark.parametrize("compression", ["", "GZIP"])
def test_what_tensorflow_writes_is_read_validated_and_converted_to_our_layout(
    created: dict[str, Path], tmp_path: Path, compression: str
) -> None:
    import tensorflow as tf

    path, ours = tmp_path / "theirs.tfrecord", bertprep.records.open(created["google tfrecord"])[:]
    with tf.io.TFRecordWriter(str(path), options=compression) as writer:
        for row in range(len(ours)):
            features = {}
            for name in widths(PretrainingExamples, 8):
                numbers = np.atleast_1d(getattr(ours, name)[row]).tolist()
                if name == "masked_lm_weights":
                    features[name] = tf.train.Feature(float_list=tf.train.FloatList(value=numbers))
                else:
                    features[name] = tf.train.Feature(int64_list=tf.train.Int64List(value=numbers))
            writer.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())
    (outcome,) = bertprep.validate([path], vocab=GOLDEN / "vocab.txt", workers=1)
    assert outcome.findings == []
    bertprep.convert(path, tmp_path / "part-0")
    assert (tmp_path / "part-0").read_bytes() == created["google ofrecord"].read_bytes()


@pytest.mark.tensorflow
@by_kind
def test_tensorflow_reads_records_of_tasks_as_google_does(tmp_path: Path, kind: type[Examples]) -> None:
    """With `name_to_features` of google-research/bert eedf5716, run_squad.py and run_classifier.py.

    Google's program has no regression and no token classification; the public ones for STS-B and NER differ in these lines.
    """
    import tensorflow as tf

    examples, path = task_examples(kind, 100, seq=384), tmp_path / "part-0"
    write_examples([examples], {"tfrecord": path})
    single = {
        SquadExamples: ("unique_ids", "start_positions", "end_positions"),
        SquadEvalExamples: ("unique_ids",),
        ClassificationExamples: ("label_ids", "is_real_example"),
        RegressionExamples: ("is_real_example",),
        TokenClassificationExamples: (),
    }[kind]
    spec = {name: tf.io.FixedLenFeature([384], tf.int64) for name in ("input_ids", "input_mask", "segment_ids")}
    spec |= {name: tf.io.FixedLenFeature([], tf.int64) for name in single}
    if kind is RegressionExamples:
        spec["label_ids"] = tf.io.FixedLenFeature([], tf.float32)
    if kind is TokenClassificationExamples:
        spec["label_ids"] = tf.io.FixedLenFeature([384], tf.int64)
        spec["label_weights"] = tf.io.FixedLenFeature([384], tf.float32)
    (batch,) = tf.data.TFRecordDataset(str(path)).batch(100)
    for name, found in tf.io.parse_example(batch, spec).items():
        np.testing.assert_array_equal(found.numpy(), getattr(examples, name), name)


@pytest.mark.oneflow
def test_oneflow_reads_what_create_and_convert_write(created: dict[str, Path], tmp_path: Path) -> None:
    """It starts anew after the last record, so it counts as many records as we do."""
    records = len(bertprep.records.open(path := created["google ofrecord"]))
    found = read_with_oneflow(path.parent, PretrainingExamples, records + BATCH, SEQ, PRED)
    assert digest({name: array[:records] for name, array in found.items()}) == DIGEST
    for array in found.values():
        np.testing.assert_array_equal(array[records:], array[:BATCH])
    bertprep.convert(created["google tfrecord"], tmp_path, shards=11, workers=1)  # the last is part-10, after part-2
    found = read_with_oneflow(tmp_path / "training", PretrainingExamples, records, SEQ, PRED, files=11)
    assert digest(found) == DIGEST


@pytest.mark.oneflow
@by_kind
def test_oneflow_reads_records_of_tasks(tmp_path: Path, kind: type[Examples]) -> None:
    examples = task_examples(kind, 100, seq=384)
    write_examples([examples], {"ofrecord": tmp_path / "part-0"})
    for name, found in read_with_oneflow(tmp_path, kind, 100, 384).items():
        expected = getattr(examples, name)
        np.testing.assert_array_equal(found.reshape(expected.shape), expected, name)


@pytest.mark.torch
@pytest.mark.parametrize("workers", [0, 2])
def test_records_of_a_data_loader_are_what_bert_for_pretraining_takes(created: dict[str, Path], workers: int) -> None:
    import torch
    from torch.utils.data import DataLoader
    from transformers import BertConfig, BertForPreTraining

    records = RecordDataset(created["google tfrecord"])
    batches = list(DataLoader(records, batch_size=16, num_workers=workers, collate_fn=RecordDataset.collate))
    for name, column in records[:].items():
        np.testing.assert_array_equal(torch.cat([batch[name] for batch in batches]).numpy(), column)
    model = BertForPreTraining(BertConfig(num_hidden_layers=2, hidden_size=32, num_attention_heads=2, intermediate_size=64))
    assert model(**batches[0]).loss.isfinite()


@pytest.mark.torch
def test_the_features_of_a_block_are_tensors_without_a_copy() -> None:
    import torch

    block = PretrainingExamples.empty(5, seq=9, pred=3)  # sizes that no other type's divides
    for feature in PretrainingExamples.features:
        array = getattr(block, feature.name)
        tensor = torch.from_numpy(array)
        array[...] = 1
        assert tensor.eq(1).all()
        tensor[2:] = 0
        assert np.count_nonzero(array) == 2 * (array.size // 5)

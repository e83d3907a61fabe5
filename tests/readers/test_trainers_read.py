"""The field's trainers open our folders by their own defaults: the names, the globs and the features that they ask for.

Each function here calls a reader as one program does (google-research/bert eedf5716, NVIDIA/DeepLearningExamples 729963dd, the
TensorFlow Model Garden, Oneflow-Inc/models, OneFlow-Benchmark and muzhailong/pddl, which DLPerf runs as well), on a folder of
a workspace and on one of `create --output`, which our own trainer has read before.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import bertprep
from bertprep.config import ShardSettings
from bertprep.records import PretrainingExamples
from bertprep.records.records import Records
from bertprep.work.choose import find_records
from tests.corpora import deal
from tests.golden import GOLDEN

SEQ, PRED, BATCH = 128, 20, 32
SHARDS = 11  # so that part-10 is among them, which is after part-2

FEATURES = tuple(feature.name for feature in PretrainingExamples.features)
Values = Mapping[str, npt.NDArray[np.generic]]
Batches = Iterable[Values]
"""Batches of all seven features, (batch, width) each."""


@dataclass(frozen=True)
class Folder:
    """A folder of record files as a user names it to a trainer, and the records in it, in the order of the files."""

    path: Path
    files: int
    records: list[bytes]

    def assert_holds(self, batches: Batches) -> list[bytes]:
        """All that was read is in the folder; returns it."""
        read = [record for batch in batches for record in as_bytes(batch)]
        assert read
        assert set(read) <= set(self.records)
        return read


def as_bytes(values: Values) -> Iterator[bytes]:
    """Each record of a batch as bytes, to compare it with others."""
    rows = [values[name].astype("<f4" if name == "masked_lm_weights" else "<i4") for name in FEATURES]
    return (b"".join(row[i].tobytes() for row in rows) for i in range(len(rows[0])))


def vars_of(examples: Any) -> Values:
    return {name: getattr(examples, name) for name in FEATURES}


@pytest.fixture(scope="module", params=["workspace", "output"])
def folders(request: pytest.FixtureRequest, golden_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Folder]:
    """A folder of each format, with the names that `create` gives in a workspace, or with --output."""
    root = tmp_path_factory.mktemp(request.param)
    asked: dict[str, Any] = {"vocab": GOLDEN / "vocab.txt", "dupe": 1, "workers": 2}
    if request.param == "workspace":
        settings = ShardSettings(splitter="lines", shards=SHARDS)
        bertprep.shard([golden_corpus], **vars(settings), workdir=root, corpus="gold", workers=2)
        made = bertprep.create(workdir=root, corpus="gold", **asked)
    else:
        made = bertprep.create(inputs=deal(golden_corpus, root / "text", SHARDS), output=root / "out", **asked)
    paths = {name: path / "training" for name, path in made.folders.items()}
    found = {}
    for name, path in paths.items():
        with Records([made.folders[name]]):
            pass  # what it keeps of the folder must not lie where others take it for records
        files = [file for file in find_records(made.folders[name]).paths("training") if file.parent == path]
        read = [bertprep.records.open(file)[:] for file in files]
        found[name] = Folder(path, SHARDS, [record for examples in read for record in as_bytes(vars_of(examples))])
    return found


# TensorFlow


@pytest.fixture(scope="module")
def tf() -> ModuleType:
    import tensorflow

    return tensorflow  # type: ignore[no-any-return]


def feature_spec(tf: Any) -> dict[str, Any]:
    """The features that all these programs ask for."""
    widths = dict.fromkeys(FEATURES, SEQ) | dict.fromkeys(("masked_lm_positions", "masked_lm_ids", "masked_lm_weights"), PRED)
    widths["next_sentence_labels"] = 1
    return {
        name: tf.io.FixedLenFeature([width], tf.float32 if name == "masked_lm_weights" else tf.int64)
        for name, width in widths.items()
    }


def decode(tf: Any, record: Any) -> dict[str, Any]:
    """One record, its whole numbers as int32."""
    example = tf.io.parse_single_example(record, feature_spec(tf))
    return {name: tf.cast(value, tf.int32) if value.dtype == tf.int64 else value for name, value in example.items()}


def globbed(tf: Any, patterns: str) -> list[str]:
    return [path for pattern in patterns.split(",") for path in tf.io.gfile.glob(pattern)]


def estimator_training(tf: Any, files: list[str]) -> Any:
    """Google's and NVIDIA's input of TensorFlow 1 for training: files without end, shuffled, some at a time."""
    dataset = tf.data.Dataset.from_tensor_slices(tf.constant(files)).repeat().shuffle(len(files))
    interleave = tf.data.experimental.parallel_interleave(tf.data.TFRecordDataset, sloppy=True, cycle_length=min(4, len(files)))
    return dataset.apply(interleave).shuffle(100).map(lambda record: decode(tf, record)).batch(BATCH, drop_remainder=True)


def estimator_evaluation(tf: Any, files: list[str]) -> Any:
    """The same programs' input for evaluation: the files one after the other."""
    return tf.data.TFRecordDataset(files).map(lambda record: decode(tf, record)).batch(BATCH)


def nvidia_tensorflow_2(tf: Any, patterns: list[str]) -> Any:
    """The files of glob patterns, eight at a time; the number of the files is taken from a second glob."""
    files = tf.data.Dataset.list_files(patterns, shuffle=True).repeat()
    count = sum(len(tf.io.gfile.glob(pattern)) for pattern in patterns)
    records = files.shuffle(count).interleave(tf.data.TFRecordDataset, cycle_length=8, num_parallel_calls=tf.data.AUTOTUNE)
    return records.map(lambda record: decode(tf, record)).shuffle(100).batch(BATCH, drop_remainder=True)


def model_garden(tf: Any, input_path: str) -> Any:
    """Its pretrain_dataloader with the names it takes by default, `input_ids` and `segment_ids`."""
    files = tf.data.Dataset.from_tensor_slices(globbed(tf, input_path))
    records = files.interleave(
        tf.data.TFRecordDataset, cycle_length=10, num_parallel_calls=tf.data.AUTOTUNE, deterministic=False
    )
    return records.map(lambda record: decode(tf, record)).batch(BATCH)


@pytest.mark.tensorflow
@pytest.mark.parametrize("pattern", ["*.tfrecord", "*_training_*.tfrecord", "*"])
def test_googles_and_nvidias_estimators_train_and_evaluate(tf: Any, folders: dict[str, Folder], pattern: str) -> None:
    """Google's users write patterns of their own; NVIDIA's scripts and DLPerf's take `*` of a folder."""
    folder = folders["tfrecord"]
    files = globbed(tf, f"{folder.path}/{pattern}")
    assert len(files) == folder.files
    folder.assert_holds(islice(estimator_training(tf, files).as_numpy_iterator(), 20))
    read = folder.assert_holds(estimator_evaluation(tf, files).as_numpy_iterator())
    assert Counter(read) == Counter(folder.records)


@pytest.mark.tensorflow
def test_nvidias_tensorflow_2_trains(tf: Any, folders: dict[str, Folder]) -> None:
    folder = folders["tfrecord"]
    folder.assert_holds(islice(nvidia_tensorflow_2(tf, [f"{folder.path}/*"]).as_numpy_iterator(), 20))


@pytest.mark.tensorflow
def test_the_model_garden_reads_every_record(tf: Any, folders: dict[str, Folder]) -> None:
    folder = folders["tfrecord"]
    read = folder.assert_holds(model_garden(tf, f"{folder.path}/*").as_numpy_iterator())
    assert Counter(read) == Counter(folder.records)


# OneFlow


@pytest.fixture(scope="module")
def flow() -> ModuleType:
    import oneflow

    return oneflow  # type: ignore[no-any-return]


def ofrecord_data_loader(flow: Any, folder: Path, mode: str, parts: int) -> Iterator[Values]:
    """The loader of OneFlow's BERT trainers: a reader that is told neither prefix nor number of digits, a decoder a feature."""
    missing = [number for number in range(parts) if not (folder / f"part-{number}").is_file()]
    assert not missing  # where OneFlow would abort the process
    reader = flow.nn.OFRecordReader(
        str(folder), batch_size=BATCH, data_part_num=parts, random_shuffle=mode == "train", shuffle_after_epoch=mode == "train"
    )
    widths = {"input_ids": SEQ, "next_sentence_labels": 1, "input_mask": SEQ, "segment_ids": SEQ}
    widths |= {"masked_lm_ids": PRED, "masked_lm_positions": PRED, "masked_lm_weights": PRED}
    decoders = {
        name: flow.nn.OFRecordRawDecoder(name, [width], flow.float if name == "masked_lm_weights" else flow.int32)
        for name, width in widths.items()
    }
    while True:
        record = reader()
        yield {name: decoder(record).numpy() for name, decoder in decoders.items()}


@pytest.mark.oneflow
def test_oneflows_trainers_train(flow: Any, folders: dict[str, Folder]) -> None:
    folder = folders["ofrecord"]
    folder.assert_holds(islice(ofrecord_data_loader(flow, folder.path, "train", folder.files), 20))


@pytest.mark.oneflow
def test_oneflows_trainers_evaluate_in_the_order_of_the_files(flow: Any, folders: dict[str, Folder]) -> None:
    folder = folders["ofrecord"]
    batches = ofrecord_data_loader(flow, folder.path, "test", folder.files)
    read = folder.assert_holds(islice(batches, -(-len(folder.records) // BATCH)))
    assert read[: len(folder.records)] == folder.records


@pytest.mark.oneflow
def test_oneflows_trainers_may_take_some_of_the_files(flow: Any, folders: dict[str, Folder]) -> None:
    """Such as four, for their evaluation: the first ones."""
    folder = folders["ofrecord"]
    with Records([folder.path.parent if folder.path.name == "training" else folder.path]) as records:
        first = [records.origin_of(number)[0].name for number in range(len(records))].index("part-4")
    read = folder.assert_holds(islice(ofrecord_data_loader(flow, folder.path, "test", 4), -(-first // BATCH)))
    assert read[:first] == folder.records[:first]

"""What TensorFlow's own writer writes validates and is shown: features in any order, gzip, and TensorFlow 2's names."""

import random
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from bertprep.check.outcome import Finding
from bertprep.commands.inspect import show_examples
from bertprep.commands.validate import validate
from tests.golden import GOLDEN
from tests.readers.protobuf_bytes import feature_map, field
from tests.readers.reader_checks import Created
from tests.readers.test_tensorflow_reads import features_of, shuffled

pytestmark = pytest.mark.tensorflow
VOCABULARY = GOLDEN / "vocab.txt"
NEW_NAMES = {"input_ids": "input_word_ids", "segment_ids": "input_type_ids"}  # NVIDIA's TensorFlow 2 scripts read these


@pytest.fixture(scope="module")
def tf() -> ModuleType:
    import tensorflow

    return tensorflow  # type: ignore[no-any-return]


def write(tf: Any, created: Created, path: Path, *, new_names: bool) -> int:
    """All records by TensorFlow's writer, each with its features in another order; returns their number."""
    rng, records = random.Random(0), len(created.values["next_sentence_labels"])
    with tf.io.TFRecordWriter(str(path), options="GZIP" if path.suffix == ".gz" else "") as writer:
        for i in range(records):
            features = shuffled(features_of(tf, created.values, i), rng)
            if new_names:
                features = {NEW_NAMES.get(name, name): feature for name, feature in features.items()}
            writer.write(field(1, feature_map(features)))
    return records


def findings(path: Path) -> list[Finding]:
    (outcome,) = validate([path], vocab=VOCABULARY, workers=1)
    return outcome.findings


@pytest.mark.parametrize("name", ["any_order.tfrecord", "any_order.tfrecord.gz"])
@pytest.mark.parametrize("new_names", [False, True], ids=["BERT's names", "TensorFlow 2's names"])
def test_files_of_tensorflow_validate(
    tf: Any, created: Created, name: str, new_names: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    records = write(tf, created, path, new_names=new_names)
    assert findings(path) == []
    show_examples(path, first=records - 1, count=1, vocab=VOCABULARY)
    shown = capsys.readouterr().out
    show_examples(created.tfrecord, first=records - 1, count=1, vocab=VOCABULARY)
    assert (
        shown.partition("\n")[2] == capsys.readouterr().out.partition("\n")[2]
    )  # all but the first line, which names the file


def test_examples_of_tensorflow_validate(tf: Any, created: Created, tmp_path: Path) -> None:
    """Serialized by protobuf's own code, in whatever order it takes."""
    path = tmp_path / "examples.tfrecord"
    with tf.io.TFRecordWriter(str(path)) as writer:
        for i in range(len(created.values["next_sentence_labels"])):
            features = {name: tf.train.Feature.FromString(f) for name, f in features_of(tf, created.values, i).items()}
            writer.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())
    assert findings(path) == []

"""Weights come from TensorFlow's checkpoints and go to them unchanged, and what cannot be read is one line."""

import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

from bertprep.errors import BertprepError
from bertprep.weights.hugging_face import read_weights
from bertprep.weights.tensor_bundle import MissingTensorFlowError, bundle_files, find_prefix, holds, open_bundle, write_bundle
from tests.weights.tensorflow_checkpoints import CHECKPOINT, WEIGHTS

NAME = "bert/pooler/dense/kernel"
needs_tensorflow = pytest.mark.tensorflow


def test_a_checkpoint_is_named_by_its_prefix_and_by_each_of_its_files(tmp_path: Path) -> None:
    for name in ("google_checkpoint", "google_checkpoint.index", "google_checkpoint.data-00001-of-00002"):
        assert find_prefix(CHECKPOINT.with_name(name)) == CHECKPOINT
    assert find_prefix(tmp_path) is None


@needs_tensorflow
def test_variables_are_read_from_all_data_files_and_counts_are_skipped() -> None:
    with open_bundle(CHECKPOINT) as bundle:
        assert len(bundle.shapes) == 3 * len(WEIGHTS)  # without global_step
        for name, values in WEIGHTS.items():
            np.testing.assert_array_equal(bundle.read(name), values)
            np.testing.assert_array_equal(bundle.read(f"{name}/adam_m"), np.full_like(values, 7))


@needs_tensorflow
def test_written_values_are_read_back_and_told_from_others(tmp_path: Path) -> None:
    prefix = tmp_path / "new" / "model.ckpt"
    assert not holds(prefix, WEIGHTS)
    table = np.arange(6, dtype=np.float32).reshape(3, 2)
    write_bundle(prefix, {"transposed": table.T, "number": np.array(3, np.float32)})
    with open_bundle(prefix) as bundle:
        assert bundle.shapes == {"number": (), "transposed": (2, 3)}
        np.testing.assert_array_equal(bundle.read("transposed"), table.T)
    assert not holds(prefix, WEIGHTS)
    write_bundle(prefix, WEIGHTS)
    assert holds(prefix, WEIGHTS)
    assert not holds(prefix, {**WEIGHTS, NAME: WEIGHTS[NAME] + 1})
    assert {path.name for path in prefix.parent.iterdir()} == {path.name for path in bundle_files(prefix)}


@needs_tensorflow
@pytest.mark.parametrize("file", [0, 1])
def test_damage_is_one_line(file: int, tmp_path: Path) -> None:
    prefix = tmp_path / "model.ckpt"
    write_bundle(prefix, WEIGHTS)
    path = bundle_files(prefix)[file]
    path.write_bytes(bytes(len(path.read_bytes())))
    with pytest.raises(BertprepError, match=r"model\.ckpt: TensorFlow cannot read it \(.*\); copy") as caught:  # noqa: SIM117
        with open_bundle(prefix) as bundle:
            bundle.read(NAME)
    assert "\n" not in str(caught.value)


@needs_tensorflow
def test_the_fields_scripts_start_from_what_is_written(tmp_path: Path) -> None:
    import tensorflow as tf

    prefix = str(tmp_path / "bert_model.ckpt")
    write_bundle(Path(prefix), WEIGHTS)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        tf.compat.v1.set_random_seed(1)  # wanted where operations are deterministic
        names = [NAME, "cls/predictions/output_bias"]
        first, second = (tf.compat.v1.get_variable(name, WEIGHTS[name].shape) for name in names)
        tf.compat.v1.train.init_from_checkpoint(prefix, {NAME: NAME})  # as Google's and NVIDIA's scripts begin
        session.run(tf.compat.v1.global_variables_initializer())
        np.testing.assert_array_equal(session.run(first), WEIGHTS[NAME])
        tf.compat.v1.train.Saver([second]).restore(session, prefix)  # as they go on
        np.testing.assert_array_equal(session.run(second), WEIGHTS[names[1]])


@needs_tensorflow
def test_the_conversion_that_the_error_names_gives_the_same_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_bundle(prefix := tmp_path / "bert_model.ckpt", WEIGHTS)
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "tensorflow", None)
        with pytest.raises(MissingTensorFlowError, match=r"need TensorFlow .*: pip install 'bertprep\[tensorflow\]'") as caught:
            open_bundle(prefix).__enter__()
    _, _, module, *arguments = str(caught.value).partition("on a machine with TensorFlow: ")[2].split()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, module)
    monkeypatch.setattr(sys, "argv", ["python", *arguments])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module(module, run_name="__main__")
    assert ended.value.code == 0
    found = read_weights(tmp_path / "model.safetensors", {name: value.shape for name, value in WEIGHTS.items()})
    for name, value in WEIGHTS.items():
        np.testing.assert_array_equal(found[name], value)

"""Weights come from and go to Hugging Face's files unchanged, and files that do not fit are refused."""

import re
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from bertprep.errors import BertprepError
from bertprep.weights.hugging_face import hugging_face_name, read_weights, save_weights
from bertprep.weights.safetensors import read_safetensors, write_safetensors
from tests.trainer.small_runs import WEIGHTS, read_golden
from trainer.tasks.pretraining import Pretraining

SHAPES = Pretraining().variable_shapes(read_golden()["config"])


def test_theirs_to_ours_and_back(tmp_path: Path) -> None:
    weights, theirs = read_weights(WEIGHTS, SHAPES), read_safetensors(WEIGHTS)
    assert list(weights) == list(SHAPES)
    query = "bert/encoder/layer_1/attention/self/query/kernel"
    np.testing.assert_array_equal(weights[query], theirs[hugging_face_name(query)].T)
    save_weights(tmp_path / "model.safetensors", weights)
    again = read_safetensors(tmp_path / "model.safetensors")
    assert again.keys() == theirs.keys()
    for name, value in theirs.items():
        np.testing.assert_array_equal(again[name], value)
    assert (tmp_path / "model.safetensors").read_bytes()[16:].startswith(b'data__":{"format":"pt"}')


def test_old_names_copies_and_files_of_the_body_alone_are_understood(tmp_path: Path) -> None:
    """bert-base-uncased has LayerNorm.gamma, and the decoder's matrix once more; sentence-transformers no "bert."."""
    theirs, expected, path = read_safetensors(WEIGHTS), read_weights(WEIGHTS, SHAPES), tmp_path / "model.safetensors"
    old = {
        re.sub(r"LayerNorm\.weight$", "LayerNorm.gamma", re.sub(r"LayerNorm\.bias$", "LayerNorm.beta", name)): value
        for name, value in theirs.items()
    }
    old["cls.predictions.decoder.weight"] = old["bert.embeddings.word_embeddings.weight"]
    body = {name.removeprefix("bert."): value for name, value in theirs.items() if name.startswith("bert.")}
    for content, names in (old, list(expected)), (body, [name for name in expected if name.startswith("bert/")]):
        write_safetensors(path, content, {"format": "pt"})
        found = read_weights(path, SHAPES, heads=content is old)
        assert sorted(found) == sorted(names)
        for name, value in found.items():
            np.testing.assert_array_equal(value, expected[name])
    with pytest.raises(BertprepError, match=r"lacks 7 of .*cls\.predictions"):
        read_weights(path, SHAPES)


def test_every_precision_is_read_as_float32_and_integers_are_left_out(tmp_path: Path) -> None:
    values = np.array([[1.5, -2.0]])
    precisions = {"half": np.float16, "brain": ml_dtypes.bfloat16, "double": np.float64, "positions": np.int64}
    save_file({name: values.astype(kind) for name, kind in precisions.items()}, tmp_path / "file")
    arrays = read_safetensors(tmp_path / "file")
    assert sorted(arrays) == ["brain", "double", "half"]
    for array in arrays.values():
        assert array.dtype == np.float32
        np.testing.assert_array_equal(array, values)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 something else", WEIGHTS.read_bytes()[:-100]])
def test_other_and_truncated_files_are_refused_in_a_line(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(BertprepError, match=f"^{path}: is not a valid safetensors file: .*; name another"):
        read_safetensors(path)
    path.unlink()
    with pytest.raises(BertprepError, match=f"^{path}: cannot be read: No such file"):
        read_safetensors(path)

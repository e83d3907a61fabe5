"""The files written for a downloaded model under Google's name for it, and those that are not."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from bertprep.errors import BertprepError, BertprepWarning
from bertprep.sources.release import link_into, write_bert_config, write_release
from bertprep.weights.safetensors import read_safetensors, write_safetensors
from bertprep.weights.tensor_bundle import open_bundle
from tests.small_hub import release_files


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A downloaded model."""
    (folder := tmp_path / "weights" / "bert").mkdir(parents=True)
    for name in ("config.json", "vocab.txt", "model.safetensors"):
        (folder / name).write_bytes(release_files()[name])
    write_bert_config(folder)
    return folder


@pytest.mark.tensorflow
def test_heads_that_a_model_lacks_are_left_out_and_said(source: Path, tmp_path: Path) -> None:
    weights = read_safetensors(source / "model.safetensors")
    without = {name: value for name, value in weights.items() if not name.startswith("cls.seq")}
    write_safetensors(source / "model.safetensors", without, {})
    with pytest.warns(BertprepWarning, match="ckpt: lacks 2 variables of the pretraining heads, as the download does$"):
        write_release(source, tmp_path / "release", [])
    with open_bundle(tmp_path / "release" / "bert_model.ckpt") as bundle:
        assert len(bundle.shapes) == 44


def test_without_tensorflow_a_line_says_what_adds_the_checkpoint(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    with pytest.warns(
        BertprepWarning, match=r"ckpt: not written, since it needs TensorFlow; pip install 'bertprep\[tensorflow\]'"
    ):
        write_release(source, tmp_path / "release", [])
    assert {path.name for path in (tmp_path / "release").iterdir()} >= {"bert_config.json", "vocab.txt"}
    assert not list((tmp_path / "release").glob("*.ckpt*"))


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        (3, r"model\.safetensors: lacks 16 of the model's 62 variables: bert\.encoder"),
        *(
            (layers, r"bert_config\.json: num_hidden_layers is .*, expected 1 to 1,000; download")
            for layers in (10**12, 0, "12", True)
        ),
    ],
)
def test_a_model_that_is_not_its_configurations_is_refused(layers: Any, message: str, source: Path, tmp_path: Path) -> None:
    config = source / "bert_config.json"
    config.write_text(json.dumps({**json.loads(config.read_bytes()), "num_hidden_layers": layers}))
    with pytest.raises(BertprepError, match=message):
        write_release(source, tmp_path / "release", [])
    assert not (tmp_path / "release").exists()


def test_what_leads_to_the_same_bytes_is_left_as_it_is(source: Path, tmp_path: Path) -> None:
    """As where a user unpacked Google's own release."""
    release = tmp_path / "release"
    release.mkdir()
    (release / "vocab.txt").write_bytes((source / "vocab.txt").read_bytes())
    link_into(release, source / "vocab.txt", source / "config.json")
    assert not (release / "vocab.txt").is_symlink()
    assert (release / "config.json").readlink() == Path("../weights/bert/config.json")
    (release / "vocab.txt").write_text("of another model\n")
    link_into(release, source / "vocab.txt")
    assert (release / "vocab.txt").samefile(source / "vocab.txt")

"""What is exported is what transformers and Google's scripts look for, by their names, with the values that were trained."""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from bertprep.errors import BertprepError, UsageError
from bertprep.tasks.glue import TASKS, own_task
from bertprep.weights.hugging_face import hugging_face_name
from bertprep.weights.safetensors import read_metadata, read_safetensors
from bertprep.weights.tensor_bundle import open_bundle
from tests.golden import GOLDEN
from tests.object_store import Store, store
from tests.trainer.small_runs import WEIGHTS, read_golden
from tests.trainer.test_initial_weights import CONFIG, check_equal, read, save_checkpoint
from trainer.cli import main
from trainer.export import export_model
from trainer.model_config import ModelConfig
from trainer.tasks.classification import Classification
from trainer.tasks.pretraining import Pretraining
from trainer.tasks.squad import Squad
from trainer.tasks.task import Task

__all__ = ["store"]  # a fixture

VOCABULARY = "".join(f"token{number}\n" for number in range(CONFIG.vocab_size))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The folder of a run, with two checkpoints of a cased model."""
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "vocab.txt").write_text(VOCABULARY)
    save_checkpoint(folder, step=1000, cased=True)
    save_checkpoint(folder, step=2000, seed=2, cased=True)
    return folder


def test_the_newest_checkpoint_as_transformers_has_it(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine = tmp_path / "models" / "mine"
    export_model(run, mine)
    names = ["config.json", "model.safetensors", "tokenizer_config.json", "vocab.txt"]
    assert sorted(path.name for path in (tmp_path / "models").rglob("*")) == sorted([*names, "mine"])
    check_equal(read(mine), read(run))
    kernel = "bert/encoder/layer_0/intermediate/dense/kernel"
    theirs = read_safetensors(mine / "model.safetensors")
    np.testing.assert_array_equal(theirs[hugging_face_name(kernel)], read(run)[kernel].T)
    assert ModelConfig.from_file(mine / "config.json") == CONFIG
    config = json.loads((mine / "config.json").read_bytes())
    assert (config["architectures"], config["model_type"]) == (["BertForPreTraining"], "bert")
    assert "pad_token_id" not in config
    assert (mine / "vocab.txt").read_text() == VOCABULARY
    tokenizer = json.loads((mine / "tokenizer_config.json").read_bytes())
    assert tokenizer == {"do_lower_case": False, "model_max_length": 32, "tokenizer_class": "BertTokenizer"}
    printed = capsys.readouterr().err
    assert f"{mine}: {', '.join(names)}\n" in printed
    assert "checkpoint-000002000.safetensors: step 2,000, " in printed
    export_model(run / "checkpoint-000001000.safetensors", tmp_path / "older")
    check_equal(read(tmp_path / "older"), read(run / "checkpoint-000001000.safetensors"))


@pytest.mark.tensorflow
def test_a_run_as_google_releases_models(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "mine"
    assert main(["export", "--to", "google", str(run), str(target)]) == 0
    assert sorted(path.name for path in target.iterdir()) == [
        "bert_config.json", "bert_model.ckpt.data-00000-of-00001", "bert_model.ckpt.index", "vocab.txt",
    ]  # fmt: skip
    check_equal(read(target), read(run))
    assert json.loads((target / "bert_config.json").read_text()) == asdict(CONFIG)
    printed = capsys.readouterr().err
    advice = "give --do_lower_case=False to scripts that tokenize text"
    assert f"--init_checkpoint={target}/bert_model.ckpt\n  {advice}\n" in printed
    with pytest.raises(UsageError, match=r"bert_model\.ckpt: is not a checkpoint of this trainer"):
        export_model(target, tmp_path / "again")


def test_a_run_in_a_store_goes_to_a_disk(run: Path, tmp_path: Path, store: Store) -> None:
    for path in run.iterdir():
        assert store.request("PUT", f"run/{path.name}", path.read_bytes()) == 200
    assert main(["export", f"{store.url}/run", str(tmp_path / "mine")]) == 0
    export_model(run, tmp_path / "expected")
    for path in (tmp_path / "expected").iterdir():
        assert (tmp_path / "mine" / path.name).read_bytes() == path.read_bytes()


def test_what_the_settings_have_only_where_it_is_known(run: Path, tmp_path: Path) -> None:
    """The id of [PAD] where it is not 0, which transformers takes it to be; whether letters are lower-cased."""
    (run / "vocab.txt").write_text(VOCABULARY.replace("token4\n", "[PAD]\n"))
    save_checkpoint(run, step=3000, seed=3, cased=None)
    export_model(run, tmp_path / "mine")
    assert json.loads((tmp_path / "mine" / "config.json").read_bytes())["pad_token_id"] == 4
    assert ModelConfig.from_file(tmp_path / "mine" / "config.json") == CONFIG
    assert "do_lower_case" not in json.loads((tmp_path / "mine" / "tokenizer_config.json").read_bytes())


def test_an_empty_folder_is_taken(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "mine"
    target.mkdir()
    monkeypatch.chdir(target)
    export_model(run, Path())
    assert len(list(target.iterdir())) == 4


NEWEST = "checkpoint-000002000.safetensors"


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("vocab.txt", lambda _: None, r"vocab\.txt: cannot be read: No such file"),
        ("vocab.txt", lambda data: data + b"one more\n", r"vocab\.txt: has 41 tokens, but the model has 40"),
        (NEWEST, lambda data: data.replace(b'/bias":', b'/bier":', 1), f"{NEWEST}: "),
        (NEWEST, lambda data: data[:-1], f"{NEWEST}: "),
    ],
)
def test_an_incomplete_run_leaves_nothing(
    file: str, change: Callable[[bytes], bytes | None], message: str, run: Path, tmp_path: Path
) -> None:
    changed = change((run / file).read_bytes())
    (run / file).unlink()
    if changed is not None:
        (run / file).write_bytes(changed)
    with pytest.raises(BertprepError, match=message):
        export_model(run, tmp_path / "mine")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    ("kind", "task", "settings"),
    [
        ("pretraining", Pretraining(), ("BertForPreTraining", None, None)),
        ("mlm_only", Pretraining(has_pairs=False), ("BertForMaskedLM", None, None)),
        ("squad", Squad("v1.1"), ("BertForQuestionAnswering", None, None)),
        (
            "classification",
            Classification(own_task("three", ("a", "b", "c"))),
            ("BertForSequenceClassification", "single_label_classification", {"0": "a", "1": "b", "2": "c"}),
        ),
        ("regression", Classification(TASKS["stsb"]), ("BertForSequenceClassification", "regression", {"0": "score"})),
    ],
)
def test_each_task_has_hugging_faces_class_and_shapes(
    kind: str, task: Task, settings: tuple[object, ...], tmp_path: Path
) -> None:
    config, heads = read_golden()["config"], json.loads((GOLDEN / "hugging_face_heads.json").read_bytes())
    weights = save_checkpoint(tmp_path, task, config=config)
    (tmp_path / "vocab.txt").write_text("[PAD]\n")
    export_model(tmp_path, tmp_path / "theirs")
    found = {name: list(value.shape) for name, value in read_safetensors(tmp_path / "theirs" / "model.safetensors").items()}
    if kind == "pretraining":
        assert found == {name: list(value.shape) for name, value in read_safetensors(WEIGHTS).items()}
    elif kind in heads:
        assert found == heads[kind]["shapes"]
    assert read_metadata(tmp_path / "theirs" / "model.safetensors") == {"format": "pt"}
    written = json.loads((tmp_path / "theirs" / "config.json").read_bytes())
    assert (written["architectures"][0], written.get("problem_type"), written.get("id2label")) == settings
    export_model(tmp_path, tmp_path / "googles", to="google")
    with open_bundle(tmp_path / "googles" / "bert_model.ckpt") as bundle:
        assert bundle.shapes == task.variable_shapes(config)
    if isinstance(task, (Classification, Pretraining)):
        check_equal(read(tmp_path / "theirs", task, config), weights)  # a classifier's head by its labels

"""What is exported is what transformers looks for, by its names, with the values that were trained."""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from bertprep.errors import BertprepError, UsageError
from bertprep.files import object_store
from bertprep.files.atomic import atomic_file
from bertprep.files.places import place
from bertprep.weights.hugging_face import hugging_face_name
from bertprep.weights.safetensors import read_metadata, read_safetensors
from bertprep.weights.tensor_bundle import TensorBundle
from tests.golden import GOLDEN
from tests.trainer.golden_model import WEIGHTS, read_golden
from tests.trainer.test_heads import TASKS
from tests.trainer.test_initial_weights import CONFIG, check_equal, save_checkpoint
from trainer import checkpoint
from trainer.cli import main
from trainer.export import export_model
from trainer.model_config import ModelConfig
from trainer.weights import initial_values, read_initial_weights

VOCABULARY = "".join(f"token{number}\n" for number in range(CONFIG.vocab_size))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The folder of a run, with two checkpoints of a cased model."""
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "vocab.txt").write_text(VOCABULARY)
    save_checkpoint(folder, 1000, seed=1, cased=True)
    save_checkpoint(folder, 2000, seed=2, cased=True)
    return folder


def test_the_newest_checkpoint_of_a_run_goes_out_and_in_again(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    export_model(run, tmp_path / "models" / "mine")
    names = ["config.json", "model.safetensors", "tokenizer_config.json", "vocab.txt"]
    assert sorted(path.name for path in (tmp_path / "models").rglob("*")) == sorted([*names, "mine"])
    check_equal(read_initial_weights(tmp_path / "models" / "mine", CONFIG), read_initial_weights(run, CONFIG))
    said = capsys.readouterr().err
    assert f"{tmp_path / 'models' / 'mine'}: {', '.join(names)}\n" in said
    assert "checkpoint-000002000.safetensors: step 2,000, " in said


def test_a_checkpoint_goes_out_by_its_name(run: Path, tmp_path: Path) -> None:
    older = run / "checkpoint-000001000.safetensors"
    export_model(older, tmp_path / "mine", to="transformers")
    check_equal(read_initial_weights(tmp_path / "mine", CONFIG), read_initial_weights(older, CONFIG))


def test_a_run_in_a_store_goes_out_to_a_disk(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    request.addfinalizer(object_store.forget)
    monkeypatch.setenv("BERTPREP_OBJECT_CACHE", str(tmp_path / "cache"))
    object_store.forget()
    for path in run.iterdir():
        with atomic_file(place(f"memory://bucket/run/{path.name}")) as made:
            made.write(path.read_bytes())
    assert main(["export", "memory://bucket/run", str(tmp_path / "mine")]) == 0
    export_model(run, tmp_path / "expected")
    for path in (tmp_path / "expected").iterdir():
        assert (tmp_path / "mine" / path.name).read_bytes() == path.read_bytes()
    capsys.readouterr()
    assert main(["export", str(run), "memory://bucket/mine"]) == 2
    assert "DIR memory://bucket/mine: must be a path of this machine, not a URL\n" in capsys.readouterr().err
    assert main(["export", "memory://bucket/none", str(tmp_path / "none")]) == 2
    assert "memory://bucket/none: does not exist; name a checkpoint" in capsys.readouterr().err


def test_a_run_goes_out_as_google_releases_models(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "mine"
    assert main(["export", "--to", "google", str(run), str(target)]) == 0
    assert sorted(path.name for path in target.iterdir()) == [
        "bert_config.json", "bert_model.ckpt.data-00000-of-00001", "bert_model.ckpt.index", "vocab.txt",
    ]  # fmt: skip
    expected = read_initial_weights(run, CONFIG)
    assert TensorBundle(target / "bert_model.ckpt").shapes == {name: value.shape for name, value in expected.items()}
    check_equal(read_initial_weights(target, CONFIG), expected)
    assert json.loads((target / "bert_config.json").read_text()) == asdict(CONFIG)
    assert (target / "vocab.txt").read_text() == VOCABULARY
    said = capsys.readouterr().err
    assert f"--init_checkpoint={target}/bert_model.ckpt\n  with --do_lower_case=False, where a script tokenizes text\n" in said
    with pytest.raises(UsageError, match=r"bert_model\.ckpt: is not a checkpoint of this trainer"):
        export_model(target, tmp_path / "again")


def test_the_names_and_shapes_are_those_of_hugging_faces_own_file(tmp_path: Path) -> None:
    config = read_golden()["config"]
    save_checkpoint(tmp_path, 5, seed=1, config=config)
    (tmp_path / "vocab.txt").write_text("[PAD]\n")
    export_model(tmp_path, tmp_path / "mine")
    ours, theirs = (read_safetensors(path) for path in (tmp_path / "mine" / "model.safetensors", WEIGHTS))
    assert {name: value.shape for name, value in ours.items()} == {name: value.shape for name, value in theirs.items()}
    assert read_metadata(tmp_path / "mine" / "model.safetensors") == {"format": "pt"}


def test_dense_layers_are_turned_as_theirs_are(run: Path, tmp_path: Path) -> None:
    export_model(run, tmp_path / "mine")
    name = "bert/encoder/layer_0/intermediate/dense/kernel"
    theirs = read_safetensors(tmp_path / "mine" / "model.safetensors")[hugging_face_name(name)]
    np.testing.assert_array_equal(theirs, read_initial_weights(run, CONFIG)[name].T)


def test_the_settings_and_the_vocabulary_are_those_of_the_run(run: Path, tmp_path: Path) -> None:
    export_model(run, tmp_path / "mine")
    assert ModelConfig.from_file(tmp_path / "mine" / "config.json") == CONFIG
    config = json.loads((tmp_path / "mine" / "config.json").read_bytes())
    assert (config["architectures"], config["model_type"]) == (["BertForPreTraining"], "bert")
    assert (tmp_path / "mine" / "vocab.txt").read_text() == VOCABULARY
    tokenizer = json.loads((tmp_path / "mine" / "tokenizer_config.json").read_bytes())
    assert tokenizer == {"do_lower_case": False, "model_max_length": 32, "tokenizer_class": "BertTokenizer"}


def test_padding_is_told_where_it_is_not_token_0(run: Path, tmp_path: Path) -> None:
    export_model(run, tmp_path / "usual")
    assert "pad_token_id" not in json.loads((tmp_path / "usual" / "config.json").read_bytes())
    (run / "vocab.txt").write_text(VOCABULARY.replace("token4\n", "[PAD]\n"))
    export_model(run, tmp_path / "mine")
    assert json.loads((tmp_path / "mine" / "config.json").read_bytes())["pad_token_id"] == 4
    assert ModelConfig.from_file(tmp_path / "mine" / "config.json") == CONFIG


def test_whether_letters_are_lower_cased_may_be_unknown(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_checkpoint(run, 3000, seed=3, cased=None)
    export_model(run, tmp_path / "mine")
    assert "do_lower_case" not in json.loads((tmp_path / "mine" / "tokenizer_config.json").read_bytes())
    assert "whether its vocabulary is cased is not known" in capsys.readouterr().err


def test_a_folder_that_holds_anything_is_left_alone(run: Path, tmp_path: Path) -> None:
    target = tmp_path / "mine"
    target.mkdir()
    export_model(run, target)  # an empty one is taken
    kept = {path: path.read_bytes() for path in target.iterdir()}
    with pytest.raises(UsageError, match=r"mine: exists already; name a folder that is empty or does not exist"):
        export_model(run, target)
    with pytest.raises(UsageError, match=r"vocab\.txt: exists already"):
        export_model(run, target / "vocab.txt")
    assert {path: path.read_bytes() for path in target.iterdir()} == kept


def leave_out_vocabulary(run: Path) -> None:
    (run / "vocab.txt").unlink()


def take_another_vocabulary(run: Path) -> None:
    (run / "vocab.txt").write_text(VOCABULARY + "one more\n")


def remove_a_variable(run: Path) -> None:
    save_checkpoint(run, 3000, seed=1, config=CONFIG)
    path = run / "checkpoint-000003000.safetensors"
    path.write_bytes(path.read_bytes().replace(b'"bert/pooler/dense/bias":', b'"bert/pooler/dense/bier":'))


def cut_off(run: Path) -> None:
    path = run / "checkpoint-000002000.safetensors"
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (leave_out_vocabulary, r"vocab\.txt: cannot be read: No such file or directory; a run keeps its vocabulary"),
        (take_another_vocabulary, r"vocab\.txt: has 41 tokens, the model has 40; put the vocabulary of its records there"),
        (remove_a_variable, r"is damaged \(its arrays are not those that were written"),
        (cut_off, r"the file is cut off or damaged"),
    ],
)
def test_what_is_not_whole_leaves_nothing(spoil: Callable[[Path], None], message: str, run: Path, tmp_path: Path) -> None:
    spoil(run)
    with pytest.raises(BertprepError, match=message):
        export_model(run, tmp_path / "mine")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_the_folder_that_one_stands_in_may_be_the_target(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine").mkdir()
    monkeypatch.chdir(tmp_path / "mine")
    export_model(run, Path())
    assert (tmp_path / "mine" / "model.safetensors").is_file()


def test_a_folder_that_cannot_be_written_is_one_line(run: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(BertprepError, match=r"file/mine: cannot be written: .*file is a file, expected a folder"):
        export_model(run, tmp_path / "file" / "mine")


def test_what_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"hugging_face\.safetensors: is not a checkpoint of this trainer"):
        export_model(WEIGHTS, tmp_path / "mine")
    with pytest.raises(UsageError, match=r"absent: does not exist"):
        export_model(tmp_path / "absent", tmp_path / "mine")


def test_the_command(run: Path, tmp_path: Path) -> None:
    assert main(["export", "--to", "transformers", str(run), str(tmp_path / "mine")]) == 0
    assert (tmp_path / "mine" / "model.safetensors").is_file()
    assert main(["export", str(run), str(tmp_path / "mine")]) == 2
    with pytest.raises(SystemExit, match=r"^2$"):
        main(["export", "--to", "onnx", str(run), str(tmp_path / "other")])


@pytest.mark.parametrize("kind", ["squad", "classification", "regression"])
def test_a_fine_tuned_run_goes_out_as_hugging_faces_class(kind: str, tmp_path: Path) -> None:
    task, golden = TASKS[kind], json.loads((GOLDEN / "hugging_face_heads.json").read_bytes())[kind]
    config = read_golden()["config"]
    weights = initial_values(config, 1, task)
    checkpoint.save(tmp_path, checkpoint.RunState({"model": asdict(config), **task.made_with()}, 5), weights, keep=1)
    (tmp_path / "vocab.txt").write_text("[PAD]\n")
    export_model(tmp_path, tmp_path / "theirs")
    found = read_safetensors(tmp_path / "theirs" / "model.safetensors")
    assert {name: list(value.shape) for name, value in found.items()} == golden["shapes"]
    said = json.loads((tmp_path / "theirs" / "config.json").read_bytes())
    expected = {
        "squad": ("BertForQuestionAnswering", None, None),
        "classification": ("BertForSequenceClassification", "single_label_classification", {"0": "a", "1": "b", "2": "c"}),
        "regression": ("BertForSequenceClassification", "regression", {"0": "score"}),
    }
    assert (said["architectures"][0], said.get("problem_type"), said.get("id2label")) == expected[kind]
    export_model(tmp_path, tmp_path / "googles", to="google")
    assert TensorBundle(tmp_path / "googles" / "bert_model.ckpt").shapes == task.variable_shapes(config)
    for folder in ("theirs", "googles"):
        check_equal(read_initial_weights(tmp_path / folder, config, task), weights)

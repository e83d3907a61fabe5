"""A model that is pretrained without sentence pairs: its run, what it is evaluated on, exported to and started from."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

import bertprep
from bertprep.config import InstanceSettings, ShardSettings
from bertprep.errors import BertprepError
from bertprep.records.data_sets import find_records
from bertprep.tasks.glue import TASKS as GLUE
from bertprep.weights.hugging_face import hugging_face_name, save_weights
from bertprep.weights.safetensors import read_safetensors
from bertprep.weights.tensor_bundle import TensorBundle, write_bundle
from tests.trainer.small_runs import PRED, SEQ, VOCABULARY, arguments_of
from tests.weights.tensorflow_checkpoints import CONFIG
from trainer import checkpoint
from trainer.cli import main
from trainer.export import export_model
from trainer.log import LOG
from trainer.tasks import Task
from trainer.tasks.classification import Classification
from trainer.tasks.pretraining import MASKED_LM, PRETRAINING
from trainer.tasks.registry import describe_task, task_of_checkpoint, task_of_records
from trainer.tasks.squad import Squad
from trainer.weights import check_initial_weights, describe_other_head, initial_values, read_initial_weights

OF_PAIRS = ("bert/pooler/", "cls/seq_relationship/")
COLA = Classification(GLUE["cola"])
by_writer = pytest.mark.parametrize("writer", ["checkpoint", "hugging face", "google"])


def write_weights(folder: Path, writer: str, task: Task) -> Path:
    """The weights of a task's model as a checkpoint, in Hugging Face's file or in Google's."""
    weights = initial_values(CONFIG, 1, task)
    if writer == "checkpoint":
        run = checkpoint.RunState({"model": asdict(CONFIG), **task.made_with()}, 10)
        return checkpoint.save(folder, run, weights, keep=1)
    folder.mkdir()
    if writer == "google":
        write_bundle(folder / "bert_model.ckpt", weights)
        return folder / "bert_model.ckpt"
    save_weights(folder / "model.safetensors", weights)
    return folder / "model.safetensors"


def test_a_checkpoint_tells_whether_it_has_pairs(tmp_path: Path) -> None:
    for task, name in ((PRETRAINING, "pretraining with sentence pairs"), (MASKED_LM, "pretraining without sentence pairs")):
        found = task_of_checkpoint(checkpoint.read_header(write_weights(tmp_path / name, "checkpoint", task)))
        assert (found, describe_task(found)) == (task, name)
    left = PRETRAINING.variable_shapes(CONFIG).keys() - MASKED_LM.variable_shapes(CONFIG).keys()
    assert len(left) == 4
    assert all(name.startswith(OF_PAIRS) for name in left)


@by_writer
def test_heads_for_pairs_are_left_out_and_cannot_be_had_from_nowhere(writer: str, tmp_path: Path) -> None:
    paired = write_weights(tmp_path / "paired", writer, PRETRAINING)
    unpaired = write_weights(tmp_path / "unpaired", writer, MASKED_LM)
    for path in (paired, unpaired):
        check_initial_weights(path, CONFIG, MASKED_LM)
        assert list(read_initial_weights(path, CONFIG, MASKED_LM)) == list(MASKED_LM.variable_shapes(CONFIG))
    line = f"--init {paired}: its next-sentence head and pooler are left out, as the data have no sentence pairs"
    assert describe_other_head(paired, CONFIG, MASKED_LM) == line
    assert describe_other_head(unpaired, CONFIG, MASKED_LM) == describe_other_head(paired, CONFIG, PRETRAINING) == ""
    with pytest.raises(BertprepError, match="has neither a pooler nor a next-sentence head, as after "):
        check_initial_weights(unpaired, CONFIG, PRETRAINING)


@by_writer
def test_fine_tuning_after_it_draws_the_pooler_where_the_task_has_one(writer: str, tmp_path: Path) -> None:
    unpaired = write_weights(tmp_path / "model", writer, MASKED_LM)
    for task in (COLA, Squad("1.1")):
        check_initial_weights(unpaired, CONFIG, task)
        found = read_initial_weights(unpaired, CONFIG, task, heads=False)
        body = [name for name in task.variable_shapes(CONFIG) if name.startswith("bert/") and not name.startswith(OF_PAIRS)]
        assert list(found) == body
    line = "has no pooler, as after training without sentence pairs; that and the head are drawn from the seed"
    assert describe_other_head(unpaired, CONFIG, COLA) == f"--init {unpaired}: {line}"
    assert describe_other_head(unpaired, CONFIG, Squad("1.1")) == ""


def test_it_goes_out_as_the_class_and_the_variables_that_it_has(tmp_path: Path) -> None:
    write_weights(tmp_path / "run", "checkpoint", MASKED_LM)
    (tmp_path / "run" / "vocab.txt").write_text("[PAD]\n")
    export_model(tmp_path / "run", tmp_path / "theirs")
    assert json.loads((tmp_path / "theirs" / "config.json").read_bytes())["architectures"] == ["BertForMaskedLM"]
    expected = list(MASKED_LM.variable_shapes(CONFIG))
    assert sorted(read_safetensors(tmp_path / "theirs" / "model.safetensors")) == sorted(map(hugging_face_name, expected))
    export_model(tmp_path / "run", tmp_path / "googles", to="google")
    assert sorted(TensorBundle(tmp_path / "googles" / "bert_model.ckpt").shapes) == sorted(expected)


@pytest.fixture(scope="module")
def data(golden_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Records of the golden corpus with pairs and without, by `pairs`."""
    workdir = tmp_path_factory.mktemp("data")
    bertprep.shard([golden_corpus], ShardSettings(shards=2, splitter="lines"), workdir=workdir, corpus="golden", workers=1)
    made = {}
    for pairs in ("next-sentence", "none"):
        settings = InstanceSettings(seq=SEQ, pred=PRED, dupe=1, pairs=pairs)
        created = bertprep.create(
            settings=settings, workdir=workdir, corpus="golden", vocab=VOCABULARY, formats="ofrecord", workers=1
        )
        made[pairs] = created.folders["ofrecord"]
    return made


@pytest.mark.tensorflow
def test_a_run_has_no_next_sentences(data: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = tmp_path / "whole"
    options = ["--data", str(data["none"]), "--steps", "4", "--eval-sequences", "50"]
    assert main(arguments_of(tmp_path, whole, *options)) == 0
    assert "masked LM alone, without a next-sentence head and pooler: the data have no " in capsys.readouterr().err
    entries = [json.loads(line) for line in (whole / LOG).read_text().splitlines()]
    assert {entry["kind"] for entry in entries} >= {"train", "evaluation"}
    assert not any(name.startswith("next_sentence") for entry in entries for name in entry)
    (last,) = checkpoint.find_checkpoints(whole)
    assert not any(name.startswith(OF_PAIRS) for name in read_safetensors(last))
    assert main(arguments_of(tmp_path, whole, *options)) == 0
    assert f"{whole}: is finished" in capsys.readouterr().err
    assert [task_of_records(find_records(data[pairs])) for pairs in ("next-sentence", "none")] == [PRETRAINING, MASKED_LM]
    paired = ["--data", str(data["next-sentence"]), *options[2:]]
    assert main(arguments_of(tmp_path, whole, *paired)) == 2
    assert main(arguments_of(tmp_path, tmp_path / "new", *paired, "--init", str(whole))) == 1
    assert main(arguments_of(tmp_path, tmp_path / "new", *options[2:], "--data", *map(str, data.values()))) == 2
    other_out, no_heads, two_kinds = capsys.readouterr().err.strip().splitlines()[-3:]
    assert f"{last}: is of pretraining without sentence pairs, the data are for pretraining with" in other_out
    assert "has neither a pooler nor a next-sentence head" in no_heads
    assert "has unpaired pretraining records" in two_kinds

"""Token classification: scores are seqeval's, a run learns, and its model is transformers' BertForTokenClassification."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest

import bertprep
from bertprep.records import Records
from tests.golden import GOLDEN
from tests.trainer.numpy_engine import plan, read_entries
from tests.trainer.small_runs import MODEL, SEQ, VOCABULARY, build, on_each_engine
from trainer.batches import features
from trainer.checkpoint import BEST
from trainer.cli import main
from trainer.export import export_model
from trainer.tasks import task_of_checkpoint, task_of_records
from trainer.tasks.task import Task
from trainer.tasks.token_classification import TokenClassification, find_entities, score_entities
from trainer.weights import read_weights

CASES = json.loads((GOLDEN / "seqeval.json").read_bytes())["cases"]
PEOPLE, PLACES, OTHERS = ("king", "john"), ("west", "county"), ("the", "red", "sun", "dog", "in", ".")
LABELS = ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")


def sentence(rng: random.Random) -> list[tuple[str, str]]:
    words = [(rng.choice(OTHERS), "O") for _ in range(rng.randint(2, 5))]
    for kind, names in (("PER", PEOPLE), ("LOC", PLACES)):
        at = rng.randint(0, len(words))
        words[at:at] = [(names[0], f"B-{kind}"), (names[1], f"I-{kind}")]
    return words


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, rng = tmp_path_factory.mktemp("ner"), random.Random(1)
    for split, count in (("train", 96), ("dev", 20)):
        lines = ["".join(f"{word} {tag}\n" for word, tag in sentence(rng)) for _ in range(count)]
        (folder / f"{split}.conll").write_text("\n".join(lines))
    (folder / "bert_config.json").write_text(MODEL.to_json())
    made = bertprep.create_ner(
        "tiny", inputs=[folder], workdir=folder, vocab=VOCABULARY, seq=SEQ, formats="tfrecord", workers=1
    )
    return made.folders["tfrecord"]


@pytest.mark.parametrize("case", CASES)
def test_scores_and_entities_are_seqevals(case: dict[str, list[list[str]]]) -> None:
    found = score_entities(case["expected"], case["found"])
    assert found == {name: pytest.approx(case[name]) for name in ("precision", "recall", "f1")}
    assert [list(map(list, find_entities(tags))) for tags in case["expected"]] == case["entities"]


def test_the_task_of_records_and_of_checkpoints_is_the_same(data: Path) -> None:
    from bertprep.work.choose import find_records

    task = task_of_records(find_records(data))
    assert task == TokenClassification("tiny", LABELS)
    assert task_of_checkpoint(json.loads(json.dumps(task.metadata()))) == task
    run = plan(f"ner --workdir {data.parents[2]} --name tiny --model {data.parents[2]}/bert_config.json")
    assert (run.task, run.schedule.peak, run.options.default_epochs, run.eval_sequences) == (task, 5e-5, 3, 0)
    assert run.out.name == "ner_tiny_bert_config"


@on_each_engine
def test_a_run_learns_names_and_is_scored_by_entities(engine: str, data: Path, tmp_path: Path) -> None:
    words = (
        f"ner --data {data} --engine {engine} --model {data.parents[2]}/bert_config.json --out {tmp_path / 'run'} --epochs 4"
    )
    assert main([*words.split(), "--batch-size", "8", "--lr", "3e-3", "--log-every", "6", "--no-dropout"]) == 0
    entries = read_entries(tmp_path / "run", "evaluation")
    assert [entry["f1"] > 0.95 for entry in entries][-1]
    assert entries[-1].keys() >= {"loss", "precision", "recall", "f1", "accuracy"}
    assert "accuracy" in read_entries(tmp_path / "run", "train")[0]
    predict = ["evaluate", "--init", str(tmp_path / "run" / BEST), "--data", str(data), "--engine", engine]
    assert main([*predict, "--out", str(tmp_path / "out")]) == 0
    lines = (tmp_path / "out" / "dev" / "predictions.txt").read_text().splitlines()
    assert len(lines) == 20
    assert {tag for line in lines for tag in line.split()} <= {*LABELS}


def random_model(task: Task, folder: Path) -> Path:
    from tests.trainer.small_data import save_checkpoint

    save_checkpoint(folder, task)
    (folder / "vocab.txt").write_bytes(VOCABULARY.read_bytes())
    return folder


@pytest.mark.torch
def test_the_exported_model_is_that_of_transformers(data: Path, tmp_path: Path) -> None:
    """With the same logits and the same loss, of labels that are -100 where the records have no weight."""
    import torch
    from transformers import AutoModelForTokenClassification

    task = TokenClassification("tiny", LABELS)
    run = random_model(task, tmp_path / "run")
    export_model(run, tmp_path / "hf")
    theirs = AutoModelForTokenClassification.from_pretrained(tmp_path / "hf").eval()
    assert (type(theirs).__name__, theirs.config.id2label) == ("BertForTokenClassification", dict(enumerate(LABELS)))
    engine = build("torch", task=task)
    engine.restore(read_weights(run, MODEL, task)[0])
    with Records([data], "test") as records:
        examples = records.kind.empty(len(records), seq=records.seq)
        records.gather_into(examples, np.arange(len(records)))
    batch = features(examples)
    labels = torch.tensor(np.where(examples.label_weights > 0, examples.label_ids, -100)).long()
    with torch.no_grad():
        expected = theirs(
            input_ids=torch.tensor(batch["input_ids"]), attention_mask=torch.tensor(batch["input_mask"]).long(),
            token_type_ids=torch.tensor(batch["segment_ids"]).long(), labels=labels,
        )  # fmt: skip
    logits = engine.predict(batch)["label"]
    np.testing.assert_allclose(logits, expected.logits.numpy(), rtol=0, atol=1e-5)
    assert task.metrics(engine.evaluate(batch))["loss"] == pytest.approx(float(expected.loss), abs=1e-5)
    assert read_weights(tmp_path / "hf", MODEL, task)[1] == ""  # and it comes back with its head

"""Command lines that cannot be obeyed: one line and an exit status before a framework is loaded, and nothing is written.

{NAME} is a path of `paths`. An error has the parts between the bars, in this order: what is wrong, expected and found, advice.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import trainer
from bertprep.records.examples import SquadEvalExamples
from bertprep.records.records import Records
from bertprep.records.write import write_examples
from bertprep.tasks.glue import TASKS, own_task
from bertprep.weights.hugging_face import save_weights
from bertprep.work.layout import LEDGER, MANIFEST
from tests.trainer.numpy_engine import pattern_of, refuse
from tests.trainer.small_data import TOKENS, save_checkpoint, set_format, write_data, write_in_workspace
from tests.trainer.small_runs import MODEL, VOCABULARY, WEIGHTS
from trainer.model_config import ModelConfig
from trainer.tasks.classification import Classification
from trainer.tasks.pretraining import Pretraining
from trainer.tasks.squad import Squad
from trainer.weights import initial_values

MOOD = Classification(own_task("mood", ("neg", "pos")))
TRAINED = {
    "of_cola": Classification(TASKS["cola"]), "of_turned": Classification(own_task("mood", ("pos", "neg"))),
    "of_mood": MOOD, "of_squad": Squad("v1.1"), "of_squad_2": Squad("v2.0"), "of_another_vocabulary": Squad("v1.1"),
}  # fmt: skip


@pytest.fixture(scope="module")
def paths(tasks: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A folder with all that the mistakes below are about."""
    root = tmp_path_factory.mktemp("mistakes")
    data = {
        "a": {"records": 128}, "b": {"cased": True}, "c": {"record_format": "ofrecord"}, "wide": {"pred": 3},
        "unknown": {"records": 100, "tokens": None, "has_manifest": False}, "words": {"tokens": (*TOKENS, "f")},
        "long": {"seq": 16, "cased": True}, "other": {"seq": 16, "tokens": (*TOKENS, "f")}, "own_vocabulary": {},
    }  # fmt: skip
    for name, options in data.items():
        write_data(root / name, **options)
    for name in ("wrong.txt", "own_vocabulary/vocab.txt"):
        (root / name).write_text("\n".join(TOKENS[:-1]) + "\n")
    (root / "pictures").mkdir()
    for name in ("loss.png", "nbest_predictions.json"):
        (root / "pictures" / name).write_text("of another tool")
    write_in_workspace(root / "two", "short", time=1, records=128)
    write_in_workspace(root / "two", "long", time=2, seq=16, records=128)
    write_in_workspace(root / "half", "short", time=1)
    for seq in (32, 128):
        unfinished = write_in_workspace(root / "half", f"of {seq}", time=2, seq=seq)
        (unfinished / MANIFEST).unlink()
        (unfinished / LEDGER).mkdir()
    models = {
        "few": ModelConfig(vocab_size=10, max_position_embeddings=4), "less": ModelConfig(vocab_size=9),
        "small": MODEL, "short": replace(MODEL, max_position_embeddings=8),
        "far": ModelConfig(vocab_size=10, max_position_embeddings=2040),
    }  # fmt: skip
    for name, model in models.items():
        (root / f"{name}.json").write_text(model.to_json())
    for name, task in TRAINED.items():
        save_checkpoint(root / name, task)
        tokens = VOCABULARY.read_text().splitlines()
        (root / name / "vocab.txt").write_text("\n".join(reversed(tokens) if "vocabulary" in name else tokens) + "\n")
    for name, number in {"of_tomorrow": 2, "of_no_format": None}.items():
        save_checkpoint(root / name)
        set_format(root / name / "checkpoint-000000001.safetensors", number)
    for name, labels in {"hf_turned": ["pos", "neg"], "hf_upper": ["POS", "NEG"], "hf_unclear": [3, 4]}.items():
        (root / name).mkdir()
        save_weights(root / name / "model.safetensors", initial_values(MODEL, seed=1, task=MOOD))
        named = {str(index): label for index, label in enumerate(labels)}
        (root / name / "config.json").write_text(json.dumps({**json.loads(MODEL.to_json()), "id2label": named}))
    (root / "hf_headless").mkdir()
    save_weights(root / "hf_headless" / "model.safetensors", initial_values(MODEL, seed=1, task=Pretraining()))
    (root / "hf_headless" / "config.json").write_text(MODEL.to_json())
    return {
        "root": root, "squad": tasks["1.1"], "mood": tasks["mood"], "w": tasks["workdir"],
        "hf": WEIGHTS, **_corrupt(root, tasks["1.1"]),
    }  # fmt: skip


def _corrupt(root: Path, squad: Path) -> dict[str, Path]:
    """Copies of SQuAD's records whose questions, or whose manifest, are not those that they were made of."""
    copies = {name: root / name for name in ("no_manifest", "other_answers", "other_length", "other_order")}
    for folder in copies.values():
        shutil.copytree(squad, folder)
    (root / "no_manifest" / MANIFEST).unlink()
    for path, old, new in (
        (root / "other_answers" / "dev.json", '"text": "Paris', '"text": "paris'),
        (root / "other_length" / MANIFEST, '"seq": 48', '"seq": 47'),
    ):
        path.write_text(path.read_text().replace(old, new))
    (part,) = (root / "other_order" / "dev").iterdir()
    with Records([root / "other_order"], "test") as records:
        block = SquadEvalExamples.empty(len(records), seq=records.seq)
        records.gather_into(block, np.arange(len(records))[::-1].copy())
    write_examples([block], {"tfrecord": part})
    return copies


USAGE, DATA = 2, 1
TWO = "--workdir two --seq 8"
TORCH, FLOW = "--data a --engine torch", "--data a --engine oneflow"
SCORE = "evaluate --data {mood} --init"
FAR, FIRST = "--data a --engine tensorflow --model far.json", "checkpoint-000000001.safetensors"


@pytest.mark.parametrize(
    ("line", "status", "parts"),
    [
        # of the command line alone
        ("train", USAGE, "train: | pretrain | --help"),
        ("--step 5", USAGE, "--step: | --steps | --help"),
        ("--beta2 1", USAGE, "--beta2 1: | above 0 and below 1"),
        ("--data a --lr 0", USAGE, "--lr 0: | above 0"),
        ("--data a --batch-size 0", USAGE, "--batch-size 0: | at least 1 | 1,048,576"),
        ("--data a --steps 99999999999", USAGE, "--steps 99999999999: | at most 10,000,000,000"),
        ("--data a --batch-size 4,2", USAGE, "--batch-size 4,2: | a whole number"),
        ("--data a --hosts one:1,two", USAGE, "--hosts one:1,two: | 'two' | HOST:PORT"),
        ("--data a --hosts one:1,two:1", USAGE, "--hosts | --host-rank | both"),
        ("--data a --host-rank 1", USAGE, "--hosts | --host-rank | both"),
        ("--data a --out few.json/x", USAGE, "--out few.json/x: | few.json is not a folder"),
        (f"{TORCH} --model far.json --out own_vocabulary", USAGE, "--out own_vocabulary/vocab.txt: | exists, and"),
        (f"{TORCH} --model far.json --out pictures", USAGE, "--out pictures/loss.png: | exists, and this option did not write"),
        ("evaluate --data {squad} --init of_squad --out pictures", USAGE, "--out pictures/nbest_predictions.json: | exists"),
        # data, model and weights
        ("pretrain", USAGE, "data: | with seq 128; make them by bertprep create --seq 128 --workdir data | --data"),
        ("--workdir two --seq 8 --format ofrecord", USAGE, "two: | with seq 8 as ofrecord files | create --seq 8 --format"),
        ("--workdir half", USAGE, "half: | no finished | with seq 128, only with 8"),
        ("--data a --seq 128", USAGE, "a: | 8 tokens | --seq 128"),
        ("--data a long", DATA, "long/ | 16 tokens | 8 and 2 | a/"),
        ("--data a wide", DATA, "wide/ | 3 predictions | 8 and 2"),
        ("--data a c --format tfrecord", USAGE, "c: | ofrecord | --format tfrecord"),
        ("--data a words", USAGE, "words: | vocabulary sha256 | a has"),
        ("--data a b", USAGE, "b: | cased True | a has False"),
        ("--data a --vocab none.txt", DATA, "none.txt: | No such file"),
        ("--data a --vocab wrong.txt", DATA, "wrong.txt: | a was made with: its sha256"),
        ("--data unknown", USAGE, "unknown: | vocab.txt"),
        ("--data a --repeat-epochs", USAGE, "--repeat-epochs: | token shards | a "),
        ("--data a --pred 5", USAGE, "--pred: | token shards | a "),
        ("--data a --model few.json", USAGE, "a: | 8 tokens | few.json | max_position_embeddings 4"),
        ("--data a --model less.json", USAGE, "a: | 10 tokens | less.json | vocab_size 9"),
        ("--data a --model enormous", USAGE, "--model enormous: | tiny, mini, | bert_config.json"),
        ("--data a --init none", USAGE, "--init none: does not exist"),
        ("--data {squad} --model tiny", DATA, "{squad}/training/squad_v1.1_training_00000.tfrecord: | SQuAD"),
        # lengths of a run
        (f"{TWO} --steps 5 --warmup-steps 6", USAGE, "--warmup-steps 6: | 5 steps"),
        (f"{TWO} --steps 1", USAGE, "two/tfrecord/short/corpus: | one step | a learning rate of 0; give more --steps"),
        (f"{TWO} --batch-size 65 --epochs 1", USAGE, "short/corpus: | one step | 65 | 128 | --epochs, or a smaller --batch"),
        # checkpoints of another format
        (f"{FAR} --out of_tomorrow", DATA, f"of_tomorrow/{FIRST}: has format 2, | reads format 1; use the version"),
        (f"{FAR} --out of_no_format", DATA, f"of_no_format/{FIRST}: has no format number, | another --out"),
        ("--data a --init of_tomorrow", DATA, f"of_tomorrow/{FIRST}: has format 2, | use the version"),
        ("evaluate of_tomorrow --data {mood}", DATA, f"of_tomorrow/{FIRST}: has format 2, | use the version"),
        ("export of_tomorrow model", DATA, f"of_tomorrow/{FIRST}: has format 2, | use the version"),
        ("export of_no_format model", DATA, f"of_no_format/{FIRST}: has no format number, | name another file"),
        # fine-tuning
        ("glue", USAGE, "--name mrpc | --data"),
        ("glue --name mood --eval-every 5 --workdir {w}", USAGE, "--eval-every: unknown option"),
        ("glue --name SST-2 --workdir {w}", USAGE, "{w}: | glue_sst2 | bertprep task glue"),
        ("squad --format ofrecord --workdir {w}", USAGE, "{w}: | squad_v1.1 as ofrecord"),
        ("squad --init nobody/nothing --workdir {w}", USAGE, "--init nobody/nothing: does not exist"),
        ("squad --init {hf} --workdir {w}", USAGE, "{hf}: | bert_config.json or config.json | --model"),
        ("squad --init {hf} --model small.json --workdir {w}", DATA, "{hf}: | 97 | 2,937"),
        ("squad --model short.json --workdir {w}", USAGE, "{squad}: | 48 tokens | short.json | max_position_embeddings 8"),
        ("squad --model tiny --epochs 0.1 --workdir {w}", USAGE, "{squad}: | one step | 12 | more --epochs"),
        ("squad --data no_manifest", USAGE, "no_manifest: | manifest.json"),
        ("glue --name cola --data {mood}", USAGE, "{mood}: | mood, labels neg, pos | bertprep task glue"),
        ("glue --data {squad}", USAGE, "{squad}: | SQuAD v1.1 | bertprep task glue"),
        ("squad --version 2.0 --data {squad}", USAGE, "{squad}: | SQuAD v1.1 | bertprep task"),
        # engines
        ("--data a --engine pytorch", USAGE, "--engine pytorch: | --engine torch"),
        ("--data a --engine TF", USAGE, "--engine TF: | --engine tensorflow"),
        ("--data a --engine tensorflow --stages 2", USAGE, "--stages: | OneFlow | --engine"),
        ("--data a --engine tensorflow --checkpoint-activations", USAGE, "--checkpoint-activations: | TensorFlow"),
        (f"{TORCH} --xla", USAGE, "--xla: | PyTorch"),
        (f"{FLOW} --xla", USAGE, "--xla: | OneFlow"),
        (f"{FLOW} --hosts a:1,b:1 --host-rank 0", USAGE, "--hosts: | python -m oneflow.distributed.launch"),
        (f"{FLOW} --devices 4", USAGE, "--devices: | python -m oneflow.distributed.launch"),
        (f"{FLOW} --stages 2", USAGE, "--stages 2: | divide | 1"),
        (f"{FLOW} --stages 3 --model tiny", USAGE, "--stages 3: | 2 layers"),
        (f"{FLOW} --model far.json", USAGE, "--model: | 2039"),
        (f"{FLOW} --amp fp16", USAGE, "--amp fp16: | CPU"),
        ("squad --workdir {w} --model tiny --engine oneflow --deterministic off", USAGE, "--deterministic: | OneFlow"),
        ("squad --workdir {w} --model tiny --engine oneflow --stages 2", USAGE, "--stages 2: | fine-tuning"),
        # evaluation
        ("evaluate --data {squad}", USAGE, "which weights? | evaluate RUN --data DIR"),
        ("evaluate {hf} --data {squad} --init of_mood", USAGE, "{hf} and --init of_mood: give the weights once"),
        ("evaluate none --data {squad}", USAGE, "none: does not exist"),
        ("evaluate --init {hf}", USAGE, "--data: | needed"),
        ("evaluate --init {hf} --data {squad} --sequences 3", USAGE, "{squad}: | --sequences"),
        ("evaluate of_squad --data {squad} --vocab wrong.txt", USAGE, "--vocab: | pretraining records | {squad} | leave"),
        (f"{SCORE} of_cola", USAGE, "of_cola/ | cola, labels 0, 1 | {mood} | mood, labels neg, pos"),
        (f"{SCORE} of_turned", USAGE, "of_turned/ | labels pos, neg | {mood}"),
        ("evaluate --data {squad} --init of_squad_2", USAGE, "of_squad_2/ | SQuAD v2.0 | {squad} | SQuAD v1.1"),
        ("evaluate --data {squad} --init of_mood", USAGE, "of_mood/ | mood, labels neg, pos | {squad} | SQuAD v1.1"),
        ("evaluate --data {squad} --init of_another_vocabulary", USAGE, "of_another_vocabulary/vocab.txt: | sha256 | {squad}"),
        ("squad --workdir {w} --init of_another_vocabulary", USAGE, "sha256 | {squad} | --vocab of_another_vocabulary/"),
        (f"{SCORE} hf_turned", USAGE, "hf_turned: | pos, neg | {mood} | neg, pos"),
        (f"{SCORE} hf_unclear", DATA, "hf_unclear/config.json: | id2label.0"),
        (f"{SCORE} hf_headless", USAGE, "hf_headless/ | output_weights, output_bias | mood"),
        ("evaluate --data no_manifest --init of_squad", USAGE, "no_manifest: | manifest.json | bertprep task"),
        ("evaluate --data other_answers --init of_squad", DATA, "other_answers/dev.json: | sha256 | manifest.json"),
        ("evaluate --data other_length --init of_squad", DATA, "dev.json: | 47 tokens | 48"),
        ("evaluate --data other_order --init of_squad", DATA, "other_order/dev.json: | in another order; make the "),
        # other commands
        ("bench --engine tensorflow --model tiny --seq 513", USAGE, "--seq 513 --pred 20: | 512"),
        ("bench --engine tensorflow --model tiny --seq 8 --pred 9", USAGE, "--seq 8 --pred 9: | 512"),
        ("export {hf} model", USAGE, "{hf}: is not a checkpoint"),
        ("export absent model", USAGE, "absent: does not exist"),
        ("export of_cola {mood}", USAGE, "{mood}: exists already"),
        ("export of_cola few.json", USAGE, "few.json: exists already"),
        ("export of_cola few.json/x", DATA, "few.json/x: cannot be written: | few.json is a file"),
        ("export of_cola s3://bucket/x", USAGE, "s3://bucket/x: | not a URL"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_and_nothing_is_written(
    line: str, status: int, parts: str, paths: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(paths["root"])
    before = files_of(paths["root"])
    found, error = refuse(line.format(**paths))
    assert found == status
    assert re.match(rf"(.*[/ ])?{pattern_of(parts.format(**paths))}", error), error
    assert files_of(paths["root"]) == before


def files_of(folder: Path) -> dict[Path, int]:
    """All files, with the times when they were written, but the caches of where records start."""
    return {
        path: path.stat().st_mtime_ns if path.is_file() else 0
        for path in folder.rglob("*")
        if not path.name.startswith(".record-index")
    }


def test_a_mistake_is_found_before_a_framework_is_loaded(paths: dict[str, Path]) -> None:
    words = ["-X", "importtime", "-m", "trainer", "--data", "a", "--model", "few.json", "--steps", "5"]
    environment = {**os.environ, "PYTHONPATH": str(Path(trainer.__file__).parents[1])}
    ended = subprocess.run([sys.executable, *words], cwd=paths["root"], env=environment, capture_output=True, text=True)
    imported = [line.rpartition("|")[2].strip() for line in ended.stderr.splitlines() if line.startswith("import time:")]
    assert (ended.returncode, "model few.json" in ended.stderr, "trainer.engines" in imported) == (2, True, True)
    assert not {name.partition(".")[0] for name in imported} & {"tensorflow", "keras", "oneflow", "torch"}

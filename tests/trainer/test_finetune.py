"""Fine-tuning: what is asked for becomes a run on the loop that is there, scored at each epoch; mistakes are one line."""

import json
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bertprep.errors import BertprepError, UsageError
from bertprep.instances import load_vocabulary
from bertprep.options import read_options
from bertprep.records.data_sets import find_records
from bertprep.tasks.glue import TASKS
from bertprep.tasks.glue_metrics import compute_metrics
from bertprep.weights.hugging_face import save_weights
from tests.trainer.numpy_engine import NoSignal, NumPyEngine, Ranks, entries, stopped_at
from tests.trainer.small_runs import MODEL, VOCABULARY, make_records
from tests.trainer.task_data import SEQ, make_moods, make_squad
from trainer import checkpoint, loop
from trainer.checkpoint import BEST, find_checkpoints
from trainer.cli import main, make_parser
from trainer.finetune import GLUE, SQUAD, _Request
from trainer.pretrained import Pretrained
from trainer.settings import RunSettings
from trainer.tasks.classification import Classification
from trainer.tasks.registry import task_of_checkpoint, task_of_records
from trainer.tasks.squad import Squad
from trainer.weights import initial_values

GOOD = load_vocabulary(VOCABULARY).tokens.index("good")
EPOCHS, BATCH = 3, 8


@pytest.fixture(scope="module")
def workdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tasks")
    make_moods(folder)
    for version in ("1.1", "2.0"):
        make_squad(folder, version)
    (folder / "small.json").write_text(MODEL.to_json())
    return folder


def moods(workdir: Path) -> Path:
    (folder,) = workdir.glob("tfrecord/*/glue_mood")
    return folder


def request(command: str, workdir: Path, *options: str, model: bool = True) -> _Request:
    sizes = ["--model", str(workdir / "small.json")] if model else []
    arguments = [command, "--workdir", str(workdir), *sizes, *options]
    namespace = make_parser(command).parse_args(arguments)
    of = SQUAD if command == "squad" else GLUE
    made: Any = read_options(of.options, namespace)
    return _Request(made, of.kind, namespace)


def settings_of(command: str, workdir: Path, *options: str, devices: int = 1, model: bool = True) -> RunSettings:
    machine: Any = SimpleNamespace(devices=devices, has_accelerator=False)
    return request(command, workdir, *options, model=model).settings_on(machine)


def test_a_run_is_one_phase_with_the_defaults_of_the_field(workdir: Path) -> None:
    settings = settings_of("squad", workdir)
    (phase,) = settings.phases
    assert (phase.batch_size, phase.schedule.peak, phase.seq) == (12, 3e-5, 2 * SEQ)
    assert phase.steps == 24 * 2 // 12
    assert settings.task == Squad("v1.1")
    assert (settings.eval_every, settings.eval_sequences, settings.keep_best) == (2, 0, True)
    assert settings.out == workdir / "models" / "squad_v1.1_small"
    settings = settings_of("glue", workdir, "--name", "mood", "--batch-size", "5", "--epochs", "2.5", devices=2)
    (phase,) = settings.phases
    assert (phase.steps, phase.schedule.warmup_steps, phase.schedule.peak) == (16, 1, 2e-5)
    assert settings.eval_every == 7  # the sixth step ends within the first epoch
    assert isinstance(settings.task, Classification)
    assert settings.task.of.labels == ("neg", "pos")


def test_weights_are_named_by_the_id_of_their_download(workdir: Path) -> None:
    folder = workdir / "download" / "weights" / "somebody" / "small-bert"
    folder.mkdir(parents=True)
    save_weights(folder / "model.safetensors", initial_values(MODEL, seed=1))
    (folder / "config.json").write_text(MODEL.to_json())
    settings = settings_of("squad", workdir, "--init", "somebody/small-bert", model=False)
    assert (settings.init, settings.model) == (folder / "model.safetensors", MODEL)
    assert settings.out == workdir / "models" / "squad_v1.1_small-bert"
    (folder / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n")
    with pytest.raises(UsageError, match=r"small-bert/vocab\.txt: has sha256 \w+\.\.\., the records in .* were made with a"):
        settings_of("squad", workdir, "--init", "somebody/small-bert", model=False)


def test_tasks_are_named_as_create_names_them(workdir: Path) -> None:
    assert (
        settings_of("glue", workdir, "--name", "mood").task == settings_of("glue", workdir, "--data", str(moods(workdir))).task
    )
    for name, expected in (("MRPC", "mrpc"), ("SST-2", "sst2"), ("Reviews", "Reviews")):
        with pytest.raises(UsageError, match=f"no finished records of glue_{expected}; .* --name {expected} makes them"):
            request("glue", workdir, "--name", name)


def test_a_run_is_named_by_the_task_of_its_records_and_by_its_weights(workdir: Path, tmp_path: Path) -> None:
    folder = tmp_path / "tfrecord"
    shutil.copytree(moods(workdir), folder)
    assert settings_of("glue", workdir, "--data", str(folder)).out.name == "glue_mood_small"
    run = tmp_path / "uncased_L-2"
    header = checkpoint.RunState({"model": asdict(MODEL)}, 10)
    file = checkpoint.save(run, header, initial_values(MODEL, seed=1), keep=1)
    names = {str(run): "uncased_L-2", str(file): "uncased_L-2_checkpoint-000000010"}
    for name in ("bert_model.ckpt", "model.ckpt-300", "mine.safetensors"):
        (run / f"{name}.index").touch()
    (run / "mine.safetensors").touch()
    (run / "mine.safetensors.index").unlink()
    names |= {str(run / "bert_model.ckpt"): "uncased_L-2", str(run / "bert_model.ckpt.index"): "uncased_L-2"}
    names |= {str(run / "model.ckpt-300"): "uncased_L-2_model.ckpt-300", str(run / "mine.safetensors"): "mine"}
    assert {name: Pretrained(None, MODEL, name).short_name for name in names} == names


def test_dropout_is_a_switch_of_each_run(workdir: Path, tmp_path: Path) -> None:
    header = checkpoint.RunState({"model": asdict(MODEL.without_dropout())}, 10)
    checkpoint.save(tmp_path, header, initial_values(MODEL, seed=1), keep=1)
    machine: Any = SimpleNamespace(devices=1, has_accelerator=False)
    for options, expected in (((), MODEL), (("--no-dropout",), MODEL.without_dropout())):
        asked = request("squad", workdir, "--init", str(tmp_path), *options, model=False)
        settings = asked.settings_on(machine)
        assert settings.model == expected
        assert ("no dropout" in dict(asked.describe(settings, machine))["model"]) == (expected != MODEL)
    (tmp_path / "none.json").write_text(MODEL.without_dropout().to_json())
    asked = request("squad", workdir, "--model", str(tmp_path / "none.json"), model=False)
    assert dict(asked.describe(asked.settings_on(machine), machine))["model"].endswith("parameters, no dropout")


def test_a_new_run_says_that_its_head_is_drawn(workdir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cola = Classification(TASKS["cola"])
    header = checkpoint.RunState({"model": asdict(MODEL), **cola.made_with()}, 10)
    file = checkpoint.save(tmp_path / "cola", header, initial_values(MODEL, 1, cola), keep=1)
    engine: Any = NumPyEngine()
    taken: list[str] = []
    engine.restore = taken.extend
    settings = mood_settings(workdir, tmp_path / "run", init=file)
    said = f"--init {file}: the head of cola with 2 labels (0, 1) is not that of mood with 2 labels (neg, pos); drawn from"
    train(settings, says_mood(0), engine)
    assert said in capsys.readouterr().err
    assert "bert/pooler/dense/bias" in taken
    assert "output_weights" not in taken
    train(settings, says_mood(0))  # resumes, with the head that it has learned
    assert said not in capsys.readouterr().err


def test_the_task_of_records_and_of_checkpoints_is_the_same(workdir: Path) -> None:
    for settings in (settings_of("squad", workdir, "--version", "2.0"), settings_of("glue", workdir, "--name", "mood")):
        task = settings.task
        assert task_of_records(find_records(settings.phases[0].data[0])) == task
        assert task_of_checkpoint(json.loads(json.dumps(task.made_with()))) == task
    known = Classification(TASKS["mrpc"])
    assert task_of_checkpoint(known.made_with()) == known
    with pytest.raises(BertprepError, match="a checkpoint of the task 'poetry', which this version does not have"):
        task_of_checkpoint({"task": {"name": "poetry"}})
    with pytest.raises(BertprepError, match="a checkpoint's task is not described as expected"):
        task_of_checkpoint({"task": {"name": "classification", "of": "mood", "labels": ["one"]}})


def says_mood(right_from: int) -> Callable[..., dict[str, Any]]:
    """A classifier that says what is true from so many updates on, and the opposite before."""

    def says(input_ids: Any, updates: int) -> dict[str, Any]:
        is_good = (input_ids == GOOD).any(axis=1)
        is_said = is_good if updates >= right_from else ~is_good
        return {"logits": np.stack([~is_said, is_said], axis=1).astype(np.float32)}

    return says


def mood_settings(workdir: Path, out: Path, **more: Any) -> RunSettings:
    settings = settings_of("glue", workdir, "--name", "mood", "--out", str(out), "--batch-size", "8", "--log-every", "1")
    return replace(settings, save_every=5, **more)


def train(settings: RunSettings, says: Any, engine: Any = None) -> Any:
    engine = engine or NumPyEngine()
    engine.says = says
    assert loop.train(settings, engine)
    return engine


def test_the_loop_scores_each_epoch_and_keeps_the_best(workdir: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    train(mood_settings(workdir, out), says_mood(right_from=12))
    found = entries(out, "evaluation")
    assert [(entry["step"], entry["sequences"], entry["accuracy"]) for entry in found] == [(8, 21, 0), (16, 21, 1), (24, 21, 1)]
    assert found[0]["loss"] == pytest.approx(np.log(1 + np.e))  # of logits 1 and 0, the wrong way round
    assert found[1]["loss"] == pytest.approx(np.log(1 + np.e) - 1)
    header = checkpoint.read_header(out / BEST)
    assert (header["step"], header["test"]) == (16, {"phase": 1, "sequences": 21, "accuracy": 1.0})
    assert header["task"] == {"name": "classification", "of": "mood", "labels": ["neg", "pos"]}
    assert "accuracy" in entries(out, "train")[0]
    assert (out / "loss.png").stat().st_size > 1000


def test_a_run_that_is_stopped_ends_with_the_same_checkpoints(workdir: Path, tmp_path: Path) -> None:
    whole, stopped = (mood_settings(workdir, tmp_path / name) for name in ("whole", "stopped"))
    train(whole, says_mood(12))
    engine: Any = NumPyEngine()
    engine.says = says_mood(12)
    with stopped_at(11, engine):
        assert not loop.train(stopped, engine)
    train(stopped, says_mood(12))
    for path in (*find_checkpoints(whole.out), whole.out / BEST):
        assert (stopped.out / path.name).read_bytes() == path.read_bytes()
    assert isinstance(whole.task, Classification)
    other = Classification(replace(whole.task.of, labels=("neg", "Pos")))
    with pytest.raises(BertprepError, match="was made with task"):
        train(replace(whole, task=other), says_mood(12))


def test_ranks_score_all_rows_together(workdir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """21 sequences in batches of 8 over two ranks: the last batch of one rank has but one, of the other none."""
    monkeypatch.setattr(loop, "StopSignal", NoSignal)
    # What loads large packages does so before the ranks wait for each other, which they do for some seconds only
    monkeypatch.setattr("trainer.log.draw_losses", lambda *_: None)
    compute_metrics(TASKS["cola"], np.eye(2, dtype=np.float32), np.arange(2, dtype=np.int32))
    settings = mood_settings(workdir, tmp_path / "run")
    settings = replace(settings, phases=(replace(settings.phases[0], batch_size=4),))
    ranks = Ranks(2)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda rank: train(settings, says_mood(12), NumPyEngine(ranks, rank)), range(2)))
    assert [entry["accuracy"] for entry in entries(tmp_path / "run", "evaluation")] == [0, 1, 1]


def test_what_cannot_be_scored_is_refused_before_the_first_step(workdir: Path, tmp_path: Path) -> None:
    folder = make_moods(tmp_path / "spoilt")
    (path,) = (folder / "dev").iterdir()
    data = bytearray(path.read_bytes())
    data[-20:-4] = b"\xff" * 16
    path.write_bytes(data)
    options = ["--data", str(folder), "--out", str(tmp_path / "run"), "--batch-size", "8", "--skip-bad-records", "3"]
    engine: Any = NumPyEngine()
    with pytest.raises(BertprepError, match=r"dev/.*: record 20: the checksum of its data"):
        train(settings_of("glue", workdir, *options), says_mood(0), engine)
    assert "begin 1" not in engine.events
    folder = make_squad(tmp_path / "without questions")
    (folder / "dev.json").unlink()
    with pytest.raises(BertprepError, match=r"squad_v1\.1: lacks dev\.json, vocab\.txt or manifest\.json, which predictions"):
        train(settings_of("squad", workdir, "--data", str(folder), "--out", str(tmp_path / "run")), says_mood(0), engine)


def test_a_record_that_is_damaged_meanwhile_ends_the_run(workdir: Path, tmp_path: Path) -> None:
    folder = make_moods(tmp_path / "spoilt")
    (path,) = (folder / "dev").iterdir()
    engine: Any = NumPyEngine()

    def spoil(step: int) -> None:
        if step == 7:
            with path.open("r+b") as file:
                file.seek(-20, 2)
                file.write(b"\xff" * 16)

    engine.on_step = spoil
    options = ["--data", str(folder), "--out", str(tmp_path / "run"), "--batch-size", "8", "--skip-bad-records", "3"]
    with pytest.raises(BertprepError, match=r"dev/.*: record 20: the checksum .*; step 8 is saved"):
        train(settings_of("glue", workdir, *options), says_mood(0), engine)


@pytest.mark.parametrize("version", ["1.1", "2.0"])
def test_squad_is_scored_by_its_answers(version: str, workdir: Path, tmp_path: Path) -> None:
    """A reader that knows that answers begin with "paris" and end before the full stop."""
    tokens = load_vocabulary(VOCABULARY).tokens
    stop, question = tokens.index("."), tokens.index("why") if "why" in tokens else None

    def says(input_ids: Any, updates: int) -> dict[str, Any]:  # noqa: ARG001 - it is right at once
        where = np.full((2, *input_ids.shape), -5, np.float32)
        live = tokens.index("in")
        for row, ids in enumerate(input_ids):
            if not ids.any():  # what fills the last batch up
                continue
            if question is not None and question in ids:
                where[:, row, 0] = 5
            else:
                where[0, row, int(np.flatnonzero(ids == live)[0]) + 1] = 5
                where[1, row, int(np.flatnonzero(ids == stop)[0]) - 1] = 5
        return {"start_logits": where[0], "end_logits": where[1]}

    out = tmp_path / "run"
    train(settings_of("squad", workdir, "--version", version, "--out", str(out)), says)
    last = entries(out, "evaluation")[-1]
    assert (last["exact_match"], last["f1"]) == (100, 100)
    assert ("threshold" in last) == (version == "2.0")
    if version == "2.0":
        assert [last[f"{kind}_{score}"] for kind in ("HasAns", "NoAns") for score in ("exact", "f1")] == [100, 100, 100, 100]
    assert checkpoint.read_header(out / BEST)["test"]["f1"] == 100


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("glue", "which task? give --name, such as --name mrpc, or the folder of its records with --data"),
        ("glue --name mrpc", "{w}: has no finished records of glue_mrpc; bertprep create --task glue --name mrpc makes them"),
        (
            "squad --format ofrecord",
            "{w}: has no finished records of squad_v1.1 as ofrecord files; bertprep create --task squad",
        ),
        ("squad", "--init: give the weights to start from, such as --init google-bert/bert-base-uncased after"),
        ("squad --init nobody/nothing", "--init nobody/nothing: does not exist; name a checkpoint, a model.safetensors or a"),
        (
            "squad --init {g}/hugging_face.safetensors",
            "hugging_face.safetensors: has no bert_config.json or config.json",
        ),
        ("squad --init {g}/hugging_face.safetensors --model {w}/small.json", "has 97 word embeddings for a vocabulary of"),
        ("squad --model tiny --batch-size 0", "--batch-size 0: must be at least 1"),
        ("squad --model tiny --epochs 0", "--epochs 0: must be above 0"),
        ("squad --model {w}/few.json", "has records of 48 tokens, the model {w}/few.json has max_position_embeddings 8"),
        ("squad --model tiny --epochs 0.1", "nothing would be learned; give more --epochs"),
        ("squad --model tiny --steps 1", "nothing would be learned; give more --steps"),
        ("squad --model {g}/absent --data {plain}", "{plain}: its manifest.json is missing or names no task, so what the"),
        (
            "glue --model tiny --name cola --data {mood}",
            "--name cola: the records in {mood} are of mood; leave it out, or name records that bertprep create --task glue "
            "--name cola makes",
        ),
        (
            "squad --model tiny --engine oneflow --lr 1e-3 --deterministic off",
            "--deterministic off: OneFlow has no such choice",
        ),
        ("glue --model tiny --data {squad}", "records of SQuAD v1.1; name records that bertprep create --task glue makes"),
        ("squad --model tiny --version 2.0 --data {squad}", "has records of SQuAD v1.1; name records that bertprep create"),
        ("pretrain --model tiny --data {squad}", "has SQuAD records, expected pretraining records"),
        ("evaluate --data {squad}", "--init: is needed; name weights"),
        ("evaluate --init {g}/hugging_face.safetensors", "--data: is needed; name a folder of records"),
        ("evaluate --init {g}/hugging_face.safetensors --data {squad} --sequences 3", "is of a task, which is scored on all"),
    ],
)
def test_mistakes_are_one_line_and_cost_no_engine(
    arguments: str, message: str, workdir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for module in ("trainer.start", "trainer.evaluate"):
        monkeypatch.setattr(f"{module}.open_engine", None)
        monkeypatch.setattr(f"{module}.check_installed", lambda _: None)  # these tests need no framework
    (workdir / "few.json").write_text(replace(MODEL, max_position_embeddings=8).to_json())
    (squad,) = workdir.glob("tfrecord/*/squad_v1.1")
    plain = workdir / "records of another tool"
    shutil.copytree(squad / "training", plain / "training", dirs_exist_ok=True)
    places = {"w": workdir, "g": VOCABULARY.parent, "squad": squad, "mood": moods(workdir), "plain": plain}
    given = [part.format(**places) for part in arguments.split()]
    assert main([*given, *(["--workdir", str(workdir)] if given[0] != "evaluate" else [])]) in (1, 2)
    said = capsys.readouterr().err.strip().splitlines()
    assert message.format(**places) in said[-1]
    assert len(said) == 1


@pytest.mark.tensorflow
def test_glue_from_a_run_to_an_export_and_back(workdir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, folder = tmp_path / "run", next(workdir.glob("tfrecord/*/glue_mood"))
    common = ["glue", "--workdir", str(workdir), "--name", "mood", "--batch-size", "8"]
    assert main([*common, "--model", str(workdir / "small.json"), "--out", str(out), "--epochs", "1", "--lr", "3e-3"]) == 0
    last = entries(out, "evaluation")[-1]
    capsys.readouterr()
    assert main(["evaluate", "--init", str(out), "--data", str(folder), "--out", str(tmp_path / "said")]) == 0
    assert f"dev, 21 sequences: loss {last['loss']:.6g}, accuracy {last['accuracy']:.6g}\n" in capsys.readouterr().out
    assert (tmp_path / "said" / "dev" / "predictions.tsv").read_text().count("\n") == 22
    for to in ("transformers", "google"):
        exported, again = tmp_path / to, tmp_path / f"from {to}"
        assert main(["export", "--to", to, str(out), str(exported)]) == 0
        assert main([*common, "--init", str(exported), "--out", str(again), "--steps", "2", "--lr", "1e-9"]) == 0
        assert entries(again, "evaluation")[-1]["loss"] == pytest.approx(last["loss"], abs=1e-5)  # heads and all
    config = json.loads((tmp_path / "transformers" / "config.json").read_bytes())
    assert (config["architectures"], config["id2label"]) == (["BertForSequenceClassification"], {"0": "neg", "1": "pos"})


@pytest.mark.tensorflow
def test_squad_writes_predictions(workdir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, folder = tmp_path / "run", next(workdir.glob("tfrecord/*/squad_v2.0"))
    common = ["squad", "--workdir", str(workdir), "--version", "2.0", "--model", str(workdir / "small.json")]
    assert main([*common, "--out", str(out), "--lr", "1e-3"]) == 0
    capsys.readouterr()
    assert main(["evaluate", "--init", str(out / BEST), "--data", str(folder), "--out", str(tmp_path / "said")]) == 0
    assert f"f1 {checkpoint.read_header(out / BEST)['test']['f1']:.6g}" in capsys.readouterr().out
    names = ["nbest_predictions.json", "null_odds.json", "predictions.json"]
    assert sorted(path.name for path in (tmp_path / "said").iterdir()) == names
    predictions = json.loads((tmp_path / "said" / "predictions.json").read_bytes())
    assert len(predictions) == 12
    arguments = ["--init", str(out / BEST), "--data", str(folder), "--out", str(tmp_path / "blank")]
    assert main(["evaluate", *arguments, "--null-threshold=-1000"]) == 0
    assert set(json.loads((tmp_path / "blank" / "predictions.json").read_bytes()).values()) == {""}


@pytest.mark.tensorflow
def test_pretraining_records_give_both_losses(golden_corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_records(golden_corpus, tmp_path)
    (folder,) = tmp_path.glob("tfrecord/*/golden")
    weights = initial_values(MODEL, seed=1)
    save_weights(tmp_path / "model.safetensors", weights)
    (tmp_path / "config.json").write_text(MODEL.to_json())
    assert main(["evaluate", "--init", str(tmp_path), "--data", str(folder), "--sequences", "10", "--batch-size", "4"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("test, 10 sequences: loss 8.")  # about the log of the size of the vocabulary, and of 2
    assert "masked_lm_accuracy" in said
    assert "next_sentence_loss 0.6" in said
